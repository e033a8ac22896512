// SPDX-License-Identifier: Apache-2.0
//! The path of a ground station through satellites, from their element sets to a scenario.
//!
//! [`elements`] reads TLE and OMM files. [`Track::follow`] propagates the satellites with SGP4
//! (crate `sgp4`), selects one above the elevation mask, and samples the bent-pipe path from the
//! ground station through the satellite to a gateway. [`Script`] writes the track as a scenario,
//! and [`report`] draws it.
//!
//! Units: time in nanoseconds (instants of UTC since 1970, without leap seconds), distance in
//! metres, angles in degrees. No clock, no thread, no I/O: the same input gives the same bytes.

mod earth;
pub mod elements;
mod horizon;
pub mod report;
mod script;
mod track;

pub use earth::{Instant, Look, SPEED_OF_LIGHT, Site, SiteError};
pub use script::{Script, ScriptError};
pub use track::{Interval, Link, Query, Reconfigure, Sample, Selection, Track, TrackError};
