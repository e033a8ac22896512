// SPDX-License-Identifier: Apache-2.0
//! The idle link, seen by ping.

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::ping::Survey;
use smoke::testbed::SERVER;

use super::{SEED, drained, dropped_only_for, emulator, on_bed, within};

/// Of each of the survey's series.
const PINGS: u32 = 24;

pub fn ping_sees_the_measured_link(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let source = bed.client_address(0);
        let pings = Survey::start(bed.client(), source, SERVER, PINGS)?.finish()?;
        let stats = drained(&linkctl)?;
        within("median RTT, ms", pings.rtts().at(0.5), 592.0, 602.0)?;
        within("share within 560 and 632 ms", pings.share_within(560.0, 632.0), 0.97, 1.0)?;
        ensure!(pings.out_of_order() == 0, "{} replies out of order", pings.out_of_order());
        ensure!(pings.duplicates() == 0, "{} replies came twice", pings.duplicates());
        // What is lost, the channel lost.
        dropped_only_for(&stats, &["outage"])?;
        let client = stats.client(&source.to_string())?;
        let outages = client.forward.dropped_for("outage").packets
            + client.back.dropped_for("outage").packets;
        ensure!(pings.lost() as u64 == outages, "{} lost, outages {outages}", pings.lost());
        Ok(())
    })
}
