// SPDX-License-Identifier: Apache-2.0
//! Pending changes.
//!
//! What executes them already has them and makes them by its clock, so that no other thread can make
//! one late; this list has their results. Ascending by instant and by generation. Instants are on the
//! dataplane's clock, in nanoseconds.

use crate::{Chain, Current, Request, Reused, Terms};
use futures_util::FutureExt;
use futures_util::future::{Map, Shared};
use proto::dataplane::v1 as dp;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

use tokio::sync::oneshot;
use tonic::Status;

/// How far ahead a change may be asked for.
pub const AHEAD_NS: u64 = 10_000_000_000;
/// How long ago its instant may have passed when it is asked for.
const PASSED_NS: u64 = 1_000_000_000;
/// Changes that may wait; fewer than a worker has room for.
const WAITING: usize = 32;

/// Why a change does not wait for its instant.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// The link at that time is not predictable. By so many nanoseconds.
    #[error(
        "at_ns is {} ahead, more than {}: ask for it later",
        millis(.0),
        millis(&AHEAD_NS)
    )]
    Ahead(u64),
    /// The caller must learn that its instant has passed. By so many nanoseconds.
    #[error(
        "at_ns has passed by {}, more than {}: ask for a later instant, or for none to have the \
         change at once",
        millis(.0),
        millis(&PASSED_NS)
    )]
    Passed(u64),
    /// Someone asks without end.
    #[error("{WAITING} changes wait for their instants: ask again when some have been made")]
    Full,
}

fn millis(ns: &u64) -> String {
    format!("{} ms", ns / 1_000_000)
}

impl From<ScheduleError> for Status {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Full => Self::resource_exhausted(error.to_string()),
            _ => Self::out_of_range(error.to_string()),
        }
    }
}

/// A change that waits for its instant.
#[derive(Debug)]
struct Waiting {
    id: u64,
    at_ns: u64,
    next: Current,
    request: Request,
    chain: Chain,
    /// Dropped when the change was made or withdrawn.
    _until_end: oneshot::Sender<()>,
    end: End,
}

/// Checks that an instant is near enough to wait for it.
///
/// # Errors
/// [`ScheduleError::Ahead`].
pub fn check_ahead(now_ns: u64, at_ns: u64) -> Result<(), ScheduleError> {
    match at_ns.saturating_sub(now_ns) {
        ahead_ns if ahead_ns > AHEAD_NS => Err(ScheduleError::Ahead(ahead_ns)),
        _ => Ok(()),
    }
}

/// Checks that an instant has not passed long ago.
///
/// # Errors
/// [`ScheduleError::Passed`].
pub fn check_passed(now_ns: u64, at_ns: u64) -> Result<(), ScheduleError> {
    match now_ns.saturating_sub(at_ns) {
        passed_ns if passed_ns > PASSED_NS => Err(ScheduleError::Passed(passed_ns)),
        _ => Ok(()),
    }
}

/// A change's place, to find it again and to wait for its end.
#[derive(Debug)]
pub struct Place {
    id: u64,
    /// The end of the one before it.
    before: Option<End>,
}

impl Place {
    /// Waits until the change before it was made or withdrawn.
    pub async fn follows(&mut self) {
        if let Some(before) = self.before.take() {
            before.await;
        }
    }
}

/// Resolves when a change was made or withdrawn. The order in which those who wait go on is not random.
pub type End = Shared<Map<oneshot::Receiver<()>, fn(Result<(), oneshot::error::RecvError>)>>;

/// Decides which of the changes that workers have taken back stay withdrawn: one that some worker has made
/// meanwhile, and those before it, are made by all.
///
/// `taken` has those of each worker, the newest first. Returns the first generation that is withdrawn,
/// and the changes to give back to each worker, the oldest first.
#[must_use]
pub fn withdrawn<C>(
    generations: RangeInclusive<u64>,
    taken: Vec<Vec<C>>,
    generation: impl Fn(&C) -> u64,
) -> (u64, Vec<Vec<C>>) {
    let (first, last) = generations.into_inner();
    let oldest = |taken: &Vec<C>| taken.last().map_or(last + 1, &generation);
    let keep = taken.iter().map(oldest).max().unwrap_or(first);
    let kept = |taken: Vec<C>| taken.into_iter().rev().filter(|it| generation(it) < keep).collect();
    (keep, taken.into_iter().map(kept).collect())
}

#[derive(Debug, Default)]
pub struct Schedule {
    waiting: VecDeque<Waiting>,
    entered: u64,
}

impl Schedule {
    /// Checks that one more change can wait with those up to an instant.
    ///
    /// # Errors
    /// [`ScheduleError::Full`].
    pub fn check_room(&self, at_ns: u64) -> Result<(), ScheduleError> {
        match self.up_to(at_ns).count() < WAITING {
            true => Ok(()),
            false => Err(ScheduleError::Full),
        }
    }

    fn up_to(&self, at_ns: u64) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().take_while(move |change| change.at_ns <= at_ns)
    }

    /// The plan at an instant, if a pending change is due until then.
    #[must_use]
    pub fn tip(&self, at_ns: u64) -> Option<&Current> {
        self.up_to(at_ns).last().map(|change| &change.next)
    }

    /// The plans after each pending change, in their order.
    pub fn plans(&self) -> impl Iterator<Item = &dp::Plan> {
        self.waiting.iter().map(|change| &change.next.plan)
    }

    /// The end of the last change that is due until an instant.
    #[must_use]
    pub fn due(&self, at_ns: u64) -> Option<End> {
        self.up_to(at_ns).last().map(|change| change.end.clone())
    }

    /// The end of the change that the same request asked for.
    ///
    /// # Errors
    /// [`Reused`].
    pub fn find(&self, request: &Request) -> Result<Option<End>, Reused> {
        let keyed = |it: &&Waiting| !request.key.is_empty() && it.request.key == request.key;
        match self.waiting.iter().find(keyed) {
            Some(it) if it.request.fingerprint != request.fingerprint => Err(Reused),
            found => Ok(found.map(|it| it.end.clone())),
        }
    }

    /// The instant of the last change.
    #[must_use]
    pub fn last_ns(&self) -> Option<u64> {
        self.waiting.back().map(|change| change.at_ns)
    }

    /// Number of pending changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no change is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The generations after an instant, the first and the last.
    #[must_use]
    pub fn after(&self, at_ns: Option<u64>) -> Option<(u64, u64)> {
        let generation = |change: &Waiting| change.next.applied.generation;
        let first = self.waiting.iter().find(|it| at_ns.is_none_or(|at_ns| it.at_ns > at_ns))?;
        Some((generation(first), self.waiting.back().map(generation)?))
    }

    /// Whether the generation is one that waits and whether it is lossy, if it is.
    #[must_use]
    pub fn lossy(&self, generation: u64) -> Option<bool> {
        let mut applied = self.waiting.iter().rev().map(|change| change.next.applied);
        applied.find(|it| it.generation == generation).map(|it| it.lossy)
    }

    /// Takes a place for a change that is pending, after all others.
    pub fn enter(&mut self, at_ns: u64, next: Current, terms: &Terms) -> Place {
        let (request, chain) = (terms.request.clone(), terms.chain.clone());
        let before = self.waiting.back().map(|change| change.end.clone());
        self.entered += 1;
        let id = self.entered;
        let (_until_end, ended) = oneshot::channel();
        let end = ended.map((|_| ()) as fn(_)).shared();
        self.waiting.push_back(Waiting { id, at_ns, next, request, chain, _until_end, end });
        Place { id, before }
    }

    /// Removes a change. Returns its result, unless it was withdrawn.
    pub fn leave(&mut self, place: &Place) -> Option<Current> {
        let found = self.waiting.iter().position(|change| change.id == place.id)?;
        self.waiting.remove(found).map(|change| change.next)
    }

    /// Removes the changes from a generation on.
    pub fn cut(&mut self, generation: u64) {
        self.waiting.retain(|change| {
            let stays = change.next.applied.generation < generation;
            if !stays {
                change.chain.end();
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::linkemu::v1 as pb;

    const NOW: u64 = 60_000_000_000;

    fn next(generation: u64) -> Current {
        let applied = pb::Applied { generation, ..Default::default() };
        Current { applied, ..Default::default() }
    }

    #[test]
    fn an_instant_out_of_bounds_is_refused_with_the_bound() {
        let check = |at| check_ahead(NOW, at).and_then(|()| check_passed(NOW, at));
        assert_eq!(check(NOW + AHEAD_NS), Ok(()));
        assert_eq!(check(NOW - PASSED_NS), Ok(()));
        let ahead = check(u64::MAX).unwrap_err();
        assert!(ahead.to_string().contains("more than 10000 ms"), "{ahead}");
        let passed = check(0).unwrap_err();
        assert!(passed.to_string().contains("passed by 60000 ms, more than 1000 ms"), "{passed}");
    }

    #[test]
    fn a_bounded_number_waits() {
        let mut schedule = Schedule::default();
        let places: Vec<_> =
            (1..=WAITING as u64).map(|n| schedule.enter(NOW, next(n), &Terms::default())).collect();
        assert_eq!(schedule.check_room(NOW), Err(ScheduleError::Full));
        // An earlier change withdraws them.
        assert_eq!(schedule.check_room(NOW - 1), Ok(()));
        assert!(schedule.leave(&places[0]).is_some());
        assert_eq!(schedule.check_room(NOW), Ok(()));
    }

    #[test]
    fn what_was_taken_back_is_not_found_and_its_end_is_told() {
        let mut schedule = Schedule::default();
        let at = |ms| NOW + ms * 1_000_000;
        let places: Vec<_> =
            (1..=3).map(|n| schedule.enter(at(n), next(n), &Terms::default())).collect();
        let generation = |at| schedule.tip(at).map(|next| next.applied.generation);
        assert_eq!((generation(NOW), generation(at(2))), (None, Some(2)));
        assert_eq!(
            (schedule.after(Some(at(1))), schedule.after(Some(at(3)))),
            (Some((2, 3)), None)
        );
        assert!(places[0].before.is_none());
        schedule.cut(2);
        assert!(schedule.leave(&places[1]).is_none());
        assert!(
            places[2].before.as_ref().is_some_and(|before| before.clone().now_or_never().is_some())
        );
        assert_eq!(schedule.leave(&places[0]).map(|next| next.applied.generation), Some(1));
        assert_eq!(schedule.after(None), None);
    }
}
