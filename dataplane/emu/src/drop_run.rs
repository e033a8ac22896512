// SPDX-License-Identifier: Apache-2.0
//! Runs of packets that are dropped by count: a number pass, a number are dropped, once or
//! repeatedly.
//!
//! Not a model of a link but a tool to study how a transport reacts to exactly this loss. There
//! is no randomness. Packets are counted where they leave the shaper, those that an outage
//! takes included, from the instant at which the plan took effect. A plan with the same runs as
//! the one before continues the count, and a run with `once` stays over, unless the plan
//! arms it.

/// Which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRunPlan {
    /// Packets that pass before each run.
    pub pass: u64,
    /// Packets of a run.
    pub drop: u64,
    /// Whether there is one run only.
    pub once: bool,
    /// Whether it restarts although it equals the current one.
    pub arm: bool,
}

#[derive(Clone, Debug)]
pub struct DropRun {
    plan: DropRunPlan,
    /// Packets since the last run ended, or since the start.
    seen: u64,
}

impl DropRun {
    /// Starts to count now.
    #[must_use]
    pub fn new(plan: DropRunPlan) -> Self {
        Self { plan, seen: 0 }
    }

    /// The runs of the next plan.
    #[must_use]
    pub fn replanned(before: Option<Self>, plan: Option<DropRunPlan>) -> Option<Self> {
        let plan = plan?;
        let armed = |plan| DropRunPlan { arm: true, ..plan };
        let goes_on = |run: &Self| !plan.arm && armed(run.plan) == armed(plan);
        before.filter(goes_on).or_else(|| Some(Self::new(plan)))
    }

    /// Whether the next packet is dropped.
    #[inline]
    pub fn drops(&mut self) -> bool {
        let DropRunPlan { pass, drop, once, .. } = self.plan;
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
        let mut run = DropRun::new(DropRunPlan { pass, drop, once, arm: false });
        (1..=20).filter(|_| run.drops()).collect()
    }

    #[test]
    fn run_passes_and_drops_stated_numbers() {
        assert_eq!(dropped(5, 2, false), [6, 7, 13, 14, 20]);
        assert_eq!(dropped(5, 2, true), [6, 7]);
        assert_eq!(dropped(0, 3, true), [1, 2, 3]);
        assert_eq!(dropped(9, 1, false), [10, 20]);
    }

    #[test]
    fn largest_counts_do_not_overflow() {
        let (pass, drop) = (u64::MAX, u64::MAX);
        let mut run = DropRun::new(DropRunPlan { pass, drop, once: false, arm: false });
        assert!((0..1000).all(|_| !run.drops()));
    }

    #[test]
    fn same_plan_continues_run_unless_armed() {
        let plan = DropRunPlan { pass: 2, drop: 1, once: true, arm: false };
        let armed = DropRunPlan { arm: true, ..plan };
        let mut run = Some(DropRun::new(armed));
        let mut dropped = |next: Option<DropRunPlan>| {
            run = DropRun::replanned(run.take(), next);
            (1..=5).filter(|_| run.as_mut().is_some_and(DropRun::drops)).collect::<Vec<_>>()
        };
        assert_eq!(dropped(Some(plan)), [3]);
        assert_eq!(dropped(Some(plan)), [0; 0], "it was for once");
        assert_eq!(dropped(Some(armed)), [3]);
        assert_eq!(dropped(Some(armed)), [3], "and again");
        assert_eq!(dropped(Some(DropRunPlan { pass: 3, ..plan })), [4], "it is another one");
        assert_eq!(dropped(None), [0; 0]);
        assert_eq!(dropped(Some(plan)), [3], "it was gone in between");
    }
}
