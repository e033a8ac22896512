// SPDX-License-Identifier: Apache-2.0
//! How the plans of links change: the same for all executors.
//!
//! A change at once withdraws all pending changes first. A change at an instant is merged into the plan
//! that will be current then, and withdraws those after it. The plans of a link stay locked from the merge
//! until its executor has the change, so that no other change comes between. Those of several links are
//! locked in the order of their names, and everything that can be refused is checked for all of them
//! before the first one is executed.

use crate::schedule::AHEAD_NS;
use crate::{
    Current, Link, LinkChange, Made, Order, Plans, Proposal, Reused, Terms, check_generation,
    merge, of_link, subject,
};
use proto::dataplane::v1 as dp;
use std::time::Duration;
use tokio::sync::MutexGuard;
use tonic::Status;

/// What all links do.
pub trait Changes: Link {
    /// The plans without changes in progress: none is pending with an instant in the past.
    fn settled(&self) -> impl Future<Output = MutexGuard<'_, Plans>> + Send {
        let now_ns = self.now_ns();
        async move {
            loop {
                let plans = self.history().plans().await;
                let Some(due) = plans.schedule.due(now_ns) else { return plans };
                // Its end needs the lock.
                drop(plans);
                due.await;
            }
        }
    }

    /// The plans without pending changes, which are withdrawn if the generation is the expected one.
    ///
    /// # Errors
    /// If another generation is current, or the executor cannot withdraw them.
    fn quiet(
        &self,
        expected: u64,
    ) -> impl Future<Output = Result<MutexGuard<'_, Plans>, Status>> + Send {
        async move {
            loop {
                let mut plans = self.settled().await;
                check_generation(plans.current.applied.generation, Some(expected))?;
                withdraw_after(self, &mut plans, None).await?;
                // Those that were made meanwhile come first.
                let Some(last) = plans.schedule.due(u64::MAX) else { return Ok(plans) };
                drop(plans);
                last.await;
            }
        }
    }

    /// The current plan, after changes that are being made.
    fn current(&self) -> impl Future<Output = Current> + Send {
        async { self.settled().await.current.clone() }
    }

    /// Withdraws the changes that wait for their instants, however long that takes: behind a change that
    /// is in progress, those that become due meanwhile are made.
    ///
    /// # Errors
    /// If the executor cannot withdraw them.
    fn withdraw_all(self) -> impl Future<Output = Result<(), Status>> + Send {
        async move {
            let mut plans = self.history().plans().await;
            withdraw_after(&self, &mut plans, None).await
        }
    }

    /// The same, as [`Self::apply`].
    ///
    /// # Errors
    /// As these.
    fn withdraw(&self) -> impl Future<Output = Result<(), Status>> + Send {
        self.complete(Duration::ZERO, self.clone().withdraw_all())
    }

    /// Makes the change of one link as [`Self::change`], or those of several as [`Self::change_links`], to
    /// the end, also when the caller has gone. The caller waits for a limited time.
    ///
    /// # Errors
    /// As these, and UNAVAILABLE while the executor stands still: the changes may be made later.
    fn apply_links(
        changes: Vec<LinkChange<Self>>,
    ) -> impl Future<Output = Result<Vec<Made>, Status>> + Send {
        async {
            let Some(LinkChange { link, terms, .. }) = changes.first() else {
                return Ok(Vec::new());
            };
            let ahead_ns = terms.at_ns.unwrap_or(0).saturating_sub(link.now_ns()).min(AHEAD_NS);
            let (link, ahead) = (link.clone(), Duration::from_nanos(ahead_ns));
            let work = async {
                match <[_; 1]>::try_from(changes) {
                    Ok([LinkChange { link, change, terms }]) => {
                        Ok(vec![link.change(change, terms).await?])
                    }
                    Err(several) => Self::change_links(several, None).await,
                }
            };
            link.complete(ahead, work).await
        }
    }

    /// The same for one change.
    ///
    /// # Errors
    /// As [`Self::apply_links`].
    fn apply(
        &self,
        change: dp::Change,
        terms: Terms,
    ) -> impl Future<Output = Result<Made, Status>> + Send {
        let change = LinkChange { link: self.clone(), change, terms };
        async { Self::apply_links(vec![change]).await.map(|mut made| made.swap_remove(0)) }
    }

    /// Merges a change into the plan that will be current at its instant, and has it executed, however
    /// long that takes. Changes keep the order in which the futures are polled first. Resolves when the
    /// change was made or withdrawn.
    ///
    /// # Errors
    /// If nothing was changed: the change or the plan after it is not valid, or does not fit and may not
    /// be lossy, or another generation is current, or its key belongs to another request, or its instant
    /// is out of bounds, or it was withdrawn.
    fn change(
        self,
        change: dp::Change,
        terms: Terms,
    ) -> impl Future<Output = Result<Made, Status>> + Send {
        async move {
            match terms.at_ns {
                Some(at_ns) => change_at(&self, at_ns, &change, terms).await,
                None => {
                    let change = [LinkChange { link: self, change, terms }];
                    let made = change_now(&change, None).await;
                    made.map(|mut made| made.swap_remove(0)).map_err(|refused| refused.status)
                }
            }
        }
    }

    /// Makes changes of several links at one instant, or none, however long that takes. Resolves when
    /// they were made, with the results in their order. They cannot be withdrawn.
    ///
    /// # Errors
    /// As [`Self::change`], with the name of the link.
    fn change_links(
        mut changes: Vec<LinkChange<Self>>,
        at_ns: Option<u64>,
    ) -> impl Future<Output = Result<Vec<Made>, Status>> + Send {
        async move {
            let names: Vec<_> = changes.iter().map(|it| it.link.name().to_owned()).collect();
            changes.sort_by(|a, b| a.link.name().cmp(b.link.name()));
            let mut made =
                change_now(&changes, at_ns).await.map_err(|refused| match refused.link {
                    Some(link) => of_link(&link, &refused.status),
                    None => refused.status,
                })?;
            let place = |name: &String| changes.iter().position(|it| it.link.name() == name);
            let places: Vec<_> = names.iter().filter_map(place).collect();
            Ok(places.into_iter().map(|place| std::mem::take(&mut made[place])).collect())
        }
    }
}

impl<L: Link> Changes for L {}

/// Why no link was changed.
struct Refused {
    /// Because of this one.
    link: Option<String>,
    status: Status,
}

impl Refused {
    fn of<L: Link>(change: &LinkChange<L>) -> impl Fn(Status) -> Self {
        |status| Self { link: Some(change.link.name().to_owned()), status }
    }

    fn all(status: impl Into<Status>) -> Self {
        Self { link: None, status: status.into() }
    }
}

/// Changes links at once, in the order of their names.
async fn change_now<L: Link>(
    changes: &[LinkChange<L>],
    at_ns: Option<u64>,
) -> Result<Vec<Made>, Refused> {
    let (mut plans, prepared) = loop {
        let mut plans = locked(changes).await?;
        if let Some(made) = known(changes, &plans)? {
            return Ok(made);
        }
        let mut prepared = Vec::with_capacity(changes.len());
        for (it, plans) in changes.iter().zip(&plans) {
            let ready = prepare(&it.link, &it.change, &it.terms, &plans.current).await;
            prepared.push(ready.map_err(Refused::of(it))?);
        }
        for (it, (next, ready)) in changes.iter().zip(&mut prepared) {
            it.link.settle(next, ready).await.map_err(Refused::of(it))?;
        }
        for (it, plans) in changes.iter().zip(&mut plans) {
            withdraw_after(&it.link, plans, None).await.map_err(Refused::of(it))?;
        }
        // Those that were made meanwhile come first.
        let Some(last) = plans.iter().find_map(|plans| plans.schedule.due(u64::MAX)) else {
            break (plans, prepared);
        };
        drop(plans);
        last.await;
    };
    let orders = changes.iter().zip(prepared).map(|(it, (next, ready))| {
        let (link, generation) = (it.link.clone(), next.applied.generation);
        (next, Order { link, ready, generation, follows: false })
    });
    let (next, orders): (Vec<_>, Vec<_>) = orders.unzip();
    let outcomes = L::commit(orders, at_ns).map_err(Refused::all)?;
    let outcomes = outcomes.await.map_err(Refused::all)?;
    let mut made = Vec::with_capacity(changes.len());
    let results = next.into_iter().zip(outcomes);
    for ((it, plans), (next, outcome)) in changes.iter().zip(&mut plans).zip(results) {
        let next = it.link.conclude(next, outcome, &plans.schedule).await;
        made.push(plans.enter(next.map_err(Refused::of(it))?, it.terms.clone()));
    }
    Ok(made)
}

async fn change_at<L: Link>(
    link: &L,
    at_ns: u64,
    change: &dp::Change,
    terms: Terms,
) -> Result<Made, Status> {
    let chain = terms.chain.clone();
    let made = change_in_chain(link, at_ns, change, terms).await;
    made.inspect_err(|_| chain.end())
}

fn withdrawn() -> Status {
    Status::aborted("withdrawn before its instant: another change was made")
}

async fn change_in_chain<L: Link>(
    link: &L,
    at_ns: u64,
    change: &dp::Change,
    terms: Terms,
) -> Result<Made, Status> {
    // A stall while the lock is held makes a step late, and is no reason to refuse it.
    let arrived_ns = link.now_ns();
    let (outcome, mut place) = {
        let mut plans = link.history().plans().await;
        // The same request may be pending: it has one result.
        if let Some(same) = plans.schedule.find(&terms.request)? {
            drop(plans);
            same.await;
            plans = link.history().plans().await;
            return plans.find(&terms.request)?.ok_or_else(withdrawn);
        }
        if let Some(made) = plans.find(&terms.request)? {
            return Ok(made);
        }
        if terms.chain.has_ended() {
            return Err(withdrawn());
        }
        link.check_instant(arrived_ns, at_ns)?;
        let at_ns = link.instant(at_ns, &plans.schedule);
        // Later ones are withdrawn.
        plans.schedule.check_room(at_ns)?;
        let before = plans.tip(at_ns).applied.generation;
        let (mut next, ready) = prepare(link, change, &terms, plans.tip(at_ns)).await?;
        link.settle(&mut next, &ready).await?;
        withdraw_after(link, &mut plans, Some(at_ns)).await?;
        // One of those may have been made.
        check_generation(before, Some(plans.tip(u64::MAX).applied.generation))?;
        let follows = !plans.schedule.is_empty();
        let generation = next.applied.generation;
        let order = Order { link: link.clone(), ready, generation, follows };
        let outcome = L::commit(vec![order], Some(at_ns))?;
        (outcome, plans.schedule.enter(at_ns, next, &terms))
    };
    let outcome = outcome.await.and_then(|mut it| it.pop().ok_or_else(no_outcome));
    if outcome.is_ok() {
        place.follows().await;
    }
    let mut plans = link.history().plans().await;
    // Withdrawn changes have no outcome, although the executor is well.
    let next = plans.schedule.leave(&place).ok_or_else(withdrawn)?;
    let next = link.conclude(next, outcome?, &plans.schedule).await?;
    Ok(plans.enter(next, terms))
}

fn no_outcome() -> Status {
    Status::internal("the change has no outcome: please report this, with the log")
}

/// The plan after a change of another one, prepared.
async fn prepare<L: Link>(
    link: &L,
    change: &dp::Change,
    terms: &Terms,
    before: &Current,
) -> Result<(Current, L::Ready), Status> {
    let generation = before.applied.generation;
    check_generation(generation, terms.expected)?;
    let merged = merge(change, before.plan.clone()).map_err(|it| it.status(subject(change)))?;
    let (mut next, ready) = link.prepare(Proposal { change, terms, merged }).await?;
    next.applied.generation = generation + 1;
    Ok((next, ready))
}

/// The plans of all links, without changes in progress.
async fn locked<L: Link>(changes: &[LinkChange<L>]) -> Result<Vec<MutexGuard<'_, Plans>>, Refused> {
    // Read once: those that become due meanwhile are not waited for.
    let now_ns: Vec<_> = changes.iter().map(|it| it.link.now_ns()).collect();
    let mut is_repeated = false;
    loop {
        let mut all = Vec::with_capacity(changes.len());
        for change in changes {
            all.push(change.link.history().plans().await);
        }
        if is_repeated && known(changes, &all)?.is_none() {
            return Err(Refused::all(withdrawn()));
        }
        let mut before = None;
        for ((it, plans), now_ns) in changes.iter().zip(&all).zip(&now_ns) {
            // The same request may be pending: it has one result.
            let same = plans.schedule.find(&it.terms.request);
            let same = same.map_err(|reused| Refused::of(it)(reused.into()))?;
            is_repeated |= same.is_some();
            before = before.or(same).or_else(|| plans.schedule.due(*now_ns));
        }
        let Some(before) = before else { return Ok(all) };
        // Its end needs the lock.
        drop(all);
        before.await;
    }
}

/// The answers to the same request, if it was made before.
fn known<L: Link>(
    changes: &[LinkChange<L>],
    plans: &[MutexGuard<'_, Plans>],
) -> Result<Option<Vec<Made>>, Refused> {
    let mut known = Vec::new();
    for (it, plans) in changes.iter().zip(plans) {
        let found = plans.find(&it.terms.request);
        known.extend(found.map_err(|reused| Refused::of(it)(reused.into()))?);
    }
    match known.len() {
        0 => Ok(None),
        n if n == changes.len() => Ok(Some(known)),
        // All links had it: one was removed and added again since, or has forgotten it.
        _ => Err(Refused::all(Reused)),
    }
}

/// Withdraws the changes after an instant, except those that were made already.
async fn withdraw_after<L: Link>(
    link: &L,
    plans: &mut Plans,
    after_ns: Option<u64>,
) -> Result<(), Status> {
    let Some((first, last)) = plans.schedule.after(after_ns) else { return Ok(()) };
    if let Some(taken) = link.take_back(first..=last).await? {
        plans.schedule.cut(taken);
    }
    Ok(())
}
