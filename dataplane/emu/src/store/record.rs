// SPDX-License-Identifier: Apache-2.0
//! Records: the header, the tag and the bytes of one frame in the arena.

use crate::frame::Buffer;
use crate::memory::prefetch_bytes;
use crate::tag::Tag;
use crate::units::Instant;

use super::{
    HEADER, KEPT, KEPT_RECORD, LENGTH, LOST, NONE, PHANTOM, SEGMENT, Store, TAG, record_size,
};

/// Buffers between one that is released and one that is fetched meanwhile.
const BUFFERS_AHEAD: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

impl Cursor {
    pub(super) const NOWHERE: Self = Self { segment: NONE, offset: 0 };

    pub(super) fn at(self) -> usize {
        self.segment as usize * SEGMENT as usize + self.offset as usize
    }
}

/// Where the record of a frame is, as long as it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub(super) Cursor);

impl<B: Buffer> Store<B> {
    #[inline]
    pub(super) fn header(&self, c: Cursor) -> (u64, u32) {
        let at = c.at();
        let header = self.bytes.get(at..at + HEADER as usize).and_then(<[u8]>::first_chunk);
        let Some(header): Option<&[u8; HEADER as usize]> = header else { return (0, 0) };
        let Some((time, rest)) = header.split_first_chunk() else { return (0, 0) };
        let word = rest.first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        (u64::from_ne_bytes(*time), word)
    }

    #[inline]
    pub(super) fn write_header(&mut self, c: Cursor, time: u64, word: u32) {
        if let Some(header) = self.bytes[c.at()..].first_chunk_mut() {
            put_header(header, time, word);
        }
    }

    /// Writes the record of a copied frame, with `word` in its header, which does not go over the end of
    /// a segment.
    #[inline]
    pub(super) fn write_record(
        &mut self,
        c: Cursor,
        (time, word): (u64, u32),
        tag: &[u8],
        frame: &[u8],
    ) {
        let (at, size) = (c.at(), HEADER as usize + tag.len() + frame.len());
        let record = self.bytes.get_mut(at..at + size);
        if let Some((header, body)) = record.and_then(<[u8]>::split_first_chunk_mut) {
            put_header(header, time, word);
            let (before, body) = body.split_at_mut(tag.len());
            if !tag.is_empty() {
                before.copy_from_slice(tag);
            }
            body.copy_from_slice(frame);
        }
    }

    /// Changes the time in the header at `c`.
    #[inline]
    pub(super) fn write_time(&mut self, c: Cursor, time: u64) {
        let at = c.at();
        if let Some(bytes) = self.bytes.get_mut(at..at + size_of::<u64>()) {
            bytes.copy_from_slice(&time.to_ne_bytes());
        }
    }

    /// Prefetches the record at `c` and the header after it, if
    /// its frame is small; longer ones are read in order, which the processor detects.
    #[inline]
    pub(super) fn prefetch(&self, c: Cursor) {
        const SMALL: usize = (record_size(60) + HEADER) as usize;
        prefetch_bytes::<SMALL>(&self.bytes, c.at());
    }

    /// Which buffer the record at `c`, with `word` in its header, keeps. It does not go over the
    /// end of a segment either, because headers and tags are multiples of four bytes.
    #[inline]
    pub(super) fn place(&self, c: Cursor, word: u32) -> usize {
        let c = self.advance(c, HEADER + tag_len(word));
        let bytes = self.bytes[c.at()..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        bytes as usize
    }

    /// Whether the frame at `place` is a phantom one, without bytes.
    #[inline]
    pub fn is_phantom(&self, place: Place) -> bool {
        self.header(place.0).1 & PHANTOM != 0
    }

    /// Writes the record, with `word` in its header, of a frame in a buffer that is kept at `place`.
    #[inline]
    pub(super) fn write_place(
        &mut self,
        c: Cursor,
        (time, word): (Instant, u32),
        tag: &[u8],
        place: u32,
    ) {
        self.write_header(c, time.0, word);
        if !tag.is_empty() {
            self.write(Cursor { offset: c.offset + HEADER, ..c }, tag);
        }
        let c = self.advance(c, HEADER + tag_len(word));
        self.bytes[c.at()..][..4].copy_from_slice(&place.to_ne_bytes());
    }

    /// The tag of the record at `c`.
    pub(super) fn tag(&mut self, c: Cursor, word: u32) -> Tag {
        let len = tag_len(word);
        Tag::new(self.packed(c, len))
    }

    /// Frees the buffer that the record at `c` keeps. Returns its place.
    #[inline]
    pub(super) fn forget(&mut self, c: Cursor, word: u32) -> usize {
        let place = self.place(c, word);
        self.kept[place] = None;
        self.places.push_back(place as u32);
        self.account.kept -= 1;
        place
    }

    /// As [`Store::forget`], of a frame that was released. Hints the processor that a buffer which
    /// came a little later will be looked at soon: it is, if frames leave in the order in which
    /// they came. Buffers that were held are far away.
    #[inline]
    pub(super) fn forget_released(&mut self, c: Cursor, word: u32) {
        let place = self.forget(c, word);
        let later = place + BUFFERS_AHEAD;
        let later = if later < self.kept.len() { later } else { later - self.kept.len() };
        if let Some(Some(buffer)) = self.kept.get(later) {
            buffer.prefetch();
        }
    }

    /// Marks the record at `c` as that of a frame that was lost.
    pub(super) fn lose(&mut self, c: Cursor) {
        let (_, word) = self.header(c);
        if word & KEPT != 0 {
            self.forget(c, word);
        }
        self.write_header(c, 0, word | LOST);
    }

    /// `c` and `n` bytes further, over the ends of segments.
    #[inline]
    pub(super) fn advance(&self, c: Cursor, n: u32) -> Cursor {
        let mut to = Cursor { offset: c.offset + n, ..c };
        while to.offset >= SEGMENT && self.next[to.segment as usize] != NONE {
            to = Cursor { segment: self.next[to.segment as usize], offset: to.offset - SEGMENT };
        }
        to
    }

    /// Writes bytes from `c` on, over the ends of segments, which are there.
    pub(super) fn write(&mut self, c: Cursor, mut bytes: &[u8]) {
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
        let c = place.0;
        let (_, word) = self.header(c);
        if word & KEPT != 0 {
            let place = self.place(c, word);
            return change(self.kept[place].as_mut().map_or(&mut [], B::bytes_mut));
        }
        let (tag, len) = (tag_len(word), word & LENGTH);
        let begin = Cursor { offset: c.offset + HEADER + tag, ..c };
        if begin.offset + len <= SEGMENT {
            return change(&mut self.bytes[begin.at()..][..len as usize]);
        }
        self.gather(c, tag + len);
        let mut scratch = std::mem::take(&mut self.scratch);
        let frame = &mut scratch[tag as usize..][..len as usize];
        let result = change(frame);
        self.write(begin, frame);
        self.scratch = scratch;
        result
    }

    /// Lets `change` see the tag of the frame that is held at `place` and change it, but for its
    /// length.
    pub fn edit_tag<R>(&mut self, place: Place, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let c = place.0;
        let (_, word) = self.header(c);
        let begin = Cursor { offset: c.offset + HEADER, ..c };
        let len = tag_len(word);
        if begin.offset + len <= SEGMENT {
            return change(&mut self.bytes[begin.at()..][..len as usize]);
        }
        let mut tag = self.tag(c, word);
        let result = change(&mut tag);
        self.write(begin, &tag);
        result
    }

    /// Lets `look` see the tag and the bytes of the frame that is held at `place`.
    pub fn look<R>(&mut self, place: Place, look: impl FnOnce(&[u8], &[u8]) -> R) -> R {
        let c = place.0;
        let (_, word) = self.header(c);
        if word & KEPT != 0 {
            let tag = self.tag(c, word);
            let kept = &self.kept[self.place(c, word)];
            return look(&tag, kept.as_ref().map_or(&[], B::bytes));
        }
        let tag = tag_len(word);
        let (tag, frame) = self.packed(c, tag + (word & LENGTH)).split_at(tag as usize);
        look(tag, frame)
    }

    /// The first `len` bytes behind the header of the record at `c`, in one piece.
    #[inline]
    pub(super) fn packed(&mut self, c: Cursor, len: u32) -> &[u8] {
        if c.offset + HEADER + len <= SEGMENT {
            let at = c.at() + HEADER as usize;
            return &self.bytes[at..at + len as usize];
        }
        self.gather(c, len);
        &self.scratch[..len as usize]
    }

    /// Copies the first `len` bytes behind the header of the record at `c` into `scratch`.
    pub(super) fn gather(&mut self, c: Cursor, len: u32) {
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

#[inline]
fn put_header(header: &mut [u8; HEADER as usize], time: u64, word: u32) {
    header[..8].copy_from_slice(&time.to_ne_bytes());
    header[8..].copy_from_slice(&word.to_ne_bytes());
}

/// Bytes of the tag of a record with `word` in its header.
#[inline]
pub(super) const fn tag_len(word: u32) -> u32 {
    (word & (KEPT - TAG)) / (TAG / 4)
}

/// Whether `word` is that of a copied frame without a tag, which was not lost: then it is the length.
#[inline]
pub(super) const fn is_plain(word: u32) -> bool {
    word <= LENGTH
}

/// Bytes of a record with `word` in its header.
#[inline]
pub(super) const fn size(word: u32) -> u32 {
    if is_plain(word) {
        return record_size(word);
    }
    let body = match word & (KEPT | PHANTOM) {
        0 => record_size(word & LENGTH),
        KEPT => KEPT_RECORD,
        _ => HEADER,
    };
    body + tag_len(word)
}

/// The part of `word` in a header for this tag.
#[inline]
pub(super) const fn flag(tag: &[u8]) -> u32 {
    tag.len() as u32 * (TAG / 4)
}

/// Start of the record after the one at `c`; may be nowhere if there is none.
#[inline]
pub(super) fn after<B: Buffer>(store: &Store<B>, c: Cursor, word: u32) -> Cursor {
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
