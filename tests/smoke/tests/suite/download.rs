// SPDX-License-Identifier: Apache-2.0
//! Kernel TCP over the link: throughput, and order measured by captures.

use std::time::Duration;

use anyhow::ensure;
use smoke::capture::{Capture, Order, compare};
use smoke::cpus::Cpus;
use smoke::iperf::{Download, Plan, Transfer};
use smoke::linkctl::Change;
use smoke::netstat::TcpCounters;
use smoke::stats::Watch;
use smoke::suite::Certain;
use smoke::testbed::{CLIENT_INTERFACE, SERVER_INTERFACE, Testbed};

use super::{
    Form, SEED, always_conserved, drained, dropped_only_for, emulator, on_bed, within, written,
};

/// A link that a download fills within a second: 300 ms with a full queue.
pub const SHORT: &str = r#"
name = "short"
[forward]
rate = "40 Mbit/s"
queue.limit = "1 MB"
delay.base = "50 ms"
[return]
rate = "12 Mbit/s"
queue.limit = "1 MB"
delay.base = "50 ms"
"#;

/// A profile, the duration of a download, and the bounds of its second half in Mbit/s.
struct Case {
    profile: &'static str,
    seconds: u64,
    mbps: [f64; 2],
}

/// The short link carries 40 x 1448 / 1514 = 38.3 Mbit/s of payload. More can be delivered in the
/// second half only by segments that waited for a retransmission in the first half: at most a
/// window, which is delay plus queue, 0.3 s of 3 s. The lower bound is the share of the rate that
/// the long form requires, 90 / 144.
const fn case(form: Form) -> Case {
    match form {
        Form::Long => Case { profile: "viasat2-pings", seconds: 60, mbps: [90.0, 144.0] },
        Form::Short => Case { profile: "short", seconds: 6, mbps: [25.0, 38.3 * 1.1] },
    }
}

pub fn cubic_download_fills_link_in_order(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    download_fills_link_in_order(cpus, form, "cubic")
}

pub fn bbr_download_fills_link_in_order(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    download_fills_link_in_order(cpus, form, "bbr")
}

/// Sets a built-in profile, or the one with this name here.
pub fn set(bed: &Testbed, profile: &str) -> anyhow::Result<Change> {
    let linkctl = bed.linkctl()?;
    let short = written(bed, "short.toml", SHORT)?;
    Ok(linkctl.set_profile(if profile == "short" { &short } else { profile }, SEED)?)
}

fn download_fills_link_in_order(cpus: &Cpus, form: Form, cc: &str) -> anyhow::Result<()> {
    let Case { profile, seconds, mbps: [low, high] } = case(form);
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        set(bed, profile)?;
        let watch = Watch::start(&linkctl, Duration::from_millis(100))?;
        let (transfer, order) =
            observed(bed, Plan::new(cc, Duration::from_secs(seconds)), |d| Ok(d.finish()?))?;
        let stats = drained(&linkctl)?;
        always_conserved(&watch.finish()?)?;
        within("second half, Mbit/s", transfer.mbps_second_half(), low, high)?;
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
    pub fn start(bed: &Testbed, plan: &Plan) -> anyhow::Result<Self> {
        let filter = format!("tcp src port {}", plan.port);
        let file = |name| bed.directory().path(name);
        let at_server =
            Capture::start(bed.server(), SERVER_INTERFACE, &filter, file("server.pcap"))?;
        let at_client =
            Capture::start(bed.client(), CLIENT_INTERFACE, &filter, file("client.pcap"))?;
        Ok(Self { at_server, at_client })
    }

    pub fn finish(self) -> anyhow::Result<Order> {
        // The receiver's capture first, so that the sender's capture includes all of its segments.
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

pub fn in_order(order: &Order) -> anyhow::Result<()> {
    if order.crossed > 0 {
        let what = format!("segments of one connection overtook another's: {order:?}");
        return Err(Certain(what).into());
    }
    each_flow_in_order(order)
}

/// No segment overtook another of its connection, which is the order that several receive queues
/// preserve.
pub fn each_flow_in_order(order: &Order) -> anyhow::Result<()> {
    ensure!(order.received > 0, "nothing was captured: {order:?}");
    ensure!(order.unknown == 0, "segments that were not seen at the sender: {order:?}");
    if order.reordered > 0 {
        return Err(Certain(format!("the emulator reordered segments: {order:?}")).into());
    }
    Ok(())
}
