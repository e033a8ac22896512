// SPDX-License-Identifier: Apache-2.0
//! An extra delay that varies all the time: it holds a value and then takes the next one
//! ([`crate::held`]).
//!
//! While a value is held the delay is that value; where the next one is smaller, the backlog
//! leaves first and the delay falls as fast as time passes:
//!
//! ```text
//! extra(t) = max(value at t, max over past holds of (end + value − t))
//! ```
//!
//! So t + extra(t) never decreases. With exponential holds and F the distribution of the
//! values, the share of time in which the extra delay is at most x is
//!
//! ```text
//! F(x) × exp(−(1 / correlation) × ∫ (1 − F(s)) ds from x to the largest value)
//! ```
//!
//! because the holds end as a Poisson process: none that ended a time s ago may have
//! held more than x + s.

use crate::held::{Held, HeldPlan};
use crate::rng::Stream;
use crate::units::{Instant, Nanos};

#[derive(Clone, Debug)]
pub(super) struct Body {
    process: Held,
    max: Nanos,
    /// When the backlog of past holds has left.
    caught_up: Instant,
}

impl Body {
    /// A body that takes its first value at `at`. Periods since a start count from `start`.
    pub(super) fn new(plan: HeldPlan, stream: Stream, at: Instant, start: Instant) -> Self {
        let max = Nanos(plan.max());
        Self { process: Held::new(plan, stream, at, start), max, caught_up: at }
    }

    pub(super) fn plan(&self) -> &HeldPlan {
        self.process.plan()
    }

    /// The extra delay at `t`.
    #[inline]
    pub(super) fn extra(&mut self, t: Instant) -> Nanos {
        while self.process.is_over(t) {
            let left = self.process.end() + Nanos(self.process.value());
            self.caught_up = self.caught_up.max(left);
            self.process.next();
        }
        // After a change to a shorter slot, `t` may be before the last instant asked for.
        Nanos(self.process.value()).max(self.caught_up.since(t).min(self.max))
    }

    /// How long the extra delay stays as it is, as seen at `t`, for which
    /// [`Body::extra`] was asked; `t` or earlier if it changes.
    pub(super) fn steady_until(&self, t: Instant) -> Instant {
        if self.caught_up > t { t } else { self.process.end() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::held::{Clock, Grid, Hold, Values};
    use crate::rng::{Stage, StreamKey};
    use crate::units::Direction;

    fn body(plan: HeldPlan, at: Instant) -> Body {
        let client = ClientKey::Default;
        let key = StreamKey { seed: 1, client, direction: Direction::Return, epoch: 0 };
        Body::new(plan, Stream::new(key, Stage::Body, 0), at, Instant::ZERO)
    }

    /// The distribution of the values at `x`.
    fn share_up_to(table: &[u64], x: f64) -> f64 {
        let gaps = (table.len() - 1) as f64;
        let each = table.windows(2).map(|w| {
            let (low, high) = (w[0] as f64, w[1] as f64);
            if x >= high { 1.0 } else { ((x - low) / (high - low)).max(0.0) }
        });
        each.sum::<f64>() / gaps
    }

    #[test]
    fn extra_delay_matches_closed_form() {
        // Skewed, with a gap of one value, in ms.
        let ms = [0, 2, 3, 3, 5, 9, 20, 60];
        let quantiles = ms.map(Nanos::from_millis);
        let max = 60e6;
        for correlation in [20e6, 200e6] {
            let plan = HeldPlan::renewal(Nanos(correlation as u64), quantiles);
            let mut body = body(plan.clone(), Instant::ZERO);
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
                    .map(|s| (1.0 - share_up_to(plan.values.table(), s)) * width)
                    .sum();
                let p = share_up_to(plan.values.table(), x) * (-above / correlation).exp();
                let share = extra.partition_point(|e| *e <= x) as f64 / n as f64;
                // A binomial share; five standard errors.
                let tolerance = 5.0 * (p * (1.0 - p) / n as f64).sqrt() + 1e-5;
                assert!((share - p).abs() < tolerance, "P(≤ {x} ns) = {share}, stated {p}");
            }
        }
    }

    #[test]
    fn delay_after_hold_falls_as_fast_as_time_passes() {
        let plan = HeldPlan::renewal(Nanos::from_millis(50), [Nanos(0), Nanos::from_millis(100)]);
        let mut body = body(plan, Instant::ZERO);
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
        let plan = HeldPlan::renewal(
            Nanos::from_millis(5),
            [Nanos(0), Nanos::from_millis(1), Nanos::from_millis(40)],
        );
        let mut often = body(plan.clone(), Instant::ZERO);
        let mut seldom = often.clone();
        for i in 0..1_000_000_u64 {
            let t = Instant(i * 100_000);
            let extra = often.extra(t);
            if i % 1999 == 0 {
                assert_eq!(extra, seldom.extra(t), "at {t}");
            }
        }
        let mut last = body(plan, Instant(u64::MAX - 1000));
        assert!(last.extra(Instant::MAX) <= Nanos::from_millis(40));
    }

    #[test]
    fn level_of_a_period_jumps_up_at_its_boundary_and_falls_with_time() {
        let (period, phase) = (Nanos::from_secs(15), Nanos::from_secs(12));
        let grid = Grid { period, phase, clock: Clock::Utc(Nanos::ZERO) };
        let ms = |n: u64| Nanos::from_millis(n).0;
        let values = Values::Listed([ms(30), ms(5), ms(40)].into());
        let mut level = body(HeldPlan { hold: Hold::Period(grid), values }, Instant::ZERO);
        let mut extra = |millis: u64| level.extra(Instant(ms(millis))).0 / 1_000_000;
        assert_eq!([0, 11_999].map(&mut extra), [30, 30]);
        // 25 ms of backlog leave in 25 ms.
        assert_eq!([12_000, 12_010, 12_024, 12_025, 26_999].map(&mut extra), [30, 20, 6, 5, 5]);
        assert_eq!([27_000, 41_999, 42_000, 42_050].map(&mut extra), [40, 40, 40, 30]);
    }
}
