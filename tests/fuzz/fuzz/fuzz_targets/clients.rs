// SPDX-License-Identifier: Apache-2.0
//! A file of clients.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::clients(data));
