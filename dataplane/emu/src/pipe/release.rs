// SPDX-License-Identifier: Apache-2.0
//! Release: frames that are due at the head of the delay line, and the pipe's next deadline.

use crate::frame::Buffer;
use crate::store::{Head, Held, Store};
use crate::units::{Instant, Nanos};

use super::{Pipe, Shared};

impl Pipe {
    /// The next deadline: the first frame is due, or the shaper
    /// will have its due time, or the queue has to be served.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.fifo.head() {
            Some(Head::Due(due)) => Some(due.min(self.look).min(self.aside_due)),
            Some(Head::Lost) => Some(Instant::ZERO),
            None => {
                // While only phantom frames wait, nothing becomes due.
                let comes = !self.has_cross() || self.fifo.queue_len() > self.phantoms;
                let next = self.shaper.finish().filter(|_| comes && !self.in_beam);
                let other = Some(self.aside_due.min(self.look)).filter(|t| *t != Instant::MAX);
                next.into_iter().chain(other).min()
            }
        }
    }

    /// The head of the delay line, if it can leave at `now`.
    #[inline]
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Head> {
        if self.aside_due <= now && self.is_aside_first() {
            return Some(Head::Due(self.aside_due));
        }
        self.fifo.head().filter(|h| match h {
            Head::Due(due) => *due <= now,
            Head::Lost => true,
        })
    }

    /// Prefetches those of the first `most` frames that are due at `now`.
    #[inline]
    pub fn prefetch_kept<B: Buffer>(&self, store: &Store<B>, now: Instant, most: usize) {
        self.fifo.prefetch_kept(store, now, most);
    }

    /// The frame at the head of the delay line; none if it was lost. It will be offered to the
    /// egress.
    #[inline]
    pub fn frame<'a, B: Buffer>(&self, shared: &'a mut Shared<B>) -> Option<Held<'a, B>> {
        let fifo = if self.is_aside_first() { &self.cold.aside } else { &self.fifo };
        if self.observed {
            self.observe_offer(shared, fifo);
        }
        fifo.frame(&mut shared.store)
    }

    /// The frame at the head of the delay line, of `len` bytes, has been sent at `at`, `late`
    /// after it was due.
    #[inline]
    pub fn sent<B: Buffer>(&mut self, shared: &mut Shared<B>, len: u32, at: Instant, late: Nanos) {
        if self.observed
            && let Some(observer) = &mut shared.observer
        {
            observer.sent(at);
        }
        self.lateness.count(late);
        self.sent.add(len);
        self.held -= u64::from(len);
        if self.is_aside_first() {
            self.sent_aside(shared);
        } else {
            self.fifo.pop(&mut shared.store);
        }
    }

    /// Removes a lost frame from the head of the delay line.
    pub fn clear<B: Buffer>(&mut self, shared: &mut Shared<B>) {
        self.fifo.pop(&mut shared.store);
    }

    /// Prefetches for an arriving frame.
    #[inline]
    pub fn prefetch_tail<B: Buffer>(&self, store: &Store<B>) {
        self.fifo.prefetch_tail(store);
    }

    #[inline]
    pub fn prefetch_head<B: Buffer>(&self, store: &Store<B>) {
        self.fifo.prefetch_head(store);
    }
}
