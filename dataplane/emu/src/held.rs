// SPDX-License-Identifier: Apache-2.0
//! A process that holds a value for some time and then takes the next one.
//!
//! The hold is exponential, as in a renewal process (D. R. Cox, "Renewal Theory", 1962), or it
//! ends at the boundaries of a fixed period ([`Grid`]). The values are drawn from a table of
//! quantiles, or listed. With exponential holds and drawn values the autocorrelation falls by a
//! factor of e in the mean hold.
//!
//! The process is a function of time: it is asked at instants that never go back, and what it
//! answers does not depend on how often it is asked.

use std::sync::Arc;

use crate::rng::Stream;
use crate::units::{Instant, Nanos};

/// The instants at a phase of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub period: Nanos,
    pub phase: Nanos,
    pub clock: Clock,
}

/// The zero of a grid's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The last restart of the random processes.
    Start,
    /// 1970-01-01 00:00 UTC, with the UTC of [`Instant::ZERO`] in nanoseconds since then.
    Utc(Nanos),
}

impl Grid {
    /// The number of the period that `t` falls into, and the instant at which it ends.
    /// At a boundary the next period has begun. Times before the first boundary since a start
    /// belong to period zero.
    #[must_use]
    pub fn period_at(&self, t: Instant, start: Instant) -> (u64, Instant) {
        let period = self.period.0.max(1);
        let phase = self.phase.0 % period;
        let since_zero = match self.clock {
            Clock::Start => t.since(start).0,
            Clock::Utc(zero) => zero.0.saturating_add(t.0),
        };
        let Some(past) = since_zero.checked_sub(phase) else {
            return (0, t + Nanos(phase - since_zero));
        };
        let left = Nanos(period - past % period);
        // Without a phase there is nothing before period zero.
        (past / period + u64::from(phase > 0), t + left)
    }

    /// Sets the UTC of [`Instant::ZERO`].
    pub(crate) fn align(&mut self, zero: Nanos) {
        if let Clock::Utc(z) = &mut self.clock {
            *z = zero;
        }
    }
}

/// How long a value is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Exponential with this mean.
    Exponential(Nanos),
    Period(Grid),
}

/// The values, in the unit of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Drawn: quantiles at equally spaced probabilities from 0 to 1, both included; linear
    /// between. Ascending.
    Quantiles(Arc<[u64]>),
    /// In turn: with [`Hold::Period`] by the number of the period, so that they do not depend
    /// on when the process began.
    Listed(Arc<[u64]>),
}

impl Values {
    #[must_use]
    pub fn table(&self) -> &[u64] {
        match self {
            Self::Quantiles(table) | Self::Listed(table) => table,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPlan {
    pub hold: Hold,
    pub values: Values,
}

impl HeldPlan {
    /// Exponential holds with the mean `correlation`, and values drawn from `quantiles`.
    #[must_use]
    pub fn renewal(correlation: Nanos, quantiles: impl IntoIterator<Item = Nanos>) -> Self {
        let values = Values::Quantiles(quantiles.into_iter().map(|q| q.0).collect());
        Self { hold: Hold::Exponential(correlation), values }
    }

    /// Values in turn, each for a `step`, from the start of the processes on.
    #[must_use]
    pub fn steps(step: Nanos, values: impl IntoIterator<Item = u64>) -> Self {
        let grid = Grid { period: step, phase: Nanos::ZERO, clock: Clock::Start };
        let values = Values::Listed(values.into_iter().collect());
        Self { hold: Hold::Period(grid), values }
    }

    #[must_use]
    pub fn max(&self) -> u64 {
        self.values.table().iter().copied().max().unwrap_or_default()
    }

    /// Mean time between two values.
    #[must_use]
    pub fn interval(&self) -> Nanos {
        match self.hold {
            Hold::Exponential(mean) => mean,
            Hold::Period(grid) => grid.period,
        }
    }

    pub(crate) fn align(&mut self, zero: Nanos) {
        if let Hold::Period(grid) = &mut self.hold {
            grid.align(zero);
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    plan: HeldPlan,
    stream: Stream,
    start: Instant,
    value: u64,
    end: Instant,
    /// Values taken from a list so far.
    taken: u64,
}

impl Held {
    /// A process that takes its first value at `at`. Periods since a start count from `start`.
    pub(crate) fn new(plan: HeldPlan, stream: Stream, at: Instant, start: Instant) -> Self {
        let mut h = Self { plan, stream, start, value: 0, end: at, taken: 0 };
        h.next();
        h
    }

    pub(crate) fn plan(&self) -> &HeldPlan {
        &self.plan
    }

    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    /// Whether the value is over at `t`. At the end of time nothing ends.
    #[inline]
    pub(crate) fn is_over(&self, t: Instant) -> bool {
        t >= self.end && self.end < Instant::MAX
    }

    /// Takes the value that is held at `t`.
    #[inline]
    pub(crate) fn advance(&mut self, t: Instant) {
        while self.is_over(t) {
            self.next();
        }
    }

    pub(crate) fn next(&mut self) {
        let from = self.end;
        let turn = match self.plan.hold {
            Hold::Exponential(mean) => {
                // A nanosecond at least, so that the process always gets on.
                self.end = from + self.stream.exponential(mean).max(Nanos(1));
                self.taken
            }
            Hold::Period(grid) => {
                let (number, end) = grid.period_at(from, self.start);
                self.end = end;
                number
            }
        };
        self.value = match &self.plan.values {
            Values::Quantiles(table) => self.stream.quantile(table),
            Values::Listed(list) => {
                let i = usize::try_from(turn % list.len().max(1) as u64).unwrap_or(0);
                list.get(i).copied().unwrap_or_default()
            }
        };
        self.taken += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::rng::{Stage, StreamKey};
    use crate::units::Direction;
    use proptest::prelude::*;

    fn stream() -> Stream {
        let client = ClientKey::Default;
        let key = StreamKey { seed: 1, client, direction: Direction::Return, epoch: 0 };
        Stream::new(key, Stage::Level, 0)
    }

    #[test]
    fn grid_in_utc_has_boundaries_at_phase_of_each_minute() {
        // The clock's zero is 7.5 s after a full minute.
        let zero = Nanos(1_600_000_020_000_000_000 + 7_500_000_000);
        let second = |s: f64| Instant((s * 1e9) as u64);
        let (period, phase) = (Nanos::from_secs(15), Nanos::from_secs(12));
        let grid = Grid { period, phase, clock: Clock::Utc(zero) };
        let ends: Vec<Instant> =
            [0.0, 4.4, 4.5, 19.4, 19.5].map(|s| grid.period_at(second(s), Instant::ZERO).1).into();
        assert_eq!(ends, [4.5, 4.5, 19.5, 19.5, 34.5].map(second));
        let number = |s| grid.period_at(second(s), Instant::ZERO).0;
        assert_eq!((number(4.5), number(19.5)), (number(4.4) + 1, number(4.4) + 2));
    }

    #[test]
    fn list_of_a_period_depends_on_time_alone() {
        let grid = Grid { period: Nanos(10), phase: Nanos(3), clock: Clock::Start };
        let values = Values::Listed([100, 200, 300].into());
        let plan = HeldPlan { hold: Hold::Period(grid), values };
        let at = |t: u64, from: u64| {
            let mut h = Held::new(plan.clone(), stream(), Instant(from), Instant(1_000));
            h.advance(Instant(t));
            (h.value(), h.end())
        };
        assert_eq!(at(1_000, 1_000), (100, Instant(1_003)));
        assert_eq!(at(1_003, 1_000), (200, Instant(1_013)));
        assert_eq!(at(1_030, 1_000), (100, Instant(1_033)));
        assert_eq!(at(1_030, 1_000), at(1_030, 1_027));
    }

    #[test]
    fn process_ends_neither_early_nor_at_end_of_time() {
        let values = Values::Quantiles([0, 5].into());
        let hold = Hold::Exponential(Nanos(u64::MAX));
        let mut h =
            Held::new(HeldPlan { hold, values }, stream(), Instant(u64::MAX - 1), Instant::ZERO);
        assert!(!h.is_over(Instant(u64::MAX - 2)));
        h.next();
        assert_eq!((h.end(), h.is_over(Instant::MAX)), (Instant::MAX, false));
    }

    proptest! {
        #[test]
        fn every_instant_lies_in_one_period(
            period in 0_u64..50, phase in any::<u64>(), zero in any::<u64>(), t in any::<u64>(),
            utc in any::<bool>(),
        ) {
            let clock = if utc { Clock::Utc(Nanos(zero)) } else { Clock::Start };
            let grid = Grid { period: Nanos(period), phase: Nanos(phase), clock };
            let start = Instant(if utc { 0 } else { t.saturating_sub(zero % 1_000) });
            let (number, end) = grid.period_at(Instant(t), start);
            prop_assert!(end > Instant(t) || end == Instant::MAX);
            prop_assert!(end.since(Instant(t)).0 <= period.max(1));
            // Until the end it is the same period, and there the next one begins.
            if !utc && end < Instant::MAX {
                prop_assert_eq!(grid.period_at(Instant(end.0 - 1), start), (number, end));
                prop_assert_eq!(grid.period_at(end, start).0, number + 1);
            }
        }
    }
}
