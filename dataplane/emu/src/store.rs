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
//! Frames are copied in and out, so that the memory a link needs depends on the
//! bytes it holds and not on the size of a driver's buffers, and no driver buffer
//! is held for longer than a turn of the run loop (docs/adr/0002). A record never
//! straddles segments; what is left of one is less than a frame. After L. Rizzo's
//! TLEM, which packs into one ring per path.
//!
//! Memory is touched when it is first used and then reused last in, first out. A
//! fifo that runs empty holds no segment.

use crate::units::Instant;

/// Bytes in a segment.
pub const SEGMENT: u32 = 32 * 1024;
/// Bytes of a record's header.
pub const HEADER: u32 = 12;
/// Records begin at multiples of this.
const ALIGN: u32 = 4;
/// The longest frame that the store takes: three in a segment.
pub const MAX_FRAME: u32 = 10_224;

const NONE: u32 = u32::MAX;
const LOST: u32 = 1 << 31;

/// Bytes that a frame of `len` takes in a segment.
#[must_use]
pub const fn record_size(len: u32) -> u32 {
    HEADER + len.next_multiple_of(ALIGN)
}

/// An arena of segments, shared by the fifos of one engine.
#[derive(Debug)]
pub struct Store {
    bytes: Vec<u8>,
    /// The segment after this one, in a fifo or in the free list.
    next: Vec<u32>,
    /// How far a segment is written.
    fill: Vec<u32>,
    free: u32,
    /// Segments from here on have never been used.
    fresh: u32,
    used: u32,
    used_max: u32,
}

/// The store has no free segment.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl Store {
    /// A store of `capacity` bytes, rounded down to segments, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let n = (capacity / SEGMENT as usize).clamp(1, NONE as usize - 1);
        Self {
            // Zeroed memory comes untouched from the system.
            bytes: vec![0; n * SEGMENT as usize],
            next: vec![NONE; n],
            fill: vec![0; n],
            free: NONE,
            fresh: 0,
            used: 0,
            used_max: 0,
        }
    }

    /// Size in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.bytes.len() as u64
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

    /// Starts the high-water mark anew.
    pub fn mark(&mut self) {
        self.used_max = self.used;
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
        self.fill[segment as usize] = 0;
        self.used += 1;
        self.used_max = self.used_max.max(self.used);
        Ok(segment)
    }

    fn give(&mut self, segment: u32) {
        self.next[segment as usize] = self.free;
        self.free = segment;
        self.used -= 1;
    }

    fn at(c: Cursor) -> usize {
        c.segment as usize * SEGMENT as usize + c.offset as usize
    }

    fn header(&self, c: Cursor) -> (u64, u32) {
        let i = Self::at(c);
        let mut time = [0; 8];
        let mut word = [0; 4];
        time.copy_from_slice(&self.bytes[i..i + 8]);
        word.copy_from_slice(&self.bytes[i + 8..i + 12]);
        (u64::from_ne_bytes(time), u32::from_ne_bytes(word))
    }

    fn write_header(&mut self, c: Cursor, time: u64, word: u32) {
        let i = Self::at(c);
        self.bytes[i..i + 8].copy_from_slice(&time.to_ne_bytes());
        self.bytes[i + 8..i + 12].copy_from_slice(&word.to_ne_bytes());
    }

    fn frame(&self, c: Cursor, len: u32) -> &[u8] {
        let i = Self::at(c) + HEADER as usize;
        &self.bytes[i..i + len as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    segment: u32,
    offset: u32,
}

impl Cursor {
    const NOWHERE: Self = Self { segment: NONE, offset: 0 };
}

/// A frame at the head of the delay line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready<'a> {
    /// When it is due.
    pub due: Instant,
    /// The frame.
    pub frame: &'a [u8],
}

/// The frames of one pipe, in order.
#[derive(Debug)]
pub struct Fifo {
    head: Cursor,
    middle: Cursor,
    tail: Cursor,
    /// Records between middle and tail.
    queued: u32,
    /// Records between head and middle, the lost ones included.
    delayed: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        let c = Cursor::NOWHERE;
        Self { head: c, middle: c, tail: c, queued: 0, delayed: 0 }
    }
}

impl Fifo {
    /// Appends a frame to the queue.
    ///
    /// # Errors
    /// [`Full`] if it needs a segment and the store has none, or if the frame is
    /// longer than [`MAX_FRAME`]; nothing has changed then.
    pub fn push(&mut self, store: &mut Store, frame: &[u8]) -> Result<(), Full> {
        let len = u32::try_from(frame.len()).map_err(|_| Full)?;
        if len > MAX_FRAME {
            return Err(Full);
        }
        let size = record_size(len);
        if self.tail.segment == NONE {
            self.tail = Cursor { segment: store.take()?, offset: 0 };
            (self.head, self.middle) = (self.tail, self.tail);
        } else if self.tail.offset + size > SEGMENT {
            let segment = store.take()?;
            store.next[self.tail.segment as usize] = segment;
            self.tail = Cursor { segment, offset: 0 };
        }
        store.write_header(self.tail, 0, len);
        let i = Store::at(self.tail) + HEADER as usize;
        store.bytes[i..i + frame.len()].copy_from_slice(frame);
        self.tail.offset += size;
        store.fill[self.tail.segment as usize] = self.tail.offset;
        self.queued += 1;
        Ok(())
    }

    /// The length of the frame at the head of the queue.
    #[must_use]
    pub fn queued_len(&self, store: &Store) -> Option<u32> {
        (self.queued > 0).then(|| store.header(resolve(store, self.middle)).1)
    }

    /// Moves the frame at the head of the queue into the delay line, due at `due`,
    /// or marks it as lost on the channel.
    pub fn depart(&mut self, store: &mut Store, fate: Option<Instant>) {
        if self.queued == 0 {
            return;
        }
        let c = resolve(store, self.middle);
        let (_, len) = store.header(c);
        match fate {
            Some(due) => store.write_header(c, due.0, len),
            None => store.write_header(c, 0, len | LOST),
        }
        self.middle = Cursor { segment: c.segment, offset: c.offset + record_size(len) };
        self.queued -= 1;
        self.delayed += 1;
        if fate.is_none() {
            self.skip_lost(store);
        }
    }

    /// The frame at the head of the delay line.
    #[inline]
    #[must_use]
    pub fn ready<'a>(&self, store: &'a Store) -> Option<Ready<'a>> {
        if self.delayed == 0 {
            return None;
        }
        let c = resolve(store, self.head);
        let (due, len) = store.header(c);
        Some(Ready { due: Instant(due), frame: store.frame(c, len) })
    }

    /// When the frame at the head of the delay line is due.
    #[inline]
    #[must_use]
    pub fn ready_due(&self, store: &Store) -> Option<Instant> {
        (self.delayed > 0).then(|| Instant(store.header(resolve(store, self.head)).0))
    }

    /// Takes the frame at the head of the delay line out.
    pub fn pop(&mut self, store: &mut Store) {
        if self.delayed > 0 {
            self.drop_head(store);
            self.skip_lost(store);
        }
    }

    /// Keeps the head on a frame that was not lost.
    fn skip_lost(&mut self, store: &mut Store) {
        while self.delayed > 0 && store.header(resolve(store, self.head)).1 & LOST != 0 {
            self.drop_head(store);
        }
    }

    fn drop_head(&mut self, store: &mut Store) {
        let c = self.enter(store, self.head);
        let len = store.header(c).1 & !LOST;
        self.head = Cursor { segment: c.segment, offset: c.offset + record_size(len) };
        self.delayed -= 1;
        if self.delayed == 0 && self.queued == 0 {
            // Head and tail are in one segment now: the last.
            store.give(self.head.segment);
            *self = Self::default();
        } else if self.head.offset == store.fill[self.head.segment as usize] {
            self.enter(store, self.head);
        }
    }

    /// Where the record at `c` begins; gives segments back that the head has left.
    fn enter(&mut self, store: &mut Store, c: Cursor) -> Cursor {
        let to = resolve(store, c);
        if to.segment != c.segment {
            if self.middle.segment == c.segment {
                // The delay line is empty and the queue begins where the head does.
                self.middle = to;
            }
            self.head = to;
            store.give(c.segment);
        }
        to
    }
}

/// A cursor at the end of a segment with a successor stands for the successor's start.
#[inline]
fn resolve(store: &Store, c: Cursor) -> Cursor {
    let s = c.segment as usize;
    if c.offset == store.fill[s] && store.next[s] != NONE {
        Cursor { segment: store.next[s], offset: 0 }
    } else {
        c
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u16),
        Depart(bool),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => prop_oneof![Just(60_u16), 1_u16..2000, Just(10_224)].prop_map(Step::Push),
            2 => any::<bool>().prop_map(Step::Depart),
            2 => Just(Step::Pop),
        ]
    }

    proptest! {
        /// Two fifos in one store behave as two double-ended queues do, and give
        /// all memory back.
        #[test]
        fn a_fifo_keeps_every_byte_in_order(steps in prop::collection::vec((any::<bool>(), step()), 1..400)) {
            let mut store = Store::new(12 * SEGMENT as usize);
            let mut fifos = [Fifo::default(), Fifo::default()];
            let mut queued = [VecDeque::new(), VecDeque::new()];
            let mut delayed: [VecDeque<(u64, Vec<u8>)>; 2] = Default::default();
            for (n, (which, step)) in steps.into_iter().enumerate() {
                let i = usize::from(which);
                let f = &mut fifos[i];
                match step {
                    Step::Push(len) => {
                        let frame: Vec<u8> = (0..len).map(|b| (b as u8) ^ (n as u8)).collect();
                        if f.push(&mut store, &frame).is_ok() {
                            queued[i].push_back(frame);
                        }
                    }
                    Step::Depart(survives) => {
                        let due = survives.then_some(Instant(n as u64));
                        f.depart(&mut store, due);
                        if let Some(frame) = queued[i].pop_front() && survives {
                            delayed[i].push_back((n as u64, frame));
                        }
                    }
                    Step::Pop => {
                        f.pop(&mut store);
                        delayed[i].pop_front();
                    }
                }
                for i in 0..2 {
                    let ready = fifos[i].ready(&store).map(|r| (r.due.0, r.frame.to_vec()));
                    prop_assert_eq!(ready, delayed[i].front().cloned());
                    prop_assert_eq!(fifos[i].queued_len(&store), queued[i].front().map(|f: &Vec<u8>| f.len() as u32));
                }
            }
            for (i, f) in fifos.iter_mut().enumerate() {
                for _ in 0..queued[i].len() {
                    f.depart(&mut store, Some(Instant(0)));
                }
                while f.ready(&store).is_some() {
                    f.pop(&mut store);
                }
            }
            prop_assert_eq!(store.used(), 0);
        }
    }

    #[test]
    fn a_full_store_refuses_and_stays_whole() {
        let mut store = Store::new(2 * SEGMENT as usize);
        let mut f = Fifo::default();
        let mut n = 0;
        while f.push(&mut store, &[7; 1514]).is_ok() {
            n += 1;
        }
        assert_eq!(n, 2 * (SEGMENT / record_size(1514)));
        for _ in 0..n {
            f.depart(&mut store, Some(Instant(1)));
            f.pop(&mut store);
        }
        assert_eq!(store.used(), 0);
        assert!(f.push(&mut store, &[7; 1514]).is_ok());
    }
}
