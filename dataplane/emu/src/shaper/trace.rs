// SPDX-License-Identifier: Apache-2.0
//! A rate that changes with time: steps of equal length, again from the start after the
//! last one.
//!
//! The work that a link has done since the trace began, W(t) in bit-nanoseconds (bits ×
//! 10⁹), is piecewise linear, and its inverse is the time at which a frame is done. Both
//! are exact in integers and cost one binary search, however many steps, down or not, a
//! frame takes. A work of 2¹¹² is the most that can be: 2⁶⁴ ns at 2⁴⁸ bit/s.
//!
//! After the traces of mahimahi (R. Netravali et al., USENIX ATC 2015), which list the
//! instants at which a packet of 1500 bytes may leave; these are rates, so that a frame is
//! charged for its own length.

use std::sync::Arc;

use crate::units::{BitRate, Instant, Nanos};

/// Above this a step's rate is cut, so that no sum overflows: 281 Tbit/s.
const MAX_RATE: u64 = (1 << 48) - 1;

/// The rates of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTrace {
    step: Nanos,
    /// At i, the sum of the rates of the first i steps. All pipes share it.
    sums: Arc<[u64]>,
}

impl RateTrace {
    /// A trace of `rates` in bit/s, each for a `step` of a nanosecond at least. Zero is a
    /// link that is down.
    #[must_use]
    pub fn new(step: Nanos, rates: &[u64]) -> Self {
        let mut sum = 0_u64;
        let sums = rates.iter().map(|r| {
            sum = sum.saturating_add((*r).min(MAX_RATE));
            sum
        });
        let sums = std::iter::once(0).chain(sums).collect();
        Self { step: step.max(Nanos(1)), sums }
    }

    /// How long each rate lasts.
    #[must_use]
    pub fn step(&self) -> Nanos {
        self.step
    }

    /// How many steps there are.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.sums.len() - 1
    }

    #[must_use]
    pub fn max(&self) -> BitRate {
        BitRate::bps(self.sums.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0))
    }

    /// The sum of the rates of the first `steps` steps of one turn.
    fn sum(&self, steps: u64) -> u64 {
        let i = usize::try_from(steps).unwrap_or(usize::MAX).min(self.steps());
        self.sums[i]
    }
}

/// A step of a trace that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub rate: BitRate,
    /// When the next one begins.
    pub until: Instant,
}

/// A trace that runs since an instant.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub trace: RateTrace,
    pub since: Instant,
}

impl Running {
    /// The step that `t` falls into; at a boundary, the one that begins.
    pub(super) fn step_at(&self, t: Instant) -> Step {
        self.step(t.since(self.since).0 / self.trace.step.0)
    }

    fn step(&self, k: u64) -> Step {
        let i = k % self.turn();
        let rate = BitRate::bps(self.trace.sum(i + 1) - self.trace.sum(i));
        Step { rate, until: self.boundary(k.saturating_add(1)) }
    }

    /// The work that the link lets through up to `t`.
    pub(super) fn work(&self, t: Instant) -> u128 {
        let elapsed = t.since(self.since).0;
        let (k, into) = (elapsed / self.trace.step.0, elapsed % self.trace.step.0);
        let (turns, i) = (k / self.turn(), k % self.turn());
        let whole = u128::from(turns) * u128::from(self.total()) + u128::from(self.trace.sum(i));
        let rate = self.trace.sum(i + 1) - self.trace.sum(i);
        whole * u128::from(self.trace.step.0) + u128::from(into) * u128::from(rate)
    }

    /// When `work` has been let through: the instant, the fraction of 1 / rate
    /// nanoseconds after it, and the step in which that is. `None` if it never will be.
    pub(super) fn reach(&self, work: u128) -> Option<(Instant, u64, Step)> {
        let step = u128::from(self.trace.step.0);
        // A boundary belongs to the step before it, which does the last of the work.
        let before = work.max(1) - 1;
        let turn = step * u128::from(self.total());
        let turns = before.checked_div(turn)?;
        let whole = u64::try_from(before % turn / step).unwrap_or(u64::MAX);
        // The last one that begins with no more done than that: not one that is down.
        let i = self.trace.sums.partition_point(|s| *s <= whole).saturating_sub(1) as u64;
        let k = u64::try_from(turns).unwrap_or(u64::MAX).saturating_mul(self.turn());
        let k = k.saturating_add(i);
        let rate = u128::from(self.trace.sum(i + 1) - self.trace.sum(i));
        let left = work.max(1) - turns * turn - u128::from(self.trace.sum(i)) * step;
        let into = Nanos(u64::try_from(left.checked_div(rate)?).unwrap_or(u64::MAX));
        let fraction = u64::try_from(left % rate).unwrap_or(0);
        Some((self.boundary(k) + into, fraction, self.step(k)))
    }

    fn boundary(&self, k: u64) -> Instant {
        self.since + Nanos(k.saturating_mul(self.trace.step.0))
    }

    fn turn(&self) -> u64 {
        self.trace.steps().max(1) as u64
    }

    fn total(&self) -> u64 {
        self.trace.sum(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rate_is_cut_at_the_highest_of_48_bits() {
        let trace = RateTrace::new(Nanos(1), &[u64::MAX]);
        let running = Running { trace, since: Instant::ZERO };
        assert_eq!(running.step_at(Instant::ZERO).rate, BitRate::bps(281_474_976_710_655));
    }

    proptest! {
        /// The work up to an instant, step by step, and the way back.
        #[test]
        fn work_and_its_inverse_agree(
            step in 1_u64..1000,
            rates in prop::collection::vec(prop_oneof![Just(0), 1_u64..50, Just(u64::MAX)], 0..20),
            since in 0_u64..1000,
            elapsed in 0_u64..20_000,
        ) {
            let trace = RateTrace::new(Nanos(step), &rates);
            let running = Running { trace, since: Instant(since) };
            let rate = |t: u64| {
                let i = (t / step) as usize;
                rates.get(i % rates.len().max(1)).map_or(0, |r| (*r).min(MAX_RATE))
            };
            let done: u128 = (0..elapsed).map(|t| u128::from(rate(t))).sum();
            let t = Instant(since + elapsed);
            prop_assert_eq!(running.work(t), done);
            prop_assert_eq!(running.step_at(t).rate, BitRate::bps(rate(elapsed)));
            // The first instant at which that much was done.
            let first = (0..elapsed).rev().find(|t| rate(*t) > 0).map(|t| Instant(since + t + 1));
            if let Some(first) = first {
                let (at, fraction, s) = running.reach(done).unwrap();
                prop_assert_eq!((at, fraction), (first, 0));
                prop_assert!(s.until >= at && s.until.0 <= at.0 + step);
            }
            // One more is done within the next instant of a link that is up.
            match running.reach(done + 1) {
                None => prop_assert!(rates.iter().all(|r| *r == 0)),
                Some((at, fraction, s)) => {
                    let next = (elapsed..).find(|t| rate(*t) > 0).unwrap();
                    let BitRate::PerSec(r) = s.rate else { panic!("{s:?}") };
                    prop_assert_eq!(r.get(), rate(next));
                    let exact = u128::from(at.0) * u128::from(r.get()) + u128::from(fraction);
                    prop_assert_eq!(exact, u128::from(since + next) * u128::from(r.get()) + 1);
                }
            }
        }
    }

    #[test]
    fn end_of_time_and_largest_rates_do_not_panic() {
        let rates = vec![u64::MAX; 65_536];
        let trace = RateTrace::new(Nanos(u64::MAX), &rates);
        let running = Running { trace, since: Instant(5) };
        assert_eq!(running.step_at(Instant::MAX).until, Instant::MAX);
        let all = running.work(Instant::MAX);
        assert_eq!(all, u128::from(u64::MAX - 5) * u128::from(MAX_RATE));
        assert_eq!(running.reach(all).unwrap().0, Instant::MAX);
        assert_eq!(running.reach(u128::MAX).unwrap().0, Instant::MAX);
        let slow = Running { trace: RateTrace::new(Nanos(1), &[0, 1]), since: Instant::ZERO };
        assert_eq!(slow.reach(u128::MAX).unwrap().0, Instant::MAX);
        let none = Running { trace: RateTrace::new(Nanos(0), &[]), since: Instant::ZERO };
        assert_eq!((none.work(Instant::MAX), none.reach(1)), (0, None));
    }
}
