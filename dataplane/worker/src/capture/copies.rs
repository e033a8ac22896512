// SPDX-License-Identifier: Apache-2.0
//! The rings between a worker and the reader of its capture.
//!
//! Two bounded rings with one writer and one reader: one for sightings, one for the frames'
//! first bytes. The worker never waits: a copy that finds either ring full is dropped and
//! counted in [`Missed`]. It allocates nothing and makes no system call; the rings' memory is
//! touched before it gets them.
//!
//! Invariant: the bytes of a copy are in their ring before its sighting is in the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emu::client::ClientKey;
use emu::units::{ByDirection, Direction, Instant};
use rtrb::{Consumer, Producer, RingBuffer};

use super::{Point, Sighting, Sink};

/// Kinds of [`Point`]: a copy of a drop is missed whatever its reason.
const KINDS: usize = 4;

fn kind(point: Point) -> usize {
    match point {
        Point::Ingress => 0,
        Point::Egress => 1,
        Point::Marked => 2,
        Point::Dropped(_) => 3,
    }
}

/// Counts of copies that found no room. Written by one worker.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Missed(ByDirection<[AtomicU64; KINDS]>);

impl Missed {
    /// At points of this kind.
    #[must_use]
    pub fn copies(&self, direction: Direction, point: Point) -> u64 {
        self.0[direction][kind(point)].load(Ordering::Relaxed)
    }

    fn add(&self, direction: Direction, point: Point) {
        let count = &self.0[direction][kind(point)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A sighting, and its number of bytes in the other ring.
#[derive(Clone, Copy, Debug)]
struct Copied {
    sighting: Sighting,
    bytes: usize,
}

#[derive(Debug)]
pub struct CopySink {
    seen: Producer<Copied>,
    bytes: Producer<u8>,
    missed: Arc<Missed>,
}

#[derive(Debug)]
pub struct Copies {
    seen: Consumer<Copied>,
    bytes: Consumer<u8>,
    missed: Arc<Missed>,
}

/// Rings for up to `copies` copies of `bytes` bytes in all.
#[must_use]
pub fn rings(copies: usize, bytes: usize) -> (CopySink, Copies) {
    let (mut seen, mut seen_out) = RingBuffer::new(copies);
    let (mut bytes_in, mut bytes_out) = RingBuffer::new(bytes);
    let nothing = Copied {
        sighting: Sighting {
            at: Instant::ZERO,
            client: ClientKey::Bypass,
            direction: Direction::Forward,
            point: Point::Ingress,
            number: None,
            len: 0,
        },
        bytes: 0,
    };
    // All memory is touched here, and the rings are empty again.
    if let Ok(chunk) = seen.write_chunk_uninit(copies) {
        chunk.fill_from_iter(std::iter::repeat(nothing));
    }
    if let Ok(chunk) = seen_out.read_chunk(copies) {
        chunk.commit_all();
    }
    if let Ok(chunk) = bytes_in.write_chunk(bytes) {
        chunk.commit_all();
    }
    if let Ok(chunk) = bytes_out.read_chunk(bytes) {
        chunk.commit_all();
    }
    let missed = Arc::<Missed>::default();
    let sink = CopySink { seen, bytes: bytes_in, missed: missed.clone() };
    (sink, Copies { seen: seen_out, bytes: bytes_out, missed })
}

impl Sink for CopySink {
    fn take(&mut self, sighting: &Sighting, bytes: &[u8]) {
        if self.seen.is_full() || self.bytes.push_entire_slice(bytes).is_err() {
            self.missed.add(sighting.direction, sighting.point);
            return;
        }
        let copied = Copied { sighting: *sighting, bytes: bytes.len() };
        // There is no other writer.
        let _ = self.seen.push(copied);
    }
}

impl Copies {
    /// The next copy; its bytes are put at the end of `bytes`.
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Sighting> {
        let Copied { sighting, bytes: n } = self.seen.pop().ok()?;
        let from = bytes.len();
        bytes.resize(from + n, 0);
        // Their bytes were written first.
        let _ = self.bytes.pop_entire_slice(&mut bytes[from..]);
        Some(sighting)
    }

    /// Whether the worker's end is gone and nothing is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.seen.is_abandoned() && self.seen.is_empty()
    }

    /// Copies that found no room.
    #[must_use]
    pub fn missed(&self) -> &Missed {
        &self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sighting(n: u64, point: Point) -> Sighting {
        Sighting {
            at: Instant(n),
            client: ClientKey::Default,
            direction: Direction::Return,
            point,
            number: Some(n),
            len: 1000,
        }
    }

    #[test]
    fn copies_keep_order_and_missed_ones_are_counted() {
        let (mut sink, mut copies) = rings(4, 100);
        let mut bytes = Vec::new();
        for round in 0..20_u64 {
            // Five into four places, and then 120 bytes into 100.
            for n in 0..5 {
                sink.take(&sighting(n, Point::Egress), &[round as u8; 7]);
            }
            for n in 0..4 {
                bytes.clear();
                assert_eq!(copies.next(&mut bytes), Some(sighting(n, Point::Egress)));
                assert_eq!(bytes, [round as u8; 7]);
            }
            assert_eq!(copies.next(&mut bytes), None);
            for n in 0..3 {
                sink.take(&sighting(n, Point::Ingress), &[n as u8; 40]);
            }
            bytes.clear();
            assert!(copies.next(&mut bytes).is_some() && copies.next(&mut bytes).is_some());
            assert_eq!(bytes, [[0; 40], [1; 40]].concat());
            assert_eq!(copies.next(&mut bytes), None);
        }
        let missed = |point| copies.missed().copies(Direction::Return, point);
        assert_eq!((missed(Point::Egress), missed(Point::Ingress)), (20, 20));
        assert_eq!((missed(Point::Marked), copies.is_over()), (0, false));
        drop(sink);
        assert!(copies.is_over());
    }
}
