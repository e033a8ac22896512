// SPDX-License-Identifier: Apache-2.0
//! Histograms of one client and direction: each counter is for twice the time of the one
//! before.
//!
//! Units: nanoseconds. They only ever grow: what happened between two looks is a difference.
//! A value costs two additions, in one line of the cache or two.

use crate::units::Nanos;

/// Counts of durations. The first of the `N` buckets has those up to and including 2^`FIRST` ns,
/// each further one those up to twice as long, and the last all that are longer still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Histogram<const FIRST: u32, const N: usize> {
    /// Before the counts, in the line of the lowest ones.
    sum: u64,
    counts: [u64; N],
}

/// Bounds of the time in the queue: 262 µs, 524 µs, … 4.3 s, longer.
pub type QueueDelay = Histogram<18, 16>;
/// Bounds of lateness: 1 µs, 2 µs, … 17.2 s, longer.
pub type Lateness = Histogram<10, 26>;

impl<const FIRST: u32, const N: usize> Default for Histogram<FIRST, N> {
    fn default() -> Self {
        Self { sum: 0, counts: [0; N] }
    }
}

impl<const FIRST: u32, const N: usize> Histogram<FIRST, N> {
    /// The upper bound of the first bucket.
    pub const FIRST_BOUND: Nanos = Nanos(1 << FIRST);
    /// The buckets that have an upper bound: all but the last.
    pub const BOUNDS: usize = N - 1;

    #[inline]
    pub fn count(&mut self, value: Nanos) {
        let above = value.0.saturating_sub(1) >> FIRST;
        let bucket = (u64::BITS - above.leading_zeros()) as usize;
        self.counts[bucket.min(Self::BOUNDS)] += 1;
        self.sum = self.sum.wrapping_add(value.0);
    }

    /// By bucket.
    #[must_use]
    pub fn counts(&self) -> &[u64; N] {
        &self.counts
    }

    /// The sum of all that was counted.
    #[must_use]
    pub fn sum(&self) -> Nanos {
        Nanos(self.sum)
    }

    /// The sum of two histograms.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (a, b) in self.counts.iter_mut().zip(other.counts) {
            *a += b;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_belongs_to_its_bucket() {
        let first = Lateness::FIRST_BOUND.0;
        let bucket = |ns| {
            let mut h = Lateness::default();
            h.count(Nanos(ns));
            assert_eq!(h.sum(), Nanos(ns));
            h.counts().iter().position(|n| *n == 1).unwrap()
        };
        assert_eq!((bucket(0), bucket(1), bucket(first)), (0, 0, 0));
        for b in 1..Lateness::BOUNDS {
            let bound = first << b;
            assert_eq!((bucket(bound / 2 + 1), bucket(bound), bucket(bound + 1)), (b, b, b + 1));
        }
        assert_eq!(bucket(u64::MAX), Lateness::BOUNDS);
        // A stall of seconds is not hidden in the last bin.
        assert!(bucket(10_000_000_000) < Lateness::BOUNDS);
    }

    #[test]
    fn sums_are_those_of_the_parts() {
        let mut parts = [QueueDelay::default(); 2];
        let mut whole = QueueDelay::default();
        for ns in [0, 300_000, 1 << 40, 5] {
            parts[(ns % 2) as usize].count(Nanos(ns));
            whole.count(Nanos(ns));
        }
        assert_eq!(parts[0].plus(&parts[1]), whole);
    }
}
