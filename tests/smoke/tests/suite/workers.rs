// SPDX-License-Identifier: Apache-2.0
//! Several workers are one link: every client has its rate, in order and without loss.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::ensure;
use emu::units::Direction;
use etherparse::PacketBuilder;
use smoke::cpus::Cpus;
use smoke::iperf::Plan;
use smoke::ping::Survey;
use smoke::testbed::{Options, SERVER};
use smoke::udp::Sender;
use worker::distribute::owner;

use super::download::{each_flow_in_order, observed};
use super::{SEED, drained, dropped_only_for, emulator, flows_to, on_bed, within};

const WORKERS: usize = 2;
const CLIENTS: u8 = 5;
const RATE_BPS: u64 = 20_000_000;
const SECONDS: u64 = 5;
const PINGS: u32 = 5;
const DOWNLOAD: Duration = Duration::from_secs(10);

/// The worker that owns a client.
fn owner_of(client: Ipv4Addr) -> anyhow::Result<usize> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(SERVER.octets(), client.octets(), 64)
        .udp(1, 1)
        .write(&mut frame, &[])?;
    Ok(owner(&frame, Direction::Forward, WORKERS))
}

pub fn two_workers_are_one_link(cpus: &Cpus) -> anyhow::Result<()> {
    // Each worker holds all that the profile can come to hold.
    let memory = "4 GiB".to_owned();
    let options = Options { workers: WORKERS, memory, ..emulator(CLIENTS) };
    on_bed(cpus, options, |bed| {
        let owners = (0..usize::from(CLIENTS)).map(|c| owner_of(bed.client_address(c)));
        let owners = owners.collect::<anyhow::Result<BTreeSet<_>>>()?;
        ensure!(owners.len() == WORKERS, "only workers {owners:?} own a client");
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        for client in 0..usize::from(CLIENTS) {
            let source = bed.client_address(client);
            let pings = Survey::start(bed.client(), source, SERVER, PINGS)?.finish()?;
            ensure!(pings.lost() == 0, "client {client}: {} pings lost", pings.lost());
            ensure!(pings.duplicates() == 0, "client {client}: {} twice", pings.duplicates());
            ensure!(pings.out_of_order() == 0, "client {client}: pings out of order");
            within("median RTT, ms", pings.rtts().at(0.5), 585.0, 609.0)?;
        }
        let (flows, receivers) = flows_to(bed, usize::from(CLIENTS), RATE_BPS, SECONDS)?;
        let sent = Sender::start(bed.server(), SERVER, flows).finish()?;
        drained(&linkctl)?;
        for (client, (receiver, sent)) in receivers.into_iter().zip(sent).enumerate() {
            let received = receiver.finish()?;
            ensure!(sent.refused == 0, "client {client}: {sent:?}");
            ensure!(
                received.arrivals.len() as u64 == sent.packets,
                "client {client}: {} of {} packets arrived",
                received.arrivals.len(),
                sent.packets
            );
            ensure!(received.out_of_order() == 0, "client {client} is out of order");
        }
        let (transfer, order) =
            observed(bed, Plan::new("cubic", DOWNLOAD), |download| Ok(download.finish()?))?;
        let stats = drained(&linkctl)?;
        ensure!(transfer.mbps_second_half() > 1.0, "{:.1} Mbit/s", transfer.mbps_second_half());
        each_flow_in_order(&order)?;
        dropped_only_for(&stats, &["aqm", "limit"])
    })
}
