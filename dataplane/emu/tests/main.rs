// SPDX-License-Identifier: Apache-2.0
//! The integration tests of this crate, as one program: each file of this folder is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod access;
mod aqm;
mod arbitrary;
mod beam;
mod carrier;
mod chain;
mod copies;
mod cross;
mod envelope;
mod expiry;
mod fuzz_corpus;
mod histograms;
mod hold;
mod invariants;
mod links;
mod mtu;
mod numbered;
mod queue;
mod rate_trace;
mod reorder;
mod rules;
mod seeds;
mod turns;

use arbitrary::cases;
