// SPDX-License-Identifier: Apache-2.0
//! TCP connections from a capture at the sender: acknowledged bytes, round-trip times and
//! retransmissions over time.
//!
//! A round-trip time is the time from the first transmission of a segment to the acknowledgement
//! that ends at its last byte, as Wireshark's `tcp.analysis.ack_rtt` computes it. A segment that
//! was repaired or waited for a repair has the whole wait in its time.
//!
//! Time starts when the client's acknowledgement of the server's first packet (SYN-ACK) arrives. The
//! acknowledgement of a byte is as late as this one, so that the difference is the time that the
//! client saw, within the variation of the return delay.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, anyhow};
use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, TsResolution};

const ETHERNET_BYTES: usize = 14;

/// What the sender saw of one connection. Times are in seconds since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Arrivals of acknowledgements, and the bytes acknowledged so far. Both never decrease.
    pub acked: Vec<(f64, u64)>,
    /// Arrivals of acknowledgements, and round-trip times in seconds.
    pub rtts: Vec<(f64, f64)>,
    /// Transmissions of segments, and whether each was a retransmission.
    pub sent: Vec<(f64, bool)>,
    /// Acknowledgements without data, and those of them that are duplicates as Wireshark defines
    /// them (`tcp.analysis.duplicate_ack`): the same number and window as the one before.
    pub acks: u64,
    pub duplicates: u64,
}

/// A TCP segment of a capture. Time is in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Segment {
    at: u64,
    ports: (u16, u16),
    seq: u32,
    ack: Option<u32>,
    syn: bool,
    window: u16,
    payload: u32,
}

/// A connection while its packets are read.
#[derive(Debug, Default)]
struct Connection {
    /// Sequence number of the SYN-ACK, and of the next new byte relative to it.
    first: Option<u32>,
    next: u64,
    acked: u64,
    start: Option<u64>,
    /// Window of the last acknowledgement.
    window: u16,
    /// End and first transmission of each segment in flight.
    flight: VecDeque<(u64, u64)>,
    trace: Trace,
}

impl Connection {
    /// Relative sequence number, next to one of this connection.
    fn relative(&self, number: u32, near: u64) -> Option<u64> {
        let low = number.wrapping_sub(self.first?);
        let step = low.wrapping_sub(near as u32).cast_signed();
        near.checked_add_signed(step.into())
    }

    fn seconds(&self, at: u64) -> f64 {
        at.saturating_sub(self.start.unwrap_or(at)) as f64 / 1e9
    }

    /// A segment from the server.
    fn sends(&mut self, segment: &Segment) {
        if segment.syn {
            self.first = Some(segment.seq);
            self.next = 1;
            return;
        }
        let Some(seq) = self.relative(segment.seq, self.next) else { return };
        let end = seq + u64::from(segment.payload);
        if segment.payload == 0 {
            return;
        }
        let at = self.seconds(segment.at);
        self.trace.sent.push((at, seq < self.next));
        if end > self.next {
            self.flight.push_back((end, segment.at));
            self.next = end;
        }
    }

    /// A segment from the client.
    fn acknowledges(&mut self, segment: &Segment, number: u32) {
        let at = segment.at;
        let Some(ack) = self.relative(number, self.acked) else { return };
        let before = std::mem::replace(&mut self.window, segment.window);
        if segment.payload == 0 && !segment.syn {
            self.trace.acks += 1;
            let again = ack == self.acked && segment.window == before && !self.flight.is_empty();
            self.trace.duplicates += u64::from(again);
        }
        if ack <= self.acked {
            return;
        }
        self.acked = ack;
        // The acknowledgement of the SYN-ACK has the relative number 1.
        let start = *self.start.get_or_insert(at);
        let mut last = None;
        while let Some(&(end, sent)) = self.flight.front()
            && end <= ack
        {
            last = (end == ack).then_some(sent);
            self.flight.pop_front();
        }
        let now = at.saturating_sub(start) as f64 / 1e9;
        if let Some(sent) = last {
            self.trace.rtts.push((now, at.saturating_sub(sent) as f64 / 1e9));
        }
        // A FIN occupies one number.
        let bytes = ack.min(self.next).saturating_sub(1);
        self.trace.acked.push((now, bytes));
    }
}

/// Reads the connections to some ports of the server from the server's capture. For each port, the
/// connection that carried most bytes: iperf3 has a control connection to the same port.
///
/// # Errors
/// If the file is no capture of Ethernet.
pub fn read(path: &Path, ports: &[u16]) -> anyhow::Result<BTreeMap<u16, Trace>> {
    let wrong = || format!("the capture {}", path.display());
    let file = File::open(path).with_context(wrong)?;
    let mut reader =
        PcapReader::new(BufReader::with_capacity(1 << 20, file)).with_context(wrong)?;
    let header = reader.header();
    if header.datalink != DataLink::ETHERNET {
        return Err(anyhow!("{:?} is not Ethernet", header.datalink)).with_context(wrong);
    }
    let fraction = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    let mut connections = BTreeMap::<(u16, u16), Connection>::new();
    // Raw: tcpdump writes one snapshot length into the file's header and longer packet lengths
    // beside it, which the checked form rejects.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.with_context(wrong)?;
        let at = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * fraction;
        let Some(segment) = segment(at, &packet.data) else { continue };
        let (source, destination) = segment.ports;
        if ports.contains(&source) {
            connections.entry((source, destination)).or_default().sends(&segment);
        } else if ports.contains(&destination)
            && let Some(ack) = segment.ack
        {
            connections.entry((destination, source)).or_default().acknowledges(&segment, ack);
        }
    }
    Ok(largest(connections))
}

fn largest(connections: BTreeMap<(u16, u16), Connection>) -> BTreeMap<u16, Trace> {
    let mut traces = BTreeMap::<u16, Trace>::new();
    let bytes = |t: &Trace| t.acked.last().map_or(0, |a| a.1);
    for ((port, _), connection) in connections {
        let trace = connection.trace;
        let best = traces.entry(port).or_default();
        if bytes(&trace) > bytes(best) {
            *best = trace;
        }
    }
    traces
}

fn segment(at: u64, frame: &[u8]) -> Option<Segment> {
    let ip = Ipv4HeaderSlice::from_slice(frame.get(ETHERNET_BYTES..)?).ok()?;
    let tcp = frame.get(ETHERNET_BYTES + ip.slice().len()..)?;
    let tcp = TcpHeaderSlice::from_slice(tcp).ok()?;
    let payload = usize::from(ip.total_len()).checked_sub(ip.slice().len() + tcp.slice().len())?;
    Some(Segment {
        at,
        ports: (tcp.source_port(), tcp.destination_port()),
        seq: tcp.sequence_number(),
        ack: tcp.ack().then(|| tcp.acknowledgment_number()),
        syn: tcp.syn(),
        window: tcp.window_size(),
        payload: u32::try_from(payload).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FIRST: u32 = u32::MAX - 1500;

    fn segment(at_ms: u64, offset: u32, payload: u32) -> Segment {
        let seq = FIRST.wrapping_add(1 + offset);
        let (at, ports) = (at_ms * MS, (1, 2));
        Segment { at, ports, seq, ack: Some(0), syn: false, window: 9, payload }
    }

    fn sends(connection: &mut Connection, at_ms: u64, offset: u32, payload: u32) {
        connection.sends(&segment(at_ms, offset, payload));
    }

    fn acks(connection: &mut Connection, at_ms: u64, offset: u32) {
        connection.acknowledges(&segment(at_ms, 0, 0), FIRST.wrapping_add(1 + offset));
    }

    /// An open connection, whose time starts at 600 ms.
    fn open() -> Connection {
        let mut connection = Connection::default();
        connection.sends(&Segment { seq: FIRST, syn: true, ..segment(0, 0, 0) });
        acks(&mut connection, 600, 0);
        connection
    }

    #[test]
    fn acknowledgement_of_a_segment_gives_its_round_trip() {
        let mut connection = open();
        sends(&mut connection, 600, 0, 1000);
        sends(&mut connection, 601, 1000, 1000);
        // Beyond the largest sequence number.
        acks(&mut connection, 1201, 2000);
        let trace = connection.trace;
        assert_eq!(trace.acked, [(0.0, 0), (0.601, 2000)]);
        assert_eq!(trace.rtts, [(0.601, 0.6)]);
        assert_eq!(trace.sent.iter().filter(|s| s.1).count(), 0);
    }

    #[test]
    fn repaired_segment_counts_from_its_first_transmission() {
        let mut connection = open();
        sends(&mut connection, 600, 0, 1000);
        sends(&mut connection, 1300, 0, 1000);
        acks(&mut connection, 1900, 1000);
        assert_eq!(connection.trace.rtts, [(1.3, 1.3)]);
        assert_eq!(connection.trace.sent.iter().map(|s| s.1).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn acknowledgement_within_a_segment_gives_no_round_trip() {
        let mut connection = open();
        sends(&mut connection, 600, 0, 1000);
        acks(&mut connection, 1200, 500);
        acks(&mut connection, 1201, 500);
        assert_eq!(connection.trace.rtts, []);
        assert_eq!(connection.trace.acked, [(0.0, 0), (0.6, 500)]);
    }

    #[test]
    fn repeated_acknowledgement_is_a_duplicate_while_data_is_in_flight() {
        let mut connection = open();
        sends(&mut connection, 600, 0, 1000);
        sends(&mut connection, 601, 1000, 1000);
        acks(&mut connection, 1200, 1000);
        acks(&mut connection, 1201, 1000);
        acks(&mut connection, 1202, 1000);
        // Another window: an update, not a duplicate.
        let update = Segment { window: 10, ..segment(1203, 0, 0) };
        connection.acknowledges(&update, FIRST.wrapping_add(1001));
        acks(&mut connection, 1204, 2000);
        acks(&mut connection, 1205, 2000);
        assert_eq!((connection.trace.acks, connection.trace.duplicates), (7, 2));
    }

    #[test]
    fn largest_connection_of_a_port_is_taken() {
        let [mut small, mut large] = [open(), open()];
        sends(&mut small, 600, 0, 10);
        acks(&mut small, 1200, 10);
        sends(&mut large, 600, 0, 1000);
        acks(&mut large, 1200, 1000);
        let traces = largest([((7, 1), large), ((7, 2), small)].into());
        assert_eq!(traces[&7].acked.last(), Some(&(0.6, 1000)));
    }
}
