// SPDX-License-Identifier: Apache-2.0
//! A baseline's file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log(data));
