// SPDX-License-Identifier: Apache-2.0
//! Transfers over real QUIC stacks, for studies that compare congestion controls of QUIC.
//!
//! A server sends objects, and a client requests them over the streams of one connection: for a time
//! ([`client::Work::Bulk`]), or those of a web page ([`page`]). Both report
//! what they have seen as JSON ([`report`]). All stacks get the same settings ([`Settings`]), so that
//! their flows differ by the stack and by its congestion control only.

pub mod client;
pub mod object;
pub mod page;
pub mod report;
pub mod secret;
pub mod server;
pub mod stack;

pub use stack::{Congestion, Settings, StackName};
