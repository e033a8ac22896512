// SPDX-License-Identifier: Apache-2.0
//! Repeats published measurements on the emulator, with the hosts, tools and definitions of their
//! authors, and compares the figures.
//!
//! A [`study`] describes hosts, link, experiments and published figures. [`campaign`] runs its
//! flows one after another on a [`bed`], and [`store`] keeps one file per flow, so that a run can be
//! resumed. [`packets`] reads the sender's capture, [`metrics`] computes what the
//! authors computed. [`verdict`] compares, [`report`] writes.
// Counts and sizes here are far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub mod bed;
pub mod campaign;
pub mod figure;
pub mod grid;
pub mod iperf;
pub mod link;
pub mod machine;
pub mod metrics;
pub mod packets;
pub mod quic;
pub mod report;
pub mod server;
pub mod statistics;
pub mod store;
pub mod study;
pub mod transfers;
pub mod verdict;
