// SPDX-License-Identifier: Apache-2.0
//! Two port pairs: a packet leaves on the pair that it came in by, and a link may be one pair's. A
//! hairpin pair: one interface with two VLANs.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::ping::{Ping, Pings};
use smoke::testbed::{Options, Pairs, SERVER, SERVER_INTERFACE, Testbed};
use smoke::wire::Wire;

use super::{SEED, drained, dropped_only_for, emulator, link, on_bed, refused, within, written};

const PINGS: u32 = 40;
const INTERVAL: Duration = Duration::from_millis(50);

pub fn each_pair_has_its_own_link_and_hosts(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, Options { pairs: Pairs::Two, ..emulator(1) }, own_link)
}

pub fn two_workers_keep_pairs_apart(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, Options { pairs: Pairs::Two, workers: 2, ..emulator(1) }, own_link)
}

fn own_link(bed: &mut Testbed) -> anyhow::Result<()> {
    let linkctl = bed.linkctl()?;
    let profile = link("fast", "rate = \"unlimited\"\nqueue.limit = \"1 MB\"");
    linkctl.set_profile(&written(bed, "fast.toml", &profile)?, SEED)?;
    // Without a rule, one link has both pairs.
    let both = pings(bed)?;
    for (pair, pings) in ["a", "b"].into_iter().zip(&both) {
        within(&format!("round trip on pair {pair}, ms"), pings.rtt_ms(0.5), 20.0, 26.0)?;
    }
    let rule = "port_pair = \"b\"";
    linkctl.run(&["link", "add", "b", "--memory", "700MiB", "--match", rule])?.success()?;
    let link_b = linkctl.with("--link", "b");
    let slow = profile.replace("fast", "slow").replace("10 ms", "40 ms");
    link_b.set_profile(&written(bed, "slow.toml", &slow)?, SEED)?;
    let [a, b] = pings(bed)?;
    within("round trip on pair a, ms", a.rtt_ms(0.5), 20.0, 26.0)?;
    within("round trip on pair b, ms", b.rtt_ms(0.5), 80.0, 86.0)?;
    unknown_pair_is_refused(bed, &linkctl)?;
    let (main, slow) = (drained(&linkctl)?, drained(&link_b)?);
    for stats in [&main, &slow] {
        stats.conserved()?;
        dropped_only_for(stats, &[])?;
    }
    let client = bed.client_address(0).to_string();
    let of_b = slow.client(&client)?.forward().sent().packets;
    ensure!(of_b == u64::from(PINGS), "link b sent {of_b} packets");
    // Each pair has sent what it received, and the links have received that.
    let mut received = 0;
    for pair in ["a", "b"] {
        let (wan, sat) =
            (main.port(&format!("wan.{pair}"))?, main.port(&format!("client.{pair}"))?);
        let ways = [(&wan, &sat), (&sat, &wan)];
        for (from, to) in ways {
            let (came, left) = (from.received().packets, to.sent().packets);
            ensure!(came == left, "{} received {came}, {} sent {left}", from.name, to.name);
            received += came;
        }
        println!(
            "    pair {pair}: {} and {} packets",
            wan.received().packets,
            sat.received().packets
        );
    }
    let in_links = main.packets(|pipe| pipe.received()) + slow.packets(|pipe| pipe.received());
    ensure!(received == in_links, "{received} at the ports, {in_links} in the links");
    Ok(())
}

fn unknown_pair_is_refused(bed: &Testbed, linkctl: &Linkctl) -> anyhow::Result<()> {
    let unknown = "there is no port pair `c`: this box has a, b";
    refused(linkctl, &["link", "assign", "b", "--match", "port_pair = \"c\""], unknown)?;
    let clients = "[[client]]\nname = \"x\"\n[[client.match]]\nport_pair = \"b\"\n\
                   [[client]]\nname = \"y\"\n[[client.match]]\nport_pair = \"c\"\n";
    let clients = written(bed, "clients.toml", clients)?;
    let place = format!("client[1].match[0].port_pair: {unknown}");
    refused(linkctl, &["clients", "set", &clients], &place)
}

/// Pings of both pairs at the same time, from hosts with the same address. None is lost.
fn pings(bed: &Testbed) -> anyhow::Result<[Pings; 2]> {
    let second = &bed.second().context("one pair")?[1];
    let source = bed.client_address(0);
    let of = |host| Ping::start(host, source, SERVER, PINGS, INTERVAL);
    let (a, b) = (of(bed.client())?, of(second)?);
    let both = [a.finish()?, b.finish()?];
    for pings in &both {
        ensure!(pings.lost() == 0 && pings.duplicates() == 0, "{pings:?}");
    }
    Ok(both)
}

const WAN_TAG: [u8; 4] = [0x81, 0, 0, 100];
const CLIENT_TAG: [u8; 4] = [0x81, 0, 0, 200];
const FRAMES: u8 = 50;
const PATIENCE: Duration = Duration::from_secs(20);

pub fn hairpin_pair_exchanges_vlans(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, Options { pairs: Pairs::Hairpin, ..emulator(1) }, |bed| {
        let linkctl = bed.linkctl()?;
        let profile = link("fast", "rate = \"unlimited\"\nqueue.limit = \"1 MB\"");
        linkctl.set_profile(&written(bed, "fast.toml", &profile)?, SEED)?;
        let wire = Wire::open(bed.server(), SERVER_INTERFACE)?;
        let began = Instant::now();
        for n in 0..FRAMES {
            wire.send(&tagged(Some(WAN_TAG), n))?;
            wire.send(&tagged(Some(CLIENT_TAG), n))?;
        }
        // Of neither side: without a tag, and of another VLAN.
        for n in 0..5 {
            wire.send(&tagged(None, n))?;
            wire.send(&tagged(Some([0x81, 0, 1, 44]), n))?;
        }
        let mut expected: Vec<Vec<u8>> = (0..FRAMES)
            .flat_map(|n| [CLIENT_TAG, WAN_TAG].map(|tag| tagged(Some(tag), n)))
            .collect();
        let mut came = Vec::new();
        while came.len() < expected.len() {
            ensure!(Wire::wait(&[&wire], began + PATIENCE)?, "{} frames came", came.len());
            came.extend(wire.receive()?);
        }
        ensure!(began.elapsed() >= Duration::from_millis(10), "without the delay of the link");
        let stats = drained(&linkctl)?;
        came.extend(wire.receive()?);
        expected.sort();
        came.sort();
        ensure!(came == expected, "other frames came");
        stats.conserved()?;
        dropped_only_for(&stats, &[])?;
        let (wan, client) = (stats.port("wan.h")?, stats.port("client.h")?);
        for port in [wan, client] {
            let counts = [port.received().packets, port.sent().packets, port.missed];
            ensure!(counts == [FRAMES.into(), FRAMES.into(), 0], "{port:?}");
        }
        ensure!((wan.foreign, client.foreign) == (10, 0), "{wan:?} {client:?}");
        let in_link = stats.packets(|pipe| pipe.received());
        ensure!(in_link == 2 * u64::from(FRAMES), "{in_link} packets in the link");
        Ok(())
    })
}

/// A packet between the hosts, up to the longest, with a tag or without.
fn tagged(tag: Option<[u8; 4]>, number: u8) -> Vec<u8> {
    let len = 60 + 29 * u16::from(number % 51);
    let tag = tag.map_or_else(Vec::new, Vec::from);
    let mut packet = vec![number; usize::from(len) - 14];
    packet[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet[2..4].copy_from_slice(&(len - 14).to_be_bytes());
    let (server, client) = (SERVER.octets(), [10, 77, 0, 10]);
    // The client side is the destination of a forward frame.
    packet[12..20].copy_from_slice(&[server, client].concat());
    [&[2; 6][..], &[4; 6], &tag, &[8, 0], &packet].concat()
}
