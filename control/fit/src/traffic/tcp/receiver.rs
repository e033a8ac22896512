// SPDX-License-Identifier: Apache-2.0
//! The receiver: cumulative and selective acknowledgements (RFC 2018), delayed in order
//! (RFC 5681 §4.2, and the first ones at once as Linux's quick acknowledgements are).

use std::ops::Range;

use super::ranges::Ranges;

/// Segments at the start of a flow that are acknowledged one by one
/// (`TCP_MAX_QUICKACKS` of the kernel).
const QUICK: u32 = 16;
/// How long the acknowledgement of a single segment is delayed: the kernel's `TCP_DELACK_MIN`.
pub const DELAY_NS: u64 = 40_000_000;
/// SACK blocks beside a timestamp.
const BLOCKS: usize = 3;

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// All segments below have arrived.
    pub next: u32,
    /// Ranges of segments that have arrived, the most recent one first; empty ones are absent.
    pub blocks: [(u32, u32); BLOCKS],
}

impl Ack {
    /// Bytes of its SACK option with padding.
    pub fn option_bytes(&self) -> u16 {
        match self.blocks.iter().filter(|(start, end)| start < end).count() as u16 {
            0 => 0,
            n => 4 + 8 * n,
        }
    }
}

#[derive(Debug, Default)]
pub struct Receiver {
    next: u32,
    early: Ranges,
    /// A segment of each of the ranges that were reported last.
    recent: [u32; BLOCKS],
    /// Segments in order that no acknowledgement has covered.
    pending: u32,
    received: u64,
}

impl Receiver {
    /// Segments that have arrived in order: the number of those that the application has.
    pub fn delivered(&self) -> u32 {
        self.next
    }

    /// Takes a segment. Returns the acknowledgement if it is sent at once; else it is
    /// [`Receiver::delayed`] later.
    pub fn receive(&mut self, number: u32) -> Option<Ack> {
        self.received += 1;
        let in_order = number == self.next;
        let had_holes = !self.early.is_empty();
        if in_order {
            self.next = self.early.advance(number + 1);
            self.pending += 1;
        } else if number > self.next {
            self.early.insert(number..number + 1, |_| {});
            self.recall(number);
        }
        let quick = self.received <= u64::from(QUICK);
        let waits = in_order && !had_holes && !quick && self.pending < 2;
        if waits { None } else { self.delayed() }
    }

    /// Whether an acknowledgement is being delayed.
    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// The acknowledgement of all that has arrived.
    pub fn delayed(&mut self) -> Option<Ack> {
        self.pending = 0;
        let mut blocks = [(0, 0); BLOCKS];
        if !self.early.is_empty() {
            let mut n = 0;
            for recent in self.recent {
                let Some(Range { start, end }) = self.early.containing(recent) else { continue };
                if !blocks[..n].contains(&(start, end)) {
                    blocks[n] = (start, end);
                    n += 1;
                }
            }
        }
        Some(Ack { next: self.next, blocks })
    }

    /// `number` arrived most recently.
    fn recall(&mut self, number: u32) {
        let range = self.early.containing(number);
        let same = |n: &u32| range.as_ref().is_some_and(|r| r.contains(n));
        let last = self.recent.iter().position(same).unwrap_or(BLOCKS - 1);
        self.recent.copy_within(..last, 1);
        self.recent[0] = number;
    }
}
