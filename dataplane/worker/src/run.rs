// SPDX-License-Identifier: Apache-2.0
//! The run loop.
//!
//! A turn at time `now`: commands, the change of plan that is due, arrivals of both
//! directions, release, flush. A change carries the instant at which it takes
//! effect, a little ahead, so that several workers take it at the same one; a turn
//! that comes late still applies it as of that instant, before it looks at the
//! ports. A turn receives one burst a port and releases [`BUDGET`] frames. Work that visits
//! all clients, a change or a report, visits some per turn: a frame of a client
//! that has not been visited yet meets the change nevertheless, as of its instant.
//! The longest time between two turns is in the report: a stall of the emulator shows
//! nowhere else.

use std::collections::VecDeque;
use std::time::Duration;

use emu::engine::{Departure, Egress, Engine};
use emu::units::{ByDirection, Direction, Instant, Nanos};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::command::{Change, Changed, Command, DEPTH, Inbox, Report, Waiting};
use crate::io::PacketIo;

/// Most frames that are released in a turn.
pub const BUDGET: usize = 256;
/// Clients that a turn adds to a report.
const CLIENTS: usize = 32;
/// Time between visits to one client after another, if there are
/// few,
const KEEP_UP_EVERY: Nanos = Nanos::from_millis(1);
/// and the time within which each one is visited.
const KEEP_UP_WITHIN: Nanos = Nanos::from_millis(500);
/// An adaptive worker polls for this long after the last frame before it sleeps,
const SPIN: Nanos = Nanos::from_micros(50);
/// wakes this long before the next departure,
const WAKE_AHEAD: Nanos = Nanos::from_micros(100);
/// and sleeps no longer than this.
const SLEEP_MAX: Nanos = Nanos::from_millis(1);
/// A shorter sleep is not worth its cost.
const SLEEP_MIN: Nanos = Nanos::from_micros(10);

/// Behaviour of an idle worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls on: the least lateness, and a core at full load.
    #[default]
    Busy,
    /// Polls for a while, then sleeps until a frame arrives or is nearly due.
    Adaptive,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub now: Instant,
    pub received: usize,
    pub released: usize,
}

/// A worker: an engine with its ports and its clock.
#[derive(Debug)]
pub struct Worker<I: PacketIo, C> {
    engine: Engine<I::Buffer>,
    io: I,
    clock: C,
    inbox: Inbox,
    idle: Idle,
    changes: VecDeque<Waiting>,
    /// Changes that some clients have yet to take, and their instants.
    settling: VecDeque<(Instant, oneshot::Sender<Changed>)>,
    /// Reports that are being written.
    reports: VecDeque<(bool, Box<Report>, oneshot::Sender<Box<Report>>)>,
    kept_up: Instant,
    /// When the next turn was expected.
    expected: Option<Instant>,
    stall_max: Nanos,
    stopped: bool,
}

/// The egress ports, and when a frame is handed to them.
struct Out<'a, I, C>(&'a mut I, &'a mut C);

impl<I: PacketIo, C: Clock> Egress<I::Buffer> for Out<'_, I, C> {
    fn offer(&mut self, departure: Departure<'_, I::Buffer>) -> bool {
        self.0.transmit(departure)
    }

    fn now(&mut self, _turn: Instant) -> Instant {
        self.1.now()
    }
}

impl<I: PacketIo, C: Clock> Worker<I, C> {
    /// A worker that is about to run.
    pub fn new(engine: Engine<I::Buffer>, io: I, clock: C, inbox: Inbox, idle: Idle) -> Self {
        Self {
            engine,
            io,
            clock,
            inbox,
            idle,
            changes: VecDeque::with_capacity(DEPTH),
            settling: VecDeque::with_capacity(DEPTH),
            reports: VecDeque::with_capacity(DEPTH),
            kept_up: Instant::ZERO,
            expected: None,
            stall_max: Nanos::ZERO,
            stopped: false,
        }
    }

    #[must_use]
    pub fn engine(&self) -> &Engine<I::Buffer> {
        &self.engine
    }

    #[must_use]
    pub fn io(&self) -> &I {
        &self.io
    }

    pub fn into_io(self) -> I {
        self.io
    }

    /// Runs until it is stopped.
    pub fn run(&mut self) {
        let mut active = Instant::ZERO;
        while !self.stopped {
            let turn = self.turn();
            if turn.received + turn.released > 0 {
                active = turn.now;
            } else {
                match self.idle {
                    // Lets the core's other thread work; under a hypervisor's
                    // instruction counting it lets time pass at all.
                    Idle::Busy => dpdk::pause(),
                    Idle::Adaptive => self.rest(turn.now, active),
                }
            }
        }
    }

    fn rest(&mut self, now: Instant, active: Instant) {
        // A report is written over many turns.
        if now.since(active) < SPIN || !self.reports.is_empty() {
            dpdk::pause();
            return;
        }
        let mut sleep = SLEEP_MAX;
        if let Some(deadline) = self.engine.next_deadline() {
            sleep = sleep.min((deadline - WAKE_AHEAD).since(now));
        }
        if let Some((change, _)) = self.changes.front() {
            sleep = sleep.min(change.at.since(now));
        }
        if sleep >= SLEEP_MIN {
            self.expected = Some(now + sleep);
            self.io.wait(Duration::from_nanos(sleep.0));
        } else {
            dpdk::pause();
        }
    }

    /// One turn of the loop.
    pub fn turn(&mut self) -> Turn {
        let now = self.clock.now();
        // A turn's own work counts as well: what arrives meanwhile waits.
        if let Some(expected) = self.expected.replace(now) {
            self.stall_max = self.stall_max.max(now.since(expected));
        }
        while let Some(command) = self.inbox.pop() {
            self.command(now, command);
        }
        self.make_changes(now);
        if self.stopped {
            // The final accounts have been sent: no frame moves after them.
            return Turn { now, received: 0, released: 0 };
        }
        self.write_reports(now);
        let Self { engine, io, clock, .. } = self;
        let received = io.receive(clock, engine);
        let released = engine.release(now, BUDGET, &mut Out(io, clock));
        io.flush(now);
        let each = KEEP_UP_WITHIN.0 / engine.clients() as u64;
        if now.since(self.kept_up) >= KEEP_UP_EVERY.min(Nanos(each)) {
            self.kept_up = now;
            engine.keep_up(now);
        }
        if !self.settling.is_empty() {
            self.answer();
        }
        Turn { now, received, released }
    }

    /// Applies changes that are due.
    fn make_changes(&mut self, now: Instant) {
        while self.changes.front().is_some_and(|(c, _)| c.at <= now) {
            if let Some((c, answer)) = self.changes.pop_front() {
                let Change { at, plan, generation, restart } = *c;
                let at = self.engine.apply(at, plan, generation, restart);
                self.settling.push_back((at, answer));
            }
        }
    }

    /// Answers changes that all clients have taken.
    fn answer(&mut self) {
        while let Some(replaced) = self.engine.replaced()
            && let Some((at, answer)) = self.settling.pop_front()
        {
            let _ = answer.send(Changed { at, replaced });
        }
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Apply(change, answer) => {
                // In the order of their instants; equal ones as they came.
                let at = self.changes.partition_point(|(c, _)| c.at <= change.at);
                self.changes.insert(at, (change, answer));
            }
            Command::TakeBack { generation, mut taken, answer } => {
                // Changes that are due stay, even if this turn is late.
                self.make_changes(now);
                while self.changes.back().is_some_and(|(c, _)| c.generation >= generation)
                    && let Some(change) = self.changes.pop_back()
                {
                    taken.push(change);
                }
                let _ = answer.send(taken);
            }
            Command::Report { mark, mut report, answer } => {
                report.snapshot.clients.clear();
                self.reports.push_back((mark, report, answer));
            }
            Command::Observe { observer, answer } => {
                let _ = answer.send(self.engine.set_observer(observer));
            }
            Command::Alive(answer) => {
                let _ = answer.send(self.engine.unplaced());
            }
            Command::Stop { mut report, answer } => {
                // Accounts at `now` are those after all changes up to then.
                self.make_changes(now);
                self.stopped = true;
                // Callers that still wait get an answer.
                self.engine.settle_all();
                self.answer();
                while let Some((mark, mut waiting, answer)) = self.reports.pop_front() {
                    self.report(now, mark, &mut waiting);
                    let _ = answer.send(waiting);
                }
                self.report(now, false, &mut report);
                let _ = answer.send(report);
            }
        }
    }

    /// Adds some more clients to the reports that are being written.
    fn write_reports(&mut self, now: Instant) {
        if let Some((mark, report, _)) = self.reports.front_mut()
            && self.engine.snapshot_some(now, CLIENTS, *mark, &mut report.snapshot)
            && let Some((mark, mut report, answer)) = self.reports.pop_front()
        {
            self.account_ports(mark, &mut report);
            let _ = answer.send(report);
        }
    }

    /// Writes the accounts into `report`, all at once.
    pub fn report(&mut self, now: Instant, mark: bool, report: &mut Report) {
        self.engine.snapshot(now, mark, &mut report.snapshot);
        self.account_ports(mark, report);
    }

    fn account_ports(&mut self, mark: bool, report: &mut Report) {
        report.egress = ByDirection(Direction::BOTH.map(|d| self.io.egress(d)));
        report.stall_max = self.stall_max;
        if mark {
            self.stall_max = Nanos::ZERO;
        }
    }
}
