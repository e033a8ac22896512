// SPDX-License-Identifier: Apache-2.0
//! `linkd-p4switch`: a P4 switch in DPDK's software switch (SWX), with a P4Runtime server.
//!
//! ```text
//!   controllers ── p4server ── target ──(commands)── worker: ports ── pipeline ── ports
//! ```
//!
//! One thread, the [`worker`], owns the pipeline and the [`ports`]. It changes the pipeline between
//! bursts, when no packet is in it. [`target`] translates P4Runtime's names and numbers, by the
//! [`program`], into those of the pipeline. [`header`] is what ports and pipeline exchange.

pub mod arguments;
pub mod groups;
pub mod header;
pub mod ports;
pub mod program;
pub mod target;
pub mod worker;
