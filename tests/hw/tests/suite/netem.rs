// SPDX-License-Identifier: Apache-2.0
//! Comparison with the kernel's emulator, netem (`net/sched/sch_netem.c`), configured as users
//! would do for `viasat2-pings`: same hosts, same traffic, same kernel, in virtual time.
//!
//! In the return direction `viasat2-pings` waits for a slot of 41.43 ms, uniformly distributed: a mean of
//! 20.7 ms and a deviation of 12.0 ms. netem gets these figures. The limit of netem counts packets,
//! including those in flight: it gets the number of packets of 1514 bytes that the link's queue and
//! delay hold.

use anyhow::ensure;
use hw::image::Image;
use hw::inside::{Datagrams, Inside, Overload, Peer};
use hw::parts::Parts;
use smoke::binaries::Binaries;
use smoke::ping::Pings;

/// A link with a queue that an emulated processor can fill.
const NARROW: &str = r#"
name = "narrow"
[forward]
rate = "10 Mbit/s"
queue.limit = "2 MB"
delay.base = "275 ms"
[return]
rate = "10 Mbit/s"
queue.limit = "2 MB"
delay.base = "300 ms"
"#;
const NARROW_BPS: u64 = 10_000_000;
const NARROW_QUEUE: f64 = 2e6;
/// (2 MB + 10 Mb/s × 275 ms) / 1514 bytes, and the same for the return direction.
const NARROW_NETEM: [Peer<'_>; 2] =
    [plain("rate 10mbit delay 275ms limit 1548"), plain("rate 10mbit delay 300ms limit 1569")];
/// (36 MB + 144 Mb/s × 275 ms) / 1514 bytes.
const FORWARD: Peer<'_> = plain("rate 144mbit delay 275ms limit 27048");
/// (36 MB + 12 Mb/s × 320.5 ms) / 1514 bytes.
const RATE: Peer<'_> = plain("rate 12mbit delay 320.5ms 12ms distribution pareto limit 24096");
/// The rate limiter below netem. The limit of tbf is in bytes.
const BUCKET: Option<&str> = Some("rate 12mbit burst 15140 limit 36000000");
const PARETO: Peer<'_> =
    Peer { netem: "delay 320.5ms 12ms distribution pareto limit 24096", tbf: BUCKET };
const NORMAL: Peer<'_> =
    Peer { netem: "delay 320.5ms 12ms distribution normal limit 24096", tbf: BUCKET };
/// Payload of a datagram, every 2 ms.
const DATAGRAM: u64 = 600;
const DATAGRAM_BPS: u64 = DATAGRAM * 8 * 500;

const fn plain(netem: &str) -> Peer<'_> {
    Peer { netem, tbf: None }
}

struct Row {
    name: String,
    pings: Pings,
    stream: Datagrams,
}

/// Takes minutes, and tests TCP more than linkemu. Run it by name with `--ignored`.
pub fn hybla_opens_window_sooner_than_cubic(parts: &Parts) -> anyhow::Result<()> {
    in_guest(parts, |inside| {
        inside.linkemu()?;
        inside.profile("viasat2-pings")?;
        let [cubic, hybla] = ["cubic", "hybla"].map(|cc| inside.download(cc, 15));
        let (cubic, hybla) = (cubic?, hybla?);
        eprintln!("\nMb/s by the second: cubic {cubic:.0?}, hybla {hybla:.0?}");
        let early = |rates: &[f64]| rates.iter().take(5).sum::<f64>();
        ensure!(early(&hybla) > 2.0 * early(&cubic), "cubic {cubic:?}, hybla {hybla:?}");
        Ok(())
    })
}

pub fn linkemu_compares_with_netem_in_virtual_time(parts: &Parts) -> anyhow::Result<()> {
    in_guest(parts, compare)
}

fn in_guest(
    parts: &Parts,
    work: impl FnOnce(&mut Inside) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let binaries = Binaries::find().map_err(|lack| anyhow::anyhow!("{lack:?}"))?;
    let mut image = Image::new();
    image.text("etc/narrow.toml", NARROW, 0o644);
    let mut inside = Inside::boot(parts, &binaries, image)?;
    eprintln!("netem: the guest was up in {:.1} s", inside.booted().as_secs_f64());
    work(&mut inside).map_err(|error| {
        let mut report = inside.guest().console();
        for log in ["/run/dataplane.log", "/run/linkd.log"] {
            report.push_str(&inside.guest().log(log));
        }
        error.context(report)
    })
}

fn compare(inside: &mut Inside) -> anyhow::Result<()> {
    inside.linkemu()?;
    inside.profile("viasat2-pings")?;
    let own = row(inside, "linkemu")?;
    inside.profile("/etc/narrow.toml")?;
    let [own_large, own_small] = overloads(inside)?;

    inside.bridge()?;
    inside.netem(&FORWARD, &PARETO)?;
    let pareto = row(inside, "netem pareto + tbf")?;
    inside.netem(&FORWARD, &NORMAL)?;
    let normal = row(inside, "netem normal + tbf")?;
    inside.netem(&FORWARD, &RATE)?;
    let rate = row(inside, "netem pareto, rate")?;
    inside.netem(&NARROW_NETEM[0], &NARROW_NETEM[1])?;
    let [peer_large, peer_small] = overloads(inside)?;

    eprintln!();
    for row in [&own, &pareto, &normal, &rate] {
        tell(row);
    }
    for (name, of) in [
        ("linkemu, frames of 1442 B", own_large),
        ("linkemu, frames of 142 B", own_small),
        ("netem, frames of 1442 B", peer_large),
        ("netem, frames of 142 B", peer_small),
    ] {
        eprintln!("{name}: {:.2} Mb/s, queue {:.0} kB", of.mbps, of.queue_bytes / 1e3);
    }
    assert_effects(&own, &pareto, [own_large, own_small], [peer_large, peer_small])
}

fn row(inside: &mut Inside, name: &str) -> anyhow::Result<Row> {
    let pings = inside.ping(120, 0.253)?;
    let stream = inside.datagrams(DATAGRAM_BPS, DATAGRAM, 6)?;
    Ok(Row { name: name.to_owned(), pings, stream })
}

fn overloads(inside: &mut Inside) -> anyhow::Result<[Overload; 2]> {
    Ok([inside.overload(NARROW_BPS, 1400)?, inside.overload(NARROW_BPS, 100)?])
}

fn tell(row: &Row) {
    let (pings, stream) = (&row.pings, row.stream);
    eprintln!(
        "{}: idle RTT min {:.1}, p50 {:.1}, p95 {:.1}, max {:.1} ms, {} lost; {} datagrams: {} out \
         of order ({:.1} %), {} lost, jitter {:.2} ms",
        row.name,
        pings.rtt_ms(0.0),
        pings.rtt_ms(0.5),
        pings.rtt_ms(0.95),
        pings.rtt_ms(1.0),
        pings.lost(),
        stream.sent,
        stream.out_of_order,
        100.0 * stream.out_of_order as f64 / stream.sent as f64,
        stream.lost,
        stream.jitter_ms,
    );
}

/// Asserts only effects that are much larger than the error of virtual time.
fn assert_effects(
    own: &Row,
    pareto: &Row,
    [own_large, own_small]: [Overload; 2],
    [peer_large, peer_small]: [Overload; 2],
) -> anyhow::Result<()> {
    ensure!(own.stream.out_of_order == 0 && own.pings.out_of_order == 0, "linkemu reorders");
    let share = pareto.stream.out_of_order as f64 / pareto.stream.sent as f64;
    ensure!(share > 0.1, "netem's pareto reorders {share} of the datagrams");
    for of in [own_large, own_small] {
        // A ping of 0.1 s ago had a queue of at least 94 %.
        ensure!(
            (0.85..=1.05).contains(&(of.queue_bytes / NARROW_QUEUE)),
            "linkemu's queue: {of:?}"
        );
        ensure!((9.5..=10.1).contains(&of.mbps), "linkemu's rate: {of:?}");
    }
    ensure!(
        peer_small.queue_bytes < peer_large.queue_bytes / 4.0,
        "netem's queue holds packets: {peer_small:?} beside {peer_large:?}"
    );
    Ok(())
}
