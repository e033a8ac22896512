// SPDX-License-Identifier: Apache-2.0
//! Commands from other threads to a worker.
//!
//! Commands go through a bounded lock-free queue that the run loop looks into once
//! a turn. The caller allocates their contents, and reports and replaced plans go
//! back with the answer, to be freed there.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use emu::client::ClientKey;
use emu::engine::{Engine, EngineError, Hold, HoldError, Limits};
use emu::frame::Buffer;
use emu::links::{Board, MAIN, Via};
use emu::matches::MAX_PAIRS;
use emu::observe::Observer;
use emu::pipe::Look;
use emu::plan::Plan;
use emu::stats::Snapshot;
use emu::units::{ByDirection, Instant, Nanos};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::capture::{Capture, Numbers};
use crate::edge::{Edge, Tail};
use crate::io::EgressCounters;

/// Commands of all links that may wait for a worker, and changes that wait in it.
pub(crate) const DEPTH: usize = 2048;
/// Changes of a link that are withdrawn at a time; more need an allocation.
const TAKEN: usize = 64;

#[derive(Debug)]
pub struct Change {
    /// When it takes effect, also if that has passed.
    pub at: Instant,
    pub plan: Plan,
    pub generation: u64,
    /// Whether all random processes restart.
    pub restart: bool,
}

/// Makes an engine for a worker with its buffers, which that worker alone knows.
type Make = fn(Limits, Plan, Instant) -> Result<Spare, EngineError>;

/// An engine that is on its way to a worker, or back.
#[derive(Debug)]
pub struct Spare(Box<dyn Any + Send>);

impl Spare {
    fn make<B: Buffer + Send + 'static>(
        limits: Limits,
        plan: Plan,
        at: Instant,
    ) -> Result<Self, EngineError> {
        Ok(Self::from(Box::new(Engine::<B>::sharing(limits, plan, at)?)))
    }

    pub(crate) fn from<B: Buffer + Send + 'static>(engine: Box<Engine<B>>) -> Self {
        Self(engine)
    }

    /// None if it was made for other buffers.
    pub(crate) fn engine<B: Buffer + 'static>(self) -> Option<Box<Engine<B>>> {
        self.0.downcast().ok()
    }
}

/// A pending change of a link, and the channel for the answer.
pub type Waiting = (usize, Box<Change>, oneshot::Sender<Changed>);

/// A change that was made.
#[derive(Debug)]
pub struct Changed {
    /// When it took effect: at the requested instant, or later if that had passed when
    /// the worker heard of it.
    pub at: Instant,
    pub replaced: Plan,
}

/// A visit to a client.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub key: ClientKey,
    pub hold: Hold,
    /// The answer.
    pub found: Result<ByDirection<Look>, HoldError>,
}

impl Visit {
    /// One that is yet to be made.
    #[must_use]
    pub fn new(key: ClientKey, hold: Hold) -> Self {
        Self { key, hold, found: Ok(ByDirection::default()) }
    }
}

/// The accounts of a worker.
#[derive(Debug, Default)]
pub struct Report {
    pub snapshot: Snapshot,
    /// The egress ports', by their pair and the direction that leaves through them.
    pub egress: [ByDirection<EgressCounters>; MAX_PAIRS],
    /// The longest time between two turns since the last mark, less what the worker
    /// meant to sleep. A frame that arrived in it was late by up to as much, unseen.
    pub stall_max: Nanos,
}

/// Why there is no engine for another link.
#[derive(Debug, Error)]
pub enum MakeError {
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Gone(CommandError),
}

/// A request to a worker, with the way to answer.
#[derive(Debug)]
pub enum Command {
    /// Apply a plan to a link; answers when it is applied.
    Apply(Waiting),
    /// Withdraw a link's pending changes from a generation on.
    TakeBack {
        link: usize,
        /// First generation to withdraw.
        generation: u64,
        /// Empty, with room for all that can wait.
        taken: Vec<Waiting>,
        /// The withdrawn changes, the last one first.
        answer: oneshot::Sender<Vec<Waiting>>,
    },
    Report {
        link: usize,
        /// Then reset the high-water marks and the lateness.
        mark: bool,
        /// A report with room for all clients.
        report: Box<Report>,
        answer: oneshot::Sender<Box<Report>>,
    },
    /// Replace the observer of a link; answers with the old one.
    Observe {
        link: usize,
        /// The new one, if any.
        observer: Option<Box<dyn Observer>>,
        answer: oneshot::Sender<Option<Box<dyn Observer>>>,
    },
    /// Visit clients of a link, some in each turn; answers with what they have, in the order of the
    /// list.
    Visit { link: usize, visits: Vec<Visit>, answer: oneshot::Sender<Vec<Visit>> },
    /// Add a link under a free number.
    AddLink { link: usize, engine: Spare, via: Option<Via>, answer: oneshot::Sender<()> },
    /// Remove a link that holds no frame; answers with its engine, or with none if it holds one.
    RemoveLink { link: usize, answer: oneshot::Sender<Option<Spare>> },
    /// Set the bytes that a link may store.
    SetMemory { link: usize, bytes: usize, answer: oneshot::Sender<()> },
    /// Assign frames that arrive from an instant on to links; answers with the instant, which is
    /// later if that had passed, and an older board.
    SetBoard { at: Instant, board: Arc<Board>, answer: oneshot::Sender<(Instant, Arc<Board>)> },
    /// Answer, as a proof that the run loop makes progress.
    Alive(oneshot::Sender<u64>),
    /// Leave the run loop; answers with the last accounts.
    Stop {
        link: usize,
        /// A report with room for all clients.
        report: Box<Report>,
        answer: oneshot::Sender<Box<Report>>,
    },
}

/// The answer of a worker; an error if it has ended.
pub type Answer<T> = oneshot::Receiver<T>;

/// Why a worker did not answer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CommandError {
    /// Its queue of commands is full.
    #[error("the worker has {DEPTH} requests waiting: try again later")]
    Busy,
    /// Its thread has ended.
    #[error("the worker has ended")]
    Gone,
}

#[derive(Debug)]
struct Queue {
    commands: ArrayQueue<Command>,
    make: OnceLock<Make>,
    /// The worker takes no more commands.
    ended: AtomicBool,
}

/// The caller's end of a worker's queue of commands, for one of its links.
#[derive(Clone, Debug)]
pub struct Handle {
    queue: Arc<Queue>,
    link: usize,
    /// Clients of the link.
    room: usize,
    /// Ends the tags of frames.
    tail: Tail,
    /// NUMA node of the worker's core, if known.
    node: Option<u32>,
    captured: Numbers,
}

#[derive(Debug)]
pub struct Inbox(Arc<Queue>);

/// The fixed clients come on top.
fn room(clients: usize) -> usize {
    clients + 2
}

/// A queue of commands for a worker. The first link has up to `clients` clients.
#[must_use]
pub fn channel(clients: usize) -> (Handle, Inbox) {
    let queue = Arc::new(Queue {
        commands: ArrayQueue::new(DEPTH),
        make: OnceLock::new(),
        ended: AtomicBool::new(false),
    });
    let handle = Handle {
        queue: queue.clone(),
        link: MAIN,
        room: room(clients),
        tail: Tail::None,
        node: None,
        captured: Numbers::default(),
    };
    (handle, Inbox(queue))
}

impl Queue {
    /// Drops all commands, so that their callers learn that there is no answer.
    fn refuse(&self) {
        while self.commands.pop().is_some() {}
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.refuse();
    }
}

impl Inbox {
    #[inline]
    pub fn pop(&mut self) -> Option<Command> {
        self.0.commands.pop()
    }

    /// Makes engines with these buffers from now on.
    pub(crate) fn makes<B: Buffer + Send + 'static>(&self) {
        let _ = self.0.make.set(Spare::make::<B>);
    }
}

impl Handle {
    /// The same worker, for another link with up to `clients` clients.
    #[must_use]
    pub fn of_link(&self, link: usize, clients: usize) -> Self {
        let captured = Numbers::default();
        Self { link, room: room(clients), captured, ..self.clone() }
    }

    /// For a worker with ports that put this tail into the tags of frames.
    #[must_use]
    pub fn with_tail(self, tail: Tail) -> Self {
        Self { tail, ..self }
    }

    /// Sets the NUMA node of the worker's core.
    #[must_use]
    pub fn with_node(self, node: Option<u32>) -> Self {
        Self { node, ..self }
    }

    /// For a link that others pass.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { tail: self.tail.shared(), ..self }
    }

    fn report_room(&self) -> Box<Report> {
        Box::new(Report { snapshot: Snapshot::with_room_for(self.room), ..Report::default() })
    }

    /// Whether it takes a command now, unless another thread sends one first.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Commands that it takes now, unless another thread sends one first.
    #[must_use]
    pub fn room(&self) -> usize {
        DEPTH.saturating_sub(self.queue.commands.len())
    }

    fn push(&self, command: Command) -> Result<(), CommandError> {
        let pushed = self.queue.commands.push(command).map_err(|_| CommandError::Busy);
        // Checked afterwards: a worker that ends meanwhile may have missed it.
        if self.queue.ended.load(Ordering::SeqCst) {
            self.queue.refuse();
            return Err(CommandError::Gone);
        }
        pushed
    }

    /// Requests a change of plan. The answer comes when it is applied.
    ///
    /// # Errors
    /// If the worker does not take the command; nothing will change then.
    pub fn apply(&self, change: Change) -> Result<Answer<Changed>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Apply((self.link, Box::new(change), answer)))?;
        Ok(answered)
    }

    /// Requests to withdraw pending changes from a generation on. The
    /// answer has them, the last one first; a caller that waits for one gets an error when
    /// it is dropped.
    ///
    /// # Errors
    /// If the worker does not take the command; then nothing is withdrawn.
    pub fn take_back(&self, generation: u64) -> Result<Answer<Vec<Waiting>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        let taken = Vec::with_capacity(TAKEN);
        self.push(Command::TakeBack { link: self.link, generation, taken, answer })?;
        Ok(answered)
    }

    /// Requests a withdrawn change again.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn give_back(&self, change: Waiting) -> Result<(), CommandError> {
        self.push(Command::Apply(change))
    }

    /// Requests the accounts; with `mark`, the high-water marks are reset
    /// afterwards.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn report(&self, mark: bool) -> Result<Answer<Box<Report>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Report { link: self.link, mark, report: self.report_room(), answer })?;
        Ok(answered)
    }

    /// Requests to replace the current capture, or to end it. The caller drops the answer,
    /// so that the worker frees nothing.
    ///
    /// # Errors
    /// If the worker does not take the command; then nothing changes.
    pub fn capture(
        &self,
        capture: Option<Capture>,
    ) -> Result<Answer<Option<Box<dyn Observer>>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        let capture = capture.map(|c| c.counting(self.captured.clone()));
        let observer = Edge::observer(self.tail, capture);
        self.push(Command::Observe { link: self.link, observer, answer })?;
        Ok(answered)
    }

    /// Requests visits to clients. The answer comes when all were visited.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn visit(&self, visits: Vec<Visit>) -> Result<Answer<Vec<Visit>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Visit { link: self.link, visits, answer })?;
        Ok(answered)
    }

    /// Makes an engine for this link, on this thread, in memory of the worker's node.
    ///
    /// # Errors
    /// As [`Engine::sharing`]; [`MakeError::Gone`] if the worker has not begun.
    pub fn make(&self, limits: Limits, plan: Plan, at: Instant) -> Result<Spare, MakeError> {
        let make = self.queue.make.get().ok_or(MakeError::Gone(CommandError::Gone))?;
        Ok(dpdk::with_memory_on(self.node, || make(limits, plan, at))?)
    }

    /// Requests to add this link, with an engine that this worker's handle made. With `via` its
    /// frames also pass a shared link, which is on this worker.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn add_link(&self, engine: Spare, via: Option<Via>) -> Result<Answer<()>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::AddLink { link: self.link, engine, via, answer })?;
        Ok(answered)
    }

    /// Requests to remove this link. The answer has its engine, or nothing if it holds frames.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn remove_link(&self) -> Result<Answer<Option<Spare>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::RemoveLink { link: self.link, answer })?;
        Ok(answered)
    }

    /// Requests to set the bytes that this link may store.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn set_memory(&self, bytes: usize) -> Result<Answer<()>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::SetMemory { link: self.link, bytes, answer })?;
        Ok(answered)
    }

    /// Requests another board from an instant on.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn set_board(
        &self,
        at: Instant,
        board: Arc<Board>,
    ) -> Result<Answer<(Instant, Arc<Board>)>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::SetBoard { at, board, answer })?;
        Ok(answered)
    }

    /// Checks that the run loop makes progress. The answer comes in its next turn: the number of
    /// frames of clients without a slot.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn alive(&self) -> Result<Answer<u64>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Alive(answer))?;
        Ok(answered)
    }

    /// Requests the end of the run loop; answers with the final accounts.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn stop(&self) -> Result<Answer<Box<Report>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Stop { link: self.link, report: self.report_room(), answer })?;
        Ok(answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_an_ended_worker_has_not_taken_is_gone() {
        let (handle, inbox) = channel(1);
        // Further links of the worker have handles too.
        let other = handle.clone();
        let mut waiting = handle.alive().unwrap();
        drop(inbox);
        assert!(waiting.try_recv().is_err_and(|it| it == oneshot::error::TryRecvError::Closed));
        assert_eq!(other.alive().unwrap_err(), CommandError::Gone);
    }
}
