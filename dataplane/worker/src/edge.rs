// SPDX-License-Identifier: Apache-2.0
//! The observer of a worker's engine: it completes shims for a switch,
//! and it captures. The core knows of neither.
//!
//! A tag consists of the number of a captured frame, if present, and the tail.

use ::shim::{Bytes, Numbers, SHIM};
use emu::client::ClientKey;
use emu::links::ACCESS_TAG;
use emu::observe::{Event, Observer, Scheduled, Scope, Subject};
use emu::tag::{PAIR_TAG, Tag};
use emu::units::{Direction, Instant};

use crate::capture::{Capture, Point};
use crate::shim;

/// What the ports, or links, put into the tag of each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    #[default]
    None,
    /// The number of the port pair ([`crate::paired`]).
    Pair,
    /// The shim of a switch that numbers the clients of this worker so ([`crate::shim`]).
    Shim(Numbers),
    /// The access link of a frame in a shared link, and the number of the port pair, if there is one.
    Shared { pair: bool },
}

impl Tail {
    /// Its length in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Pair => PAIR_TAG,
            Self::Shim(_) => SHIM,
            Self::Shared { pair } => ACCESS_TAG + if pair { PAIR_TAG } else { 0 },
        }
    }

    /// In a shared link. There is none behind a switch.
    pub(crate) fn shared(self) -> Self {
        Self::Shared { pair: self == Self::Pair }
    }

    /// That of another worker.
    #[must_use]
    pub fn of(self, worker: u16) -> Self {
        match self {
            Self::Shim(numbers) => Self::Shim(numbers.of(worker)),
            Self::None | Self::Pair | Self::Shared { .. } => self,
        }
    }

    fn numbers(self) -> Option<Numbers> {
        match self {
            Self::Shim(numbers) => Some(numbers),
            Self::None | Self::Pair | Self::Shared { .. } => None,
        }
    }
}

/// The observer of a worker's engine.
#[derive(Debug)]
pub struct Edge {
    tail: Tail,
    capture: Option<Capture>,
}

impl Edge {
    /// None if there is nothing to do.
    #[must_use]
    pub fn observer(tail: Tail, capture: Option<Capture>) -> Option<Box<dyn Observer>> {
        let idle = tail.numbers().is_none() && capture.is_none();
        (!idle).then(|| Box::new(Self { tail, capture }) as _)
    }

    /// The capture, and the part of a tag that belongs to it.
    fn capture<'t>(&mut self, tag: &'t [u8]) -> Option<(&mut Capture, &'t [u8])> {
        // A rejected frame has no shim.
        let own = tag.len().checked_sub(self.tail.bytes() as usize).map_or(tag, |own| &tag[..own]);
        self.capture.as_mut().map(|capture| (capture, own))
    }
}

impl Observer for Edge {
    fn scope(&self, client: ClientKey, direction: Direction) -> Scope {
        let captures = self.capture.as_ref().is_some_and(|c| c.sees(client, direction));
        match (captures, self.tail.numbers().is_some()) {
            (true, true) => Scope::Everything,
            (true, false) => Scope::Frames,
            (false, true) => Scope::Schedule,
            (false, false) => Scope::Nothing,
        }
    }

    fn arrived(&mut self, at: Instant, subject: &Subject, tag: &mut Tag, frame: &[u8]) {
        if let Some(capture) = &mut self.capture {
            tag.prepend(capture.arrived(at, subject, frame));
        }
    }

    fn marks(&self, frame: &[u8]) -> bool {
        self.tail.numbers().is_some() && ::shim::sees_packet(frame)
    }

    fn mark(&mut self, tag: &mut [u8]) {
        if let Some(shim) = tag.last_chunk_mut::<{ size_of::<Bytes>() }>() {
            ::shim::mark(shim);
        }
    }

    fn scheduled(&mut self, scheduled: &Scheduled, subject: &Subject, tag: &mut [u8]) {
        if let Some(numbers) = self.tail.numbers() {
            shim::write(numbers, scheduled, subject, tag);
        }
    }

    fn happened(&mut self, event: Event, at: Instant, subject: &Subject, tag: &[u8], frame: &[u8]) {
        if let Some((capture, tag)) = self.capture(tag) {
            let point = match event {
                Event::Marked => Point::Marked,
                Event::Dropped(reason) => Point::Dropped(reason),
            };
            capture.see(point, at, subject, tag, frame);
        }
    }

    fn offered(&mut self, subject: &Subject, tag: &[u8], frame: &[u8]) {
        if let Some((capture, tag)) = self.capture(tag) {
            capture.offered(subject, tag, frame);
        }
    }

    fn sent(&mut self, at: Instant) {
        if let Some(capture) = &mut self.capture {
            capture.sent(at);
        }
    }
}
