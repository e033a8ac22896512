// SPDX-License-Identifier: Apache-2.0
//! How much of the store frames take. This is all that the envelope knows of the store's layout.
//!
//! Frames are records in segments. A record goes over the end of a segment where it must,
//! its header does not, so the rest of a segment is less than a header. In addition, each
//! pipe has begun one segment at its tail and not yet freed one at its head.
//!
//! Each frame lies there with its tag.
//!
//! Every frame counts as packed. A frame in a kept buffer takes less of the
//! store, but there may be no place for its buffer.

use crate::store::{HEADER, SEGMENT, record_size};
use crate::tag::MAX_TAG;

use super::MIN_FRAME;

/// Segments that a pipe holds beside the full ones.
const BEGUN: u128 = 2;
/// Least number of bytes of records in a segment.
const FULL: u32 = SEGMENT - (HEADER - 1);

/// The most bytes of store that `frames` bytes of frames, of any lengths, take in `pipes`
/// pipes.
pub(super) fn store_bytes(frames: u128, pipes: u128, tag: u32) -> u128 {
    let (len, record) = worst(tag);
    let records = (frames * u128::from(record)).div_ceil(u128::from(len));
    (records.div_ceil(u128::from(FULL)) + BEGUN * pipes) * u128::from(SEGMENT)
}

/// The bytes of frames that `capacity` always takes: [`store_bytes`] turned round.
pub(super) fn frame_bytes(capacity: u64, pipes: u128, tag: u32) -> u128 {
    let (len, record) = worst(tag);
    room_for_records(capacity, pipes) * u128::from(len) / u128::from(record)
}

/// How often `capacity` takes a cycle of frames, as (how many, length).
pub(super) fn cycles(capacity: u64, pipes: u128, cycle: &[(u32, u32)], tag: u32) -> u128 {
    let taken = |(n, len): &(u32, u32)| u128::from(*n) * u128::from(record(*len, tag));
    room_for_records(capacity, pipes) / cycle.iter().map(taken).sum::<u128>().max(1)
}

/// Bytes of records that `capacity` always takes.
fn room_for_records(capacity: u64, pipes: u128) -> u128 {
    let segments = u128::from(capacity) / u128::from(SEGMENT);
    segments.saturating_sub(BEGUN * pipes) * u128::from(FULL)
}

/// The length of the most bookkeeping per byte, and its record. Alignment makes it one of
/// the shortest, not always the shortest.
fn worst(tag: u32) -> (u32, u32) {
    let first = (MIN_FRAME, record(MIN_FRAME, tag));
    (MIN_FRAME..MIN_FRAME + 64).map(|len| (len, record(len, tag))).fold(first, |a, b| {
        let cost = |of: (u32, u32), by: (u32, u32)| u64::from(of.0) * u64::from(by.1);
        if cost(b, a) < cost(a, b) { b } else { a }
    })
}

/// Bytes that a frame of `len` takes with its tag. No tag is longer than [`MAX_TAG`].
fn record(len: u32, tag: u32) -> u32 {
    record_size(len.saturating_add(tag.min(MAX_TAG as u32)))
}
