// SPDX-License-Identifier: Apache-2.0
//! The integration tests of this crate, as one program: each file of this folder is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod capture;
mod clients;
mod common;
mod events;
mod exporter;
mod group;
mod history;
mod hostile;
mod jobs;
mod leases;
mod links;
mod machine;
mod member;
mod metrics;
mod monitoring;
mod process;
mod scenarios;
mod security;
mod service;
mod state;
mod switch;
mod together;
mod web;
