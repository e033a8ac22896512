// SPDX-License-Identifier: Apache-2.0
//! The limits that a profile must keep. All ranges include both ends.

use std::ops::RangeInclusive;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// Of a limited rate, in bit/s: 1 kbit/s to 400 Gbit/s.
pub const RATE_BPS: RangeInclusive<u64> = 1_000..=400_000_000_000;
/// Of the bytes added to each frame's size.
pub const OVERHEAD_BYTES: RangeInclusive<i32> = -64..=256;
/// One full Ethernet frame with a VLAN tag: the least that a queue must hold.
pub const FRAME_BYTES: u64 = 1_518;
/// Of a queue's limit: one frame to 64 GiB.
pub const QUEUE_BYTES: RangeInclusive<u64> = FRAME_BYTES..=64 << 30;
/// Of the constant delay: 0 to 60 s.
pub const BASE_NS: RangeInclusive<u64> = 0..=60 * S;
/// Of the period of slots: 0 (none) to 1 s.
pub const SLOT_NS: RangeInclusive<u64> = 0..=S;
/// Of the mean interval between episodes: 10 ms to 365 days.
pub const INTERVAL_NS: RangeInclusive<u64> = 10 * MS..=365 * 86_400 * S;
/// Of the mean duration of episodes: 1 µs to 1 h.
pub const DURATION_NS: RangeInclusive<u64> = US..=3_600 * S;
/// Of the extra delay of an excursion: 0 to 60 s.
pub const EXTRA_NS: RangeInclusive<u64> = 0..=60 * S;
/// The least shape of the generalized Pareto distribution (its mean exists below 1).
pub const SHAPE_MIN: f64 = -1.0;
/// The shape must be below this.
pub const SHAPE_BELOW: f64 = 1.0;
/// Outage classes of a pipe, and excursion classes of a pipe.
pub const CLASSES: usize = 8;
/// Characters of a name.
pub const NAME_CHARS: usize = 64;
/// Bytes of a description, and of a source.
pub const TEXT_BYTES: usize = 4_096;
/// Bytes of a profile's TOML.
pub const FILE_BYTES: usize = 1 << 20;
