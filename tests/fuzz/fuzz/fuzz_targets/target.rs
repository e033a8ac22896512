// SPDX-License-Identifier: Apache-2.0
//! The target that has the name of the program.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::play(env!("CARGO_BIN_NAME"), data));
