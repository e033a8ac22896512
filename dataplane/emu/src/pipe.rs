// SPDX-License-Identifier: Apache-2.0
//! One client's path in one direction: queue, shaper, channel, delay.
//!
//! A pipe is lazy. It is brought up to an instant when something looks at it: a
//! frame that arrives, a release, a change, a snapshot. What happens in it depends
//! on the arrivals' own times and not on when, or how often, it was looked at:
//! the shaper's finish of each frame follows from arrivals and finishes alone, and
//! the channel and the delay are asked at that finish.
//!
//! Calls come with times that never go back.

mod arrival;
mod aside;
mod beamed;
mod change;
mod observe;
mod release;
mod service;

use crate::aqm::Aqm;
use crate::channel::Channel;
use crate::client::ClientKey;
use crate::corrupt::Corrupt;
use crate::delay::Delay;
use crate::duplicate::Duplicate;
use crate::histogram::{Lateness, QueueDelay};
use crate::observe::Observer;
use crate::plan::PipePlan;
use crate::reorder::Reorder;
use crate::rng::StreamKey;
use crate::shaper::Shaper;
use crate::stats::{Count, DropReason, PipeStats};
use crate::store::{Fifo, Store};
use crate::units::{Direction, Instant, Probability};

use beamed::Stage;

/// Bytes that the shaper may serve between two looks at a queue, about.
const LOOK_AFTER: u32 = 16_384;

/// Frames that leave at once where a look finds many.
const AT_ONCE: u32 = 256;

/// Frames that leave a queue with an AQM that drops there, when one arrives.
const AT_ARRIVAL: u32 = 16;

/// What is seldom touched, apart from what every frame touches.
#[derive(Debug)]
struct Cold {
    aqm: Aqm,
    dropped: [Count; DropReason::ALL.len()],
    marked: Count,
    duplicate: Option<Duplicate>,
    duplicated: Count,
    corrupt: Option<Corrupt>,
    corrupted: Count,
    reorder: Option<Reorder>,
    /// The frames that are held back, and when the last of them is due.
    aside: Fifo,
    aside_last: Instant,
    /// Of a client that shares a beam.
    stage: Stage,
    client: ClientKey,
    direction: Direction,
    index: u32,
    is_offloaded: bool,
    /// By which figures frames are to be lost behind the egress; zero: they are not.
    loss: u16,
}

/// What a pipe has that most have not: one look tells that it has none of it.
#[derive(Clone, Copy, Debug)]
struct Extras {
    /// The AQM has to know what leaves the queue.
    watched: bool,
    duplicates: bool,
    corrupts: bool,
    reorders: bool,
    /// The observer marks what the AQM chose, where it can.
    marks_elsewhere: bool,
}

impl Extras {
    fn of(plan: &PipePlan) -> Self {
        Self {
            watched: plan.queue.watches(),
            duplicates: plan.duplicate != Probability::ZERO,
            corrupts: plan.corrupt != Probability::ZERO,
            reorders: plan.reorder.is_some(),
            marks_elsewhere: plan.offload.marks,
        }
    }
}

/// What the pipes of an engine share.
#[derive(Debug)]
pub struct Shared<B> {
    pub store: Store<B>,
    pub observer: Option<Box<dyn Observer>>,
}

/// A pipe. What a release touches comes first, then what an arrival does: with thousands
/// of pipes each line of the cache is a wait for memory.
#[derive(Debug)]
#[repr(C)]
pub struct Pipe {
    fifo: Fifo,
    sent: Count,
    /// When the queue is to be looked at although nothing is due.
    look: Instant,
    /// When the first frame that is held back is due; [`Instant::MAX`] if there is none.
    aside_due: Instant,
    shaper: Shaper,
    received: Count,
    /// Bytes in the queue, the frame in service included.
    queued: u64,
    queued_max: u64,
    /// Bytes in the queue and in the delay line, the lost ones not included.
    held: u64,
    /// Up to so many bytes in the queue every frame is admitted.
    admitted: u64,
    extras: Extras,
    /// Whether the frame in service has left and the AQM has yet to finish with those
    /// behind it.
    choosing: bool,
    /// Whether what has left the shaper waits for a beam; then the engine lets it leave.
    in_beam: bool,
    /// Whether the observer, if there is one, wants to know of its frames.
    observed: bool,
    /// Frames that leave at most when one arrives.
    at_arrival: u32,
    channel: Channel,
    delay: Delay,
    cold: Box<Cold>,
    lateness: Lateness,
    queue_delay: QueueDelay,
}

impl Pipe {
    /// An empty pipe whose processes start at `at`. A rate trace runs since `since`. It is a
    /// pipe of the engine's client `index`, for which `is_offloaded` says whether the losses and
    /// marks that a plan leaves to others are done there.
    #[must_use]
    pub fn new(
        plan: &PipePlan,
        key: StreamKey,
        (at, since): (Instant, Instant),
        (index, is_offloaded): (u32, bool),
    ) -> Self {
        let loss = if is_offloaded { plan.offload.loss } else { 0 };
        let cold = Cold {
            aqm: Aqm::new(plan.queue, key, at),
            dropped: [Count::default(); DropReason::ALL.len()],
            marked: Count::default(),
            duplicate: Duplicate::new(plan.duplicate, key, None),
            duplicated: Count::default(),
            corrupt: Corrupt::new(plan.corrupt, key, None),
            corrupted: Count::default(),
            reorder: Reorder::new(plan.reorder, key, None),
            aside: Fifo::default(),
            aside_last: Instant::ZERO,
            stage: Stage::default(),
            client: key.client,
            direction: key.direction,
            index,
            is_offloaded,
            loss,
        };
        Self {
            admitted: plan.queue.admits_up_to(),
            extras: Extras::of(plan),
            choosing: false,
            in_beam: false,
            observed: false,
            at_arrival: at_arrival(plan),
            shaper: Shaper::new(&plan.rate, plan.framing, since),
            channel: Channel::new(&plan.channel(loss == 0), key, at),
            delay: Delay::new(&plan.delay, key, at),
            fifo: Fifo::default(),
            received: Count::default(),
            sent: Count::default(),
            queued: 0,
            queued_max: 0,
            held: 0,
            look: Instant::MAX,
            aside_due: Instant::MAX,
            cold: Box::new(cold),
            lateness: Lateness::default(),
            queue_delay: QueueDelay::default(),
        }
    }

    /// The accounts as of the last instant that the pipe was brought up to.
    #[must_use]
    pub fn stats(&self) -> PipeStats {
        let mut stats = PipeStats {
            received: self.received,
            sent: self.sent,
            dropped: self.cold.dropped,
            marked: self.cold.marked,
            duplicated: self.cold.duplicated,
            corrupted: self.cold.corrupted,
            queue_max_bytes: self.queued_max,
            queue_delay: self.queue_delay,
            lateness: self.lateness,
            ..PipeStats::default()
        };
        let held = u64::from(self.fifo.held()) + u64::from(self.cold.aside.held());
        stats.held = Count { packets: held, bytes: self.held };
        if self.has_queue() {
            let packets = self.fifo.queue_len() - self.cold.stage.ahead.gone();
            stats.queue = Count { packets: packets.into(), bytes: self.queued };
        }
        stats
    }

    /// Packets that have arrived.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.packets
    }

    /// Whether it has no frames, not even lost ones whose turn is yet to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fifo.is_empty() && self.cold.aside.is_empty()
    }

    /// Starts the high-water mark of the queue anew.
    pub fn mark(&mut self) {
        self.queued_max = self.queue_bytes();
    }

    /// Whether frames wait: for the shaper or for a beam.
    #[inline]
    fn has_queue(&self) -> bool {
        !self.shaper.is_unlimited() || self.in_beam
    }

    /// Bytes that an arriving frame finds in the queue. At no rate limit there are none,
    /// also where what an earlier plan had queued is still on its way out.
    #[inline]
    fn queue_bytes(&self) -> u64 {
        if self.has_queue() { self.queued } else { 0 }
    }
}

/// How many frames may leave the queue when one arrives, so that what is there is known well
/// enough to decide on it.
fn at_arrival(plan: &PipePlan) -> u32 {
    if plan.queue.drops_late() { AT_ARRIVAL } else { u32::MAX }
}
