// SPDX-License-Identifier: Apache-2.0
//! Delay and loss over time from two captures of the same packets, before and after a link.
//!
//! Packets are matched by what a router does not change: addresses, protocol, IPv4 identification,
//! and the first bytes of the payload without the checksum of TCP and UDP, which a network card may
//! compute after the capture. Both captures are read side by side, and a packet waits for its match
//! for at most [`LONGEST_NS`], so that the memory does not grow with the length of the captures. Times
//! that go back are an error ([`PacketTimes`]).
//!
//! A step has the mean delay and the share of losses of the packets that were sent in it. In a step
//! without delivered packets the delay is interpolated linearly between its neighbours, and without
//! packets the loss is zero.

use crate::packet_times::PacketTimes;
use crate::{RateError, S, STEPS, regular_file};
use etherparse::{LaxNetSlice, LaxSlicedPacket};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufReader, Read, Seek};
use std::path::Path;

/// The longest delay: packets without a match for this long are lost.
pub const LONGEST_NS: u64 = 60_000_000_000;
/// Bytes of the payload that are compared. Captures may be cut off after them.
const COMPARED: usize = 96;
/// First bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A step of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PairStep {
    pub delay_ns: u64,
    /// Share of the packets of the step.
    pub loss: f64,
    pub packets: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pair {
    pub steps: Vec<PairStep>,
    pub delivered: u64,
    pub lost: u64,
    /// Packets after the link that were not seen before it.
    pub unmatched: u64,
    /// Packets before the link that were sent after the last one that was delivered.
    pub unknown: u64,
}

/// Matches the packets of two captures. The clock of `after` is ahead by `offset_ns`.
///
/// # Errors
/// If a file is no capture, its times go back, nothing matches, or packets arrive before they were sent.
pub fn read_pair(
    before: &Path,
    after: &Path,
    step_ns: u64,
    offset_ns: i64,
) -> Result<Pair, RateError> {
    let (mut before, mut after) = (Capture::open(before)?, Capture::open(after)?);
    let mut pairing = Pairing::new(step_ns);
    let (mut sent, mut arrived) = (before.next()?, after.next()?);
    loop {
        match (sent, arrived) {
            (Some((time, key)), next) if next.is_none_or(|n| time <= shift(n.0, offset_ns)) => {
                pairing.sent(time, key)?;
                sent = before.next()?;
            }
            (_, Some((time, key))) => {
                pairing.arrived(shift(time, offset_ns), key);
                arrived = after.next()?;
            }
            _ => break,
        }
    }
    pairing.finish()
}

fn shift(time: u64, offset_ns: i64) -> u64 {
    time.saturating_add_signed(offset_ns.saturating_neg())
}

#[derive(Clone, Copy, Default)]
struct Sum {
    delay_ns: u128,
    delivered: u64,
    sent: u64,
}

struct Pairing {
    step_ns: u64,
    start: Option<u64>,
    sums: Vec<Sum>,
    /// Packets that have not arrived, and those that have not been sent, by key.
    waiting: HashMap<u64, VecDeque<u64>>,
    early: HashMap<u64, u64>,
    /// The packets of both in the order of their times.
    order: VecDeque<(u64, u64)>,
    early_order: VecDeque<(u64, u64)>,
    /// When the last delivered packet was sent.
    last: u64,
    /// When packets were sent that are lost, or too late for the second capture.
    missing: Vec<u64>,
    /// Packets that arrived before they were sent, and by how much at most.
    reversed: (u64, u64),
    pair: Pair,
}

impl Pairing {
    fn new(step_ns: u64) -> Self {
        Self {
            step_ns: step_ns.max(1),
            start: None,
            sums: Vec::new(),
            waiting: HashMap::new(),
            early: HashMap::new(),
            order: VecDeque::new(),
            early_order: VecDeque::new(),
            last: 0,
            missing: Vec::new(),
            reversed: (0, 0),
            pair: Pair::default(),
        }
    }

    fn sent(&mut self, time: u64, key: u64) -> Result<(), RateError> {
        if let Some(arrived) = self.early.remove(&key) {
            self.reverse(time, arrived);
        }
        let start = *self.start.get_or_insert(time);
        if time.saturating_sub(start) / self.step_ns >= STEPS {
            let problem = format!("the captures would have more than {STEPS} of them");
            return Err(RateError::Step { step_ns: self.step_ns, problem });
        }
        self.expire(time);
        self.waiting.entry(key).or_default().push_back(time);
        self.order.push_back((time, key));
        Ok(())
    }

    /// A packet arrived before it was sent.
    fn reverse(&mut self, sent: u64, arrived: u64) {
        self.reversed.0 += 1;
        self.reversed.1 = self.reversed.1.max(sent.saturating_sub(arrived));
    }

    fn arrived(&mut self, time: u64, key: u64) {
        let waiting = self.waiting.get(&key).and_then(VecDeque::front).copied();
        let Some(sent) = waiting.filter(|sent| *sent <= time) else {
            self.pair.unmatched += 1;
            match waiting {
                // Packets are not quite in the order of their times.
                Some(sent) => self.reverse(sent, time),
                None => {
                    self.early.insert(key, time);
                    self.early_order.push_back((time, key));
                }
            }
            return;
        };
        self.waiting.get_mut(&key).and_then(VecDeque::pop_front);
        if self.waiting.get(&key).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(&key);
        }
        self.pair.delivered += 1;
        self.last = self.last.max(sent);
        let sum = self.sum(sent);
        sum.delay_ns += u128::from(time - sent);
        (sum.delivered, sum.sent) = (sum.delivered + 1, sum.sent + 1);
    }

    fn sum(&mut self, sent: u64) -> &mut Sum {
        let step = sent.saturating_sub(self.start.unwrap_or(sent)) / self.step_ns;
        // [`Pairing::sent`] limits the number.
        let step = usize::try_from(step).unwrap_or(0);
        if self.sums.len() <= step {
            self.sums.resize(step + 1, Sum::default());
        }
        &mut self.sums[step]
    }

    /// Packets that wait since before `now` by more than the longest delay are lost.
    fn expire(&mut self, now: u64) {
        while let Some((time, key)) = self.order.front().copied()
            && now.saturating_sub(time) > LONGEST_NS
        {
            self.order.pop_front();
            self.give_up(time, key);
        }
        while let Some((time, key)) = self.early_order.front().copied()
            && now.saturating_sub(time) > LONGEST_NS
        {
            self.early_order.pop_front();
            self.early.remove(&key);
        }
    }

    fn give_up(&mut self, time: u64, key: u64) {
        let Some(times) = self.waiting.get_mut(&key) else { return };
        if times.front() == Some(&time) {
            times.pop_front();
            if times.is_empty() {
                self.waiting.remove(&key);
            }
            if time < self.last { self.lose(time) } else { self.missing.push(time) }
        }
    }

    fn lose(&mut self, time: u64) {
        self.pair.lost += 1;
        self.sum(time).sent += 1;
    }

    fn finish(mut self) -> Result<Pair, RateError> {
        while let Some((time, key)) = self.order.pop_front() {
            self.give_up(time, key);
        }
        // A few may be repetitions of an equal packet.
        if self.reversed.0 > self.pair.delivered {
            return Err(RateError::Early { by_ns: self.reversed.1 });
        }
        if self.pair.delivered == 0 {
            return Err(RateError::NoMatch { sent: self.missing.len() as u64 });
        }
        for time in std::mem::take(&mut self.missing) {
            if time < self.last { self.lose(time) } else { self.pair.unknown += 1 }
        }
        self.pair.steps = steps(&self.sums);
        Ok(self.pair)
    }
}

fn steps(sums: &[Sum]) -> Vec<PairStep> {
    let mean = |sum: &Sum| {
        let mean = sum.delay_ns.checked_div(sum.delivered.into())?;
        u64::try_from(mean).ok()
    };
    let mut steps: Vec<PairStep> = Vec::with_capacity(sums.len());
    // The last step with a delay, and that delay.
    let mut known: Option<(usize, u64)> = None;
    for (i, sum) in sums.iter().enumerate() {
        let loss = (sum.sent - sum.delivered) as f64 / (sum.sent.max(1)) as f64;
        let delay_ns = mean(sum).or(known.map(|k| k.1)).unwrap_or(0);
        steps.push(PairStep { delay_ns, loss, packets: sum.sent });
        if let Some(delay) = mean(sum) {
            let (from, first) = known.map_or((0, delay), |(from, first)| (from + 1, first));
            let gap = (i - from + 1) as i128;
            for (step, n) in steps[from..i].iter_mut().zip(1..) {
                let between = i128::from(first) + (i128::from(delay) - i128::from(first)) * n / gap;
                step.delay_ns = u64::try_from(between).unwrap_or(first);
            }
            known = Some((i, delay));
        }
    }
    steps
}

/// A capture of either format.
struct Capture {
    name: String,
    reader: Reader,
    times: PacketTimes,
}

enum Reader {
    Pcap(PcapReader<BufReader<File>>),
    PcapNg(PcapNgReader<BufReader<File>>),
}

impl Capture {
    fn open(path: &Path) -> Result<Self, RateError> {
        let (file, name) = regular_file(path)?;
        let mut file = BufReader::new(file);
        let mut magic = [0; 4];
        let is_ng = file.read_exact(&mut magic).is_ok() && magic == PCAPNG;
        file.rewind().map_err(|error| RateError::from(error).named(&name))?;
        let reader = if is_ng {
            PcapNgReader::new(file).map(Reader::PcapNg)
        } else {
            PcapReader::new(file).map(Reader::Pcap)
        };
        let reader = reader.map_err(|error| capture(&name, &error))?;
        Ok(Self { name, reader, times: PacketTimes::default() })
    }

    /// Time in nanoseconds and key of the next IP packet.
    fn next(&mut self) -> Result<Option<(u64, u64)>, RateError> {
        loop {
            let (time, key) = match &mut self.reader {
                Reader::Pcap(reader) => {
                    let header = reader.header();
                    let fraction = match header.ts_resolution {
                        TsResolution::MicroSecond => 1_000,
                        TsResolution::NanoSecond => 1,
                    };
                    // Raw, since captures with a snapshot length say longer packets than they hold.
                    let Some(packet) = reader.next_raw_packet() else { return Ok(None) };
                    let packet = packet.map_err(|error| capture(&self.name, &error))?;
                    let time = u64::from(packet.ts_sec) * S + u64::from(packet.ts_frac) * fraction;
                    (time, key(header.datalink, &packet.data))
                }
                Reader::PcapNg(reader) => {
                    let Some(block) = reader.next_block() else { return Ok(None) };
                    let block = block.map_err(|error| capture(&self.name, &error))?;
                    let Block::EnhancedPacket(packet) = block else { continue };
                    let packet = packet.into_owned();
                    let Some(interface) = reader.packet_interface(&packet) else { continue };
                    let resolution = interface.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
                        _ => None,
                    });
                    // The reader returns the units of the interface as nanoseconds.
                    let time = nanos(packet.timestamp.as_nanos(), resolution.unwrap_or(6));
                    (time, key(interface.linktype, &packet.data))
                }
            };
            if let Err(error) = self.times.check(time) {
                return Err(RateError::BackInTime { name: self.name.clone(), error });
            }
            if let Some(key) = key {
                return Ok(Some((time, key)));
            }
        }
    }
}

/// A timestamp of pcapng: its resolution is a negative power of ten, or of two with the highest bit.
fn nanos(units: u128, resolution: u8) -> u64 {
    let per_second = match resolution {
        power @ 0..=38 => 10_u128.pow(power.into()),
        power @ 128.. => 1_u128 << (power & 127).min(126),
        _ => u128::MAX,
    };
    let (seconds, rest) = (units / per_second, units % per_second);
    let below = rest.checked_mul(S.into()).map_or(0, |rest| rest / per_second);
    u64::try_from(seconds.saturating_mul(S.into()).saturating_add(below)).unwrap_or(u64::MAX)
}

fn capture(name: &str, error: &PcapError) -> RateError {
    RateError::Capture { name: name.into(), problem: error.to_string() }
}

/// Hash of the parts of an IP packet that the link does not change; `None` for other packets.
fn key(link: DataLink, data: &[u8]) -> Option<u64> {
    let packet = match link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok()?,
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(data).ok()?,
        DataLink::LINUX_SLL => LaxSlicedPacket::from_ip(data.get(16..)?).ok()?,
        DataLink::LINUX_SLL2 => LaxSlicedPacket::from_ip(data.get(20..)?).ok()?,
        _ => return None,
    };
    let mut hasher = DefaultHasher::new();
    let payload = match packet.net? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (header.source(), header.destination(), header.identification()).hash(&mut hasher);
            header.fragments_offset().value().hash(&mut hasher);
            ip.payload().clone()
        }
        LaxNetSlice::Ipv6(ip) => {
            (ip.header().source(), ip.header().destination()).hash(&mut hasher);
            ip.payload().clone()
        }
        LaxNetSlice::Arp(_) => return None,
    };
    payload.ip_number.0.hash(&mut hasher);
    let checksum = match payload.ip_number {
        etherparse::IpNumber::TCP => 16..18,
        etherparse::IpNumber::UDP => 6..8,
        _ => 0..0,
    };
    let compared = payload.payload.iter().take(COMPARED).enumerate();
    for (_, byte) in compared.filter(|(i, _)| !checksum.contains(i)) {
        byte.hash(&mut hasher);
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests;
