// SPDX-License-Identifier: Apache-2.0
//! State shared between the handles of a session and its task.
//!
//! A [`Request`] needs an answer and goes through a bounded channel. The client list and the
//! offload in use need none: [`Shared`] keeps the latest value until the task takes it.

use crate::model::{Client, Counts, Error, Loss, Mirror, Offload, Owners, Phase, Status};
use emu::units::Direction;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// A request that needs an answer.
#[derive(Debug)]
pub enum Request {
    Offload {
        instance: u64,
        rules: u64,
        forward: Loss,
        return_: Loss,
        reply: oneshot::Sender<Offload>,
    },
    Gate {
        client: Option<u16>,
        direction: Option<Direction>,
        closed: bool,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Mirrors {
        mirrors: BTreeSet<Mirror>,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Counts {
        reply: oneshot::Sender<()>,
    },
    /// To compare the entries of the switch with those that were written.
    Check {
        reply: oneshot::Sender<()>,
    },
    Written {
        reply: oneshot::Sender<Result<(), Error>>,
    },
}

/// All clients of a dataplane instance under one set of classification rules.
#[derive(Debug)]
pub struct Clients {
    pub instance: u64,
    pub rules: u64,
    pub clients: Vec<Client>,
}

#[derive(Debug)]
struct State {
    status: Status,
    counts: Counts,
    clients: Option<Clients>,
    in_use: Option<Offload>,
    owners: Option<Owners>,
    /// When the first [`Request::Offload`] that timed out was sent.
    slow: Option<Instant>,
}

#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

impl Shared {
    pub fn new() -> Self {
        let status = Status {
            phase: Phase::Lost,
            since: Instant::now(),
            message: String::new(),
            entries: 0,
            clients: 0,
            restored: Duration::ZERO,
            gates: Vec::new(),
            mirrors: Vec::new(),
            owners: Owners::default(),
            program: String::new(),
        };
        let counts = Counts::default();
        let (clients, in_use, owners) = (None, None, None);
        let state = State { status, counts, clients, in_use, owners, slow: None };
        let state = Mutex::new(state);
        Self { state, changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_phase(&self, phase: Phase, message: String) {
        let status = &mut self.state().status;
        if status.phase != phase {
            (status.phase, status.since) = (phase, Instant::now());
        }
        status.message = message;
    }

    pub fn set_program(&self, program: String) {
        self.state().status.program = program;
    }

    pub fn set_restored(&self, took: Duration) {
        self.state().status.restored = took;
    }

    pub fn set_figures(&self, entries: u32, clients: u32) {
        let status = &mut self.state().status;
        (status.entries, status.clients) = (entries, clients);
    }

    pub fn set_selected(&self, gates: Vec<(Option<u16>, Direction)>, mirrors: Vec<Mirror>) {
        let status = &mut self.state().status;
        (status.gates, status.mirrors) = (gates, mirrors);
    }

    /// Notes that the task serves again. Returns how long it did not, if a request timed out.
    pub fn answers(&self) -> Option<Duration> {
        self.state().slow.take().map(|since| since.elapsed())
    }

    pub fn set_counts(&self, counts: Counts) {
        self.state().counts = counts;
    }

    /// Waits until [`Shared::take`] has something new.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The client list and the offload set since the last call.
    pub fn take(&self) -> (Option<Clients>, Option<Offload>) {
        let mut state = self.state();
        (state.clients.take(), state.in_use.take())
    }

    pub fn set_clients(&self, clients: Clients) {
        self.state().clients = Some(clients);
        self.changed.notify_one();
    }

    pub fn set_in_use(&self, offload: Offload) {
        self.state().in_use = Some(offload);
        self.changed.notify_one();
    }

    /// The owners set since the last call.
    pub fn take_owners(&self) -> Option<Owners> {
        self.state().owners.take()
    }

    pub fn set_owners(&self, owners: Owners) {
        self.state().owners = Some(owners);
        self.changed.notify_one();
    }

    pub fn set_owned(&self, owners: Owners) {
        self.state().status.owners = owners;
    }

    pub fn is_slow(&self) -> bool {
        self.state().slow.is_some()
    }

    /// Notes that a request sent at `asked` timed out; the first one counts.
    pub fn set_slow(&self, asked: Instant) {
        self.state().slow.get_or_insert(asked);
    }

    pub fn status(&self) -> Status {
        self.state().status.clone()
    }

    pub fn counts(&self) -> Counts {
        self.state().counts.clone()
    }
}
