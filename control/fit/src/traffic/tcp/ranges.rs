// SPDX-License-Identifier: Apache-2.0
//! A set of segment numbers as disjoint ranges, for the receiver's out-of-order queue and for what
//! the sender knows of it.

use std::ops::Range;

/// Ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, Default)]
pub struct Ranges(Vec<Range<u32>>);

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The range that contains `n`.
    pub fn containing(&self, n: u32) -> Option<Range<u32>> {
        let i = self.0.partition_point(|r| r.end <= n);
        self.0.get(i).filter(|r| r.start <= n).cloned()
    }

    /// Adds a range, and calls `missing` for each part of it that was not in the set.
    pub fn insert(&mut self, range: Range<u32>, mut missing: impl FnMut(Range<u32>)) {
        if range.is_empty() {
            return;
        }
        // All that overlap or touch.
        let from = self.0.partition_point(|r| r.end < range.start);
        let mut to = from;
        let mut at = range.start;
        while let Some(r) = self.0.get(to).filter(|r| r.start <= range.end) {
            if at < r.start {
                missing(at..r.start);
            }
            at = at.max(r.end);
            to += 1;
        }
        if at < range.end {
            missing(at..range.end);
        }
        if from == to {
            self.0.insert(from, range);
            return;
        }
        let merged = self.0[from].start.min(range.start)..self.0[to - 1].end.max(range.end);
        self.0[from] = merged;
        self.0.drain(from + 1..to);
    }

    /// Removes all below `n`. Returns the end of the range that begins at `n` or contains it, which
    /// is removed too; else `n`.
    pub fn advance(&mut self, n: u32) -> u32 {
        let below = self.0.partition_point(|r| r.end <= n);
        let reached = match self.0.get(below) {
            Some(r) if r.start <= n => (below + 1, r.end),
            _ => (below, n),
        };
        self.0.drain(..reached.0);
        reached.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_agree_with_a_set(inserts in prop::collection::vec((0_u32..60, 0_u32..9), 0..40)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (start, len) in inserts {
                let mut missing = Vec::new();
                ranges.insert(start..start + len, |r| missing.extend(r));
                let expected: Vec<u32> =
                    (start..start + len).filter(|n| set.insert(*n)).collect();
                prop_assert_eq!(missing, expected);
                for n in 0..70 {
                    prop_assert_eq!(ranges.containing(n).is_some(), set.contains(&n));
                }
                prop_assert!(ranges.0.windows(2).all(|w| w[0].end < w[1].start));
            }
            let end = (30..).find(|n| !set.contains(n)).unwrap();
            prop_assert_eq!(ranges.advance(30), end);
            prop_assert!((0..end).all(|n| ranges.containing(n).is_none()));
        }
    }
}
