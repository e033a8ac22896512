// SPDX-License-Identifier: Apache-2.0
//! The control side of a link: the current plan, and requests to the workers. The links of a
//! dataplane ([`crate::links`]) share the machine.
//!
//! Runs on the control thread. One request at a time reaches the workers, so that their queues
//! never fill and each change is complete before the next one. Only pending changes wait in the
//! workers in addition ([`owner::Schedule`]).
//!
//! A worker can stall: its thread is stopped, or the virtual machine is paused. Requests stay in
//! its queue and are executed when it continues. So work that has begun waits for the workers
//! without limit, and holds the lock on the history meanwhile. Callers wait for [`ANSWER_WITHIN`]
//! and then get the error that a worker has stalled. Until all run loops iterate again
//! ([`Dataplane::turned`]), requests are refused immediately.

mod apply;
mod capture;
mod error;
mod hold;
mod links;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use dpdk::TscClock;
use emu::client::ClientName;
use emu::engine::Limits;
use emu::links::{Board, MAIN};
use emu::place::worker_of;
use emu::plan::Room;
use emu::units::{Instant, Nanos};
use owner::{Changes, Current, History, Plans, Span};
use proto::MAIN_LINK;
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;
use worker::command::{Answer, CommandError, Handle, Report};

use crate::accounts::{PortAccount, merge, number_clients};
use crate::host::{Host, Sample};
use crate::names::Names;
use crate::sharing::Role;
use crate::switch::numbers_described;
pub use capture::Chunks;
pub use error::DataplaneError;
pub use links::LinksError;

/// A change takes effect this much after it was accepted, so that every one of several
/// workers hears of it in time.
const LEAD: Nanos = Nanos::from_millis(1);
/// A worker that takes longer to answer has stalled. Less than linkd waits for an answer, so
/// that it hears the reason.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// How long the final accounts are waited for: less than the service manager waits for the end.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// Before a worker with too many requests is asked again.
const BUSY: Duration = Duration::from_millis(10);
/// Reason for the limits of a box with reserved cores.
const RESERVED: &str = "the strict limit: each worker has a core of its own (isolcpus)";

/// The ports, as far as accounts and statistics need them.
pub trait Ports: Send + Sync {
    /// The accounts of `wan` and `client` of each pair.
    fn accounts(&self) -> Vec<[PortAccount; 2]>;

    /// Their link, MTU and faults; empty where the ports are not watched.
    fn states(&self) -> Vec<model::PortState> {
        Vec::new()
    }
}

/// Properties that do not change while the dataplane runs.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// The answer to `Describe`.
    pub description: pb::DescribeResponse,
    /// The resources of all links together.
    pub room: Room,
    /// Of the engines of links beside `main`, but for memory and clients.
    pub limits: Limits,
    /// Names of the port pairs, by number; none if the only one has no name.
    pub pairs: Vec<ClientName>,
    pub host: Host,
}

impl Fixed {
    /// How late the packets of a link may be.
    fn tolerance(&self, plan: &pb::Plan) -> model::Tolerance {
        if self.host.is_reserved() {
            return profile::strict_tolerance(RESERVED);
        }
        profile::tolerance(plan.profile.as_ref().unwrap_or(&model::Profile::default()))
    }
}

/// What all links share.
struct Machine {
    clock: TscClock,
    ports: Box<dyn Ports>,
    fixed: Fixed,
    /// Whether a worker has stalled.
    stalled: watch::Sender<bool>,
    /// Frames of clients without a slot, as of the last time that all workers turned.
    unplaced: AtomicU64,
    /// How long callers wait for workers.
    patience: Duration,
    /// The longest jump of the clock since the last mark of each link, by number.
    jumps: std::sync::Mutex<BTreeMap<usize, Duration>>,
    /// The board that the workers have.
    board: Mutex<Board>,
    /// Bytes of each worker's memory that no link beside `main` has reserved.
    free: std::sync::Mutex<Vec<u64>>,
}

/// What tells a link from others.
struct Identity {
    name: String,
    /// In the workers.
    number: usize,
    /// As of [`Shared`].
    home: Option<usize>,
    role: Role,
}

struct Shared {
    name: String,
    number: usize,
    machine: Arc<Machine>,
    /// Those that the link is on: one, or for `main` all.
    workers: Vec<Handle>,
    /// The worker that has all clients of the link; without one all workers have some.
    home: OnceLock<usize>,
    role: Role,
    room: std::sync::Mutex<Room>,
    /// Its plans, locked while the workers are asked.
    history: History,
    /// The slots of its clients in the workers.
    names: std::sync::Mutex<Names>,
    /// The workers do not have the link any longer.
    removed: AtomicBool,
    /// Since the last mark, and the machine's figures then; taken only with `history`.
    span: Mutex<(Span, Sample)>,
    capturing: Arc<Semaphore>,
    /// Clients on hold, by name: since when, and until when at most.
    holds: std::sync::Mutex<BTreeMap<String, [Instant; 2]>>,
    /// UTC of the clock's zero at the last restart of the random processes, in nanoseconds
    /// since 1970.
    utc_zero: AtomicU64,
}

/// A link of the dataplane, as its service and its shutdown see it; clones are the same one.
#[derive(Clone)]
pub struct Dataplane(Arc<Shared>);

impl Dataplane {
    /// The initial `plan`, which the `workers` execute, is generation 0.
    #[must_use]
    pub fn new(
        workers: Vec<Handle>,
        clock: TscClock,
        ports: Box<dyn Ports>,
        fixed: Fixed,
        plan: pb::Plan,
    ) -> Self {
        Self::with_patience(workers, clock, ports, fixed, plan, ANSWER_WITHIN)
    }

    /// The same with callers that wait for a worker for `patience`.
    #[must_use]
    pub fn with_patience(
        workers: Vec<Handle>,
        clock: TscClock,
        ports: Box<dyn Ports>,
        fixed: Fixed,
        plan: pb::Plan,
        patience: Duration,
    ) -> Self {
        let start = utc(&clock, Instant::ZERO);
        let room = fixed.room;
        let free = std::sync::Mutex::new(vec![room.capacity; workers.len()]);
        let machine = Arc::new(Machine {
            clock,
            ports,
            fixed,
            stalled: watch::Sender::new(false),
            unplaced: AtomicU64::new(0),
            patience,
            jumps: std::sync::Mutex::default(),
            board: Mutex::default(),
            free,
        });
        let main = Identity {
            name: MAIN_LINK.to_owned(),
            number: MAIN,
            home: (workers.len() == 1).then_some(0),
            role: Role::Alone,
        };
        Self::of(machine, main, workers, room, plan, start)
    }

    fn of(
        machine: Arc<Machine>,
        identity: Identity,
        workers: Vec<Handle>,
        room: Room,
        plan: pb::Plan,
        start: prost_types::Timestamp,
    ) -> Self {
        let Identity { name, number, home, role } = identity;
        let utc_zero = utc_zero(&machine.clock);
        machine.jumps().insert(number, Duration::ZERO);
        let effective_utc = Some(start);
        let applied = model::Applied { effective_utc, ..model::Applied::default() };
        let current = Current { plan, applied, remarks: Vec::new() };
        let mut names = Names::default();
        names.learn(names.new_in(&current.plan));
        let mut span = Span::starting(start);
        span.changed(false, machine.fixed.tolerance(&current.plan));
        let span = Mutex::new((span, machine.fixed.host.sample()));
        let history = History::new(current);
        Self(Arc::new(Shared {
            name,
            number,
            machine,
            workers,
            home: home.map(OnceLock::from).unwrap_or_default(),
            role,
            room: std::sync::Mutex::new(room),
            history,
            names: std::sync::Mutex::new(names),
            removed: AtomicBool::new(false),
            span,
            capturing: Arc::new(Semaphore::new(1)),
            holds: std::sync::Mutex::default(),
            utc_zero: AtomicU64::new(utc_zero),
        }))
    }

    fn names(&self) -> std::sync::MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its place in a sequence of links.
    pub(crate) fn role(&self) -> &Role {
        &self.0.role
    }

    /// The resources of this link for a plan.
    #[must_use]
    pub fn room(&self) -> Room {
        *self.0.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all workers move on, as far as is known.
    ///
    /// # Errors
    /// [`DataplaneError::Stalled`].
    pub fn health(&self) -> Result<(), DataplaneError> {
        match *self.0.machine.stalled.borrow() {
            true => Err(DataplaneError::Stalled(self.0.machine.patience)),
            false => Ok(()),
        }
    }

    /// Frames of clients that there was no slot for, as of about a second ago.
    #[must_use]
    pub fn unplaced(&self) -> u64 {
        self.0.machine.unplaced.load(Ordering::Relaxed)
    }

    /// Whether a worker has stalled, and each change of that.
    #[must_use]
    pub fn stalled(&self) -> watch::Receiver<bool> {
        self.0.machine.stalled.subscribe()
    }

    fn set_stalled(&self, stalled: bool) {
        let changed =
            self.0.machine.stalled.send_if_modified(|is| std::mem::replace(is, stalled) != stalled);
        match (changed, stalled) {
            (true, true) => {
                tracing::error!("a worker has stood still for {:?}", self.0.machine.patience)
            }
            (true, false) => tracing::warn!("all workers go on; late answers have been dealt with"),
            _ => {}
        }
    }

    /// Runs work that needs the workers. Once begun it runs to completion, even if the caller
    /// disconnects or times out: otherwise the plan of the workers and the reported current plan
    /// could differ.
    async fn done<T, E, F>(&self, work: impl FnOnce(Self) -> F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DataplaneError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.health()?;
        self.done_within(self.0.machine.patience, work).await
    }

    /// The same, for a caller with another patience, and also while a worker is known to stand
    /// still.
    async fn done_within<T, E, F>(
        &self,
        patience: Duration,
        work: impl FnOnce(Self) -> F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DataplaneError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        match timeout(patience, tokio::spawn(work(self.clone()))).await {
            Ok(done) => done.map_err(|_| DataplaneError::Panicked)?,
            Err(_) => {
                self.set_stalled(true);
                Err(DataplaneError::Stalled(patience).into())
            }
        }
    }

    /// Waits for an answer as long as callers do.
    ///
    /// # Errors
    /// [`DataplaneError::Stalled`].
    pub async fn patiently<T>(&self, answer: impl Future<Output = T>) -> Result<T, DataplaneError> {
        self.health()?;
        timeout(self.0.machine.patience, answer)
            .await
            .map_err(|_| DataplaneError::Stalled(self.0.machine.patience))
    }

    #[must_use]
    pub fn fixed(&self) -> &Fixed {
        &self.0.machine.fixed
    }

    /// State and faults of the ports.
    #[must_use]
    pub fn ports(&self) -> Vec<model::PortState> {
        self.0.machine.ports.states()
    }

    /// The time, on this clock and in UTC.
    #[must_use]
    pub fn time(&self) -> (u64, prost_types::Timestamp) {
        let now = self.0.machine.clock.now();
        (now, utc(&self.0.machine.clock, Instant(now)))
    }

    /// Returns when the run loop of every worker has turned, and says so: [`Dataplane::health`].
    /// One that takes longer than callers wait has stalled until then.
    ///
    /// # Errors
    /// If a worker has ended.
    pub async fn turned(&self) -> Result<(), CommandError> {
        let all = async {
            let mut unplaced = 0;
            for worker in &self.0.workers {
                while !worker.has_room() {
                    tokio::time::sleep(BUSY).await;
                }
                unplaced += worker.alive()?.await.map_err(|_| CommandError::Gone)?;
            }
            self.0.machine.unplaced.store(unplaced, Ordering::Relaxed);
            Ok(())
        };
        let mut all = std::pin::pin!(all);
        let turned = match timeout(self.0.machine.patience, &mut all).await {
            Ok(turned) => turned,
            Err(_) => {
                self.set_stalled(true);
                all.await
            }
        };
        turned.inspect(|()| self.set_stalled(false))
    }

    /// The current plan.
    ///
    /// # Errors
    /// If a worker has stalled: it may have to apply a change.
    pub async fn plan(&self) -> Result<Current, DataplaneError> {
        self.done(|this| async move { Ok(this.current().await) }).await
    }

    /// The current accounts; with `mark`, the high-water marks restart afterwards.
    ///
    /// # Errors
    /// If a worker stalls.
    pub async fn stats(&self, mark: bool) -> Result<model::Stats, DataplaneError> {
        self.done(move |this| async move {
            let plans = &*this.settled().await;
            let reports = this.answers(|worker| worker.report(mark)).await?;
            Ok(this.merge(&reports, plans, mark).await)
        })
        .await
    }

    /// Ends the workers and returns the final accounts. Waits for a stalled worker.
    ///
    /// # Errors
    /// If a worker does not answer within 20 s.
    pub async fn stop(&self) -> Result<model::Stats, DataplaneError> {
        self.done_within(STOP_WITHIN, |this| async move {
            let plans = &*this.0.history.plans().await;
            let reports = this.answers(Handle::stop).await?;
            for (worker, report) in reports.iter().enumerate() {
                let received = report.snapshot.total().received.packets;
                let (clients, used) =
                    (report.snapshot.clients.len(), report.snapshot.store_used_max);
                tracing::info!(worker, received, clients, store_used_max = used, "worker ended");
            }
            Ok(this.merge(&reports, plans, false).await)
        })
        .await
    }

    /// Asks every worker, then waits for all of their answers, however long that takes.
    async fn answers<T>(
        &self,
        call: impl FnMut(&Handle) -> Result<Answer<T>, CommandError>,
    ) -> Result<Vec<T>, DataplaneError> {
        gather(self.ask(call)?).await
    }

    /// Asks every worker, or none if one has too many requests.
    fn ask<T>(
        &self,
        call: impl FnMut(&Handle) -> Result<Answer<T>, CommandError>,
    ) -> Result<Vec<Answer<T>>, DataplaneError> {
        if !self.0.workers.iter().all(Handle::has_room) {
            return Err(CommandError::Busy.into());
        }
        Ok(self.0.workers.iter().map(call).collect::<Result<_, _>>()?)
    }

    /// The counts of all workers.
    fn counts(&self, reports: &[Box<Report>]) -> model::Stats {
        let mut stats = merge(reports, self.0.machine.ports.accounts());
        if let Some(switch) = &self.0.machine.fixed.description.switch {
            let numbers = numbers_described(switch, reports.len());
            let home = self.home();
            let has = |key| home.unwrap_or_else(|| worker_of(key, reports.len()));
            number_clients(&mut stats.clients, reports, has, numbers);
        }
        stats
    }

    async fn merge(&self, reports: &[Box<Report>], plans: &Plans, mark: bool) -> model::Stats {
        let mut stats = self.counts(reports);
        // If the clock itself stopped, the workers did not notice their stall.
        let jump = self.0.machine.longest_jump(self.0.number, mark).as_nanos();
        stats.stall_max_ns = stats.stall_max_ns.max(u64::try_from(jump).unwrap_or(u64::MAX));
        // A pending change may have become current while the reports were written.
        let Plans { schedule, current, .. } = plans;
        stats.lossy = schedule.lossy(stats.generation).unwrap_or(current.applied.lossy);
        stats.utc = Some(utc(&self.0.machine.clock, Instant(stats.time_ns)));
        let (span, began) = &mut *self.0.span.lock().await;
        let host = &self.0.machine.fixed.host;
        let now = host.sample();
        let machine = host.span(began, &now);
        if mark {
            *began = now;
        }
        stats.span = Some(model::Span { host: machine, ..span.of(&stats, mark) });
        stats
    }
}

impl Machine {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jumps(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Duration>> {
        self.jumps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest jump of the clock since the last mark of a link.
    fn longest_jump(&self, link: usize, mark: bool) -> Duration {
        let mut jumps = self.jumps();
        let recent = self.clock.longest_jump(true);
        jumps.values_mut().for_each(|jump| *jump = recent.max(*jump));
        match jumps.get_mut(&link) {
            Some(jump) if mark => std::mem::take(jump),
            jump => jump.copied().unwrap_or_default(),
        }
    }
}

/// Waits for the answers of all workers.
async fn gather<T>(asked: Vec<Answer<T>>) -> Result<Vec<T>, DataplaneError> {
    let mut done = Vec::with_capacity(asked.len());
    for answer in asked {
        done.push(answer.await.map_err(|_| CommandError::Gone)?);
    }
    Ok(done)
}

/// UTC of the clock's zero, in nanoseconds since 1970.
fn utc_zero(clock: &TscClock) -> u64 {
    let zero = SystemTime::try_from(utc(clock, Instant::ZERO)).unwrap_or(SystemTime::UNIX_EPOCH);
    let since = zero.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The wall-clock time of an instant.
fn utc(clock: &TscClock, at: Instant) -> prost_types::Timestamp {
    let now = clock.now();
    let t = SystemTime::now();
    let t = if at.0 <= now {
        t - Duration::from_nanos(now - at.0)
    } else {
        t + Duration::from_nanos(at.0 - now)
    };
    t.into()
}
