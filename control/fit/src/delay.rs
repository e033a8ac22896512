// SPDX-License-Identifier: Apache-2.0
//! Round trips: a base, a body, and excursions in episodes.
//!
//! The law is the emulator's own: every stage is a function of time, so that how
//! often, for how long and how far the delay is raised are three figures and not one.
//! [`law`] has its distribution in closed form, [`moments`] what a log says about it
//! with its errors, and [`estimate`] finds the law of a log; [`published`] that of a
//! study's curve. [`largest`] has the law of a span's largest round trip.
//!
//! Times are in seconds.

mod assemble;
pub mod body;
pub mod estimate;
pub mod largest;
pub mod law;
pub mod moments;
pub mod published;
pub mod regime;
mod sampling;
mod search;
pub mod stated;
