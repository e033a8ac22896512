// SPDX-License-Identifier: Apache-2.0
//! The P4 pipeline in a software switch: frames in, frames out.
//!
//! [`bench`] puts a switch between wires whose other ends the test holds, and [`control`]
//! speaks P4Runtime with it. [`frame`] and [`shim`] say in few words what goes in and what is to
//! come out; [`chi`] judges what is drawn at random, by the laws in [`law`].
//!
//! [`bed`] is the whole path with hosts and the real programs. The tests are in `tests/`.
// Counts here are far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub mod bed;
pub mod bench;
pub mod bmv2;
pub mod chi;
pub mod control;
pub mod frame;
pub mod law;
pub mod numbered;
pub mod shim;
