// SPDX-License-Identifier: Apache-2.0
//! A rate that varies at random: a peak rate times the product of shares, each of which is a
//! process that holds a value and then takes the next one ([`crate::held`]).
//!
//! The product is piecewise constant. A frame in service takes as many pieces as its work
//! needs, exactly in bit-nanoseconds, as with a rate trace. The pieces from the start of the
//! frame in service on are kept, so that a change of the peak applies to it pro rata.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::held::{Held, HeldPlan};
use crate::rng::{Stage, Stream};
use crate::units::{BitRate, Instant, Nanos, Probability};

use super::{Origin, Step};

/// The least rate while the shares are not zero, in bit/s: frames always get through.
const MIN_RATE: u64 = 1_000;

/// Steps that one frame may take: only shares of zero, step after step, make it need more, and
/// then the link stays down until the next change.
const MAX_STEPS: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaryingPlan {
    pub peak: NonZeroU64,
    /// Shares in multiples of 2⁻³²: of the demand of others, of the time of day, and of the
    /// current period. Their positions are part of their seeds.
    pub shares: [Option<HeldPlan>; 3],
}

impl VaryingPlan {
    /// The largest rate.
    #[must_use]
    pub fn max(&self) -> BitRate {
        let share = |s: &HeldPlan| s.max().min(Probability::ONE.raw());
        BitRate::bps(rate(self.peak, self.shares.iter().flatten().map(share)))
    }
}

/// The peak times the product of the shares, rounded down.
fn rate(peak: NonZeroU64, shares: impl Iterator<Item = u64>) -> u64 {
    let mut rate = u128::from(peak.get());
    for share in shares {
        rate = (rate * u128::from(share)) >> 32;
        if share > 0 {
            rate = rate.max(MIN_RATE.min(peak.get()).into());
        }
    }
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// A share over time.
#[derive(Clone, Debug)]
struct Share {
    process: Held,
    /// Values that the process has left, from the start of the frame in service on, and the
    /// instants at which they end.
    past: VecDeque<(u64, Instant)>,
}

impl Share {
    fn new(plan: &HeldPlan, class: u8, at: Instant, origin: &Origin) -> Self {
        let stream = Stream::new(origin.key, Stage::Share, class);
        Self { process: Held::new(plan.clone(), stream, at, origin.start), past: VecDeque::new() }
    }

    /// The value at `t`, and the instant at which it ends. `t` is not before the instant of
    /// the last [`Share::forget`].
    fn at(&mut self, t: Instant) -> (u64, Instant) {
        while self.process.is_over(t) {
            self.past.push_back((self.process.value(), self.process.end()));
            self.process.next();
        }
        let now = (self.process.value(), self.process.end());
        let i = self.past.partition_point(|(_, until)| *until <= t);
        self.past.get(i).copied().unwrap_or(now)
    }

    fn forget(&mut self, t: Instant) {
        self.process.advance(t);
        while self.past.front().is_some_and(|(_, until)| *until <= t) {
            self.past.pop_front();
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Varying {
    peak: NonZeroU64,
    shares: [Option<Share>; 3],
}

impl Varying {
    /// Takes a plan from `at` on. Of `before`, processes with the same parameters continue.
    pub(super) fn new(
        plan: &VaryingPlan,
        before: Option<Self>,
        at: Instant,
        origin: &Origin,
    ) -> Self {
        let mut shares = before.map(|b| b.shares).unwrap_or_default();
        for ((share, plan), class) in shares.iter_mut().zip(&plan.shares).zip(0..) {
            if share.as_ref().map(|s| s.process.plan()) != plan.as_ref() {
                *share = plan.as_ref().map(|p| Share::new(p, class, at, origin));
            }
        }
        Self { peak: plan.peak, shares }
    }

    /// The step at `t`; at a boundary, the one that begins.
    pub(super) fn step_at(&mut self, t: Instant) -> Step {
        let mut until = Instant::MAX;
        let shares = self.shares.iter_mut().flatten().map(|s| {
            let (value, end) = s.at(t);
            until = until.min(end);
            value
        });
        let rate = BitRate::bps(rate(self.peak, shares));
        Step { rate, until }
    }

    /// Nothing before `t` is asked for again.
    pub(super) fn forget(&mut self, t: Instant) {
        for s in self.shares.iter_mut().flatten() {
            s.forget(t);
        }
    }

    /// The work, in bit-nanoseconds, that is done from `from` to `to`.
    pub(super) fn work(&mut self, from: Instant, to: Instant) -> u64 {
        let (mut work, mut t) = (0_u64, from);
        while t < to {
            let step = self.step_at(t);
            let end = step.until.min(to);
            work = work.saturating_add(end.since(t).0.saturating_mul(per_second(step)));
            t = end;
        }
        work
    }

    /// When `work` that begins at `at` is done: the instant, the fraction of 1 / rate
    /// nanoseconds after it, and the step in which that is. `None` if it never will be, or not
    /// within [`MAX_STEPS`].
    pub(super) fn reach(&mut self, at: Instant, work: u64) -> Option<(Instant, u64, Step)> {
        if self.shares.iter().flatten().any(|s| s.process.plan().max() == 0) {
            return None;
        }
        let (mut t, mut left) = (at, work);
        for _ in 0..MAX_STEPS {
            let step = self.step_at(t);
            let rate = per_second(step);
            let fits = step.until.since(t).0.saturating_mul(rate);
            if left <= fits && rate > 0 {
                return Some((t + Nanos(left / rate), left % rate, step));
            }
            if step.until == Instant::MAX {
                return None;
            }
            left -= fits.min(left);
            t = step.until;
        }
        None
    }
}

fn per_second(step: Step) -> u64 {
    match step.rate {
        BitRate::PerSec(rate) => rate.get(),
        BitRate::Unlimited | BitRate::Down => 0,
    }
}
