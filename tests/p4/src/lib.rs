// SPDX-License-Identifier: Apache-2.0
//! The P4 pipeline in a software switch: frames in, frames out.
//!
//! [`bench`] connects a switch to wires with their other ends in the test, and [`control`] is its
//! P4Runtime controller. [`frame`] and [`shim`] are notations for input and expected output; [`chi`]
//! tests random outcomes by the laws in [`law`].
//!
//! [`bed`] is the whole path with hosts and the real programs. The tests are in `tests/`.
// Counts here are far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub mod bed;
pub mod bench;
pub mod chi;
pub mod control;
pub mod frame;
pub mod group;
pub mod law;
pub mod numbered;
pub mod shim;
pub mod target;
