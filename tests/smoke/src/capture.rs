// SPDX-License-Identifier: Apache-2.0
//! Captures at both hosts, compared to find reordering.
//!
//! A segment is identified by its IP identification and its TCP sequence number. A sending socket
//! numbers its packets consecutively, so a retransmission has the sequence number of the original
//! and another identification. A segment is reordered if it arrives after a segment of the same
//! connection that was sent later. It is crossed if the later segment belongs to another
//! connection: a port with several receive queues preserves only the order of each flow (Linux:
//! Documentation/networking/scaling.rst). Lost segments reorder nothing.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice};
use nix::sys::signal::Signal;
use pcap_file::pcap::PcapReader;

use crate::error::{Error, Result, Trying};
use crate::namespace::Namespace;
use crate::process::Process;
use crate::wait;

/// Enough for Ethernet, IPv4 and TCP with all options.
const SNAP_BYTES: &str = "100";
const ETHERNET_BYTES: usize = 14;

/// Key of a TCP segment in both captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    pub id: u16,
    pub seq: u32,
    /// Source and destination port.
    pub ports: (u16, u16),
}

#[derive(Debug)]
pub struct Capture {
    process: Process,
    path: PathBuf,
}

/// Comparison of two captures of the same segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Segments seen at the sender.
    pub sent: usize,
    /// Segments seen at the receiver.
    pub received: usize,
    /// Segments that arrived after a segment of the same connection that was sent later.
    pub reordered: usize,
    /// Segments that arrived after segments of other connections only that were sent later.
    pub crossed: usize,
    /// Segments that arrived and are missing in the sender's capture.
    pub unknown: usize,
}

impl Capture {
    /// Starts capturing packets that match a filter.
    pub fn start(
        namespace: &Namespace,
        interface: &str,
        filter: &str,
        path: PathBuf,
    ) -> Result<Self> {
        let file = path.display().to_string();
        let mut process = Process::spawn(namespace.command(&[
            "tcpdump", "-n", "-p", "-i", interface, "-s", SNAP_BYTES, "-B", "32768",
            // The directory is private.
            "-Z", "root", "-w", &file, filter,
        ]))?;
        wait::until("tcpdump listens", Duration::from_secs(10), || {
            if process.ended().is_some() {
                return Err(Error::parse("tcpdump", process.stderr()));
            }
            Ok(process.stderr().contains("listening on").then_some(()))
        })?;
        Ok(Self { process, path })
    }

    /// Ends the capture and reads its TCP segments.
    pub fn finish(self) -> Result<Vec<Segment>> {
        segments(&self.stop()?)
    }

    /// Ends the capture and returns its file, which has all packets.
    pub fn stop(mut self) -> Result<PathBuf> {
        // The kernel passes packets on in blocks, up to a second late, and tcpdump discards an
        // unread block when it is stopped.
        wait::until("tcpdump has read all packets", Duration::from_secs(20), || {
            self.process.signal(Signal::SIGUSR1);
            Ok(has_read_all(&self.process.stderr()).then_some(()))
        })?;
        self.process.signal(Signal::SIGINT);
        self.process.wait(Duration::from_secs(20))?;
        let said = self.process.stderr();
        let lossless = said.lines().any(|l| l.trim() == "0 packets dropped by kernel");
        if !lossless {
            return Err(Error::parse("tcpdump's own account", said));
        }
        Ok(self.path)
    }
}

/// Whether tcpdump has read every packet that passed its filter, by its last report on SIGUSR1:
/// "tcpdump: 5 packets captured, 7 packets received by filter, 0 packets dropped by kernel".
fn has_read_all(said: &str) -> bool {
    let account = said.lines().rfind(|line| line.ends_with("dropped by kernel"));
    let words = account.unwrap_or_default().split_whitespace();
    let counts: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    matches!(counts[..], [captured, received, _] if captured >= received)
}

/// Reads the TCP segments of a capture file.
pub fn segments(path: &Path) -> Result<Vec<Segment>> {
    let file = File::open(path).trying(|| format!("open {}", path.display()))?;
    let wrong = |e: &dyn ToString| Error::parse(path.display().to_string(), e.to_string());
    let mut reader =
        PcapReader::new(BufReader::with_capacity(1 << 20, file)).map_err(|e| wrong(&e))?;
    let mut segments = Vec::new();
    // Raw: tcpdump writes one snapshot length into the file's header and longer packet lengths
    // beside it, which the checked form rejects.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.map_err(|e| wrong(&e))?;
        segments.extend(segment(&packet.data));
    }
    Ok(segments)
}

fn segment(frame: &[u8]) -> Option<Segment> {
    let ip = Ipv4HeaderSlice::from_slice(frame.get(ETHERNET_BYTES..)?).ok()?;
    let tcp = frame.get(ETHERNET_BYTES + ip.slice().len()..)?;
    let tcp = TcpHeaderSlice::from_slice(tcp).ok()?;
    Some(Segment {
        id: ip.identification(),
        seq: tcp.sequence_number(),
        ports: (tcp.source_port(), tcp.destination_port()),
    })
}

/// Compares the order at the receiver with the order at the sender.
#[must_use]
pub fn compare(sent: &[Segment], received: &[Segment]) -> Order {
    let mut places: HashMap<Segment, VecDeque<usize>> = HashMap::with_capacity(sent.len());
    for (place, segment) in sent.iter().enumerate() {
        places.entry(*segment).or_default().push_back(place);
    }
    let mut order = Order { sent: sent.len(), received: received.len(), ..Order::default() };
    let (mut furthest, mut of_connection) = (0, HashMap::new());
    for segment in received {
        let Some(place) = places.get_mut(segment).and_then(VecDeque::pop_front) else {
            order.unknown += 1;
            continue;
        };
        let own = of_connection.entry(segment.ports).or_insert(0);
        if place < *own {
            order.reordered += 1;
        } else if place < furthest {
            order.crossed += 1;
        }
        *own = place.max(*own);
        furthest = place.max(furthest);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::{Order, Segment, compare, has_read_all};

    fn segments(ids: &[u16]) -> Vec<Segment> {
        ids.iter().map(|&id| Segment { id, seq: 7, ports: (5201, 40_000) }).collect()
    }

    #[test]
    fn stop_waits_for_packets_that_tcpdump_has_not_read() {
        let account = |captured, received| {
            format!(
                "tcpdump: listening on wan0\ntcpdump: {captured} packets captured, {received} \
                 packets received by filter, 0 packets dropped by kernel\n"
            )
        };
        assert!(!has_read_all("tcpdump: listening on wan0"));
        assert!(!has_read_all(&account(5, 7)));
        assert!(has_read_all(&account(7, 7)));
        assert!(!has_read_all(&(account(7, 7) + &account(7, 8))));
    }

    #[test]
    fn lost_segment_is_no_reordering_and_overtaken_segment_is() {
        let sent = segments(&[1, 2, 3, 4, 5]);
        let order = compare(&sent, &segments(&[1, 3, 4, 5]));
        assert_eq!(order, Order { sent: 5, received: 4, ..Order::default() });
        assert_eq!(compare(&sent, &segments(&[1, 3, 2, 5, 4])).reordered, 2);
        assert_eq!(compare(&sent, &segments(&[1, 9])).unknown, 1);
    }

    #[test]
    fn segment_overtaken_by_other_connection_is_crossed() {
        let mut sent = segments(&[1, 2, 3]);
        sent[2].ports.1 += 1;
        let received = [sent[2], sent[0], sent[1]];
        let order = compare(&sent, &received);
        assert_eq!((order.reordered, order.crossed), (0, 2));
        let order = compare(&sent, &[sent[2], sent[1], sent[0]]);
        assert_eq!((order.reordered, order.crossed), (1, 1));
    }

    #[test]
    fn repeated_identification_is_resolved_by_position() {
        let sent = segments(&[1, 2, 1, 2]);
        assert_eq!(compare(&sent, &sent).reordered, 0);
    }
}
