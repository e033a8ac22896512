// SPDX-License-Identifier: Apache-2.0
//! A change of several links at one instant, or of none.
//!
//! The histories of all links are locked, in the order of their numbers, from the merge until the
//! workers have made the change. Everything that can be refused is checked for all links before a
//! worker is asked.

use std::collections::BTreeSet;

use emu::units::{Instant, Nanos};
use profile::format_duration;
use proto::dataplane::v1 as pb;
use thiserror::Error;
use tokio::sync::MutexGuard;
use tonic::Status;
use worker::command::{Answer, Change, Changed, CommandError};

use super::{Made, Ready, Terms, check, merged, subject};
use crate::dataplane::{Dataplane, DataplaneError, History, LEAD, gather};

/// Most links of one change.
pub const MOST_LINKS: usize = 64;

/// The change of one link.
#[derive(Clone)]
pub struct LinkChange {
    pub link: Dataplane,
    pub change: pb::Change,
    pub terms: Terms,
}

/// Why no link was changed.
#[derive(Debug, Error)]
pub enum TogetherError {
    #[error("{0} links are not 1 to {MOST_LINKS}: change others in another request")]
    Count(usize),
    #[error("link `{0}` is named twice: give one change of each link")]
    Twice(String),
    #[error("link `{link}`: {error}")]
    Link { link: String, error: DataplaneError },
    #[error("{0}")]
    All(#[from] DataplaneError),
}

impl From<TogetherError> for Status {
    fn from(error: TogetherError) -> Self {
        match error {
            TogetherError::Count(_) | TogetherError::Twice(_) => {
                Self::invalid_argument(error.to_string())
            }
            TogetherError::Link { link, error } => owner::of_link(&link, &error.into()),
            TogetherError::All(error) => error.into(),
        }
    }
}

/// Applies a change to each of several links at one instant: at `at`, or as soon as all workers can
/// do it. Once begun it runs to completion, even if the caller disconnects.
///
/// # Errors
/// If no link was changed: one change was refused, as by [`Dataplane::apply`], or a link is named
/// twice. If a worker stalls meanwhile, the changes may be made later, or not.
pub async fn apply_links(
    changes: Vec<LinkChange>,
    at: Option<Instant>,
) -> Result<Vec<Made>, TogetherError> {
    check_links(&changes)?;
    let Some(first) = changes.first().map(|change| change.link.clone()) else {
        return Err(TogetherError::Count(0));
    };
    first.done(|_| change_links(changes, at)).await
}

fn check_links(changes: &[LinkChange]) -> Result<(), TogetherError> {
    if !(1..=MOST_LINKS).contains(&changes.len()) {
        return Err(TogetherError::Count(changes.len()));
    }
    let mut named = BTreeSet::new();
    for change in changes {
        if !named.insert(change.link.number()) {
            return Err(TogetherError::Twice(change.link.name().to_owned()));
        }
        change.terms.check().map_err(|error| change.refused(error))?;
    }
    Ok(())
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
            fitting.push(change.fitting(history).await.map_err(|error| change.refused(error))?);
        }
        let mut ready = Vec::with_capacity(changes.len());
        for (change, fitting) in changes.iter().zip(fitting) {
            let settled = change.link.settle(fitting).await;
            ready.push(settled.map_err(|error| change.refused(error))?);
        }
        for (change, history) in changes.iter().zip(&mut histories) {
            let withdrawn = change.link.withdraw_after(history, None).await;
            withdrawn.map_err(|error| change.refused(error))?;
        }
        // A change that a worker has made meanwhile comes first.
        if histories.iter().all(|history| history.schedule.after(None).is_none()) {
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
        next.applied.generation = history.current.applied.generation + 1;
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
                return Err(change.refused(DataplaneError::Removed));
            }
            histories.push(history);
        }
        let now = |change: &LinkChange| Instant(change.link.0.machine.clock.now());
        let mut due = changes.iter().zip(&histories);
        let Some(mut due) = due.find_map(|(change, it)| it.schedule.due(now(change))) else {
            return Ok(histories);
        };
        // Its end needs the lock.
        drop(histories);
        crate::schedule::over(&mut due).await;
    }
}

/// The answers to the same request, if it was made before.
fn known(
    changes: &[LinkChange],
    histories: &[MutexGuard<'_, History>],
) -> Result<Option<Vec<Made>>, TogetherError> {
    let mut known = Vec::new();
    for (change, history) in changes.iter().zip(histories) {
        let found = history.keys.find(&change.terms.request);
        let found = found.map_err(|error| change.refused(error.into()))?;
        known.extend(found.map(|made| Made { repeated: true, ..made.clone() }));
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
        let generation = history.current.applied.generation + 1;
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

impl LinkChange {
    fn refused(&self, error: DataplaneError) -> TogetherError {
        TogetherError::Link { link: self.link.name().to_owned(), error }
    }

    async fn fitting(&self, history: &History) -> Result<Ready, DataplaneError> {
        let Self { link, change, terms } = self;
        check(history.current.applied.generation, terms.expected)?;
        let merged = merged(change, &history.current)?;
        link.fitting(history, subject(change), merged, terms.lossy).await
    }
}
