// SPDX-License-Identifier: Apache-2.0
//! Arrival: duplication, admission by the AQM and the limit, and the way into the queue.

use super::*;

impl Pipe {
    /// A frame that counts as `len` bytes arrives at `at`.
    #[inline]
    pub fn arrive<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        frame: Frame<'_, B>,
        len: u32,
    ) {
        self.received.add(len);
        if self.extras.duplicates {
            self.duplicate(store, at, frame.bytes(), len);
        }
        self.take_in(store, at, frame, len);
    }

    /// A copy of a frame arrives before it, if it is its turn.
    #[inline(never)]
    pub(super) fn duplicate<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        frame: &[u8],
        len: u32,
    ) {
        if self.cold.duplicate.as_mut().is_some_and(Duplicate::doubles) {
            self.cold.duplicated.add(len);
            self.take_in(store, at, Frame::Bytes(frame), len);
        }
    }

    /// A frame that was counted goes into the queue, or is dropped.
    #[inline]
    pub(super) fn take_in<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        mut frame: Frame<'_, B>,
        len: u32,
    ) {
        // Without a limit nothing is queued, or what is on its way out does not matter.
        if self.has_queue() {
            self.serve_until(store, at);
        }
        let inner = store.inner(frame.bytes());
        let tag = if self.tapped { self.see_arrival(store, at, inner, len) } else { None };
        let mut queued = self.queue_bytes();
        let mut fills = queued.saturating_add(u64::from(len));
        let mut mark = false;
        if fills > self.queued_max && self.lags(at) {
            // A high-water mark is of what is there, however far behind the queue is.
            while self.serve(store, at, AT_ONCE) > 0 {}
            queued = self.queue_bytes();
            fills = queued.saturating_add(u64::from(len));
        }
        if fills > self.admitted {
            self.make_room(store, at, len);
            queued = self.queue_bytes();
            fills = queued.saturating_add(u64::from(len));
            match self.judge(at, queued, len, inner) {
                Ok(marks) => mark = marks,
                Err(reason) => return self.turn_away(store, at, reason, (inner, len), tag),
            }
        }
        let pushed = match &mut frame {
            Frame::Bytes(bytes) => self.fifo.push(store, at, bytes, tag),
            Frame::Buffer(buffer) => self.fifo.keep(store, at, buffer, tag),
        };
        let Ok(place) = pushed else {
            let inner = store.inner(frame.bytes());
            return self.turn_away(store, at, DropReason::Overload, (inner, len), tag);
        };
        if store.prefix() != 0 {
            store.edit_shim(place, shim::open);
        }
        if mark && self.mark_at(store, place) {
            self.cold.marked.add(len);
            if self.tapped {
                self.see(store, Point::Marked, at, Some(place), len);
            }
        }
        self.held += u64::from(len);
        self.queued += u64::from(len);
        self.queued_max = self.queued_max.max(fills);
        if self.in_beam {
            self.joined(at, len, place);
        } else if self.shaper.is_idle() {
            if self.extras.watched {
                self.attach(at, Some(at));
            }
            self.shaper.start(at, len);
            // At no rate limit it has left already.
            self.serve_until(store, at);
        } else if self.look == Instant::MAX && self.queued > u64::from(LOOK_AFTER) {
            self.look_later();
        }
    }

    /// Counts a frame that is dropped before it reaches the pipe's queue: all of `frame`.
    pub fn reject<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        reason: DropReason,
        frame: &[u8],
        len: u32,
    ) {
        self.received.add(len);
        let tag = if self.tapped { self.see_arrival(store, at, frame, len) } else { None };
        self.turn_away(store, at, reason, (frame, len), tag);
    }

    /// A frame that arrived is dropped.
    #[inline]
    pub(super) fn turn_away<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        reason: DropReason,
        (frame, len): (&[u8], u32),
        tag: Option<u32>,
    ) {
        self.cold.dropped[reason as usize].add(len);
        if let Some(tag) = tag {
            let number = Some(store.number(tag));
            let seen = self.sighting(Point::Dropped(reason), at, number, len);
            if let Some(tap) = store.tap_mut() {
                tap.see(seen, frame);
            }
        }
    }

    /// Whether the AQM has yet to drop from a queue what was not there any more at `at`.
    #[inline]
    pub(super) fn lags(&self, at: Instant) -> bool {
        self.extras.watched && self.shaper.finish().is_some_and(|finish| finish <= at)
    }

    /// Where the queue lags behind `at`, lets so much of it leave that a frame of `len`
    /// bytes that arrives then is admitted, if that is how it is to be.
    #[inline(never)]
    pub(super) fn make_room<B: Buffer>(&mut self, store: &mut Store<B>, at: Instant, len: u32) {
        let limit = self.cold.aqm.plan().limit;
        let Some(room) = limit.checked_sub(len.into()) else { return };
        while self.queue_bytes() > room && self.serve(store, at, 1) > 0 {}
    }

    /// Whether a frame that finds `queued` bytes is to be marked, or why it is dropped.
    #[inline(never)]
    pub(super) fn judge(
        &mut self,
        at: Instant,
        queued: u64,
        len: u32,
        frame: &[u8],
    ) -> Result<bool, DropReason> {
        let has_queue = self.has_queue();
        let Cold { aqm, stage, .. } = &mut *self.cold;
        if !has_queue {
            let fits = u64::from(len) <= aqm.plan().limit;
            return if fits { Ok(false) } else { Err(DropReason::Limit) };
        }
        match aqm.admit(at, queued, len.into(), self.shaper.rate(at).or(stage.rate)) {
            Verdict::Pass => Ok(false),
            Verdict::Signal if aqm.plan().ecn && ecn::is_capable(frame) => Ok(true),
            Verdict::Signal => Err(DropReason::Aqm),
            Verdict::Drop(reason) => Err(reason),
        }
    }
}
