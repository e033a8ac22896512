// SPDX-License-Identifier: Apache-2.0
//! The integration tests of this crate, as one program: each file of this folder is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod aqm;
mod beam;
mod copies;
mod envelope;
mod expiry;
mod fuzz_corpus;
mod histograms;
mod invariants;
mod numbered;
mod queue;
mod rate_trace;
mod reorder;
mod rules;
mod seeds;
mod shim;
mod turns;

use proptest::test_runner::Config;

/// `count` cases of a property, where proptest's default is 256. PROPTEST_CASES scales both:
/// `cases(60)` is 960 cases with PROPTEST_CASES=4096.
fn cases(count: u32) -> Config {
    let default = Config::default();
    Config { cases: default.cases.saturating_mul(count).div_ceil(256), ..default }
}
