// SPDX-License-Identifier: Apache-2.0
//! The limits that a scenario must keep. All ranges include both ends.

use std::ops::RangeInclusive;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Steps, with all repetitions; of one without end, up to the end of its first pass.
pub const STEPS: u64 = 100_000;
/// From the first instant to the last: 366 days.
pub const LENGTH_NS: u64 = 366 * 86_400 * S;
/// Repetitions within repetitions.
pub const NESTING: usize = 4;
/// Shortest pass of an endless repetition.
pub const PASS_NS: u64 = 100 * MS;
/// Time between two values of a ramp: 1 ms to 1 h.
pub const EVERY_NS: RangeInclusive<u64> = MS..=3_600 * S;
/// Timeout of a wait: 1 ms to 7 days.
pub const TIMEOUT_NS: RangeInclusive<u64> = MS..=7 * 86_400 * S;
/// Characters of a label.
pub const LABEL_CHARS: usize = 64;
/// Bytes of a scenario's TOML.
pub const FILE_BYTES: usize = 256 << 10;
/// Other links that a scenario can change.
pub const LINKS: usize = 63;
/// Longest name of a link.
pub const LINK_CHARS: usize = 16;
