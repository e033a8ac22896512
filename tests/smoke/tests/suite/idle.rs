// SPDX-License-Identifier: Apache-2.0
//! The idle link, measured by ping.

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::ping::Survey;
use smoke::stats::DropReason;
use smoke::testbed::SERVER;

use super::{Form, SEED, drained, dropped_only_for, emulator, on_bed, within};

/// Pings in each of the survey's 20 series, and the share of pings that excursions of the delay do
/// not affect. An excursion takes 100 ms and a survey sends every 50 ms, so it affects at most two
/// pings. Of 120 pings, four excursions in 6 s are allowed; 0.6 are expected.
const fn pings(form: Form) -> (u32, f64) {
    match form {
        Form::Short => (6, 0.94),
        Form::Long => (24, 0.97),
    }
}

/// Median of the link. The 480 pings of the long form measure it within 5 ms.
const MEDIAN_MS: f64 = 597.0;

/// 5 ms for 480 pings. The deviation of the median of fewer independent pings is proportional to 1
/// / sqrt of their number.
fn tolerance_ms(pings: u32) -> f64 {
    5.0 * (24.0 / f64::from(pings)).sqrt()
}

pub fn idle_pings_match_measured_link(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let (count, share) = pings(form);
    let tolerance = tolerance_ms(count);
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        // The pings of all series are more than a terminal sends without a request.
        linkctl.set_profile("viasat2-fixed", SEED)?;
        let source = bed.client_address(0);
        let pings = Survey::start(bed.client(), source, SERVER, count)?.finish()?;
        let stats = drained(&linkctl)?;
        within("median RTT, ms", pings.rtt_ms(0.5), MEDIAN_MS - tolerance, MEDIAN_MS + tolerance)?;
        within("share within 560 and 632 ms", pings.share_within(560.0, 632.0), share, 1.0)?;
        ensure!(pings.out_of_order == 0, "{} replies out of order", pings.out_of_order);
        ensure!(pings.duplicates() == 0, "{} duplicate replies", pings.duplicates());
        // Only the channel loses packets.
        dropped_only_for(&stats, &["outage"])?;
        let client = stats.client(&source.to_string())?;
        let outages = client.forward().dropped_for(DropReason::Outage).packets
            + client.back().dropped_for(DropReason::Outage).packets;
        ensure!(pings.lost() as u64 == outages, "{} lost, outages {outages}", pings.lost());
        Ok(())
    })
}
