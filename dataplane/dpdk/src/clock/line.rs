// SPDX-License-Identifier: Apache-2.0
//! The line that converts ticks to nanoseconds, and how threads read it.
//!
//! A line has a bend a little ahead of the present. Up to the bend it has the slope of the previous
//! line, and both lines agree, so a reader that sees the new line early or late sees no step. One
//! thread publishes and any number read. A reader takes no lock and writes nothing; it retries only
//! if two lines were published during its reading. Reference: H.-J. Boehm, "Can seqlocks get along
//! with programming language memory models?", MSPC 2012.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Fraction bits of a slope, ns per tick.
pub(super) const SHIFT: u32 = 48;

/// Nanoseconds as a function of ticks: slope `before` up to the bend at (`bend`, `ns`), then
/// `after`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub bend: u64,
    pub ns: u64,
    pub before: u64,
    pub after: u64,
    /// Lower bound of the time for every counter value, ns.
    pub least: u64,
}

impl Line {
    /// Time at `ticks`, ns.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> u64 {
        // 64 by 64 bits fits 128; the quotient fits 64 for 584 years.
        let times = |n: u64, slope: u64| ((u128::from(n) * u128::from(slope)) >> SHIFT) as u64;
        if ticks >= self.bend {
            self.ns + times(ticks - self.bend, self.after)
        } else {
            self.ns.saturating_sub(times(self.bend - ticks, self.before)).max(self.least)
        }
    }
}

const FIELDS: usize = 5;

/// A line that one thread publishes and others read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Published {
    /// Number of published lines. The last one is in slot `version % 2`.
    version: AtomicU64,
    slots: [[AtomicU64; FIELDS]; 2],
}

impl Published {
    pub(super) fn new(line: Line) -> Self {
        let published = Self::default();
        published.publish(line);
        published
    }

    /// Publishes a line. Only one thread may call this.
    pub(super) fn publish(&self, line: Line) {
        let version = self.version.load(Ordering::Relaxed) + 1;
        // A reader that sees one of these values sees that the previous version is outdated.
        fence(Ordering::Release);
        let Line { bend, ns, before, after, least } = line;
        let slot = &self.slots[(version % 2) as usize];
        for (field, value) in slot.iter().zip([bend, ns, before, after, least]) {
            field.store(value, Ordering::Relaxed);
        }
        self.version.store(version, Ordering::Release);
    }

    #[inline]
    pub(super) fn read(&self) -> Line {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let slot = &self.slots[(version % 2) as usize];
            let [bend, ns, before, after, least] =
                slot.each_ref().map(|field| field.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            // The slot is rewritten only for the version after the next.
            if self.version.load(Ordering::Relaxed) == version {
                return Line { bend, ns, before, after, least };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::thread;

    #[test]
    fn line_does_not_overflow_in_a_century() {
        let century = 100 * 365 * 24 * 3600 * 1_000_000_000_u64;
        let line = Line { after: (1 << SHIFT) / 4, ..Line::default() }; // a counter of 4 GHz
        assert_eq!(line.at(century * 4), century);
    }

    #[test]
    fn reader_never_sees_parts_of_two_lines() {
        let of = |n| Line { bend: n, ns: n, before: n, after: n, least: n };
        let published = Published::new(of(0));
        thread::scope(|s| {
            s.spawn(|| (1..100_000).for_each(|n| published.publish(of(n))));
            let mut last = 0;
            while last < 99_999 {
                let line = published.read();
                assert_eq!(line, of(line.bend));
                assert!(line.bend >= last);
                last = line.bend;
            }
        });
    }
}
