// SPDX-License-Identifier: Apache-2.0
//! Several links on one box: each with its own profile, lease and statistics.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::pb;
use smoke::ping::{Ping, Pings};
use smoke::stats::Stats;
use smoke::testbed::{Options, SERVER, Testbed};
use smoke::udp::{Flow, Receiver, Sender};
use smoke::wait;
use statrs::statistics::{Data, Median};

use super::{
    Delivery, SEED, UDP_PORT, api, complete, deliver, drained, dropped_only_for, emulator, link,
    on_bed, refused, udp_at, within, written,
};

const LAB: &str = "lab1";
/// A packet's fate depends on its number alone, and not on when it arrives.
const LOSSY: &str = "rate = \"unlimited\"\nqueue.limit = \"1 MB\"\npacket_loss = \"10 %\"";
const PATCHED_S: u64 = 1;
const FLOW: Duration = Duration::from_secs(PATCHED_S);
const OFFERED_BPS: u64 = 8_000_000;
const FRAME_BYTES: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(10);

/// The second client's address is of the link `lab1`.
fn add(bed: &Testbed, linkctl: &Linkctl) -> anyhow::Result<Linkctl> {
    let prefix = format!("{}/32", bed.client_address(1));
    let added: pb::NamedLink =
        linkctl.answer(&["link", "add", LAB, "--memory", "64MiB", "--prefix", &prefix])?;
    ensure!(added.memory_bytes == 64 << 20 && added.clients == 16, "{added:?}");
    Ok(linkctl.with("--link", LAB))
}

fn acquired(linkctl: &Linkctl, holder: &str) -> anyhow::Result<Linkctl> {
    let lease: pb::AcquireLeaseResponse =
        linkctl.answer(&["lease", "acquire", "--holder", holder, "--ttl", "1min"])?;
    Ok(linkctl.with("--lease", &lease.token))
}

pub fn two_leases_share_box_without_effect_on_each_other(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(2), |bed| {
        let linkctl = bed.linkctl()?;
        let lab = add(bed, &linkctl)?;
        let (main, lab) = (acquired(&linkctl, "job-a")?, acquired(&lab, "job-b")?);
        let lossy = written(bed, "lossy.toml", &link("lossy", LOSSY))?;
        // Each lease is about its own link.
        refused(&linkctl.with("--link", LAB), &["set", "rate", "1Mbit/s"], "job-b")?;
        refused(&linkctl, &["set", "rate", "1Mbit/s"], "job-a")?;
        refused(&linkctl, &["link", "remove", LAB], "job-b")?;
        main.set_profile("viasat2-pings", SEED)?;
        main.run(&["lease", "release"])?.success()?;
        let quiet = numbers(bed, &lab, &lossy, false)?;
        let patched = numbers(bed, &lab, &lossy, true)?;
        let sent = u64::try_from(quiet.len() + patched.len())?;
        println!("    {} and {} packets arrived", quiet.len(), patched.len());
        ensure!(quiet == patched, "{:?}", quiet.symmetric_difference(&patched).take(5));
        let (stats, main_stats) = (drained(&lab)?, drained(&linkctl)?);
        dropped_only_for(&stats, &["loss"])?;
        let received = stats.client(&bed.client_address(1).to_string())?.forward().sent().packets;
        ensure!(received == sent, "{received} of {sent}");
        ensure!(main_stats.client(&bed.client_address(1).to_string()).is_err(), "on main");
        // Delays of both at the same time.
        let pings = [0, 1].map(|client| {
            let source = bed.client_address(client);
            Ping::start(bed.client(), source, SERVER, 20, Duration::from_millis(50))
        });
        let [main_rtt, lab_rtt] =
            pings.map(|ping| Ok::<_, anyhow::Error>(ping?.finish()?.rtt_ms(0.5)));
        within("round trip over main, ms", main_rtt?, 570.0, 700.0)?;
        within("round trip over lab1, ms", lab_rtt?, 20.0, 30.0)?;
        lab.run(&["lease", "release"])?.success()?;
        removed(&linkctl)
    })
}

/// The numbers of the packets that arrive over the link.
fn numbers(
    bed: &Testbed,
    lab: &Linkctl,
    profile: &str,
    patches: bool,
) -> anyhow::Result<BTreeSet<u64>> {
    lab.set_profile(profile, SEED)?;
    let generation = lab.generation()?;
    let flow = Flow {
        to: udp_at(bed, 1),
        rate_bps: OFFERED_BPS,
        frame_bytes: FRAME_BYTES,
        duration: FLOW,
    };
    let receiver = Receiver::start(bed.client(), flow.to)?;
    let sender = Sender::start(bed.server(), SERVER, vec![flow]);
    if patches {
        api::patch_main(bed, PATCHED_S)?;
    }
    let sent = sender.finish()?;
    ensure!(sent.iter().all(|sent| sent.refused == 0), "{sent:?}");
    drained(lab)?;
    ensure!(lab.generation()? == generation, "{LAB} was changed");
    Ok(receiver.finish()?.arrivals.iter().map(|arrival| arrival.number).collect())
}

fn removed(linkctl: &Linkctl) -> anyhow::Result<()> {
    linkctl.run(&["link", "remove", LAB])?.success()?;
    let links = linkctl.run(&["link", "list"])?.success()?;
    let links: Value = serde_json::from_str(&links)?;
    ensure!(links["links"].as_array().is_some_and(|links| links.len() == 1), "{links}");
    refused(&linkctl.with("--link", LAB), &["show"], "the links are main")
}

pub fn links_of_two_workers_conserve_packets(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, Options { workers: 2, ..emulator(4) }, |bed| {
        let linkctl = bed.linkctl()?;
        let lab = add(bed, &linkctl)?;
        let profile = link("ten", "rate = \"10 Mbit/s\"\nqueue.limit = \"100 kB\"");
        let profile = written(bed, "ten.toml", &profile)?;
        for linkctl in [&linkctl, &lab] {
            linkctl.set_profile(&profile, SEED)?;
        }
        let flow = |to| Flow { to, rate_bps: 15_000_000, frame_bytes: FRAME_BYTES, duration: FLOW };
        let flows: Vec<Flow> = (0..4).map(|client| flow(udp_at(bed, client))).collect();
        let receivers = super::receivers(bed, &flows)?;
        let sender = Sender::start(bed.server(), SERVER, flows);
        // The third client changes its link and back, again and again.
        let both = [1, 2].map(|client| format!("{}/32", bed.client_address(client)));
        let mut rules = 0;
        let began = std::time::Instant::now();
        while began.elapsed() < FLOW {
            let mut assign = vec!["link", "assign", LAB, "--prefix", both[0].as_str()];
            if rules % 2 == 0 {
                assign.extend(["--prefix", both[1].as_str()]);
            }
            linkctl.run(&assign)?.success()?;
            rules += 1;
        }
        let sent = sender.finish()?;
        let stats = [drained(&linkctl)?, drained(&lab)?];
        let mut arrived = 0;
        for receiver in receivers {
            arrived += receiver.finish()?.arrivals.len() as u64;
        }
        let forward = |stats: &Stats| {
            {
                stats
                    .pipes()
                    .filter(|(_, way, _)| *way == "forward")
                    .map(|(_, _, pipe)| pipe.clone())
            }
            .collect::<Vec<_>>()
        };
        let pipes: Vec<_> = stats.iter().flat_map(forward).collect();
        let received: u64 = pipes.iter().map(|pipe| pipe.received().packets).sum();
        let left: u64 = pipes.iter().map(|pipe| pipe.sent().packets).sum();
        let wan = stats[0].port("wan")?.received().packets;
        println!("    {rules} changes of the rules; {received} packets, {arrived} delivered");
        stats.iter().try_for_each(|stats| {
            stats.conserved()?;
            dropped_only_for(stats, &["limit"])
        })?;
        ensure!(received == wan, "{received} in the links, {wan} at the port");
        let udp: u64 = sent.iter().map(|sent| sent.packets).sum();
        ensure!(received >= udp && left >= arrived, "{received} of {udp}, {left} and {arrived}");
        // As many as a machine has time for whose processors both have a worker.
        ensure!(rules > 3, "only {rules} changes of the rules");
        Ok(())
    })
}

/// Of the class, and its delay in excess of the other traffic's.
const CLASS_PORT: u16 = 9_001;
const EXCESS_MS: f64 = 50.0;
/// Expedited forwarding, DSCP 46, as ping has it: the whole octet.
const EF: &str = "0xb8";

pub fn flow_classes_by_port_and_dscp_have_their_own_delay(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let by_port = format!("protocol = \"udp\", port = \"{CLASS_PORT}\"");
        let class = ["link", "add", "class", "--memory", "512MiB"];
        let matches = ["--match", by_port.as_str(), "--match", "dscp = 46"];
        linkctl.run(&[&class[..], &matches].concat())?.success()?;
        let class = linkctl.with("--link", "class");
        let fast = link("fast", "rate = \"unlimited\"\nqueue.limit = \"1 MB\"");
        linkctl.set_profile(&written(bed, "fast.toml", &fast)?, SEED)?;
        let slow = fast.replace("fast", "slow").replace("10 ms", "60 ms");
        class.set_profile(&written(bed, "slow.toml", &slow)?, SEED)?;
        let source = bed.client_address(0).to_string();
        let rtt = |more: &[&str]| -> anyhow::Result<f64> {
            let ping = ["ping", "-n", "-D", "-c", "20", "-i", "0.05", "-I", &source];
            let server = SERVER.to_string();
            let argv = [&ping[..], more, &[server.as_str()]].concat();
            let pings = Pings::read(&bed.client().run(&argv)?, 20)?;
            ensure!(pings.lost() == 0 && pings.out_of_order == 0, "{pings:?}");
            Ok(pings.rtt_ms(0.5))
        };
        within("round trip, ms", rtt(&[])?, 20.0, 25.0)?;
        within("round trip of the class by DSCP, ms", rtt(&["-Q", EF])?, 120.0, 126.0)?;
        let to = |port| SocketAddrV4::new(bed.client_address(0), port);
        let flow =
            |to| Flow { to, rate_bps: OFFERED_BPS, frame_bytes: FRAME_BYTES, duration: FLOW };
        // Both are paced by one clock: packets of one number are sent together.
        let flows = [UDP_PORT, CLASS_PORT].map(|port| flow(to(port)));
        let Delivery { sent, received, stats } = deliver(bed, flows.to_vec())?;
        let class_stats = drained(&class)?;
        for (sent, received) in sent.iter().zip(&received) {
            complete(sent, received)?;
        }
        let excess = received[1].arrivals.iter().zip(&received[0].arrivals);
        let excess = Data::new(excess.map(|(b, a)| (b.at - a.at) * 1e3).collect::<Vec<_>>());
        within(
            "excess of the class by port, ms",
            excess.median(),
            EXCESS_MS - 1.0,
            EXCESS_MS + 1.0,
        )?;
        let forward = |stats: &Stats| stats.packets(|pipe| pipe.received());
        println!("    {} packets on main, {} on the class", forward(&stats), forward(&class_stats));
        // A rule that is shadowed by one of these is refused, with both names.
        linkctl.run(&["link", "add", "lab2", "--memory", "16MiB"])?.success()?;
        let shadowed = ["link", "assign", "lab2", "--match", "dscp = 46, priority = 0"];
        refused(&linkctl, &shadowed, "class")?;
        Ok(())
    })
}

pub fn links_return_after_restarts(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(2), |bed| {
        let linkctl = bed.linkctl()?;
        let lab = add(bed, &linkctl)?;
        let profile = written(bed, "lossy.toml", &link("lossy", LOSSY))?;
        lab.set_profile(&profile, SEED)?;
        let before = lab.show()?;
        bed.kill_dataplane()?;
        bed.start_dataplane()?;
        returned(&lab, &before)?;
        bed.kill_linkd()?;
        bed.kill_dataplane()?;
        bed.start_dataplane()?;
        bed.start_linkd()?;
        returned(&lab, &before)?;
        let rules: pb::LinkRules = linkctl.answer(&["link", "rules"])?;
        let prefix = format!("{}/32", bed.client_address(1));
        ensure!(rules.rules[0].prefixes[0] == prefix, "{rules:?}");
        // linkd alone.
        bed.kill_linkd()?;
        bed.start_linkd()?;
        returned(&lab, &before)?;
        Ok(())
    })
}

fn returned(lab: &Linkctl, before: &pb::Link) -> anyhow::Result<()> {
    wait::until("the link to return", PATIENCE, || {
        let now = lab.show().ok();
        let is_back = |now: &pb::Link| now.profile == before.profile && now.seed == before.seed;
        Ok(now.filter(is_back).map(drop))
    })?;
    Ok(())
}
