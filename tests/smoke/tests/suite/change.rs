// SPDX-License-Identifier: Apache-2.0
//! Changes in mid-download.

use std::time::{Duration, Instant};

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::iperf::Plan;
use smoke::stats::Watch;
use smoke::wait;

use super::download::{in_order, observed};
use super::{SEED, always_conserved, drained, dropped_only_for, emulator, on_bed};

/// Halved and restored 200 times.
const CHANGES: u32 = 400;
const MINUTE: Duration = Duration::from_secs(60);

pub fn two_hundred_rates_in_a_minute_lose_nothing(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let first = linkctl.set_profile("viasat2", SEED)?;
        let watch = Watch::start(&linkctl, Duration::from_millis(50))?;
        let plan = Plan::new("bbr", MINUTE + Duration::from_secs(2));
        let (_, order) = observed(bed, plan, |mut download| {
            let start = Instant::now();
            let mut last = first.clone();
            for n in 0..CHANGES {
                wait::until_instant(start + MINUTE * n / CHANGES);
                let rate = if n % 2 == 0 { "72 Mbit/s" } else { "144 Mbit/s" };
                let change = linkctl.set_forward_rate(rate)?;
                ensure!(change.generation == last.generation + 1, "{change:?} after {last:?}");
                ensure!(change.effective_ns > last.effective_ns, "{change:?} after {last:?}");
                last = change;
            }
            println!("    {CHANGES} changes in {:.1} s", start.elapsed().as_secs_f64());
            ensure!(!download.ended(), "the download ended before the changes did");
            Ok(download.finish()?)
        })?;
        let samples = watch.finish()?;
        println!("    {} samples", samples.len());
        always_conserved(&samples)?;
        let stats = drained(&linkctl)?;
        in_order(&order)?;
        dropped_only_for(&stats, &["aqm", "limit"])
    })
}
