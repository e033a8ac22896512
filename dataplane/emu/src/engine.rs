// SPDX-License-Identifier: Apache-2.0
//! The clients of one worker.
//!
//! Invariant of the run loop: within a turn at `now`, first the change that is
//! due, then the arrivals, then the release. Times never go back; one that does is
//! taken as the latest seen. Runs on one worker's thread, which owns it.

mod arrival;
mod beams;
mod change;
mod expiry;
mod hold;
mod index;
mod lateness;
mod limits;
mod ready;
mod release;
mod report;

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;

use crate::beam::{Beams, MAX_BEAMS};
use crate::client::ClientKey;
use crate::frame::{Buffer, NoBuffer};
use crate::memory::{LINE, advise_large_pages, prefetch_lines};
use crate::observe::Observer;
use crate::pipe::{HOT, Pipe, RELEASED, SERVED as SERVICE, Shared};
use crate::plan::{PipePlan, Plan};
use crate::rng::StreamKey;
use crate::rules::Rules;
use crate::shaper::Origin;
use crate::store::{MAX_FRAME, Store};
use crate::units::{ByDirection, Direction, Instant};
use crate::wheel::{MAX_ID, Wheel};
use change::Change;
use expiry::{Activity, Expired};
pub use hold::{Hold, HoldError};
use index::Index;
use lateness::Counted;
pub use limits::{EngineError, Limits};
use ready::Ready;
pub use release::{Departure, Egress};

/// Frames that a pipe releases before the next pipe, and before the clock is
/// read again.
const QUANTUM: usize = 32;
/// Visits to pipes without result in a release: the port refuses, or nothing is due.
const LOOKS: usize = 512;
/// Frames that the shapers serve in a release, about.
const SERVED: u32 = 1024;
/// Changes that pipes take in a turn: those with arriving frames, however many, then those with frames
/// that are due, then others.
const SETTLED: u32 = 12;
/// Cache lines of a slot, from the first one on, that an arrival touches
const ARRIVAL_LINES: usize = (offset_of!(Slot, pipe) + SERVICE) / LINE;
/// and with those that the service of the queue touches as well.
const SERVICE_LINES: usize = (offset_of!(Slot, pipe) + HOT).div_ceil(LINE);
/// The cache line of a slot that an arrival touches as well, and a release besides the first one.
const RELEASE_LINE: usize = (offset_of!(Slot, pipe) + RELEASED) / LINE;
const _: () = assert!((offset_of!(Slot, pipe) + RELEASED).is_multiple_of(LINE), "one line");
const _: () = assert!((offset_of!(Slot, pipe) + SERVICE).is_multiple_of(LINE), "whole lines");
/// Frames of a burst that are classified before the first of them is enqueued.
const BURST: usize = 32;

const BYPASS: u32 = 0;
const DEFAULT: u32 = 1;
/// Number of clients that always exist.
const FIXED: u32 = 2;
/// The pipe has to be looked up.
const UNKNOWN: u32 = u32::MAX;

/// Bytes of a pipe in an engine, without what it points to. Each client has two pipes.
pub const PIPE_BYTES: usize = size_of::<Slot>();

/// One client's path in one direction, and the engine's record of it.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    /// The next time in the wheel, as far as known. Other events may occur as well; then there is nothing
    /// to do.
    scheduled: Instant,
    /// Version of the last change that it has taken.
    version: u32,
    /// Number of the last observer that it has asked.
    asked: u16,
    /// Whether `later` is known. It is in a line that few frames need.
    has_later: bool,
    pipe: Pipe,
    /// The time in the wheel after `scheduled`.
    later: Instant,
    client: ClientKey,
}

/// The clients of one worker, and their frames. `B` is the buffer of arriving frames.
#[derive(Debug)]
pub struct Engine<B = NoBuffer> {
    limits: Limits,
    shared: Shared<B>,
    /// Two per client, in the order of [`Direction`].
    slots: Vec<Slot>,
    index: Index,
    /// Rules of the current plan, and whether there are any.
    rules: Arc<Rules>,
    is_ruled: bool,
    /// As [`Rules::by_address`].
    by_address: bool,
    /// By the number of a name in the rules ([`Rules::targets`]): its client, or [`UNKNOWN`] until a frame has
    /// asked for it.
    targets: Vec<Cell<u32>>,
    /// Epoch of the current plan, in which clients that frames name are believed.
    epoch: u16,
    /// Automatic clients that have not expired.
    automatic: u32,
    /// By client.
    activity: Vec<Activity>,
    expired: Expired,
    wheel: Wheel,
    beams: Beams,
    ready: Ready,
    /// The current change, at the back, and older ones that some pipe has yet to
    /// take.
    changes: VecDeque<Change>,
    /// The version of the change at the front, and of that at the back.
    oldest: u32,
    version: u32,
    /// Number of the observer; changes with it.
    observer: u16,
    /// Next pipe to visit, and the version that it is to reach.
    settling: Option<(u32, u32)>,
    replaced: VecDeque<Plan>,
    /// Changes that pipes have taken since the last release.
    settled: u32,
    bypass: PipePlan,
    generation: u64,
    now: Instant,
    lateness: Counted,
    malformed: ByDirection<u64>,
    unplaced: ByDirection<u64>,
    kept_up: usize,
    /// Clients in the report that is being written in parts.
    reported: usize,
}

impl<B: Buffer> Engine<B> {
    /// An engine with the `bypass` and `default` clients and a plan with processes that
    /// start at `at`, as generation 0.
    ///
    /// # Errors
    /// If there is no room for its packet store.
    pub fn new(limits: Limits, plan: Plan, at: Instant) -> Result<Self, EngineError> {
        let store = Store::new(limits.memory, limits.buffers);
        Self::with(limits, plan, at, store, Wheel::default())
    }

    /// An engine for one more link. It shares the packet store of the others; see
    /// [`Links`](crate::links::Links).
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn sharing(limits: Limits, plan: Plan, at: Instant) -> Result<Self, EngineError> {
        Self::with(limits, plan, at, Store::sharing(limits.memory), Wheel::small())
    }

    fn with(
        limits: Limits,
        plan: Plan,
        at: Instant,
        store: std::io::Result<Store<B>>,
        wheel: Wheel,
    ) -> Result<Self, EngineError> {
        let plan = plan.offloaded(limits.offloaded > 0);
        let limits = Limits {
            frame: limits.frame.min(MAX_FRAME),
            clients: limits.clients.min(MAX_ID / 2 - FIXED - MAX_BEAMS as u32),
            ..limits
        };
        let room = (limits.clients + FIXED) as usize;
        let store = store.map_err(|e| EngineError::Memory(limits.memory, e))?;
        let index = Index::new(plan.seed, room);
        let since = ByDirection([at; 2]);
        let mut engine = Self {
            limits,
            shared: Shared { store, observer: None },
            slots: Vec::with_capacity(2 * room),
            index,
            rules: Arc::clone(&plan.rules),
            is_ruled: !plan.rules.is_empty(),
            by_address: plan.rules.by_address(),
            targets: Vec::with_capacity(room),
            epoch: plan.epoch,
            automatic: 0,
            activity: Vec::with_capacity(room),
            expired: Expired::default(),
            wheel,
            beams: Beams::with_room_for(2 * room),
            ready: Ready::new(2 * room),
            changes: VecDeque::with_capacity(64),
            oldest: 0,
            version: 0,
            observer: 0,
            settling: None,
            replaced: VecDeque::with_capacity(64),
            settled: 0,
            bypass: PipePlan::transparent(),
            generation: 0,
            now: at,
            lateness: Counted::new()?,
            malformed: ByDirection::default(),
            unplaced: ByDirection::default(),
            kept_up: 0,
            reported: 0,
        };
        engine.beams.form(plan.beamed(), 0, engine.limits.frame, at, true);
        engine.changes.push_back(Change {
            at,
            plan,
            kept: ByDirection::default(),
            restart: false,
            epoch: 0,
            since,
            start: at,
        });
        engine.forget_targets();
        engine.wheel.grow(2 * (room + MAX_BEAMS));
        advise_large_pages(&mut engine.slots);
        for key in [ClientKey::Bypass, ClientKey::Default] {
            engine.admit(key);
        }
        Ok(engine)
    }

    /// Generation of the current plan.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of clients, including vacant slots of expired ones.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.slots.len() / Direction::BOTH.len()
    }

    /// Hints that the first `LINES` lines of a pipe's slot, and the one that each frame touches besides, will
    /// be used soon.
    #[inline(always)]
    fn prefetch_slot<const LINES: usize>(&self, pipe: u32) {
        prefetch_lines::<_, 0, LINES>(&self.slots, pipe as usize);
        prefetch_lines::<_, RELEASE_LINE, { RELEASE_LINE + 1 }>(&self.slots, pipe as usize);
    }

    /// Gives the packet store to another engine that shares it.
    #[inline]
    pub(crate) fn hand_store_to(&mut self, other: &mut Self) {
        self.shared.store.hand_to(&mut other.shared.store);
    }

    /// Sets the bytes of the packet store that this engine may use.
    pub fn set_memory(&mut self, bytes: usize) {
        self.limits.memory = bytes;
        self.shared.store.set_capacity(bytes);
    }

    /// Stops all cross traffic if no other frame is held. Returns whether it did: then the engine
    /// holds nothing.
    pub fn retire(&mut self) -> bool {
        if !self.slots.iter().all(|slot| slot.pipe.is_empty()) {
            return false;
        }
        self.slots.iter_mut().for_each(|slot| slot.pipe.retire(&mut self.shared));
        self.shared.store.used() == 0
    }

    /// Whether no frame of a client is held.
    #[must_use]
    pub(crate) fn holds_none_of(&self, key: ClientKey) -> bool {
        self.index.get(key).is_none_or(|client| {
            Direction::BOTH.iter().all(|d| self.slots[pipe_id(client, *d) as usize].pipe.is_empty())
        })
    }

    fn admit(&mut self, key: ClientKey) -> u32 {
        // There is always a change.
        let Some(in_force) = self.changes.back() else { return DEFAULT };
        let id = self.expired.vacant.pop().unwrap_or(self.clients() as u32);
        // A client that comes back gets other random streams, until a restart.
        let epoch = self.expired.since_restart.rotate_left(16);
        let beams = in_force.plan.beams.clone();
        for direction in Direction::BOTH {
            let bypass = key == ClientKey::Bypass;
            let plan = if bypass { &self.bypass } else { &in_force.plan.pipes[direction] };
            let stream = StreamKey { seed: in_force.plan.seed, client: key, direction, epoch };
            let origin =
                Origin { trace: in_force.since[direction], start: in_force.start, key: stream };
            let place = (id, id < self.limits.offloaded);
            let pipe = Pipe::new(plan, &origin, self.now, place);
            let version = self.version;
            // It asks the observer when it is accessed.
            let unasked = self.observer.wrapping_sub(1);
            match self.slots.get_mut(pipe_id(id, direction) as usize) {
                // The wheel still knows when to bring it up.
                Some(Slot { version: taken, asked, client, pipe: place, .. }) => {
                    (*taken, *asked, *client, *place) = (version, unasked, key, pipe);
                }
                None => self.slots.push(Slot {
                    pipe,
                    scheduled: Instant::MAX,
                    asked: unasked,
                    has_later: false,
                    later: Instant::MAX,
                    version,
                    client: key,
                }),
            }
        }
        for direction in Direction::BOTH {
            self.enlist(&beams, pipe_id(id, direction), direction);
        }
        self.index.insert(key, id);
        self.automatic += u32::from(matches!(key, ClientKey::Ip(_)));
        self.begin_activity(id);
        id
    }

    /// Reports to `observer` from now on. Returns the one that it replaces.
    pub fn set_observer(
        &mut self,
        observer: Option<Box<dyn Observer>>,
    ) -> Option<Box<dyn Observer>> {
        self.observer = self.observer.wrapping_add(1);
        std::mem::replace(&mut self.shared.observer, observer)
    }
}

#[inline]
fn pipe_id(client: u32, direction: Direction) -> u32 {
    client * 2 + direction as u32
}
