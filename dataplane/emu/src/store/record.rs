// SPDX-License-Identifier: Apache-2.0
//! Records: the header, the tag and the bytes of one frame in the arena.

use super::*;

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

    #[inline]
    pub(super) fn header(&self, c: Cursor) -> (u64, u32) {
        let Some((time, rest)) = self.bytes[c.at()..].split_first_chunk() else { return (0, 0) };
        let word = rest.first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        (u64::from_ne_bytes(*time), word)
    }

    #[inline]
    pub(super) fn write_header(&mut self, c: Cursor, time: u64, word: u32) {
        if let Some(h) = self.bytes[c.at()..].first_chunk_mut::<{ HEADER as usize }>() {
            h[..8].copy_from_slice(&time.to_ne_bytes());
            h[8..].copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Hints the processor that the record at `c` and the header after it will be used, if
    /// its frame is small; longer ones are read in order, which it sees by itself.
    #[inline]
    pub(super) fn prefetch(&self, c: Cursor) {
        const LAST: usize = (record_size(60) + HEADER) as usize - 1;
        for ahead in [0, LINE, LAST] {
            prefetch(&self.bytes, c.at() + ahead);
        }
    }

    /// Which buffer the record at `c` keeps. It does not go over the end of a segment
    /// either, because headers and what follows are multiples of four.
    #[inline]
    pub(super) fn place(&self, c: Cursor) -> usize {
        let c = self.advance(c, HEADER);
        let bytes = self.bytes[c.at()..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        bytes as usize
    }

    /// Writes the record of a frame of so many bytes whose buffer is kept at `place`.
    #[inline]
    pub(super) fn write_place(
        &mut self,
        c: Cursor,
        at: Instant,
        (len, tag): (u32, Option<u32>),
        place: u32,
    ) {
        let word = len | KEPT | flag(tag);
        self.write_header(c, at.0, word);
        if let Some(tag) = tag {
            self.write_tag(c, word, tag);
        }
        let c = self.advance(c, HEADER);
        self.bytes[c.at()..][..4].copy_from_slice(&place.to_ne_bytes());
    }

    /// The tag of the record at `c`.
    pub(super) fn tag(&self, c: Cursor) -> Option<u32> {
        let (_, word) = self.header(c);
        if word & TAGGED == 0 {
            return None;
        }
        let c = self.advance(c, untagged_size(word));
        Some(self.bytes[c.at()..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b)))
    }

    /// Writes the tag of the record at `c`, whose header has `word`.
    #[inline(never)]
    pub(super) fn write_tag(&mut self, c: Cursor, word: u32, tag: u32) {
        self.write(Cursor { offset: c.offset + untagged_size(word), ..c }, &tag.to_ne_bytes());
    }

    /// Drops what the record at `c` keeps.
    #[inline]
    pub(super) fn forget(&mut self, c: Cursor) {
        let place = self.place(c);
        self.kept[place] = None;
        self.places.push(place as u32);
    }

    /// Marks the record at `c` as that of a frame that was lost.
    pub(super) fn lose(&mut self, c: Cursor) {
        let (_, word) = self.header(c);
        if word & KEPT != 0 {
            self.forget(c);
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

    pub(super) fn edit_whole<R>(&mut self, place: Place, change: impl FnOnce(&mut [u8]) -> R) -> R {
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
    pub(super) fn packed(&mut self, c: Cursor, len: u32) -> &[u8] {
        if c.offset + HEADER + len <= SEGMENT {
            return &self.bytes[c.at() + HEADER as usize..][..len as usize];
        }
        self.gather(c, len);
        &self.scratch[..len as usize]
    }

    /// Copies the frame of the packed record at `c` to where it is in one piece.
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

    /// The length of what counts of the frame whose record has `word`.
    #[inline]
    pub(super) fn length(&self, word: u32) -> u32 {
        (word & LENGTH).saturating_sub(self.prefix)
    }
}

/// Bytes of a record whose header has `word`, without a tag.
#[inline]
pub(super) const fn untagged_size(word: u32) -> u32 {
    if word & KEPT == 0 { record_size(word & LENGTH) } else { KEPT_RECORD }
}

/// Bytes of a record whose header has `word`.
#[inline]
pub(super) const fn size(word: u32) -> u32 {
    untagged_size(word) + (word & TAGGED) / (TAGGED / TAG)
}

/// What the header of a record with a tag says.
#[inline]
pub(super) const fn flag(tag: Option<u32>) -> u32 {
    if tag.is_some() { TAGGED } else { 0 }
}

/// Where the record after the one at `c` begins; if there is none, that may be nowhere.
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
