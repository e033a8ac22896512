// SPDX-License-Identifier: Apache-2.0
//! A link against its baseline: the same figures of both, side by side, each with a
//! tolerance and a verdict.

mod bursts;
mod compared;
mod comparison;
mod decision;
mod figures;
mod judge;
mod largest;
mod periodic;
mod periods;
mod play;
mod subject;

pub use comparison::{Comparison, Curve, Group, Pair, Plots, Row, Verdict, View, length};
pub use judge::{Settings, against_log, against_profile, distributions};
pub use play::{PlayError, play, play_waiting, regular};
pub use subject::{VerifyError, check_baseline, live_plan, read_log};
