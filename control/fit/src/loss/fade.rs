// SPDX-License-Identifier: Apache-2.0
//! A slow regime over the losses: clear times, and fades in which losses are more
//! frequent, from the instants at which runs begin.

use super::Runs;
use crate::mmpp::{BusyTimes, Events, MOST_EVENTS, estimate};

/// Among more runs, fades are not looked for.
pub const MOST_RUNS: usize = MOST_EVENTS;

/// Fades; rates are those of runs of lost probes.
pub type FadeEstimate = BusyTimes;

/// Fades, if the runs determine them.
#[must_use]
pub fn estimate_fade(runs: &Runs) -> Option<FadeEstimate> {
    estimate(&Events { begins_s: &runs.begins_s, stretches_s: &runs.stretches_s })
}
