// SPDX-License-Identifier: Apache-2.0
//! Losses: from runs of lost probes to outages in continuous time.
//!
//! A probe every δ samples an alternating process. After a probe that came back the
//! process is known to be up, so a log is a sequence of independent runs ([`Runs`]),
//! and the likelihood of a run is that of a Markov chain sampled at the probes' own
//! instants ([`chain`]). The estimate is the law of the process that the
//! emulator plays, not the loss of packets.
//!
//! Times are in seconds.

mod boundary;
pub mod chain;
mod estimate;
mod fade;
mod fixed;
mod runs;

pub use boundary::{AtBoundaries, at_boundaries};
pub use estimate::{Isolated, LossOptions, Losses, OutageClass, Rejected, estimate};
pub use fade::{FadeEstimate, MOST_RUNS, estimate_fade};
pub use runs::{Run, Runs};
