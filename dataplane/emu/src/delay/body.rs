// SPDX-License-Identifier: Apache-2.0
//! The body of a delay: an extra delay that varies all the time.
//!
//! A value is held for an exponential time and then redrawn: a renewal process in
//! continuous time. Its autocorrelation falls by a factor of e in the mean hold. While a value is
//! held the delay is that value; where the next one is smaller, the backlog leaves
//! first and the delay falls as fast as time passes:
//!
//! ```text
//! extra(t) = max(value at t, max over past holds of (end + value − t))
//! ```
//!
//! So t + extra(t) never decreases. With F the distribution of the values, the share of
//! time in which the extra delay is at most x is
//!
//! ```text
//! F(x) × exp(−(1 / correlation) × ∫ (1 − F(s)) ds from x to the largest value)
//! ```
//!
//! because the holds end as a Poisson process: none that ended a time s ago may have
//! held more than x + s.

use std::sync::Arc;

use crate::rng::{Stage, Stream, StreamKey};
use crate::units::{Instant, Nanos};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyPlan {
    /// Mean time for which a value is held; exponential.
    pub correlation: Nanos,
    /// The values' quantiles at equally spaced probabilities from 0 to 1, both
    /// included; linear between. Ascending. All pipes share the table.
    pub quantiles: Arc<[Nanos]>,
}

impl BodyPlan {
    #[must_use]
    pub fn max(&self) -> Nanos {
        self.quantiles.iter().copied().max().unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Body {
    plan: BodyPlan,
    max: Nanos,
    stream: Stream,
    /// The current value, and how long it is held.
    value: Nanos,
    end: Instant,
    /// When the backlog of past holds has left.
    caught_up: Instant,
}

impl Body {
    /// A body that draws its first value at `at`.
    pub(super) fn new(plan: BodyPlan, key: StreamKey, at: Instant) -> Self {
        let stream = Stream::new(key, Stage::Body, 0);
        let (max, value) = (plan.max(), Nanos::ZERO);
        let mut b = Self { plan, max, stream, value, end: at, caught_up: at };
        b.next();
        b
    }

    pub(super) fn plan(&self) -> &BodyPlan {
        &self.plan
    }

    /// The extra delay at `t`.
    #[inline]
    pub(super) fn extra(&mut self, t: Instant) -> Nanos {
        // At the end of time nothing ends.
        while t >= self.end && self.end < Instant::MAX {
            self.caught_up = self.caught_up.max(self.end + self.value);
            self.next();
        }
        // After a change to a shorter slot, `t` may be before the last instant asked for.
        self.value.max(self.caught_up.since(t).min(self.max))
    }

    /// How long the extra delay stays as it is, as seen at `t`, for which
    /// [`Body::extra`] was asked; `t` or earlier if it changes.
    pub(super) fn steady_until(&self, t: Instant) -> Instant {
        if self.caught_up > t { t } else { self.end }
    }

    fn next(&mut self) {
        // A nanosecond at least, so that the process always gets on.
        let hold = self.stream.exponential(self.plan.correlation).max(Nanos(1));
        self.value = self.stream.quantile(&self.plan.quantiles);
        self.end = self.end + hold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::units::Direction;

    fn key() -> StreamKey {
        StreamKey { seed: 1, client: ClientKey::Default, direction: Direction::Return, epoch: 0 }
    }

    /// The distribution of the values at `x`.
    fn share_up_to(table: &[Nanos], x: f64) -> f64 {
        let gaps = (table.len() - 1) as f64;
        let each = table.windows(2).map(|w| {
            let (low, high) = (w[0].0 as f64, w[1].0 as f64);
            if x >= high { 1.0 } else { ((x - low) / (high - low)).max(0.0) }
        });
        each.sum::<f64>() / gaps
    }

    #[test]
    fn extra_delay_matches_closed_form() {
        // Skewed, with a gap of one value, in ms.
        let ms = [0, 2, 3, 3, 5, 9, 20, 60];
        let quantiles: Arc<[Nanos]> = ms.iter().map(|m| Nanos::from_millis(*m)).collect();
        let max = 60e6;
        for correlation in [20e6, 200e6] {
            let plan =
                BodyPlan { correlation: Nanos(correlation as u64), quantiles: quantiles.clone() };
            let mut body = Body::new(plan.clone(), key(), Instant::ZERO);
            // Two samples share a hold with probability e⁻¹² at most.
            let spacing = (max + 12.0 * correlation) as u64;
            let n = 100_000;
            let mut extra: Vec<f64> =
                (1..=n).map(|i| body.extra(Instant(i * spacing)).0 as f64).collect();
            extra.sort_by(f64::total_cmp);
            for x in [1e6, 2.5e6, 3.5e6, 7e6, 15e6, 30e6, 50e6] {
                let steps = 10_000;
                let width = (max - x) / f64::from(steps);
                let above: f64 = (0..steps)
                    .map(|i| x + (f64::from(i) + 0.5) * width)
                    .map(|s| (1.0 - share_up_to(&plan.quantiles, s)) * width)
                    .sum();
                let p = share_up_to(&plan.quantiles, x) * (-above / correlation).exp();
                let share = extra.partition_point(|e| *e <= x) as f64 / n as f64;
                // A binomial share; five standard errors.
                let tolerance = 5.0 * (p * (1.0 - p) / n as f64).sqrt() + 1e-5;
                assert!((share - p).abs() < tolerance, "P(≤ {x} ns) = {share}, stated {p}");
            }
        }
    }

    #[test]
    fn delay_after_hold_falls_as_fast_as_time_passes() {
        let plan = BodyPlan {
            correlation: Nanos::from_millis(50),
            quantiles: [Nanos(0), Nanos::from_millis(100)].into(),
        };
        let mut body = Body::new(plan, key(), Instant::ZERO);
        let (mut last, mut level, mut falling) = (body.extra(Instant::ZERO).0, 0_u32, 0_u32);
        let step = 10_000;
        for i in 1..1_000_000_u64 {
            let extra = body.extra(Instant(i * step)).0;
            // It stays, rises at once, or falls by as much as time has passed, at most.
            assert!(extra + step >= last);
            level += u32::from(extra == last);
            falling += u32::from(extra + step == last);
            last = extra;
        }
        // All but the steps in which a hold ends.
        assert!(level + falling > 990_000 - 2 * 1_000_000 / 5_000, "{level} + {falling}");
    }

    #[test]
    fn body_does_not_depend_on_number_of_reads() {
        let plan = BodyPlan {
            correlation: Nanos::from_millis(5),
            quantiles: [Nanos(0), Nanos::from_millis(1), Nanos::from_millis(40)].into(),
        };
        let mut often = Body::new(plan.clone(), key(), Instant::ZERO);
        let mut seldom = often.clone();
        for i in 0..1_000_000_u64 {
            let t = Instant(i * 100_000);
            let extra = often.extra(t);
            if i % 1999 == 0 {
                assert_eq!(extra, seldom.extra(t), "at {t}");
            }
        }
        let mut last = Body::new(plan, key(), Instant(u64::MAX - 1000));
        assert!(last.extra(Instant::MAX) <= Nanos::from_millis(40));
    }
}
