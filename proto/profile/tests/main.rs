// SPDX-License-Identifier: Apache-2.0
//! Integration tests of this crate as one program: each file of this directory is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod errors;
mod properties;
mod quantities;
mod rate_file;
mod reference;
