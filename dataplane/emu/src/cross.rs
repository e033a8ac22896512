// SPDX-License-Identifier: Apache-2.0
//! Cross traffic: phantom frames that arrive at a pipe's queue beside the real ones, as from other
//! users of the same bottleneck.
//!
//! A phantom frame has a length and no bytes. The queue admits or drops it as a real one and the
//! shaper serves it; then it is discarded. All phantom frames of a pipe have one length.
//! They arrive
//!
//! - *constant*: at equal intervals;
//! - *Poisson*: at exponential intervals;
//! - *on/off*: at equal intervals in periods between which none arrives. The durations of both
//!   have a Pareto distribution: the sum of many such sources is self-similar (W. Willinger,
//!   M. Taqqu, R. Sherman, D. Wilson, "Self-similarity through high-variability", 1997). The rate
//!   in the periods is chosen so that the mean rate is the plan's.
//!
//! The first frame arrives one interval after the start; an on/off process starts in a period of
//! arrivals. The process is a function of time and does not react to drops: it is not a model
//! of other users' TCP. Intervals are integers in units of 2⁻²⁴ ns and carry their fractions.

use crate::rng::{Stage, Stream, StreamKey, generalized_pareto};
use crate::units::{Instant, NANOS_PER_SEC, Nanos};

/// The shortest mean interval between two phantom frames. It bounds the work of catching up.
pub const MIN_GAP: Nanos = Nanos::from_micros(1);
/// The shortest mean duration of a period, for the same reason.
pub const MIN_PERIOD: Nanos = Nanos::from_millis(1);
/// The smallest shape of the durations of periods. At one there is no mean.
pub const MIN_SHAPE: f64 = 1.05;
/// Shortest and longest phantom frame, in bytes.
pub const FRAMES: std::ops::RangeInclusive<u32> = 64..=crate::store::MAX_FRAME;

/// Bits of the fraction of a nanosecond in an interval.
const FRACTION: u32 = 24;

/// When phantom frames arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    #[default]
    Constant,
    Poisson,
    OnOff(OnOff),
}

/// Periods with arrivals and periods without, with durations of Pareto's law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOff {
    /// Mean duration of a period with arrivals.
    pub on: Nanos,
    /// Mean duration of a period without.
    pub off: Nanos,
    /// Exponent of the law, above 1. Up to 2 the variance is infinite.
    pub shape: f64,
}

/// The cross traffic of a pipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossPlan {
    /// Mean rate in bit/s.
    pub rate: u64,
    /// Length of a phantom frame in bytes. The shaper adds its framing.
    pub frame: u32,
    pub arrivals: Arrivals,
}

impl CrossPlan {
    /// Mean interval between frames while they arrive, in units of 2⁻²⁴ ns, rounded.
    fn gap(&self) -> u64 {
        let (on, cycle) = match self.arrivals {
            Arrivals::Constant | Arrivals::Poisson => (1, 1),
            Arrivals::OnOff(p) => (u128::from(p.on.0), u128::from(p.on.0) + u128::from(p.off.0)),
        };
        let work = (u128::from(self.frame) * u128::from(8 * NANOS_PER_SEC)) << FRACTION;
        let rate = (u128::from(self.rate) * cycle).max(1);
        let gap = work.saturating_mul(on).saturating_add(rate / 2) / rate;
        u64::try_from(gap).unwrap_or(u64::MAX)
    }

    /// Mean interval between frames while they arrive.
    #[must_use]
    pub fn interval(&self) -> Nanos {
        Nanos(self.gap() >> FRACTION)
    }

    /// Rate while frames arrive, in bit/s.
    #[must_use]
    pub fn peak(&self) -> u64 {
        match self.arrivals {
            Arrivals::Constant | Arrivals::Poisson => self.rate,
            Arrivals::OnOff(p) => {
                let cycle = u128::from(p.on.0) + u128::from(p.off.0);
                let peak = (u128::from(self.rate) * cycle).div_ceil(u128::from(p.on.0.max(1)));
                u64::try_from(peak).unwrap_or(u64::MAX)
            }
        }
    }
}

/// The arrivals of one pipe's phantom frames.
#[derive(Clone, Debug)]
pub struct Cross {
    plan: CrossPlan,
    /// Of [`CrossPlan::gap`].
    gap: u64,
    next: Instant,
    /// Of the exact instant beyond `next`, in units of 2⁻²⁴ ns.
    fraction: u64,
    stream: Stream,
    /// Rest of the current period at `next`; without periods, endless.
    left: Nanos,
}

impl Cross {
    /// The process of a plan from `at` on.
    #[must_use]
    pub fn new(plan: CrossPlan, key: StreamKey, at: Instant) -> Self {
        // Each law draws from its own stream.
        let class = match plan.arrivals {
            Arrivals::Constant => 0,
            Arrivals::Poisson => 1,
            Arrivals::OnOff(_) => 2,
        };
        let mut stream = Stream::new(key, Stage::Cross, class);
        let left = match plan.arrivals {
            Arrivals::OnOff(p) => pareto(&mut stream, p.on, p.shape),
            _ => Nanos(u64::MAX),
        };
        let mut cross = Self { plan, gap: plan.gap(), next: at, fraction: 0, stream, left };
        cross.advance();
        cross
    }

    #[must_use]
    pub fn plan(&self) -> CrossPlan {
        self.plan
    }

    /// The arrival of the next frame.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// When `frames` more than the next one have arrived, in the mean of a period with arrivals.
    #[must_use]
    pub fn ahead(&self, frames: u32) -> Instant {
        self.next + Nanos((self.gap >> FRACTION).saturating_mul(frames.into()))
    }

    /// The next frame has arrived.
    #[inline]
    pub fn advance(&mut self) {
        let gap = match self.plan.arrivals {
            Arrivals::Poisson => scaled(self.gap, self.stream.exponential_fixed()),
            Arrivals::Constant | Arrivals::OnOff(_) => self.gap,
        };
        let exact = gap.saturating_add(self.fraction);
        self.fraction = exact & ((1 << FRACTION) - 1);
        let mut gap = exact >> FRACTION;
        if let Arrivals::OnOff(p) = self.plan.arrivals {
            // The rest of the interval continues in the next period.
            while gap > self.left.0 && self.next < Instant::MAX {
                gap -= self.left.0;
                self.next = self.next + self.left + pareto(&mut self.stream, p.off, p.shape);
                self.left = pareto(&mut self.stream, p.on, p.shape);
            }
            self.left = Nanos(self.left.0.saturating_sub(gap));
        }
        self.next = self.next + Nanos(gap);
    }
}

/// `gap` × `factor`, which is in units of 2⁻³².
fn scaled(gap: u64, factor: u64) -> u64 {
    u64::try_from((u128::from(gap) * u128::from(factor)) >> 32).unwrap_or(u64::MAX)
}

/// A duration of Pareto's law, at least a nanosecond.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn pareto(stream: &mut Stream, mean: Nanos, shape: f64) -> Nanos {
    // A float-to-integer `as` saturates and takes NaN to zero.
    let least = mean.0 as f64 * (shape - 1.0) / shape;
    let (location, scale) = (Nanos(least as u64), Nanos((least / shape) as u64));
    generalized_pareto(stream.unit(), location, scale, 1.0 / shape).max(Nanos(1))
}

#[cfg(test)]
mod tests;
