// SPDX-License-Identifier: Apache-2.0
//! A file with a rate over time.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::trace(data));
