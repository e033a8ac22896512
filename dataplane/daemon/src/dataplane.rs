// SPDX-License-Identifier: Apache-2.0
//! The control side of the dataplane: what is in force, and the way to the workers.
//!
//! Runs on the control thread. One request at a time reaches the workers, so that
//! their queues never fill and a change is whole before the next one is looked at. Only
//! changes at an instant wait in the workers beside that ([`crate::schedule`]).
//!
//! A worker can stand still: its thread is stopped, or the virtual machine is paused. What it
//! was asked for stays in its queue, and it will do that when it goes on. So work that has
//! begun waits for the workers without limit, and keeps others from the history meanwhile; the
//! callers wait for [`ANSWER_WITHIN`] and are then told that a worker has stalled. Until the
//! run loops are known to turn again ([`Dataplane::turned`]), requests are refused at once.

mod capture;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use compile::compile;
use dpdk::TscClock;
use emu::check::PlanError;
use emu::envelope;
use emu::plan::{Plan, Room};
use emu::units::{ByDirection, Instant, Nanos};
use profile::Violations;
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard, Semaphore, watch};
use tokio::time::timeout;
use worker::command::{Answer, Change, Changed, CommandError, Handle, Report};

use crate::accounts::{PortAccount, merge, number_clients};
use crate::names::{self, ClientsError, Names};
use crate::schedule::{Schedule, ScheduleError, over};
use crate::span::Span;
use crate::switch::tick;
pub use capture::Chunks;

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
/// Changes whose keys are remembered.
const KEYS: usize = 1024;
/// Of a key.
const KEY_BYTES: usize = 128;

/// Why a request was not carried out.
#[derive(Debug, Error)]
pub enum DataplaneError {
    /// The plan is not valid.
    #[error("{0}")]
    Invalid(#[from] Violations),
    /// The plan is not one that this dataplane can hold.
    #[error("{0}")]
    Refused(#[from] PlanError),
    /// The clients cannot be as the plan says.
    #[error("{0}")]
    Clients(#[from] ClientsError),
    /// The plan leaves work to a switch, and there is none.
    #[error(
        "the plan has an `offload`, and no P4 switch is before this box: leave it out, or describe \
         the switch under [switch] in the box's file and start the dataplane anew"
    )]
    NoSwitch,
    /// Somebody else changed the configuration meanwhile.
    #[error(
        "generation {current} is in force and {expected} was expected: somebody else changed the \
         link; look at it again, then decide"
    )]
    Generation {
        /// In force.
        current: u64,
        /// What the caller thought.
        expected: u64,
    },
    /// The key of a change is too long to be kept.
    #[error("a key of {0} bytes is longer than {KEY_BYTES}: give a shorter one")]
    Key(usize),
    /// The change cannot wait for its instant.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// The change did not come to its instant.
    #[error(
        "taken back before its instant, for another change or because somebody asked for that; \
         look at the link again, then decide"
    )]
    TakenBack,
    /// What is to be captured is not valid.
    #[error("{0}")]
    Capture(String),
    /// There is a capture.
    #[error(
        "somebody captures already, and one capture runs at a time: wait for its end, or end it"
    )]
    Capturing,
    /// A worker cannot be asked.
    #[error("{0}")]
    Worker(#[from] CommandError),
    /// A worker stands still.
    #[error(
        "a worker has not answered for {} s: it stands still, and frames wait with it. What it was \
         asked for is done when it goes on; look at the link then. If it does not, restart the \
         dataplane",
        .0.as_secs()
    )]
    Stalled(Duration),
    /// The work ended without a result.
    #[error("the request ended without a result: please report this, with the log")]
    Panicked,
}

/// The ports, as far as accounts and statistics need them.
pub trait Ports: Send + Sync {
    /// The accounts of `wan` and `client`.
    fn accounts(&self) -> [PortAccount; 2];

    /// Their link, MTU and faults; empty where the ports are not watched.
    fn states(&self) -> Vec<model::PortState> {
        Vec::new()
    }
}

/// What is fixed while the dataplane runs.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    /// What `Describe` answers.
    pub description: pb::DescribeResponse,
    /// What there is to hold a plan with.
    pub room: Room,
}

/// On what terms a plan is put in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The random processes start anew.
    pub restart: bool,
    /// The generation that must be in force.
    pub expected: Option<u64>,
    /// A plan outside of the envelope is taken.
    pub lossy: bool,
    /// Names the change, so that it is not made twice; empty: it has none.
    pub key: String,
    /// When it takes effect; without it, as soon as all workers can.
    pub at: Option<Instant>,
    /// The drop runs that begin anew although they are those in force.
    pub arm: ByDirection<bool>,
}

/// What is in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The plan.
    pub plan: pb::Plan,
    /// Since when.
    pub applied: model::Applied,
    /// Why it is lossy, if it is, and what else it says and the link will not do.
    pub remarks: Vec<String>,
}

/// A change that was made, now or before under the same key.
#[derive(Clone, Debug)]
pub struct Made {
    /// When it took effect.
    pub applied: model::Applied,
    /// As of [`InForce`].
    pub remarks: Vec<String>,
    /// It had been made before.
    pub repeated: bool,
}

/// What is in force, and the changes that led there.
struct History {
    in_force: InForce,
    /// By their keys, the last one last.
    made: VecDeque<(String, Made)>,
    /// Those to come.
    schedule: Schedule,
    /// Clients that were named.
    names: Names,
}

impl History {
    /// The generation that will be in force at an instant.
    fn generation(&self, at: Instant) -> u64 {
        self.schedule.generation(at).unwrap_or(self.in_force.applied.generation)
    }

    fn made(&self, key: &str) -> Option<&Made> {
        let mut made = self.made.iter().rev().filter(|(k, _)| !k.is_empty());
        made.find(|(k, _)| k == key).map(|(_, made)| made)
    }

    fn remember(&mut self, key: String, made: Made) {
        if key.is_empty() {
            return;
        }
        if self.made.len() == KEYS {
            self.made.pop_front();
        }
        self.made.push_back((key, made));
    }
}

struct Shared {
    workers: Vec<Handle>,
    clock: TscClock,
    ports: Box<dyn Ports>,
    fixed: Fixed,
    history: Mutex<History>,
    /// Since the last mark; taken only with `history`.
    span: Mutex<Span>,
    /// Whether a worker has stalled.
    stalled: watch::Sender<bool>,
    /// Frames of clients without a slot, as of the last time that all workers turned.
    unplaced: AtomicU64,
    /// How long callers wait for workers.
    patience: Duration,
    /// One permit.
    capturing: Arc<Semaphore>,
}

/// The dataplane, as its service and its shutdown see it; clones are the same one.
#[derive(Clone)]
pub struct Dataplane(Arc<Shared>);

impl Dataplane {
    /// A dataplane whose `workers` run `plan` as generation 0.
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
        let effective_utc = Some(start);
        let applied = model::Applied { effective_utc, ..model::Applied::default() };
        let in_force = InForce { plan, applied, remarks: Vec::new() };
        let mut names = Names::default();
        names.learn(&in_force.plan);
        let (made, schedule) = (VecDeque::new(), Schedule::default());
        let history = Mutex::new(History { in_force, made, schedule, names });
        let span = Mutex::new(Span::starting(start));
        Self(Arc::new(Shared {
            workers,
            clock,
            ports,
            fixed,
            history,
            span,
            stalled: watch::Sender::new(false),
            unplaced: AtomicU64::new(0),
            patience,
            capturing: Arc::new(Semaphore::new(1)),
        }))
    }

    /// Whether all workers move on, as far as is known.
    ///
    /// # Errors
    /// [`DataplaneError::Stalled`].
    pub fn health(&self) -> Result<(), DataplaneError> {
        match *self.0.stalled.borrow() {
            true => Err(DataplaneError::Stalled(self.0.patience)),
            false => Ok(()),
        }
    }

    /// Frames of clients that there was no slot for, as of about a second ago.
    #[must_use]
    pub fn unplaced(&self) -> u64 {
        self.0.unplaced.load(Ordering::Relaxed)
    }

    /// Whether a worker stands still, and each change of that.
    #[must_use]
    pub fn stalled(&self) -> watch::Receiver<bool> {
        self.0.stalled.subscribe()
    }

    fn set_stalled(&self, stalled: bool) {
        let changed =
            self.0.stalled.send_if_modified(|is| std::mem::replace(is, stalled) != stalled);
        match (changed, stalled) {
            (true, true) => tracing::error!("a worker has stood still for {:?}", self.0.patience),
            (true, false) => tracing::warn!("all workers go on; late answers have been dealt with"),
            _ => {}
        }
    }

    /// Runs work that needs the workers. Once begun it runs to completion, even if the caller
    /// disconnects or times out: otherwise what the workers run and what is reported as in force
    /// could differ.
    async fn done<T, F>(&self, work: impl FnOnce(Self) -> F) -> Result<T, DataplaneError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, DataplaneError>> + Send + 'static,
    {
        self.health()?;
        self.done_within(self.0.patience, work).await
    }

    /// The same, for a caller with another patience, and also while a worker is known to stand
    /// still.
    async fn done_within<T, F>(
        &self,
        patience: Duration,
        work: impl FnOnce(Self) -> F,
    ) -> Result<T, DataplaneError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, DataplaneError>> + Send + 'static,
    {
        match timeout(patience, tokio::spawn(work(self.clone()))).await {
            Ok(done) => done.map_err(|_| DataplaneError::Panicked)?,
            Err(_) => {
                self.set_stalled(true);
                Err(DataplaneError::Stalled(patience))
            }
        }
    }

    /// What is fixed.
    #[must_use]
    pub fn fixed(&self) -> &Fixed {
        &self.0.fixed
    }

    /// Whether a P4 switch is before the box.
    fn has_switch(&self) -> bool {
        self.0.fixed.description.switch.is_some()
    }

    /// What became of the ports.
    #[must_use]
    pub fn ports(&self) -> Vec<model::PortState> {
        self.0.ports.states()
    }

    /// The time, on this clock and in UTC.
    #[must_use]
    pub fn time(&self) -> (u64, prost_types::Timestamp) {
        let now = self.0.clock.now();
        (now, utc(&self.0.clock, Instant(now)))
    }

    /// What has happened up to now: no change whose instant has come is under way.
    async fn history(&self) -> MutexGuard<'_, History> {
        let now = Instant(self.0.clock.now());
        loop {
            let history = self.0.history.lock().await;
            let Some(mut due) = history.schedule.due(now) else { return history };
            drop(history);
            over(&mut due).await;
        }
    }

    /// What is in force.
    ///
    /// # Errors
    /// If a worker has stalled: it may have to make a change.
    pub async fn in_force(&self) -> Result<InForce, DataplaneError> {
        self.done(|this| async move { Ok(this.history().await.in_force.clone()) }).await
    }

    /// When the change with a key took effect, if it did and is still known.
    ///
    /// # Errors
    /// If a worker has stalled: it may have to make that change.
    pub async fn made(&self, key: &str) -> Result<Option<model::Applied>, DataplaneError> {
        let key = key.to_owned();
        self.done(|this| async move {
            Ok(this.0.history.lock().await.made(&key).map(|made| made.applied))
        })
        .await
    }

    /// Puts a plan in force on all workers at one instant: the one asked for, unless there
    /// is too little time until then. Once begun it runs to completion, even if the caller
    /// disconnects.
    ///
    /// # Errors
    /// If nothing was changed: the plan is not valid, or does not fit and may not be lossy,
    /// or another generation is in force, or its key is too long, or its instant is out of
    /// bounds, or it was taken back before that. A change that was made
    /// under the same key is not made again. If a worker stalls meanwhile, the change may be made
    /// later, or not.
    pub async fn apply(&self, plan: pb::Plan, terms: Terms) -> Result<Made, DataplaneError> {
        if terms.key.len() > KEY_BYTES {
            return Err(DataplaneError::Key(terms.key.len()));
        }
        if terms.at.is_some() && !terms.key.is_empty() {
            return Err(ScheduleError::Key.into());
        }
        let mut compiled = compile(&plan)?;
        if plan.offload.is_some() && !self.has_switch() {
            return Err(DataplaneError::NoSwitch);
        }
        for (pipe, arm) in compiled.pipes.0.iter_mut().zip(terms.arm.0) {
            if let Some(run) = &mut pipe.drop_run {
                run.arm = arm;
            }
        }
        self.health()?;
        let now = Instant(self.0.clock.now());
        let wait = Duration::from_nanos(terms.at.map_or(0, |at| at.since(now).0));
        let patience = self.0.patience.saturating_add(wait);
        self.done_within(patience, |this| this.put_in_force(plan, compiled, terms)).await
    }

    async fn put_in_force(
        self,
        plan: pb::Plan,
        mut compiled: Plan,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        self.make_room(&plan, &mut compiled).await?;
        let room = self.0.fixed.room;
        let lossy = match compiled.check(room) {
            Ok(()) => false,
            Err(e) if e.is_lossy() && terms.lossy => true,
            Err(e) => return Err(e.into()),
        };
        let limits = envelope::remarks(&compiled, room).into_iter().map(|r| r.to_string());
        let remarks = envelope::excesses(&compiled, room).into_iter().chain(limits).collect();
        let applied = model::Applied { lossy, ..model::Applied::default() };
        let next = InForce { plan, applied, remarks };
        match terms.at {
            None => self.apply_now(next, compiled, terms).await,
            Some(at) => self.apply_at(at, next, compiled, terms).await,
        }
    }

    /// Sees to it that every client that a plan names has a place.
    async fn make_room(&self, plan: &pb::Plan, compiled: &mut Plan) -> Result<(), DataplaneError> {
        let workers = self.0.workers.len();
        let Plan { rules, beams, .. } = &*compiled;
        let is_plain = rules.is_empty() && rules.automatic.is_none() && beams.beams.is_empty();
        if workers > 1 && !is_plain {
            return Err(ClientsError::Workers(workers).into());
        }
        let max = self.0.fixed.room.clients;
        {
            // Without waiting for a change that is under way.
            let history = self.0.history.lock().await;
            if !history.names.are_new(plan) {
                return Ok(history.names.reserve(plan, compiled, 0, max)?);
            }
        }
        let history = &*self.history().await;
        let reports = self.answers(|worker| worker.report(false)).await?;
        let automatic = names::automatic(&self.merge(&reports, history, false).await);
        Ok(history.names.reserve(plan, compiled, automatic, max)?)
    }

    async fn apply_now(
        &self,
        mut next: InForce,
        compiled: Plan,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        let Terms { restart, expected, key, .. } = terms;
        let mut history = loop {
            let mut history = self.history().await;
            if let Some(made) = history.made(&key) {
                return Ok(Made { repeated: true, ..made.clone() });
            }
            check(history.in_force.applied.generation, expected)?;
            self.take_back_after(&mut history, None).await?;
            // What a worker has made meanwhile comes first.
            if history.schedule.after(None).is_none() {
                break history;
            }
        };
        next.applied.generation = history.in_force.applied.generation + 1;
        let at = Instant(self.0.clock.now()) + self.lead();
        let generation = next.applied.generation;
        let changed = self
            .answers(|worker| {
                worker.apply(Change { at, plan: compiled.clone(), generation, restart })
            })
            .await?;
        let made = self.enforce(&mut history, next, &changed).await;
        history.remember(key, made.clone());
        Ok(made)
    }

    async fn apply_at(
        &self,
        at: Instant,
        mut next: InForce,
        compiled: Plan,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        let (asked, mut place) = {
            let mut history = self.0.history.lock().await;
            let now = Instant(self.0.clock.now());
            history.schedule.check(now, at)?;
            let at = at.max(now + self.lead());
            let before = history.generation(at);
            check(before, terms.expected)?;
            self.take_back_after(&mut history, Some(at)).await?;
            // One of those might have been made.
            check(before, Some(history.generation(Instant::MAX)))?;
            next.applied.generation = before + 1;
            let (generation, restart) = (next.applied.generation, terms.restart);
            let asked = self.ask(|worker| {
                worker.apply(Change { at, plan: compiled.clone(), generation, restart })
            })?;
            // Their places are kept from here on.
            history.names.learn(&next.plan);
            (asked, history.schedule.enter(at, next))
        };
        let changed = gather(asked).await;
        if changed.is_ok() {
            place.follows().await;
        }
        let mut history = self.0.history.lock().await;
        // Those that are taken back have no answers, and the workers are well.
        let next = history.schedule.leave(&place).ok_or(DataplaneError::TakenBack)?;
        Ok(self.enforce(&mut history, next, &changed?).await)
    }

    /// How far ahead of its instant the workers have to hear of a change to make it at one
    /// instant: one worker always does.
    fn lead(&self) -> Nanos {
        if self.0.workers.len() == 1 { Nanos::ZERO } else { LEAD }
    }

    /// Says that what the workers have made is in force.
    async fn enforce(&self, history: &mut History, mut next: InForce, changed: &[Changed]) -> Made {
        // The instant asked for, unless this thread was held up between asking the clock
        // and telling the workers.
        let at = changed.iter().map(|c| c.at).max().unwrap_or_default();
        next.applied.effective_ns = at.0;
        next.applied.effective_utc = Some(utc(&self.0.clock, at));
        self.0.span.lock().await.changed(next.applied.lossy);
        let made = Made { applied: next.applied, remarks: next.remarks.clone(), repeated: false };
        history.names.learn(&next.plan);
        history.in_force = next;
        made
    }

    /// Takes back all changes that wait for their instants; how many. Once begun it is
    /// carried to its end, as [`Dataplane::apply`] is.
    ///
    /// # Errors
    /// If a worker stalls; they are taken back when it goes on.
    pub async fn take_back(&self) -> Result<usize, DataplaneError> {
        self.done(|this| async move {
            let mut history = this.history().await;
            this.take_back_after(&mut history, None).await
        })
        .await
    }

    /// Takes back the changes after an instant, except what a worker has made by then:
    /// that, all of them make.
    async fn take_back_after(
        &self,
        history: &mut History,
        after: Option<Instant>,
    ) -> Result<usize, DataplaneError> {
        let Some((first, last)) = history.schedule.after(after) else { return Ok(0) };
        let taken = self.answers(|worker| worker.take_back(first)).await?;
        let from = |taken: &Vec<worker::command::Waiting>| {
            taken.last().map_or(last + 1, |(change, _)| change.generation)
        };
        let keep = taken.iter().map(from).max().unwrap_or(first);
        for (worker, taken) in self.0.workers.iter().zip(taken) {
            for change in taken.into_iter().rev().filter(|(c, _)| c.generation < keep) {
                while !worker.has_room() {
                    tokio::time::sleep(BUSY).await;
                }
                worker.give_back(change)?;
            }
        }
        Ok(history.schedule.cut(keep))
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
            self.0.unplaced.store(unplaced, Ordering::Relaxed);
            Ok(())
        };
        let mut all = std::pin::pin!(all);
        let turned = match timeout(self.0.patience, &mut all).await {
            Ok(turned) => turned,
            Err(_) => {
                self.set_stalled(true);
                all.await
            }
        };
        turned.inspect(|()| self.set_stalled(false))
    }

    /// The accounts now; with `mark`, the high-water marks start anew afterwards.
    ///
    /// # Errors
    /// If a worker stalls.
    pub async fn stats(&self, mark: bool) -> Result<model::Stats, DataplaneError> {
        self.done(move |this| async move {
            let history = &*this.history().await;
            let reports = this.answers(|worker| worker.report(mark)).await?;
            Ok(this.merge(&reports, history, mark).await)
        })
        .await
    }

    /// Ends the workers; the final accounts. A worker that stands still is waited for.
    ///
    /// # Errors
    /// If a worker does not answer within 20 s.
    pub async fn stop(&self) -> Result<model::Stats, DataplaneError> {
        self.done_within(STOP_WITHIN, |this| async move {
            let history = &*this.0.history.lock().await;
            let reports = this.answers(Handle::stop).await?;
            for (worker, report) in reports.iter().enumerate() {
                let received = report.snapshot.total().received.packets;
                let (clients, used) =
                    (report.snapshot.clients.len(), report.snapshot.store_used_max);
                tracing::info!(worker, received, clients, store_used_max = used, "worker ended");
            }
            Ok(this.merge(&reports, history, false).await)
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

    async fn merge(&self, reports: &[Box<Report>], history: &History, mark: bool) -> model::Stats {
        let mut stats = merge(reports, self.0.ports.accounts());
        if let Some(switch) = &self.0.fixed.description.switch {
            number_clients(&mut stats.clients, tick(switch.target()));
        }
        // A clock that stood still hides from the workers that they did.
        let jump = self.0.clock.longest_jump(mark).as_nanos();
        stats.stall_max_ns = stats.stall_max_ns.max(u64::try_from(jump).unwrap_or(u64::MAX));
        // A change may have come to its instant while the reports were written.
        let came = history.schedule.lossy(stats.generation);
        stats.lossy = came.unwrap_or(history.in_force.applied.lossy);
        stats.utc = Some(utc(&self.0.clock, Instant(stats.time_ns)));
        stats.span = Some(self.0.span.lock().await.of(&stats, mark));
        stats
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

/// The link must not have changed meanwhile.
fn check(current: u64, expected: Option<u64>) -> Result<(), DataplaneError> {
    match expected {
        Some(expected) if expected != current => {
            Err(DataplaneError::Generation { current, expected })
        }
        _ => Ok(()),
    }
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
