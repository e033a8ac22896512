// SPDX-License-Identifier: Apache-2.0
//! A profile's file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::profile(data));
