// SPDX-License-Identifier: Apache-2.0
//! The clients of one worker.
//!
//! Invariant of the run loop: within a turn at `now`, first the change that is
//! due, then the arrivals, then the release. Times never go back; one that does is
//! taken as the latest seen. Runs on one worker's thread, which owns it.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hdrhistogram::Histogram;

use crate::classify::{Class, classify};
use crate::client::ClientKey;
use crate::pipe::Pipe;
use crate::plan::{PipePlan, Plan};
use crate::rng::StreamKey;
use crate::stats::{ClientStats, DropReason, Lateness, Snapshot};
use crate::store::{MAX_FRAME, Store};
use crate::units::{ByDirection, Direction, Instant, Nanos};
use crate::wheel::Wheel;

/// Frames that a pipe releases before the next pipe has its turn.
const QUANTUM: usize = 32;
/// Lateness above this is counted as this.
const MAX_LATENESS: Nanos = Nanos::from_secs(3600);

const BYPASS: u32 = 0;
const DEFAULT: u32 = 1;
/// Clients that are always there.
const FIXED: u32 = 2;

/// A frame that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<'a> {
    /// Whose it is.
    pub client: ClientKey,
    /// Which way it goes.
    pub direction: Direction,
    /// When it was due.
    pub due: Instant,
    /// The frame.
    pub frame: &'a [u8],
}

/// Where frames leave to.
pub trait Egress {
    /// Takes a frame, or refuses it with `false`: then it stays at the head of its
    /// pipe and is offered again.
    fn offer(&mut self, departure: Departure<'_>) -> bool;
}

impl<F: FnMut(Departure<'_>) -> bool> Egress for F {
    fn offer(&mut self, departure: Departure<'_>) -> bool {
        self(departure)
    }
}

/// The limits of an engine, fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the packet store in bytes.
    pub memory: usize,
    /// Most clients that are made for addresses.
    pub clients: u32,
    /// Longest frame that the ports can send, FCS excluded.
    pub frame: u32,
}

#[derive(Debug)]
struct Client {
    key: ClientKey,
    pipes: ByDirection<Pipe>,
}

/// The clients of one worker, and what they hold.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    store: Store,
    clients: Vec<Client>,
    index: HashMap<ClientKey, u32, FixedState>,
    wheel: Wheel,
    /// Pipes with a frame due, in turn. Each pipe is here, in the wheel or in neither.
    ready: std::collections::VecDeque<u32>,
    is_ready: Vec<bool>,
    plan: Plan,
    /// Since when each direction's rate trace runs.
    since: ByDirection<Instant>,
    bypass: PipePlan,
    generation: u64,
    /// Changes since the random processes began.
    epoch: u32,
    now: Instant,
    lateness: Histogram<u64>,
    malformed: ByDirection<u64>,
    kept_up: usize,
}

impl Engine {
    /// An engine with the `bypass` and `default` clients and a plan whose processes
    /// start at `at`, as generation 0.
    ///
    /// # Errors
    /// If the histogram's bounds are refused; they are fixed and valid.
    pub fn new(
        limits: Limits,
        plan: Plan,
        at: Instant,
    ) -> Result<Self, hdrhistogram::CreationError> {
        let limits = Limits { frame: limits.frame.min(MAX_FRAME), ..limits };
        let room = (limits.clients + FIXED) as usize;
        let mut engine = Self {
            limits,
            store: Store::new(limits.memory),
            clients: Vec::with_capacity(room),
            index: HashMap::with_capacity_and_hasher(room, FixedState::with_seed(plan.seed)),
            wheel: Wheel::default(),
            ready: std::collections::VecDeque::with_capacity(2 * room),
            is_ready: vec![false; 2 * room],
            plan,
            since: ByDirection([at; 2]),
            bypass: PipePlan::transparent(),
            generation: 0,
            epoch: 0,
            now: at,
            lateness: Histogram::new_with_max(MAX_LATENESS.0, 2)?,
            malformed: ByDirection::default(),
            kept_up: 0,
        };
        engine.wheel.grow(2 * room);
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

    fn admit(&mut self, key: ClientKey) -> u32 {
        let id = self.clients.len() as u32;
        let pipes = Direction::BOTH.map(|direction| {
            let bypass = key == ClientKey::Bypass;
            let plan = if bypass { &self.bypass } else { &self.plan.pipes[direction] };
            let stream = StreamKey { seed: self.plan.seed, client: key, direction, epoch: 0 };
            Pipe::new(plan, stream, self.now, self.since[direction])
        });
        self.clients.push(Client { key, pipes: ByDirection(pipes) });
        self.index.insert(key, id);
        id
    }

    fn client(&mut self, key: ClientKey) -> u32 {
        match key {
            ClientKey::Bypass => BYPASS,
            ClientKey::Default => DEFAULT,
            ClientKey::Ip(_) => match self.index.get(&key) {
                Some(id) => *id,
                None if self.clients.len() < (self.limits.clients + FIXED) as usize => {
                    self.admit(key)
                }
                None => DEFAULT,
            },
        }
    }

    /// A frame arrived at `at` on the ingress port of `direction`.
    #[inline]
    pub fn arrive(&mut self, at: Instant, direction: Direction, frame: &[u8]) {
        self.now = self.now.max(at);
        // Longer ones are rejected below.
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let (id, reject) = match classify(frame, direction) {
            Class::Runt => (BYPASS, Some(DropReason::Runt)),
            _ if len > self.limits.frame => (BYPASS, Some(DropReason::Oversize)),
            Class::Client(key) => (self.client(key), None),
            Class::Malformed => {
                self.malformed[direction] += 1;
                (DEFAULT, None)
            }
        };
        let pipe = &mut self.clients[id as usize].pipes[direction];
        if let Some(reason) = reject {
            pipe.reject(reason, len);
            return;
        }
        let before = pipe.deadline(&self.store);
        pipe.arrive(&mut self.store, self.now, frame, len);
        // Later frames never make a pipe due earlier, so the wheel is told only
        // when the first one came.
        if before.is_none() {
            self.reschedule(pipe_id(id, direction));
        }
    }

    fn reschedule(&mut self, id: u32) {
        if self.is_ready[id as usize] {
            return;
        }
        let deadline = self.pipe(id).deadline(&self.store);
        match deadline {
            Some(t) => self.wheel.schedule(id, t),
            None => self.wheel.cancel(id),
        }
    }

    fn pipe(&self, id: u32) -> &Pipe {
        &self.clients[id as usize / 2].pipes.0[id as usize % 2]
    }

    /// Offers up to `budget` frames that are due at `now` to `egress`, pipe by pipe
    /// in turns of a few frames. Returns how many it took.
    pub fn release(&mut self, now: Instant, budget: usize, egress: &mut impl Egress) -> usize {
        self.now = self.now.max(now);
        let now = self.now;
        let (ready, is_ready) = (&mut self.ready, &mut self.is_ready);
        self.wheel.expire(now, |id| {
            ready.push_back(id);
            is_ready[id as usize] = true;
        });
        let mut sent = 0;
        let mut refused = ByDirection([false; 2]);
        // Each ready pipe is looked at; one that has more is asked again while the
        // budget lasts.
        let mut looked = 0;
        while sent < budget && looked < self.ready.len() {
            let Some(id) = self.ready.pop_front() else { break };
            let direction = Direction::BOTH[id as usize % 2];
            if refused[direction] {
                self.ready.push_back(id);
                looked += 1;
                continue;
            }
            let client = &mut self.clients[id as usize / 2];
            let pipe = &mut client.pipes[direction];
            pipe.serve_until(&mut self.store, now);
            let turn = QUANTUM.min(budget - sent);
            let mut n = 0;
            while n < turn
                && let Some(ready) = pipe.due(&self.store, now)
            {
                let (due, len) = (ready.due, ready.frame.len() as u32);
                let departure =
                    Departure { client: client.key, direction, due, frame: ready.frame };
                if !egress.offer(departure) {
                    refused[direction] = true;
                    break;
                }
                self.lateness.saturating_record(now.since(due).0);
                pipe.sent(&mut self.store, len);
                n += 1;
            }
            sent += n;
            if n > 0 {
                looked = 0;
            }
            if pipe.due(&self.store, now).is_some() {
                self.ready.push_back(id);
                looked += usize::from(refused[direction]);
            } else {
                self.is_ready[id as usize] = false;
                self.reschedule(id);
            }
        }
        sent
    }

    /// When there is next something to release; frames that the egress refused
    /// count as due now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.wheel.next_deadline() } else { Some(self.now) }
    }

    /// Puts a plan in force at `at`, for every pipe of both directions, as
    /// `generation`. With `restart`, all random processes begin anew. A rate trace that
    /// stays goes on, unless there is a restart. Returns the plan that it replaces, and when it did: `at`, or the latest time seen if that is later.
    pub fn apply(
        &mut self,
        at: Instant,
        plan: Plan,
        generation: u64,
        restart: bool,
    ) -> (Plan, Instant) {
        self.now = self.now.max(at);
        for direction in Direction::BOTH {
            if restart || plan.pipes[direction].rate != self.plan.pipes[direction].rate {
                self.since[direction] = self.now;
            }
        }
        let replaced = std::mem::replace(&mut self.plan, plan);
        self.generation = generation;
        self.epoch = if restart { 0 } else { self.epoch.wrapping_add(1) };
        // The bypass keeps its own plan.
        for id in BYPASS + 1..self.clients.len() as u32 {
            for direction in Direction::BOTH {
                let c = &mut self.clients[id as usize];
                let (seed, epoch) = (self.plan.seed, self.epoch);
                let key = StreamKey { seed, client: c.key, direction, epoch };
                let (plan, since) = (&self.plan.pipes[direction], self.since[direction]);
                c.pipes[direction].replan(&mut self.store, plan, key, self.now, since, restart);
                self.reschedule(pipe_id(id, direction));
            }
        }
        (replaced, self.now)
    }

    /// Brings one client up to `now`, another one on each call.
    pub fn keep_up(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.kept_up = (self.kept_up + 1) % self.clients.len();
        for d in Direction::BOTH {
            self.clients[self.kept_up].pipes[d].keep_up(&mut self.store, self.now);
            self.reschedule(pipe_id(self.kept_up as u32, d));
        }
    }

    /// Writes the accounts at `now` into `out`; with `mark`, starts the high-water
    /// marks and the lateness anew.
    pub fn snapshot(&mut self, now: Instant, mark: bool, out: &mut Snapshot) {
        self.now = self.now.max(now);
        out.at = self.now;
        out.generation = self.generation;
        out.clients.clear();
        for i in 0..self.clients.len() {
            for d in Direction::BOTH {
                self.clients[i].pipes[d].serve_until(&mut self.store, self.now);
                self.reschedule(pipe_id(i as u32, d));
            }
            let c = &mut self.clients[i];
            let pipes = ByDirection(c.pipes.0.each_ref().map(|p| *p.stats()));
            out.clients.push(ClientStats { key: c.key, pipes });
            if mark {
                c.pipes.0.iter_mut().for_each(Pipe::mark);
            }
        }
        out.lateness = Lateness::of(&self.lateness);
        out.malformed = self.malformed;
        out.store_capacity = self.store.capacity();
        out.store_used = self.store.used();
        out.store_used_max = self.store.used_max();
        if mark {
            self.lateness.reset();
            self.store.mark();
        }
    }
}

fn pipe_id(client: u32, direction: Direction) -> u32 {
    client * 2 + direction as u32
}
