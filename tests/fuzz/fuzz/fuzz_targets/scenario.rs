// SPDX-License-Identifier: Apache-2.0
//! A scenario's file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::scenario(data));
