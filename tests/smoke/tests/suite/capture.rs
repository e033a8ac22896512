// SPDX-License-Identifier: Apache-2.0
//! Captures match the counters, packet by packet.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;
use smoke::cpus::Cpus;
use smoke::process::Process;
use smoke::stats::{DropReason, Pipe};
use smoke::testbed::SERVER;
use smoke::udp::{FULL_FRAME_BYTES, Flow, Receiver, Sender};
use smoke::wait;

use super::{SEED, drained, emulator, on_bed, udp_at, written};

/// A queue that overflows, and outages in each part of a second.
const LOSSY: &str = r#"
name = "lossy"
[forward]
rate = "8 Mbit/s"
queue.limit = "100 kB"
delay.base = "120 ms"
[[forward.outages]]
interval = "300 ms"
duration = "60 ms"
law = "exponential"
[return]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "30 ms"
"#;
const OFFERED_BPS: u64 = 12_000_000;
const SECONDS: u64 = 3;
/// Minimum delay of a packet.
const BASE: Duration = Duration::from_millis(120);
const LIMIT: Duration = Duration::from_secs(30);

pub fn captured_packets_match_counters(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(2), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile(&written(bed, "lossy.toml", LOSSY)?, SEED)?;
        let client = bed.client_address(0).to_string();
        let before = linkctl.stats()?;
        let before = before.client(&client).map(|c| [c.forward().clone(), c.back().clone()]).ok();
        let file = bed.directory().path("run.pcapng");
        let path = file.display().to_string();
        let arguments = ["capture", "--client", &client, "-w", &path];
        let mut capture = Process::spawn(linkctl.command(&arguments))?;
        wait::until("the capture runs", LIMIT, || {
            Ok(file.metadata().is_ok_and(|there| there.len() > 0).then_some(()))
        })?;
        // Packets of another client must not be captured.
        let flow = |to| Flow {
            to,
            rate_bps: OFFERED_BPS,
            frame_bytes: FULL_FRAME_BYTES,
            duration: Duration::from_secs(SECONDS),
        };
        let flows = vec![flow(udp_at(bed, 0)), flow(udp_at(bed, 1))];
        let receivers = flows
            .iter()
            .map(|f| Receiver::start(bed.client(), f.to))
            .collect::<Result<Vec<_>, _>>()?;
        Sender::start(bed.server(), SERVER, flows).finish()?;
        let stats = drained(&linkctl)?;
        for receiver in receivers {
            receiver.finish()?;
        }
        // The last packets are on their way to the file.
        std::thread::sleep(Duration::from_millis(100));
        capture.signal(Signal::SIGINT);
        let outcome = capture.finish(LIMIT)?;
        let summary: Value = serde_json::from_str(&outcome.success()?)?;
        println!("    {summary}");
        ensure!(summary["missed"] == 0, "copies were missed: {summary}");
        ensure!(summary["profile"] == "lossy", "{summary}");

        let captured = Captured::read(&file)?;
        let of = stats.client(&client)?;
        for (i, (name, pipe)) in
            [("forward", of.forward()), ("return", of.back())].iter().enumerate()
        {
            let before = before.as_ref().map(|b| b[i].clone()).unwrap_or_default();
            captured.agrees(name, pipe, &before)?;
        }
        ensure!(of.forward().dropped_for(DropReason::Outage).packets > 0, "no outage came");
        ensure!(
            of.forward().dropped_for(DropReason::Limit).packets > 0,
            "the queue did not overflow"
        );
        captured.each_ends_once()
    })
}

#[derive(Debug)]
struct Copy {
    interface: usize,
    at: Duration,
    number: Option<u64>,
    comment: String,
}

#[derive(Debug, Default)]
struct Captured {
    interfaces: Vec<String>,
    copies: Vec<Copy>,
}

impl Captured {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let mut reader = PcapNgReader::new(BufReader::new(File::open(path)?))?;
        let mut captured = Self::default();
        let mut counts = BTreeMap::new();
        while let Some(block) = reader.next_block() {
            match block?.into_owned() {
                Block::InterfaceDescription(interface) => {
                    let name = interface.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    });
                    captured.interfaces.push(name.context("an interface without a name")?);
                }
                Block::EnhancedPacket(packet) => captured.copies.push(copy(&packet)?),
                Block::InterfaceStatistics(statistics) => {
                    for option in statistics.options {
                        if let InterfaceStatisticsOption::IsbIfRecv(n) = option {
                            counts.insert(statistics.interface_id as usize, n);
                        }
                    }
                }
                _ => {}
            }
        }
        for (id, name) in captured.interfaces.iter().enumerate() {
            let n = captured.copies.iter().filter(|c| c.interface == id).count() as u64;
            ensure!(counts.get(&id) == Some(&n), "{name}: {n} copies, the file reports {counts:?}");
        }
        let ordered = captured.copies.windows(2).all(|pair| pair[0].at <= pair[1].at);
        ensure!(ordered, "the copies are not in the order of their times");
        Ok(captured)
    }

    fn at(&self, interface: &str) -> impl Iterator<Item = &Copy> {
        let id = self.interfaces.iter().position(|name| name == interface);
        self.copies.iter().filter(move |copy| Some(copy.interface) == id)
    }

    /// At each point there are as many copies as counted packets.
    fn agrees(&self, direction: &str, pipe: &Pipe, before: &Pipe) -> anyhow::Result<()> {
        let count = |point: &str| self.at(&format!("{direction}-{point}")).count() as u64;
        let received = pipe.received().packets - before.received().packets;
        let sent = pipe.sent().packets - before.sent().packets;
        ensure!(count("in") == received, "{direction}: {} in, {received} received", count("in"));
        ensure!(count("out") == sent, "{direction}: {} out, {sent} sent", count("out"));
        let mut dropped = 0;
        for reason in DropReason::ALL {
            let n = pipe.dropped_for(reason).packets - before.dropped_for(reason).packets;
            let reason = reason.word();
            let words = format!("dropped: {reason}");
            let point = format!("{direction}-drop");
            let copies = self.at(&point).filter(|c| c.comment == words).count() as u64;
            ensure!(copies == n, "{direction}: {copies} dropped for {reason}, {n} in the accounts");
            dropped += n;
        }
        ensure!(count("drop") == dropped, "{direction}: {} and {dropped} dropped", count("drop"));
        println!("    {direction}: {received} in, {sent} out, {dropped} dropped");
        Ok(())
    }

    /// Each packet has one arrival, one end, and a plausible delay.
    fn each_ends_once(&self) -> anyhow::Result<()> {
        let mut packets = HashMap::<u64, Vec<&Copy>>::new();
        for copy in &self.copies {
            let number = copy.number.with_context(|| format!("without a number: {copy:?}"))?;
            packets.entry(number).or_default().push(copy);
        }
        for (number, copies) in packets {
            let [came, ended] = &*copies else {
                anyhow::bail!("packet {number} was not seen twice: {copies:?}");
            };
            let name = |copy: &Copy| &*self.interfaces[copy.interface];
            let base = match (name(came), name(ended)) {
                ("forward-in", "forward-out") => BASE,
                ("forward-in", "forward-drop") | ("return-in", "return-out" | "return-drop") => {
                    Duration::ZERO
                }
                other => anyhow::bail!("packet {number} went {other:?}"),
            };
            ensure!(ended.at >= came.at + base, "packet {number} was early: {copies:?}");
        }
        Ok(())
    }
}

fn copy(packet: &EnhancedPacketBlock<'_>) -> anyhow::Result<Copy> {
    let (mut number, mut comment) = (None, String::new());
    for option in &packet.options {
        match option {
            EnhancedPacketOption::Unknown(option) if option.code == 5 => {
                number = Some(u64::from_be_bytes((*option.value).try_into()?));
            }
            EnhancedPacketOption::Comment(text) => comment = text.to_string(),
            _ => {}
        }
    }
    Ok(Copy { interface: packet.interface_id as usize, at: packet.timestamp, number, comment })
}
