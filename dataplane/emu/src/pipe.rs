// SPDX-License-Identifier: Apache-2.0
//! One client's path in one direction: queue, shaper, channel, delay.
//!
//! A pipe is lazy. It is advanced to an instant when something accesses it: a
//! frame that arrives, a release, a change, a snapshot. Fates in it depend
//! on the times of arrival and not on when, or how often, it was accessed:
//! the shaper's finish of each frame follows from arrivals and finishes alone, and
//! the channel and the delay are asked at that finish. Phantom frames of cross traffic arrive
//! while it is advanced, at their own instants.
//!
//! Times of calls never decrease.

mod arrival;
mod aside;
mod beamed;
mod carried;
mod change;
mod cross;
mod hold;
mod observe;
mod release;
mod service;

use crate::access::AccessStats;
use crate::aqm::Aqm;
use crate::channel::Channel;
use crate::client::ClientKey;
use crate::corrupt::Corrupt;
use crate::cross::Cross;
use crate::delay::Delay;
use crate::duplicate::Duplicate;
use crate::histogram::{LatenessTally, QueueDelayTally};
use crate::mtu::Mtu;
use crate::observe::Observer;
use crate::plan::PipePlan;
use crate::reorder::Reorder;
use crate::shaper::{Origin, Shaper};
use crate::stats::{Count, DropReason, PipeStats};
use crate::store::{Fifo, Store};
use crate::units::{Direction, Instant, Probability};
use std::mem::offset_of;

use beamed::Stage;
use hold::OnHold;
pub use hold::{Look, MAX_HOLD};

/// Approximate bytes that the shaper serves between two visits to a queue.
const LOOK_AFTER: u32 = 16_384;

/// Frames that a visit lets leave at most.
const AT_ONCE: u32 = 256;

/// Frames that an arrival lets leave at most, from a queue with an AQM that drops from its head.
const AT_ARRIVAL: u32 = 16;

/// Frames in the queue up to which an arrival does not advance a plain pipe.
const LAG: u32 = 8;

/// Bytes behind a pipe's pointer to fields that few frames touch.
pub const COLD_BYTES: usize = size_of::<Cold>();

/// Fields that few frames touch.
#[derive(Debug)]
struct Cold {
    aqm: Aqm,
    dropped: [Count; DropReason::ALL.len()],
    marked: Count,
    duplicate: Option<Duplicate>,
    duplicated: Count,
    mtu: Option<Mtu>,
    generated: Count,
    corrupt: Option<Corrupt>,
    corrupted: Count,
    reorder: Option<Reorder>,
    cross: Option<Box<Cross>>,
    cross_offered: Count,
    cross_dropped: Count,
    /// Frames that are held back, and when the last of them is due.
    aside: Fifo,
    aside_last: Instant,
    /// State of a client in a beam.
    stage: Stage,
    on_hold: Option<OnHold>,
    /// Of earlier plans, if there was capacity on demand.
    access: Option<Box<AccessStats>>,
    client: ClientKey,
    direction: Direction,
    index: u32,
    is_offloaded: bool,
    /// Number of the figures by which frames are lost behind the egress; zero: they are not.
    loss: u16,
}

/// Features that most pipes do not use, so that one access excludes all of them.
#[derive(Clone, Copy, Debug)]
struct Extras {
    /// The AQM has to see frames that leave the queue.
    watched: bool,
    duplicates: bool,
    corrupts: bool,
    reorders: bool,
    /// The observer marks frames that the AQM chose, where it can.
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

/// What lets frames leave the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    ByShaper,
    /// Frames that have left the shaper wait for a beam; the engine lets them leave.
    ByBeam,
    /// Capacity on demand ([`crate::access`]).
    InSuperframes,
    /// The same, of a carrier that several share; the engine lets frames leave.
    ByCarrier,
}

/// State that all pipes of an engine share.
#[derive(Debug)]
pub struct Shared<B> {
    pub store: Store<B>,
    pub observer: Option<Box<dyn Observer>>,
}

/// Bytes at the start of a pipe that frames touch, up to the counts of short times in the queue.
pub const HOT: usize = offset_of!(Pipe, queue_delay) + size_of::<u64>();
/// Where the lines of a pipe begin that the service of its queue touches besides.
pub const SERVED: usize = offset_of!(Pipe, channel);
/// Where the line of a pipe begins that a release touches besides the first one.
pub const RELEASED: usize = offset_of!(Pipe, look);

/// A pipe. With thousands of pipes each cache line is a wait for memory: the fields are in the order in
/// which a frame needs them. In an engine's slot lines begin at `received`, in the shaper at `service`, at
/// `channel`, just before `queue_delay`, and at `look`.
#[derive(Debug)]
#[repr(C)]
pub struct Pipe {
    // A release and an arrival.
    fifo: Fifo,
    // An arrival.
    received: Count,
    /// Bytes in the queue, the frame in service and phantom ones included.
    queued: u64,
    queued_max: u64,
    /// Up to this many bytes in the queue every frame is admitted.
    admitted: u64,
    // The service of the queue.
    shaper: Shaper,
    channel: Channel,
    delay: Delay,
    queue_delay: QueueDelayTally,
    // Few frames.
    cold: Box<Cold>,
    /// Due time of the first frame that is held back; [`Instant::MAX`] if there is none.
    aside_due: Instant,
    // A release and an arrival.
    /// When the queue has to be served even if no frame is due.
    look: Instant,
    /// Bytes in the queue and in the delay line, the lost ones not included.
    held: u64,
    /// Bytes sent. The number of packets sent is the total of `lateness`.
    sent: u64,
    extras: Extras,
    /// Whether it has none of what most pipes do not have: no extras, beam, MTU, observer or
    /// phantom frames, and no frame is held back. Then frames pass it in runs.
    plain: bool,
    /// Whether the frame in service has left and the AQM has yet to finish with those
    /// behind it.
    choosing: bool,
    served: Served,
    /// Whether the observer, if there is one, observes its frames.
    observed: bool,
    /// Whether the observer wants to know when its frames leave the queue.
    reports_schedule: bool,
    /// A longer frame may hold a packet above the MTU. Fills a gap between fields.
    unchecked: u16,
    /// Phantom frames in the queue.
    phantoms: u32,
    lateness: LatenessTally,
    /// Arrival of the next phantom frame; [`Instant::MAX`] if there is none.
    cross_next: Instant,
    /// Frames that leave at most when one arrives.
    at_arrival: u32,
}

impl Pipe {
    /// An empty pipe whose processes start at `at`. It is a pipe of the engine's client `index`. With `is_offloaded`, losses and marks that a plan
    /// offloads are done behind the egress.
    #[must_use]
    pub fn new(
        plan: &PipePlan,
        origin: &Origin,
        at: Instant,
        (index, is_offloaded): (u32, bool),
    ) -> Self {
        let Origin { key, start, .. } = *origin;
        let loss = if is_offloaded { plan.offload.loss } else { 0 };
        let cold = Cold {
            aqm: Aqm::new(plan.queue, key, at),
            dropped: [Count::default(); DropReason::ALL.len()],
            marked: Count::default(),
            duplicate: Duplicate::new(plan.duplicate, key, None),
            duplicated: Count::default(),
            mtu: Mtu::new(plan.mtu, at, None),
            generated: Count::default(),
            corrupt: Corrupt::new(plan.corrupt, key, None),
            corrupted: Count::default(),
            reorder: Reorder::new(plan.reorder, key, None),
            cross: None,
            cross_offered: Count::default(),
            cross_dropped: Count::default(),
            aside: Fifo::default(),
            aside_last: Instant::ZERO,
            stage: Stage::default(),
            on_hold: None,
            access: None,
            client: key.client,
            direction: key.direction,
            index,
            is_offloaded,
            loss,
        };
        let mut pipe = Self {
            admitted: plan.queue.admits_up_to(),
            extras: Extras::of(plan),
            plain: false,
            choosing: false,
            served: Served::ByShaper,
            observed: false,
            reports_schedule: false,
            unchecked: Mtu::unchecked(plan.mtu),
            at_arrival: at_arrival(plan),
            shaper: Shaper::new(&plan.rate, plan.framing, at, origin),
            channel: Channel::new(&plan.channel(loss == 0), key, at, start),
            delay: Delay::new(&plan.delay, key, at, start),
            fifo: Fifo::default(),
            received: Count::default(),
            sent: 0,
            queued: 0,
            queued_max: 0,
            held: 0,
            look: Instant::MAX,
            aside_due: Instant::MAX,
            cross_next: Instant::MAX,
            phantoms: 0,
            cold: Box::new(cold),
            lateness: LatenessTally::default(),
            queue_delay: QueueDelayTally::default(),
        };
        pipe.set_cross(plan, key, at);
        pipe.look_for_superframes();
        pipe.look_later();
        pipe.look_for_special();
        pipe
    }

    /// Decides whether frames leave in superframes.
    fn look_for_superframes(&mut self) {
        if !self.is_in_beam() {
            self.served = match self.shaper.is_on_demand() {
                true => Served::InSuperframes,
                false => Served::ByShaper,
            };
        }
    }

    /// Decides whether it is plain. To be called after each change of what that depends on.
    fn look_for_special(&mut self) {
        let Extras { watched, duplicates, corrupts, reorders, .. } = self.extras;
        let is_extra = watched || duplicates || corrupts || reorders;
        let is_observed = self.observed || self.reports_schedule;
        let holds_back = self.aside_due != Instant::MAX;
        let is_crossed = self.has_cross() || self.phantoms > 0;
        let is_special = is_extra || is_observed || holds_back || self.is_in_beam() || is_crossed;
        self.plain = !is_special && self.unchecked == u16::MAX;
    }

    /// Whether frames pass it in runs.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The accounts as of the last instant to which the pipe was advanced.
    #[must_use]
    pub fn stats(&self) -> PipeStats {
        let lateness = self.lateness.histogram();
        let mut stats = PipeStats {
            received: self.received,
            sent: Count { packets: lateness.total(), bytes: self.sent },
            dropped: self.cold.dropped,
            marked: self.cold.marked,
            duplicated: self.cold.duplicated,
            generated: self.cold.generated,
            corrupted: self.cold.corrupted,
            queue_max_bytes: self.queued_max,
            cross_offered: self.cold.cross_offered,
            cross_dropped: self.cold.cross_dropped,
            access: self
                .cold
                .access
                .as_deref()
                .copied()
                .unwrap_or_default()
                .plus(self.shaper.access()),
            queue_delay: self.queue_delay.histogram(),
            lateness,
            ..PipeStats::default()
        };
        let held = self.fifo.held() - self.phantoms;
        let held = u64::from(held) + u64::from(self.cold.aside.held());
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

    /// Whether it has no frames except for phantom ones, not even lost ones that keep their place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fifo.records() == self.phantoms && self.cold.aside.is_empty()
    }

    /// Resets the high-water mark of the queue.
    pub fn mark(&mut self) {
        self.queued_max = self.queue_bytes();
    }

    /// Whether frames wait: for the shaper or for a beam.
    #[inline]
    fn has_queue(&self) -> bool {
        !self.shaper.is_unlimited() || self.is_in_beam()
    }

    /// Bytes that an arriving frame finds in the queue. Without a rate limit there are none,
    /// even if frames that an earlier plan had queued have yet to leave.
    #[inline]
    fn queue_bytes(&self) -> u64 {
        if self.has_queue() { self.queued } else { 0 }
    }
}

/// The number of frames that may leave the queue when one arrives, so that its length is known well
/// enough for a decision. All of them with capacity on demand: a request is for those that wait then.
fn at_arrival(plan: &PipePlan) -> u32 {
    if plan.queue.drops_late() && !plan.rate.is_on_demand() { AT_ARRIVAL } else { u32::MAX }
}
