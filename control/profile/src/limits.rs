// SPDX-License-Identifier: Apache-2.0
//! The limits that a profile must keep. All ranges include both ends.

use std::ops::RangeInclusive;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// Of the probability to leave a state that loses: 10⁻⁹ to 1.
pub const MOVE: RangeInclusive<f64> = 1e-9..=1.0;
/// Of the packets that pass before a run that is dropped.
pub const PASS_PACKETS: RangeInclusive<u64> = 0..=1_000_000_000_000;
/// Of the time by which a packet is held back.
pub const REORDER_NS: RangeInclusive<u64> = US..=60 * S;
/// Of the packets of a run that is dropped.
pub const DROP_PACKETS: RangeInclusive<u64> = 1..=1_000_000_000_000;
/// Of a limited rate, in bit/s: 1 kbit/s to 400 Gbit/s.
pub const RATE_BPS: RangeInclusive<u64> = 1_000..=400_000_000_000;
/// Steps of a rate that changes with time.
pub const TRACE_STEPS: RangeInclusive<usize> = 1..=65_536;
/// Of the length of such a step: 1 ms to 1 h.
pub const STEP_NS: RangeInclusive<u64> = MS..=3_600 * S;
/// Of the bytes added to each frame's size.
pub const OVERHEAD_BYTES: RangeInclusive<i32> = -64..=256;
/// One full Ethernet frame with a VLAN tag: the least that a queue must hold.
pub const FRAME_BYTES: u64 = 1_518;
/// Of a queue's limit: one frame to 64 GiB.
pub const QUEUE_BYTES: RangeInclusive<u64> = FRAME_BYTES..=64 << 30;
/// Of the drop probability at RED's upper threshold: 10⁻⁶ to 1.
pub const MARKING: RangeInclusive<f64> = 1e-6..=1.0;
/// Of the weight of RED's newest sample: 10⁻⁶ to 1.
pub const WEIGHT: RangeInclusive<f64> = 1e-6..=1.0;
/// Of RED's mean length of packets, in bytes.
pub const PACKET_BYTES: RangeInclusive<u32> = 34..=10_224;
/// Of the sojourn that CoDel and PIE aim at: 1 µs to 60 s.
pub const TARGET_NS: RangeInclusive<u64> = US..=60 * S;
/// Of CoDel's interval: 1 ms to 60 s.
pub const CODEL_NS: RangeInclusive<u64> = MS..=60 * S;
/// Of the time between PIE's updates: 1 ms to 1 s.
pub const UPDATE_NS: RangeInclusive<u64> = MS..=S;
/// Of PIE's gains, in hertz.
pub const GAIN_HZ: RangeInclusive<f64> = 0.0..=1_000.0;
/// Of the constant delay: 0 to 60 s.
pub const BASE_NS: RangeInclusive<u64> = 0..=60 * S;
/// Of the period of slots: 0 (none) to 1 s.
pub const SLOT_NS: RangeInclusive<u64> = 0..=S;
/// Of the mean interval between episodes: 10 ms to 365 days.
pub const INTERVAL_NS: RangeInclusive<u64> = 10 * MS..=365 * 86_400 * S;
/// Of the mean duration of episodes: 1 µs to 1 h.
pub const DURATION_NS: RangeInclusive<u64> = US..=3_600 * S;
/// Of the factor by which outages are more frequent in a fade.
pub const FADE_FACTOR: RangeInclusive<f64> = 1.0..=1e6;
/// Of the mean interval and the mean duration of fades: 10 ms to 365 days.
pub const FADE_NS: RangeInclusive<u64> = INTERVAL_NS;
/// Of the mean time for which a varying delay holds a value: 1 ms to 1 h. The
/// dataplane draws one at the end of each.
pub const CORRELATION_NS: RangeInclusive<u64> = MS..=3_600 * S;
/// Values of a table of quantiles.
pub const QUANTILES: RangeInclusive<usize> = 2..=1_025;
/// Of the extra delay of an excursion, and of a varying delay: 0 to 60 s.
pub const EXTRA_NS: RangeInclusive<u64> = 0..=60 * S;
/// The least shape of the generalized Pareto distribution (its mean exists below 1).
pub const SHAPE_MIN: f64 = -1.0;
/// The shape must be below this.
pub const SHAPE_BELOW: f64 = 1.0;
/// Outage classes of a pipe, and excursion classes of a pipe.
pub const CLASSES: usize = 8;
/// Characters of a name.
pub const NAME_CHARS: usize = 64;
/// Bytes of a description, of a source, and of each text of a provenance.
pub const TEXT_BYTES: usize = 4_096;
/// Bytes of all texts of a provenance.
pub const PROVENANCE_BYTES: usize = 64 << 10;
/// Entries of each list of a provenance.
pub const ENTRIES: usize = 256;
/// Round trips of a measurement: half a century of them, one each millisecond.
pub const SAMPLES: RangeInclusive<u64> = 0..=1_600_000_000_000;
/// Of the time between round trips of a measurement: 0 (not told) to 365 days.
pub const SPACING_NS: RangeInclusive<u64> = 0..=365 * 86_400 * S;
/// A profile's message has fewer bytes: two full rate traces and all else at its
/// limits.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// Bytes of a profile's TOML: the same, with every rate at its longest, written as
/// "399.999999999 Gbit/s".
pub const FILE_BYTES: usize = 4 << 20;
