// SPDX-License-Identifier: Apache-2.0
//! The dataplane process: ports, workers and the `dataplane.v1` service.
//!
//! | thread | does |
//! |---|---|
//! | control (the first) | the service, statistics, signals; may block and allocate |
//! | worker | [`worker::run::Worker::run`], one per worker, pinned where asked |

pub mod accounts;
pub mod arguments;
pub mod dataplane;
pub mod ports;
pub mod service;
pub mod steering;
pub mod workers;
