// SPDX-License-Identifier: Apache-2.0
//! A change of several links at one instant, or of none.
//!
//! The histories of all links are locked, in the order of their numbers, from the merge until the
//! workers have made the change. Everything that can be refused is checked for all links before a
//! worker is asked.

use emu::units::{Instant, Nanos};
use owner::{Made, check_generation, over, subject};
use profile::format_duration;
use thiserror::Error;
use tokio::sync::MutexGuard;
use tonic::Status;
use worker::command::{Answer, Change, Changed, CommandError};

use super::{Ready, merged};
use crate::dataplane::{Dataplane, DataplaneError, History, LEAD, gather};

type LinkChange = owner::LinkChange<Dataplane>;

/// Why no link was changed.
#[derive(Debug, Error)]
pub enum TogetherError {
    #[error("link `{link}`: {error}")]
    Link { link: String, error: DataplaneError },
    #[error("{0}")]
    All(#[from] DataplaneError),
}

impl From<TogetherError> for Status {
    fn from(error: TogetherError) -> Self {
        match error {
            TogetherError::Link { link, error } => owner::of_link(&link, &error.into()),
            TogetherError::All(error) => error.into(),
        }
    }
}

/// Applies a change to each of several links at one instant: at `at`, or as soon as all workers can
/// do it. Once begun it runs to completion, even if the caller disconnects.
///
/// # Errors
/// If no link was changed: one change was refused, as by [`Dataplane::apply`]. If a worker stalls
/// meanwhile, the changes may be made later, or not.
pub async fn apply_links(
    changes: Vec<LinkChange>,
    at: Option<Instant>,
) -> Result<Vec<Made>, TogetherError> {
    let Some(first) = changes.first().map(|change| change.link.clone()) else {
        return Ok(Vec::new());
    };
    first.done(|_| change_links(changes, at)).await
}

/// As [`apply_links`], without a limit of time.
pub(in crate::dataplane) async fn change_links(
    mut changes: Vec<LinkChange>,
    at: Option<Instant>,
) -> Result<Vec<Made>, TogetherError> {
    let names: Vec<_> = changes.iter().map(|change| change.link.number()).collect();
    changes.sort_by_key(|change| change.link.number());
    let mut made = in_order(&changes, at).await?;
    let place = |number: &usize| changes.iter().position(|it| it.link.number() == *number);
    let places: Vec<_> = names.iter().filter_map(place).collect();
    Ok(places.into_iter().map(|place| std::mem::take(&mut made[place])).collect())
}

async fn in_order(changes: &[LinkChange], at: Option<Instant>) -> Result<Vec<Made>, TogetherError> {
    let (mut histories, ready) = loop {
        let mut histories = locked(changes).await?;
        if let Some(made) = known(changes, &histories)? {
            return Ok(made);
        }
        let mut fitting = Vec::with_capacity(changes.len());
        for (change, history) in changes.iter().zip(&histories) {
            fitting.push(fit(change, history).await.map_err(|error| refused(change, error))?);
        }
        let mut ready = Vec::with_capacity(changes.len());
        for (change, fitting) in changes.iter().zip(fitting) {
            let settled = change.link.settle(fitting).await;
            ready.push(settled.map_err(|error| refused(change, error))?);
        }
        for (change, history) in changes.iter().zip(&mut histories) {
            let withdrawn = change.link.withdraw_after(history, None).await;
            withdrawn.map_err(|error| refused(change, error))?;
        }
        // A change that a worker has made meanwhile comes first.
        if histories.iter().all(|history| history.plans.schedule.is_empty()) {
            break (histories, ready);
        }
    };
    let asked = ask(changes, &ready, &histories, at)?;
    let mut changed = Vec::with_capacity(asked.len());
    for answers in asked {
        changed.push(gather(answers).await?);
    }
    let apart = apart(&changed);
    let mut made = Vec::with_capacity(changes.len());
    for (((change, history), ready), changed) in
        changes.iter().zip(&mut histories).zip(ready).zip(&changed)
    {
        let mut next = ready.next;
        next.applied.generation = history.plans.current.applied.generation + 1;
        if apart > Nanos::ZERO {
            next.remarks.push(format!(
                "the links did not change at one instant, but within {}: a worker was late",
                format_duration(apart.0)
            ));
        }
        made.push(change.link.enter(history, next, changed, change.terms.clone()).await);
    }
    Ok(made)
}

/// The histories of all links, without changes in progress.
async fn locked(changes: &[LinkChange]) -> Result<Vec<MutexGuard<'_, History>>, TogetherError> {
    loop {
        let mut histories = Vec::with_capacity(changes.len());
        for change in changes {
            let history = change.link.0.history.lock().await;
            if history.removed {
                return Err(refused(change, DataplaneError::Removed));
            }
            histories.push(history);
        }
        let now_ns = |change: &LinkChange| change.link.0.machine.clock.now();
        let mut due = changes.iter().zip(&histories);
        let due = due.find_map(|(change, it)| it.plans.schedule.due(now_ns(change)));
        let Some(mut due) = due else {
            return Ok(histories);
        };
        // Its end needs the lock.
        drop(histories);
        over(&mut due).await;
    }
}

/// The answers to the same request, if it was made before.
fn known(
    changes: &[LinkChange],
    histories: &[MutexGuard<'_, History>],
) -> Result<Option<Vec<Made>>, TogetherError> {
    let mut known = Vec::new();
    for (change, history) in changes.iter().zip(histories) {
        let found = history.plans.find(&change.terms.request);
        known.extend(found.map_err(|error| refused(change, error.into()))?);
    }
    match known.len() {
        0 => Ok(None),
        n if n == changes.len() => Ok(Some(known)),
        // All links had it: one was removed and added again since, or has forgotten it.
        _ => Err(TogetherError::All(owner::Reused.into())),
    }
}

/// Asks the workers of all links, or none if one has too many requests.
fn ask(
    changes: &[LinkChange],
    ready: &[Ready],
    histories: &[MutexGuard<'_, History>],
    at: Option<Instant>,
) -> Result<Vec<Vec<Answer<Changed>>>, TogetherError> {
    // Plans may be long: they are copied before the instant is chosen.
    let mut plans: Vec<Vec<Change>> = Vec::with_capacity(changes.len());
    for ((change, ready), history) in changes.iter().zip(ready).zip(histories) {
        let generation = history.plans.current.applied.generation + 1;
        let Ready { compiled, restart, .. } = ready;
        let copy = |_| {
            let (at, plan) = (Instant::ZERO, compiled.clone());
            Change { at, plan, generation, restart: *restart }
        };
        plans.push(change.link.0.workers.iter().map(copy).collect());
    }
    // A worker may have several of the links.
    let mut workers = changes.iter().flat_map(|change| &change.link.0.workers);
    if !workers.all(|worker| worker.room() >= changes.len()) {
        return Err(DataplaneError::from(CommandError::Busy).into());
    }
    let Some(clock) = changes.first().map(|change| &change.link.0.machine.clock) else {
        return Ok(Vec::new());
    };
    let soonest = Instant(clock.now()) + LEAD;
    let at = at.map_or(soonest, |at| at.max(soonest));
    let mut asked = Vec::with_capacity(changes.len());
    for (change, plans) in changes.iter().zip(plans) {
        let workers = change.link.0.workers.iter().zip(plans);
        let answers = workers.map(|(worker, plan)| worker.apply(Change { at, ..plan }));
        asked.push(answers.collect::<Result<Vec<_>, _>>().map_err(DataplaneError::from)?);
    }
    Ok(asked)
}

/// Time between the first and the last change: zero, unless a worker heard of it after the instant.
fn apart(changed: &[Vec<Changed>]) -> Nanos {
    let instants = || changed.iter().flatten().map(|changed| changed.at);
    let (first, last) =
        (instants().min().unwrap_or_default(), instants().max().unwrap_or_default());
    last.since(first)
}

fn refused(change: &LinkChange, error: DataplaneError) -> TogetherError {
    TogetherError::Link { link: change.link.name().to_owned(), error }
}

async fn fit(change: &LinkChange, history: &History) -> Result<Ready, DataplaneError> {
    let LinkChange { link, change, terms } = change;
    let current = &history.plans.current;
    check_generation(current.applied.generation, terms.expected)?;
    let merged = merged(change, current)?;
    link.fitting(history, subject(change), merged, terms.lossy).await
}
