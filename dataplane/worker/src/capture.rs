// SPDX-License-Identifier: Apache-2.0
//! A capture: copies of the frames of some clients as they arrive, as they leave, and where
//! something happens to them in between.
//!
//! Each captured frame has a number, which is its tag in the core (docs/adr/0049), so that
//! copies from two points are known to be of one frame. A number is of 64 bits and its tag of
//! 32: fewer than 2³² frames are held, so that one follows from the other.
//!
//! Copies come in the order in which the core reports, each with the time at which it happened.
//! Runs on the worker's thread.

pub mod copies;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use emu::client::ClientKey;
use emu::observe::Subject;
use emu::stats::DropReason;
use emu::units::{ByDirection, Direction, Instant};

/// Where a frame was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    Ingress,
    /// As it was handed to the egress port.
    Egress,
    /// As the AQM marked it.
    Marked,
    Dropped(DropReason),
}

/// A copy of a frame, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub at: Instant,
    pub client: ClientKey,
    pub direction: Direction,
    pub point: Point,
    /// From 1 on in the order of arrival; none of a frame that arrived before the capture began.
    pub number: Option<u64>,
    /// Length of the frame in bytes.
    pub len: u32,
}

pub trait Sink: Debug + Send {
    /// Takes a copy with the first bytes of the frame. It must not block.
    fn take(&mut self, sighting: &Sighting, bytes: &[u8]);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    clients: Vec<ClientKey>,
    directions: ByDirection<bool>,
}

impl Selection {
    /// Frames of the clients, or of all if the list is empty, in the directions that are true.
    #[must_use]
    pub fn new(mut clients: Vec<ClientKey>, directions: ByDirection<bool>) -> Self {
        clients.sort_unstable();
        Self { clients, directions }
    }

    /// Whether it has the frames of a client in a direction.
    #[must_use]
    pub fn has(&self, client: ClientKey, direction: Direction) -> bool {
        self.directions[direction]
            && (self.clients.is_empty() || self.clients.binary_search(&client).is_ok())
    }
}

/// A count of all frames that a worker ever captured, for one capture after the other.
pub type Numbers = Arc<AtomicU64>;

/// A capture on one worker.
#[derive(Debug)]
pub struct Capture {
    selection: Selection,
    since: Instant,
    numbers: Numbers,
    /// Frames that earlier captures have numbered; none until the first copy.
    before: Option<u64>,
    /// The frame that is being offered to the egress, and its first bytes.
    offered: Option<Sighting>,
    bytes: Box<[u8]>,
    sink: Box<dyn Sink>,
}

impl Capture {
    /// Captures all events of frames that arrive from its beginning on, and events from `since`
    /// on of frames that are held at its beginning. It copies up to `snaplen` bytes.
    #[must_use]
    pub fn new(selection: Selection, since: Instant, snaplen: usize, sink: Box<dyn Sink>) -> Self {
        let bytes = vec![0; snaplen].into_boxed_slice();
        let numbers = Numbers::default();
        Self { selection, since, numbers, before: None, offered: None, bytes, sink }
    }

    /// Continues the numbers of the worker's earlier captures.
    #[must_use]
    pub fn counting(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }

    /// Whether it has the frames of a client in a direction.
    #[must_use]
    pub fn sees(&self, client: ClientKey, direction: Direction) -> bool {
        self.selection.has(client, direction)
    }

    /// The number of the frame with a tag, if this capture gave it.
    fn number(&mut self, tag: &[u8]) -> Option<u64> {
        let last = self.numbers.load(Ordering::Relaxed);
        let before = *self.before.get_or_insert(last);
        let tag = u32::from_ne_bytes(*tag.first_chunk()?);
        let number = last - u64::from((last as u32).wrapping_sub(tag));
        number.checked_sub(before).filter(|n| *n > 0)
    }

    fn sighting(&mut self, point: Point, at: Instant, subject: &Subject, tag: &[u8]) -> Sighting {
        let Subject { client, direction, len, .. } = *subject;
        Sighting { at, client, direction, point, number: self.number(tag), len }
    }

    /// A frame arrived; returns its tag.
    pub(crate) fn arrived(&mut self, at: Instant, subject: &Subject, frame: &[u8]) -> [u8; 4] {
        let last = self.numbers.load(Ordering::Relaxed);
        self.before.get_or_insert(last);
        // This thread alone writes it.
        self.numbers.store(last + 1, Ordering::Relaxed);
        let tag = ((last + 1) as u32).to_ne_bytes();
        self.see(Point::Ingress, at, subject, &tag, frame);
        tag
    }

    /// Something happened to a frame.
    pub(crate) fn see(
        &mut self,
        point: Point,
        at: Instant,
        subject: &Subject,
        tag: &[u8],
        frame: &[u8],
    ) {
        let sighting = self.sighting(point, at, subject, tag);
        // Events of older frames that happened earlier are only found out now.
        if sighting.number.is_some() || sighting.at >= self.since {
            self.sink.take(&sighting, &frame[..frame.len().min(self.bytes.len())]);
        }
    }

    /// A frame is being offered to the egress.
    pub(crate) fn offered(&mut self, subject: &Subject, tag: &[u8], frame: &[u8]) {
        let n = frame.len().min(self.bytes.len());
        self.bytes[..n].copy_from_slice(&frame[..n]);
        self.offered = Some(self.sighting(Point::Egress, Instant::ZERO, subject, tag));
    }

    /// The frame that was offered last has been taken, at `at`.
    pub(crate) fn sent(&mut self, at: Instant) {
        if let Some(sighting) = self.offered.take() {
            let n = self.bytes.len().min(sighting.len as usize);
            self.sink.take(&Sighting { at, ..sighting }, &self.bytes[..n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl Sink for Nowhere {
        fn take(&mut self, _: &Sighting, _: &[u8]) {}
    }

    #[test]
    fn number_follows_from_a_tag_that_has_wrapped() {
        let numbers = Arc::new(AtomicU64::new((1 << 32) - 2));
        let selection = Selection::new(Vec::new(), ByDirection([true; 2]));
        let capture = Capture::new(selection, Instant::ZERO, 0, Box::new(Nowhere));
        let mut capture = capture.counting(numbers);
        let client = ClientKey::Default;
        let subject = Subject { client, index: 1, direction: Direction::Forward, len: 0 };
        let tags: Vec<_> = (0..4).map(|_| capture.arrived(Instant(1), &subject, &[])).collect();
        for (tag, number) in tags.iter().zip(1..) {
            assert_eq!(capture.number(tag), Some(number));
        }
        assert_eq!(capture.number(&u32::MAX.wrapping_sub(1).to_ne_bytes()), None, "came before");
        assert_eq!(capture.number(&[]), None);
    }
}
