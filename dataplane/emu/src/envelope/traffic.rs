// SPDX-License-Identifier: Apache-2.0
//! The envelope as a table has it: how long traffic of stated frames can be held.
//!
//! Rates here are those of an Ethernet wire, on which a frame takes 24 bytes more than it
//! has (IEEE 802.3: preamble and start of frame 8, FCS 4, gap 12): 10 Gbit/s of frames of
//! 64 bytes with FCS are 14.88 million a second. Worst-case traffic is that of a virtual
//! wire, which has none of these and does not pad.

use crate::plan::Room;
use crate::units::{NANOS_PER_SEC, Nanos};

use super::{packing, pipes};

/// Bytes of wire that a frame takes beside its own, FCS included.
pub const WIRE_OVERHEAD: u32 = 24;
const FCS: u32 = 4;
/// The simple Internet mix: 7 frames of 64 bytes, 4 of 594 and 1 of 1518, with FCS.
pub const IMIX: [(u32, u32); 3] = [(7, 64), (4, 594), (1, 1_518)];

/// The mix of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic<'a> {
    /// All of this length, FCS included.
    Frames(u32),
    /// So many of each length, FCS included.
    Mix(&'a [(u32, u32)]),
    /// The lengths that need the most.
    Worst,
}

/// How long the store of `room` holds `traffic` at `rate`, in bit/s of the wire: the sum
/// of both directions' delays if each carries that much, or of one that does alone.
#[must_use]
pub fn longest_delay(room: Room, rate: u64, traffic: Traffic<'_>) -> Nanos {
    let single;
    let mix = match traffic {
        Traffic::Worst => {
            let bytes = packing::frame_bytes(room.capacity, pipes(room), room.tag);
            // Each direction has a frame more than its rate × delay.
            return span(bytes.saturating_sub(2 * u128::from(room.frame)), rate);
        }
        Traffic::Frames(len) => {
            single = [(1, len)];
            &single[..]
        }
        Traffic::Mix(mix) => mix,
    };
    let without_fcs: Vec<_> = mix.iter().map(|(n, len)| (*n, len.saturating_sub(FCS))).collect();
    let cycles = packing::cycles(room.capacity, pipes(room), &without_fcs, room.tag);
    let wire = |(n, len): &(u32, u32)| u128::from(*n) * u128::from(len + WIRE_OVERHEAD);
    span(cycles * without_fcs.iter().map(wire).sum::<u128>(), rate)
}

fn span(bytes: u128, rate: u64) -> Nanos {
    let nanos = bytes * u128::from(8 * NANOS_PER_SEC) / u128::from(rate.max(1));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
