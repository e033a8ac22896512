// SPDX-License-Identifier: Apache-2.0
//! Phantom frames of cross traffic ([`crate::cross`]) in the queue.
//!
//! They arrive while the pipe is advanced, in the order of time: at equal instants first a frame
//! leaves the shaper, then a phantom frame arrives, then a real one. Each takes a record without
//! bytes in the queue. It is never marked, draws nothing from the channel or the delay and
//! has no place in the accounts of real frames, except for the bytes and frames queued.

use crate::cross::Cross;
use crate::frame::Buffer;
use crate::plan::PipePlan;
use crate::rng::StreamKey;
use crate::store::{Head, Place, Store};
use crate::units::Instant;

use super::{AT_ONCE, Pipe, Shared};

impl Pipe {
    /// Starts the process of a plan at `at`, or stops it. An unchanged one continues.
    pub(super) fn set_cross(&mut self, plan: &PipePlan, key: StreamKey, at: Instant) {
        let before = self.cold.cross.take();
        // Behind a beam there is no one queue to fill.
        let plan = plan.cross().filter(|_| !self.is_in_beam());
        self.cold.cross = plan.map(|plan| match before {
            Some(cross) if cross.plan() == plan => cross,
            _ => Box::new(Cross::new(plan, key, at)),
        });
        self.cross_next = self.cold.cross.as_ref().map_or(Instant::MAX, |cross| cross.next());
    }

    /// Stops the process.
    pub(super) fn stop_cross(&mut self) {
        self.cold.cross = None;
        self.cross_next = Instant::MAX;
    }

    /// Whether phantom frames arrive.
    #[inline]
    pub(super) fn has_cross(&self) -> bool {
        self.cross_next != Instant::MAX
    }

    /// When the queue has to be served for phantom frames, so that there is never much
    /// to catch up with at once.
    pub(super) fn look_at_cross(&self) -> Instant {
        match &self.cold.cross {
            Some(cross) if self.has_cross() => cross.ahead(AT_ONCE / 2),
            _ => Instant::MAX,
        }
    }

    /// The next phantom frame arrives. The queue has been served up to that instant.
    #[inline(never)]
    pub(super) fn cross_arrives<B: Buffer>(&mut self, shared: &mut Shared<B>) {
        let Some(cross) = &mut self.cold.cross else { return };
        let (at, len) = (cross.next(), cross.plan().frame);
        cross.advance();
        self.cross_next = cross.next();
        self.cold.cross_offered.add(len);
        let fills = self.queued.saturating_add(u64::from(len));
        let admitted = fills <= self.admitted || self.judge(at, self.queued, len, &[]).is_ok();
        // Without memory for its record it does not count in the queue. Real frames are then
        // dropped as overload.
        if !admitted || self.fifo.push_phantom(&mut shared.store, at, len).is_err() {
            self.cold.cross_dropped.add(len);
            return;
        }
        self.phantoms += 1;
        self.queued = fills;
        self.queued_max = self.queued_max.max(fills);
        if self.shaper.is_idle() {
            if self.extras.watched {
                self.attach(at, Some(at));
            }
            self.shaper.start(at, len);
        }
    }

    /// Whether a phantom frame is at a place.
    #[inline]
    pub(super) fn is_phantom<B: Buffer>(&self, store: &Store<B>, place: Option<Place>) -> bool {
        self.phantoms > 0 && place.is_some_and(|place| store.is_phantom(place))
    }

    /// The frame at the head of the queue, a phantom one of `len` bytes, leaves it.
    pub(super) fn discard<B: Buffer>(&mut self, shared: &mut Shared<B>, len: u32) {
        self.queued -= u64::from(len);
        self.phantoms -= 1;
        if self.phantoms == 0 {
            self.look_for_special();
        }
        self.fifo.depart(&mut shared.store, None);
        // Else it keeps its place until the frames before it have left; a beam relies on that.
        if !self.is_in_beam() && self.fifo.head() == Some(Head::Lost) {
            self.fifo.pop(&mut shared.store);
        }
    }

    /// Stops the process of a pipe without real frames and frees its memory.
    pub fn retire<B: Buffer>(&mut self, shared: &mut Shared<B>) {
        self.stop_cross();
        while self.phantoms > 0
            && let Some(head) = self.fifo.queued(&shared.store)
        {
            self.discard(shared, head.bytes());
        }
        self.shaper.rest();
        self.look_later();
        self.look_for_special();
    }
}
