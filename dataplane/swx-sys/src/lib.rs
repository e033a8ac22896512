// SPDX-License-Identifier: Apache-2.0
//! Raw bindings to DPDK's software switch (SWX): librte_pipeline and its tables. Use the `swx`
//! crate instead.
#![allow(unsafe_code, reason = "this crate is the foreign-function interface")]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, reason = "C names")]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, reason = "generated code")]

// Links the libraries that these need.
use dpdk_sys as _;

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
