// SPDX-License-Identifier: Apache-2.0
//! From a measured baseline to a profile, and the proof that the profile reproduces
//! it. See docs/modelling.md.

pub mod baseline;
pub mod delay;
pub mod digits;
pub mod emulator;
pub mod fitted;
pub mod goodness;
pub mod loss;
pub mod numeric;
pub mod read;
pub mod report;
pub mod verify;

/// Nanoseconds in seconds.
pub(crate) const fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
