// SPDX-License-Identifier: Apache-2.0
//! A capture (pcap) of TCP over IPv4 or IPv6, taken at the sender: of all connections, the
//! direction that carried most bytes.
//!
//! Bytes are those that were acknowledged, so that they count a return delay later than the client
//! had them; time begins at the first acknowledgement, which is as late. Round trips are from the
//! first transmission of the segment that an acknowledgement ends with, as `tcp.analysis.ack_rtt` of
//! Wireshark. A capture at the receiver has none: there an acknowledgement follows its segment at
//! once.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::net::IpAddr;

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, TsResolution};
use trace::packet_times::PacketTimes;

use super::flow::Flow;

/// Connections that are followed at a time.
const MOST_CONNECTIONS: usize = 10_000;
/// Fewest bytes of a bulk flow.
const FEWEST: u64 = 100_000;
/// Bytes of the header of Linux cooked captures (tcpdump -i any).
const COOKED: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;
/// Longest flow: a day, as of iperf3.
const LONGEST_S: u64 = 86_400;

/// Addresses and ports, from the sender of data.
type Key = ((IpAddr, u16), (IpAddr, u16));

#[derive(Default)]
struct Direction {
    first: Option<u32>,
    next: u64,
    acked: u64,
    /// When the first packet was sent, and acknowledged.
    sent_at: Option<u64>,
    /// Whether its SYN was captured.
    opened: bool,
    start: Option<u64>,
    last_at: u64,
    /// End and first transmission of segments in flight.
    flight: VecDeque<(u64, u64)>,
    /// Whole seconds since the start up to an acknowledgement, and the bytes received before it:
    /// short for each of many connections, whatever their times.
    seconds: Vec<(usize, u64)>,
    flow: Flow,
}

impl Direction {
    /// The sequence number nearest to `near`.
    fn relative(&self, number: u32, near: u64) -> Option<u64> {
        let low = number.wrapping_sub(self.first?);
        let step = low.wrapping_sub(near as u32).cast_signed();
        near.checked_add_signed(step.into())
    }

    fn sends(&mut self, at: u64, seq: u32, payload: u64, syn: bool) {
        if syn {
            let first = self.first.get_or_insert(seq);
            if *first == seq {
                (self.next, self.sent_at) = (self.next.max(1), Some(at));
                self.opened = true;
            }
            return;
        }
        if payload == 0 {
            return;
        }
        if self.first.is_none() {
            self.first = Some(seq.wrapping_sub(1));
            (self.next, self.acked, self.sent_at) = (1, 1, Some(at));
        }
        let Some(begin) = self.relative(seq, self.next) else { return };
        self.flow.transmissions += 1;
        if begin + payload > self.next {
            self.flow.segments += 1;
            self.next = begin + payload;
            self.flight.push_back((self.next, at));
        }
    }

    fn acknowledges(&mut self, at: u64, number: u32) -> Result<(), String> {
        let Some(ack) = self.relative(number, self.acked) else { return Ok(()) };
        if ack <= self.acked || ack > self.next + 1 {
            return Ok(());
        }
        let start = *self.start.get_or_insert(at);
        let elapsed = at.saturating_sub(start);
        let second = elapsed / SECOND_NS;
        if second > LONGEST_S {
            return Err(format!(
                "it has a connection of {second} s: at most {LONGEST_S} s, cut it"
            ));
        }
        if second > self.seconds.last().map_or(0, |(second, _)| *second as u64) {
            self.seconds.push((second as usize, self.acked.saturating_sub(1)));
        }
        (self.acked, self.last_at) = (ack, at);
        let mut last = None;
        while let Some(&(end, sent)) = self.flight.front()
            && end <= ack
        {
            last = (end == ack).then_some(sent);
            self.flight.pop_front();
        }
        if let Some(sent) = last {
            let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX);
            self.flow.rtts.push((us(elapsed), us(at.saturating_sub(sent))));
        }
        Ok(())
    }

    /// Time from its SYN to the acknowledgement of that, in ns.
    fn handshake(&self) -> Option<u64> {
        self.opened.then_some(self.start?.checked_sub(self.sent_at?)?)
    }

    fn bytes(&self) -> u64 {
        self.acked.min(self.next).saturating_sub(1)
    }
}

/// The flow of a capture, and a remark on its round trips.
///
/// # Errors
/// What is wrong with the capture.
pub(super) fn read(bytes: impl Read) -> Result<(Flow, Option<String>), String> {
    let mut reader = PcapReader::new(bytes).map_err(|error| error.to_string())?;
    let header = reader.header();
    let fraction = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    let mut directions = HashMap::<Key, Direction>::new();
    let mut times = PacketTimes::default();
    // Raw, since captures with a snapshot length say longer packets than they hold.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.map_err(|error| error.to_string())?;
        let at = u64::from(packet.ts_sec) * SECOND_NS + u64::from(packet.ts_frac) * fraction;
        times.check(at).map_err(|error| error.to_string())?;
        let sliced = match header.datalink {
            DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(&packet.data).ok(),
            DataLink::LINUX_SLL => {
                packet.data.get(COOKED..).and_then(|ip| LaxSlicedPacket::from_ip(ip).ok())
            }
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => {
                LaxSlicedPacket::from_ip(&packet.data).ok()
            }
            other => return Err(format!("its link layer is {other:?}: capture Ethernet")),
        };
        if let Some(sliced) = sliced {
            take(&mut directions, at, &sliced)?;
        }
    }
    let largest = directions.iter().max_by_key(|(_, d)| d.bytes()).map(|(key, _)| *key);
    let largest = largest.and_then(|key| Some((key, directions.remove(&key)?)));
    let Some(((from, to), mut sender)) = largest.filter(|(_, d)| d.bytes() >= FEWEST) else {
        return Err(format!("it has no TCP connection of at least {FEWEST} bytes"));
    };
    for (second, bytes) in &sender.seconds {
        sender.flow.received.resize(*second, *bytes);
    }
    sender.flow.received.push(sender.bytes());
    sender.flow.complete = true;
    // Of both packets of the handshake, the one from this side was answered a round trip later.
    let handshakes =
        (sender.handshake(), directions.get(&(to, from)).and_then(Direction::handshake));
    let remark = match handshakes {
        (Some(own), Some(other)) if own < other => {
            sender.flow.rtts.clear();
            Some(
                "it was captured at the receiver, which cannot see round trips: only its throughput is used",
            )
        }
        (Some(_), Some(_)) => None,
        _ => Some("it has no handshake: it is taken to be captured at the sender"),
    };
    Ok((sender.flow, remark.map(str::to_owned)))
}

fn take(
    directions: &mut HashMap<Key, Direction>,
    at: u64,
    packet: &LaxSlicedPacket<'_>,
) -> Result<(), String> {
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { return Ok(()) };
    let (source, destination, length): (IpAddr, IpAddr, u64) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let h = ip.header();
            let length = u64::from(h.total_len()).saturating_sub(h.slice().len() as u64);
            (h.source_addr().into(), h.destination_addr().into(), length)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let h = ip.header();
            (h.source_addr().into(), h.destination_addr().into(), h.payload_length().into())
        }
        _ => return Ok(()),
    };
    let payload = length.saturating_sub(tcp.header_slice().len() as u64);
    let from = (source, tcp.source_port());
    let to = (destination, tcp.destination_port());
    if directions.len() >= MOST_CONNECTIONS && !directions.contains_key(&(from, to)) {
        return Err(format!("it has more than {MOST_CONNECTIONS} connections: filter it"));
    }
    let direction = directions.entry((from, to)).or_default();
    direction.sends(at, tcp.sequence_number(), payload, tcp.syn());
    if tcp.ack()
        && let Some(other) = directions.get_mut(&(to, from))
    {
        other.acknowledges(at, tcp.acknowledgment_number())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    /// A packet at `at` in ms: from the server if `down`.
    struct Packet {
        at: u64,
        down: bool,
        seq: u32,
        ack: u32,
        payload: usize,
        syn: bool,
    }

    fn capture(packets: &[Packet]) -> Vec<u8> {
        let header =
            PcapHeader { ts_resolution: TsResolution::NanoSecond, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for p in packets {
            let (server, client) = ([10, 0, 0, 2], [10, 0, 0, 1]);
            let (from, to, ports) = if p.down {
                (server, client, (5201, 40_000))
            } else {
                (client, server, (40_000, 5201))
            };
            let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from, to, 64);
            let mut builder = builder.tcp(ports.0, ports.1, p.seq, 60_000);
            if p.syn {
                builder = builder.syn();
            }
            if p.down || !p.syn {
                builder = builder.ack(p.ack);
            }
            let mut bytes = Vec::new();
            builder.write(&mut bytes, &vec![0; p.payload]).unwrap();
            let len = bytes.len() as u32;
            // As tcpdump -s 80.
            bytes.truncate(80);
            let at = Duration::from_nanos(1_000_000_000_000 + p.at * MS);
            writer.write_packet(&PcapPacket::new_owned(at, len, bytes)).unwrap();
        }
        writer.into_writer()
    }

    /// 200 segments of 1,000 bytes, 10 ms apart, over a round trip of `rtt` ms, as seen where the
    /// way to the client takes `to_client` of it. Segment 50 is sent twice.
    fn flow(rtt: u64, to_client: u64) -> Vec<Packet> {
        let first = u32::MAX - 50_000;
        let back = rtt - to_client;
        let (seq, payload) = (7, 0);
        let syn = |at, down, seq, ack| Packet { at, down, seq, ack, payload: 0, syn: true };
        let mut packets = vec![
            syn(rtt, false, seq, 0),
            syn(rtt + back, true, first, seq + 1),
            Packet {
                at: 2 * rtt,
                down: false,
                seq: 8,
                ack: first.wrapping_add(1),
                payload,
                syn: false,
            },
        ];
        for i in 0..200_u32 {
            let seq = first.wrapping_add(1 + i * 1000);
            let at = 2 * rtt + back + u64::from(i) * 10;
            let data = |at| Packet { at, down: true, seq, ack: 8, payload: 1000, syn: false };
            packets.push(data(at));
            packets.extend((i == 50).then(|| data(at + 1)));
            let ack = seq.wrapping_add(1000);
            packets.push(Packet {
                at: at + to_client,
                down: false,
                seq: 8,
                ack,
                payload: 0,
                syn: false,
            });
        }
        packets.sort_by_key(|p| p.at);
        packets
    }

    #[test]
    fn capture_at_the_sender_has_bytes_and_round_trips() {
        // All of the way is behind the capture.
        let (flow, remark) = read(&capture(&flow(100, 100))[..]).unwrap();
        assert_eq!(remark, None);
        assert_eq!(flow.received.last(), Some(&200_000));
        // Acknowledgements begin at 200 ms, and that of the data 100 ms later; 90 of them in a second.
        assert_eq!(flow.received[0], 90_000);
        assert_eq!(flow.rtts.len(), 200);
        assert!(flow.rtts.iter().all(|(_, rtt)| *rtt == 100_000), "{:?}", flow.rtts);
        assert_eq!((flow.segments, flow.transmissions), (200, 201));
    }

    #[test]
    fn capture_at_the_receiver_has_no_round_trips() {
        let (flow, remark) = read(&capture(&flow(100, 0))[..]).unwrap();
        assert!(remark.unwrap().contains("captured at the receiver"));
        assert!(flow.rtts.is_empty());
        assert_eq!(flow.received.last(), Some(&200_000));
    }

    #[test]
    fn capture_without_handshake_is_taken_to_be_at_the_sender() {
        let packets: Vec<Packet> = flow(100, 100).into_iter().filter(|p| p.at > 400).collect();
        let (flow, remark) = read(&capture(&packets)[..]).unwrap();
        assert!(remark.unwrap().contains("no handshake"));
        assert!(flow.rtts.len() > 150, "{}", flow.rtts.len());
    }

    #[test]
    fn unusable_capture_is_refused() {
        let whole = capture(&flow(100, 100));
        assert!(read(&whole[..10]).is_err());
        assert!(read(&b"\xd4\xc3\xb2\xa1garbage that is no header of a capture"[..]).is_err());
        let few = capture(&flow(100, 100)[..20]);
        assert!(read(&few[..]).unwrap_err().contains("no TCP connection of at least"));
        // Cut within a packet.
        assert!(read(&whole[..whole.len() - 7]).is_err());
    }

    #[test]
    fn times_that_go_back_or_span_days_are_refused() {
        let mut back = flow(100, 100);
        back[300].at = 5;
        let said = read(&capture(&back)[..]).unwrap_err();
        assert!(said.contains("packet 301 has the time 1000.005000000 s"), "{said}");
        let mut long = flow(100, 100);
        long[300..].iter_mut().for_each(|packet| packet.at += 4_000_000_000_000);
        let said = read(&capture(&long)[..]).unwrap_err();
        assert!(said.contains("a connection of 40000000"), "{said}");
        assert!(said.contains("at most 86400 s"), "{said}");
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(0_u8.., 0..600)) {
            let mut whole = capture(&[]);
            whole.extend(bytes);
            let _ = read(&whole[..]);
        }
    }
}
