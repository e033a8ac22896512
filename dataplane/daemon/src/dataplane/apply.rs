// SPDX-License-Identifier: Apache-2.0
//! The path of a change to the workers: merge, compile, check, apply.
//!
//! A change at once withdraws all pending changes first. A change at an instant is merged into the
//! plan that will be current then. The history stays locked from the merge until the workers have
//! the change, so that no other change comes between.

pub mod together;

use std::sync::atomic::Ordering;
use std::time::Duration;

use compile::compile;
use emu::envelope;
use emu::plan::Plan;
use emu::units::{Instant, Nanos};
use owner::{
    AHEAD_NS, ChangeError, Current, Made, Merged, Terms, check_ahead, check_generation, merge,
    over, subject,
};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio::sync::MutexGuard;
use worker::command::{Change, Changed, Waiting};

use super::{BUSY, Dataplane, DataplaneError, History, LEAD, gather, utc, utc_zero};
use crate::names;

/// A plan that was merged, compiled and checked.
struct Ready {
    next: Current,
    compiled: Plan,
    restart: bool,
    /// UTC of the clock's zero that its periods follow.
    utc_zero: u64,
}

impl Dataplane {
    /// The history without changes in progress: none is pending with an instant in the past.
    pub(super) async fn history(&self) -> MutexGuard<'_, History> {
        let now_ns = self.0.machine.clock.now();
        loop {
            let history = self.0.history.lock().await;
            let Some(mut due) = history.plans.schedule.due(now_ns) else { return history };
            drop(history);
            over(&mut due).await;
        }
    }

    /// The current plan.
    ///
    /// # Errors
    /// If a worker has stalled: it may have to apply a change.
    pub async fn current(&self) -> Result<Current, DataplaneError> {
        self.done(|this| async move { Ok(this.history().await.plans.current.clone()) }).await
    }

    /// Merges a change into the plan that is current at its instant, and applies it to all workers at
    /// one instant. Once begun it runs to completion, even if the caller disconnects. Resolves when
    /// the change was made, or withdrawn.
    ///
    /// # Errors
    /// If nothing was changed: the change or the plan after it is not valid, or does not fit and
    /// may not be lossy, or another generation is current, or its key belongs to another request, or
    /// its instant is out of bounds. If a worker stalls meanwhile, the change may be made later, or
    /// not.
    pub async fn apply(&self, change: pb::Change, terms: Terms) -> Result<Made, DataplaneError> {
        self.health()?;
        let at_ns = terms.at_ns.unwrap_or_default();
        let ahead_ns = at_ns.saturating_sub(self.0.machine.clock.now()).min(AHEAD_NS);
        let patience = self.0.machine.patience + Duration::from_nanos(ahead_ns);
        self.done_within(patience, |this| this.change(change, terms)).await
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
            let Current { plan, applied, .. } = &history.plans.current;
            check_generation(applied.generation, Some(expected))?;
            let (generation, lossy) = (applied.generation, applied.lossy);
            let plan = pb::Plan { offload, ..plan.clone() };
            let merged = Merged { plan, restart: false, arm: [false; 2] };
            let ready = this.fitting(&history, "the offload", merged, lossy).await?;
            let ready = this.settle(ready).await?;
            this.withdraw_after(&mut history, None).await?;
            // A change that a worker has made meanwhile has the older offload.
            if !history.plans.schedule.is_empty() {
                return Err(DataplaneError::Withdrawn);
            }
            let Ready { next, compiled, .. } = ready;
            this.hand_over(&compiled, generation, false).await?;
            history.plans.current.plan = next.plan;
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
            if !history.plans.schedule.is_empty() {
                return Err(DataplaneError::Pending);
            }
            let Current { plan, applied, .. } = &history.plans.current;
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

    /// As [`Self::apply`], without a limit of time.
    pub(super) async fn change(
        self,
        change: pb::Change,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        match terms.at_ns {
            None => self.change_now(&change, terms).await,
            Some(at_ns) => self.change_at(at_ns, &change, terms).await,
        }
    }

    async fn change_now(&self, change: &pb::Change, terms: Terms) -> Result<Made, DataplaneError> {
        let (mut history, ready) = loop {
            let mut history = self.history().await;
            if let Some(made) = history.plans.find(&terms.request)? {
                return Ok(made);
            }
            let current = &history.plans.current;
            check_generation(current.applied.generation, terms.expected)?;
            let merged = merged(change, current)?;
            let ready = self.fitting(&history, subject(change), merged, terms.lossy).await?;
            let ready = self.settle(ready).await?;
            self.withdraw_after(&mut history, None).await?;
            // A change that a worker has made meanwhile comes first.
            if history.plans.schedule.is_empty() {
                break (history, ready);
            }
        };
        let Ready { mut next, compiled, restart, .. } = ready;
        next.applied.generation = history.plans.current.applied.generation + 1;
        let changed = self.hand_over(&compiled, next.applied.generation, restart).await?;
        Ok(self.enter(&mut history, next, &changed, terms).await)
    }

    async fn change_at(
        &self,
        at_ns: u64,
        change: &pb::Change,
        terms: Terms,
    ) -> Result<Made, DataplaneError> {
        // A stall while the lock is held makes a step late, and is no reason to refuse it.
        let arrived_ns = self.0.machine.clock.now();
        let (asked, mut place) = {
            let mut history = self.0.history.lock().await;
            if let Some(made) = history.plans.find(&terms.request)? {
                return Ok(made);
            }
            // One that has passed is late: the order of a group may have waited for a box that stood still.
            check_ahead(arrived_ns, at_ns)?;
            let at = Instant(at_ns).max(Instant(self.0.machine.clock.now()) + self.lead());
            // Later ones are withdrawn.
            history.plans.schedule.check_room(at.0)?;
            let before = history.plans.tip(at.0);
            let generation = before.applied.generation;
            check_generation(generation, terms.expected)?;
            let merged = merged(change, before)?;
            let ready = self.fitting(&history, subject(change), merged, terms.lossy).await?;
            let ready = self.settle(ready).await?;
            self.withdraw_after(&mut history, Some(at)).await?;
            // A worker may have made one of those.
            check_generation(generation, Some(history.plans.tip(u64::MAX).applied.generation))?;
            let Ready { mut next, compiled, restart, .. } = ready;
            next.applied.generation = generation + 1;
            let generation = next.applied.generation;
            let asked = self.ask(|worker| {
                worker.apply(Change { at, plan: compiled.clone(), generation, restart })
            })?;
            // The slots of its clients are reserved from here on.
            history.names.learn(&next.plan);
            (asked, history.plans.schedule.enter(at.0, next))
        };
        let changed = gather(asked).await;
        if changed.is_ok() {
            place.follows().await;
        }
        let mut history = self.0.history.lock().await;
        // Withdrawn changes have no answers, although the workers are well.
        let next = history.plans.schedule.leave(&place).ok_or(DataplaneError::Withdrawn)?;
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
        let invalid = |violations| DataplaneError::Change {
            what: subject,
            error: ChangeError::Invalid(violations),
        };
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
        history.plans.enter(next, terms)
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
        let Some((first, last)) = history.plans.schedule.after(after.map(|at| at.0)) else {
            return Ok(());
        };
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
        history.plans.schedule.cut(keep);
        Ok(())
    }
}

fn merged(change: &pb::Change, current: &Current) -> Result<Merged, DataplaneError> {
    let what = subject(change);
    merge(change, current.plan.clone()).map_err(|error| DataplaneError::Change { what, error })
}
