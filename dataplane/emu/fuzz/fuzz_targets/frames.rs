// SPDX-License-Identifier: Apache-2.0
//! Hostile frames through the classifier and a whole engine.
#![no_main]

mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::frames(data));
