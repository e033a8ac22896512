// SPDX-License-Identifier: Apache-2.0
//! Runs of packets that are dropped by count: so many pass, so many are dropped, once or
//! again and again.
//!
//! Not a model of any link but a tool: what a transport does about exactly this loss. There
//! is no chance in it. Packets are counted where they leave the shaper, those that an outage
//! takes included, from the instant at which the plan took effect.

/// Which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRunPlan {
    /// Packets that pass before each run.
    pub pass: u64,
    /// Packets of a run.
    pub drop: u64,
    /// Whether there is one run only.
    pub once: bool,
}

/// The runs of one pipe.
#[derive(Clone, Debug)]
pub struct DropRun {
    plan: DropRunPlan,
    /// Packets since the last run ended, or since the start.
    seen: u64,
}

impl DropRun {
    /// Runs that count from here on.
    #[must_use]
    pub fn new(plan: DropRunPlan) -> Self {
        Self { plan, seen: 0 }
    }

    /// What it was made of.
    #[must_use]
    pub fn plan(&self) -> DropRunPlan {
        self.plan
    }

    /// Whether the next packet is dropped.
    #[inline]
    pub fn drops(&mut self) -> bool {
        let DropRunPlan { pass, drop, once } = self.plan;
        self.seen = self.seen.saturating_add(1);
        let end = pass.saturating_add(drop);
        let dropped = self.seen > pass && self.seen <= end;
        if self.seen >= end && !once {
            self.seen = 0;
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(pass: u64, drop: u64, once: bool) -> Vec<usize> {
        let mut run = DropRun::new(DropRunPlan { pass, drop, once });
        (1..=20).filter(|_| run.drops()).collect()
    }

    #[test]
    fn so_many_pass_and_so_many_are_dropped() {
        assert_eq!(dropped(5, 2, false), [6, 7, 13, 14, 20]);
        assert_eq!(dropped(5, 2, true), [6, 7]);
        assert_eq!(dropped(0, 3, true), [1, 2, 3]);
        assert_eq!(dropped(9, 1, false), [10, 20]);
    }

    #[test]
    fn the_largest_counts_do_no_harm() {
        let mut run = DropRun::new(DropRunPlan { pass: u64::MAX, drop: u64::MAX, once: false });
        assert!((0..1000).all(|_| !run.drops()));
    }
}
