// SPDX-License-Identifier: Apache-2.0
//! Safe ownership of a pipeline of DPDK's software switch (SWX).
//!
//! [`Pipeline`] is built from a specification as p4c's DPDK back end writes it, and interpreted.
//! One thread owns it: it runs the pipeline, and changes tables and reads registers between runs.
//! [`Wire`] is the source and the destination of all packets.
//!
//! Reference: `rte_swx_pipeline.h` and `rte_swx_ctl.h`, DPDK 22.11 to 25.11 (experimental API).
#![allow(unsafe_code, reason = "the safe wrapper over the foreign-function interface")]

mod compact;
mod error;
mod pipeline;
mod spec;
mod table;
mod wire;

pub use error::Error;
pub use pipeline::Pipeline;
pub use table::{Action, Argument, Entry, Field, Key, Match, Table};
pub use wire::Wire;
