// SPDX-License-Identifier: Apache-2.0
//! Reports about the frames in an engine.
//!
//! An [`Observer`] decides nothing about a frame's way, with one exception: a plan may leave
//! marks to it ([`crate::plan::OffloadPlan`]). Every frame has the fate that it would have
//! without an observer, except that a longer tag takes more room in the packet store.
//!
//! A pipe finds out late what the channel lost, so reports come in the order in which fates are
//! found out, each with the time at which it happened. All of it runs on the worker's thread.

use std::fmt::Debug;

use crate::client::ClientKey;
use crate::stats::DropReason;
use crate::tag::Tag;
use crate::units::{Direction, Instant};

/// Which frame a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    pub client: ClientKey,
    /// The client's index in the engine.
    pub index: u32,
    pub direction: Direction,
    /// In bytes.
    pub len: u32,
}

/// How a frame left its queue for the delay line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled {
    pub arrived: Instant,
    /// When it will leave the link.
    pub due: Instant,
    /// Number of the figures by which the frame is lost behind the egress; zero: it is not.
    pub loss: u16,
}

/// An event of a frame that is held or arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Marked,
    Dropped(DropReason),
}

/// The reports that an observer gets of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Nothing,
    /// [`Observer::scheduled`] only.
    Schedule,
    /// All but [`Observer::scheduled`].
    Frames,
    Everything,
}

/// Receives the fates of frames. It must not block or allocate.
pub trait Observer: Debug + Send {
    /// The reports that it wants of a client's frames of one direction. Each pipe asks once.
    fn scope(&self, client: ClientKey, direction: Direction) -> Scope;

    /// A frame arrived at `at`. The final `tag` is stored with the frame.
    fn arrived(&mut self, at: Instant, subject: &Subject, tag: &mut Tag, frame: &[u8]) {
        let _ = (at, subject, tag, frame);
    }

    /// Whether it marks such a frame instead of the core, if the plan offloads marks.
    fn marks(&self, frame: &[u8]) -> bool {
        let _ = frame;
        false
    }

    /// Marks the frame with this tag.
    fn mark(&mut self, tag: &mut [u8]) {
        let _ = tag;
    }

    /// A frame left its queue.
    fn scheduled(&mut self, scheduled: &Scheduled, subject: &Subject, tag: &mut [u8]) {
        let _ = (scheduled, subject, tag);
    }

    /// Something happened to a frame at `at`.
    fn happened(&mut self, event: Event, at: Instant, subject: &Subject, tag: &[u8], frame: &[u8]) {
        let _ = (event, at, subject, tag, frame);
    }

    /// A frame is being offered to the egress, which may refuse it, and else may take its buffer
    /// away.
    fn offered(&mut self, subject: &Subject, tag: &[u8], frame: &[u8]) {
        let _ = (subject, tag, frame);
    }

    /// The egress took the frame that was offered last, at `at`.
    fn sent(&mut self, at: Instant) {
        let _ = at;
    }
}
