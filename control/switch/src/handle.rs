// SPDX-License-Identifier: Apache-2.0
//! The handle of a session. Every request has a time limit, whatever the state of the switch.

use crate::config::Config;
use crate::model::{Client, Counts, Error, Loss, MAX_CLIENTS, News, Offload, Phase, Status};
use crate::shared::{Clients, Request, Shared};
use crate::task::Task;
use crate::timing::Timing;
use emu::units::Direction;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Requests that wait; more of them wait with their callers.
const WAITING: usize = 64;

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
        if self.shared.is_slow() {
            return Offload::default();
        }
        let asked = Instant::now();
        let answered = self.ask(ask, self.timing.ask).await;
        if answered.is_none() {
            self.shared.set_slow(asked);
        }
        answered.unwrap_or_default()
    }

    /// Says what the plan in force uses. What none has used for ten minutes goes.
    pub fn in_use(&self, offload: &Offload) {
        self.shared.set_in_use(*offload);
    }

    /// Says all clients that the switch is to know. Ignored if the instance or the rules
    /// are not those of the last [`Switch::offload`].
    pub fn set_clients(&self, instance: u64, rules: u64, clients: Vec<Client>) {
        self.shared.set_clients(Clients { instance, rules, clients });
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

    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// What it has counted: read now, or at most 100 ms ago.
    pub async fn counts(&self) -> Counts {
        let mut read = self.read.lock().await;
        let fresh = read.is_some_and(|at| at.elapsed() < self.timing.fresh);
        if fresh {
            return self.shared.counts();
        }
        let answered = self.ask(|reply| Request::Counts { reply }, self.timing.ask).await;
        let mut counts = self.shared.counts();
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
