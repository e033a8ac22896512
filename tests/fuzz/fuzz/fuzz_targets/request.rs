// SPDX-License-Identifier: Apache-2.0
//! A request as it comes over the wire.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::request(data));
