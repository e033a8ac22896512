// SPDX-License-Identifier: Apache-2.0
//! The dataplane process: ports, workers and the `dataplane.v1` service.
//!
//! | thread | does |
//! |---|---|
//! | control (the first) | the service, statistics, signals; may block and allocate |
//! | worker | [`worker::run::Worker::run`], one per worker, pinned to its core |

pub mod accounts;
pub mod arguments;
pub mod choices;
pub mod dataplane;
pub mod host;
pub mod links;
pub mod links_of_scenario;
pub mod memory;
pub mod names;
pub mod occupied;
pub mod pairs;
pub mod polling;
pub mod ports;
pub mod priority;
pub mod pulse;
mod refusal;
pub mod service;
mod sharing;
pub mod steering;
pub mod switch;
pub mod timekeeping;
pub mod watch;
pub mod workers;
