// SPDX-License-Identifier: Apache-2.0
//! Pending changes.
//!
//! The workers already have them and make them by their clock, so that no other thread can make one
//! late; this list has their results. Ascending by instant and by generation. Instants are on the
//! dataplane's clock. Runs on the control thread.

use std::collections::VecDeque;

use emu::units::{Instant, Nanos};
use thiserror::Error;
use tokio::sync::watch;

use crate::current::Current;

/// How far ahead a change may be asked for.
pub const AHEAD: Nanos = Nanos::from_millis(10_000);
/// How long ago its instant may have passed.
const PASSED: Nanos = Nanos::from_millis(1_000);
/// Changes that may wait; fewer than the workers have room for.
const WAITING: usize = 32;

/// Why a change does not wait for its instant.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// The link at that time is not predictable.
    #[error(
        "at_ns is {} ahead, more than {}: ask for it later",
        millis(.0),
        millis(&AHEAD)
    )]
    Ahead(Nanos),
    /// The caller must learn that its instant has passed.
    #[error(
        "at_ns has passed by {}, more than {}: ask for a later instant, or for none to have the \
         change at once",
        millis(.0),
        millis(&PASSED)
    )]
    Passed(Nanos),
    /// Someone asks without end.
    #[error("{WAITING} changes wait for their instants: ask again when some have been made")]
    Full,
}

fn millis(time: &Nanos) -> String {
    format!("{} ms", time.0 / 1_000_000)
}

/// A change that the workers have.
#[derive(Debug)]
struct Waiting {
    id: u64,
    at: Instant,
    next: Current,
    /// Dropped when the change was made or withdrawn.
    over: watch::Sender<()>,
}

/// A change's place, to find it again and to wait for its end.
#[derive(Debug)]
pub struct Place {
    id: u64,
    /// The end of the one before it.
    before: Option<watch::Receiver<()>>,
}

impl Place {
    /// Waits until the change before it was made or withdrawn.
    pub async fn follows(&mut self) {
        if let Some(before) = &mut self.before {
            over(before).await;
        }
    }
}

/// Waits until a change was made or withdrawn.
pub async fn over(change: &mut watch::Receiver<()>) {
    // The end is signalled by dropping the sender.
    while change.changed().await.is_ok() {}
}

#[derive(Debug, Default)]
pub struct Schedule {
    waiting: VecDeque<Waiting>,
    entered: u64,
}

impl Schedule {
    /// Whether one may wait for an instant.
    ///
    /// # Errors
    /// If the instant is out of bounds, or too many wait.
    pub fn check(&self, now: Instant, at: Instant) -> Result<(), ScheduleError> {
        let (ahead, passed) = (at.since(now), now.since(at));
        if ahead > AHEAD {
            return Err(ScheduleError::Ahead(ahead));
        }
        if passed > PASSED {
            return Err(ScheduleError::Passed(passed));
        }
        // Later ones will be withdrawn.
        match self.up_to(at).count() < WAITING {
            true => Ok(()),
            false => Err(ScheduleError::Full),
        }
    }

    fn up_to(&self, at: Instant) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().take_while(move |change| change.at <= at)
    }

    /// The plan at an instant, if a pending change is due until then.
    #[must_use]
    pub fn tip(&self, at: Instant) -> Option<&Current> {
        self.up_to(at).last().map(|change| &change.next)
    }

    /// The end of the last change that is due until an instant.
    #[must_use]
    pub fn due(&self, at: Instant) -> Option<watch::Receiver<()>> {
        self.up_to(at).last().map(|change| change.over.subscribe())
    }

    /// The generations after an instant, the first and the last.
    #[must_use]
    pub fn after(&self, at: Option<Instant>) -> Option<(u64, u64)> {
        let generation = |change: &Waiting| change.next.applied.generation;
        let first = self.waiting.iter().find(|change| at.is_none_or(|at| change.at > at))?;
        Some((generation(first), self.waiting.back().map(generation)?))
    }

    /// Whether the generation is one that waits and whether it is lossy, if it is.
    #[must_use]
    pub fn lossy(&self, generation: u64) -> Option<bool> {
        let mut applied = self.waiting.iter().rev().map(|change| change.next.applied);
        applied.find(|it| it.generation == generation).map(|it| it.lossy)
    }

    /// Takes a place for a change that the workers have, after all others.
    pub fn enter(&mut self, at: Instant, next: Current) -> Place {
        let before = self.waiting.back().map(|change| change.over.subscribe());
        self.entered += 1;
        let id = self.entered;
        self.waiting.push_back(Waiting { id, at, next, over: watch::Sender::new(()) });
        Place { id, before }
    }

    /// Removes a change. Returns its result, unless it was withdrawn.
    pub fn leave(&mut self, place: &Place) -> Option<Current> {
        let found = self.waiting.iter().position(|change| change.id == place.id)?;
        self.waiting.remove(found).map(|change| change.next)
    }

    /// Removes the changes from a generation on.
    pub fn cut(&mut self, generation: u64) {
        self.waiting.retain(|change| change.next.applied.generation < generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::linkemu::v1 as model;

    const NOW: Instant = Instant(60_000_000_000);

    fn next(generation: u64) -> Current {
        let applied = model::Applied { generation, ..Default::default() };
        Current { plan: Default::default(), applied, remarks: Vec::new() }
    }

    #[test]
    fn an_instant_out_of_bounds_is_refused_with_the_bound() {
        let schedule = Schedule::default();
        let check = |at| schedule.check(NOW, at);
        assert_eq!(check(NOW + AHEAD), Ok(()));
        assert_eq!(check(Instant(NOW.0 - PASSED.0)), Ok(()));
        let ahead = check(Instant(u64::MAX)).unwrap_err();
        assert!(ahead.to_string().contains("more than 10000 ms"), "{ahead}");
        let passed = check(Instant::ZERO).unwrap_err();
        assert!(passed.to_string().contains("passed by 60000 ms, more than 1000 ms"), "{passed}");
    }

    #[test]
    fn a_bounded_number_waits() {
        let mut schedule = Schedule::default();
        let places: Vec<_> = (1..=WAITING as u64).map(|n| schedule.enter(NOW, next(n))).collect();
        assert_eq!(schedule.check(NOW, NOW), Err(ScheduleError::Full));
        // An earlier change withdraws them.
        assert_eq!(schedule.check(NOW, Instant(NOW.0 - 1)), Ok(()));
        assert!(schedule.leave(&places[0]).is_some());
        assert_eq!(schedule.check(NOW, NOW), Ok(()));
    }

    #[test]
    fn what_was_taken_back_is_not_found_and_its_end_is_told() {
        let mut schedule = Schedule::default();
        let at = |ms| NOW + Nanos::from_millis(ms);
        let places: Vec<_> = (1..=3).map(|n| schedule.enter(at(n), next(n))).collect();
        let generation = |at| schedule.tip(at).map(|next| next.applied.generation);
        assert_eq!((generation(NOW), generation(at(2))), (None, Some(2)));
        assert_eq!(
            (schedule.after(Some(at(1))), schedule.after(Some(at(3)))),
            (Some((2, 3)), None)
        );
        assert!(places[0].before.is_none());
        schedule.cut(2);
        assert!(schedule.leave(&places[1]).is_none());
        assert!(places[2].before.as_ref().is_some_and(|before| before.has_changed().is_err()));
        assert_eq!(schedule.leave(&places[0]).map(|next| next.applied.generation), Some(1));
        assert_eq!(schedule.after(None), None);
    }
}
