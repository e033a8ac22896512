// SPDX-License-Identifier: Apache-2.0
//! The handle of a session. Every request has a time limit in every state of the switch.

use crate::cells::Cells;
use crate::config::Config;
use crate::model::{
    Client, Counts, Error, Loss, MAX_CLIENTS, Mirror, News, Offload, Owners, Phase, Status,
};
use crate::shared::{Clients, Request, Shared};
use crate::task::Task;
use crate::timing::Timing;
use emu::units::Direction;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Capacity of the request channel. Further callers wait to send.
const WAITING: usize = 64;

/// A handle of a session. Dropping the last one ends the session.
#[derive(Clone, Debug)]
pub struct Switch {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    /// Time of the last read of the counters. Concurrent callers share one read.
    read: Arc<tokio::sync::Mutex<Option<Instant>>>,
    timing: Timing,
    cells: Cells,
    boxes: usize,
    copies: bool,
}

impl Switch {
    /// Starts a session as a task of the current runtime. It reports state changes to `told`.
    pub fn start(config: Config, told: impl Fn(News) + Send + Sync + 'static) -> Self {
        Self::start_timed(config, Timing::default(), told)
    }

    /// As [`Switch::start`], with other time limits.
    pub fn start_timed(
        config: Config,
        timing: Timing,
        told: impl Fn(News) + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::new());
        let (requests, waiting) = mpsc::channel(WAITING);
        let (cells, boxes) = (Cells::of(&config), config.boxes.len());
        let copies = config.mirror_port.is_some();
        let task = Task::run(config, timing, Arc::clone(&shared), waiting, Box::new(told));
        tokio::spawn(task);
        Self { shared, requests, read: Arc::default(), timing, cells, boxes, copies }
    }

    /// Requests the stages that the switch can run for a plan of this dataplane instance. When this
    /// returns, the losses are written to the switch. All zero if the switch is not ready within
    /// about a second; after a timeout all calls return zero immediately until [`News::Ready`].
    /// Equal losses get the same number.
    ///
    /// `rules` identifies everything in the plan that concerns clients: equal plans have equal
    /// values. A new instance or new rules start a new epoch without clients, so numbers from other
    /// rules are never used.
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

    /// Sets the offload of the current plan. Losses that no plan has used for ten minutes are
    /// removed.
    pub fn in_use(&self, offload: &Offload) {
        self.shared.set_in_use(*offload);
    }

    /// Sets all clients for the switch. Ignored if the instance or the rules differ from those of
    /// the last [`Switch::offload`].
    pub fn set_clients(&self, instance: u64, rules: u64, clients: Vec<Client>) {
        self.shared.set_clients(Clients { instance, rules, clients });
    }

    /// The cells of each box: what numbers of clients are in [`Client::number`], [`Self::set_gate`] and
    /// [`Counts::clients`].
    #[must_use]
    pub fn cells(&self) -> Cells {
        self.cells
    }

    /// Sets the owners of all clients without a rule. The last owners set remain over restarts of the
    /// switch; until the first call, those that the switch has stay. It waits for nothing:
    /// [`Status::owners`] are those that the switch has been told.
    ///
    /// What is atomic is one entry, so no frame goes to two boxes or to none. A bucket is one entry, and
    /// moves for both directions at once. The default owner is in an entry per port of hosts, and in those of
    /// addresses that belong to no single host: the entries of a change are written in one message, but a
    /// frame at one port may still be given to the old owner when one at another port is not. A client with a
    /// rule moves by [`Self::set_clients`], with an entry per rule and, for a MAC, direction. Frames that the
    /// old owner has already got it returns, and they are counted in its cells.
    ///
    /// # Errors
    /// [`Error::Owner`] if there is no such box; nothing is changed.
    pub fn set_owners(&self, owners: Owners) -> Result<(), Error> {
        let all = owners.buckets.values().chain([&owners.default]);
        if let Some(number) = all.copied().find(|owner| !self.cells.has(*owner)) {
            return Err(Error::Owner { number, boxes: self.boxes });
        }
        self.shared.set_owners(owners);
        Ok(())
    }

    /// Waits until the switch has the clients and owners that were set last.
    ///
    /// # Errors
    /// [`Error`], if it does not have them all.
    pub async fn written(&self) -> Result<(), Error> {
        let limit = self.timing.patience;
        let late = || format!("it does not have its entries after {limit:?}");
        let answered = self.ask(|reply| Request::Written { reply }, limit).await;
        answered.unwrap_or_else(|| Err(Error::NotReady(late())))
    }

    /// Closes or opens the client gate of one client, by its cell, or of all, in one direction or both. The state
    /// survives a restart of the switch. With a new dataplane instance, client numbers change; then
    /// only the gates of all clients, of the bypass and of the default client stay. A gate that was
    /// closed for all is opened for all.
    ///
    /// # Errors
    /// [`Error`]. If the switch was not ready, nothing has changed.
    pub async fn set_gate(
        &self,
        client: Option<u16>,
        direction: Option<Direction>,
        closed: bool,
    ) -> Result<(), Error> {
        self.check_clients(client)?;
        self.order(|reply| Request::Gate { client, direction, closed, reply }).await
    }

    /// Sets all frames whose copies go to the port for copies. They survive a restart of the switch. With a
    /// new dataplane instance, client numbers change; then only those of all clients, of the bypass and of the
    /// default client stay. No frame's fate, and no count other than [`Counts::mirrored`], depends on it.
    ///
    /// # Errors
    /// [`Error`]; nothing has changed.
    pub async fn set_mirrors(&self, mirrors: BTreeSet<Mirror>) -> Result<(), Error> {
        if !self.copies {
            return Err(Error::NoMirror);
        }
        self.check_clients(mirrors.iter().filter_map(|(client, ..)| *client))?;
        self.order(|reply| Request::Mirrors { mirrors, reply }).await
    }

    /// Whether all these cells are of clients that entries can name.
    fn check_clients(&self, cells: impl IntoIterator<Item = u16>) -> Result<(), Error> {
        let named = |cell: &u16| {
            let (owner, number) = self.cells.place(*cell);
            *cell < MAX_CLIENTS && number > 0 && self.cells.has(owner)
        };
        let other = cells.into_iter().find(|cell| !named(cell));
        other.map_or(Ok(()), |number| Err(Error::Client { number }))
    }

    /// A request that only a ready switch can do.
    async fn order(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<(), Error>>) -> Request,
    ) -> Result<(), Error> {
        let status = self.status();
        if status.phase != Phase::Ready {
            return Err(Error::NotReady(status.message));
        }
        let done = self.ask(request, self.timing.patience).await;
        done.unwrap_or_else(|| Err(Error::NotReady("it does not answer".into())))
    }

    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Counters, at most 100 ms old.
    pub async fn counts(&self) -> Counts {
        self.counts_within(self.timing.fresh).await
    }

    /// Counters that were read after this call.
    pub async fn counts_now(&self) -> Counts {
        self.counts_within(Duration::ZERO).await
    }

    async fn counts_within(&self, age: Duration) -> Counts {
        let mut read = self.read.lock().await;
        if read.is_some_and(|at| at.elapsed() < age) {
            return self.shared.counts();
        }
        let answered = self.ask(|reply| Request::Counts { reply }, self.timing.ask).await;
        let mut counts = self.shared.counts();
        counts.ready &= answered.is_some();
        *read = counts.ready.then(Instant::now);
        counts
    }

    /// Compares the entries of the switch with those that were written, and repairs them. True if it was done
    /// within the time limit.
    pub async fn check(&self) -> bool {
        self.ask(|reply| Request::Check { reply }, self.timing.patience).await.is_some()
    }

    /// `None` if there is no answer in time.
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
