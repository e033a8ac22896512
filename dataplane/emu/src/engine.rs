// SPDX-License-Identifier: Apache-2.0
//! The clients of one worker.
//!
//! Invariant of the run loop: within a turn at `now`, first the change that is
//! due, then the arrivals, then the release. Times never go back; one that does is
//! taken as the latest seen. Runs on one worker's thread, which owns it.

mod beams;
mod expiry;
mod index;
mod lateness;
mod limits;
mod shimmed;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::beam::{Beam, MAX_BEAMS, Member, Place};
use crate::classify::{Class, classify};
use crate::client::ClientKey;
use crate::frame::{Buffer, Frame, NoBuffer};
use crate::memory::{advise_large_pages, prefetch_lines};
use crate::pipe::Pipe;
use crate::plan::{PipePlan, Plan};
use crate::rng::StreamKey;
use crate::rules::Rules;
use crate::shim::{self, SHIM};
use crate::stats::{ClientStats, DropReason, Snapshot};
use crate::store::{Head, MAX_FRAME, Store};
use crate::tap::Tap;
use crate::units::{ByDirection, Direction, Instant};
use crate::wheel::{MAX_ID, Wheel};
use expiry::{Activity, Expired};
use index::Index;
use lateness::Counted;
pub use limits::{EngineError, Limits};
use shimmed::{shim_of, without_switch};

/// Frames that a pipe releases before the next pipe has its turn, and before the clock is
/// read again.
const QUANTUM: usize = 32;
/// Pipes that a release looks at in vain: their port refuses, or they have nothing due.
const LOOKS: usize = 512;
/// Frames that the shapers serve in a release, about.
const SERVED: u32 = 1024;
/// Changes that pipes take in a turn, beside those whose frames arrive in it.
const SETTLED: u32 = 16;
/// Lines of the cache that a release touches of a pipe.
const RELEASE_LINES: usize = 2;
/// Frames of a burst that are looked up before the first of them is taken in.
const BURST: usize = 64;

const BYPASS: u32 = 0;
const DEFAULT: u32 = 1;
/// Clients that are always there.
const FIXED: u32 = 2;
/// No pipe.
const UNKNOWN: u32 = u32::MAX;

/// A frame that leaves.
#[derive(Debug)]
pub struct Departure<'a, B = NoBuffer> {
    /// Whose it is.
    pub client: ClientKey,
    /// Which way it goes.
    pub direction: Direction,
    /// When it was due.
    pub due: Instant,
    /// The frame, behind its shim where it came with one.
    pub frame: Frame<'a, B>,
}

impl<B: Buffer> Departure<'_, B> {
    /// The frame's bytes, its shim included.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }
}

/// Where frames leave to.
pub trait Egress<B = NoBuffer> {
    /// Takes a frame, or refuses it with `false`: then it stays at the head of its
    /// pipe and is offered again. A buffer that is kept is taken out of the frame by who
    /// accepts it.
    fn offer(&mut self, departure: Departure<'_, B>) -> bool;

    /// The time at which the next frames are offered, from which their lateness is
    /// counted. The turn's, `turn`, unless there is a clock.
    fn now(&mut self, turn: Instant) -> Instant {
        turn
    }
}

impl<B, F: FnMut(Departure<'_, B>) -> bool> Egress<B> for F {
    fn offer(&mut self, departure: Departure<'_, B>) -> bool {
        self(departure)
    }
}

/// One client's path in one direction, and what the engine keeps with it.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    /// When the wheel brings it up next, and after that, as far as is known. Other events
    /// may bring it up as well; then there is nothing to do.
    scheduled: Instant,
    later: Instant,
    /// The last change that it has taken.
    version: u32,
    client: ClientKey,
    pipe: Pipe,
}

/// A change of plan, from its instant on.
#[derive(Debug)]
struct Change {
    at: Instant,
    plan: Plan,
    restart: bool,
    /// Changes since the random processes began.
    epoch: u32,
    /// Since when each direction's rate trace runs.
    since: ByDirection<Instant>,
}

/// The clients of one worker, and what they hold. `B` is the buffer that frames come in.
#[derive(Debug)]
pub struct Engine<B = NoBuffer> {
    limits: Limits,
    store: Store<B>,
    /// Two for each client, in the order of [`Direction`].
    slots: Vec<Slot>,
    index: Index,
    /// Of the plan in force, and whether there are any.
    rules: Arc<Rules>,
    is_ruled: bool,
    /// Of the plan in force: client numbers in shims are believed in this epoch.
    epoch: u16,
    /// Clients that were made for addresses and have not expired.
    automatic: u32,
    /// Of each client.
    activity: Vec<Activity>,
    expired: Expired,
    wheel: Wheel,
    /// Two for each beam of the plan, in the same order; none where it does not limit.
    beams: Vec<Option<Box<Beam>>>,
    /// Of each slot.
    members: Vec<Member>,
    /// Beams that the wheel brought up, in turn; each once.
    lagging: VecDeque<u32>,
    /// Pipes to look at, in turn; each once.
    ready: VecDeque<u32>,
    is_ready: Vec<bool>,
    /// The change in force, at the back, and those before it that some pipe has yet to
    /// take.
    changes: VecDeque<Change>,
    /// The version of the change at the front, and of that at the back.
    oldest: u32,
    version: u32,
    /// How far the changes up to which version have come.
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
    /// How many clients the report has that is being written in parts.
    reported: usize,
}

impl<B: Buffer> Engine<B> {
    /// An engine with the `bypass` and `default` clients and a plan whose processes
    /// start at `at`, as generation 0.
    ///
    /// # Errors
    /// If there is no room for its packet store.
    pub fn new(limits: Limits, plan: Plan, at: Instant) -> Result<Self, EngineError> {
        let prefix = if limits.shim.is_some() { SHIM } else { 0 };
        let frame = limits.frame.min(MAX_FRAME - prefix);
        let plan = if limits.shim.is_some() { plan } else { without_switch(plan) };
        let limits = Limits {
            frame,
            // It is asked of what comes.
            copy_break: limits.copy_break.saturating_add(prefix),
            clients: limits.clients.min(MAX_ID / 2 - FIXED - MAX_BEAMS as u32),
            ..limits
        };
        let room = (limits.clients + FIXED) as usize;
        let store = Store::new(limits.memory, limits.buffers)
            .map_err(|e| EngineError::Memory(limits.memory, e))?
            .with_prefix(prefix);
        let index = Index::new(plan.seed, room);
        let since = ByDirection([at; 2]);
        let mut engine = Self {
            limits,
            store,
            slots: Vec::with_capacity(2 * room),
            index,
            rules: Arc::clone(&plan.rules),
            is_ruled: !plan.rules.is_empty(),
            epoch: plan.epoch,
            automatic: 0,
            activity: Vec::with_capacity(room),
            expired: Expired::default(),
            wheel: Wheel::default(),
            beams: Vec::new(),
            members: Vec::with_capacity(2 * room),
            lagging: VecDeque::with_capacity(2 * MAX_BEAMS),
            ready: VecDeque::with_capacity(2 * room),
            is_ready: vec![false; 2 * room],
            changes: VecDeque::with_capacity(64),
            oldest: 0,
            version: 0,
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
        engine.form_beams(&plan.beams);
        engine.changes.push_back(Change { at, plan, restart: false, epoch: 0, since });
        engine.wheel.grow(2 * (room + MAX_BEAMS));
        advise_large_pages(&mut engine.slots);
        for key in [ClientKey::Bypass, ClientKey::Default] {
            engine.admit(key);
        }
        Ok(engine)
    }

    /// Generation of the plan in force.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many clients there are, those included that have expired and whose slots are vacant.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.slots.len() / Direction::BOTH.len()
    }

    fn admit(&mut self, key: ClientKey) -> u32 {
        // There is always one.
        let Some(in_force) = self.changes.back() else { return DEFAULT };
        let id = self.expired.vacant.pop().unwrap_or(self.clients() as u32);
        // A client that comes back gets other random streams, until a restart.
        let epoch = self.expired.since_restart.rotate_left(16);
        let beams = in_force.plan.beams.clone();
        for direction in Direction::BOTH {
            let bypass = key == ClientKey::Bypass;
            let plan = if bypass { &self.bypass } else { &in_force.plan.pipes[direction] };
            let stream = StreamKey { seed: in_force.plan.seed, client: key, direction, epoch };
            let mut pipe = Pipe::new(plan, stream, self.now, in_force.since[direction]);
            if let Some(tick) = self.limits.shim {
                let number = shim::number(id, tick);
                pipe.set_switch((number, tick), plan, stream, self.now);
            }
            let version = self.version;
            match self.slots.get_mut(pipe_id(id, direction) as usize) {
                // The wheel still knows when to bring it up.
                Some(Slot { version: taken, client, pipe: place, .. }) => {
                    (*taken, *client, *place) = (version, key, pipe);
                }
                None => self.slots.push(Slot {
                    pipe,
                    scheduled: Instant::MAX,
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

    /// Whose a frame is that belongs to `key` where no rule says otherwise.
    #[inline]
    fn owner(&self, key: ClientKey, direction: Direction, frame: &[u8]) -> ClientKey {
        if self.is_ruled { self.rules.owner(key, frame, direction) } else { key }
    }

    /// The pipe of a frame of a known client; [`UNKNOWN`] if it takes more.
    #[inline]
    fn route(&self, direction: Direction, frame: &[u8]) -> u32 {
        if self.limits.shim.is_some() {
            self.route_by_shim(direction, frame)
        } else {
            self.route_by_headers(direction, frame)
        }
    }

    #[inline]
    fn route_by_headers(&self, direction: Direction, frame: &[u8]) -> u32 {
        match classify(frame, direction) {
            Class::Client(key) if frame.len() <= self.limits.frame as usize => {
                let key = self.owner(key, direction, frame);
                self.index.get(key).map_or(UNKNOWN, |client| pipe_id(client, direction))
            }
            _ => UNKNOWN,
        }
    }

    /// The pipe of any frame; a client that is not there yet is made, if there is room.
    #[cold]
    fn pipe_of(&mut self, direction: Direction, mut frame: &[u8]) -> Result<u32, DropReason> {
        if self.limits.shim.is_some() {
            (_, frame) = shim_of(direction, frame).ok_or(DropReason::Shim)?;
        }
        let client = match classify(frame, direction) {
            Class::Runt => return Err(DropReason::Runt),
            _ if frame.len() > self.limits.frame as usize => return Err(DropReason::Oversize),
            Class::Malformed => {
                self.malformed[direction] += 1;
                DEFAULT
            }
            Class::Client(key) => {
                let key = self.owner(key, direction, frame);
                match self.index.get(key) {
                    Some(id) => id,
                    None => self.place(key, direction),
                }
            }
        };
        Ok(pipe_id(client, direction))
    }

    /// A frame arrived at `at` on the ingress port of `direction`, and is copied.
    #[inline]
    pub fn arrive(&mut self, at: Instant, direction: Direction, frame: &[u8]) {
        self.now = self.now.max(at);
        let id = self.route(direction, frame);
        self.take_in(id, direction, Frame::Bytes(frame));
    }

    /// A burst of frames arrived at `at` on the ingress port of `direction`. Of the buffers
    /// those that the link keeps are taken out.
    pub fn arrive_burst(&mut self, at: Instant, direction: Direction, burst: &mut [Option<B>]) {
        self.now = self.now.max(at);
        for part in burst.chunks_mut(BURST) {
            // Whose they are, then where those keep their frames: each step hints at what
            // the next one reads. Of a train only the first frame needs that.
            let mut ids = [UNKNOWN; BURST];
            let mut last = UNKNOWN;
            for (id, buffer) in ids.iter_mut().zip(&*part) {
                let Some(b) = buffer else { continue };
                *id = self.route(direction, b.bytes());
                if *id != last {
                    last = *id;
                    prefetch_lines(&self.slots, last as usize, usize::MAX);
                }
            }
            last = UNKNOWN;
            for id in &ids[..part.len()] {
                if *id != last {
                    last = *id;
                    if let Some(slot) = self.slots.get(last as usize) {
                        slot.pipe.prefetch_tail(&self.store);
                    }
                }
            }
            for (id, buffer) in ids.into_iter().zip(part) {
                match buffer.as_ref().map(B::bytes) {
                    Some(frame) if frame.len() > self.limits.copy_break as usize => {
                        self.take_in(id, direction, Frame::Buffer(buffer));
                    }
                    Some(frame) => self.take_in(id, direction, Frame::Bytes(frame)),
                    None => {}
                }
            }
        }
    }

    #[inline]
    fn take_in(&mut self, mut id: u32, direction: Direction, frame: Frame<'_, B>) {
        let bytes = frame.bytes();
        // Longer ones are rejected.
        let whole = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let len = whole.saturating_sub(self.store.prefix());
        if id == UNKNOWN {
            match self.pipe_of(direction, bytes) {
                Ok(known) => id = known,
                Err(reason) => {
                    // Without a shim all of it is the frame.
                    let (bytes, len) = match reason {
                        DropReason::Shim => (bytes, whole),
                        _ => (self.store.inner(bytes), len),
                    };
                    let bypass = pipe_id(BYPASS, direction);
                    self.catch_up(bypass);
                    let pipe = &mut self.slots[bypass as usize].pipe;
                    pipe.reject(&mut self.store, self.now, reason, bytes, len);
                    return;
                }
            }
        }
        if id == pipe_id(BYPASS, Direction::Return) {
            self.resolve(self.store.inner(bytes));
        }
        self.catch_up(id);
        let pipe = &mut self.slots[id as usize].pipe;
        if pipe.is_in_beam() {
            self.take_in_beam(id, frame, len);
        } else {
            pipe.arrive(&mut self.store, self.now, frame, len);
            self.reschedule(id);
        }
    }

    /// Lets a pipe take the changes that it has not taken yet, and know whether it is tapped.
    /// Comes before all else that is done to a pipe.
    #[inline]
    fn catch_up(&mut self, id: u32) {
        self.look_for_tap(id);
        if self.slots[id as usize].version != self.version {
            self.take_changes(id);
        }
    }

    /// Lets a pipe know whether it is tapped.
    #[inline]
    fn look_for_tap(&mut self, id: u32) {
        if let Some(tap) = self.store.tap() {
            let slot = &mut self.slots[id as usize];
            slot.pipe.set_tapped(tap.sees(slot.client, Direction::BOTH[id as usize % 2]));
        }
    }

    #[cold]
    fn take_changes(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        let missed = self.version - slot.version;
        slot.version = self.version;
        self.settled += missed;
        // The bypass keeps its own plan.
        if id / 2 == BYPASS {
            return;
        }
        let direction = Direction::BOTH[id as usize % 2];
        let first = self.changes.len() - missed as usize;
        for change in self.changes.range(first..) {
            let Change { at, plan, restart, epoch, since } = change;
            let client = slot.client;
            let key = StreamKey { seed: plan.seed, client, direction, epoch: *epoch };
            let (plan, since) = (&plan.pipes[direction], since[direction]);
            slot.pipe.replan(&mut self.store, plan, key, *at, since, *restart);
        }
        if slot.pipe.is_in_beam() {
            self.tell_beam_rate(id);
        }
        self.reschedule(id);
    }

    /// Sees to it that the wheel brings a pipe up in time. It may come up earlier, and too
    /// often: nothing is lost by a look.
    #[inline]
    fn reschedule(&mut self, id: u32) {
        if self.is_ready[id as usize] {
            return;
        }
        let slot = &mut self.slots[id as usize];
        if let Some(t) = slot.pipe.deadline()
            && t < slot.scheduled
        {
            slot.later = slot.scheduled;
            slot.scheduled = t;
            self.wheel.insert(id, t);
        }
    }

    /// Offers up to `budget` frames that are due at `now` to `egress`, pipe by pipe
    /// in turns of a few frames. Returns how many it took.
    pub fn release(&mut self, now: Instant, budget: usize, egress: &mut impl Egress<B>) -> usize {
        self.now = self.now.max(now);
        let now = self.now;
        self.expire(now);
        if !self.lagging.is_empty() {
            self.serve_beams(now);
            // What has left a beam may be due.
            self.expire(now);
        }
        let mut sent = 0;
        let mut refused = ByDirection([false; 2]);
        // Frames are offered at `offered`, read again after so many.
        let (mut offered, mut unread) = (now, 0);
        // Each ready pipe is looked at; one that has more is asked again while the
        // budgets last.
        let (mut looked, mut vain, mut served) = (0, 0, 0);
        while sent < budget && looked < self.ready.len() && vain < LOOKS && served < SERVED {
            self.look_ahead();
            let Some(id) = self.ready.pop_front() else { break };
            let direction = Direction::BOTH[id as usize % 2];
            // A pipe that has yet to take a change may have to wait for a later turn.
            let behind = self.slots[id as usize].version != self.version;
            if refused[direction] || behind && self.settled >= SETTLED {
                self.ready.push_back(id);
                looked += 1;
                vain += 1;
                continue;
            }
            self.catch_up(id);
            let Slot { client, pipe, .. } = &mut self.slots[id as usize];
            let turn = QUANTUM.min(budget - sent);
            served += pipe.look(&mut self.store, now, SERVED - served);
            pipe.prefetch_kept(&self.store, now, turn);
            let mut n = 0;
            while n < turn
                && let Some(head) = pipe.due(now)
            {
                if unread == 0 {
                    offered = egress.now(now).max(now);
                    unread = QUANTUM;
                }
                n += 1;
                unread -= 1;
                let Head::Due(due) = head else {
                    pipe.clear(&mut self.store);
                    continue;
                };
                let Some((frame, len)) = pipe.frame(&mut self.store) else { break };
                if !egress.offer(Departure { client: *client, direction, due, frame }) {
                    refused[direction] = true;
                    n -= 1;
                    break;
                }
                let late = offered.since(due);
                self.lateness.count(late);
                pipe.sent(&mut self.store, len, offered, late);
            }
            sent += n;
            if n > 0 {
                looked = 0;
            } else {
                vain += 1;
            }
            if pipe.deadline().is_some_and(|d| d <= now) {
                self.ready.push_back(id);
                looked += usize::from(n == 0);
            } else {
                self.is_ready[id as usize] = false;
                let slot = &mut self.slots[id as usize];
                if slot.scheduled <= now {
                    slot.scheduled = if slot.later > now { slot.later } else { Instant::MAX };
                    slot.later = Instant::MAX;
                }
                self.reschedule(id);
            }
        }
        self.settle();
        self.settled = 0;
        sent
    }

    /// Takes what is due at `now` out of the wheel.
    fn expire(&mut self, now: Instant) {
        let Self { wheel, ready, is_ready, lagging, beams, .. } = self;
        wheel.expire(now, |id| match is_ready.get_mut(id as usize) {
            Some(is_ready) => {
                if !std::mem::replace(is_ready, true) {
                    ready.push_back(id);
                }
            }
            None => {
                let number = id - is_ready.len() as u32;
                if let Some(Some(beam)) = beams.get_mut(number as usize)
                    && !std::mem::replace(&mut beam.lags, true)
                {
                    lagging.push_back(number);
                }
            }
        });
    }

    /// Hints to the processor which pipes come next.
    #[inline]
    fn look_ahead(&self) {
        if let Some(id) = self.ready.get(6) {
            prefetch_lines(&self.slots, *id as usize, RELEASE_LINES);
        }
        if let Some(id) = self.ready.get(3) {
            self.slots[*id as usize].pipe.prefetch_head(&self.store);
        }
    }

    /// When there is next something to release; frames that the egress refused, and a
    /// change that some pipe has yet to take, count as due now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let changes = self.oldest != self.version;
        let now = !self.ready.is_empty() || !self.lagging.is_empty() || changes;
        if now { Some(self.now) } else { self.wheel.next_deadline() }
    }

    /// Puts a plan in force at `at`, for every pipe of both directions, as
    /// `generation`. With `restart`, all random processes begin anew. A rate trace that
    /// stays goes on, unless there is a restart. Returns when: `at`, or the latest time
    /// seen if that is later.
    ///
    /// Its rules say from then on whose a frame is. A client that they do not name any more
    /// keeps what it holds, which leaves in its time, and its accounts.
    ///
    /// Each pipe takes the change when it is next looked at, as of that instant;
    /// [`Engine::release`] goes through those that nothing else looks at, some at a time.
    pub fn apply(&mut self, at: Instant, plan: Plan, generation: u64, restart: bool) -> Instant {
        self.now = self.now.max(at);
        let at = self.now;
        let plan = if self.limits.shim.is_some() { plan } else { without_switch(plan) };
        let Some(before) = self.changes.back() else { return at };
        let mut since = before.since;
        let turned =
            Direction::BOTH.map(|d| restart || plan.pipes[d].rate != before.plan.pipes[d].rate);
        for direction in Direction::BOTH {
            if turned[direction as usize] {
                since[direction] = at;
            }
        }
        let epoch = if restart { 0 } else { before.epoch.wrapping_add(1) };
        if restart {
            self.expired.since_restart = 0;
        }
        // The plan before keeps its own: nothing is freed here.
        self.is_ruled = !plan.rules.is_empty();
        self.rules = Arc::clone(&plan.rules);
        self.epoch = plan.epoch;
        let regroups = plan.beams.regroups(&before.plan.beams);
        self.end_beams(at, &plan.beams, regroups);
        self.changes.push_back(Change { at, plan, restart, epoch, since });
        self.version += 1;
        self.begin_beams(at, regroups, turned);
        self.generation = generation;
        at
    }

    /// Lets all pipes take the changes that they have not taken yet.
    pub fn settle_all(&mut self) {
        while self.oldest != self.version {
            self.settled = 0;
            self.settle();
        }
    }

    /// Lets some more pipes take the changes that they have not taken yet.
    fn settle(&mut self) {
        let (next, target) = match self.settling {
            Some(s) => s,
            None if self.oldest == self.version => return,
            None => (0, self.version),
        };
        let end = self.slots.len() as u32;
        let mut next = next;
        while next < end && self.settled < SETTLED {
            self.catch_up(next);
            next += 1;
        }
        self.settling = Some((next, target));
        if next < end {
            return;
        }
        self.settling = None;
        while self.oldest != target {
            self.oldest += 1;
            self.replaced.extend(self.changes.pop_front().map(|c| c.plan));
        }
    }

    /// The plan that was replaced by a change that all pipes have taken; each one once, in
    /// order.
    pub fn replaced(&mut self) -> Option<Plan> {
        self.replaced.pop_front()
    }

    /// Puts a tap on the frames of some clients, in the place of the one that was there, which
    /// is given back; or takes that away.
    pub fn set_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        self.store.set_tap(tap)
    }

    /// Brings one client up to `now`, another one on each call. One that was made for an address
    /// and has been idle for [`Limits::idle`] expires.
    pub fn keep_up(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.kept_up = (self.kept_up + 1) % self.clients();
        for d in Direction::BOTH {
            let id = pipe_id(self.kept_up as u32, d);
            self.advance_beam_of(id, self.now);
            self.catch_up(id);
            self.slots[id as usize].pipe.keep_up(&mut self.store, self.now);
            self.reschedule(id);
        }
        self.expire_if_idle(self.kept_up as u32);
    }

    /// Writes the accounts at `now` into `out`; with `mark`, starts the high-water
    /// marks and the lateness anew.
    pub fn snapshot(&mut self, now: Instant, mark: bool, out: &mut Snapshot) {
        out.clients.clear();
        self.snapshot_some(now, usize::MAX, mark, out);
    }

    /// As [`Engine::snapshot`], but a part at a time: each call adds up to `most` clients to
    /// those that `out` has, each with its accounts at that call's `now`. Returns whether
    /// that was all.
    pub fn snapshot_some(
        &mut self,
        now: Instant,
        most: usize,
        mark: bool,
        out: &mut Snapshot,
    ) -> bool {
        self.now = self.now.max(now);
        self.advance_beams(self.now);
        if out.clients.is_empty() {
            self.reported = 0;
        }
        let end = self.clients().min(self.reported.saturating_add(most));
        for client in self.reported..end {
            if self.is_vacant(client) {
                continue;
            }
            let pipes = Direction::BOTH.map(|d| {
                let id = pipe_id(client as u32, d);
                self.catch_up(id);
                let pipe = &mut self.slots[id as usize].pipe;
                pipe.serve_until(&mut self.store, self.now);
                let stats = pipe.stats();
                if mark {
                    pipe.mark();
                }
                self.reschedule(id);
                stats
            });
            let key = self.slots[2 * client].client;
            out.clients.push(ClientStats { key, pipes: ByDirection(pipes) });
        }
        self.reported = end;
        if end < self.clients() {
            return false;
        }
        self.reported = 0;
        out.clients.extend(self.expired.stats(mark));
        out.at = self.now;
        out.generation = self.generation;
        out.lateness = self.lateness.quantiles();
        out.malformed = self.malformed;
        out.unplaced = self.unplaced;
        out.store_capacity = self.store.capacity();
        out.store_used = self.store.used();
        out.store_used_max = self.store.used_max();
        out.buffers = self.store.buffers();
        if mark {
            self.lateness.reset();
            self.store.mark();
        }
        true
    }
}

#[inline]
fn pipe_id(client: u32, direction: Direction) -> u32 {
    client * 2 + direction as u32
}
