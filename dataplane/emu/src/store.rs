// SPDX-License-Identifier: Apache-2.0
//! The packet store: frames packed into segments of one arena.
//!
//! Each pipe has a [`Fifo`] of records, a header and the frame's bytes, in a chain
//! of segments taken from the [`Store`]'s free list. A record stays where it was
//! written from arrival to release; the fifo has three cursors:
//!
//! ```text
//! head ──────────────► middle ──────────────► tail
//!   due times known: the    waiting for the shaper:
//!   delay line              the queue
//! ```
//!
//! and a fourth one ([`Ahead`]) in the queue of a client that shares a beam.
//!
//! Small frames are copied in and out, so that the memory a link needs depends on the
//! bytes it holds and not on the size of a driver's buffers. Larger frames that arrive in
//! a driver's buffer stay in it, as long as there are places for it, and
//! the record only names the place (docs/adr/0002). A frame's bytes continue in the next segment
//! where necessary, a header does not: the unused rest of a segment is less than a header.
//! After L. Rizzo's TLEM, which packs into one ring per path.
//!
//! Memory is touched when it is first used and then reused last in, first out. A
//! fifo that runs empty holds no segment. The arena asks the system for large pages.
//!
//! A record may carry a [`Tag`] before its frame, of which the store knows the length only
//! (docs/adr/0049). Lengths that are asked for are those of the frame.

mod ahead;
mod fifo;
mod record;

use std::collections::VecDeque;

use memmap2::{Advice, MmapMut};

use crate::frame::{Buffer, NoBuffer};
use crate::tag::MAX_TAG;

pub use ahead::Ahead;
pub use fifo::{Fifo, Head, Held, Queued};
pub use record::Place;
use record::{Cursor, after, flag, is_plain, size, tag_len};

/// Bytes in a segment. Small, because each pipe has begun one at either end.
pub const SEGMENT: u32 = 4096;
/// Bytes of a record's header.
pub const HEADER: u32 = 12;
/// Records begin at multiples of this.
const ALIGN: u32 = 4;
/// The longest frame that the store takes.
pub const MAX_FRAME: u32 = 10_224;
/// Bytes that a kept buffer takes in a segment.
pub const KEPT_RECORD: u32 = HEADER + 4;

/// Successive records of lost frames that a release removes at most. They are not frames that it releases:
/// when a frame is found to be lost depends on how far its queue was served.
const REMOVED: usize = 64;

/// No segment; the first one of the arena is not used.
const NONE: u32 = 0;
const LOST: u32 = 1 << 31;
const KEPT: u32 = 1 << 30;
/// A phantom frame: a header alone.
const PHANTOM: u32 = 1 << 23;
/// The length of the tag, in words of 4 bytes, is in the bits from here to [`KEPT`].
const TAG: u32 = 1 << 24;
const LENGTH: u32 = PHANTOM - 1;

/// Bytes that a frame of `len` takes when it is packed.
#[must_use]
pub const fn record_size(len: u32) -> u32 {
    // As `next_multiple_of`, in fewer instructions.
    HEADER + ((len + (ALIGN - 1)) & !(ALIGN - 1))
}

/// An arena of segments and the buffers that are kept, shared by the fifos of one engine, or of
/// several that hand it to each other.
#[derive(Debug)]
pub struct Store<B = NoBuffer> {
    bytes: MmapMut,
    /// The segment after this one, in a fifo or in the free list.
    next: Vec<u32>,
    free: u32,
    /// Segments from here on have never been used.
    fresh: u32,
    account: Account,
    kept: Box<[Option<B>]>,
    /// Places of `kept` that are empty, the longest empty first: so buffers stand there in the order
    /// in which they came.
    places: VecDeque<u32>,
    /// For frames that go over the end of a segment.
    scratch: Box<[u8]>,
}

/// What one of several links that share a store may use of it, and uses, in segments.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    limit: u32,
    used: u32,
    used_max: u32,
    /// Buffers that are kept.
    kept: u32,
}

/// The store has no free segment.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl<B: Buffer> Store<B> {
    /// A store of `capacity` bytes, rounded down to segments, at least one, that keeps up to
    /// `buffers` buffers.
    ///
    /// # Errors
    /// If the system has no such span of addresses.
    pub fn new(capacity: usize, buffers: u32) -> std::io::Result<Self> {
        let n = (capacity / SEGMENT as usize).clamp(1, u32::MAX as usize - 1);
        // Comes zeroed and untouched from the system.
        let bytes = MmapMut::map_anon((n + 1) * SEGMENT as usize)?;
        // A hint: a system without large pages works as well.
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(Advice::HugePage);
        Ok(Self {
            bytes,
            next: vec![NONE; n + 1],
            free: NONE,
            fresh: 1,
            account: Account { limit: n as u32, ..Account::default() },
            kept: (0..buffers).map(|_| None).collect(),
            places: (0..buffers).collect(),
            scratch: vec![0; MAX_FRAME as usize + MAX_TAG].into_boxed_slice(),
        })
    }

    /// The account of a link that shares another link's store: nothing can be stored until that
    /// store is handed to it ([`Store::hand_to`]). `capacity` is a part of that store's.
    ///
    /// # Errors
    /// As [`Store::new`].
    pub fn sharing(capacity: usize) -> std::io::Result<Self> {
        let mut store = Self::new(0, 0)?;
        store.set_capacity(capacity);
        Ok(store)
    }

    /// Exchanges the memory of two stores. Each keeps its account.
    #[inline]
    pub fn hand_to(&mut self, other: &mut Self) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.account, &mut other.account);
    }

    /// Sets the bytes that may be in use, rounded down to segments. More than that stays in use
    /// until its frames leave.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.account.limit = u32::try_from(capacity / SEGMENT as usize).unwrap_or(u32::MAX);
    }

    /// Bytes that may be in use.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        u64::from(self.account.limit) * u64::from(SEGMENT)
    }

    /// Bytes in use, in whole segments.
    #[must_use]
    pub fn used(&self) -> u64 {
        u64::from(self.account.used) * u64::from(SEGMENT)
    }

    /// Most bytes in use since the last [`Store::mark`].
    #[must_use]
    pub fn used_max(&self) -> u64 {
        u64::from(self.account.used_max) * u64::from(SEGMENT)
    }

    #[must_use]
    pub fn buffers(&self) -> u32 {
        self.account.kept
    }

    pub fn mark(&mut self) {
        self.account.used_max = self.account.used;
    }

    fn has_free(&self, segments: u32) -> bool {
        u64::from(self.account.used) + u64::from(segments) <= u64::from(self.account.limit)
    }

    fn take(&mut self) -> Result<u32, Full> {
        if !self.has_free(1) {
            return Err(Full);
        }
        let segment = if self.free != NONE {
            let s = self.free;
            self.free = self.next[s as usize];
            s
        } else if (self.fresh as usize) < self.next.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return Err(Full);
        };
        self.next[segment as usize] = NONE;
        let Account { used, used_max, .. } = &mut self.account;
        *used += 1;
        *used_max = (*used_max).max(*used);
        Ok(segment)
    }

    fn give(&mut self, segment: u32) {
        self.next[segment as usize] = self.free;
        self.free = segment;
        self.account.used -= 1;
    }

    /// Frees the segments from `segment` up to, but excluding, `end`.
    fn give_back(&mut self, mut segment: u32, end: u32) {
        while segment != end {
            let next = self.next[segment as usize];
            self.give(segment);
            segment = next;
        }
    }
}

#[cfg(test)]
mod tests;
