// SPDX-License-Identifier: Apache-2.0
//! Two port pairs: a packet leaves on the pair that it came in by, and a link may be one pair's.

use std::time::Duration;

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::linkctl::{Linkctl, REFUSED};
use smoke::ping::{Ping, Pings};
use smoke::testbed::{Options, SERVER, Testbed};

use super::{SEED, drained, dropped_only_for, emulator, link, on_bed, within, written};

const PINGS: u32 = 40;
const INTERVAL: Duration = Duration::from_millis(50);

pub fn each_pair_has_its_own_link_and_hosts(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, Options { two_pairs: true, ..emulator(1) }, |bed| own_link(bed, 1))
}

pub fn two_workers_keep_pairs_apart(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, Options { two_pairs: true, workers: 2, ..emulator(1) }, |bed| own_link(bed, 2))
}

fn own_link(bed: &mut Testbed, workers: usize) -> anyhow::Result<()> {
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
    unknown_pair_is_refused(bed, &linkctl, workers)?;
    let (main, slow) = (drained(&linkctl)?, drained(&link_b)?);
    for stats in [&main, &slow] {
        stats.conserved()?;
        dropped_only_for(stats, &[])?;
    }
    let client = bed.client_address(0).to_string();
    let of_b = slow.client(&client)?.forward.sent.packets;
    ensure!(of_b == u64::from(PINGS), "link b sent {of_b} packets");
    // Each pair has sent what it received, and the links have received that.
    let mut received = 0;
    for pair in ["a", "b"] {
        let (wan, sat) =
            (main.port(&format!("wan.{pair}"))?, main.port(&format!("client.{pair}"))?);
        let ways = [(&wan, &sat), (&sat, &wan)];
        for (from, to) in ways {
            let (came, left) = (from.received.packets, to.sent.packets);
            ensure!(came == left, "{} received {came}, {} sent {left}", from.name, to.name);
            received += came;
        }
        println!("    pair {pair}: {} and {} packets", wan.received.packets, sat.received.packets);
    }
    let in_links = main.packets(|pipe| pipe.received) + slow.packets(|pipe| pipe.received);
    ensure!(received == in_links, "{received} at the ports, {in_links} in the links");
    Ok(())
}

fn unknown_pair_is_refused(bed: &Testbed, linkctl: &Linkctl, workers: usize) -> anyhow::Result<()> {
    let assign = ["link", "assign", "b", "--match", "port_pair = \"c\""];
    let outcome = linkctl.run(&assign)?;
    let refused = outcome.stderr.contains("there is no port pair `c`: this box has a, b");
    ensure!(outcome.code() == REFUSED && refused, "{outcome:?}");
    if workers > 1 {
        return Ok(());
    }
    let clients = "[[client]]\nname = \"x\"\n[[client.match]]\nport_pair = \"b\"\n\
                   [[client]]\nname = \"y\"\n[[client.match]]\nport_pair = \"c\"\n";
    let outcome = linkctl.run(&["clients", "set", &written(bed, "clients.toml", clients)?])?;
    let words = "client[1].match[0].port_pair: there is no port pair `c`: this box has a, b";
    ensure!(outcome.code() == REFUSED && outcome.stderr.contains(words), "{outcome:?}");
    Ok(())
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
