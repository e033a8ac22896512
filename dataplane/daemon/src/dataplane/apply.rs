// SPDX-License-Identifier: Apache-2.0
//! The workers as the executor of a link: a plan is compiled, checked, handed over to all of them, and
//! taken back from all of them.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use compile::compile;
use emu::envelope;
use emu::plan::Plan;
use emu::units::{Instant, Nanos};
use owner::{
    ChangeError, Changes, Current, History, Link, Merged, Order, Outcomes, Proposal, Schedule,
    check_generation, subject, withdrawn,
};
use profile::format_duration;
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio::time::sleep;
use tonic::Status;
use worker::command::{Answer, Change, Changed, CommandError, Waiting};

use super::{BUSY, Dataplane, DataplaneError, LEAD, gather, utc, utc_zero};
use crate::names;

/// A plan that was compiled and checked.
pub struct Ready {
    compiled: Plan,
    restart: bool,
    /// UTC of the clock's zero that its periods follow.
    utc_zero: u64,
    /// Clients that have no slots yet.
    names: Vec<String>,
}

/// How the workers made a change.
pub struct Outcome {
    changed: Vec<Changed>,
    /// Time between the first and the last change of all links: zero, unless a worker heard of it after
    /// the instant.
    apart: Nanos,
}

impl Link for Dataplane {
    type Ready = Ready;
    type Outcome = Outcome;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn now_ns(&self) -> u64 {
        self.0.machine.clock.now()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        SystemTime::try_from(utc(&self.0.machine.clock, Instant(time_ns)))
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    fn history(&self) -> &History {
        &self.0.history
    }

    /// One that has passed is late: the order of a group may have waited for a box that stood still.
    fn instant(&self, asked_ns: u64, _: &Schedule) -> u64 {
        Instant(asked_ns).max(self.soonest(self.lead())).0
    }

    async fn prepare(&self, proposal: Proposal<'_>) -> Result<(Current, Ready), Status> {
        let Proposal { change, terms, merged } = proposal;
        Ok(self.fitting(subject(change), merged, terms.lossy).await?)
    }

    /// Clients that share something get one worker.
    async fn settle(&self, next: &mut Current, ready: &Ready) -> Result<(), Status> {
        Ok(self.settle_workers(next, ready).await?)
    }

    async fn take_back(&self, generations: RangeInclusive<u64>) -> Result<Option<u64>, Status> {
        Ok(Some(self.take_from_workers(generations).await?))
    }

    fn commit(orders: Vec<Order<Self>>, at_ns: Option<u64>) -> Result<Outcomes<Outcome>, Status> {
        let asked = ask(orders, at_ns.map(Instant))?;
        Ok(Box::pin(async move {
            let mut all = Vec::with_capacity(asked.len());
            for answers in asked {
                all.push(gather(answers).await?);
            }
            let instants = || all.iter().flatten().map(|changed| changed.at);
            let last = instants().max().unwrap_or_default();
            // The workers of one link need not be asked in time.
            let apart = match all.len() {
                1 => Nanos::ZERO,
                _ => last.since(instants().min().unwrap_or_default()),
            };
            Ok(all.into_iter().map(|changed| Outcome { changed, apart }).collect())
        }))
    }

    async fn conclude(
        &self,
        mut next: Current,
        Outcome { changed, apart }: Outcome,
        _: &Schedule,
    ) -> Result<Current, Status> {
        if apart > Nanos::ZERO {
            next.remarks.push(format!(
                "the links did not change at one instant, but within {}: a worker was late",
                format_duration(apart.0)
            ));
        }
        // The requested instant, unless this thread was held up between reading the clock and
        // asking the workers.
        let at = changed.iter().map(|c| c.at).max().unwrap_or_default();
        next.applied.effective_ns = at.0;
        next.applied.effective_utc = Some(utc(&self.0.machine.clock, at));
        let tolerance = self.0.machine.fixed.tolerance(&next.plan);
        self.0.span.lock().await.0.changed(next.applied.lossy, tolerance);
        Ok(next)
    }

    async fn complete<T: Send + 'static>(
        &self,
        ahead: Duration,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<T, Status> {
        self.health()?;
        self.done_within(self.0.machine.patience + ahead, |_| work).await
    }
}

impl Dataplane {
    /// Lets the switch do its part of the current plan.
    ///
    /// # Errors
    /// If another generation is current, or there is no switch.
    pub async fn set_offload(
        &self,
        offload: Option<pb::Offload>,
        expected: u64,
    ) -> Result<(), Status> {
        self.done(|this| async move {
            // Refused before a pending change is withdrawn.
            this.offloaded(&this.current().await, offload, expected).await?;
            let mut plans = this.quiet(expected).await?;
            let (mut next, ready) = this.offloaded(&plans.current, offload, expected).await?;
            this.settle_workers(&mut next, &ready).await?;
            this.hand_over(&ready.compiled, expected).await?;
            plans.current.plan = next.plan;
            Ok(())
        })
        .await
    }

    /// A plan with an offload, if its generation is the expected one and it fits.
    async fn offloaded(
        &self,
        current: &Current,
        offload: Option<pb::Offload>,
        expected: u64,
    ) -> Result<(Current, Ready), Status> {
        let Current { plan, applied, .. } = current;
        check_generation(applied.generation, Some(expected))?;
        let plan = pb::Plan { offload, ..plan.clone() };
        let merged = Merged { plan, restart: false, arm: [false; 2] };
        Ok(self.fitting("the offload", merged, applied.lossy).await?)
    }

    /// Lets the current plan of a shared link include all of its access links.
    ///
    /// # Errors
    /// If a change is pending, or a worker has stalled.
    pub(crate) async fn share(&self) -> Result<(), DataplaneError> {
        self.done(|this| async move {
            let plans = this.settled().await;
            if !plans.schedule.is_empty() {
                return Err(DataplaneError::Pending);
            }
            let Current { plan, applied, .. } = &plans.current;
            let merged = Merged { plan: plan.clone(), restart: false, arm: [false; 2] };
            let (mut next, ready) = this.fitting("the plan", merged, applied.lossy).await?;
            this.settle_workers(&mut next, &ready).await?;
            this.hand_over(&ready.compiled, applied.generation).await
        })
        .await
    }

    /// Applies a compiled plan to all workers at once, without a new generation.
    async fn hand_over(&self, plan: &Plan, generation: u64) -> Result<(), DataplaneError> {
        let (at, restart) = (self.soonest(self.lead()), false);
        self.answers(|worker| worker.apply(Change { at, plan: plan.clone(), generation, restart }))
            .await
            .map(drop)
    }

    /// Compiles a plan and checks that it fits. Changes nothing.
    async fn fitting(
        &self,
        subject: &'static str,
        merged: Merged,
        lossy: bool,
    ) -> Result<(Current, Ready), DataplaneError> {
        let Merged { plan, restart, arm } = merged;
        if self.0.removed.load(Ordering::Relaxed) {
            return Err(DataplaneError::Removed);
        }
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
        let utc_zero = if restart {
            utc_zero(&self.0.machine.clock)
        } else {
            self.0.utc_zero.load(Ordering::Relaxed)
        };
        compiled.align(Nanos(utc_zero));
        for (pipe, arm) in compiled.pipes.0.iter_mut().zip(arm) {
            if let Some(run) = &mut pipe.drop_run {
                run.arm = arm;
            }
        }
        self.make_room(&plan, &mut compiled).await?;
        let room = self.room();
        let lossy = match compiled.check(room) {
            Ok(()) => false,
            Err(e) if e.is_lossy() && lossy => true,
            Err(e) => return Err(e.into()),
        };
        let limits = envelope::remarks(&compiled, room).into_iter().map(|r| r.to_string());
        let remarks = envelope::excesses(&compiled, room).into_iter().chain(limits).collect();
        let applied = model::Applied { lossy, ..model::Applied::default() };
        let names = self.names().new_in(&plan);
        let next = Current { plan, applied, remarks };
        Ok((next, Ready { compiled, restart, utc_zero, names }))
    }

    /// Prepares the workers for a plan that fits.
    async fn settle_workers(
        &self,
        next: &mut Current,
        ready: &Ready,
    ) -> Result<(), DataplaneError> {
        // Clients that share something have one worker.
        let Plan { rules, beams, .. } = &ready.compiled;
        let shares = rules.automatic.is_some() || !beams.beams.is_empty();
        if shares && self.home().is_none() {
            let overtaken = self.settle_on_one_worker().await?;
            if overtaken > 0 {
                next.remarks.push(format!(
                    "all clients moved to one worker, and {overtaken} packets that came to others \
                     meanwhile may be overtaken"
                ));
            }
        }
        self.0.utc_zero.store(ready.utc_zero, Ordering::Relaxed);
        Ok(())
    }

    /// Reserves a slot for every client that a plan names.
    async fn make_room(&self, plan: &pb::Plan, compiled: &mut Plan) -> Result<(), DataplaneError> {
        let max = self.room().clients;
        let new = self.names().are_new(plan);
        let automatic = match new {
            false => 0,
            true => {
                let reports = self.answers(|worker| worker.report(false)).await?;
                names::automatic(&self.counts(&reports))
            }
        };
        Ok(self.names().reserve(plan, compiled, automatic, max)?)
    }

    /// How far ahead of its instant the workers need a change to make it at one instant.
    fn lead(&self) -> Nanos {
        if self.0.workers.len() == 1 { Nanos::ZERO } else { LEAD }
    }

    fn soonest(&self, lead: Nanos) -> Instant {
        Instant(self.0.machine.clock.now()) + lead
    }

    /// Takes pending changes back, except those that a worker has already made: all workers make these.
    /// Returns the first generation that was taken back.
    async fn take_from_workers(
        &self,
        generations: RangeInclusive<u64>,
    ) -> Result<u64, DataplaneError> {
        let taken = self.answers(|worker| worker.take_back(*generations.start())).await?;
        let of = |(_, change, _): &Waiting| change.generation;
        let (first, back) = withdrawn(generations, taken, of);
        for (worker, back) in self.0.workers.iter().zip(back) {
            for change in back {
                while !worker.has_room() {
                    sleep(BUSY).await;
                }
                worker.give_back(change)?;
            }
        }
        Ok(first)
    }
}

/// Asks the workers of all links, or none if one has too many requests.
fn ask(
    orders: Vec<Order<Dataplane>>,
    at: Option<Instant>,
) -> Result<Vec<Vec<Answer<Changed>>>, DataplaneError> {
    // A worker may have several of the links.
    let mut workers = orders.iter().flat_map(|order| &order.link.0.workers);
    if !workers.all(|worker| worker.room() >= orders.len()) {
        return Err(CommandError::Busy.into());
    }
    // Plans may be long: they are copied before the instant is chosen.
    let copies = orders.into_iter().map(|Order { link, ready, generation, .. }| {
        let Ready { compiled, restart, names, .. } = ready;
        let plans = vec![compiled; link.0.workers.len()];
        (link, plans, generation, restart, names)
    });
    let copies: Vec<_> = copies.collect();
    let is_one = copies.len() == 1;
    let lead = |link: &Dataplane| if is_one { link.lead() } else { LEAD };
    let soonest = copies.first().map(|(link, ..)| link.soonest(lead(link)));
    // The instant of one link is also in its schedule. Several links change together, even if late.
    let at = if is_one { at.or(soonest) } else { at.max(soonest) }.unwrap_or_default();
    let mut asked = Vec::with_capacity(copies.len());
    for (link, plans, generation, restart, names) in copies {
        let workers = link.0.workers.iter().zip(plans);
        let answers =
            workers.map(|(worker, plan)| worker.apply(Change { at, plan, generation, restart }));
        asked.push(answers.collect::<Result<Vec<_>, _>>()?);
        // The slots of its clients are reserved from here on.
        link.names().learn(names);
    }
    Ok(asked)
}
