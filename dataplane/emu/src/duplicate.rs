// SPDX-License-Identifier: Apache-2.0
//! Duplication: an arriving packet becomes two with independent fates.
//!
//! `duplicate` of `tc-netem` (`net/sched/sch_netem.c`): each packet with the same
//! probability, before the queue. A copy is not duplicated again.

use crate::rng::{Stage, Stream, StreamKey};
use crate::units::Probability;

/// The duplication of one pipe.
#[derive(Clone, Debug)]
pub struct Duplicate {
    probability: Probability,
    stream: Stream,
}

impl Duplicate {
    /// None if the probability is zero. An existing one continues with its stream.
    #[must_use]
    pub fn new(probability: Probability, key: StreamKey, before: Option<Self>) -> Option<Self> {
        if probability == Probability::ZERO {
            return None;
        }
        let stream =
            before.map_or_else(|| Stream::new(key, Stage::Duplicate, 0), |before| before.stream);
        Some(Self { probability, stream })
    }

    /// Whether the next packet is duplicated.
    #[inline]
    pub fn doubles(&mut self) -> bool {
        self.stream.chance(self.probability)
    }
}
