// SPDX-License-Identifier: Apache-2.0
//! One client's path in one direction: queue, shaper, channel, delay.
//!
//! A pipe is lazy. It is brought up to an instant when something looks at it: a
//! frame that arrives, a release, a change, a snapshot. What happens in it depends
//! on the arrivals' own times and not on when, or how often, it was looked at:
//! the shaper's finish of each frame follows from arrivals and finishes alone, and
//! the channel and the delay are asked at that finish.
//!
//! Calls come with times that never go back.

mod beamed;

use crate::aqm::codel::{Candidate, MAX_PACKET};
use crate::aqm::{Aqm, Verdict};
use crate::channel::Channel;
use crate::client::ClientKey;
use crate::corrupt::{self, Corrupt};
use crate::delay::Delay;
use crate::duplicate::Duplicate;
use crate::ecn;
use crate::frame::{Buffer, Frame};
use crate::histogram::{Lateness, QueueDelay};
use crate::plan::PipePlan;
use crate::reorder::Reorder;
use crate::rng::StreamKey;
use crate::shaper::Shaper;
use crate::shim::{self, Tick};
use crate::stats::{Count, DropReason, PipeStats};
use crate::store::{Fifo, Head, Place, Store};
use crate::tap::{Point, Sighting};
use crate::units::{Direction, Instant, Nanos, Probability};

use beamed::Stage;
pub use beamed::Standing;

/// Bytes that the shaper may serve between two looks at a queue, about.
const LOOK_AFTER: u32 = 16_384;

/// Frames that leave at once where a look finds many.
const AT_ONCE: u32 = 256;

/// Frames that leave a queue with an AQM that drops there, when one arrives.
const AT_ARRIVAL: u32 = 16;

/// What is seldom touched, apart from what every frame touches.
#[derive(Debug)]
struct Cold {
    aqm: Aqm,
    dropped: [Count; DropReason::ALL.len()],
    marked: Count,
    duplicate: Option<Duplicate>,
    duplicated: Count,
    corrupt: Option<Corrupt>,
    corrupted: Count,
    reorder: Option<Reorder>,
    /// The frames that are held back, and when the last of them is due.
    aside: Fifo,
    aside_last: Instant,
    /// Of a client that shares a beam.
    stage: Stage,
    client: ClientKey,
    direction: Direction,
    /// What shims say: the client's number, and the loss by which the switch draws.
    number: u16,
    slot: u16,
    tick: Tick,
}

/// What a pipe has that most have not: one look tells that it has none of it.
#[derive(Clone, Copy, Debug)]
struct Extras {
    /// The AQM has to know what leaves the queue.
    watched: bool,
    duplicates: bool,
    corrupts: bool,
    reorders: bool,
    /// The switch marks what the AQM chose.
    switch_marks: bool,
}

impl Extras {
    fn of(plan: &PipePlan) -> Self {
        Self {
            watched: plan.queue.watches(),
            duplicates: plan.duplicate != Probability::ZERO,
            corrupts: plan.corrupt != Probability::ZERO,
            reorders: plan.reorder.is_some(),
            switch_marks: plan.offload.marks,
        }
    }
}

/// A pipe. What a release touches comes first, then what an arrival does: with thousands
/// of pipes each line of the cache is a wait for memory.
#[derive(Debug)]
#[repr(C)]
pub struct Pipe {
    fifo: Fifo,
    sent: Count,
    /// When the queue is to be looked at although nothing is due.
    look: Instant,
    /// When the first frame that is held back is due; [`Instant::MAX`] if there is none.
    aside_due: Instant,
    shaper: Shaper,
    received: Count,
    /// Bytes in the queue, the frame in service included.
    queued: u64,
    queued_max: u64,
    /// Bytes in the queue and in the delay line, the lost ones not included.
    held: u64,
    /// Up to so many bytes in the queue every frame is admitted.
    admitted: u64,
    extras: Extras,
    /// Whether the frame in service has left and the AQM has yet to finish with those
    /// behind it.
    choosing: bool,
    /// Whether what has left the shaper waits for a beam; then the engine lets it leave.
    in_beam: bool,
    /// Whether the store's tap, if it has one, sees its frames.
    tapped: bool,
    /// Frames that leave at most when one arrives.
    at_arrival: u32,
    channel: Channel,
    delay: Delay,
    cold: Box<Cold>,
    lateness: Lateness,
    queue_delay: QueueDelay,
}

impl Pipe {
    /// An empty pipe whose processes start at `at`. A rate trace runs since `since`.
    #[must_use]
    pub fn new(plan: &PipePlan, key: StreamKey, at: Instant, since: Instant) -> Self {
        let cold = Cold {
            aqm: Aqm::new(plan.queue, key, at),
            dropped: [Count::default(); DropReason::ALL.len()],
            marked: Count::default(),
            duplicate: Duplicate::new(plan.duplicate, key, None),
            duplicated: Count::default(),
            corrupt: Corrupt::new(plan.corrupt, key, None),
            corrupted: Count::default(),
            reorder: Reorder::new(plan.reorder, key, None),
            aside: Fifo::default(),
            aside_last: Instant::ZERO,
            stage: Stage::default(),
            client: key.client,
            direction: key.direction,
            number: 0,
            slot: 0,
            tick: Tick::Nanosecond,
        };
        Self {
            admitted: plan.queue.admits_up_to(),
            extras: Extras::of(plan),
            choosing: false,
            in_beam: false,
            tapped: false,
            at_arrival: at_arrival(plan),
            shaper: Shaper::new(&plan.rate, plan.framing, since),
            channel: Channel::alone(plan, key, at),
            delay: Delay::new(&plan.delay, key, at),
            fifo: Fifo::default(),
            received: Count::default(),
            sent: Count::default(),
            queued: 0,
            queued_max: 0,
            held: 0,
            look: Instant::MAX,
            aside_due: Instant::MAX,
            cold: Box::new(cold),
            lateness: Lateness::default(),
            queue_delay: QueueDelay::default(),
        }
    }

    /// Puts an empty pipe behind a switch, which knows the client by `number` and counts time
    /// in `tick`. A client without a number is not one that the switch could lose packets of:
    /// they would be nobody's in its accounts, and all such clients' in its chains.
    pub fn set_switch(
        &mut self,
        (number, tick): (u16, Tick),
        plan: &PipePlan,
        key: StreamKey,
        at: Instant,
    ) {
        (self.cold.number, self.cold.tick) = (number, tick);
        self.cold.slot = self.slot(plan);
        self.channel = self.new_channel(plan, key, at);
    }

    /// By which of its figures the switch loses the client's packets; zero: it does not.
    fn slot(&self, plan: &PipePlan) -> u16 {
        if self.cold.number == 0 { 0 } else { plan.offload.loss }
    }

    fn new_channel(&self, plan: &PipePlan, key: StreamKey, at: Instant) -> Channel {
        let new = if self.cold.number == 0 { Channel::alone } else { Channel::new };
        new(plan, key, at)
    }

    /// The accounts as of the last instant that the pipe was brought up to.
    #[must_use]
    pub fn stats(&self) -> PipeStats {
        let mut stats = PipeStats {
            received: self.received,
            sent: self.sent,
            dropped: self.cold.dropped,
            marked: self.cold.marked,
            duplicated: self.cold.duplicated,
            corrupted: self.cold.corrupted,
            queue_max_bytes: self.queued_max,
            queue_delay: self.queue_delay,
            lateness: self.lateness,
            ..PipeStats::default()
        };
        let held = u64::from(self.fifo.held()) + u64::from(self.cold.aside.held());
        stats.held = Count { packets: held, bytes: self.held };
        if self.has_queue() {
            let packets = self.fifo.queue_len() - self.cold.stage.ahead.gone();
            stats.queue = Count { packets: packets.into(), bytes: self.queued };
        }
        stats
    }

    /// Packets that have arrived.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.packets
    }

    /// Whether it has no frames, not even lost ones whose turn is yet to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fifo.is_empty() && self.cold.aside.is_empty()
    }

    /// Starts the high-water mark of the queue anew.
    pub fn mark(&mut self) {
        self.queued_max = self.queue_bytes();
    }

    /// Whether frames wait: for the shaper or for a beam.
    #[inline]
    fn has_queue(&self) -> bool {
        !self.shaper.is_unlimited() || self.in_beam
    }

    /// Bytes that an arriving frame finds in the queue. At no rate limit there are none,
    /// also where what an earlier plan had queued is still on its way out.
    #[inline]
    fn queue_bytes(&self) -> u64 {
        if self.has_queue() { self.queued } else { 0 }
    }

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
    fn duplicate<B: Buffer>(&mut self, store: &mut Store<B>, at: Instant, frame: &[u8], len: u32) {
        if self.cold.duplicate.as_mut().is_some_and(Duplicate::doubles) {
            self.cold.duplicated.add(len);
            self.take_in(store, at, Frame::Bytes(frame), len);
        }
    }

    /// A frame that was counted goes into the queue, or is dropped.
    #[inline]
    fn take_in<B: Buffer>(
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

    /// A frame that arrived is dropped.
    #[inline]
    fn turn_away<B: Buffer>(
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

    fn sighting(&self, point: Point, at: Instant, number: Option<u64>, len: u32) -> Sighting {
        let Cold { client, direction, .. } = *self.cold;
        Sighting { at, client, direction, point, number, len }
    }

    /// Lets the tap see a frame that arrives, if there is a tap; its tag then.
    #[inline(never)]
    fn see_arrival<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        frame: &[u8],
        len: u32,
    ) -> Option<u32> {
        if store.tap().is_none() {
            // It has been taken away.
            self.tapped = false;
            return None;
        }
        let (tag, number) = store.next_tag();
        let seen = self.sighting(Point::Ingress, at, Some(number), len);
        store.tap_mut()?.see(seen, frame);
        Some(tag)
    }

    /// Lets the tap see a frame that is held, if there is a tap.
    #[inline(never)]
    fn see<B: Buffer>(
        &self,
        store: &mut Store<B>,
        point: Point,
        at: Instant,
        place: Option<Place>,
        len: u32,
    ) {
        let Some((place, mut tap)) = place.zip(store.lift_tap()) else { return };
        store.show(place, |frame, number| tap.see(self.sighting(point, at, number, len), frame));
        store.lower_tap(tap);
    }

    /// Lets the tap see the frame at the head of a delay line, which will be offered to the
    /// egress.
    #[inline(never)]
    fn see_offer<B: Buffer>(&self, store: &mut Store<B>, fifo: &Fifo) {
        let Some((place, mut tap)) = fifo.place_due().zip(store.lift_tap()) else { return };
        store.show(place, |frame, number| {
            let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            tap.offer(self.sighting(Point::Egress, Instant::ZERO, number, len), frame);
        });
        store.lower_tap(tap);
    }

    /// Whether the store's tap, if it has one, sees its frames.
    #[inline]
    #[must_use]
    pub fn is_tapped(&self) -> bool {
        self.tapped
    }

    /// Whether the store's tap sees its frames from here on.
    #[inline]
    pub fn set_tapped(&mut self, tapped: bool) {
        self.tapped = tapped;
    }

    /// Whether the AQM has yet to drop from a queue what was not there any more at `at`.
    #[inline]
    fn lags(&self, at: Instant) -> bool {
        self.extras.watched && self.shaper.finish().is_some_and(|finish| finish <= at)
    }

    /// Where the queue lags behind `at`, lets so much of it leave that a frame of `len`
    /// bytes that arrives then is admitted, if that is how it is to be.
    #[inline(never)]
    fn make_room<B: Buffer>(&mut self, store: &mut Store<B>, at: Instant, len: u32) {
        let limit = self.cold.aqm.plan().limit;
        let Some(room) = limit.checked_sub(len.into()) else { return };
        while self.queue_bytes() > room && self.serve(store, at, 1) > 0 {}
    }

    /// Whether a frame that finds `queued` bytes is to be marked, or why it is dropped.
    #[inline(never)]
    fn judge(
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

    /// Tells the AQM that from `t` on the head of the queue is a frame that arrived at
    /// `head`, or none. Without a limit of the rate there is no queue.
    #[inline(never)]
    fn attach(&mut self, t: Instant, head: Option<Instant>) {
        let head = head.filter(|_| self.has_queue());
        self.cold.aqm.attach(t, head);
    }

    /// The frame at the head of the queue at `now` as the AQM sees it, and its length. What
    /// arrived since then, where the queue lags behind, is not there.
    fn candidate<B: Buffer>(&self, store: &Store<B>, now: Instant) -> Option<(Candidate, u32)> {
        let (len, arrived) = self.fifo.queued(store).filter(|(_, arrived)| *arrived < now)?;
        // Only who drops from the head asks how much there is behind it.
        let late = self.cold.aqm.plan().drops_late();
        let behind = if late { self.fifo.behind(store, now, MAX_PACKET) } else { 0 };
        Some((Candidate { arrived, behind }, len))
    }

    /// Lets the AQM look at what would enter service at `now`: what it chooses is marked, or
    /// leaves the queue for good, up to `most` frames. Returns how many; where there are
    /// more it goes on where it was.
    #[inline(never)]
    fn police<B: Buffer>(&mut self, store: &mut Store<B>, now: Instant, most: u32) -> u32 {
        if self.shaper.is_unlimited() {
            return 0;
        }
        let mut dropped = 0;
        let mut head = self.candidate(store, now);
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
            if self.cold.aqm.plan().ecn && self.mark_at(store, place) {
                self.cold.marked.add(len);
                if self.tapped {
                    self.see(store, Point::Marked, now, Some(place), len);
                }
                self.cold.aqm.marked(now);
                break;
            }
            self.queued -= u64::from(len);
            self.held -= u64::from(len);
            self.cold.dropped[DropReason::Aqm as usize].add(len);
            if self.tapped {
                self.see(store, Point::Dropped(DropReason::Aqm), now, Some(place), len);
            }
            self.fifo.depart(store, None);
            head = self.candidate(store, now);
            chosen = self.cold.aqm.dropped(now, head.map(|(h, _)| h));
        }
        self.attach(now, head.map(|(h, _)| h.arrived));
        dropped
    }

    /// Marks the packet of a frame that is held, or asks the switch to, if it can be marked.
    /// Whether it is or will be.
    #[inline(never)]
    fn mark_at<B: Buffer>(&self, store: &mut Store<B>, place: Place) -> bool {
        let can_ask = |frame: &[u8]| shim::sees_packet(frame) && ecn::is_capable(frame);
        let asks = self.extras.switch_marks && store.show(place, |frame, _| can_ask(frame));
        if !asks {
            return store.edit(place, ecn::mark);
        }
        store.edit_shim(place, shim::mark);
        true
    }

    /// Ends the shim of the frame at the head of the queue, which arrived at `arrived` and is
    /// due at `due`: what the switch is to do with it is decided by the plan under which it
    /// leaves the queue, as all else is.
    #[inline(never)]
    fn close_shim<B: Buffer>(&self, store: &mut Store<B>, arrived: Instant, due: Instant) {
        let Cold { number, slot, tick, .. } = *self.cold;
        if let Some(place) = self.fifo.place_queued() {
            let planned = tick.between(arrived, due);
            store.edit_shim(place, |bytes| shim::close(bytes, number, slot, planned));
        }
    }

    /// Which bit of the next frame is wrong, if one is.
    #[inline(never)]
    fn wrong_bit(&mut self) -> Option<u64> {
        self.cold.corrupt.as_mut().and_then(Corrupt::wrong_bit)
    }

    /// Turns a bit of the frame at the head of the queue.
    #[inline(never)]
    fn corrupt<B: Buffer>(&mut self, store: &mut Store<B>, bit: u64, len: u32) {
        if let Some(place) = self.fifo.place_queued()
            && store.edit(place, |frame| corrupt::flip(frame, bit))
        {
            self.cold.corrupted.add(len);
        }
    }

    /// By how much the next frame is held back, if it is.
    #[inline(never)]
    fn held_back(&mut self) -> Option<Nanos> {
        self.cold.reorder.as_mut().and_then(Reorder::holds_back)
    }

    /// Lets the frame at the head of the queue, of `len` bytes, which arrived at `arrived` and
    /// leaves the queue at `finish`, come out at `due`, past those that follow it.
    #[inline(never)]
    fn hold_back<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        (arrived, finish): (Instant, Instant),
        due: Instant,
        len: u32,
    ) {
        // After a change to less, together with those that were held back before it.
        let due = due.max(self.cold.aside_last);
        self.cold.aside_last = due;
        if store.prefix() != 0 {
            self.close_shim(store, arrived, due);
        }
        let Cold { aside, aside_last, dropped, .. } = &mut *self.cold;
        if self.fifo.set_aside(store, aside, *aside_last).is_err() {
            self.held -= u64::from(len);
            dropped[DropReason::Overload as usize].add(len);
            if self.tapped {
                let place = self.fifo.place_queued();
                self.see(store, Point::Dropped(DropReason::Overload), finish, place, len);
            }
            self.fifo.depart(store, None);
        } else if self.aside_due == Instant::MAX {
            self.aside_due = *aside_last;
        }
    }

    /// Whether a frame that is held back comes before those in the delay line.
    #[inline]
    fn is_aside_first(&self) -> bool {
        self.aside_due != Instant::MAX
            && match self.fifo.head() {
                Some(Head::Due(due)) => self.aside_due < due,
                Some(Head::Lost) => false,
                None => true,
            }
    }

    /// The first frame that is held back has been sent.
    #[cold]
    fn sent_aside<B: Buffer>(&mut self, store: &mut Store<B>) {
        self.cold.aside.pop(store);
        self.aside_due = match self.cold.aside.head() {
            Some(Head::Due(due)) => due,
            _ => Instant::MAX,
        };
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

    /// Lets the shaper work up to and including `t`. What an earlier plan had queued and a
    /// later one lets out at once, and what the AQM drops from the head of the queue, comes
    /// out a part at a time: nobody else's frames wait for it, and no fate depends on it.
    #[inline]
    pub fn serve_until<B: Buffer>(&mut self, store: &mut Store<B>, t: Instant) {
        if self.shaper.finish().is_some_and(|finish| finish <= t) {
            let most = if self.shaper.is_unlimited() { AT_ONCE } else { self.at_arrival };
            self.serve(store, t, most);
        }
    }

    /// Lets up to `most` frames leave the queue up to and including `t`; returns how many.
    fn serve<B: Buffer>(&mut self, store: &mut Store<B>, t: Instant, most: u32) -> u32 {
        if self.in_beam {
            self.pull(store, t);
            return 0;
        }
        let mut served = 0;
        while served < most {
            let Some(finish) = self.shaper.finish().filter(|f| *f <= t) else { break };
            if !self.choosing {
                let Some((len, arrived)) = self.fifo.queued(store) else {
                    self.shaper.rest();
                    break;
                };
                served += 1;
                self.leave_queue(store, finish, len, arrived);
            }
            if self.extras.watched {
                served += self.police(store, finish, most - served);
                if self.choosing {
                    break;
                }
            }
            match self.fifo.queued(store) {
                Some((next, arrived)) => self.shaper.follow(next, arrived),
                None => self.shaper.rest(),
            }
        }
        self.look_later();
        served
    }

    /// The frame at the head of the queue leaves it at `finish`.
    #[inline]
    fn leave_queue<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        finish: Instant,
        len: u32,
        arrived: Instant,
    ) {
        self.queue_delay.count(finish.since(arrived));
        self.queued -= u64::from(len);
        // Drawn for every frame, so that the draws do not depend on the losses.
        let wrong = if self.extras.corrupts { self.wrong_bit() } else { None };
        let by = if self.extras.reorders { self.held_back() } else { None };
        if let Some(reason) = self.channel.lose(finish) {
            self.held -= u64::from(len);
            self.cold.dropped[reason as usize].add(len);
            if self.tapped {
                let place = self.fifo.place_queued();
                self.see(store, Point::Dropped(reason), finish, place, len);
            }
            self.fifo.depart(store, None);
        } else {
            if let Some(bit) = wrong {
                self.corrupt(store, bit, len);
            }
            let due = self.delay.due(finish);
            match by {
                None => {
                    if store.prefix() != 0 {
                        self.close_shim(store, arrived, due);
                    }
                    self.fifo.depart(store, Some(due));
                }
                Some(by) => self.hold_back(store, (arrived, finish), due + by, len),
            }
        }
    }

    /// A long queue is looked at again after some more bytes, so that there is never much
    /// to catch up with at once.
    #[inline]
    fn look_later(&mut self) {
        self.look = if self.queued > u64::from(LOOK_AFTER) && !self.in_beam {
            self.shaper.ahead(LOOK_AFTER).unwrap_or(Instant::MAX)
        } else {
            Instant::MAX
        };
    }

    /// When there is next something to do: the first frame is due, or the shaper
    /// will know when it is, or the queue wants to be looked at.
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.fifo.head() {
            Some(Head::Due(due)) => Some(due.min(self.look).min(self.aside_due)),
            Some(Head::Lost) => Some(Instant::ZERO),
            None => {
                let next = if self.in_beam { None } else { self.shaper.finish() };
                let aside = Some(self.aside_due).filter(|due| *due != Instant::MAX);
                next.into_iter().chain(aside).min()
            }
        }
    }

    /// Lets the shaper serve up to `most` frames, if that could show a frame that is due at
    /// `now` or the queue wants to be looked at; not otherwise: the next frame of the queue
    /// is far away in memory. Returns how many.
    #[inline]
    pub fn look<B: Buffer>(&mut self, store: &mut Store<B>, now: Instant, most: u32) -> u32 {
        let wanted = self.look <= now || self.fifo.head().is_none();
        if wanted && !self.in_beam { self.serve(store, now, most.min(AT_ONCE)) } else { 0 }
    }

    /// What is at the head of the delay line, if it can go at `now`.
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

    /// Hints the processor that of the first `most` frames those due at `now` will be looked
    /// at.
    #[inline]
    pub fn prefetch_kept<B: Buffer>(&self, store: &Store<B>, now: Instant, most: usize) {
        self.fifo.prefetch_kept(store, now, most);
    }

    /// The frame at the head of the delay line, and its length; none if it was lost. It will
    /// be offered to the egress.
    #[inline]
    pub fn frame<'a, B: Buffer>(&self, store: &'a mut Store<B>) -> Option<(Frame<'a, B>, u32)> {
        let fifo = if self.is_aside_first() { &self.cold.aside } else { &self.fifo };
        if self.tapped {
            self.see_offer(store, fifo);
        }
        fifo.frame(store)
    }

    /// The frame at the head of the delay line, of `len` bytes, has been sent at `at`, so
    /// late.
    #[inline]
    pub fn sent<B: Buffer>(&mut self, store: &mut Store<B>, len: u32, at: Instant, late: Nanos) {
        if self.tapped
            && let Some(tap) = store.tap_mut()
        {
            tap.taken(at);
        }
        self.lateness.count(late);
        self.sent.add(len);
        self.held -= u64::from(len);
        if self.is_aside_first() {
            self.sent_aside(store);
        } else {
            self.fifo.pop(store);
        }
    }

    /// Clears a lost frame away from the head of the delay line.
    pub fn clear<B: Buffer>(&mut self, store: &mut Store<B>) {
        self.fifo.pop(store);
    }

    /// Puts a plan in force at `at`; with `restart`, all random processes begin
    /// anew with the key's seed. A rate trace runs since `since`. Frames in the pipe
    /// keep their place: the one in service goes on at the new rate, a smaller limit
    /// purges nothing, a smaller delay overtakes nothing.
    pub fn replan<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        plan: &PipePlan,
        key: StreamKey,
        at: Instant,
        since: Instant,
        restart: bool,
    ) {
        // All of it: what a plan without a limit let out must leave under that plan.
        self.serve(store, at, u32::MAX);
        self.admitted = plan.queue.admits_up_to();
        self.extras = Extras::of(plan);
        self.at_arrival = at_arrival(plan);
        self.cold.slot = self.slot(plan);
        self.shaper.replan(&plan.rate, plan.framing, at, since);
        if restart {
            self.cold.aqm = Aqm::new(plan.queue, key, at);
            self.cold.duplicate = None;
            self.cold.corrupt = None;
            self.cold.reorder = None;
            self.channel = self.new_channel(plan, key, at);
            self.delay.restart(&plan.delay, key, at);
        } else {
            self.cold.aqm.replan(plan.queue, at);
            self.channel.replan(plan, key, at);
            self.delay.replan(&plan.delay, key, at);
        }
        if self.extras.watched {
            self.attach(at, self.fifo.queued(store).map(|(_, arrived)| arrived));
            if !self.has_queue() {
                // There is no queue: what was chosen from it is over.
                self.cold.aqm.chooses(at, None);
            }
        }
        let Cold { duplicate, corrupt, reorder, .. } = &mut *self.cold;
        *duplicate = Duplicate::new(plan.duplicate, key, duplicate.take());
        *corrupt = Corrupt::new(plan.corrupt, key, corrupt.take());
        *reorder = Reorder::new(plan.reorder, key, reorder.take());
        self.look_later();
        // At a rate that is not limited any more, the queue empties from now on.
        self.serve_until(store, at);
    }

    /// Brings the random processes up to `at`, so that a pipe that was idle for
    /// long has little to catch up with.
    pub fn keep_up<B: Buffer>(&mut self, store: &mut Store<B>, at: Instant) {
        self.serve_until(store, at);
        // What is still on its way out asks for the past.
        if self.shaper.finish().is_some_and(|finish| finish <= at) {
            return;
        }
        self.cold.aqm.keep_up(at);
        self.channel.keep_up(at);
        self.delay.keep_up(at);
    }

    /// Hints the processor that a frame will arrive.
    #[inline]
    pub fn prefetch_tail<B: Buffer>(&self, store: &Store<B>) {
        self.fifo.prefetch_tail(store);
    }

    /// Hints the processor that the first frame will be looked at.
    #[inline]
    pub fn prefetch_head<B: Buffer>(&self, store: &Store<B>) {
        self.fifo.prefetch_head(store);
    }
}

/// How many frames may leave the queue when one arrives, so that what is there is known well
/// enough to decide on it.
fn at_arrival(plan: &PipePlan) -> u32 {
    if plan.queue.drops_late() { AT_ARRIVAL } else { u32::MAX }
}
