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

use crate::channel::Channel;
use crate::delay::Delay;
use crate::plan::PipePlan;
use crate::rng::{Stage, Stream, StreamKey};
use crate::shaper::Shaper;
use crate::stats::{DropReason, PipeStats};
use crate::store::{Fifo, Ready, Store};
use crate::units::Instant;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    queue: crate::aqm::QueuePlan,
    aqm: Stream,
    shaper: Shaper,
    channel: Channel,
    delay: Delay,
    fifo: Fifo,
    stats: PipeStats,
}

impl Pipe {
    /// An empty pipe whose processes start at `at`. A rate trace runs since `since`.
    #[must_use]
    pub fn new(plan: &PipePlan, key: StreamKey, at: Instant, since: Instant) -> Self {
        Self {
            queue: plan.queue,
            aqm: Stream::new(key, Stage::Aqm, 0),
            shaper: Shaper::new(&plan.rate, plan.overhead, since),
            channel: Channel::new(plan, key, at),
            delay: Delay::new(&plan.delay, key, at),
            fifo: Fifo::default(),
            stats: PipeStats::default(),
        }
    }

    /// The accounts as of the last instant that the pipe was brought up to.
    #[must_use]
    pub fn stats(&self) -> &PipeStats {
        &self.stats
    }

    /// Starts the high-water mark of the queue anew.
    pub fn mark(&mut self) {
        self.stats.queue_max_bytes = self.stats.queue.bytes;
    }

    /// A frame arrives at `at`.
    #[inline]
    pub fn arrive(&mut self, store: &mut Store, at: Instant, frame: &[u8], len: u32) {
        self.serve_until(store, at);
        self.stats.received.add(len);
        let queued = self.stats.queue.bytes;
        if let Err(reason) = self.queue.admit(queued, u64::from(len), &mut self.aqm) {
            self.stats.dropped[reason as usize].add(len);
            return;
        }
        if self.fifo.push(store, frame).is_err() {
            self.stats.dropped[DropReason::Overload as usize].add(len);
            return;
        }
        self.stats.held.add(len);
        self.stats.queue.add(len);
        self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(self.stats.queue.bytes);
        if self.shaper.is_idle() {
            self.shaper.start(at, len);
            // At no rate limit it has left already.
            self.serve_until(store, at);
        }
    }

    /// Counts a frame that was dropped before it reached the pipe's queue.
    pub fn reject(&mut self, reason: DropReason, len: u32) {
        self.stats.received.add(len);
        self.stats.dropped[reason as usize].add(len);
    }

    /// Lets the shaper work up to and including `t`.
    pub fn serve_until(&mut self, store: &mut Store, t: Instant) {
        while let Some(finish) = self.shaper.finish()
            && finish <= t
        {
            let Some(len) = self.fifo.queued_len(store) else {
                self.shaper.rest();
                return;
            };
            self.stats.queue.remove(len);
            if let Some(reason) = self.channel.lose(finish) {
                self.stats.held.remove(len);
                self.stats.dropped[reason as usize].add(len);
                self.fifo.depart(store, None);
            } else {
                self.fifo.depart(store, Some(self.delay.due(finish)));
            }
            match self.fifo.queued_len(store) {
                Some(next) => self.shaper.follow(next),
                None => self.shaper.rest(),
            }
        }
    }

    /// When there is next something to do: the first frame is due, or the shaper
    /// will know when it is.
    #[inline]
    #[must_use]
    pub fn deadline(&self, store: &Store) -> Option<Instant> {
        self.fifo.ready_due(store).or_else(|| self.shaper.finish())
    }

    /// The frame that is due at `now` or earlier, if there is one.
    #[inline]
    #[must_use]
    pub fn due<'a>(&self, store: &'a Store, now: Instant) -> Option<Ready<'a>> {
        self.fifo.ready(store).filter(|r| r.due <= now)
    }

    /// The frame that [`Pipe::due`] showed has been sent.
    #[inline]
    pub fn sent(&mut self, store: &mut Store, len: u32) {
        self.stats.held.remove(len);
        self.stats.sent.add(len);
        self.fifo.pop(store);
    }

    /// Puts a plan in force at `at`; with `restart`, all random processes begin
    /// anew with the key's seed. A rate trace runs since `since`. Frames in the pipe
    /// keep their place: the one in service goes on at the new rate, a smaller limit
    /// purges nothing, a smaller delay overtakes nothing.
    pub fn replan(
        &mut self,
        store: &mut Store,
        plan: &PipePlan,
        key: StreamKey,
        at: Instant,
        since: Instant,
        restart: bool,
    ) {
        self.serve_until(store, at);
        self.queue = plan.queue;
        self.shaper.replan(&plan.rate, plan.overhead, at, since);
        if restart {
            self.aqm = Stream::new(key, Stage::Aqm, 0);
            self.channel = Channel::new(plan, key, at);
            self.delay.restart(&plan.delay, key, at);
        } else {
            self.channel.replan(plan, key, at);
            self.delay.replan(&plan.delay, key, at);
        }
        // At a rate that is not limited any more, the queue empties now.
        self.serve_until(store, at);
    }

    /// Brings the random processes up to `at`, so that a pipe that was idle for
    /// long has little to catch up with.
    pub fn keep_up(&mut self, store: &mut Store, at: Instant) {
        self.serve_until(store, at);
        self.channel.keep_up(at);
        self.delay.keep_up(at);
    }
}
