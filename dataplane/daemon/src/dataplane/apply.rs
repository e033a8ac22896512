// SPDX-License-Identifier: Apache-2.0
//! The path of a change to the workers: merge, compile, check, apply.
//!
//! A change at once withdraws all pending changes first. A change at an instant is merged into the
//! plan that will be current then. The history stays locked from the merge until the workers have
//! the change, so that no other change comes between.

pub mod together;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use compile::compile;
use emu::envelope;
use emu::plan::Plan;
use emu::units::{Instant, Nanos};
use owner::{Merged, Request, merge, subject};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio::sync::MutexGuard;
use worker::command::{Change, Changed, Waiting};

use super::{BUSY, Dataplane, DataplaneError, History, KEY_BYTES, LEAD, gather, utc, utc_zero};
use crate::current::Current;
use crate::names;
use crate::schedule::AHEAD;

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The controller. The change is an event.
    Controller(pb::Cause),
    /// The scenario, which reports its steps itself.
    Scenario,
    /// The scenario of another link. The change is an event.
    OtherScenario(pb::Cause),
}

/// How a change is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub source: Source,
    /// The generation that must be current.
    pub expected: Option<u64>,
    /// Accept a plan outside of the envelope.
    pub lossy: bool,
    pub request: Request,
}

impl Default for Terms {
    fn default() -> Self {
        let (source, request) = (Source::Controller(pb::Cause::default()), Request::default());
        Self { source, expected: None, lossy: false, request }
    }
}

impl Terms {
    fn check(&self) -> Result<(), DataplaneError> {
        match self.request.key.len().max(self.request.fingerprint.len()) {
            longest if longest > KEY_BYTES => Err(DataplaneError::Key(longest)),
            _ => Ok(()),
        }
    }
}

/// A change that was made, now or before under the same key.
#[derive(Clone, Debug, Default)]
pub struct Made {
    pub applied: model::Applied,
    /// As of [`Current`].
    pub remarks: Vec<String>,
    /// It was made before.
    pub repeated: bool,
    /// The plan after it; none if it is not known any longer.
    pub plan: Option<Arc<pb::Plan>>,
    /// Sequence of its event.
    pub sequence: u64,
}

/// A plan that was merged, compiled and checked.
struct Ready {
    next: Current,
    compiled: Plan,
    restart: bool,
    /// UTC of the clock's zero that its periods follow.
    utc_zero: u64,
}

impl History {
    /// The plan that will be current at an instant, with its generation.
    fn tip(&self, at: Instant) -> &Current {
        self.schedule.tip(at).unwrap_or(&self.current)
    }
}

impl Dataplane {
    /// The history without changes in progress: none is pending with an instant in the past.
    pub(super) async fn history(&self) -> MutexGuard<'_, History> {
        let now = Instant(self.0.machine.clock.now());
        loop {
            let history = self.0.history.lock().await;
            let Some(mut due) = history.schedule.due(now) else { return history };
            drop(history);
            crate::schedule::over(&mut due).await;
        }
    }

    /// The current plan.
    ///
    /// # Errors
    /// If a worker has stalled: it may have to apply a change.
    pub async fn current(&self) -> Result<Current, DataplaneError> {
        self.done(|this| async move { Ok(this.history().await.current.clone()) }).await
    }

    /// Merges a change into the current plan and applies it to all workers at one instant. Once
    /// begun it runs to completion, even if the caller disconnects.
    ///
    /// # Errors
    /// If nothing was changed: the change or the plan after it is not valid, or does not fit and
    /// may not be lossy, or another generation is current, or its key is too long or belongs to
    /// another request. If a worker stalls meanwhile, the change may be made later, or not.
    pub async fn apply(&self, change: pb::Change, terms: Terms) -> Result<Made, DataplaneError> {
        terms.check()?;
        self.done(|this| this.change(change, None, terms)).await
    }

    /// The same at an instant. Resolves when the change was made, or withdrawn.
    ///
    /// # Errors
    /// As [`Self::apply`], or if the instant is out of bounds.
    pub async fn apply_at(
        &self,
        at: Instant,
        change: pb::Change,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        terms.check()?;
        self.health()?;
        let ahead = at.since(Instant(self.0.machine.clock.now()));
        let patience = self.0.machine.patience + Duration::from_nanos(ahead.0.min(AHEAD.0));
        self.done_within(patience, |this| this.change(change, Some(at), terms)).await
    }

    /// Withdraws all changes that wait for their instants.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub async fn withdraw(&self) -> Result<(), DataplaneError> {
        self.done(|this| async move { this.withdraw_all().await }).await
    }

    /// Lets the switch do its part of the current plan.
    ///
    /// # Errors
    /// If another generation is current, or there is no switch.
    pub async fn set_offload(
        &self,
        offload: Option<pb::Offload>,
        expected: u64,
    ) -> Result<(), DataplaneError> {
        self.done(|this| async move {
            let mut history = this.history().await;
            let Current { plan, applied, .. } = &history.current;
            check(applied.generation, Some(expected))?;
            let (generation, lossy) = (applied.generation, applied.lossy);
            let plan = pb::Plan { offload, ..plan.clone() };
            let merged = Merged { plan, restart: false, arm: [false; 2] };
            let ready = this.fitting(&history, "the offload", merged, lossy).await?;
            let ready = this.settle(ready).await?;
            this.withdraw_after(&mut history, None).await?;
            // A change that a worker has made meanwhile has the older offload.
            if history.schedule.after(None).is_some() {
                return Err(DataplaneError::Withdrawn);
            }
            let Ready { next, compiled, .. } = ready;
            this.hand_over(&compiled, generation, false).await?;
            history.current.plan = next.plan;
            Ok(())
        })
        .await
    }

    /// Lets the current plan of a shared link include all of its access links.
    ///
    /// # Errors
    /// If a change is pending, or a worker has stalled.
    pub(crate) async fn share(&self) -> Result<(), DataplaneError> {
        self.done(|this| async move {
            let history = this.history().await;
            if history.schedule.after(None).is_some() {
                return Err(DataplaneError::Pending);
            }
            let Current { plan, applied, .. } = &history.current;
            let merged = Merged { plan: plan.clone(), restart: false, arm: [false; 2] };
            let ready = this.fitting(&history, "the plan", merged, applied.lossy).await?;
            let ready = this.settle(ready).await?;
            this.hand_over(&ready.compiled, applied.generation, false).await.map(drop)
        })
        .await
    }

    /// Applies a compiled plan to all workers at once, as a generation.
    async fn hand_over(
        &self,
        plan: &Plan,
        generation: u64,
        restart: bool,
    ) -> Result<Vec<Changed>, DataplaneError> {
        let at = Instant(self.0.machine.clock.now()) + self.lead();
        self.answers(|worker| worker.apply(Change { at, plan: plan.clone(), generation, restart }))
            .await
    }

    /// As [`Self::apply`], at an instant or at once, and without a limit of time.
    pub(super) async fn change(
        self,
        change: pb::Change,
        at: Option<Instant>,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        match at {
            None => self.change_now(&change, terms).await,
            Some(at) => self.change_at(at, &change, terms).await,
        }
    }

    async fn change_now(&self, change: &pb::Change, terms: Terms) -> Result<Made, DataplaneError> {
        let (mut history, ready) = loop {
            let mut history = self.history().await;
            if let Some(made) = history.keys.find(&terms.request)? {
                return Ok(Made { repeated: true, ..made.clone() });
            }
            check(history.current.applied.generation, terms.expected)?;
            let merged = merged(change, &history.current)?;
            let ready = self.fitting(&history, subject(change), merged, terms.lossy).await?;
            let ready = self.settle(ready).await?;
            self.withdraw_after(&mut history, None).await?;
            // A change that a worker has made meanwhile comes first.
            if history.schedule.after(None).is_none() {
                break (history, ready);
            }
        };
        let Ready { mut next, compiled, restart, .. } = ready;
        next.applied.generation = history.current.applied.generation + 1;
        let changed = self.hand_over(&compiled, next.applied.generation, restart).await?;
        Ok(self.enter(&mut history, next, &changed, terms).await)
    }

    async fn change_at(
        &self,
        at: Instant,
        change: &pb::Change,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        let (asked, mut place) = {
            let mut history = self.0.history.lock().await;
            let now = Instant(self.0.machine.clock.now());
            // A stall while the lock was held makes a step late, and is no reason to refuse it.
            if let Some(made) = history.keys.find(&terms.request)? {
                return Ok(Made { repeated: true, ..made.clone() });
            }
            history.schedule.check(now, at.max(now))?;
            let at = at.max(now + self.lead());
            let before = history.tip(at);
            let generation = before.applied.generation;
            check(generation, terms.expected)?;
            let merged = merged(change, before)?;
            let ready = self.fitting(&history, subject(change), merged, terms.lossy).await?;
            let ready = self.settle(ready).await?;
            self.withdraw_after(&mut history, Some(at)).await?;
            // A worker may have made one of those.
            check(generation, Some(history.tip(Instant::MAX).applied.generation))?;
            let Ready { mut next, compiled, restart, .. } = ready;
            next.applied.generation = generation + 1;
            let generation = next.applied.generation;
            let asked = self.ask(|worker| {
                worker.apply(Change { at, plan: compiled.clone(), generation, restart })
            })?;
            // The slots of its clients are reserved from here on.
            history.names.learn(&next.plan);
            (asked, history.schedule.enter(at, next))
        };
        let changed = gather(asked).await;
        if changed.is_ok() {
            place.follows().await;
        }
        let mut history = self.0.history.lock().await;
        // Withdrawn changes have no answers, although the workers are well.
        let next = history.schedule.leave(&place).ok_or(DataplaneError::Withdrawn)?;
        Ok(self.enter(&mut history, next, &changed?, terms).await)
    }

    /// Compiles a plan and checks that it fits. Changes nothing.
    async fn fitting(
        &self,
        history: &History,
        subject: &'static str,
        merged: Merged,
        lossy: bool,
    ) -> Result<Ready, DataplaneError> {
        let Merged { plan, restart, arm } = merged;
        if plan.offload.is_some() && self.0.machine.fixed.description.switch.is_none() {
            return Err(DataplaneError::NoSwitch);
        }
        let invalid = |violations| DataplaneError::Invalid { what: subject, violations };
        let mut compiled = compile(&plan).map_err(invalid)?;
        if let Some(shared) = self.role().shared() {
            shared.complete(&mut compiled).map_err(invalid)?;
        }
        names::set_pairs(&plan, &mut compiled, &self.0.machine.fixed.pairs).map_err(invalid)?;
        // Periods with a phase in UTC follow the wall clock as it was at the last restart.
        let zero = if restart {
            utc_zero(&self.0.machine.clock)
        } else {
            self.0.utc_zero.load(Ordering::Relaxed)
        };
        compiled.align(Nanos(zero));
        for (pipe, arm) in compiled.pipes.0.iter_mut().zip(arm) {
            if let Some(run) = &mut pipe.drop_run {
                run.arm = arm;
            }
        }
        self.make_room(history, &plan, &mut compiled).await?;
        let room = self.room();
        let lossy = match compiled.check(room) {
            Ok(()) => false,
            Err(e) if e.is_lossy() && lossy => true,
            Err(e) => return Err(e.into()),
        };
        let limits = envelope::remarks(&compiled, room).into_iter().map(|r| r.to_string());
        let remarks = envelope::excesses(&compiled, room).into_iter().chain(limits).collect();
        let applied = model::Applied { lossy, ..model::Applied::default() };
        let next = Current { plan, applied, remarks };
        Ok(Ready { next, compiled, restart, utc_zero: zero })
    }

    /// Prepares the workers for a plan that fits.
    async fn settle(&self, mut ready: Ready) -> Result<Ready, DataplaneError> {
        // Clients that share something have one worker.
        let Plan { rules, beams, .. } = &ready.compiled;
        let shares = rules.automatic.is_some() || !beams.beams.is_empty();
        if shares && self.home().is_none() {
            let overtaken = self.settle_on_one_worker().await?;
            if overtaken > 0 {
                ready.next.remarks.push(format!(
                    "all clients moved to one worker, and {overtaken} packets that came to others \
                     meanwhile may be overtaken"
                ));
            }
        }
        self.0.utc_zero.store(ready.utc_zero, Ordering::Relaxed);
        Ok(ready)
    }

    /// Reserves a slot for every client that a plan names.
    async fn make_room(
        &self,
        history: &History,
        plan: &pb::Plan,
        compiled: &mut Plan,
    ) -> Result<(), DataplaneError> {
        let max = self.room().clients;
        let automatic = match history.names.are_new(plan) {
            false => 0,
            true => {
                let reports = self.answers(|worker| worker.report(false)).await?;
                names::automatic(&self.merge(&reports, history, false).await)
            }
        };
        Ok(history.names.reserve(plan, compiled, automatic, max)?)
    }

    /// How far ahead of its instant the workers need a change to make it at one instant.
    fn lead(&self) -> emu::units::Nanos {
        if self.0.workers.len() == 1 { emu::units::Nanos::ZERO } else { LEAD }
    }

    /// Makes the plan that the workers have applied the current one.
    async fn enter(
        &self,
        history: &mut History,
        mut next: Current,
        changed: &[Changed],
        terms: Terms,
    ) -> Made {
        // The requested instant, unless this thread was held up between reading the clock and
        // asking the workers.
        let at = changed.iter().map(|c| c.at).max().unwrap_or_default();
        next.applied.effective_ns = at.0;
        next.applied.effective_utc = Some(utc(&self.0.machine.clock, at));
        let tolerance = self.0.machine.fixed.tolerance(&next.plan);
        self.0.span.lock().await.0.changed(next.applied.lossy, tolerance);
        history.names.learn(&next.plan);
        let mut sequence = 0;
        if let Source::Controller(cause) | Source::OtherScenario(cause) = &terms.source {
            let entry = owner::changed(cause, &next.plan, &next.applied);
            sequence = self.0.journal.push(|_| entry);
        }
        if let Source::Controller(_) = &terms.source {
            self.0.others.send_replace(next.applied.generation);
        }
        history.current = next;
        let Current { plan, applied, remarks } = history.current.clone();
        let made = Made { applied, remarks, repeated: false, plan: Some(Arc::new(plan)), sequence };
        history.keys.keep_with_plan(terms.request, made.clone(), |made| &mut made.plan);
        made
    }

    pub(super) async fn withdraw_all(&self) -> Result<(), DataplaneError> {
        let mut history = self.history().await;
        self.withdraw_after(&mut history, None).await
    }

    /// Withdraws the changes after an instant, except those that a worker has already made: all
    /// workers make these.
    async fn withdraw_after(
        &self,
        history: &mut History,
        after: Option<Instant>,
    ) -> Result<(), DataplaneError> {
        let Some((first, last)) = history.schedule.after(after) else { return Ok(()) };
        let taken = self.answers(|worker| worker.take_back(first)).await?;
        let from = |taken: &Vec<Waiting>| {
            taken.last().map_or(last + 1, |(_, change, _)| change.generation)
        };
        let keep = taken.iter().map(from).max().unwrap_or(first);
        for (worker, taken) in self.0.workers.iter().zip(taken) {
            for change in taken.into_iter().rev().filter(|(_, c, _)| c.generation < keep) {
                while !worker.has_room() {
                    tokio::time::sleep(BUSY).await;
                }
                worker.give_back(change)?;
            }
        }
        history.schedule.cut(keep);
        Ok(())
    }
}

fn merged(change: &pb::Change, current: &Current) -> Result<Merged, DataplaneError> {
    merge(change, current.plan.clone()).map_err(|error| match error {
        owner::ChangeError::Invalid(violations) => {
            DataplaneError::Invalid { what: subject(change), violations }
        }
        no_link @ owner::ChangeError::NoLink => DataplaneError::NoLink(no_link),
    })
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
