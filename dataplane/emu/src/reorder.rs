// SPDX-License-Identifier: Apache-2.0
//! Reordering: a packet is held back, and those that come in the meantime overtake it.
//!
//! Each packet that comes through the channel with the same probability, by the same time
//! beyond the delay that it would have had. A packet of which `n` others come within that
//! time is then late by up to `n` places: RFC 4737's *n*-reordering. Those that are held back
//! do not overtake one another.
//!
//! Differs from `reorder` of `tc-netem` (`net/sched/sch_netem.c`), which sends the chosen
//! packets at once, ahead of all that is in its delay line: there one packet that is chosen
//! makes a whole line late, by the count of RFC 4737.

use crate::rng::{Stage, Stream, StreamKey};
use crate::units::{Nanos, Probability};

/// Which packets are held back, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReorderPlan {
    /// Probability for each packet.
    pub probability: Probability,
    pub by: Nanos,
}

/// The reordering of one pipe.
#[derive(Clone, Debug)]
pub struct Reorder {
    plan: ReorderPlan,
    stream: Stream,
}

impl Reorder {
    /// None without a plan. An existing one continues with its stream.
    #[must_use]
    pub fn new(plan: Option<ReorderPlan>, key: StreamKey, before: Option<Self>) -> Option<Self> {
        let plan = plan?;
        let stream =
            before.map_or_else(|| Stream::new(key, Stage::Reorder, 0), |before| before.stream);
        Some(Self { plan, stream })
    }

    /// By how much the next packet is held back, if it is.
    #[inline]
    pub fn holds_back(&mut self) -> Option<Nanos> {
        self.stream.chance(self.plan.probability).then_some(self.plan.by)
    }
}
