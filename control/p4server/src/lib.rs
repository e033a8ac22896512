// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime server for one switch with one program.
//!
//! It elects a primary controller, keeps the program's entries, multicast groups and digest
//! configuration, checks all writes, and answers reads, like PI (the P4Runtime server of bmv2).
//! Packets are the business of a [`Target`]: `linkd-p4switch` executes the program, and the switch of
//! the tests, [`fake`], has no ports. [`Faults`] make a server misbehave, for tests of controllers.
//!
//! Writes of the primary are accepted by the connection of its stream alone: its election id is no secret,
//! since the server tells it to every other controller.
//!
//! Supported are the messages of the subset in `p4runtime` (docs/adr/0032): table entries without
//! direct resources, counters, multicast groups, digests. Everything else is refused.

mod connection;
mod device;
mod encrypted;
mod fair;
mod fake;
mod service;
mod target;

pub use connection::Listener;
pub use device::{Device, Faults, Wrong};
pub use encrypted::Keys;
pub use fake::Fake;
pub use service::Server;
pub use target::Target;
