// SPDX-License-Identifier: Apache-2.0
//! The integration tests of this crate, as one program: each file of this folder is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod captures;
mod changes;
mod common;
mod moves;
mod real;
mod stats;
