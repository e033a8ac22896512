// SPDX-License-Identifier: Apache-2.0
//! Histograms of one client and direction: each counter is for twice the time of the one
//! before.
//!
//! Units: nanoseconds. They only ever grow: what happened between two looks is a difference.
//! A value that is counted in a [`Tally`] costs two additions, in one line of the cache if it is short.

use crate::units::Nanos;

/// Counts of durations. The first of the `N` buckets has those up to and including 2^`FIRST` ns,
/// each further one those up to twice as long, and the last all that are longer still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const FIRST: u32, const N: usize> {
    sum: u64,
    counts: [u64; N],
}

/// Bounds of the time in the queue: 262 µs, 524 µs, … 4.3 s, longer.
pub type QueueDelay = Histogram<18, 16>;
/// Bounds of lateness: 1 µs, 2 µs, … 17.2 s, longer.
pub type Lateness = Histogram<10, 26>;

/// Counts the time in the queue.
pub type QueueDelayTally = Tally<18, 16>;
/// Counts lateness.
pub type LatenessTally = Tally<10, 26>;

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

    /// How many durations were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// A histogram that is being counted, in few lines of the cache: the low halves of the counts lie next to
/// the sum. A count has 48 bits: 200 days of the smallest frames at 10 Gbit/s.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tally<const FIRST: u32, const N: usize> {
    sum: u64,
    low: [u32; N],
    high: [u16; N],
}

impl<const FIRST: u32, const N: usize> Default for Tally<FIRST, N> {
    fn default() -> Self {
        Self { sum: 0, low: [0; N], high: [0; N] }
    }
}

impl<const FIRST: u32, const N: usize> Tally<FIRST, N> {
    #[inline]
    pub fn count(&mut self, value: Nanos) {
        // Zero up to the first bound, and one more for each doubling.
        let bucket = ((value.0.saturating_sub(1) >> (FIRST - 1)) | 1).ilog2() as usize;
        let bucket = bucket.min(N - 1);
        self.sum = self.sum.wrapping_add(value.0);
        let low = &mut self.low[bucket];
        *low = low.wrapping_add(1);
        if *low == 0 {
            self.high[bucket] = self.high[bucket].wrapping_add(1);
        }
    }

    /// What has been counted.
    #[must_use]
    pub fn histogram(&self) -> Histogram<FIRST, N> {
        let count =
            |bucket: usize| u64::from(self.high[bucket]) << u32::BITS | u64::from(self.low[bucket]);
        Histogram { sum: self.sum, counts: std::array::from_fn(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_belongs_to_its_bucket() {
        let first = Lateness::FIRST_BOUND.0;
        let bucket = |ns| {
            let mut tally = LatenessTally::default();
            tally.count(Nanos(ns));
            let h = tally.histogram();
            assert_eq!((h.sum(), h.total()), (Nanos(ns), 1));
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
    fn count_above_32_bits_is_exact() {
        let mut tally = QueueDelayTally { low: [u32::MAX; 16], ..QueueDelayTally::default() };
        for _ in 0..2 {
            tally.count(Nanos(1));
        }
        let counts = *tally.histogram().counts();
        assert_eq!((counts[0], counts[1]), ((1 << 32) + 1, u64::from(u32::MAX)));
    }

    #[test]
    fn sums_are_those_of_the_parts() {
        let mut parts = [QueueDelayTally::default(); 2];
        let mut whole = QueueDelayTally::default();
        for ns in [0, 300_000, 1 << 40, 5] {
            parts[(ns % 2) as usize].count(Nanos(ns));
            whole.count(Nanos(ns));
        }
        let [a, b] = parts.map(|part| part.histogram());
        assert_eq!(a.plus(&b), whole.histogram());
    }
}
