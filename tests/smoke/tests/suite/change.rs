// SPDX-License-Identifier: Apache-2.0
//! Changes in mid-download.

use std::time::{Duration, Instant};

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::iperf::Plan;
use smoke::stats::Watch;
use smoke::wait;

use super::download::{in_order, observed, set};
use super::{Form, always_conserved, drained, dropped_only_for, emulator, on_bed};

/// Changes per second; the rate is halved and restored in turn.
const CHANGES_PER_S: u32 = 7;

/// A profile, its halved and restored rate, and the duration.
struct Case {
    profile: &'static str,
    rates: [&'static str; 2],
    seconds: u32,
}

const fn case(form: Form) -> Case {
    match form {
        Form::Long => {
            Case { profile: "viasat2-pings", rates: ["72 Mbit/s", "144 Mbit/s"], seconds: 60 }
        }
        Form::Short => Case { profile: "short", rates: ["20 Mbit/s", "40 Mbit/s"], seconds: 6 },
    }
}

pub fn seven_rate_changes_a_second_lose_no_packet(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let Case { profile, rates, seconds } = case(form);
    let changes = seconds * CHANGES_PER_S;
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let first = set(bed, profile)?;
        let watch = Watch::start(&linkctl, Duration::from_millis(50))?;
        let plan = Plan::new("bbr", Duration::from_secs(u64::from(seconds) + 2));
        let (_, order) = observed(bed, plan, |mut download| {
            let start = Instant::now();
            let mut last = first;
            for (n, rate) in (0..changes).zip(rates.iter().cycle()) {
                wait::until_instant(start + Duration::from_secs(1) * n / CHANGES_PER_S);
                let change = linkctl.set_forward_rate(rate)?;
                ensure!(change.generation == last.generation + 1, "{change:?} after {last:?}");
                ensure!(change.effective_ns > last.effective_ns, "{change:?} after {last:?}");
                last = change;
            }
            println!("    {changes} changes in {:.1} s", start.elapsed().as_secs_f64());
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
