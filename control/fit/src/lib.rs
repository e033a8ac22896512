// SPDX-License-Identifier: Apache-2.0
//! Fits a profile to a measured baseline, and verifies that a link behaves like a baseline. See
//! docs/modelling.md.
//!
//! [`read::read`] reads a baseline, [`fitted::fit`] estimates a profile from it, and
//! [`verify::against_profile`] plays a profile in virtual time and compares both. The crate `probe`
//! measures a baseline; [`verify::live_plan`], [`verify::read_log`] and [`verify::against_log`] compare
//! a live link. [`work::observe`] shows the progress of either to another thread, and cancels it.
//!
//! ```
//! use fit::fitted::{Options, fit};
//! use fit::read;
//! use fit::verify::{Settings, against_profile};
//!
//! // Published figures; a log of probes is read likewise.
//! let baseline = read::read("baselines/viasat2.toml".as_ref(), &read::Options::default())?;
//! let fitted = fit(&baseline, &Options::new("mine"))?;
//! println!("{}", fitted.profile.to_toml());
//! let comparison = against_profile(&baseline, &fitted.profile, &Settings::default())?;
//! assert!(comparison.holds());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod baseline;
pub mod delay;
pub mod digits;
pub mod emulator;
pub mod fitted;
pub mod goodness;
pub mod interval;
pub mod loss;
pub mod mmpp;
pub mod numeric;
pub mod period;
pub mod read;
pub mod report;
mod splitmix;
pub mod traffic;
pub mod verify;
pub mod work;

/// Nanoseconds in seconds.
pub(crate) const fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
