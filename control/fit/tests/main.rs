// SPDX-License-Identifier: Apache-2.0
//! The integration tests of this crate, as one program: each file of this folder is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod bad_day;
mod closed_form;
mod common;
mod little;
mod losses;
mod maxima;
mod periods;
mod real;
mod regimes;
mod truth;
mod verify;
mod viasat2;
mod waiting;
mod work;
