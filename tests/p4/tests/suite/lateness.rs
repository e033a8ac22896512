// SPDX-License-Identifier: Apache-2.0
//! The lateness that the switch measures and the lateness that the dataplane reports.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use p4::bed::{Bed, Shown, on_bed};
use p4::numbered::Numbered;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::pb::TimeHistogram as Times;
use smoke::stats::Lateness;
use smoke::wait;

use super::SEED;
use super::path::{drained, link};

/// Frames held while the dataplane is stopped.
const HELD: usize = 600;
const HOLD: &str = "400 ms";
/// The stops last longer than the 350 ms until the last frame is due.
const STOPS: u32 = 30;
const STOP: Duration = Duration::from_millis(6);

/// The dataplane is stopped repeatedly while it holds frames and none arrive, so some leave late by
/// up to the length of a stop. The excess of a frame is its lateness plus the latency of wires and
/// switch. So a quantile of the excess is at least the quantile of the lateness, and at most that
/// plus the longest latency of an undisturbed run before. Both histograms have buckets by powers of
/// two up to 17 ms.
pub fn switch_and_dataplane_agree_on_lateness(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, 1, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile(&bed.written("held.toml", &link("held", "", "", HOLD))?, SEED)?;
        let (undisturbed, _) = excess(bed, &linkctl, false)?;
        let latency = quantile(&undisturbed, 0.99);
        println!("    undisturbed: excess p99 of {latency:?} ns");
        // A stall of the switch itself after a stop is no undisturbed latency.
        let mut seen = Ok(());
        for _ in 0..3 {
            let (times, late) = excess(bed, &linkctl, true)?;
            // The stops must have caused lateness.
            ensure!(late.p99_ns > STOP.as_nanos() as u64 / 2, "nothing was made late: {late:?}");
            seen = agrees(&times, late, latency.1);
            if seen.is_ok() {
                break;
            }
        }
        seen
    })
}

/// Compares both quantiles, within the latency of switch and wires and a bucket.
fn agrees(times: &Times, late: Lateness, latency: u64) -> anyhow::Result<()> {
    for (name, q, late_ns) in [("p50", 0.5, late.p50_ns), ("p99", 0.99, late.p99_ns)] {
        let (low, high) = quantile(times, q);
        println!("    {name}: late by {late_ns} ns, excess of {low} to {high} ns");
        ensure!(high >= late_ns, "{name}: the switch measured less than the dataplane reports");
        let most = late_ns.saturating_add(latency);
        ensure!(
            low <= most,
            "{name}: the switch measured {low} ns, the dataplane reports {late_ns}"
        );
    }
    Ok(())
}

/// Holds frames, with or without stops of the dataplane. Returns the switch's excess and the
/// dataplane's lateness.
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
        // The first frames are due in 100 ms. The last ones have reached the box.
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
    // The switch measures sentinels as well; there is one.
    let count = |shown: &Shown| {
        shown.forward_excess.as_ref().map_or(0, |t| t.counts.iter().sum::<u64>()) + shown.early
    };
    let all = count(&before) + HELD as u64 + 1;
    let after = bed.until(&format!("{all} frames are timed"), |shown| count(shown) == all)?;
    let times = |shown: &Shown| shown.forward_excess.clone().context("no excess");
    let (mut now, then) = (times(&after)?, times(&before)?);
    for (now, then) in now.counts.iter_mut().zip(&then.counts) {
        *now -= then;
    }
    let early = after.early - before.early;
    ensure!(early == 0, "{early} frames returned early");
    Ok((now, stats.lateness()))
}

/// Bounds of the bucket that contains a quantile.
fn quantile(times: &Times, q: f64) -> (u64, u64) {
    let all: u64 = times.counts.iter().sum();
    let mut sum = 0;
    for (bucket, count) in times.counts.iter().enumerate() {
        sum += count;
        if sum as f64 >= q * all as f64 {
            let low = bucket.checked_sub(1).and_then(|b| times.bounds_ns.get(b));
            let high = times.bounds_ns.get(bucket);
            return (low.copied().unwrap_or(0), high.copied().unwrap_or(u64::MAX / 2));
        }
    }
    (0, u64::MAX / 2)
}
