// SPDX-License-Identifier: Apache-2.0
//! Puts copies in the order of their times.
//!
//! The dataplane knows the fate of a packet up to [`LATE`] late, and each of its
//! workers sends its own. So a copy waits until the dataplane's clock is that much further:
//! the file is then in order. Above [`HELD`] copies, or [`BYTES`], the first copy does not wait.

use proto::linkemu::v1 as pb;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A dataplane looks at each client twice a second at least.
const LATE: u64 = 1_000_000_000;
/// Copies that wait at most.
const HELD: usize = 1 << 18;
const BYTES: usize = 64 << 20;

/// A copy and its client.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    pub copy: pb::CapturedPacket,
    /// Client, as the dataplane names it.
    pub client: String,
    /// Place of its box; zero without boxes.
    pub place: u32,
    sequence: u64,
}

impl Eq for Packet {}

impl Ord for Packet {
    /// The earliest copy is the greatest; at equal times, the first arrival.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |p: &Self| (p.copy.time_ns, p.sequence);
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Default)]
pub struct Order {
    waiting: BinaryHeap<Packet>,
    bytes: usize,
    taken: u64,
    now: u64,
}

impl Order {
    pub fn take(&mut self, chunk: pb::CaptureChunk) {
        let pb::CaptureChunk { clients, packets, time_ns, box_index: place, .. } = chunk;
        self.now = self.now.max(time_ns);
        for copy in packets {
            let client = clients.get(copy.client as usize).cloned().unwrap_or_default();
            self.taken += 1;
            self.bytes += copy.data.len();
            self.waiting.push(Packet { copy, client, place, sequence: self.taken });
        }
    }

    /// The next copy, if none that is earlier can come, or too many wait.
    pub fn ready(&mut self) -> Option<Packet> {
        let first = self.waiting.peek()?;
        let waits = first.copy.time_ns.saturating_add(LATE) > self.now;
        if waits && self.waiting.len() <= HELD && self.bytes <= BYTES {
            return None;
        }
        self.pop()
    }

    /// The earliest of those that wait.
    pub fn pop(&mut self) -> Option<Packet> {
        let first = self.waiting.pop()?;
        self.bytes -= first.copy.data.len();
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(now: u64, times: &[u64]) -> pb::CaptureChunk {
        let copy = |(n, t): (usize, &u64)| pb::CapturedPacket {
            time_ns: *t,
            number: n as u64,
            ..Default::default()
        };
        let packets = times.iter().enumerate().map(copy).collect();
        pb::CaptureChunk { packets, time_ns: now, ..Default::default() }
    }

    #[test]
    fn copies_wait_until_no_earlier_copy_can_arrive() {
        let mut order = Order::default();
        order.take(chunk(LATE, &[7, 3, 7, 0]));
        let times = |order: &mut Order| {
            let next = std::iter::from_fn(|| order.ready());
            next.map(|p| (p.copy.time_ns, p.copy.number)).collect::<Vec<_>>()
        };
        assert_eq!(times(&mut order), [(0, 3)]);
        order.take(chunk(LATE + 7, &[5, 8]));
        assert_eq!(times(&mut order), [(3, 1), (5, 0), (7, 0), (7, 2)]);
        assert_eq!(
            std::iter::from_fn(|| order.pop()).map(|p| p.copy.time_ns).collect::<Vec<_>>(),
            [8]
        );
        assert_eq!(order.waiting.len() as u64, 0);
    }

    #[test]
    fn waiting_copies_are_bounded() {
        let mut order = Order::default();
        let times: Vec<u64> = (0..HELD as u64 + 3).map(|n| u64::MAX - n).collect();
        order.take(chunk(0, &times));
        assert_eq!(std::iter::from_fn(|| order.ready()).count(), 3);
        assert_eq!(order.waiting.len() as u64, HELD as u64);
    }
}
