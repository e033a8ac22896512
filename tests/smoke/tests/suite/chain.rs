// SPDX-License-Identifier: Apache-2.0
//! Access links whose packets also pass one shared link.

use std::time::{Duration, Instant};

use anyhow::ensure;
use smoke::backlog::{Backlog, Window};
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::stats::Stats;
use smoke::suite::Certain;
use smoke::testbed::{SERVER, Testbed};
use smoke::udp::{Flow, Received, Receiver, Sender};
use smoke::wait;

use super::{
    SEED, drained, dropped_only_for, emulator, had_room, link, on_bed, punctual, receivers,
    refused, udp_at, within, written,
};

const BACKBONE: &str = "backbone";
const ACCESS: [(&str, &str); 3] = [("one", "1"), ("same", "1"), ("twice", "2")];
const ACCESS_LINK: &str = "rate = \"144 Mbit/s\"\nqueue.limit = \"1 MB\"";
const SHARED_LINK: &str = "rate = \"100 Mbit/s\"\nqueue.limit = \"500 kB\"";
const SHARED_MBPS: f64 = 100.0;
/// Above the share of each access link, and below its own rate.
const OFFERED_BPS: u64 = 60_000_000;
const FRAME_BYTES: usize = 1_000;
const SECONDS: u64 = 4;
const STALL: Duration = Duration::from_millis(50);
/// As for one client of a link ([`super::rules`]).
const RATE_TOLERANCE: f64 = 0.002;
/// Over 3 s a link of weight 1 has 9,375 frames of the shared one. Deficit round robin deviates by at
/// most three frames of 1000 bytes by its weight, at a quantum of 1514: 0.03 %. The tolerance of the
/// rate is added for each link.
const SHARE_TOLERANCE: f64 = 0.0045;

fn done(linkctl: &Linkctl, arguments: &[&str]) -> anyhow::Result<()> {
    Ok(linkctl.run(arguments)?.success().map(drop)?)
}

pub fn access_links_share_backbone_by_weight(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(3), |bed| {
        let linkctl = bed.linkctl()?;
        done(&linkctl, &["link", "add", BACKBONE, "--scheduler", "drr", "--memory", "64MiB"])?;
        let access_profile = written(bed, "access.toml", &link("access", ACCESS_LINK))?;
        for (n, (name, weight)) in ACCESS.into_iter().enumerate() {
            let prefix = format!("{}/32", bed.client_address(n));
            let add = ["link", "add", name, "--via", BACKBONE, "--weight", weight];
            done(&linkctl, &[&add[..], &["--memory", "64MiB", "--prefix", &prefix]].concat())?;
            linkctl.with("--link", name).set_profile(&access_profile, SEED)?;
        }
        let backbone = linkctl.with("--link", BACKBONE);
        let shared = written(bed, "shared.toml", &link("shared", SHARED_LINK))?;
        backbone.set_profile(&shared, SEED)?;
        refuses(bed, &linkctl)?;
        shares(bed, &linkctl, &backbone)?;
        for (name, _) in ACCESS {
            done(&linkctl, &["link", "remove", name])?;
        }
        done(&linkctl, &["link", "remove", BACKBONE])
    })
}

fn shares(bed: &Testbed, linkctl: &Linkctl, backbone: &Linkctl) -> anyhow::Result<()> {
    let duration = Duration::from_secs(SECONDS);
    let flow = |to| Flow { to, rate_bps: OFFERED_BPS, frame_bytes: FRAME_BYTES, duration };
    let flows: Vec<Flow> = (0..ACCESS.len()).map(|client| flow(udp_at(bed, client))).collect();
    let receivers = receivers(bed, &flows)?;
    let sent = Sender::start(bed.server(), SERVER, flows).finish()?;
    let shared = drained(backbone)?;
    let main = drained(linkctl)?;
    let forward = |stats: &Stats| -> u64 {
        let pipes = stats.pipes().filter(|(_, way, _)| *way == "forward");
        pipes.map(|(_, _, pipe)| pipe.received().packets).sum()
    };
    let (entered, wan) = (forward(&main) + forward(&shared), main.port("wan")?.received().packets);
    ensure!(entered == wan, "{entered} packets in main and the shared link, {wan} at the port");
    had_room(bed.client())?;
    punctual(&shared, STALL)?;
    dropped_only_for(&shared, &["limit"])?;
    let received = receivers.into_iter().map(Receiver::finish).collect::<Result<Vec<_>, _>>()?;
    for (n, (name, _)) in ACCESS.into_iter().enumerate() {
        let access = drained(&linkctl.with("--link", name))?;
        dropped_only_for(&access, &[])?;
        // What leaves one link arrives at the other one, in either direction.
        let through = shared.client(name)?;
        let address = bed.client_address(n).to_string();
        let own = access.client(&address)?;
        ensure!(through.forward().received().packets == sent[n].packets, "{name}: {through:?}");
        ensure!(
            through.forward().sent() == own.forward().received(),
            "{name}: {through:?}, {own:?}"
        );
        ensure!(own.back().sent() == through.back().received(), "{name}: {through:?}, {own:?}");
    }
    let rate = |n: usize| received[n].rate_bps(1.0, SECONDS as f64) / 1e6;
    let rates = [rate(0), rate(1), rate(2)];
    let (low, high) = (1.0 - RATE_TOLERANCE, 1.0 + RATE_TOLERANCE);
    let sum = rates.iter().sum();
    within("the shared link, Mbit/s", sum, low * SHARED_MBPS, high * SHARED_MBPS)?;
    let (low, high) = (1.0 - SHARE_TOLERANCE, 1.0 + SHARE_TOLERANCE);
    within("the same weight, times the rate", rates[1] / rates[0], low, high)?;
    within("twice the weight, times the rate", rates[2] / rates[0], 2.0 * low, 2.0 * high)
}

fn refuses(bed: &Testbed, linkctl: &Linkctl) -> anyhow::Result<()> {
    refused(linkctl, &["link", "remove", BACKBONE], "passed by one, same, twice: remove these")?;
    let rule = ["link", "assign", BACKBONE, "--prefix", "10.9.0.0/16"];
    refused(linkctl, &rule, "no traffic of its own: assign it to one of these")?;
    refused(linkctl, &["link", "add", "new", "--via", "one"], "`one` is not shared")?;
    let clients = "[[client]]\nname = \"a\"\nprefix = [\"10.9.0.0/16\"]\n";
    let clients = written(bed, "clients.toml", clients)?;
    let backbone = linkctl.with("--link", BACKBONE);
    refused(&backbone, &["clients", "set", &clients], "the clients of a link that others pass")
}

/// With [`OVERHEAD_BYTES`] for each frame, phantom ones included, the rate is that of the wire.
const COMMON: &str = "rate = \"100 Mbit/s\"\noverhead = \"24 B\"\nqueue.limit = \"2 MB\"\n\
                      cross_traffic = { rate = \"30 Mbit/s\" }";
/// The client of a link with the scheduler fifo.
const ALL: &str = "all";
const OVERHEAD_BYTES: f64 = 24.0;
/// Of a phantom frame, by default.
const PHANTOM_BYTES: f64 = 1_514.0;
/// Of the cross traffic, in bytes of frame: first, and after the change.
const CROSS_MBPS: [f64; 2] = [30.0, 50.0];
/// Without a delay, so that it holds no packet most of the time.
const ACCESS_WITH_CROSS: &str = r#"
name = "access"
[forward]
rate = "144 Mbit/s"
queue.limit = "1 MB"
cross_traffic = { rate = "20 Mbit/s" }
delay.base = "0 ms"
[return]
rate = "144 Mbit/s"
queue.limit = "1 MB"
delay.base = "0 ms"
"#;
const WINDOW: u64 = 300;
const WINDOW_FRAME_BYTES: usize = 1_400;
/// Bounds of the windows in seconds after the first arrival. The change is at the end of the first.
const BEFORE: [f64; 2] = [1.5, 5.0];
const AFTER: [f64; 2] = [7.0, 10.0];
/// A stall as in [`super::rules`] is 0.09 % in 3 s.
const REST_TOLERANCE: f64 = 0.002;

/// Bits of frame per second in Mbit/s that senders get who always have a backlog and lose no frame:
/// the rate of the wire less that of the cross traffic, both with overhead, less their own overhead.
fn rest_mbps(cross_mbps: f64) -> f64 {
    let frame = WINDOW_FRAME_BYTES as f64;
    let cross = cross_mbps * (PHANTOM_BYTES + OVERHEAD_BYTES) / PHANTOM_BYTES;
    (SHARED_MBPS - cross) * frame / (frame + OVERHEAD_BYTES)
}

/// The senders keep a number of frames in flight: with these the queue is 80 ms long and has room.
/// In a queue that drops nothing, the cross traffic leaves at the rate at which it arrives. The share
/// of it in what arrives follows that in what leaves, so the difference to the final rate shrinks with
/// each pass of the queue: by the share of the cross traffic, or by half after the change.
pub fn backlogged_access_links_get_what_cross_traffic_leaves(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(2), |bed| {
        let linkctl = bed.linkctl()?;
        let before = linkctl.run(&["link", "list"])?.success()?;
        let room = ["--memory", "64MiB", "--clients", "2"];
        let add = [&["link", "add", BACKBONE, "--scheduler", "fifo"][..], &room].concat();
        done(&linkctl, &add)?;
        let backbone = linkctl.with("--link", BACKBONE);
        backbone.set_profile(&written(bed, "common.toml", &link("common", COMMON))?, SEED)?;
        let profile = written(bed, "access.toml", ACCESS_WITH_CROSS)?;
        let names = ["one", "two"];
        for (n, name) in names.into_iter().enumerate() {
            let prefix = format!("{}/32", bed.client_address(n));
            let new = ["link", "add", name, "--via", BACKBONE, "--prefix", &prefix];
            done(&linkctl, &[&new[..], &room].concat())?;
            linkctl.with("--link", name).set_profile(&profile, SEED)?;
        }
        gets_rest(bed, &linkctl, &backbone)?;
        // Cross traffic runs on all three, and does not keep them.
        for name in names {
            done(&linkctl, &["link", "remove", name])?;
        }
        crosses(&backbone, CROSS_MBPS[1])?;
        done(&linkctl, &["link", "remove", BACKBONE])?;
        let after = linkctl.run(&["link", "list"])?.success()?;
        ensure!(before == after, "the box has not all that it had: {before} {after}");
        // The next link with that name has none of this.
        done(&linkctl, &add)?;
        let stats = backbone.stats()?;
        let count =
            stats.packets(|pipe| pipe.received()) + stats.packets(|pipe| pipe.cross_offered());
        ensure!(count == 0, "{:?}", stats.clients);
        done(&linkctl, &["link", "remove", BACKBONE])
    })
}

/// Two access links get what the cross traffic of their shared link leaves, before and after a change.
fn gets_rest(bed: &Testbed, linkctl: &Linkctl, backbone: &Linkctl) -> anyhow::Result<()> {
    let window = |client| Window {
        to: udp_at(bed, client),
        frames: WINDOW,
        frame_bytes: WINDOW_FRAME_BYTES,
    };
    let mut receivers = Vec::new();
    let mut senders = Vec::new();
    for window in [window(0), window(1)] {
        let receiver = Receiver::start(bed.client(), window.to)?;
        senders.push(Backlog::start(bed.server(), SERVER, window, &receiver));
        receivers.push(receiver);
    }
    let start = Instant::now();
    wait::until_instant(start + Duration::from_secs_f64(BEFORE[0]));
    // Its packets wait in the shared link, and must not get to main meanwhile.
    refused(linkctl, &["link", "remove", "one"], "packets: stop its traffic")?;
    crosses(backbone, CROSS_MBPS[0])?;
    wait::until_instant(start + Duration::from_secs_f64(BEFORE[1]));
    let faster = format!("cross_traffic = {{ rate = \"{} Mbit/s\" }}", CROSS_MBPS[1]);
    backbone.change(&["set", "part", &faster, "--direction", "forward"])?;
    wait::until_instant(start + Duration::from_secs_f64(AFTER[0]));
    crosses(backbone, CROSS_MBPS[1])?;
    wait::until_instant(start + Duration::from_secs_f64(AFTER[1]));
    let sent = senders.into_iter().map(|s| Ok(s.finish()?)).collect::<anyhow::Result<Vec<_>>>()?;
    let (shared, mut stats) = (drained(backbone)?, vec![]);
    for name in ["one", "two"] {
        stats.push(drained(&linkctl.with("--link", name))?);
    }
    had_room(bed.client())?;
    for stats in stats.iter().chain([&shared]) {
        punctual(stats, STALL)?;
        dropped_only_for(stats, &[])?;
        let dropped = stats.packets(|pipe| pipe.cross_dropped());
        ensure!(dropped == 0, "{dropped} phantom frames dropped: the queue was full");
    }
    let received = receivers.into_iter().map(Receiver::finish).collect::<Result<Vec<_>, _>>()?;
    let mut through = 0;
    for (n, (sent, received)) in sent.iter().zip(&received).enumerate() {
        let own = stats[n].client(&bed.client_address(n).to_string())?.forward();
        let arrived = received.arrivals.len() as u64;
        if own.received().packets != *sent {
            return Err(Certain(format!("{sent} packets of the link, but it has {own:?}")).into());
        }
        ensure!(arrived == *sent, "{sent} sent, {arrived} arrived");
        through += own.received().packets;
    }
    let common = shared.client(ALL)?.forward();
    ensure!(common.sent().packets == through, "{common:?}, {through} in the access links");
    let rates = |[from, to]: [f64; 2]| -> f64 {
        received.iter().map(|one: &Received| one.rate_bps(from, to) / 1e6).sum()
    };
    for (cross, window) in CROSS_MBPS.into_iter().zip([BEFORE, AFTER]) {
        let rest = rest_mbps(cross);
        let (low, high) = ((1.0 - REST_TOLERANCE) * rest, (1.0 + REST_TOLERANCE) * rest);
        let what = format!("what {cross} Mbit/s of cross traffic leaves, Mbit/s");
        within(&what, rates(window), low, high)?;
    }
    Ok(())
}

/// The cross traffic of a shared link's client as the link reports it, within a frame.
fn crosses(link: &Linkctl, mbps: f64) -> anyhow::Result<()> {
    let offered = || -> anyhow::Result<(u64, u64)> {
        let stats = link.stats()?;
        stats.conserved()?;
        Ok((stats.time_ns, stats.client(ALL)?.forward().cross_offered().bytes))
    };
    let (began, first) = offered()?;
    std::thread::sleep(Duration::from_secs(1));
    let (ended, last) = offered()?;
    let seconds = (ended - began) as f64 / 1e9;
    let frame = PHANTOM_BYTES * 8.0 / 1e6 / seconds;
    let offered = (last - first) as f64 * 8.0 / 1e6 / seconds;
    within("cross traffic, Mbit/s", offered, mbps - frame, mbps + frame)
}
