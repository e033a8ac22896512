// SPDX-License-Identifier: Apache-2.0
//! The tap: copies of the frames of some clients as they come, as they leave, and where
//! something happens to them in between.
//!
//! Each frame has a number from its arrival on, which its record in the packet store carries
//! (docs/adr/0026), so that what is seen of it at two points is known to be of one frame,
//! wherever in the link it was meanwhile. A tap decides nothing: every frame has the fate that
//! it would have without it, but for the few bytes of the store that a number takes.
//!
//! A pipe finds out late what the channel lost, so copies come in the order in which things
//! are found out, each with the time at which they happened. Runs on the worker's thread.

use std::fmt::Debug;

use crate::client::ClientKey;
use crate::stats::DropReason;
use crate::units::{ByDirection, Direction, Instant};

/// Where a frame was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// As it arrived.
    Ingress,
    /// As it was handed to the egress port.
    Egress,
    /// As the AQM marked it; it goes on.
    Marked,
    /// As it was dropped.
    Dropped(DropReason),
}

/// What was seen of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// When.
    pub at: Instant,
    /// Whose it is.
    pub client: ClientKey,
    /// Which way it goes.
    pub direction: Direction,
    /// Where.
    pub point: Point,
    /// Which frame it is, from 1 on in the order of arrival; none of a frame that arrived
    /// before the tap was there.
    pub number: Option<u64>,
    /// Its length in bytes.
    pub len: u32,
}

/// Takes the copies.
pub trait Sink: Debug + Send {
    /// Takes what was seen and the first bytes of the frame. It must not block.
    fn take(&mut self, sighting: &Sighting, bytes: &[u8]);
}

/// Which frames are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    clients: Vec<ClientKey>,
    directions: ByDirection<bool>,
}

impl Selection {
    /// Those of the clients, or of all if there are none, that go either way that is true.
    #[must_use]
    pub fn new(mut clients: Vec<ClientKey>, directions: ByDirection<bool>) -> Self {
        clients.sort_unstable();
        Self { clients, directions }
    }

    /// Whether it has the frames of a client that go one way.
    #[must_use]
    pub fn has(&self, client: ClientKey, direction: Direction) -> bool {
        self.directions[direction]
            && (self.clients.is_empty() || self.clients.binary_search(&client).is_ok())
    }
}

/// A tap on the frames of one engine.
#[derive(Debug)]
pub struct Tap {
    selection: Selection,
    since: Instant,
    /// Frames that earlier taps have seen.
    before: u64,
    /// The frame that is being offered to the egress, and its first bytes.
    offered: Option<Sighting>,
    bytes: Box<[u8]>,
    sink: Box<dyn Sink>,
}

impl Tap {
    /// A tap that sees all that happens to the frames that arrive from now on, and to those that
    /// are there what happens from `since` on. It copies up to `snaplen` bytes.
    #[must_use]
    pub fn new(selection: Selection, since: Instant, snaplen: usize, sink: Box<dyn Sink>) -> Self {
        let bytes = vec![0; snaplen].into_boxed_slice();
        Self { selection, since, before: 0, offered: None, bytes, sink }
    }

    /// Whether it sees the frames of a client that go one way.
    #[must_use]
    pub fn sees(&self, client: ClientKey, direction: Direction) -> bool {
        self.selection.has(client, direction)
    }

    /// Earlier taps have seen so many frames.
    pub(crate) fn begin(&mut self, before: u64) {
        self.before = before;
    }

    fn numbered(&self, sighting: Sighting) -> Sighting {
        // Zero and less: it came under an earlier tap.
        let number = sighting.number.and_then(|n| n.checked_sub(self.before)).filter(|n| *n > 0);
        Sighting { number, ..sighting }
    }

    /// Something happened to a frame. Its number is the store's.
    pub(crate) fn see(&mut self, sighting: Sighting, frame: &[u8]) {
        let sighting = self.numbered(sighting);
        // Of a frame that came before, what happened before is found out now.
        if sighting.number.is_some() || sighting.at >= self.since {
            self.sink.take(&sighting, &frame[..frame.len().min(self.bytes.len())]);
        }
    }

    /// A frame is being offered to the egress, which may refuse it, and else may take it away.
    pub(crate) fn offer(&mut self, sighting: Sighting, frame: &[u8]) {
        let n = frame.len().min(self.bytes.len());
        self.bytes[..n].copy_from_slice(&frame[..n]);
        self.offered = Some(self.numbered(sighting));
    }

    /// The frame that was offered has been taken, at `at`.
    pub(crate) fn taken(&mut self, at: Instant) {
        if let Some(sighting) = self.offered.take() {
            let n = self.bytes.len().min(sighting.len as usize);
            self.sink.take(&Sighting { at, ..sighting }, &self.bytes[..n]);
        }
    }
}
