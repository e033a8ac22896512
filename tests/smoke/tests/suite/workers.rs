// SPDX-License-Identifier: Apache-2.0
//! Several workers emulate one link: every client has its rate, in order and without loss.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use emu::client::ClientKey;
use emu::place::worker_of;
use smoke::cpus::Cpus;
use smoke::iperf::Plan;
use smoke::ping::Ping;
use smoke::testbed::{Options, SERVER};

use super::download::{each_flow_in_order, observed};
use super::{
    Delivery, SEED, complete, deliver, drained, dropped_only_for, emulator, flows_to, on_bed,
    within,
};

const WORKERS: usize = 2;
const CLIENTS: u8 = 5;
const RATE_BPS: u64 = 20_000_000;
const SECONDS: u64 = 3;
const PINGS: u32 = 20;
const PING_INTERVAL: Duration = Duration::from_millis(103);
/// Base of the round trip of `viasat2-pings`. ping rounds to the millisecond.
const BASE_MS: f64 = 574.0;
const SLOT_MS: f64 = 41.43;
/// Delay of the hosts and of two sleeping workers.
const HOSTS_MS: f64 = 5.0;
const DOWNLOAD: Duration = Duration::from_secs(5);

pub fn two_workers_emulate_one_link(cpus: &Cpus) -> anyhow::Result<()> {
    // Each worker can hold the largest amount of the profile.
    let memory = "4 GiB".to_owned();
    let options = Options { workers: WORKERS, memory, ..emulator(CLIENTS) };
    on_bed(cpus, options, |bed| {
        let clients =
            (0..usize::from(CLIENTS)).map(|c| ClientKey::Ip(bed.client_address(c).into()));
        let owners: BTreeSet<_> = clients.map(|client| worker_of(client, WORKERS)).collect();
        ensure!(owners.len() == WORKERS, "only workers {owners:?} own a client");
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2-pings", SEED)?;
        let ping = |client| {
            let source = bed.client_address(client);
            Ping::start(bed.client(), source, SERVER, PINGS, PING_INTERVAL)
        };
        let running = (0..usize::from(CLIENTS)).map(ping).collect::<Result<Vec<_>, _>>()?;
        for (client, running) in running.into_iter().enumerate() {
            let pings = running.finish()?;
            ensure!(pings.lost() == 0, "client {client}: {} pings lost", pings.lost());
            ensure!(pings.duplicates() == 0, "client {client}: {} twice", pings.duplicates());
            ensure!(pings.out_of_order == 0, "client {client}: pings out of order");
            // A single series can beat with the slot.
            let [low, high] = [BASE_MS, BASE_MS + SLOT_MS + HOSTS_MS];
            within("median RTT, ms", pings.rtt_ms(0.5), low, high)?;
        }
        let flows = flows_to(bed, usize::from(CLIENTS), RATE_BPS, SECONDS);
        let Delivery { sent, received, .. } = deliver(bed, flows)?;
        for (client, (sent, received)) in sent.iter().zip(&received).enumerate() {
            complete(sent, received).with_context(|| format!("client {client}"))?;
        }
        let (transfer, order) =
            observed(bed, Plan::new("cubic", DOWNLOAD), |download| Ok(download.finish()?))?;
        let stats = drained(&linkctl)?;
        ensure!(transfer.mbps_second_half() > 1.0, "{:.1} Mbit/s", transfer.mbps_second_half());
        each_flow_in_order(&order)?;
        dropped_only_for(&stats, &["aqm", "limit"])
    })
}
