// SPDX-License-Identifier: Apache-2.0
//! The whole path: real hosts, the switch, and the real programs behind it.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use p4::bed::{Bed, Shown, Times, on_bed};
use p4::chi::{Finding, repeated};
use p4::law::{Bursts, runs};
use p4::numbered::Numbered;
use smoke::cpus::Cpus;
use smoke::iperf::{Download, Plan};
use smoke::linkctl::Linkctl;
use smoke::namespace::Namespace;
use smoke::ping::{Ping, Pings};
use smoke::stats::{Count, Lateness, Pipe, Stats, drops};
use smoke::testbed::{CLIENT_INTERFACE, Options, SAT_INTERFACE, SERVER, SERVER_INTERFACE, Testbed};
use smoke::wait;

use super::SEED;

const DRAINED: Duration = Duration::from_secs(30);
/// Longer than what linkd read of the switch is good for.
const SETTLED: Duration = Duration::from_millis(250);

/// A link of these words each way.
fn link(name: &str, forward: &str, back: &str, delay: &str) -> String {
    let pipe = |direction: &str, words: &str| {
        format!(
            "[{direction}]\nrate = \"unlimited\"\nqueue.limit = \"4 MB\"\n{words}\n\
             delay.base = \"{delay}\"\n"
        )
    };
    format!("name = \"{name}\"\n{}{}", pipe("forward", forward), pipe("return", back))
}

/// Waits until the box holds nothing more and nothing is counted any more; linkd looks at the
/// switch ten times a second at most. The accounts add up.
fn drained(linkctl: &Linkctl) -> anyhow::Result<Stats> {
    let mut last = None;
    let stats = wait::until("the box holds nothing", DRAINED, || {
        let stats = linkctl.stats()?;
        let counted = stats.conservation;
        match last {
            Some((at, seen)) if seen == counted => {
                let settled =
                    counted.held == 0 && Instant::duration_since(&Instant::now(), at) > SETTLED;
                Ok(settled.then_some(stats))
            }
            _ => {
                last = Some((Instant::now(), counted));
                Ok(None)
            }
        }
    })?;
    stats.conserved()?;
    Ok(stats)
}

fn pinged(hosts: &Testbed, count: u32) -> anyhow::Result<Pings> {
    let source = hosts.client_address(0);
    let every = Duration::from_millis(20);
    Ok(Ping::start(hosts.client(), source, SERVER, count, every)?.finish()?)
}

fn median(pings: &Pings) -> f64 {
    pings.rtt_ms(0.5)
}

pub fn a_satellite_link_behind_a_switch(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, 1, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let pings = pinged(&bed.hosts, 60)?;
        println!("    ping: median {:.1} ms, {} of 60 lost", median(&pings), pings.lost());
        // As the smoke suite finds it without a switch; that takes some milliseconds more.
        ensure!(pings.share_within(560.0, 640.0) > 0.9, "{pings:?}");
        let download = Plan::new("cubic", Duration::from_secs(12));
        let transfer = Download::start(&bed.hosts, download)?.finish()?;
        println!(
            "    cubic, 12 s: {:.1} Mbit/s in the second half at a round trip of {:.0} ms, {} \
             segments sent again",
            transfer.mbps_second_half(),
            transfer.rtt_ms_second_half(),
            transfer.retransmits
        );
        ensure!(transfer.mbps_second_half() > 1.0, "{transfer:?}");
        let stats = drained(&linkctl)?;
        let client = stats.client(&bed.hosts.client_address(0).to_string())?;
        ensure!(client.forward.sent.packets > 1_000, "{client:?}");
        let shown = bed.shown()?;
        println!("    the switch: {:?}", shown.counts);
        ensure!(shown.place("delay") == Some("dataplane"), "{:?}", shown.stages);
        ensure!(shown.place("classification") == Some("switch"), "{:?}", shown.stages);
        Ok(())
    })
}

/// How often what bmv2's own queue has spoiled is measured.
const VOID: u32 = 4;
/// In a run by turns.
const CLIENTS: usize = 2;
/// At least as many; a window is not cut.
const PACKETS: usize = 100_000;
/// The switch takes no probability of 1.
const BURSTS: Bursts = Bursts { to_bad: 0.02, to_good: 0.25, loss_in_bad: 0.75 };
const INDEPENDENT: &str = "packet_loss = \"5 %\"";
const IN_BURSTS: &str = "gilbert_elliott = { to_bad = \"2 %\", to_good = \"25 %\", \
                         loss_in_bad = \"75 %\", loss_in_good = \"0 %\" }";
/// Of the delay that both are to have.
const DELAY: &str = "45 ms";
const PINGS: u32 = 50;
/// ping prints three digits.
const PING_MS: f64 = 0.1;

/// What a link does, seen by the hosts: the round trips of one that does nothing and of one that
/// delays, and for each loss who lost what.
struct Seen {
    idle_ms: f64,
    delayed_ms: f64,
}

fn delays(hosts: &Testbed, linkctl: &Linkctl) -> anyhow::Result<Seen> {
    let path = hosts.directory().write("delay.toml", &link("delay", "", "", DELAY))?;
    linkctl.set_profile("transparent", SEED)?;
    // The first one asks for the other's MAC.
    pinged(hosts, 2)?;
    let idle_ms = median(&pinged(hosts, PINGS)?);
    linkctl.set_profile(&path.display().to_string(), SEED)?;
    let delayed_ms = median(&pinged(hosts, PINGS)?);
    Ok(Seen { idle_ms, delayed_ms })
}

/// Frames that the account has as sent towards the clients and that did not leave by the
/// interface: bmv2's queue holds 64 frames, and drops without a word when a machine that stood
/// still gives it more at once.
fn silent(hosts: &Testbed, before: (&Stats, u64), after: &Stats) -> anyhow::Result<(u64, u64)> {
    let forward = |stats: &Stats| {
        let pipes = stats.pipes().filter(|(_, way, _)| *way == "forward");
        pipes.map(|(_, _, pipe)| pipe.sent.packets).sum::<u64>()
    };
    let [left, _] = interface(hosts.emulator(), SAT_INTERFACE)?;
    let sent = forward(after) - forward(before.0);
    Ok((sent.saturating_sub(left - before.1), left))
}

/// Which of each client's frames are lost towards it; the accounts of linkd and what the hosts
/// saw are the same. What bmv2's own queue has spoiled is measured again.
fn losses(hosts: &Testbed, linkctl: &Linkctl) -> anyhow::Result<Vec<Vec<bool>>> {
    for _ in 0..VOID {
        let before = drained(linkctl)?;
        let [left, _] = interface(hosts.emulator(), SAT_INTERFACE)?;
        let mut frames = Numbered::new(hosts, true, CLIENTS)?;
        while frames.lost.len() < PACKETS {
            frames.window()?;
        }
        drained(linkctl)?;
        frames.sentinel()?;
        let after = drained(linkctl)?;
        let (spoiled, _) = silent(hosts, (&before, left), &after)?;
        if spoiled > 0 {
            println!("    VOID, once more: the switch's own queue dropped {spoiled} frames");
            continue;
        }
        for client in 0..CLIENTS {
            let name = hosts.client_address(client).to_string();
            let pipe = |stats: &Stats, of: fn(&Pipe) -> Count| {
                stats.client(&name).map_or(0, |c| of(&c.forward).packets)
            };
            let during = |of: fn(&Pipe) -> Count| pipe(&after, of) - pipe(&before, of);
            let lost = frames.lost_of(client);
            let gone = lost.iter().filter(|lost| **lost).count() as u64;
            let (came, sent) = (during(|p| p.received), during(|p| p.sent));
            let counted = during(|p| p.dropped.loss);
            let all = lost.len() as u64;
            ensure!(came == all, "{name}: {came} of {all} frames came to the box");
            ensure!(counted == gone, "{name}: {gone} lost, {counted} counted");
            ensure!(sent == all - gone, "{name}: {sent} sent of {all}, {gone} lost");
        }
        return Ok((0..CLIENTS).map(|client| frames.lost_of(client)).collect());
    }
    anyhow::bail!("the switch's own queue dropped frames in each of {VOID} runs")
}

fn placed(bed: &Bed, stage: &str) -> anyhow::Result<Shown> {
    bed.until(&format!("{stage} is the switch's"), |s| s.place(stage) == Some("switch"))
}

/// Counts of one client's frames: lost, and come.
fn halves(lost: &[bool]) -> [u64; 2] {
    let gone = lost.iter().filter(|lost| **lost).count() as u64;
    [gone, lost.len() as u64 - gone]
}

/// A link by a loss of these words.
fn set(hosts: &Testbed, words: &str, seed: u64) -> anyhow::Result<()> {
    let text = link("lossy", words, "", "0 ms");
    let path = hosts.directory().write("lossy.toml", &text)?;
    hosts.linkctl()?.set_profile(&path.display().to_string(), seed)?;
    Ok(())
}

/// A bed without a switch, by a seed of its own.
fn alone<T>(
    cpus: &Cpus,
    seed: u64,
    work: impl FnOnce(&Testbed, &Linkctl) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let options = Options { clients: CLIENTS as u8, seed, ..Options::default() };
    let hosts = Testbed::new(options, cpus)?;
    let linkctl = hosts.linkctl()?;
    work(&hosts, &linkctl)
}

pub fn the_same_link_with_and_without_the_switch(cpus: &Cpus) -> anyhow::Result<()> {
    let plain = alone(cpus, SEED, delays)?;
    on_bed(cpus, CLIENTS as u8, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        // A machine that was busy during one of both has measured itself.
        let mut agreed = Ok(());
        for _ in 0..3 {
            agreed = agree(&plain, &delays(&bed.hosts, &linkctl)?);
            if agreed.is_ok() {
                break;
            }
        }
        agreed?;
        for (name, words) in [("even", INDEPENDENT), ("bursts", IN_BURSTS)] {
            println!("    {name}: with the switch and without");
            set(&bed.hosts, words, SEED)?;
            placed(bed, "loss")?;
            let mut seed = SEED;
            repeated(|| {
                let (before, _) = bed.shown()?.fate("lost");
                let with = losses(&bed.hosts, &linkctl)?;
                let (after, _) = bed.shown()?.fate("lost");
                // It was the switch that lost them, whatever had to be measured again.
                let all = with.iter().map(|l| halves(l)[0]).sum::<u64>();
                ensure!(after - before >= all, "the switch lost {} of {all}", after - before);
                // Each attempt is against other draws of the dataplane.
                seed += 1;
                let without = alone(cpus, seed, |hosts, linkctl| {
                    set(hosts, words, seed)?;
                    losses(hosts, linkctl)
                })?;
                Ok(compared(name == "even", &with, &without))
            })?;
        }
        Ok(())
    })
}

fn compared(even: bool, with: &[Vec<bool>], without: &[Vec<bool>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (client, (with, without)) in with.iter().zip(without).enumerate() {
        let [with_runs, without_runs] = [with, without].map(|l| runs(l, true));
        let what = format!("client {client}, lengths of runs");
        found.push(Finding::of_two(&what, &with_runs, &without_runs));
        let what = format!("client {client}, packets lost");
        let (one, other) = (halves(with), halves(without));
        println!("    client {client}: {one:?} lost and come, {other:?} without");
        found.push(if even {
            Finding::of_two(&what, &one, &other)
        } else {
            let [n, m] = [with, without].map(|l| BURSTS.variance(l.len() as f64));
            Finding::of_normal(&what, one[0] as f64, other[0] as f64, (n + m).sqrt())
        });
    }
    found
}

/// What the switch takes itself is what an idle link's round trip is longer by. With the same
/// delay in the box, the round trips differ by no more than that whole one.
fn agree(plain: &Seen, switched: &Seen) -> anyhow::Result<()> {
    let latency = switched.idle_ms;
    println!(
        "    round trips without the switch {:.2} ms idle, {:.2} with {DELAY} each way; with it \
         {latency:.2} and {:.2}",
        plain.idle_ms, plain.delayed_ms, switched.delayed_ms
    );
    let more = switched.delayed_ms - plain.delayed_ms;
    ensure!(
        more > -plain.idle_ms - PING_MS && more < latency + PING_MS,
        "the same delay is {more} ms longer through the switch, which takes {latency} ms itself"
    );
    Ok(())
}

/// Frames that went through a host's interface: out, and in.
fn interface(host: &Namespace, name: &str) -> anyhow::Result<[u64; 2]> {
    let read = |what| {
        let path = format!("/sys/class/net/{name}/statistics/{what}");
        let text = host.run(&["cat", &path])?;
        text.trim().parse::<u64>().with_context(|| format!("{path}: {text}"))
    };
    Ok([read("tx_packets")?, read("rx_packets")?])
}

/// All that counts frames, per direction.
#[derive(Clone, Copy, Debug, Default)]
struct Books {
    /// The hosts' interfaces.
    into: [u64; 2],
    out: [u64; 2],
    /// linkd's: of the box, with what the switch dropped.
    received: [u64; 2],
    sent: [u64; 2],
    dropped: [u64; 2],
    held: [u64; 2],
    /// The switch's.
    taken: [u64; 2],
    returned: [u64; 2],
    delivered: [u64; 2],
    lost: [u64; 2],
    gated: [u64; 2],
}

impl Books {
    fn read(bed: &Bed) -> anyhow::Result<(Self, Stats)> {
        let stats = drained(&bed.linkctl()?)?;
        let shown = bed.shown()?;
        let [server_out, server_in] = interface(bed.hosts.server(), SERVER_INTERFACE)?;
        let [client_out, client_in] = interface(bed.hosts.client(), CLIENT_INTERFACE)?;
        let sum = |of: fn(&Pipe) -> Count| {
            ["forward", "return"].map(|way| {
                let pipes = stats.pipes().filter(|(_, d, _)| *d == way);
                pipes.map(|(_, _, pipe)| of(pipe).packets).sum()
            })
        };
        let fate = |name| <[u64; 2]>::from(shown.fate(name));
        let books = Self {
            into: [server_out, client_out],
            out: [client_in, server_in],
            received: sum(|p| p.received),
            sent: sum(|p| p.sent),
            dropped: sum(|p| p.dropped.total()),
            held: sum(|p| p.held),
            taken: fate("received"),
            returned: fate("returned"),
            delivered: fate("delivered"),
            lost: fate("lost"),
            gated: fate("gated"),
        };
        Ok((books, stats))
    }

    fn balanced(&self, earlier: &Self, own: [[u64; 2]; 2]) -> anyhow::Result<()> {
        for way in 0..2 {
            let of = |field: fn(&Self) -> &[u64; 2]| field(self)[way] - field(earlier)[way];
            let (into, out) = (of(|b| &b.into), of(|b| &b.out));
            let dropped = of(|b| &b.dropped);
            ensure!([into, out] == own[way], "hosts' interfaces {into} and {out}, sockets {own:?}");
            let what = format!("direction {way}: {self:?}, before {earlier:?}");
            ensure!(into == out + dropped + self.held[way], "in and out of the hosts, {what}");
            ensure!(of(|b| &b.received) == into && of(|b| &b.sent) == out, "the box, {what}");
            ensure!(of(|b| &b.taken) == into && of(|b| &b.delivered) == out, "the switch, {what}");
            let [returned, lost, gated] = [of(|b| &b.returned), of(|b| &b.lost), of(|b| &b.gated)];
            ensure!(returned == out + lost + gated, "back at the switch, {what}");
        }
        Ok(())
    }
}

/// Of each direction, for each link.
const WINDOWS: usize = 60;
/// In a window, and how often there is one: bmv2's queue holds what comes out at once after a
/// stop of 20 ms.
const FEW: usize = 8;
const PACE: Duration = Duration::from_millis(3);

pub fn no_frame_is_without_account_whatever_changes(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, 3, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        let mut links = Vec::new();
        // Lost by the switch, then by both, then by the box in one direction.
        let count = "drop_run = { pass = 99, drop = 1 }";
        for (name, forward, back, delay) in [
            ("one", INDEPENDENT, IN_BURSTS, "30 ms"),
            ("two", IN_BURSTS, INDEPENDENT, "5 ms"),
            ("three", count, INDEPENDENT, "60 ms"),
        ] {
            links.push(bed.written(&format!("{name}.toml"), &link(name, forward, back, delay))?);
        }
        linkctl.set_profile(&links[0], SEED)?;
        placed(bed, "loss")?;
        let mut forward = Numbered::new(&bed.hosts, true, 3)?;
        let mut back = Numbered::new(&bed.hosts, false, 3)?;
        let gated = bed.hosts.client_address(1).to_string();
        // linkd learns of clients once a second.
        for way in [&mut forward, &mut back] {
            way.window()?;
        }
        let gate = |what: &str| {
            let gate = ["switch", "gate", what, "--client", &gated, "-d", "forward"];
            linkctl.run(&gate)?.success()
        };
        wait::until("the switch knows the client", DRAINED, || Ok(gate("open").ok()))?;
        drained(&linkctl)?;
        for way in [&mut forward, &mut back] {
            way.sentinel()?;
        }
        for _ in 0..VOID {
            let (before, was) = Books::read(bed)?;
            let [left, _] = interface(bed.hosts.emulator(), SAT_INTERFACE)?;
            let had = [[forward.sent, forward.came], [back.sent, back.came]];
            for (n, path) in links.iter().enumerate() {
                // In the middle of what is in flight.
                linkctl.set_profile(path, SEED)?;
                for window in 0..WINDOWS {
                    let next = Instant::now() + PACE;
                    if n == 1 && [WINDOWS / 4, WINDOWS / 2].contains(&window) {
                        gate(if window == WINDOWS / 4 { "close" } else { "open" })?;
                    }
                    for way in [&mut forward, &mut back] {
                        for _ in 0..FEW {
                            way.one()?;
                        }
                        way.sentinel()?;
                    }
                    wait::until_instant(next);
                }
            }
            drained(&linkctl)?;
            forward.sentinel()?;
            back.sentinel()?;
            let (after, stats) = Books::read(bed)?;
            let (spoiled, _) = silent(&bed.hosts, (&was, left), &stats)?;
            if spoiled > 0 {
                println!("    VOID, once more: the switch's own queue dropped {spoiled} frames");
                continue;
            }
            for (client, direction, pipe) in stats.pipes() {
                let dropped = drops(pipe).map(|(reason, count)| (reason, count.packets));
                let received = pipe.received.packets;
                println!("    {client} {direction}: {received}, {:?}", Vec::from_iter(dropped));
            }
            let own = [[forward.sent, forward.came], [back.sent, back.came]];
            let own = [0, 1].map(|w: usize| [own[w][0] - had[w][0], own[w][1] - had[w][1]]);
            after.balanced(&before, own)?;
            ensure!(after.gated[0] > before.gated[0], "the gate took nothing: {after:?}");
            let lost = [after.lost[0] - before.lost[0], after.lost[1] - before.lost[1]];
            ensure!(lost[0] > 0 && lost[1] > 0, "the switch lost nothing: {after:?}");
            let shim = stats.packets(|p| p.dropped.shim);
            ensure!(shim == 0, "{shim} frames came to the box without a shim");
            return Ok(());
        }
        anyhow::bail!("the switch's own queue dropped frames in each of {VOID} runs")
    })
}

/// Held while the dataplane stands still.
const HELD: usize = 600;
const HOLD: &str = "400 ms";
/// More than the 350 ms until the last one is due.
const STOPS: u32 = 30;
const STOP: Duration = Duration::from_millis(6);

/// The dataplane is stopped now and then while it holds frames and none come, so that some
/// leave late by up to the length of a stop. Each frame's excess is its lateness and the wires'
/// and the switch's latency. So a quantile of the excess is at least that of the lateness, and
/// at most that and the longest latency of an undisturbed run before. Both records have buckets
/// by powers of two up to 17 ms.
pub fn the_switch_sees_the_lateness_that_the_dataplane_confesses(
    cpus: &Cpus,
) -> anyhow::Result<()> {
    on_bed(cpus, 1, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile(&bed.written("held.toml", &link("held", "", "", HOLD))?, SEED)?;
        let (undisturbed, _) = excess(bed, &linkctl, false)?;
        let latency = quantile(&undisturbed, 0.99);
        println!("    undisturbed: excess p99 of {latency:?} ns");
        // What the machine does to the switch itself after a stop is no longer undisturbed.
        let mut seen = Ok(());
        for _ in 0..3 {
            let (times, late) = excess(bed, &linkctl, true)?;
            // What was done is what both saw.
            ensure!(late.p99 > STOP.as_nanos() as u64 / 2, "nothing was made late: {late:?}");
            seen = agrees(&times, late, latency.1);
            if seen.is_ok() {
                break;
            }
        }
        seen
    })
}

/// Both quantiles, within the latency of switch and wires and a bucket.
fn agrees(times: &Times, late: Lateness, latency: u64) -> anyhow::Result<()> {
    for (name, q, late_ns) in [("p50", 0.5, late.p50), ("p99", 0.99, late.p99)] {
        let (low, high) = quantile(times, q);
        println!("    {name}: late by {late_ns} ns, excess of {low} to {high} ns");
        ensure!(high >= late_ns, "{name}: the switch saw less than the dataplane confesses");
        let most = late_ns.saturating_add(latency);
        ensure!(low <= most, "{name}: the switch saw {low} ns, {late_ns} were confessed");
    }
    Ok(())
}

/// Of frames that are held while the dataplane is stopped now and then, or not: what the switch counted,
/// and what the dataplane says.
fn excess(bed: &mut Bed, linkctl: &Linkctl, stop: bool) -> anyhow::Result<(Times, Lateness)> {
    drained(linkctl)?;
    let before = bed.shown()?;
    linkctl.mark()?;
    let mut frames = Numbered::new(&bed.hosts, true, 1)?;
    let began = Instant::now();
    for _ in 0..HELD {
        frames.one()?;
        // 2000 a second.
        wait::until_instant(began + Duration::from_micros(500) * frames.lost.len() as u32);
    }
    if stop {
        // The first ones are due 100 ms later. The last ones have come to the box.
        wait::until_instant(Instant::now() + Duration::from_millis(50));
        for _ in 0..STOPS {
            bed.dataplane()?.signal(Signal::SIGSTOP);
            wait::until_instant(Instant::now() + STOP);
            bed.dataplane()?.signal(Signal::SIGCONT);
            wait::until_instant(Instant::now() + STOP);
        }
    }
    let stats = drained(linkctl)?;
    frames.sentinel()?;
    frames.taken()?;
    let lost = frames.lost.iter().filter(|lost| **lost).count();
    ensure!(lost == 0, "{lost} frames were lost");
    // Sentinels are timed by the switch as well; there is one.
    let count = |shown: &Shown| {
        shown.forward_excess_ns.as_ref().map_or(0, |t| t.counts.iter().sum::<u64>()) + shown.early
    };
    let all = count(&before) + HELD as u64 + 1;
    let after = bed.until(&format!("{all} frames are timed"), |shown| count(shown) == all)?;
    let times = |shown: &Shown| shown.forward_excess_ns.clone().context("no excess");
    let (mut now, then) = (times(&after)?, times(&before)?);
    for (now, then) in now.counts.iter_mut().zip(&then.counts) {
        *now -= then;
    }
    let early = after.early - before.early;
    ensure!(early == 0, "{early} frames came back before they were due");
    Ok((now, stats.lateness_ns))
}

/// The bucket in which a quantile is.
fn quantile(times: &Times, q: f64) -> (u64, u64) {
    let all: u64 = times.counts.iter().sum();
    let mut sum = 0;
    for (bucket, count) in times.counts.iter().enumerate() {
        sum += count;
        if sum as f64 >= q * all as f64 {
            let low = bucket.checked_sub(1).and_then(|b| times.bounds.get(b));
            let high = times.bounds.get(bucket);
            return (low.copied().unwrap_or(0), high.copied().unwrap_or(u64::MAX / 2));
        }
    }
    (0, u64::MAX / 2)
}

pub fn a_switch_that_is_killed_in_mid_run_comes_back_to_the_link(
    cpus: &Cpus,
) -> anyhow::Result<()> {
    on_bed(cpus, 2, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        let path = bed.written("even.toml", &link("even", INDEPENDENT, "", "20 ms"))?;
        linkctl.set_profile(&path, SEED)?;
        let before = placed(bed, "loss")?;
        let mut frames = Numbered::new(&bed.hosts, true, 2)?;
        for _ in 0..50 {
            frames.window()?;
        }
        // What is under way is lost with it.
        for _ in 0..20 {
            frames.one()?;
        }
        bed.kill_switch()?;
        bed.until("linkd knows that the switch is gone", |s| s.phase == "lost")?;
        linkctl.stats()?.conserved()?;
        bed.start_switch()?;
        let started = Instant::now();
        bed.ready()?;
        let after = placed(bed, "loss")?;
        println!(
            "    {} entries back {:?} after the switch; the session says {:?}",
            after.entries,
            started.elapsed(),
            Duration::from_nanos(after.restored_ns)
        );
        ensure!(after.entries + 2 >= before.entries, "{after:?}, before {before:?}");
        let pings = pinged(&bed.hosts, 40)?;
        // 5 % are lost of 40: of more than 15 with a chance of less than 10^-9.
        ensure!(pings.lost() < 15, "{pings:?}");
        let rtt = median(&pings);
        println!("    ping: median {rtt:.2} ms, {} of 40 lost", pings.lost());
        ensure!(rtt >= 40.0, "{rtt} ms: the link is shorter than its delay");
        for _ in 0..50 {
            frames.window()?;
        }
        let stats = drained(&linkctl)?;
        let shown = bed.shown()?;
        // The new switch counts, and what it takes is in linkd's account.
        ensure!(shown.fate("lost").0 > before.fate("lost").0, "{shown:?}");
        ensure!(stats.emulator_drops == 0, "{}", stats.verdict());
        Ok(())
    })
}
