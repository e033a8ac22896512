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
//! bytes it holds and not on the size of a driver's buffers. Of larger ones that came in
//! a driver's buffer the buffer itself is kept, as long as there are places for it, and
//! the record only says which (docs/adr/0002). A frame's bytes go on in the next segment
//! where they must, a header does not: what is left of a segment is less than a header.
//! After L. Rizzo's TLEM, which packs into one ring per path.
//!
//! Memory is touched when it is first used and then reused last in, first out. A
//! fifo that runs empty holds no segment. The arena asks the system for large pages.
//!
//! Where frames carry a prefix, such as a shim, the store holds it with them and gives it back
//! with them. Lengths that are asked for, and what is shown and changed, are those of the frame
//! behind it.
//!
//! A record may carry a tag behind its frame, by which a [`Tap`] knows it again: only the
//! frames that are captured take that room (docs/adr/0026).

mod ahead;

use memmap2::{Advice, MmapMut};

use crate::frame::{Buffer, Frame, NoBuffer};
use crate::memory::{LINE, prefetch};
use crate::shim::{self, SHIM};
use crate::tap::Tap;
use crate::units::Instant;

pub use ahead::Ahead;

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

/// No segment; the first one of the arena is not used.
const NONE: u32 = 0;
const LOST: u32 = 1 << 31;
const KEPT: u32 = 1 << 30;
/// A tag follows.
const TAGGED: u32 = 1 << 29;
const LENGTH: u32 = TAGGED - 1;
/// Bytes of a tag.
const TAG: u32 = 4;

/// Bytes that a frame of `len` takes when it is packed.
#[must_use]
pub const fn record_size(len: u32) -> u32 {
    HEADER + len.next_multiple_of(ALIGN)
}

/// An arena of segments and the buffers that are kept, shared by the fifos of one engine.
#[derive(Debug)]
pub struct Store<B = NoBuffer> {
    bytes: MmapMut,
    /// The segment after this one, in a fifo or in the free list.
    next: Vec<u32>,
    free: u32,
    /// Segments from here on have never been used.
    fresh: u32,
    used: u32,
    used_max: u32,
    kept: Vec<Option<B>>,
    /// Places of `kept` that are empty.
    places: Vec<u32>,
    /// For frames that go over the end of a segment.
    scratch: Box<[u8]>,
    tap: Option<Box<Tap>>,
    /// Frames that were captured, by this tap or an earlier one.
    tapped: u64,
    /// Bytes of each frame that come before what is counted.
    prefix: u32,
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
        let mut kept = Vec::new();
        kept.resize_with(buffers as usize, || None);
        Ok(Self {
            bytes,
            next: vec![NONE; n + 1],
            free: NONE,
            fresh: 1,
            used: 0,
            used_max: 0,
            kept,
            places: (0..buffers).rev().collect(),
            scratch: vec![0; MAX_FRAME as usize].into_boxed_slice(),
            tap: None,
            tapped: 0,
            prefix: 0,
        })
    }

    /// The same, empty, for frames of which the first `prefix` bytes do not count.
    #[must_use]
    pub fn with_prefix(self, prefix: u32) -> Self {
        Self { prefix, ..self }
    }

    /// Bytes of each frame that come before what is counted.
    #[inline]
    #[must_use]
    pub fn prefix(&self) -> u32 {
        self.prefix
    }

    /// What counts of a frame.
    #[inline]
    #[must_use]
    pub fn inner<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.prefix as usize..).unwrap_or_default()
    }

    /// The length of what counts of the frame whose record has `word`.
    #[inline]
    fn length(&self, word: u32) -> u32 {
        (word & LENGTH).saturating_sub(self.prefix)
    }

    /// Size in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.segments() * u64::from(SEGMENT)
    }

    fn segments(&self) -> u64 {
        self.next.len() as u64 - 1
    }

    /// Bytes in use, in whole segments.
    #[must_use]
    pub fn used(&self) -> u64 {
        u64::from(self.used) * u64::from(SEGMENT)
    }

    /// Most bytes in use since the last [`Store::mark`].
    #[must_use]
    pub fn used_max(&self) -> u64 {
        u64::from(self.used_max) * u64::from(SEGMENT)
    }

    /// Buffers that are kept.
    #[must_use]
    pub fn buffers(&self) -> u32 {
        (self.kept.len() - self.places.len()) as u32
    }

    /// Starts the high-water mark anew.
    pub fn mark(&mut self) {
        self.used_max = self.used;
    }

    /// What looks at the frames that come and go, if anything does.
    #[inline]
    #[must_use]
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_deref()
    }

    /// As [`Store::tap`].
    #[inline]
    pub(crate) fn tap_mut(&mut self) -> Option<&mut Tap> {
        self.tap.as_deref_mut()
    }

    /// Puts a tap in the place of the one that was there.
    pub fn set_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        let before = std::mem::replace(&mut self.tap, tap);
        if let Some(tap) = &mut self.tap {
            tap.begin(self.tapped);
        }
        before
    }

    /// Takes the tap away while it looks at a frame of the store.
    pub(crate) fn lift_tap(&mut self) -> Option<Box<Tap>> {
        self.tap.take()
    }

    /// And back.
    pub(crate) fn lower_tap(&mut self, tap: Box<Tap>) {
        self.tap = Some(tap);
    }

    /// A tag for a frame that arrives, and its number.
    pub(crate) fn next_tag(&mut self) -> (u32, u64) {
        self.tapped += 1;
        (self.tapped as u32, self.tapped)
    }

    /// The number of the frame with a tag: there are fewer than 2³² at once.
    pub(crate) fn number(&self, tag: u32) -> u64 {
        self.tapped - u64::from((self.tapped as u32).wrapping_sub(tag))
    }

    /// Lets `look` see the frame that is held at `place` and the number by which a tap knows
    /// it.
    pub(crate) fn show<R>(
        &mut self,
        place: Place,
        look: impl FnOnce(&[u8], Option<u64>) -> R,
    ) -> R {
        let number = self.tag(place.0).map(|tag| self.number(tag));
        let (_, word) = self.header(place.0);
        if word & KEPT != 0 {
            let kept = &self.kept[self.place(place.0)];
            return look(self.inner(kept.as_ref().map_or(&[], B::bytes)), number);
        }
        let prefix = self.prefix as usize;
        look(self.packed(place.0, word & LENGTH).get(prefix..).unwrap_or_default(), number)
    }

    fn has_free(&self, segments: u32) -> bool {
        u64::from(self.used) + u64::from(segments) <= self.segments()
    }

    fn take(&mut self) -> Result<u32, Full> {
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
        self.used += 1;
        self.used_max = self.used_max.max(self.used);
        Ok(segment)
    }

    fn give(&mut self, segment: u32) {
        self.next[segment as usize] = self.free;
        self.free = segment;
        self.used -= 1;
    }

    /// Gives back the segments from `segment` up to, and without, `end`.
    fn give_back(&mut self, mut segment: u32, end: u32) {
        while segment != end {
            let next = self.next[segment as usize];
            self.give(segment);
            segment = next;
        }
    }

    #[inline]
    fn header(&self, c: Cursor) -> (u64, u32) {
        let Some((time, rest)) = self.bytes[c.at()..].split_first_chunk() else { return (0, 0) };
        let word = rest.first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        (u64::from_ne_bytes(*time), word)
    }

    #[inline]
    fn write_header(&mut self, c: Cursor, time: u64, word: u32) {
        if let Some(h) = self.bytes[c.at()..].first_chunk_mut::<{ HEADER as usize }>() {
            h[..8].copy_from_slice(&time.to_ne_bytes());
            h[8..].copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Hints the processor that the record at `c` and the header after it will be used, if
    /// its frame is small; longer ones are read in order, which it sees by itself.
    #[inline]
    fn prefetch(&self, c: Cursor) {
        const LAST: usize = (record_size(60) + HEADER) as usize - 1;
        for ahead in [0, LINE, LAST] {
            prefetch(&self.bytes, c.at() + ahead);
        }
    }

    /// Which buffer the record at `c` keeps. It does not go over the end of a segment
    /// either, because headers and what follows are multiples of four.
    #[inline]
    fn place(&self, c: Cursor) -> usize {
        let c = self.advance(c, HEADER);
        let bytes = self.bytes[c.at()..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        bytes as usize
    }

    /// Writes the record of a frame of so many bytes whose buffer is kept at `place`.
    #[inline]
    fn write_place(&mut self, c: Cursor, at: Instant, (len, tag): (u32, Option<u32>), place: u32) {
        let word = len | KEPT | flag(tag);
        self.write_header(c, at.0, word);
        if let Some(tag) = tag {
            self.write_tag(c, word, tag);
        }
        let c = self.advance(c, HEADER);
        self.bytes[c.at()..][..4].copy_from_slice(&place.to_ne_bytes());
    }

    /// The tag of the record at `c`.
    fn tag(&self, c: Cursor) -> Option<u32> {
        let (_, word) = self.header(c);
        if word & TAGGED == 0 {
            return None;
        }
        let c = self.advance(c, untagged_size(word));
        Some(self.bytes[c.at()..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b)))
    }

    /// Writes the tag of the record at `c`, whose header has `word`.
    #[inline(never)]
    fn write_tag(&mut self, c: Cursor, word: u32, tag: u32) {
        self.write(Cursor { offset: c.offset + untagged_size(word), ..c }, &tag.to_ne_bytes());
    }

    /// Drops what the record at `c` keeps.
    #[inline]
    fn forget(&mut self, c: Cursor) {
        let place = self.place(c);
        self.kept[place] = None;
        self.places.push(place as u32);
    }

    /// Marks the record at `c` as that of a frame that was lost.
    fn lose(&mut self, c: Cursor) {
        let (_, word) = self.header(c);
        if word & KEPT != 0 {
            self.forget(c);
        }
        self.write_header(c, 0, word | LOST);
    }

    /// `c` and `n` bytes further, over the ends of segments.
    #[inline]
    fn advance(&self, c: Cursor, n: u32) -> Cursor {
        let mut to = Cursor { offset: c.offset + n, ..c };
        while to.offset >= SEGMENT && self.next[to.segment as usize] != NONE {
            to = Cursor { segment: self.next[to.segment as usize], offset: to.offset - SEGMENT };
        }
        to
    }

    /// Writes bytes from `c` on, over the ends of segments, which are there.
    fn write(&mut self, c: Cursor, mut bytes: &[u8]) {
        let mut c = self.advance(c, 0);
        while !bytes.is_empty() {
            let n = bytes.len().min((SEGMENT - c.offset) as usize);
            self.bytes[c.at()..][..n].copy_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            c = self.advance(c, n as u32);
        }
    }

    /// Lets `change` see the frame that is held at `place` and change it, but for its length.
    pub fn edit<R>(&mut self, place: Place, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let prefix = self.prefix as usize;
        self.edit_whole(place, |bytes| change(bytes.get_mut(prefix..).unwrap_or_default()))
    }

    /// Lets `change` see the shim of the frame that is held at `place` and change it. Nothing
    /// happens where frames have none.
    #[inline(never)]
    pub(crate) fn edit_shim(&mut self, place: Place, change: impl FnOnce(&mut shim::Bytes)) {
        if self.prefix != SHIM {
            return;
        }
        let c = place.0;
        let (_, word) = self.header(c);
        if word & KEPT == 0 && c.offset + HEADER + SHIM > SEGMENT {
            // Only these bytes go over the end, not the whole frame.
            self.gather(c, SHIM);
            let mut bytes: shim::Bytes = [0; SHIM as usize];
            bytes.copy_from_slice(&self.scratch[..SHIM as usize]);
            change(&mut bytes);
            self.write(Cursor { offset: c.offset + HEADER, ..c }, &bytes);
        } else if word & KEPT == 0 {
            let at = c.at() + HEADER as usize;
            if let Some(bytes) = self.bytes[at..].first_chunk_mut() {
                change(bytes);
            }
        } else {
            let place = self.place(c);
            let bytes = self.kept[place].as_mut().map_or(&mut [][..], B::bytes_mut);
            if let Some(bytes) = bytes.first_chunk_mut() {
                change(bytes);
            }
        }
    }

    fn edit_whole<R>(&mut self, place: Place, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let c = place.0;
        let (_, word) = self.header(c);
        let len = (word & LENGTH) as usize;
        if word & KEPT != 0 {
            let place = self.place(c);
            return change(self.kept[place].as_mut().map_or(&mut [], B::bytes_mut));
        }
        if c.offset + HEADER + (word & LENGTH) <= SEGMENT {
            return change(&mut self.bytes[c.at() + HEADER as usize..][..len]);
        }
        self.packed(c, word & LENGTH);
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = change(&mut scratch[..len]);
        self.write(Cursor { offset: c.offset + HEADER, ..c }, &scratch[..len]);
        self.scratch = scratch;
        result
    }

    /// The frame of the packed record at `c`, in one piece.
    #[inline]
    fn packed(&mut self, c: Cursor, len: u32) -> &[u8] {
        if c.offset + HEADER + len <= SEGMENT {
            return &self.bytes[c.at() + HEADER as usize..][..len as usize];
        }
        self.gather(c, len);
        &self.scratch[..len as usize]
    }

    /// Copies the frame of the packed record at `c` to where it is in one piece.
    fn gather(&mut self, c: Cursor, len: u32) {
        let mut c = self.advance(c, HEADER);
        let mut to = 0;
        while to < len as usize {
            let n = (len as usize - to).min((SEGMENT - c.offset) as usize);
            self.scratch[to..to + n].copy_from_slice(&self.bytes[c.at()..][..n]);
            to += n;
            c = self.advance(c, n as u32);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    segment: u32,
    offset: u32,
}

impl Cursor {
    const NOWHERE: Self = Self { segment: NONE, offset: 0 };

    fn at(self) -> usize {
        self.segment as usize * SEGMENT as usize + self.offset as usize
    }
}

/// Where the record of a frame is, as long as it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(Cursor);

/// What is at the head of the delay line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A frame that is due then.
    Due(Instant),
    /// A frame that was lost and only has to be cleared away.
    Lost,
}

/// The frames of one pipe, in order.
#[derive(Debug)]
pub struct Fifo {
    /// The first record, if there is one.
    head: Cursor,
    /// The first record of the queue, if there is one.
    middle: Cursor,
    /// Behind the last record.
    tail: Cursor,
    /// Records between middle and tail.
    queued: u32,
    /// Records between head and middle, the lost ones included.
    delayed: u32,
    /// Records of frames that were lost.
    lost: u32,
    /// Of the record at the head, if it is in the delay line: asked often, and the
    /// record itself is far away.
    head_lost: bool,
    due: Instant,
}

impl Default for Fifo {
    fn default() -> Self {
        let c = Cursor::NOWHERE;
        let due = Instant::ZERO;
        Self { head: c, middle: c, tail: c, queued: 0, delayed: 0, lost: 0, head_lost: false, due }
    }
}

impl Fifo {
    /// Appends a frame that arrived at `at` to the queue, by copying it, with a tag if it is
    /// given one.
    ///
    /// # Errors
    /// [`Full`] if it needs segments that the store does not have, or if the frame is
    /// longer than [`MAX_FRAME`]; nothing has changed then.
    #[inline]
    pub fn push<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        frame: &[u8],
        tag: Option<u32>,
    ) -> Result<Place, Full> {
        let len = u32::try_from(frame.len()).map_err(|_| Full)?;
        if len > MAX_FRAME {
            return Err(Full);
        }
        let word = len | flag(tag);
        let c = self.append(store, size(word))?;
        store.write_header(c, at.0, word);
        if let Some(tag) = tag {
            store.write_tag(c, word, tag);
        }
        if c.offset + HEADER + len <= SEGMENT {
            store.bytes[c.at() + HEADER as usize..][..len as usize].copy_from_slice(frame);
        } else {
            store.write(Cursor { offset: c.offset + HEADER, ..c }, frame);
        }
        Ok(Place(c))
    }

    /// Appends a frame that arrived at `at` to the queue by keeping its buffer, which is
    /// taken out, or by copying it if there is no place for the buffer.
    ///
    /// # Errors
    /// As [`Fifo::push`]; the buffer is still there then.
    pub fn keep<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        buffer: &mut Option<B>,
        tag: Option<u32>,
    ) -> Result<Place, Full> {
        let Some(frame) = buffer.as_ref().map(B::bytes) else { return Err(Full) };
        let Some(place) = store.places.last().copied() else {
            return self.push(store, at, frame, tag);
        };
        let len = u32::try_from(frame.len()).map_err(|_| Full)?;
        if len > MAX_FRAME {
            return Err(Full);
        }
        let record = self.append(store, size(len | KEPT | flag(tag)))?;
        store.write_place(record, at, (len, tag), place);
        store.places.pop();
        store.kept[place as usize] = buffer.take();
        Ok(Place(record))
    }

    /// Makes room for a record of `size` bytes at the tail; says where it begins.
    #[inline]
    fn append<B: Buffer>(&mut self, store: &mut Store<B>, size: u32) -> Result<Cursor, Full> {
        let c = self.tail;
        let c = if c.segment != NONE && c.offset + size <= SEGMENT {
            self.tail.offset += size;
            c
        } else {
            self.extend(store, size)?
        };
        if self.queued == 0 {
            self.middle = c;
            if self.delayed == 0 {
                self.head = c;
            }
        }
        self.queued += 1;
        Ok(c)
    }

    /// As [`Fifo::append`], where more segments are needed.
    fn extend<B: Buffer>(&mut self, store: &mut Store<B>, size: u32) -> Result<Cursor, Full> {
        let mut c = self.tail;
        let begin = c.segment == NONE || SEGMENT - c.offset < HEADER;
        let first = if begin { 0 } else { c.offset };
        // As many as lie beyond the first one, and that if it is a new one.
        let more = (first + size - 1) / SEGMENT + u32::from(begin);
        if !store.has_free(more) {
            return Err(Full);
        }
        let mut last = c.segment;
        for _ in 0..more {
            let segment = store.take()?;
            if last != NONE {
                store.next[last as usize] = segment;
            }
            if begin && c.segment == self.tail.segment {
                c = Cursor { segment, offset: 0 };
            }
            last = segment;
        }
        self.tail = Cursor { segment: last, offset: (first + size - 1) % SEGMENT + 1 };
        Ok(c)
    }

    /// The length of the frame at the head of the queue, and when it arrived.
    #[inline]
    #[must_use]
    pub fn queued<B: Buffer>(&self, store: &Store<B>) -> Option<(u32, Instant)> {
        if self.queued == 0 {
            return None;
        }
        let (at, word) = store.header(self.middle);
        Some((store.length(word), Instant(at)))
    }

    /// Bytes in the queue behind its head that arrived before `before`: exact up to
    /// `enough`, and else more than that.
    #[must_use]
    pub fn behind<B: Buffer>(&self, store: &Store<B>, before: Instant, enough: u64) -> u64 {
        let mut c = self.middle;
        let mut bytes = 0;
        for _ in 1..self.queued {
            c = after(store, c, store.header(c).1);
            let (at, word) = store.header(c);
            if at >= before.0 || bytes > enough {
                break;
            }
            bytes += u64::from(store.length(word));
        }
        bytes
    }

    /// Where the frame at the head of the delay line is, unless it was lost.
    #[must_use]
    pub fn place_due(&self) -> Option<Place> {
        (self.delayed > 0 && !self.head_lost).then_some(Place(self.head))
    }

    /// Where the frame at the head of the queue is.
    #[must_use]
    pub fn place_queued(&self) -> Option<Place> {
        (self.queued > 0).then_some(Place(self.middle))
    }

    /// Moves the frame at the head of the queue into the delay line, due at `due`,
    /// or marks it as lost on the channel.
    #[inline]
    pub fn depart<B: Buffer>(&mut self, store: &mut Store<B>, fate: Option<Instant>) {
        if self.queued == 0 {
            return;
        }
        let c = self.middle;
        let (_, word) = store.header(c);
        if fate.is_none() && word & KEPT != 0 {
            store.forget(c);
        }
        self.leave(store, word, fate);
    }

    /// Moves the frame at the head of the queue to the end of `other`, which has no queue:
    /// there it is due at `due`, here it counts as lost.
    ///
    /// # Errors
    /// [`Full`] if that needs segments that the store does not have; nothing has changed then.
    pub fn set_aside<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        other: &mut Self,
        due: Instant,
    ) -> Result<(), Full> {
        if self.queued == 0 {
            return Ok(());
        }
        let c = self.middle;
        let (_, word) = store.header(c);
        let (len, tag) = (word & LENGTH, store.tag(c));
        if word & KEPT == 0 {
            store.gather(c, len);
            let scratch = std::mem::take(&mut store.scratch);
            let pushed = other.push(store, due, &scratch[..len as usize], tag);
            store.scratch = scratch;
            pushed?;
        } else {
            // The buffer goes with it.
            let place = store.place(c) as u32;
            let record = other.append(store, size(len | KEPT | flag(tag)))?;
            store.write_place(record, due, (len, tag), place);
        }
        other.depart(store, Some(due));
        self.leave(store, word, None);
        Ok(())
    }

    /// The frame at the head of the queue, whose record has `word`, goes into the delay line.
    #[inline]
    fn leave<B: Buffer>(&mut self, store: &mut Store<B>, word: u32, fate: Option<Instant>) {
        let c = self.middle;
        if self.delayed == 0 {
            (self.due, self.head_lost) = (fate.unwrap_or_default(), fate.is_none());
        }
        match fate {
            Some(due) => store.write_header(c, due.0, word),
            None => {
                store.write_header(c, 0, word | LOST);
                self.lost += 1;
            }
        }
        self.queued -= 1;
        self.delayed += 1;
        if self.queued > 0 {
            self.middle = after(store, c, word);
        }
    }

    /// What is at the head of the delay line.
    #[inline]
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        if self.delayed == 0 {
            return None;
        }
        Some(if self.head_lost { Head::Lost } else { Head::Due(self.due) })
    }

    /// Frames in the queue and in the delay line.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.queued + self.delayed - self.lost
    }

    /// Whether it has no records, not even of frames that were lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued + self.delayed == 0
    }

    /// Frames in the queue.
    #[must_use]
    pub fn queue_len(&self) -> u32 {
        self.queued
    }

    /// Hints the processor that a frame will be appended.
    #[inline]
    pub fn prefetch_tail<B: Buffer>(&self, store: &Store<B>) {
        store.prefetch(self.tail);
        store.prefetch(self.middle);
    }

    /// Hints the processor that the record at the head will be read.
    #[inline]
    pub fn prefetch_head<B: Buffer>(&self, store: &Store<B>) {
        store.prefetch(self.head);
    }

    /// Hints the processor that of the first `most` frames of the delay line those that are
    /// due at `now` will be looked at: where their buffers are kept, those are far away.
    #[inline]
    pub fn prefetch_kept<B: Buffer>(&self, store: &Store<B>, now: Instant, most: usize) {
        let mut c = self.head;
        for _ in 0..most.min(self.delayed as usize) {
            let (due, word) = store.header(c);
            if word & (KEPT | LOST) != KEPT || due > now.0 {
                return;
            }
            if let Some(buffer) = &store.kept[store.place(c)] {
                buffer.prefetch();
            }
            c = after(store, c, word);
        }
    }

    /// The frame at the head of the delay line, with its prefix, and the length that counts; none
    /// if it was lost.
    #[inline]
    #[must_use]
    pub fn frame<'a, B: Buffer>(&self, store: &'a mut Store<B>) -> Option<(Frame<'a, B>, u32)> {
        if self.delayed == 0 {
            return None;
        }
        let (_, word) = store.header(self.head);
        let len = store.length(word);
        match (word & LOST, word & KEPT) {
            (0, 0) => Some((Frame::Bytes(store.packed(self.head, word & LENGTH)), len)),
            (0, _) => {
                let place = store.place(self.head);
                Some((Frame::Buffer(&mut store.kept[place]), len))
            }
            _ => None,
        }
    }

    /// Takes the frame at the head of the delay line out.
    #[inline]
    pub fn pop<B: Buffer>(&mut self, store: &mut Store<B>) {
        if self.delayed == 0 {
            return;
        }
        let from = self.head;
        let (_, word) = store.header(from);
        if word & (KEPT | LOST) != 0 {
            if word & LOST == 0 {
                store.forget(from);
            } else {
                self.lost -= 1;
            }
        }
        self.delayed -= 1;
        if self.delayed > 0 {
            let to = after(store, from, word);
            let (due, word) = store.header(to);
            (self.due, self.head_lost) = (Instant(due), word & LOST != 0);
            self.head = to;
            if to.segment != from.segment {
                store.give_back(from.segment, to.segment);
            }
        } else if self.queued > 0 {
            self.head = self.middle;
            store.give_back(from.segment, self.head.segment);
        } else {
            // Gives the last segment back as well.
            store.give_back(from.segment, NONE);
            *self = Self::default();
        }
    }
}

/// Bytes of a record whose header has `word`, without a tag.
#[inline]
const fn untagged_size(word: u32) -> u32 {
    if word & KEPT == 0 { record_size(word & LENGTH) } else { KEPT_RECORD }
}

/// Bytes of a record whose header has `word`.
#[inline]
const fn size(word: u32) -> u32 {
    untagged_size(word) + (word & TAGGED) / (TAGGED / TAG)
}

/// What the header of a record with a tag says.
#[inline]
const fn flag(tag: Option<u32>) -> u32 {
    if tag.is_some() { TAGGED } else { 0 }
}

/// Where the record after the one at `c` begins; if there is none, that may be nowhere.
#[inline]
fn after<B: Buffer>(store: &Store<B>, c: Cursor, word: u32) -> Cursor {
    let size = size(word);
    let to = Cursor { offset: c.offset + size, ..c };
    if to.offset + HEADER <= SEGMENT {
        return to;
    }
    let to = store.advance(c, size);
    if SEGMENT.saturating_sub(to.offset) < HEADER {
        Cursor { segment: store.next[to.segment as usize], offset: 0 }
    } else {
        to
    }
}

#[cfg(test)]
mod tests;
