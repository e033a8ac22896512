// SPDX-License-Identifier: Apache-2.0
//! Stages that the built-in profiles do not use: a rate that follows a trace, a delay that varies
//! continuously, and a delay that follows a trace too long for a profile.

use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use smoke::cpus::Cpus;
use smoke::linkctl::{Change, Linkctl, REFUSED};
use smoke::pb;
use smoke::ping::{Ping, Pings};
use smoke::process::Process;
use smoke::stats::Stats;
use smoke::testbed::SERVER;
use smoke::udp::{Flow, Received};
use smoke::wait;

use super::{
    Delivery, Form, SEED, deliver, drained, dropped_only_for, emulator, link, on_bed, punctual,
    udp_at, within, written,
};

const STEPS: &str = r#"
rate_trace = { step = "1 s", rates = ["20 Mbit/s", "5 Mbit/s", "down"] }
queue.limit = "1 MB"
"#;
const STEP_S: f64 = 1.0;
const STEP_RATES_MBPS: [f64; 3] = [20.0, 5.0, 0.0];
const BASE_S: f64 = 0.01;
/// Above every rate of the trace.
const OFFERED_BPS: u64 = 30_000_000;
/// Time for one period of the trace in whole steps, at any phase; two in the long form.
const fn overload(form: Form) -> Duration {
    match form {
        Form::Short => Duration::from_secs(4),
        Form::Long => Duration::from_secs(9),
    }
}
/// Longest accepted stall of the worker.
const STALL: Duration = Duration::from_millis(50);
/// Margin at either end of a step: packets are late by a stall, the wall clocks of the dataplane
/// and of the hosts differ by some ms, and a frame takes 2.4 ms at 5 Mbit/s.
const EDGE_S: f64 = 0.06;
/// A stall of d changes the slope of the least-squares line through T = 0.88 s by at most 3 (d /
/// T)^2: 1 % for 51 ms.
const RATE_TOLERANCE: f64 = 0.01;

pub fn received_rate_follows_rate_trace(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let overload = overload(form);
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let profile = written(bed, "steps.toml", &link("steps", STEPS))?;
        let change = linkctl.set_profile(&profile, SEED)?;
        linkctl.mark()?;
        let flow = Flow { duration: overload, ..Flow::full(udp_at(bed, 0), OFFERED_BPS, 0) };
        let Delivery { sent, received, stats } = deliver(bed, vec![flow])?;
        let (sent, received) = (&sent[0], &received[0]);
        ensure!(sent.refused == 0 && received.overflowed == 0, "{sent:?}, {received:?}");
        let forward = stats.client(&bed.client_address(0).to_string())?.forward();
        ensure!(forward.sent().packets == received.arrivals.len() as u64, "{forward:?}");
        ensure!(received.out_of_order() == 0, "{} out of order", received.out_of_order());
        dropped_only_for(&stats, &["limit"])?;
        punctual(&stats, STALL)?;
        follows_the_trace(received, &change, overload)
    })
}

/// Each whole step of the overload has its rate. The first step begins with the change.
fn follows_the_trace(
    received: &Received,
    change: &Change,
    overload: Duration,
) -> anyhow::Result<()> {
    let first = received.arrivals.first().context("nothing arrived")?.at;
    let began = seconds(change)? + BASE_S;
    let whole = |at: f64| (at - began) / STEP_S;
    let steps = whole(first).ceil() as usize..whole(first + overload.as_secs_f64()) as usize;
    ensure!(steps.len() >= STEP_RATES_MBPS.len(), "only the steps {steps:?} of the trace");
    for step in steps {
        let from = began + step as f64 * STEP_S - first + EDGE_S;
        let to = from + STEP_S - 2.0 * EDGE_S;
        let due = STEP_RATES_MBPS[step % STEP_RATES_MBPS.len()];
        if due > 0.0 {
            let rate = received.rate_bps(from, to) / 1e6;
            let what = format!("step {step}, Mbit/s");
            within(&what, rate, (1.0 - RATE_TOLERANCE) * due, (1.0 + RATE_TOLERANCE) * due)?;
        } else {
            let came = received.arrivals.iter().filter(|a| (from..to).contains(&(a.at - first)));
            ensure!(came.count() == 0, "packets arrived in step {step}, in which the link is down");
        }
    }
    Ok(())
}

/// Time of effect of a change, in seconds since the epoch.
fn seconds(change: &Change) -> anyhow::Result<f64> {
    let at = change.effective_utc.context("the instant of a change")?;
    Ok(at.seconds as f64 + f64::from(at.nanos) / 1e9)
}

const VARYING: &str = r#"
[return.delay.body]
correlation = "50 ms"
quantiles = ["0 ms", "2 ms", "4 ms", "7 ms", "11 ms", "16 ms", "22 ms", "30 ms", "40 ms"]
"#;
const BASE_MS: f64 = 20.0;
const CORRELATION_MS: f64 = 50.0;
const QUANTILES_MS: [f64; 9] = [0.0, 2.0, 4.0, 7.0, 11.0, 16.0, 22.0, 30.0, 40.0];
const LONGEST_MS: f64 = QUANTILES_MS[QUANTILES_MS.len() - 1];
/// Each client has an independent delay.
const PINGERS: u8 = 8;
const fn pings(form: Form) -> u32 {
    match form {
        Form::Short => 120,
        Form::Long => 400,
    }
}
const PING_INTERVAL: Duration = Duration::from_millis(25);
/// Delay of the hosts themselves.
const HOSTS_MS: f64 = 2.0;
/// Share of pings that a temporarily busy machine can delay further.
const LATE: f64 = 0.02;

pub fn pings_match_quantiles_of_varying_delay(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let count = pings(form);
    on_bed(cpus, emulator(PINGERS), |bed| {
        let linkctl = bed.linkctl()?;
        let varying = link("varying", "rate = \"unlimited\"\nqueue.limit = \"1 MB\"") + VARYING;
        linkctl.set_profile(&written(bed, "varying.toml", &varying)?, SEED)?;
        let start = |client| {
            let source = bed.client_address(client);
            Ping::start(bed.client(), source, SERVER, count, PING_INTERVAL)
        };
        let running = (0..usize::from(PINGERS)).map(start).collect::<Result<Vec<_>, _>>()?;
        let mut rtts = Vec::new();
        for ping in running {
            let pings = ping.finish()?;
            ensure!(pings.lost() == 0, "{} lost", pings.lost());
            ensure!(pings.out_of_order == 0, "{} out of order", pings.out_of_order);
            rtts.extend(pings.replies.iter().map(|r| r.rtt_ms));
        }
        let stats = drained(&linkctl)?;
        dropped_only_for(&stats, &[])?;
        // The worker is as late for arriving packets, which it cannot measure, as for departing
        // ones. One packet in a hundred is later, in each direction.
        let late = 2.0 * 2.0 * stats.lateness().p99_ns as f64 / 1e6;
        has_the_quantiles(&rtts, count, HOSTS_MS + late)
    })
}

/// At each inner quantile of the table, the share of shorter round trips matches, within the
/// tolerance of the machine. At the ends, all are longer or shorter.
fn has_the_quantiles(rtts: &[f64], pings: u32, machine_ms: f64) -> anyhow::Result<()> {
    let share = |extra: f64| {
        rtts.iter().filter(|r| **r <= BASE_MS + extra).count() as f64 / rtts.len() as f64
    };
    // Two samples of a delay are independent after a hold has ended and its delayed packets have
    // left. This is a lower bound of the number of independent pairs.
    let memory = CORRELATION_MS + LONGEST_MS;
    let span = PING_INTERVAL.as_secs_f64() * 1e3 * f64::from(pings);
    let independent = f64::from(PINGERS) * span / (2.0 * memory);
    for (i, extra) in QUANTILES_MS.iter().enumerate().take(QUANTILES_MS.len() - 1).skip(1) {
        let stated = stated_share(i);
        let tolerance = 4.0 * (stated * (1.0 - stated) / independent).sqrt();
        let (least, most) = (share(*extra), share(extra + machine_ms));
        println!(
            "    share of extra delays up to {extra} ms: {least:.3} to {most:.3}, stated \
             {stated:.3} with a tolerance of {tolerance:.3}"
        );
        ensure!(
            least <= stated + tolerance && most >= stated - tolerance - LATE,
            "{least} to {most} of the extra delays are up to {extra} ms, stated {stated}"
        );
    }
    // ping rounds to 0.1 ms.
    let short = share(-0.1);
    ensure!(short == 0.0, "{short} of the round trips are shorter than the base");
    within("share up to the longest", share(LONGEST_MS + machine_ms), 1.0 - LATE, 1.0)
}

/// Share of time in which the extra delay is at most the table's quantile `i`: the held value is at
/// most that, and no longer value of the past still delays the line. With F the table's
/// distribution, F(x) exp(-(1 / correlation) x integral of 1 - F above x).
fn stated_share(i: usize) -> f64 {
    let gaps = (QUANTILES_MS.len() - 1) as f64;
    let above: f64 = QUANTILES_MS
        .windows(2)
        .enumerate()
        .skip(i)
        .map(|(j, ends)| (ends[1] - ends[0]) * (1.0 - (j as f64 + 0.5) / gaps))
        .sum();
    i as f64 / gaps * (-above / CORRELATION_MS).exp()
}

/// A second profile's worth of steps more than fits into one window of `trace play`.
const PLAYED_STEPS: u32 = 34_000;
const PLAYED_STEP: Duration = Duration::from_millis(1);
const LEVEL_STEPS: u32 = 1_000;
/// Round trip without the trace, see [`link`].
const IDLE_MS: f64 = 20.0;

/// Extra delay of each second of the trace, without a period.
fn played_ms(level: u32) -> f64 {
    f64::from((level * 13 + level / 7 * 3) % 7 * 10)
}

pub fn long_trace_is_played_step_by_step(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let idle = link("idle", "rate = \"unlimited\"\nqueue.limit = \"1 MB\"");
        linkctl.set_profile(&written(bed, "idle.toml", &idle)?, SEED)?;
        let before = linkctl.show()?;
        let rows = (0..PLAYED_STEPS).map(|step| {
            format!("{:.3},{}\n", f64::from(step) / 1e3, played_ms(step / LEVEL_STEPS))
        });
        let trace = format!("time_s,delay_ms\n{}", rows.collect::<String>());
        let trace = written(bed, "delays.csv", &trace)?;
        let play = linkctl.command(&["trace", "play", &trace, "-d", "forward"]);
        let play = Process::spawn(play)?;
        let length = PLAYED_STEP * PLAYED_STEPS;
        let count = (length.as_secs_f64() / PING_INTERVAL.as_secs_f64()).ceil() as u32;
        let source = bed.client_address(0);
        let pings = Ping::start(bed.client(), source, SERVER, count, PING_INTERVAL)?.finish()?;
        let played = play.finish(length)?.success()?;
        let played: serde_json::Value = serde_json::from_str(&played)?;
        ensure!(played["windows"] == 2, "{played}");
        let begin_ns = played["begin_unix_ns"].as_f64().context("no begin")?;
        ensure!(pings.lost() == 0 && pings.out_of_order == 0, "{pings:?}");
        let stats = drained(&linkctl)?;
        dropped_only_for(&stats, &[])?;
        follows_the_levels(&pings, begin_ns / 1e9, stats.lateness().p99_ns as f64 / 1e6)?;
        let after = linkctl.show()?;
        ensure!(before.profile.is_some(), "{before:?}");
        ensure!(pipes(&before) == pipes(&after), "{after:?} was {before:?}");
        interrupted(&linkctl, &trace, &before)
    })
}

/// Both pipes of a link that `linkctl show` shows.
fn pipes(shown: &pb::Link) -> Option<(&Option<pb::Pipe>, &Option<pb::Pipe>)> {
    shown.profile.as_ref().map(|profile| (&profile.forward_pipe, &profile.return_pipe))
}

/// A play that is interrupted gives the link back, unless somebody else has changed it.
fn interrupted(linkctl: &Linkctl, trace: &str, before: &pb::Link) -> anyhow::Result<()> {
    for changed in [false, true] {
        let generation = linkctl.generation()?;
        let mut play = Process::spawn(linkctl.command(&["trace", "play", trace, "-d", "forward"]))?;
        wait::until("the first window", Duration::from_secs(10), || {
            let now = linkctl.generation()?;
            Ok((now > generation).then_some(()))
        })?;
        if changed {
            linkctl.set_forward_rate("3 Mbit/s")?;
        }
        play.signal(Signal::SIGINT);
        let outcome = play.finish(Duration::from_secs(10))?;
        ensure!(outcome.code() == REFUSED, "{outcome:?}");
        let after = linkctl.show()?;
        let restored = pipes(before) == pipes(&after);
        ensure!(restored != changed, "{after:?} was {before:?}");
    }
    Ok(())
}

/// Each reply that passed within a level, and not near its ends, has the level's delay. Packets
/// that were delayed by the level before keep later ones back.
fn follows_the_levels(pings: &Pings, begin: f64, late_ms: f64) -> anyhow::Result<()> {
    let level_s = PLAYED_STEP.as_secs_f64() * f64::from(LEVEL_STEPS);
    let levels = PLAYED_STEPS / LEVEL_STEPS;
    let (mut inside, mut off) = (vec![0_u32; levels as usize], Vec::new());
    for reply in &pings.replies {
        // It passed the server, and so the trace, half an idle round trip after it was sent.
        let passed = reply.at - reply.rtt_ms / 1e3 + IDLE_MS / 2e3 - begin;
        let level = (passed / level_s).floor();
        let begun = passed - level * level_s;
        if !(2.0 * EDGE_S..level_s - EDGE_S).contains(&begun)
            || !(0.0..f64::from(levels)).contains(&level)
        {
            continue;
        }
        inside[level as usize] += 1;
        let expected = IDLE_MS + played_ms(level as u32);
        // ping rounds to 0.1 ms.
        if !(expected - 0.1..expected + HOSTS_MS + 2.0 * late_ms).contains(&reply.rtt_ms) {
            off.push((level, begun, reply.rtt_ms, expected));
        }
    }
    let sparse = inside.iter().skip(1).filter(|n| **n < 20).count();
    ensure!(sparse == 0, "pings of each level: {inside:?}");
    let share = off.len() as f64 / inside.iter().sum::<u32>() as f64;
    println!(
        "    {} pings within {levels} levels, {} of another delay",
        inside.iter().sum::<u32>(),
        off.len()
    );
    ensure!(
        share <= LATE,
        "{share} of the pings, as (level, s within it, ms, expected ms): {off:?}"
    );
    Ok(())
}

/// A terminal with a burst of an echo request in each superframe, and a round trip to the scheduler of
/// 4 superframes.
const ON_DEMAND: &str = r#"
name = "on-demand"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "50 ms"
[return]
rate = "4 Mbit/s"
queue.limit = "1 MB"
delay.base = "50 ms"
[return.access]
superframe = "50 ms"
burst = "150 B"
constant = 1
volume = "1 MB"
request_delay = "100 ms"
plan_delay = "100 ms"
rate_requests = { max = "2 Mbit/s", timeout = "1 s", gain = 1.5 }
"#;
const SUPERFRAME_MS: f64 = 50.0;
const ROUND_TRIP_MS: f64 = 100.0;
const GRANT_MS: f64 = 200.0;

/// A few pings fit into the constant bursts. Many wait for the first grants, and later ones for a superframe.
pub fn terminal_asks_for_capacity_and_has_it_a_round_trip_later(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile(&written(bed, "on-demand.toml", ON_DEMAND)?, SEED)?;
        let source = bed.client_address(0);
        let pinged = |count, every| {
            let interval = Duration::from_millis(every);
            let pings = Ping::start(bed.client(), source, SERVER, count, interval)?.finish()?;
            ensure!(pings.lost() == 0 && pings.out_of_order == 0, "{pings:?}");
            anyhow::Ok(pings.replies.iter().map(|reply| reply.rtt_ms).collect::<Vec<_>>())
        };
        let access = |stats: &Stats| {
            let back = stats.client(&source.to_string())?.back();
            back.access.context("no capacity on demand")
        };
        linkctl.mark()?;
        let idle = pinged(20, 107)?;
        let stats = drained(&linkctl)?;
        let late = 2.0 * stats.lateness().max_ns as f64 / 1e6 + HOSTS_MS;
        let longest = |rtts: &[f64]| rtts.iter().copied().fold(0.0, f64::max);
        let alone = ROUND_TRIP_MS + SUPERFRAME_MS + late;
        within("longest idle round trip, ms", longest(&idle), ROUND_TRIP_MS, alone)?;
        let before = access(&stats)?;
        ensure!(before.requested_bytes == 0 && before.assigned_bytes > 0, "{before:?}");
        // Five pings of 98 bytes a superframe, and one constant burst.
        linkctl.mark()?;
        let busy = pinged(400, 10)?;
        let stats = drained(&linkctl)?;
        let late = 2.0 * stats.lateness().max_ns as f64 / 1e6 + HOSTS_MS;
        // Before the first grant most pings wait, for longer than an idle one can: for how long depends on
        // how evenly the host sends them. A request counts on the rate that was granted before, which may
        // end, so that some packets wait for a second grant.
        let [least, most] = [SUPERFRAME_MS, 2.0 * (GRANT_MS + SUPERFRAME_MS) + late];
        let longest = longest(&busy);
        within("longest round trip, ms", longest, ROUND_TRIP_MS + least, ROUND_TRIP_MS + most)?;
        let settled = &busy[250..];
        let at_once = settled.iter().filter(|rtt| **rtt <= alone + late).count();
        let share = at_once as f64 / settled.len() as f64;
        within("share of the last 150 within a superframe", share, 0.9, 1.0)?;
        let after = access(&stats)?;
        println!("    {after:?}");
        ensure!(after.requests > 0 && after.collisions == 0, "{after:?}");
        ensure!(after.used_bytes <= after.assigned_bytes, "{after:?}");
        let of_pings = stats.client(&source.to_string())?.back().sent().bytes;
        ensure!(after.used_bytes == of_pings, "{after:?}, {of_pings} bytes were sent");
        dropped_only_for(&stats, &[])
    })
}
