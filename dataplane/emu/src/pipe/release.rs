// SPDX-License-Identifier: Apache-2.0
//! Release: frames that are due at the head of the delay line, and the pipe's next deadline.

use crate::frame::Buffer;
use crate::store::{Head, Held, Store};
use crate::units::{Instant, Nanos};

use super::{Pipe, Shared};

impl Pipe {
    /// The next deadline: the first frame is due, or the shaper
    /// will have its due time, or the queue has to be served. [`Instant::MAX`] if there is none.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let next = match self.fifo.next_due() {
            Some(due) => due,
            None => self.next_served(),
        };
        let next = next.min(self.look);
        if self.plain { next } else { self.or_aside(next) }
    }

    /// When the next frame that becomes due has been served: none does while only phantom frames wait, or
    /// in a beam.
    #[inline(never)]
    fn next_served(&self) -> Instant {
        let waits = self.plain || !self.has_cross() || self.fifo.queue_len() > self.phantoms;
        let finish = self.shaper.finish().filter(|_| waits && !self.is_in_beam());
        finish.unwrap_or(Instant::MAX)
    }

    /// `next`, or when the first frame that is held back is due.
    #[inline(never)]
    fn or_aside(&self, next: Instant) -> Instant {
        next.min(self.aside_due)
    }

    /// The head of the delay line, if it can leave at `now`.
    fn due(&self, now: Instant) -> Option<Head> {
        if self.aside_due <= now && self.is_aside_first() {
            return Some(Head::Due(self.aside_due));
        }
        self.fifo.head().filter(|h| match h {
            Head::Due(due) => *due <= now,
            Head::Lost => true,
        })
    }

    /// The frame at the head of the delay line; none if it was lost. It will be offered to the
    /// egress.
    fn frame<'a, B: Buffer>(&self, shared: &'a mut Shared<B>) -> Option<Held<'a, B>> {
        let fifo = if self.is_aside_first() { &self.cold.aside } else { &self.fifo };
        if self.observed {
            self.observe_offer(shared, fifo);
        }
        fifo.frame(&mut shared.store)
    }

    /// The frame at the head of the delay line, of `len` bytes, has been sent, `late` after it was
    /// due.
    fn sent<B: Buffer>(&mut self, shared: &mut Shared<B>, len: u32, due: Instant, late: Nanos) {
        if self.observed
            && let Some(observer) = &mut shared.observer
        {
            observer.sent(due + late);
        }
        self.lateness.count(late);
        self.sent += u64::from(len);
        self.held -= u64::from(len);
        if self.is_aside_first() {
            self.sent_aside(shared);
        } else {
            self.fifo.pop(&mut shared.store);
        }
    }

    /// Releases up to `most` frames that are due at `now` from a pipe that is plain, and removes the records
    /// of lost ones before them. `offer` gets each frame with its due time; it returns how late the frame was
    /// taken, or nothing if it was not. Returns the number of frames taken, and whether one was refused.
    #[inline]
    pub fn release_run<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        now: Instant,
        most: usize,
        mut offer: impl FnMut(Instant, Held<'_, B>) -> Option<Nanos>,
    ) -> (usize, bool) {
        debug_assert!(self.plain);
        let Self { fifo, lateness, .. } = self;
        let mut sent = 0;
        let released = fifo.release(&mut shared.store, now, most, |due, held| {
            let len = held.2;
            let Some(late) = offer(due, held) else { return false };
            lateness.count(late);
            sent += u64::from(len);
            true
        });
        self.sent += sent;
        self.held -= sent;
        released
    }

    /// As [`Pipe::release_run`], from any pipe.
    #[inline(never)]
    pub fn release_each<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        now: Instant,
        most: usize,
        offer: &mut dyn FnMut(Instant, Held<'_, B>) -> Option<Nanos>,
    ) -> (usize, bool) {
        let mut n = 0;
        while n < most
            && let Some(head) = self.due(now)
        {
            let Head::Due(due) = head else {
                self.fifo.remove_lost(&mut shared.store);
                if self.fifo.head() == Some(Head::Lost) {
                    break;
                }
                continue;
            };
            let Some(held) = self.frame(shared) else { break };
            let len = held.2;
            let Some(late) = offer(due, held) else { return (n, true) };
            self.sent(shared, len, due, late);
            n += 1;
        }
        (n, false)
    }

    /// Prefetches for an arriving frame. Returns whether the frame will advance the queue.
    #[inline]
    pub fn prefetch_tail<B: Buffer>(&self, store: &Store<B>) -> bool {
        self.fifo.prefetch_tail(store);
        let serves = !self.plain || !self.may_lag();
        if serves {
            self.fifo.prefetch_queue(store);
        }
        serves
    }

    #[inline]
    pub fn prefetch_head<B: Buffer>(&self, store: &Store<B>) {
        self.fifo.prefetch_head(store);
    }
}
