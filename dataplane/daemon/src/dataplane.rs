// SPDX-License-Identifier: Apache-2.0
//! The control side of the dataplane: what is in force, and the way to the workers.
//!
//! Runs on the control thread. One request at a time reaches the workers, so that
//! their queues never fill and a change is whole before the next one is looked at. Only
//! changes at an instant wait in the workers beside that ([`crate::schedule`]).

mod capture;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use compile::compile;
use dpdk::TscClock;
use emu::envelope;
use emu::plan::{Plan, PlanError, Room};
use emu::units::{ByDirection, Instant, Nanos};
use profile::Violations;
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard, Semaphore};
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
/// A worker that takes longer to answer is taken for dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
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
    /// A worker did not answer.
    #[error("{0}")]
    Worker(#[from] CommandError),
    /// A worker did not answer in time, now or before.
    #[error("a worker has not answered within {} s: restart the dataplane", ANSWER_WITHIN.as_secs())]
    Broken,
}

/// What counts frames at the ports.
pub trait Ports: Send + Sync {
    /// The accounts of `wan` and `client`.
    fn accounts(&self) -> [PortAccount; 2];
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
    /// A worker has failed to answer: nobody knows what it runs.
    broken: AtomicBool,
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
        let start = utc(&clock, Instant::ZERO);
        let effective_utc = Some(start);
        let applied = model::Applied { effective_utc, ..model::Applied::default() };
        let in_force = InForce { plan, applied, remarks: Vec::new() };
        let mut names = Names::default();
        names.learn(&in_force.plan);
        let (made, schedule) = (VecDeque::new(), Schedule::default());
        let history = Mutex::new(History { in_force, made, schedule, names });
        let span = Mutex::new(Span::starting(start));
        let broken = AtomicBool::new(false);
        let capturing = Arc::new(Semaphore::new(1));
        let shared = Shared { workers, clock, ports, fixed, history, span, broken, capturing };
        Self(Arc::new(shared))
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
    pub async fn in_force(&self) -> InForce {
        self.history().await.in_force.clone()
    }

    /// When the change with a key took effect, if it did and is still known.
    pub async fn made(&self, key: &str) -> Option<model::Applied> {
        self.0.history.lock().await.made(key).map(|made| made.applied)
    }

    /// Puts a plan in force on all workers at one instant: the one asked for, unless there
    /// is too little time until then. Once begun it is carried to
    /// its end, also when the caller goes away: what the workers run and what is said
    /// to be in force must not part.
    ///
    /// # Errors
    /// If nothing was changed: the plan is not valid, or does not fit and may not be lossy,
    /// or another generation is in force, or its key is too long, or its instant is out of
    /// bounds, or it was taken back before that. A change that was made
    /// under the same key is not made again. If a worker does not answer, the dataplane is broken, and
    /// refuses all that follows.
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
        let this = self.clone();
        to_its_end(async move {
            match terms.at {
                None => this.apply_now(next, compiled, terms).await,
                Some(at) => this.apply_at(at, next, compiled, terms).await,
            }
        })
        .await
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
        let reports = self.answers(self.0.workers.iter().map(|w| w.report(false))).await?;
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
        let asked = self.ask(self.changes(at, &compiled, &next, restart))?;
        let changed = self.trusted(gather(asked, ANSWER_WITHIN).await)?;
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
        let (asked, mut place, within) = {
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
            let asked = self.ask(self.changes(at, &compiled, &next, terms.restart))?;
            // Their places are kept from here on.
            history.names.learn(&next.plan);
            let within = ANSWER_WITHIN + Duration::from_nanos(at.since(now).0);
            (asked, history.schedule.enter(at, next), within)
        };
        let changed = gather(asked, within).await;
        if changed.is_ok() {
            place.follows().await;
        }
        let mut history = self.0.history.lock().await;
        // Those that are taken back have no answers, and the workers are well.
        let next = history.schedule.leave(&place).ok_or(DataplaneError::TakenBack)?;
        let changed = self.trusted(changed)?;
        Ok(self.enforce(&mut history, next, &changed).await)
    }

    /// How far ahead of its instant the workers have to hear of a change to make it at one
    /// instant: one worker always does.
    fn lead(&self) -> Nanos {
        if self.0.workers.len() == 1 { Nanos::ZERO } else { LEAD }
    }

    /// The same change for each worker.
    fn changes(
        &self,
        at: Instant,
        compiled: &Plan,
        next: &InForce,
        restart: bool,
    ) -> impl Iterator<Item = Result<Answer<Changed>, CommandError>> {
        let generation = next.applied.generation;
        self.0.workers.iter().map(move |worker| {
            let plan = compiled.clone();
            worker.apply(Change { at, plan, generation, restart })
        })
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
    /// If a worker does not answer.
    pub async fn take_back(&self) -> Result<usize, DataplaneError> {
        let this = self.clone();
        to_its_end(async move {
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
        let taken = self.answers(self.0.workers.iter().map(|w| w.take_back(first))).await?;
        let from = |taken: &Vec<worker::command::Waiting>| {
            taken.last().map_or(last + 1, |(change, _)| change.generation)
        };
        let keep = taken.iter().map(from).max().unwrap_or(first);
        for (worker, taken) in self.0.workers.iter().zip(taken) {
            for change in taken.into_iter().rev().filter(|(c, _)| c.generation < keep) {
                self.trusted(worker.give_back(change))?;
            }
        }
        Ok(history.schedule.cut(keep))
    }

    /// Returns when the run loop of every worker has turned. What has taken longer than
    /// `patience` is told, and waited for further.
    ///
    /// # Errors
    /// If a worker has ended.
    pub async fn turned(&self, patience: Duration) -> Result<(), CommandError> {
        for (number, worker) in self.0.workers.iter().enumerate() {
            let mut answer = loop {
                match worker.alive() {
                    Err(CommandError::Busy) => tokio::time::sleep(BUSY).await,
                    asked => break asked?,
                }
            };
            let answered = loop {
                if let Ok(answered) = timeout(patience, &mut answer).await {
                    break answered;
                }
                tracing::error!(worker = number, "the run loop has stood still for {patience:?}");
            };
            answered.map_err(|_| CommandError::Gone)?;
        }
        Ok(())
    }

    /// The accounts now; with `mark`, the high-water marks start anew afterwards.
    ///
    /// # Errors
    /// If a worker does not answer.
    pub async fn stats(&self, mark: bool) -> Result<model::Stats, DataplaneError> {
        let history = &*self.history().await;
        let reports = self.answers(self.0.workers.iter().map(|w| w.report(mark))).await?;
        Ok(self.merge(&reports, history, mark).await)
    }

    /// Ends the workers; the final accounts.
    ///
    /// # Errors
    /// If a worker does not answer.
    pub async fn stop(&self) -> Result<model::Stats, DataplaneError> {
        let history = &*self.0.history.lock().await;
        let reports = self.answers(self.0.workers.iter().map(Handle::stop)).await?;
        for (worker, report) in reports.iter().enumerate() {
            let received = report.snapshot.total().received.packets;
            let (clients, used) = (report.snapshot.clients.len(), report.snapshot.store_used_max);
            tracing::info!(worker, received, clients, store_used_max = used, "worker ended");
        }
        Ok(self.merge(&reports, history, false).await)
    }

    /// Asks every worker, then waits for all of their answers.
    async fn answers<T>(
        &self,
        calls: impl Iterator<Item = Result<Answer<T>, CommandError>>,
    ) -> Result<Vec<T>, DataplaneError> {
        let asked = self.ask(calls)?;
        self.trusted(gather(asked, ANSWER_WITHIN).await)
    }

    /// Asks every worker.
    fn ask<T>(
        &self,
        calls: impl Iterator<Item = Result<Answer<T>, CommandError>>,
    ) -> Result<Vec<Answer<T>>, DataplaneError> {
        if self.0.broken.load(Ordering::Relaxed) {
            return Err(DataplaneError::Broken);
        }
        match calls.collect() {
            // The only worker has not taken it, and nothing has changed.
            Err(CommandError::Busy) if self.0.workers.len() == 1 => Err(CommandError::Busy.into()),
            asked => self.trusted(asked),
        }
    }

    /// After a worker has not answered, none is asked again.
    fn trusted<T>(
        &self,
        answer: Result<T, impl Into<DataplaneError>>,
    ) -> Result<T, DataplaneError> {
        answer.map_err(|error| {
            self.0.broken.store(true, Ordering::Relaxed);
            error.into()
        })
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

/// Does something to its end, also when the caller goes away.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, DataplaneError>> + Send + 'static,
) -> Result<T, DataplaneError> {
    tokio::spawn(work).await.map_err(|_| DataplaneError::Broken)?
}

/// Waits for the answers of all workers.
async fn gather<T>(asked: Vec<Answer<T>>, within: Duration) -> Result<Vec<T>, DataplaneError> {
    let each = async {
        let mut done = Vec::with_capacity(asked.len());
        for answer in asked {
            done.push(answer.await.map_err(|_| CommandError::Gone)?);
        }
        Ok(done)
    };
    timeout(within, each).await.map_err(|_| DataplaneError::Broken)?
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
