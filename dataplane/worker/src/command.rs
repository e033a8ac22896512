// SPDX-License-Identifier: Apache-2.0
//! Commands from other threads to a worker.
//!
//! Commands go through a bounded lock-free queue that the run loop looks into once
//! a turn. The caller allocates their contents, and reports and replaced plans go
//! back with the answer, to be freed there.

use std::sync::Arc;

use ::shim::Tick;
use crossbeam_queue::ArrayQueue;
use emu::observe::Observer;
use emu::plan::Plan;
use emu::stats::Snapshot;
use emu::units::{ByDirection, Instant, Nanos};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::capture::{Capture, Numbers};
use crate::edge::Edge;
use crate::io::EgressCounters;

/// Commands that may wait for a worker, and changes that wait in it.
pub(crate) const DEPTH: usize = 64;

#[derive(Debug)]
pub struct Change {
    /// When it takes effect, also if that has passed.
    pub at: Instant,
    pub plan: Plan,
    pub generation: u64,
    /// Whether all random processes restart.
    pub restart: bool,
}

/// A pending change, and the channel for the answer.
pub type Waiting = (Box<Change>, oneshot::Sender<Changed>);

/// A change that was made.
#[derive(Debug)]
pub struct Changed {
    /// When it took effect: at the requested instant, or later if that had passed when
    /// the worker heard of it.
    pub at: Instant,
    pub replaced: Plan,
}

/// The accounts of a worker.
#[derive(Debug, Default)]
pub struct Report {
    pub snapshot: Snapshot,
    /// The egress ports', by the direction that leaves through them.
    pub egress: ByDirection<EgressCounters>,
    /// The longest time between two turns since the last mark, less what the worker
    /// meant to sleep. A frame that arrived in it was late by up to as much, unseen.
    pub stall_max: Nanos,
}

/// A request to a worker, with the way to answer.
#[derive(Debug)]
pub enum Command {
    /// Apply a plan; answers when it is applied.
    Apply(Box<Change>, oneshot::Sender<Changed>),
    /// Withdraw pending changes from a generation on.
    TakeBack {
        /// First generation to withdraw.
        generation: u64,
        /// Empty, with room for all that can wait.
        taken: Vec<Waiting>,
        /// The withdrawn changes, the last one first.
        answer: oneshot::Sender<Vec<Waiting>>,
    },
    Report {
        /// Then reset the high-water marks and the lateness.
        mark: bool,
        /// A report with room for all clients.
        report: Box<Report>,
        answer: oneshot::Sender<Box<Report>>,
    },
    /// Replace the engine's observer; answers with the old one.
    Observe {
        /// The new one, if any.
        observer: Option<Box<dyn Observer>>,
        answer: oneshot::Sender<Option<Box<dyn Observer>>>,
    },
    /// Answer, as a proof that the run loop makes progress.
    Alive(oneshot::Sender<u64>),
    /// Leave the run loop; answers with the last accounts.
    Stop {
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

/// The caller's end of a worker's queue of commands.
#[derive(Clone, Debug)]
pub struct Handle {
    queue: Arc<ArrayQueue<Command>>,
    room: usize,
    /// The unit of the switch's clock, where there is a switch.
    tick: Option<Tick>,
    captured: Numbers,
}

#[derive(Debug)]
pub struct Inbox(Arc<ArrayQueue<Command>>);

/// A queue of commands for a worker with up to `clients` clients.
#[must_use]
pub fn channel(clients: usize) -> (Handle, Inbox) {
    let queue = Arc::new(ArrayQueue::new(DEPTH));
    // The fixed clients come on top.
    let room = clients + 2;
    let handle = Handle { queue: queue.clone(), room, tick: None, captured: Numbers::default() };
    (handle, Inbox(queue))
}

impl Inbox {
    #[inline]
    pub fn pop(&mut self) -> Option<Command> {
        self.0.pop()
    }
}

impl Handle {
    /// For a worker with ports that lead to a switch.
    #[must_use]
    pub fn behind_switch(self, tick: Option<Tick>) -> Self {
        Self { tick, ..self }
    }

    fn report_room(&self) -> Box<Report> {
        Box::new(Report { snapshot: Snapshot::with_room_for(self.room), ..Report::default() })
    }

    /// Whether it takes a command now, unless another thread sends one first.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queue.len() < DEPTH
    }

    fn push(&self, command: Command) -> Result<(), CommandError> {
        if Arc::strong_count(&self.queue) == 1 {
            return Err(CommandError::Gone);
        }
        self.queue.push(command).map_err(|_| CommandError::Busy)
    }

    /// Requests a change of plan. The answer comes when it is applied.
    ///
    /// # Errors
    /// If the worker does not take the command; nothing will change then.
    pub fn apply(&self, change: Change) -> Result<Answer<Changed>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Apply(Box::new(change), answer))?;
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
        let taken = Vec::with_capacity(DEPTH);
        self.push(Command::TakeBack { generation, taken, answer })?;
        Ok(answered)
    }

    /// Requests a withdrawn change again.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn give_back(&self, (change, answer): Waiting) -> Result<(), CommandError> {
        self.push(Command::Apply(change, answer))
    }

    /// Requests the accounts; with `mark`, the high-water marks are reset
    /// afterwards.
    ///
    /// # Errors
    /// If the worker does not take the command.
    pub fn report(&self, mark: bool) -> Result<Answer<Box<Report>>, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.push(Command::Report { mark, report: self.report_room(), answer })?;
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
        self.push(Command::Observe { observer: Edge::observer(self.tick, capture), answer })?;
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
        self.push(Command::Stop { report: self.report_room(), answer })?;
        Ok(answered)
    }
}
