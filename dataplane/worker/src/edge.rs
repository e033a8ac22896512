// SPDX-License-Identifier: Apache-2.0
//! The observer of a worker's engine: it completes shims for a switch,
//! and it captures. The core knows of neither.
//!
//! A tag consists of the number of a captured frame and the shim, in this order, each if
//! present.

use ::shim::{Bytes, SHIM, Tick};
use emu::client::ClientKey;
use emu::observe::{Event, Observer, Scheduled, Scope, Subject};
use emu::tag::Tag;
use emu::units::{Direction, Instant};

use crate::capture::{Capture, Point};
use crate::shim;

/// The observer of a worker's engine.
#[derive(Debug)]
pub struct Edge {
    /// The unit of the switch's clock, where there is a switch.
    tick: Option<Tick>,
    capture: Option<Capture>,
}

impl Edge {
    /// None if there is nothing to do.
    #[must_use]
    pub fn observer(tick: Option<Tick>, capture: Option<Capture>) -> Option<Box<dyn Observer>> {
        let idle = tick.is_none() && capture.is_none();
        (!idle).then(|| Box::new(Self { tick, capture }) as _)
    }

    /// The capture, and the part of a tag that belongs to it.
    fn capture<'t>(&mut self, tag: &'t [u8]) -> Option<(&mut Capture, &'t [u8])> {
        // A rejected frame has no shim.
        let shimmed = self.tick.is_some() && tag.len() >= SHIM as usize;
        let own = if shimmed { &tag[..tag.len() - SHIM as usize] } else { tag };
        self.capture.as_mut().map(|capture| (capture, own))
    }
}

impl Observer for Edge {
    fn scope(&self, client: ClientKey, direction: Direction) -> Scope {
        if self.capture.as_ref().is_some_and(|c| c.sees(client, direction)) {
            Scope::Everything
        } else if self.tick.is_some() {
            Scope::Schedule
        } else {
            Scope::Nothing
        }
    }

    fn arrived(&mut self, at: Instant, subject: &Subject, tag: &mut Tag, frame: &[u8]) {
        if let Some(capture) = &mut self.capture {
            tag.prepend(capture.arrived(at, subject, frame));
        }
    }

    fn marks(&self, frame: &[u8]) -> bool {
        self.tick.is_some() && ::shim::sees_packet(frame)
    }

    fn mark(&mut self, tag: &mut [u8]) {
        if let Some(shim) = tag.last_chunk_mut::<{ size_of::<Bytes>() }>() {
            ::shim::mark(shim);
        }
    }

    fn scheduled(&mut self, scheduled: &Scheduled, subject: &Subject, tag: &mut [u8]) {
        if let Some(tick) = self.tick {
            shim::write(tick, scheduled, subject, tag);
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
