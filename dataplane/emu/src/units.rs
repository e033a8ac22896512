// SPDX-License-Identifier: Apache-2.0
//! Units as types: [`Instant`], [`Nanos`], [`BitRate`], [`Probability`], and the
//! [`Direction`] of a frame.
//!
//! All are integers. Additions saturate: a hostile clock or plan gives a late
//! frame, never a wrapped one.

use std::fmt;
use std::ops::{Add, Index, IndexMut, Sub};

pub const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A point on the dataplane's clock: nanoseconds since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Instant {
    /// The start of the dataplane's clock.
    pub const ZERO: Self = Self(0);
    /// Further than any frame is due.
    pub const MAX: Self = Self(u64::MAX);

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Nanos {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn from_micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    #[must_use]
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n * NANOS_PER_SEC)
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, d: Nanos) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl Sub<Nanos> for Instant {
    type Output = Self;
    fn sub(self, d: Nanos) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, d: Self) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / NANOS_PER_SEC, self.0 % NANOS_PER_SEC)
    }
}

/// What the shaper lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitRate {
    Unlimited,
    /// Nothing passes; frames wait in the queue.
    Down,
    /// This many bits per second, at least one.
    PerSec(std::num::NonZeroU64),
}

impl BitRate {
    /// A rate of `bps` bit/s; zero is [`BitRate::Down`].
    #[must_use]
    pub fn bps(bps: u64) -> Self {
        std::num::NonZeroU64::new(bps).map_or(Self::Down, Self::PerSec)
    }
}

/// A probability as a multiple of 2⁻³², so that a draw is one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u64);

impl Probability {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(1 << 32);

    /// The nearest multiple of 2⁻³² to `p`, cut to 0 to 1; NaN is zero.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn new(p: f64) -> Self {
        // A float-to-integer `as` saturates and takes NaN to zero.
        Self(((p.clamp(0.0, 1.0) * 4_294_967_296.0 + 0.5) as u64).min(Self::ONE.0))
    }

    /// As a multiple of 2⁻³².
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The probability that lies `num / den` of the way from `self` to `other`.
    /// `num` above `den` counts as `den`, and a `den` of zero as all of the way.
    #[must_use]
    pub fn toward(self, other: Self, num: u64, den: u64) -> Self {
        if num >= den {
            return other;
        }
        let (a, b) = (i128::from(self.0), i128::from(other.0));
        let p = a + (b - a) * i128::from(num) / i128::from(den);
        Self(u64::try_from(p).unwrap_or(0))
    }
}

/// A way through the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    Forward,
    /// From the client.
    Return,
}

impl Direction {
    /// Both, forward first.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Return];

    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Return,
            Self::Return => Self::Forward,
        }
    }
}

/// One `T` for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByDirection<T>(pub [T; 2]);

impl<T> Index<Direction> for ByDirection<T> {
    type Output = T;
    fn index(&self, d: Direction) -> &T {
        &self.0[d as usize]
    }
}

impl<T> IndexMut<Direction> for ByDirection<T> {
    fn index_mut(&mut self, d: Direction) -> &mut T {
        &mut self.0[d as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probability_keeps_value_and_ends() {
        assert_eq!(Probability::new(0.0), Probability::ZERO);
        assert_eq!(Probability::new(1.0), Probability::ONE);
        assert_eq!(Probability::new(f64::NAN), Probability::ZERO);
        assert_eq!(Probability::new(0.5).raw(), 1 << 31);
        let (a, b) = (Probability::new(0.2), Probability::new(0.1));
        assert!(a.toward(b, 1, 2).raw().abs_diff(Probability::new(0.15).raw()) <= 1);
        assert_eq!(a.toward(b, 9, 2), b);
    }

    #[test]
    fn time_saturates() {
        assert_eq!(Instant::MAX + Nanos(1), Instant::MAX);
        assert_eq!(Instant(3).since(Instant(5)), Nanos::ZERO);
    }
}
