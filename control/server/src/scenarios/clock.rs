// SPDX-License-Identifier: Apache-2.0
//! The dataplane's clock as linkd knows it: only to be on time with what is asked for.
//! The instants themselves are on the dataplane's clock, and it keeps them.
//!
//! A reading lies between the request and its answer, and is taken for the middle; the
//! error is at most half of the way. A reading that took long counts for less than an
//! earlier one that did not, until that is old.

use proto::dataplane::v1 as dp;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tonic::Status;

/// A reading that took no longer than this is as good as any.
const QUICK: Duration = Duration::from_millis(4);
/// A reading is kept for so long beside worse ones; clocks part by some ppm.
const KEPT: Duration = Duration::from_secs(10);
/// More than any reading's error: a clock that is so far back is another one.
const BACK_NS: u64 = 1_000_000_000;

/// The offset between both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The same instant here, there, and in UTC.
    here: Instant,
    there_ns: u64,
    utc: SystemTime,
    /// When the clock was last asked for.
    asked: Instant,
}

/// The dataplane's clock is not the one that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restarted;

/// An answer with when it was asked for and when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub asked: Instant,
    pub answered: Instant,
    pub there_ns: u64,
    pub utc: SystemTime,
}

impl Reading {
    /// Of a plan that was read.
    pub fn of(asked: Instant, plan: &dp::GetPlanResponse) -> Result<Self, Status> {
        let older = || Status::unimplemented("the dataplane does not tell its time: update it");
        let there_ns = plan.time_ns.ok_or_else(older)?;
        let utc = plan.utc.and_then(|utc| utc.try_into().ok()).unwrap_or_else(SystemTime::now);
        Ok(Self { asked, answered: Instant::now(), there_ns, utc })
    }

    fn way(&self) -> Duration {
        self.answered.saturating_duration_since(self.asked)
    }
}

impl From<Reading> for Clock {
    fn from(reading: Reading) -> Self {
        let Reading { asked, there_ns, utc, .. } = reading;
        Self { here: asked + reading.way() / 2, there_ns, utc, asked }
    }
}

impl Clock {
    /// Takes a reading into account.
    pub fn correct(&mut self, reading: Reading) -> Result<(), Restarted> {
        let expected = self.at(reading.answered);
        if reading.there_ns.saturating_add(BACK_NS) < expected {
            return Err(Restarted);
        }
        let old = reading.asked.saturating_duration_since(self.here) > KEPT;
        if old || reading.way() <= QUICK {
            *self = reading.into();
        }
        self.asked = reading.asked;
        Ok(())
    }

    /// The dataplane's time at an instant here.
    fn at(&self, here: Instant) -> u64 {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match here.checked_duration_since(self.here) {
            Some(after) => self.there_ns.saturating_add(ns(after)),
            None => self.there_ns.saturating_sub(ns(self.here.duration_since(here))),
        }
    }

    /// The dataplane's time now.
    pub fn now_ns(&self) -> u64 {
        self.at(Instant::now())
    }

    /// When the dataplane's clock will be there; what is past is now.
    pub fn instant(&self, there_ns: u64) -> Instant {
        match there_ns.checked_sub(self.there_ns) {
            Some(ahead) => self.here + Duration::from_nanos(ahead),
            None => self.here,
        }
    }

    /// The same in UTC.
    pub fn utc(&self, there_ns: u64) -> SystemTime {
        match there_ns.checked_sub(self.there_ns) {
            Some(ahead) => self.utc + Duration::from_nanos(ahead),
            None => self.utc - Duration::from_nanos(self.there_ns - there_ns),
        }
    }

    /// It was asked for in vain.
    pub fn postpone(&mut self, asked: Instant) {
        self.asked = asked;
    }

    /// When it was last asked for.
    pub fn asked(&self) -> Instant {
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(start: Instant, asked_ms: u64, way_ms: u64, there_ms: u64) -> Reading {
        let asked = start + Duration::from_millis(asked_ms);
        let answered = asked + Duration::from_millis(way_ms);
        Reading { asked, answered, there_ns: there_ms * 1_000_000, utc: SystemTime::UNIX_EPOCH }
    }

    #[test]
    fn a_reading_is_the_middle_of_its_way() {
        let start = Instant::now();
        let clock = Clock::from(reading(start, 10, 2, 5_000));
        assert_eq!(clock.at(start + Duration::from_millis(11)), 5_000_000_000);
        assert_eq!(clock.at(start), 4_989_000_000);
        assert_eq!(clock.instant(5_004_000_000), start + Duration::from_millis(15));
        assert_eq!(clock.utc(4_000_000_000), SystemTime::UNIX_EPOCH - Duration::from_secs(1));
    }

    #[test]
    fn a_slow_reading_counts_only_when_the_last_quick_one_is_old() {
        let start = Instant::now();
        let mut clock = Clock::from(reading(start, 0, 2, 5_000));
        // Its middle says 5 ms less than the truth, 5000 + 999 at 1000 ms.
        clock.correct(reading(start, 1_000, 30, 6_009)).unwrap();
        assert_eq!(clock.at(start + Duration::from_millis(1_001)), 6_000_000_000);
        clock.correct(reading(start, 11_000, 30, 16_009)).unwrap();
        assert_eq!(clock.at(start + Duration::from_millis(11_015)), 16_009_000_000);
    }

    #[test]
    fn a_clock_that_went_back_is_another_one() {
        let start = Instant::now();
        let mut clock = Clock::from(reading(start, 0, 2, 5_000));
        assert_eq!(clock.correct(reading(start, 2_000, 2, 5_900)), Err(Restarted));
        assert_eq!(clock.correct(reading(start, 2_000, 2, 6_900)), Ok(()));
    }
}
