// SPDX-License-Identifier: Apache-2.0
//! Arrival: the MTU, duplication, admission by the AQM and the limit, and the way into the queue.

use crate::aqm::Verdict;
use crate::duplicate::Duplicate;
use crate::ecn;
use crate::frame::{Buffer, Frame, Label};
use crate::mtu::Answer;
use crate::observe::Event;
use crate::stats::DropReason;
use crate::store::Place;
use crate::units::Instant;

use super::{AT_ONCE, Cold, LAG, LOOK_AFTER, Pipe, Served, Shared};

impl Pipe {
    /// A frame of `len` bytes arrives at `at` with `tag`.
    #[inline]
    pub fn arrive<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        frame: Frame<'_, B>,
        len: u32,
        tag: &[u8],
    ) {
        self.received.add(len);
        if self.extras.duplicates {
            self.duplicate(shared, at, frame.bytes(), len, tag);
        }
        self.take_in(shared, at, frame, len, tag);
    }

    /// Frames without tags arrive at `at`, at a pipe that is plain. Those longer than `copy_break` bytes
    /// may be kept. As [`Pipe::arrive`] for one after the other.
    #[inline]
    pub fn arrive_run<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        run: &mut [Option<B>],
        copy_break: u32,
    ) {
        debug_assert!(self.plain);
        let waits = !self.shaper.is_unlimited();
        if waits && !self.may_lag() {
            self.serve_plain_until(shared, at);
        }
        let mut packets = 0;
        for slot in run {
            let Some(buffer) = slot.as_ref() else { continue };
            let len = buffer.bytes().len() as u32;
            packets += 1;
            self.received.bytes += u64::from(len);
            let mut fills = u64::from(len) + if waits { self.queued } else { 0 };
            if waits && fills > self.queued_max.min(self.admitted) {
                // Frames that have left the queue by now do not count.
                self.serve_plain_until(shared, at);
                fills = u64::from(len) + self.queued;
            }
            let mut frame =
                if len <= copy_break { Frame::Bytes(buffer.bytes()) } else { Frame::Buffer(slot) };
            if fills > self.admitted {
                self.take_in(shared, at, frame, len, &[]);
                continue;
            }
            if self.enqueue(shared, at, &mut frame, (len, fills), &[]).is_none() {
                continue;
            }
            if self.shaper.is_idle() {
                self.shaper.start(at, len);
                if waits {
                    // An opportunity may be at `at`.
                    self.serve_plain_until(shared, at);
                }
            }
        }
        self.received.packets += packets;
        if !waits {
            // They have left already.
            self.serve_plain_until(shared, at);
        } else if self.look == Instant::MAX && self.queued > u64::from(LOOK_AFTER) {
            self.look_later();
        }
    }

    /// Whether an arriving frame may find some in the queue of a plain pipe that have left it by then: fates do
    /// not depend on when the pipe is advanced, and it costs less to let several frames leave at once.
    #[inline]
    #[must_use]
    pub fn may_lag(&self) -> bool {
        self.shaper.is_constant() && self.fifo.queue_len() <= LAG
    }

    /// A copy of a frame arrives before it, if the draw says so.
    #[inline(never)]
    fn duplicate<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        frame: &[u8],
        len: u32,
        tag: &[u8],
    ) {
        if self.cold.duplicate.as_mut().is_some_and(Duplicate::doubles) {
            self.cold.duplicated.add(len);
            self.take_in(shared, at, Frame::Bytes(frame), len, tag);
        }
    }

    /// Whether a frame of `len` bytes may hold a packet above the MTU.
    #[inline]
    #[must_use]
    pub fn checks_mtu(&self, len: u32) -> bool {
        len > u32::from(self.unchecked)
    }

    /// Drops a frame that arrives at `at` if its packet is above the MTU, and writes the answer for
    /// its sender, of up to `longest` bytes. Returns whether it was dropped.
    ///
    /// A frame with a tag is not answered unless its label says that an answer gets the same one: the
    /// core does not know what is in it.
    pub fn drop_above_mtu<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        frame: (&[u8], u32),
        label: Label<'_>,
        longest: u32,
        answer: &mut Answer,
    ) -> bool {
        let Some(mtu) = self.cold.mtu.as_mut().filter(|mtu| mtu.is_exceeded(frame.0)) else {
            return false;
        };
        if label.tag.is_empty() || label.tags_answer {
            mtu.answer(at, frame.0, longest, answer);
        }
        self.reject(shared, at, DropReason::Mtu, frame, label.tag);
        true
    }

    /// A frame that the link made enters at `at` with `tag`.
    pub fn generate<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        frame: &[u8],
        tag: &[u8],
    ) {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        self.cold.generated.add(len);
        self.take_in(shared, at, Frame::Bytes(frame), len, tag);
    }

    /// A counted frame is enqueued or dropped.
    #[inline]
    fn take_in<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        mut frame: Frame<'_, B>,
        len: u32,
        tag: &[u8],
    ) {
        // Without a rate limit nothing is queued, except for frames of an earlier plan, which do
        // not matter here.
        if self.has_queue() {
            self.serve_until(shared, at);
        }
        let observed;
        let tag = if self.observed {
            observed = self.observe_arrival(shared, at, tag, (frame.bytes(), len));
            &*observed
        } else {
            tag
        };
        let mut queued = self.queue_bytes();
        let mut fills = queued.saturating_add(u64::from(len));
        let mut mark = false;
        if fills > self.queued_max && self.lags(at) {
            // A high-water mark is exact, no matter how far the queue lags.
            while self.serve(shared, at, AT_ONCE) > 0 {}
            queued = self.queue_bytes();
            fills = queued.saturating_add(u64::from(len));
        }
        if fills > self.admitted {
            self.make_room(shared, at, len);
            queued = self.queue_bytes();
            fills = queued.saturating_add(u64::from(len));
            match self.judge(at, queued, len, frame.bytes()) {
                Ok(marks) => mark = marks,
                Err(reason) => {
                    return self.turn_away(shared, at, reason, (frame.bytes(), len), tag);
                }
            }
        }
        let Some(place) = self.enqueue(shared, at, &mut frame, (len, fills), tag) else { return };
        if mark {
            self.mark_at(shared, at, place, len);
        }
        if self.served == Served::ByBeam {
            self.joined(at, len, place);
        } else if self.shaper.is_idle() {
            if self.extras.watched {
                self.attach(at, Some(at));
            }
            self.shaper.start(at, len);
            // Without a rate limit it has left already.
            self.serve_until(shared, at);
        } else if self.look == Instant::MAX && self.queued > u64::from(LOOK_AFTER) {
            self.look_later();
        }
    }

    /// Stores a frame of `len` bytes, which has been admitted and fills the queue to `fills` bytes.
    /// Without memory it is dropped.
    #[inline(always)]
    fn enqueue<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        frame: &mut Frame<'_, B>,
        (len, fills): (u32, u64),
        tag: &[u8],
    ) -> Option<Place> {
        let pushed = match frame {
            Frame::Bytes(bytes) => self.fifo.push(&mut shared.store, at, bytes, tag),
            Frame::Buffer(buffer) => self.fifo.keep(&mut shared.store, at, buffer, tag),
        };
        let Ok(place) = pushed else {
            self.turn_away(shared, at, DropReason::Overload, (frame.bytes(), len), tag);
            return None;
        };
        self.held += u64::from(len);
        self.queued += u64::from(len);
        self.queued_max = self.queued_max.max(fills);
        Some(place)
    }

    /// Counts a frame that is dropped before it reaches the pipe's queue.
    pub fn reject<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        reason: DropReason,
        (frame, len): (&[u8], u32),
        tag: &[u8],
    ) {
        self.received.add(len);
        let observed;
        let tag = if self.observed {
            observed = self.observe_arrival(shared, at, tag, (frame, len));
            &*observed
        } else {
            tag
        };
        self.turn_away(shared, at, reason, (frame, len), tag);
    }

    /// A frame that arrived is dropped.
    #[inline]
    fn turn_away<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        reason: DropReason,
        frame: (&[u8], u32),
        tag: &[u8],
    ) {
        self.cold.dropped[reason as usize].add(frame.1);
        if self.observed {
            self.observe_outside(shared, Event::Dropped(reason), at, tag, frame);
        }
    }

    /// Whether the AQM has yet to drop frames that were no longer in the queue at `at`.
    #[inline]
    fn lags(&self, at: Instant) -> bool {
        self.extras.watched && self.shaper.finish().is_some_and(|finish| finish <= at)
    }

    /// If the queue lags behind `at`, serves it until a frame of `len` bytes that arrives
    /// then is admitted, or it no longer lags.
    #[inline(never)]
    fn make_room<B: Buffer>(&mut self, shared: &mut Shared<B>, at: Instant, len: u32) {
        let limit = self.cold.aqm.plan().limit;
        let Some(room) = limit.checked_sub(len.into()) else { return };
        while self.queue_bytes() > room && self.serve(shared, at, 1) > 0 {}
    }

    /// Whether to mark a frame that finds `queued` bytes, or why it is dropped.
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
