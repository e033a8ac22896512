// SPDX-License-Identifier: Apache-2.0
//! The integration tests of this crate, as one program: each file of this folder is a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod appliance;
mod baseline_lab;
mod box_machine;
mod capture;
mod certificate;
mod clients;
mod command;
mod doctor;
mod envelope;
mod fit;
mod fit_hostile;
mod fit_size;
mod lab;
mod orbit;
mod pages;
mod probe;
mod scenario;
mod security;
mod shared;
mod switch;
mod together;
mod top;
mod verify;
