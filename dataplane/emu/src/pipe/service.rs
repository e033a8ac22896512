// SPDX-License-Identifier: Apache-2.0
//! Service: the shaper takes frames from the queue, the AQM drops or marks those that are next,
//! and the channel and the delay decide their fates.

use crate::aqm::codel::{Candidate, MAX_PACKET};
use crate::corrupt::{self, Corrupt};
use crate::ecn;
use crate::frame::Buffer;
use crate::observe::Event;
use crate::stats::DropReason;
use crate::store::{Place, Queued, Store};
use crate::units::Instant;

use super::{AT_ONCE, LOOK_AFTER, Pipe, Served, Shared};

impl Pipe {
    /// Serves the queue up to and including `t`. Frames that an earlier plan had queued and a
    /// later one releases at once, and frames that the AQM drops from the head of the queue, leave
    /// in parts: other clients' frames do not wait for them, and no fate depends on it.
    #[inline]
    pub fn serve_until<B: Buffer>(&mut self, shared: &mut Shared<B>, t: Instant) {
        if self.cross_next <= t || self.shaper.finish().is_some_and(|finish| finish <= t) {
            let most = match self.shaper.is_unlimited() {
                true => AT_ONCE,
                // A phantom frame is judged by all that happened before.
                false if self.has_cross() => u32::MAX,
                false => self.at_arrival,
            };
            self.serve(shared, t, most);
        }
    }

    /// Lets up to `most` frames leave the queue up to and including `t`, or phantom ones arrive;
    /// returns the number.
    pub(super) fn serve<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        t: Instant,
        most: u32,
    ) -> u32 {
        if self.served != Served::ByShaper {
            return self.serve_elsewhere(shared, t, most);
        }
        let mut served = self.serve_frames::<false, false, B>(shared, t.min(self.cross_next), most);
        if self.cross_next <= t && self.has_cross() {
            served = self.serve_cross(shared, t, most, served);
        }
        self.look_later();
        served
    }

    /// As [`Pipe::serve`], of a pipe in a beam or with capacity on demand. Frames of a carrier wait for
    /// [`Pipe::serve_superframe`].
    #[inline(never)]
    fn serve_elsewhere<B: Buffer>(&mut self, shared: &mut Shared<B>, t: Instant, most: u32) -> u32 {
        match self.served {
            Served::ByBeam => {
                self.pull(shared, t);
                return 0;
            }
            Served::ByCarrier => return 0,
            Served::ByShaper | Served::InSuperframes => {}
        }
        let served = self.serve_frames::<false, true, B>(shared, t, most);
        self.look_later();
        served
    }

    /// Lets phantom frames arrive up to and including `t`, with service in between, until `most` were
    /// served; returns the number, `served` included.
    #[inline(never)]
    fn serve_cross<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        t: Instant,
        most: u32,
        mut served: u32,
    ) -> u32 {
        while self.cross_next <= t && self.has_cross() && served < most {
            self.cross_arrives(shared);
            served += 1;
            served +=
                self.serve_frames::<false, false, B>(shared, t.min(self.cross_next), most - served);
        }
        served
    }

    /// As [`Pipe::serve_until`], of a pipe that is plain.
    #[inline]
    pub(super) fn serve_plain_until<B: Buffer>(&mut self, shared: &mut Shared<B>, t: Instant) {
        if self.shaper.finish().is_some_and(|finish| finish <= t) {
            let most = if self.shaper.is_unlimited() { AT_ONCE } else { u32::MAX };
            self.serve_plain(shared, t, most);
        }
    }

    /// As [`Pipe::serve`], of a pipe that is plain.
    fn serve_plain<B: Buffer>(&mut self, shared: &mut Shared<B>, t: Instant, most: u32) -> u32 {
        debug_assert!(self.plain && !self.choosing);
        let served = match self.served {
            Served::InSuperframes => self.serve_frames::<true, true, B>(shared, t, most),
            Served::ByShaper | Served::ByBeam | Served::ByCarrier => {
                self.serve_frames::<true, false, B>(shared, t, most)
            }
        };
        self.look = self.next_look();
        served
    }

    /// As [`Pipe::serve`], up to the next phantom frame. With `PLAIN` the pipe is plain; with `ON_DEMAND` a
    /// frame leaves in the first superframe that has room for it.
    #[inline(always)]
    pub(super) fn serve_frames<const PLAIN: bool, const ON_DEMAND: bool, B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        t: Instant,
        most: u32,
    ) -> u32 {
        let mut served = 0;
        let mut head = None;
        while served < most {
            let Some(finish) = self.shaper.finish() else { break };
            if finish > t {
                break;
            }
            if PLAIN || !self.choosing {
                let Some(leaves) = head.or_else(|| self.fifo.queued(&shared.store)) else {
                    self.shaper.rest();
                    break;
                };
                if ON_DEMAND && !self.shaper.leaves(self.queued, self.fifo.queue_len()) {
                    head = Some(leaves);
                    continue;
                }
                served += 1;
                self.leave_queue::<PLAIN, B>(shared, finish, leaves);
            }
            if !PLAIN && self.extras.watched {
                served += self.police(shared, finish, most - served);
                if self.choosing {
                    break;
                }
            }
            head = self.fifo.queued(&shared.store);
            match head {
                Some(next) if ON_DEMAND => self.shaper.follow_at_once(next.bytes()),
                Some(next) => self.shaper.follow(next.bytes(), next.arrived),
                None if ON_DEMAND => self.shaper.rest_on_demand(),
                None => self.shaper.rest(),
            }
        }
        served
    }

    /// The frame at the head of the queue leaves it at `finish`. With `PLAIN` the pipe is plain.
    #[inline(always)]
    pub(super) fn leave_queue<const PLAIN: bool, B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        finish: Instant,
        head: Queued,
    ) {
        let (len, arrived) = (head.bytes(), head.arrived);
        if !PLAIN && head.is_phantom() {
            return self.discard(shared, len);
        }
        self.queue_delay.count(finish.since(arrived));
        self.queued -= u64::from(len);
        // Drawn for every frame, so that the draws do not depend on the losses.
        let wrong = if !PLAIN && self.extras.corrupts { self.wrong_bit() } else { None };
        let by = if !PLAIN && self.extras.reorders { self.held_back() } else { None };
        if let Some(reason) = self.channel.lose(finish) {
            self.drop_queued(shared, finish, reason, len);
        } else {
            if let Some(bit) = wrong {
                self.corrupt(shared, bit, len);
            }
            let due = self.delay.due(finish);
            match by {
                None => {
                    if !PLAIN && self.reports_schedule {
                        self.observe_schedule(shared, arrived, due, len);
                    }
                    self.fifo.delay(&mut shared.store, head, due);
                }
                Some(by) => self.hold_back(shared, (arrived, finish), due + by, len),
            }
        }
    }

    /// A long queue is served again after some more bytes, so that there is never much
    /// to catch up with at once.
    #[inline]
    pub(super) fn look_later(&mut self) {
        self.look = if self.is_in_beam() { Instant::MAX } else { self.next_look() };
        if self.has_cross() {
            self.look = self.look.min(self.look_at_cross());
        }
    }

    #[inline]
    fn next_look(&self) -> Instant {
        if self.queued <= u64::from(LOOK_AFTER) {
            return Instant::MAX;
        }
        self.shaper.ahead(LOOK_AFTER).unwrap_or(Instant::MAX)
    }

    /// Serves up to `most` frames, if that could make a frame due at
    /// `now` or the queue has to be served; not otherwise: the next frame of the queue
    /// is far away in memory. Returns the number.
    #[inline]
    pub fn look<B: Buffer>(&mut self, shared: &mut Shared<B>, now: Instant, most: u32) -> u32 {
        if self.look > now && self.fifo.next_due().is_some() || self.is_in_beam() {
            return 0;
        }
        let most = most.min(AT_ONCE);
        if self.plain { self.serve_plain(shared, now, most) } else { self.serve(shared, now, most) }
    }

    /// From `t` on the AQM sees as the head of the queue a frame that arrived at
    /// `head`, or none. Without a rate limit there is no queue.
    #[inline(never)]
    pub(super) fn attach(&mut self, t: Instant, head: Option<Instant>) {
        let head = head.filter(|_| self.has_queue());
        self.cold.aqm.attach(t, head);
    }

    /// The frame at the head of the queue at `now` as the AQM sees it, and its length. Frames that
    /// arrived after `now`, if the queue lags, are not included.
    fn candidate<B: Buffer>(&self, store: &Store<B>, now: Instant) -> Option<(Candidate, u32)> {
        let head = self.fifo.queued(store).filter(|head| head.arrived < now)?;
        // Only AQMs that drop from the head use the bytes behind it.
        let late = self.cold.aqm.plan().drops_late();
        let behind = if late { self.fifo.behind(store, now, MAX_PACKET) } else { 0 };
        Some((Candidate { arrived: head.arrived, behind }, head.bytes()))
    }

    /// Lets the AQM act on frames that would enter service at `now`: chosen ones are marked, or
    /// dropped, up to `most` frames. Returns the number; if there are
    /// more, the next call continues.
    #[inline(never)]
    fn police<B: Buffer>(&mut self, shared: &mut Shared<B>, now: Instant, most: u32) -> u32 {
        if self.shaper.is_unlimited() {
            return 0;
        }
        let mut dropped = 0;
        let mut head = self.candidate(&shared.store, now);
        let mut chosen =
            std::mem::take(&mut self.choosing) || self.cold.aqm.chooses(now, head.map(|(h, _)| h));
        while chosen
            && let Some((_, len)) = head
            && let Some(place) = self.fifo.place_queued()
        {
            if dropped == most {
                self.choosing = true;
                return dropped;
            }
            dropped += 1;
            if self.cold.aqm.plan().ecn && self.mark_at(shared, now, place, len) {
                self.cold.aqm.marked(now);
                break;
            }
            self.queued -= u64::from(len);
            self.drop_queued(shared, now, DropReason::Aqm, len);
            head = self.candidate(&shared.store, now);
            chosen = self.cold.aqm.dropped(now, head.map(|(h, _)| h));
        }
        self.attach(now, head.map(|(h, _)| h.arrived));
        dropped
    }

    /// Marks the packet of a frame that is held, here or in the observer, if it can be marked.
    /// Returns whether it can.
    #[inline(never)]
    pub(super) fn mark_at<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        place: Place,
        len: u32,
    ) -> bool {
        if self.is_phantom(&shared.store, Some(place)) {
            return false;
        }
        let Shared { store, observer } = shared;
        let elsewhere = observer.as_mut().filter(|observer| {
            let marks = |frame: &[u8]| observer.marks(frame) && ecn::is_capable(frame);
            self.extras.marks_elsewhere && store.look(place, |_, frame| marks(frame))
        });
        let marked = match elsewhere {
            Some(observer) => {
                store.edit_tag(place, |tag| observer.mark(tag));
                true
            }
            None => store.edit(place, ecn::mark),
        };
        if marked {
            self.cold.marked.add(len);
            if self.observed {
                self.observe(shared, Event::Marked, at, Some(place), len);
            }
        }
        marked
    }

    /// The frame at the head of the queue is dropped at `at`. It keeps its place until its turn
    /// to leave.
    #[inline]
    pub(super) fn drop_queued<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        reason: DropReason,
        len: u32,
    ) {
        self.count_drop(shared, at, reason, self.fifo.place_queued(), len);
        self.fifo.depart(&mut shared.store, None);
    }

    /// Counts a frame that was held as dropped.
    #[inline]
    pub(super) fn count_drop<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        at: Instant,
        reason: DropReason,
        place: Option<Place>,
        len: u32,
    ) {
        if self.is_phantom(&shared.store, place) {
            self.phantoms -= 1;
            return self.cold.cross_dropped.add(len);
        }
        self.held -= u64::from(len);
        self.cold.dropped[reason as usize].add(len);
        if self.observed {
            self.observe(shared, Event::Dropped(reason), at, place, len);
        }
    }

    /// The bit of the next frame to flip, if any.
    #[inline(never)]
    fn wrong_bit(&mut self) -> Option<u64> {
        self.cold.corrupt.as_mut().and_then(Corrupt::wrong_bit)
    }

    /// Flips a bit of the frame at the head of the queue.
    #[inline(never)]
    fn corrupt<B: Buffer>(&mut self, shared: &mut Shared<B>, bit: u64, len: u32) {
        if let Some(place) = self.fifo.place_queued()
            && shared.store.edit(place, |frame| corrupt::flip(frame, bit))
        {
            self.cold.corrupted.add(len);
        }
    }
}
