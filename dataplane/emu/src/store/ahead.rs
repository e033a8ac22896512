// SPDX-License-Identifier: Apache-2.0
//! A fourth cursor, of fifos with a queue that is served twice: first by the shaper of
//! the client, then by a beam that several clients share ([`crate::beam`]).
//!
//! ```text
//! head ──────────► middle ──────────► ahead ──────────► tail
//!   the delay line   waiting for the   waiting for the
//!                    beam              shaper
//! ```
//!
//! A record that is dropped at this cursor keeps its place, as in docs/adr/0003. The record at
//! the middle is never such a record.

use super::{Cursor, Fifo, LENGTH, LOST, Place, Store, after};
use crate::frame::Buffer;
use crate::units::Instant;

/// The frame that the shaper serves next.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    at: Cursor,
    /// Records between the middle and here, the dropped ones included.
    passed: u32,
    /// Records of frames that were dropped, among those.
    gone: u32,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { at: Cursor::NOWHERE, passed: 0, gone: 0 }
    }
}

impl Ahead {
    /// Frames between the middle and here.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.passed - self.gone
    }

    /// Records in the queue of frames that were dropped.
    #[must_use]
    pub fn gone(&self) -> u32 {
        self.gone
    }
}

impl Fifo {
    /// A cursor at the head of the queue.
    #[must_use]
    pub fn ahead(&self) -> Ahead {
        Ahead { at: self.middle, passed: 0, gone: 0 }
    }

    /// A frame was appended at `place`.
    #[inline]
    pub fn appended(&self, ahead: &mut Ahead, place: Place) {
        if ahead.passed + 1 == self.queued {
            ahead.at = place.0;
        }
    }

    /// The length of the frame at the cursor, and when it arrived.
    #[inline]
    #[must_use]
    pub fn ahead_of<B: Buffer>(&self, store: &Store<B>, ahead: &Ahead) -> Option<(u32, Instant)> {
        if ahead.passed == self.queued {
            return None;
        }
        let (at, word) = store.header(ahead.at);
        Some((word & LENGTH, Instant(at)))
    }

    /// Where the frame at the cursor is.
    #[must_use]
    pub fn place_ahead(&self, ahead: &Ahead) -> Option<Place> {
        (ahead.passed < self.queued).then_some(Place(ahead.at))
    }

    /// Moves the cursor over its frame.
    #[inline]
    pub fn pass<B: Buffer>(&self, store: &Store<B>, ahead: &mut Ahead) {
        if ahead.passed == self.queued {
            return;
        }
        ahead.passed += 1;
        if ahead.passed < self.queued {
            let (_, word) = store.header(ahead.at);
            ahead.at = after(store, ahead.at, word);
        }
    }

    /// Drops the frame at the cursor; some frame waits before it.
    pub fn drop_ahead<B: Buffer>(&mut self, store: &mut Store<B>, ahead: &mut Ahead) {
        if ahead.passed == self.queued || ahead.passed == 0 {
            return;
        }
        let c = ahead.at;
        self.pass(store, ahead);
        store.lose(c);
        self.lost += 1;
        ahead.gone += 1;
    }

    /// The frame at the head of the queue, which had passed, has departed: so do those behind
    /// it that were dropped.
    #[inline]
    pub fn departed<B: Buffer>(&mut self, store: &Store<B>, ahead: &mut Ahead) {
        ahead.passed = ahead.passed.saturating_sub(1);
        while ahead.gone > 0 {
            let c = self.middle;
            let (_, word) = store.header(c);
            if word & LOST == 0 {
                break;
            }
            ahead.passed -= 1;
            ahead.gone -= 1;
            self.queued -= 1;
            self.delayed += 1;
            if self.queued > 0 {
                self.middle = after(store, c, word);
            }
        }
    }

    /// Bytes behind the frame at the head of the queue, or behind that at the cursor if there
    /// is one, that arrived before `before`: exact up to `enough`, and else more than that.
    #[must_use]
    pub fn behind_either<B: Buffer>(
        &self,
        store: &Store<B>,
        cursor: Option<&Ahead>,
        before: Instant,
        enough: u64,
    ) -> u64 {
        let (mut c, first) = cursor.map_or((self.middle, 0), |a| (a.at, a.passed));
        let mut bytes = 0;
        for _ in first + 1..self.queued {
            c = after(store, c, store.header(c).1);
            let (at, word) = store.header(c);
            if word & LOST != 0 {
                continue;
            }
            if at >= before.0 || bytes > enough {
                break;
            }
            bytes += u64::from(word & LENGTH);
        }
        bytes
    }
}
