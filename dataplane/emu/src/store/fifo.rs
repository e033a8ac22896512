// SPDX-License-Identifier: Apache-2.0
//! The frames of one pipe, in order.

use crate::frame::{Buffer, Frame};
use crate::tag::Tagged;
use crate::units::Instant;

use super::{
    Cursor, Full, HEADER, KEPT, LENGTH, LOST, MAX_FRAME, NONE, PHANTOM, Place, REMOVED, SEGMENT,
    Store, after, flag, is_plain, size, tag_len,
};

/// The head of the delay line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A frame with this due time.
    Due(Instant),
    /// A lost frame that only has to be removed.
    Lost,
}

/// A frame that is due, with its tag and its length.
pub type Held<'a, B> = (Frame<'a, B>, Tagged<'a>, u32);

/// What the record at the head of the queue says of its frame.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    word: u32,
    pub arrived: Instant,
}

impl Queued {
    /// Length of the frame.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.word & LENGTH
    }

    #[inline]
    #[must_use]
    pub fn is_phantom(self) -> bool {
        self.word & PHANTOM != 0
    }
}

/// The frames of one pipe, in order.
#[derive(Debug)]
pub struct Fifo {
    /// The first record, if there is one.
    pub(super) head: Cursor,
    /// The first record of the queue, if there is one.
    pub(super) middle: Cursor,
    pub(super) tail: Cursor,
    /// Records between middle and tail.
    pub(super) queued: u32,
    /// Records between head and middle, the lost ones included.
    pub(super) delayed: u32,
    /// Records of frames that were lost.
    pub(super) lost: u32,
    /// Copies from the record at the head, if it is in the delay line: they are read often, and the
    /// record itself is far away.
    pub(super) head_lost: bool,
    pub(super) due: Instant,
}

impl Default for Fifo {
    fn default() -> Self {
        let c = Cursor::NOWHERE;
        let due = Instant::ZERO;
        Self { head: c, middle: c, tail: c, queued: 0, delayed: 0, lost: 0, head_lost: false, due }
    }
}

impl Fifo {
    /// Appends a frame that arrived at `at` to the queue, by copying it. The length of
    /// `tag` is a multiple of 4.
    ///
    /// # Errors
    /// [`Full`] if it needs segments that the store does not have, or if the frame is
    /// longer than [`MAX_FRAME`]; nothing has changed then.
    #[inline(always)]
    pub fn push<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        frame: &[u8],
        tag: &[u8],
    ) -> Result<Place, Full> {
        let len = u32::try_from(frame.len()).map_err(|_| Full)?;
        if len > MAX_FRAME {
            return Err(Full);
        }
        let word = len | flag(tag);
        let c = self.append(store, size(word))?;
        let begin = Cursor { offset: c.offset + HEADER + tag.len() as u32, ..c };
        if begin.offset + len <= SEGMENT {
            store.write_record(c, (at.0, word), tag, frame);
        } else {
            store.write_header(c, at.0, word);
            store.write(Cursor { offset: c.offset + HEADER, ..c }, tag);
            store.write(begin, frame);
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
        tag: &[u8],
    ) -> Result<Place, Full> {
        let Some(frame) = buffer.as_ref().map(B::bytes) else { return Err(Full) };
        let Some(place) = store.places.front().copied() else {
            return self.push(store, at, frame, tag);
        };
        let len = u32::try_from(frame.len()).map_err(|_| Full)?;
        if len > MAX_FRAME {
            return Err(Full);
        }
        let word = len | KEPT | flag(tag);
        let record = self.append(store, size(word))?;
        store.write_place(record, (at, word), tag, place);
        store.places.pop_front();
        store.kept[place as usize] = buffer.take();
        store.account.kept += 1;
        Ok(Place(record))
    }

    /// Appends a phantom frame of `len` bytes that arrived at `at` to the queue: a length
    /// without bytes. [`Fifo::depart`] moves it as one that was lost.
    ///
    /// # Errors
    /// As [`Fifo::push`].
    pub fn push_phantom<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        len: u32,
    ) -> Result<(), Full> {
        if len > MAX_FRAME {
            return Err(Full);
        }
        let word = len | PHANTOM;
        let c = self.append(store, size(word))?;
        store.write_header(c, at.0, word);
        Ok(())
    }

    /// Makes room for a record of `size` bytes at the tail; returns its start.
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
        // Those beyond the first one, and the first one if it is new.
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

    /// The frame at the head of the queue.
    #[inline]
    #[must_use]
    pub fn queued<B: Buffer>(&self, store: &Store<B>) -> Option<Queued> {
        if self.queued == 0 {
            return None;
        }
        let (at, word) = store.header(self.middle);
        Some(Queued { word, arrived: Instant(at) })
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
            bytes += u64::from(word & LENGTH);
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
            store.forget(c, word);
        }
        self.leave(store, word, fate);
    }

    /// As [`Fifo::depart`], for the frame at the head of the queue, which is `queued`, with a due
    /// time.
    #[inline]
    pub fn delay<B: Buffer>(&mut self, store: &mut Store<B>, queued: Queued, due: Instant) {
        self.leave(store, queued.word, Some(due));
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
        if word & KEPT == 0 {
            let (tag, whole) = (tag_len(word), tag_len(word) + (word & LENGTH));
            store.gather(c, whole);
            let scratch = std::mem::take(&mut store.scratch);
            let (tag, frame) = scratch[..whole as usize].split_at(tag as usize);
            let pushed = other.push(store, due, frame, tag);
            store.scratch = scratch;
            pushed?;
        } else {
            // The buffer goes with it.
            let (tag, place) = (store.tag(c, word), store.place(c, word) as u32);
            let record = other.append(store, size(word))?;
            store.write_place(record, (due, word), &tag, place);
        }
        other.depart(store, Some(due));
        self.leave(store, word, None);
        Ok(())
    }

    /// The frame at the head of the queue, with `word` in its record, enters the delay line.
    #[inline(always)]
    fn leave<B: Buffer>(&mut self, store: &mut Store<B>, word: u32, fate: Option<Instant>) {
        let c = self.middle;
        if self.delayed == 0 {
            (self.due, self.head_lost) = (fate.unwrap_or_default(), fate.is_none());
        }
        match fate {
            Some(due) => store.write_time(c, due.0),
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

    /// The head of the delay line.
    #[inline]
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        if self.delayed == 0 {
            return None;
        }
        Some(if self.head_lost { Head::Lost } else { Head::Due(self.due) })
    }

    /// When the record at the head of the delay line is to be removed; [`Instant::ZERO`] if its frame was lost.
    #[inline]
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        (self.delayed > 0).then_some(self.due)
    }

    /// Frames in the queue and in the delay line.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.queued + self.delayed - self.lost
    }

    /// Whether it has no records, not even of frames that were lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records() == 0
    }

    /// Records, those of frames that were lost included.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.queued + self.delayed
    }

    #[must_use]
    pub fn queue_len(&self) -> u32 {
        self.queued
    }

    /// Hints the processor that a frame will be appended.
    #[inline]
    pub fn prefetch_tail<B: Buffer>(&self, store: &Store<B>) {
        store.prefetch(self.tail);
    }

    /// Hints the processor that frames will leave the queue.
    #[inline]
    pub fn prefetch_queue<B: Buffer>(&self, store: &Store<B>) {
        store.prefetch(self.middle);
    }

    /// Hints the processor that the record at the head will be read.
    #[inline]
    pub fn prefetch_head<B: Buffer>(&self, store: &Store<B>) {
        store.prefetch(self.head);
    }

    /// The frame at the head of the delay line, with its tag, and its length; none if it was lost.
    #[inline]
    #[must_use]
    pub fn frame<'a, B: Buffer>(&self, store: &'a mut Store<B>) -> Option<Held<'a, B>> {
        if self.delayed == 0 {
            return None;
        }
        let (_, word) = store.header(self.head);
        self.framed(store, word)
    }

    /// As [`Fifo::frame`], with `word` in its record.
    #[inline(always)]
    fn framed<'a, B: Buffer>(&self, store: &'a mut Store<B>, word: u32) -> Option<Held<'a, B>> {
        if is_plain(word) {
            let frame = store.packed(self.head, word);
            return Some((Frame::Bytes(frame), Tagged::new(frame, 0), word));
        }
        // Taken apart, so that those of a plain frame stay in registers.
        let (frame, tagged, len) = self.framed_specially(store, word)?;
        Some((frame, tagged, len))
    }

    #[inline(never)]
    fn framed_specially<'a, B: Buffer>(
        &self,
        store: &'a mut Store<B>,
        word: u32,
    ) -> Option<Held<'a, B>> {
        let (tag, len) = (tag_len(word), word & LENGTH);
        let at = tag as usize;
        match (word & LOST, word & KEPT) {
            (0, 0) => {
                let whole = store.packed(self.head, tag + len);
                Some((Frame::Bytes(&whole[at..]), Tagged::new(whole, at), len))
            }
            (0, _) => {
                if tag > 0 {
                    store.gather(self.head, tag);
                }
                let place = store.place(self.head, word);
                let tagged = Tagged::new(&store.scratch[..at], at);
                Some((Frame::Buffer(&mut store.kept[place]), tagged, len))
            }
            _ => None,
        }
    }

    /// Takes the frame at the head of the delay line out.
    #[inline]
    pub fn pop<B: Buffer>(&mut self, store: &mut Store<B>) {
        if self.delayed > 0 {
            let (_, word) = store.header(self.head);
            self.pop_word(store, word);
        }
    }

    /// Takes the frame at the head of the delay line, with `word` in its record, out. Returns the word of
    /// the next one there, or zero.
    #[inline(always)]
    fn pop_word<B: Buffer>(&mut self, store: &mut Store<B>, word: u32) -> u32 {
        let from = self.head;
        if word & (KEPT | LOST) != 0 {
            if word & LOST == 0 {
                store.forget_released(from, word);
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
            return word;
        }
        if self.queued > 0 {
            self.head = self.middle;
            store.give_back(from.segment, self.head.segment);
        } else {
            // Frees the last segment as well.
            store.give_back(from.segment, NONE);
            *self = Self::default();
        }
        0
    }

    /// Takes up to `most` frames that are due at `now` out of the delay line, as long as `offer` takes them,
    /// and the records of lost ones before them. Returns the number of frames, and whether `offer` has refused
    /// the next one.
    #[inline]
    pub fn release<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        now: Instant,
        most: usize,
        mut offer: impl FnMut(Instant, Held<'_, B>) -> bool,
    ) -> (usize, bool) {
        let mut n = 0;
        if self.delayed == 0 {
            return (n, false);
        }
        let (_, mut word) = store.header(self.head);
        // A frame that was lost is due at once.
        while n < most && self.due <= now && self.delayed > 0 {
            if let Some(held) = self.framed(store, word) {
                if !offer(self.due, held) {
                    return (n, true);
                }
                n += 1;
                word = self.pop_word(store, word);
            } else {
                word = self.remove_lost(store);
                if self.head_lost {
                    break;
                }
            }
        }
        (n, false)
    }

    /// Removes the records of lost frames at the head of the delay line, up to [`REMOVED`]. Returns the word
    /// of the next record there, or zero.
    #[inline(never)]
    pub fn remove_lost<B: Buffer>(&mut self, store: &mut Store<B>) -> u32 {
        for _ in 0..REMOVED {
            if !self.head_lost || self.delayed == 0 {
                break;
            }
            self.pop(store);
        }
        if self.delayed > 0 { store.header(self.head).1 } else { 0 }
    }
}
