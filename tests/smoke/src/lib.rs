// SPDX-License-Identifier: Apache-2.0
//! A test bed of real Linux hosts around the emulator: network namespaces joined by veth pairs,
//! kernel TCP, ping, iperf3 and the programs under test, all run through their command lines.
//!
//! A bed owns everything that it makes and removes it when it is dropped ([`testbed`]), also when a
//! signal ends the run ([`estate`]). It waits on conditions with deadlines ([`wait`]). Measurements
//! are made outside the emulator ([`ping`], [`iperf`], [`udp`], [`capture`], [`netstat`]);
//! [`stats`] reads the statistics of the emulator.
//!
//! The smoke suite is in `tests/`, the demonstration in `src/bin/demo.rs`.
// Counts and sizes here are far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub use proto::linkemu::v1 as pb;

pub mod backlog;
pub mod binaries;
pub mod capture;
pub mod cpus;
pub mod directory;
pub mod error;
pub mod estate;
pub mod iperf;
pub mod linkctl;
pub mod namespace;
pub mod netstat;
pub mod ping;
pub mod process;
pub mod raw;
pub mod report;
pub mod series;
pub mod starvation;
pub mod stats;
pub mod still;
pub mod suite;
pub mod testbed;
pub mod udp;
pub mod wait;
pub mod wire;
