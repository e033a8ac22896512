// SPDX-License-Identifier: Apache-2.0
//! The run loop.
//!
//! A turn at time `now`: commands, the change of plan that is due, arrivals of both
//! directions, release, flush. A change carries the instant at which it takes
//! effect, a little ahead, so that several workers take it at the same one; a turn
//! that comes late still applies it as of that instant, before it looks at the
//! ports. A turn receives one burst a port and releases [`BUDGET`] frames. Work that visits
//! all clients, a change or a report, visits some per turn: a frame of a client
//! that has not been visited yet meets the change nevertheless, as of its instant. So that such
//! turns are short, they receive fewer frames.
//! The longest time between two turns is in the report: a stall of the emulator shows
//! nowhere else.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use emu::engine::{Departure, Egress, Engine};
use emu::links::{Links, MAX_LINKS, Via};
use emu::units::{ByDirection, Direction, Instant, Nanos};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::command::{Change, Changed, Command, DEPTH, Inbox, Report, Spare, Visit, Waiting};
use crate::io::PacketIo;
use crate::rest::{Rest, Wait};

/// Most frames that are released in a turn.
pub const BUDGET: usize = 256;
/// Most frames that a turn receives from a port,
const BURST: usize = dpdk::RX_BURST;
/// and while some clients have yet to take a change, which each frame's client does before its fate is decided.
const BURST_IN_CHANGE: usize = 8;
/// Clients that a turn adds to a report, or visits.
const CLIENTS: usize = 32;
/// Time between visits to one client after another, if there are
/// few,
const KEEP_UP_EVERY: Nanos = Nanos::from_millis(1);
/// and the time within which each one is visited.
const KEEP_UP_WITHIN: Nanos = Nanos::from_millis(500);

/// Behaviour of an idle worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls on: the least lateness, and a core at full load.
    #[default]
    Busy,
    /// Sleeps while frames are few: see the module `rest`.
    Adaptive,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub now: Instant,
    pub received: usize,
    pub released: usize,
}

/// A report about a link that is being written, whether it marks, and where it goes.
type Writing = (usize, bool, Box<Report>, oneshot::Sender<Box<Report>>);

/// Visits to clients of a link, of which so many were made, and where they go.
type Visiting = (usize, usize, Vec<Visit>, oneshot::Sender<Vec<Visit>>);

/// A worker: links with their ports and their clock.
#[derive(Debug)]
pub struct Worker<I: PacketIo, C> {
    links: Links<I::Buffer>,
    io: I,
    clock: C,
    inbox: Inbox,
    idle: Idle,
    /// In the order of their instants.
    changes: VecDeque<Waiting>,
    /// Changes that some clients of a link have yet to take, and their instants.
    settling: VecDeque<(usize, Instant, oneshot::Sender<Changed>)>,
    /// Reports that are being written.
    reports: VecDeque<Writing>,
    visits: VecDeque<Visiting>,
    kept_up: Instant,
    /// When the next turn was expected.
    expected: Option<Instant>,
    /// The longest stall since the last report to any link,
    stall_max: Nanos,
    /// and since the last mark of each link, up to that report.
    stalls: Vec<Nanos>,
    stopped: bool,
}

/// The egress ports, and when a frame is handed to them.
struct Out<'a, I, C>(&'a mut I, &'a mut C);

impl<I: PacketIo, C: Clock> Egress<I::Buffer> for Out<'_, I, C> {
    #[inline(always)]
    fn offer(&mut self, departure: Departure<'_, I::Buffer>) -> bool {
        self.0.transmit(departure)
    }

    fn is_full(&self, direction: Direction) -> bool {
        self.0.is_full(direction)
    }

    fn now(&mut self, _turn: Instant) -> Instant {
        self.1.now()
    }
}

impl<I: PacketIo, C: Clock> Worker<I, C> {
    /// A worker that is about to run, with the engine of the link `main`.
    pub fn new(main: Engine<I::Buffer>, io: I, clock: C, inbox: Inbox, idle: Idle) -> Self {
        inbox.makes::<I::Buffer>();
        Self {
            links: Links::new(main).with_tail(I::TAG),
            io,
            clock,
            inbox,
            idle,
            changes: VecDeque::with_capacity(DEPTH),
            settling: VecDeque::with_capacity(DEPTH),
            reports: VecDeque::with_capacity(DEPTH),
            visits: VecDeque::with_capacity(DEPTH),
            kept_up: Instant::ZERO,
            expected: None,
            stall_max: Nanos::ZERO,
            stalls: vec![Nanos::ZERO; MAX_LINKS],
            stopped: false,
        }
    }

    #[must_use]
    pub fn links(&self) -> &Links<I::Buffer> {
        &self.links
    }

    pub fn links_mut(&mut self) -> &mut Links<I::Buffer> {
        &mut self.links
    }

    #[must_use]
    pub fn io(&self) -> &I {
        &self.io
    }

    pub fn into_io(self) -> I {
        self.io
    }

    /// Discards what came before the worker was ready: to be called right before [`Self::run`].
    pub fn discard(&mut self) {
        self.io.discard();
    }

    /// Runs until it is stopped.
    pub fn run(&mut self) {
        let mut rest = Rest::new();
        while !self.stopped {
            let turn = self.turn();
            match (self.idle, turn.received + turn.released) {
                // Lets the core's other thread work; under a hypervisor's
                // instruction counting it lets time pass at all.
                (Idle::Busy, 0) => dpdk::pause(),
                (Idle::Busy, _) => (),
                (Idle::Adaptive, 0) => self.rest(turn.now, &mut rest),
                (Idle::Adaptive, moved) => rest.moved(turn.now, moved),
            }
        }
    }

    fn rest(&mut self, now: Instant, rest: &mut Rest) {
        let change = self.changes.front().map(|(_, change, _)| change.at);
        let due = self.links.next_deadline().into_iter().chain(change).min();
        // Reports and visits take many turns.
        let wait = if self.reports.is_empty() && self.visits.is_empty() {
            rest.wait(now, due.unwrap_or(Instant::MAX))
        } else {
            Wait::Poll
        };
        let (Wait::Frame(until) | Wait::Deaf(until)) = wait else {
            dpdk::pause();
            return;
        };
        // A change takes effect at its instant, whatever a sleep costs.
        let until = change.map_or(until, |at| until.min(at));
        let timeout = Duration::from_nanos(until.since(now).0);
        // While no frame wakes the worker, those that arrive wait.
        self.expected = Some(if matches!(wait, Wait::Deaf(_)) { now } else { until });
        let before = rest.measures().then(dpdk::thread_time);
        let by_frame = match wait {
            Wait::Frame(_) => self.io.wait(timeout),
            _ => {
                thread::sleep(timeout);
                false
            }
        };
        let took = before.map(|before| dpdk::thread_time().saturating_sub(before));
        let took = took.map(|took| Nanos(took.as_nanos() as u64));
        let now = self.clock.now();
        rest.slept(now, (!by_frame && now >= until).then_some(until), took);
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
        self.make_visits(now, CLIENTS);
        let Self { links, io, clock, .. } = self;
        let burst = if self.settling.is_empty() { BURST } else { BURST_IN_CHANGE };
        let received = io.receive(clock, links, burst);
        let released = links.release(now, BUDGET, &mut Out(io, clock));
        io.flush(now);
        let since = now.since(self.kept_up);
        let all = since.0.saturating_mul(links.clients() as u64);
        if since >= KEEP_UP_EVERY || all >= KEEP_UP_WITHIN.0 {
            self.kept_up = now;
            links.keep_up(now);
        }
        if !self.settling.is_empty() {
            self.answer();
        }
        Turn { now, received, released }
    }

    /// Applies changes that are due.
    fn make_changes(&mut self, now: Instant) {
        while self.changes.front().is_some_and(|(_, c, _)| c.at <= now) {
            let Some((link, c, answer)) = self.changes.pop_front() else { break };
            self.pass_on(link, c.at);
            if let Some(engine) = self.links.link(link) {
                let Change { at, plan, generation, restart } = *c;
                let at = engine.apply(at, plan, generation, restart);
                self.settling.push_back((link, at, answer));
            }
        }
    }

    /// Answers changes that all clients of their link have taken.
    fn answer(&mut self) {
        let mut next = 0;
        while let Some((link, ..)) = self.settling.get(next) {
            // Of several changes of a link the first one is answered first.
            match self.links.link(*link).map(Engine::replaced) {
                Some(None) => next += 1,
                replaced => {
                    if let Some((_, at, answer)) = self.settling.remove(next)
                        && let Some(Some(replaced)) = replaced
                    {
                        let _ = answer.send(Changed { at, replaced });
                    }
                }
            }
        }
    }

    fn add_link(&mut self, link: usize, engine: Spare, via: Option<Via>) -> bool {
        engine.engine().is_some_and(|engine| self.links.add(link, engine, via).is_ok())
    }

    /// Lets frames that are due at `now` pass on, before something else happens to a link that they
    /// leave or enter.
    fn pass_on(&mut self, link: usize, now: Instant) {
        let Self { links, io, clock, .. } = self;
        if links.is_chained(link) {
            links.release_chains(now, BUDGET, &mut Out(io, clock));
        }
    }

    fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Apply(change) => {
                // In the order of their instants; equal ones as they came.
                let at = self.changes.partition_point(|(_, c, _)| c.at <= change.1.at);
                self.changes.insert(at, change);
            }
            Command::TakeBack { link, generation, mut taken, answer } => {
                // Changes that are due stay, even if this turn is late.
                self.make_changes(now);
                for place in (0..self.changes.len()).rev() {
                    let found = self.changes.get(place);
                    if found.is_some_and(|(l, c, _)| *l == link && c.generation >= generation) {
                        taken.extend(self.changes.remove(place));
                    }
                }
                let _ = answer.send(taken);
            }
            Command::Report { link, mark, mut report, answer } => {
                report.snapshot.clients.clear();
                self.reports.push_back((link, mark, report, answer));
            }
            Command::Visit { link, visits, answer } => {
                self.visits.push_back((link, 0, visits, answer));
            }
            Command::Observe { link, observer, answer } => {
                if let Some(engine) = self.links.link(link) {
                    let _ = answer.send(engine.set_observer(observer));
                }
            }
            Command::AddLink { link, engine, via, answer } => {
                // No answer if the number is in use, or the shared link does not exist.
                if self.add_link(link, engine, via) {
                    self.stalls[link] = Nanos::ZERO;
                    let _ = answer.send(());
                }
            }
            Command::RemoveLink { link, answer } => {
                let _ = answer.send(self.links.remove(link).map(Spare::from));
            }
            Command::SetMemory { link, bytes, answer } => {
                if let Some(engine) = self.links.link(link) {
                    engine.set_memory(bytes);
                    let _ = answer.send(());
                }
            }
            Command::SetBoard { at, board, answer } => {
                let at = at.max(now);
                let _ = answer.send((at, self.links.set_board(at, board)));
            }
            Command::Alive(answer) => {
                let _ = answer.send(self.links.unplaced());
            }
            Command::Stop { link, mut report, answer } => {
                // Accounts at `now` are those after all changes up to then.
                self.make_changes(now);
                self.stopped = true;
                // Callers that still wait get an answer.
                self.links.settle_all();
                self.answer();
                while !self.visits.is_empty() {
                    self.make_visits(now, usize::MAX);
                }
                while let Some((link, mark, mut waiting, answer)) = self.reports.pop_front() {
                    self.report(link, now, mark, &mut waiting);
                    let _ = answer.send(waiting);
                }
                self.report(link, now, false, &mut report);
                let _ = answer.send(report);
            }
        }
    }

    /// Adds some more clients to the reports that are being written.
    fn write_reports(&mut self, now: Instant) {
        let Some((link, ..)) = self.reports.front() else { return };
        self.pass_on(*link, now);
        let Some((link, mark, report, _)) = self.reports.front_mut() else { return };
        let done = self
            .links
            .link(*link)
            .is_none_or(|it| it.snapshot_some(now, CLIENTS, *mark, &mut report.snapshot));
        if done && let Some((link, mark, mut report, answer)) = self.reports.pop_front() {
            self.account_ports(link, mark, &mut report);
            let _ = answer.send(report);
        }
    }

    /// Makes up to `most` of the visits that wait.
    fn make_visits(&mut self, now: Instant, most: usize) {
        let Some((link, made, visits, _)) = self.visits.front_mut() else { return };
        if let Some(engine) = self.links.link(*link) {
            for visit in visits.iter_mut().skip(*made).take(most) {
                visit.found = engine.visit(now, visit.key, visit.hold);
            }
        }
        *made = made.saturating_add(most);
        if *made >= visits.len()
            && let Some((_, _, visits, answer)) = self.visits.pop_front()
        {
            let _ = answer.send(visits);
        }
    }

    /// Writes the accounts of a link into `report`, all at once.
    pub fn report(&mut self, link: usize, now: Instant, mark: bool, report: &mut Report) {
        if let Some(engine) = self.links.link(link) {
            engine.snapshot(now, mark, &mut report.snapshot);
        }
        self.account_ports(link, mark, report);
    }

    fn account_ports(&mut self, link: usize, mark: bool, report: &mut Report) {
        let of = |pair| ByDirection(Direction::BOTH.map(|d| self.io.egress(pair, d)));
        report.egress = std::array::from_fn(of);
        // Each link has had the stall since the last report to any of them.
        let recent = std::mem::take(&mut self.stall_max);
        self.stalls.iter_mut().for_each(|stall| *stall = recent.max(*stall));
        if let Some(stall) = self.stalls.get_mut(link) {
            report.stall_max = *stall;
            if mark {
                *stall = Nanos::ZERO;
            }
        }
    }
}
