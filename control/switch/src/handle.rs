// SPDX-License-Identifier: Apache-2.0
//! The handle of a session, and what it shares with the task.
//!
//! What needs an answer goes through a bounded channel, and is answered within a time however
//! the switch is. What needs none is kept until the task takes it, the latest only.

use crate::config::Config;
use crate::model::{Client, Counts, Error, Loss, MAX_CLIENTS, News, Offload, Phase, Status};
use crate::task::Task;
use crate::timing::Timing;
use emu::units::Direction;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};

/// Requests that wait; more of them wait with their callers.
const WAITING: usize = 64;

/// What is asked of the task.
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
    Counts {
        reply: oneshot::Sender<()>,
    },
}

/// All clients of a dataplane's instance by these rules.
#[derive(Debug)]
pub struct Said {
    pub instance: u64,
    pub rules: u64,
    pub clients: Vec<Client>,
}

#[derive(Debug)]
struct State {
    status: Status,
    counts: Counts,
    clients: Option<Said>,
    in_use: Option<Offload>,
    /// Since when somebody has waited in vain for what a plan can use.
    slow: Option<Instant>,
}

/// Between the handles and the task.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    told: Notify,
}

impl Shared {
    fn new() -> Self {
        let status = Status {
            phase: Phase::Lost,
            since: Instant::now(),
            message: String::new(),
            entries: 0,
            clients: 0,
            restored: Duration::ZERO,
            gates: Vec::new(),
        };
        let (clients, in_use, counts) = (None, None, Counts::default());
        let state = Mutex::new(State { status, counts, clients, in_use, slow: None });
        Self { state, told: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_phase(&self, phase: Phase, message: String) {
        let status = &mut self.state().status;
        if status.phase != phase {
            (status.phase, status.since) = (phase, Instant::now());
        }
        status.message = message;
    }

    pub fn set_restored(&self, took: Duration) {
        self.state().status.restored = took;
    }

    pub fn set_figures(&self, entries: u32, clients: u32, gates: Vec<(Option<u16>, Direction)>) {
        let status = &mut self.state().status;
        (status.entries, status.clients, status.gates) = (entries, clients, gates);
    }

    /// The task answers; says since when it has not, if somebody waited in vain.
    pub fn answers(&self) -> Option<Duration> {
        self.state().slow.take().map(|since| since.elapsed())
    }

    pub fn set_counts(&self, counts: Counts) {
        self.state().counts = counts;
    }

    /// Waits until something is there to be taken.
    pub async fn told(&self) {
        self.told.notified().await;
    }

    /// What was said since the last time.
    pub fn take(&self) -> (Option<Said>, Option<Offload>) {
        let mut state = self.state();
        (state.clients.take(), state.in_use.take())
    }
}

/// A handle of a session. The session ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Switch {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    /// When counts were read. Who waits for it shares what is read.
    read: Arc<tokio::sync::Mutex<Option<Instant>>>,
    timing: Timing,
}

impl Switch {
    /// Begins a session: a task of the current runtime, which tells `told` how the switch is.
    pub fn start(config: Config, told: impl Fn(News) + Send + Sync + 'static) -> Self {
        Self::start_timed(config, Timing::default(), told)
    }

    /// As [`Switch::start`], with other times.
    pub fn start_timed(
        config: Config,
        timing: Timing,
        told: impl Fn(News) + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::new());
        let (requests, waiting) = mpsc::channel(WAITING);
        let task = Task::run(config, timing, Arc::clone(&shared), waiting, Box::new(told));
        tokio::spawn(task);
        Self { shared, requests, read: Arc::default(), timing }
    }

    /// What the switch can do for a plan of this dataplane instance, and does when this
    /// answers: the losses stand in it. All zero if it is not ready within a second or so.
    /// The same figures have the same number. After one that was not answered in time all are
    /// zero at once, until [`News::Ready`] says that it is worth while to ask again.
    ///
    /// `rules` stands for all that the plan says of clients: any two plans that say the same
    /// have the same, any others another. Another instance or other rules than the last ones
    /// begin a new epoch, without clients: no number that was found by other rules is believed.
    pub async fn offload(
        &self,
        instance: u64,
        rules: u64,
        forward: Loss,
        return_: Loss,
    ) -> Offload {
        let ask = |reply| Request::Offload { instance, rules, forward, return_, reply };
        if self.shared.state().slow.is_some() {
            return Offload::default();
        }
        let asked = Instant::now();
        let answered = self.ask(ask, self.timing.ask).await;
        if answered.is_none() {
            self.shared.state().slow.get_or_insert(asked);
        }
        answered.unwrap_or_default()
    }

    /// Says what the plan in force uses. What none has used for ten minutes goes.
    pub fn in_use(&self, offload: &Offload) {
        self.shared.state().in_use = Some(*offload);
        self.shared.told.notify_one();
    }

    /// Says all clients that the switch is to know. Ignored if the instance or the rules
    /// are not those of the last [`Switch::offload`].
    pub fn set_clients(&self, instance: u64, rules: u64, clients: Vec<Client>) {
        self.shared.state().clients = Some(Said { instance, rules, clients });
        self.shared.told.notify_one();
    }

    /// Closes or opens the gate of a client or of all, in a direction or in both. It stays so
    /// when the switch restarts; with another dataplane, where a number is another client's, the
    /// gates of all, of the bypass and of the default stay. One that was closed for all is opened for all.
    ///
    /// # Errors
    /// [`Error`]; nothing has changed if the switch was not ready.
    pub async fn set_gate(
        &self,
        client: Option<u16>,
        direction: Option<Direction>,
        closed: bool,
    ) -> Result<(), Error> {
        if let Some(number) = client.filter(|number| !(1..MAX_CLIENTS).contains(number)) {
            return Err(Error::Client { number });
        }
        let status = self.status();
        if status.phase != Phase::Ready {
            return Err(Error::NotReady(status.message));
        }
        let ask = |reply| Request::Gate { client, direction, closed, reply };
        let done = self.ask(ask, self.timing.patience).await;
        done.unwrap_or_else(|| Err(Error::NotReady("it does not answer".into())))
    }

    /// How the switch is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.state().status.clone()
    }

    /// What it has counted: read now, or at most 100 ms ago.
    pub async fn counts(&self) -> Counts {
        let mut read = self.read.lock().await;
        let fresh = read.is_some_and(|at| at.elapsed() < self.timing.fresh);
        if fresh {
            return self.shared.state().counts.clone();
        }
        let answered = self.ask(|reply| Request::Counts { reply }, self.timing.ask).await;
        let mut counts = self.shared.state().counts.clone();
        counts.ready &= answered.is_some();
        *read = counts.ready.then(Instant::now);
        counts
    }

    /// None: there is no answer in time.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
        limit: Duration,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.requests.send(request(reply)).await.ok()?;
            answer.await.ok()
        };
        within(limit, asked).await
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok().flatten()
}
