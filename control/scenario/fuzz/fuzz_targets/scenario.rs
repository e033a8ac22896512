// SPDX-License-Identifier: Apache-2.0
//! Hostile scenarios, read and expanded.
#![no_main]

mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::scenario(data));
