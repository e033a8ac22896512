// SPDX-License-Identifier: Apache-2.0
//! Clients by rules: hosts of a prefix that form one client, a client by MAC, and clients that
//! share a beam.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context, ensure};
use emu::client::ClientKey;
use emu::place::worker_of;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::pb;
use smoke::testbed::{CLIENT_INTERFACE, Options, SERVER, SERVER_INTERFACE, Testbed};
use smoke::udp::{Flow, Receiver, Sender};

use super::{
    Delivery, SEED, UDP_PORT, deliver, drained, dropped_only_for, emulator, had_room, link, on_bed,
    punctual, receivers, refused, udp_at, within, written,
};

const TEN: &str = "rate = \"10 Mbit/s\"\nqueue.limit = \"100 kB\"";
const RATE_MBPS: f64 = 10.0;
/// Below the rate for one host, and above it for two.
const OFFERED_BPS: u64 = 8_000_000;
const FRAME_BYTES: usize = 1_000;
const SECONDS: u64 = 4;
/// Longest accepted stall of the worker.
const STALL: Duration = Duration::from_millis(50);
/// A stall of d changes the slope of the least-squares line through T = 3 s by at most 3 (d / T)^2,
/// which is 0.09 %. One frame more or less at either end is 0.05 %.
const RATE_TOLERANCE: f64 = 0.002;
/// MAC of the client with a rule for it.
const MAC: &str = "02:00:00:00:00:64";
/// Addresses of the server and of that client, in a prefix of another client.
const APART: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 10)];
const CLIENTS: &str = r#"
[[client]]
name = "pair"
prefix = ["10.77.0.10/31", "10.78.0.0/16"]
[[client]]
name = "apart"
mac = ["02:00:00:00:00:64"]
"#;

pub fn hosts_of_prefix_share_client_and_mac_is_separate(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(3), |bed| {
        another_host(bed)?;
        let linkctl = bed.linkctl()?;
        linkctl.set_profile(&written(bed, "ten.toml", &link("ten", TEN))?, SEED)?;
        linkctl.change(&["clients", "set", &written(bed, "clients.toml", CLIENTS)?])?;
        linkctl.mark()?;
        shares(bed, &linkctl)?;
        forgets(bed, &linkctl)
    })
}

/// Adds a host with a separate MAC and subnet.
fn another_host(bed: &Testbed) -> anyhow::Result<()> {
    let (server, client) = (bed.server(), bed.client());
    let [near, far] = APART.map(|address| format!("{address}/24"));
    server.run(&["ip", "address", "add", &near, "dev", SERVER_INTERFACE])?;
    // The other interface would reply to ARP requests for this address.
    client.sysctl("net/ipv4/conf/all/arp_ignore", "1")?;
    let link = ["ip", "link", "add", "link", CLIENT_INTERFACE, "name", "mac0", "address", MAC];
    client.run(&[&link[..], &["type", "macvlan"]].concat())?;
    client.run(&["ip", "address", "add", &far, "dev", "mac0"])?;
    client.run(&["ip", "link", "set", "mac0", "up"])?;
    Ok(())
}

/// The two hosts share one rate. The third host and the client by MAC lose no packet.
fn shares(bed: &Testbed, linkctl: &Linkctl) -> anyhow::Result<()> {
    let duration = Duration::from_secs(SECONDS);
    let flow = |to| Flow { to, rate_bps: OFFERED_BPS, frame_bytes: FRAME_BYTES, duration };
    let flows: Vec<Flow> = (0..3).map(|client| flow(udp_at(bed, client))).collect();
    let apart = flow(SocketAddrV4::new(APART[1], UDP_PORT));
    let receivers = receivers(bed, &[&flows[..], &[apart]].concat())?;
    let plain = Sender::start(bed.server(), SERVER, flows);
    let other = Sender::start(bed.server(), APART[0], vec![apart]);
    let sent = [plain.finish()?, other.finish()?].concat();
    let stats = drained(linkctl)?;
    had_room(bed.client())?;
    punctual(&stats, STALL)?;
    dropped_only_for(&stats, &["limit"])?;
    let received = receivers.into_iter().map(Receiver::finish).collect::<Result<Vec<_>, _>>()?;
    let pair = stats.client("pair")?.forward();
    ensure!(pair.received().packets == sent[0].packets + sent[1].packets, "{pair:?}, {sent:?}");
    let arrived = received[..2].iter().map(|r| r.arrivals.len() as u64).sum::<u64>();
    ensure!(pair.sent().packets == arrived, "{pair:?}, {arrived} arrived");
    // From the time at which the queue is full.
    let rate = received[..2].iter().map(|r| r.rate_bps(1.0, SECONDS as f64)).sum::<f64>() / 1e6;
    let (low, high) = (1.0 - RATE_TOLERANCE, 1.0 + RATE_TOLERANCE);
    within("both hosts together, Mbit/s", rate, low * RATE_MBPS, high * RATE_MBPS)?;
    let third = bed.client_address(2).to_string();
    for (n, name) in [(2, third.as_str()), (3, "apart")] {
        let forward = stats.client(name)?.forward();
        let arrived = received[n].arrivals.len() as u64;
        ensure!(forward.dropped_total().packets == 0, "{name}: {forward:?}");
        ensure!(forward.sent().packets == arrived, "{name}: {forward:?}, {arrived} arrived");
        ensure!(arrived == sent[n].packets, "{name}: {:?}, {arrived} arrived", sent[n]);
    }
    let first = bed.client_address(0).to_string();
    ensure!(stats.client(&first).is_err(), "{first} is a client beside the one of its prefix");
    Ok(())
}

/// Without rules each address is a separate client. Named clients keep their counters.
fn forgets(bed: &Testbed, linkctl: &Linkctl) -> anyhow::Result<()> {
    let before = linkctl.stats()?;
    linkctl.change(&["clients", "clear"])?;
    let first = bed.client_address(0).to_string();
    bed.client().run(&["ping", "-c", "2", "-i", "0.2", "-I", &first, &SERVER.to_string()])?;
    let stats = drained(linkctl)?;
    let own = stats.client(&first)?;
    ensure!(own.forward().sent().packets == 2 && own.back().sent().packets == 2, "{own:?}");
    let [was, is] =
        [&before, &stats].map(|stats| stats.client("pair").map(|c| c.forward().received()));
    ensure!(was? == is?, "the counters of the named client have changed");
    let list: pb::ListClientsResponse = linkctl.answer(&["clients", "list"])?;
    let pair =
        list.clients.iter().find(|c| c.client == "pair").context("the pair is not listed")?;
    ensure!(pair.kind() == pb::ClientKind::Named && pair.removed, "{pair:?}");
    Ok(())
}

const TWENTY: &str = "rate = \"20 Mbit/s\"\nqueue.limit = \"100 kB\"";
const BEAM: &str = r#"
[[client]]
name = "one"
prefix = ["10.77.0.10/32"]
beam = "b1"
[[client]]
name = "three"
prefix = ["10.77.0.11/32"]
beam = "b1"
weight = 3
[[beam]]
name = "b1"
forward_rate = "12 Mbit/s"
"#;
const BEAM_MBPS: f64 = 12.0;
/// Above the share of each client, and below its own rate.
const BACKLOG_BPS: u64 = 16_000_000;
/// Over 3 s the client with the lower weight has 1125 frames of the beam. Deficit round robin
/// deviates by at most three frames of 1000 bytes by its weight, at a quantum of 1514: 0.27 % for
/// each client. The tolerance of the rate is added for each client.
const SHARE_TOLERANCE: f64 = 0.0095;

pub fn backlogged_clients_share_beam_by_weight(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, Options { workers: 2, ..emulator(5) }, |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile(&written(bed, "twenty.toml", &link("twenty", TWENTY))?, SEED)?;
        let duration = Duration::from_secs(SECONDS);
        let flow = |to| Flow { to, rate_bps: BACKLOG_BPS, frame_bytes: FRAME_BYTES, duration };
        let beam = written(bed, "beam.toml", BEAM)?;
        let set = ["clients", "set", &beam];
        moved_to_one_worker(bed, &linkctl, &set)?;
        linkctl.mark()?;
        let flows: Vec<Flow> = (0..2).map(|client| flow(udp_at(bed, client))).collect();
        let Delivery { received, stats, .. } = deliver(bed, flows)?;
        had_room(bed.client())?;
        punctual(&stats, STALL)?;
        dropped_only_for(&stats, &["limit"])?;
        let rate = |n: usize| received[n].rate_bps(1.0, SECONDS as f64) / 1e6;
        let (one, three) = (rate(0), rate(1));
        let (low, high) = (1.0 - RATE_TOLERANCE, 1.0 + RATE_TOLERANCE);
        within("the beam, Mbit/s", one + three, low * BEAM_MBPS, high * BEAM_MBPS)?;
        let (low, high) = (3.0 * (1.0 - SHARE_TOLERANCE), 3.0 * (1.0 + SHARE_TOLERANCE));
        within("three times the weight, times the rate", three / one, low, high)
    })
}

/// Clients that share a beam move to one worker, unless another one holds packets.
fn moved_to_one_worker(bed: &Testbed, linkctl: &Linkctl, set: &[&str]) -> anyhow::Result<()> {
    let (rate_bps, duration) = (2 * BACKLOG_BPS, Duration::from_secs(1));
    let flow = |to| Flow { to, rate_bps, frame_bytes: FRAME_BYTES, duration };
    let other =
        |client: &usize| worker_of(ClientKey::Ip(bed.client_address(*client).into()), 2) > 0;
    let flows: Vec<Flow> = (0..5).filter(other).map(|client| flow(udp_at(bed, client))).collect();
    ensure!(!flows.is_empty(), "the first worker has all clients");
    let receivers = receivers(bed, &flows)?;
    let sender = Sender::start(bed.server(), SERVER, flows);
    std::thread::sleep(duration / 2);
    refused(linkctl, set, "which later ones would overtake: try again when the link is idle")?;
    sender.finish()?;
    drained(linkctl)?;
    receivers.into_iter().try_for_each(|receiver| receiver.finish().map(drop))?;
    linkctl.change(set)?;
    Ok(())
}
