// SPDX-License-Identifier: Apache-2.0
//! Kernel TCP over the link: throughput, and order seen from outside.

use std::time::Duration;

use anyhow::ensure;
use smoke::capture::{Capture, Order, compare};
use smoke::cpus::Cpus;
use smoke::iperf::{Download, Plan, Transfer};
use smoke::netstat::TcpCounters;
use smoke::stats::Watch;
use smoke::testbed::{CLIENT_INTERFACE, SERVER_INTERFACE, Testbed};

use super::{SEED, always_conserved, drained, dropped_only_for, emulator, on_bed, within};

const DURATION: Duration = Duration::from_secs(60);

pub fn cubic_fills_the_link_in_order(cpus: &Cpus) -> anyhow::Result<()> {
    fills_the_link_in_order(cpus, "cubic")
}

pub fn bbr_fills_the_link_in_order(cpus: &Cpus) -> anyhow::Result<()> {
    fills_the_link_in_order(cpus, "bbr")
}

fn fills_the_link_in_order(cpus: &Cpus, cc: &str) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let watch = Watch::start(&linkctl, Duration::from_millis(100))?;
        let (transfer, order) =
            observed(bed, Plan::new(cc, DURATION), |download| Ok(download.finish()?))?;
        let stats = drained(&linkctl)?;
        always_conserved(&watch.finish()?)?;
        within("second half, Mbit/s", transfer.mbps_second_half(), 90.0, 144.0)?;
        in_order(&order)?;
        dropped_only_for(&stats, &["aqm", "limit", "outage"])
    })
}

/// Captures of a download at both hosts.
pub struct Captures {
    at_server: Capture,
    at_client: Capture,
}

impl Captures {
    /// Starts them.
    pub fn start(bed: &Testbed, plan: &Plan) -> anyhow::Result<Self> {
        let filter = format!("tcp src port {}", plan.port);
        let file = |name| bed.directory().path(name);
        let at_server =
            Capture::start(bed.server(), SERVER_INTERFACE, &filter, file("server.pcap"))?;
        let at_client =
            Capture::start(bed.client(), CLIENT_INTERFACE, &filter, file("client.pcap"))?;
        Ok(Self { at_server, at_client })
    }

    /// Ends them and compares.
    pub fn finish(self) -> anyhow::Result<Order> {
        // The receiver's capture first, so that what it has the sender's has too.
        let received = self.at_client.finish()?;
        Ok(compare(&self.at_server.finish()?, &received))
    }
}

/// Runs a download with captures at both hosts.
pub fn observed(
    bed: &Testbed,
    plan: Plan,
    meanwhile: impl FnOnce(Download) -> anyhow::Result<Transfer>,
) -> anyhow::Result<(Transfer, Order)> {
    let captures = Captures::start(bed, &plan)?;
    let before = TcpCounters::of(bed.server())?;
    let transfer = meanwhile(Download::start(bed, plan)?)?;
    let order = captures.finish()?;
    let believed = TcpCounters::of(bed.server())?.reorderings_since(&before);
    println!(
        "    {}: {:.1} Mbit/s in the second half, {} segments sent again; {order:?}; the sender \
         took {believed} events for reordering",
        transfer.plan.cc,
        transfer.mbps_second_half(),
        transfer.retransmits
    );
    Ok((transfer, order))
}

/// No segment overtook another one.
pub fn in_order(order: &Order) -> anyhow::Result<()> {
    ensure!(order.crossed == 0, "segments of one connection overtook another's: {order:?}");
    each_flow_in_order(order)
}

/// No segment overtook another one of its connection: all that several receive queues keep.
pub fn each_flow_in_order(order: &Order) -> anyhow::Result<()> {
    ensure!(order.received > 0, "nothing was captured: {order:?}");
    ensure!(order.unknown == 0, "segments that nobody sent: {order:?}");
    ensure!(order.reordered == 0, "the emulator reordered segments: {order:?}");
    Ok(())
}
