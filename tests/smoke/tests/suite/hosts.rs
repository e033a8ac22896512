// SPDX-License-Identifier: Apache-2.0
//! Hosts and observers over a plain bridge. A failure here is not caused by the emulator.

use std::time::Duration;

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::iperf::{self, Download};
use smoke::ping::Ping;
use smoke::testbed::{Middle, Options, SERVER};
use smoke::udp::{Flow, Receiver, Sender};

use super::{complete, on_bed, udp_at};

fn bridge() -> Options {
    Options { middle: Middle::Bridge, clients: 2, ..Options::default() }
}

pub fn ping_and_udp_pass_plain_bridge(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, bridge(), |bed| {
        for client in 0..2 {
            let source = bed.client_address(client);
            let ping = Ping::start(bed.client(), source, SERVER, 10, Duration::from_millis(50))?;
            let pings = ping.finish()?;
            ensure!(pings.lost() == 0 && pings.out_of_order == 0, "{pings:?}");
        }
        let flow = Flow::full(udp_at(bed, 1), 20_000_000, 2);
        let receiver = Receiver::start(bed.client(), flow.to)?;
        let sent = Sender::start(bed.server(), SERVER, vec![flow]).finish()?;
        complete(&sent[0], &receiver.finish()?)?;
        Ok(())
    })
}

pub fn download_passes_plain_bridge(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, bridge(), |bed| {
        let plan = iperf::Plan::new("cubic", Duration::from_secs(2));
        let transfer = Download::start(bed, plan)?.finish()?;
        ensure!(transfer.mbps_second_half() > 0.0, "{transfer:?}");
        ensure!(!transfer.rtts.is_empty(), "the sender reports no round-trip times");
        Ok(())
    })
}
