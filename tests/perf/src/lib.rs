// SPDX-License-Identifier: Apache-2.0
//! The benchmarks: what a packet costs in the dataplane, beside what the driver alone costs, in
//! one run; and what else the issue of line rate asks for.
//!
//! | module | measures |
//! |---|---|
//! | [`cost`] | processor time a packet, by case |
//! | [`rules`] | finding a frame's client, by number of rules |
//! | [`memory`] | memory for each byte held |
//! | [`change`] | the pause that a change of plan makes under load |
//! | [`workers`] | what workers cost each other |
//! | [`lateness`] | lateness in real time beside a bare loop's |
//! | [`testpmd`] | the driver's own forwarder |
//! | [`instructions`] | instructions a packet |
//! | [`budget`] | instructions and memory against their limits |
//! | [`base`] | this commit against another |
//!
//! Method and results: docs/performance.md.
// Counts and nanoseconds here are far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub mod arguments;
pub mod base;
pub mod budget;
pub mod case;
pub mod change;
pub mod contender;
pub mod cost;
pub mod cpu;
pub mod error;
pub mod generator;
pub mod goals;
pub mod handover;
pub mod instructions;
pub mod keeping;
pub mod lateness;
pub mod machine;
pub mod memory;
pub mod meter;
pub mod pace;
pub mod progress;
pub mod report;
pub mod results;
pub mod rules;
pub mod run;
pub mod sizes;
pub mod spread;
pub mod stand;
pub mod suite;
pub mod testpmd;
pub mod tools;
pub mod workers;
