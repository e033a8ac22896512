// SPDX-License-Identifier: Apache-2.0
//! A pipe on hold: frames are admitted to its queue and none leaves it.
//!
//! Used while a client moves here from another emulator, which has yet to serve what it holds. To the
//! queue it is a link that is down. Frames in the delay line leave as always.

use crate::frame::Buffer;
use crate::units::{Instant, Nanos};

use super::{Pipe, Shared};

/// What a pipe has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Packets that arrived.
    pub received: u64,
    /// Packets in the queue, that in service included.
    pub queued: u64,
    /// Packets in queue and delay line.
    pub held: u64,
    /// When the last packet that has left the queue is due.
    pub last_due: Instant,
}

/// A hold of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OnHold {
    /// Ends by itself then.
    until: Instant,
    /// Rest of the frame that was in service, in bit-nanoseconds.
    work: u64,
}

impl Pipe {
    /// Lets no frame leave the queue from `at` until `until`, or until [`Pipe::end_hold`].
    pub fn hold<B: Buffer>(&mut self, shared: &mut Shared<B>, at: Instant, until: Instant) {
        self.serve_until(shared, at);
        let work = match self.cold.on_hold {
            Some(OnHold { work, .. }) => work,
            None => self.shaper.halt(at),
        };
        self.cold.on_hold = Some(OnHold { until, work });
        self.look_later();
    }

    /// Ends a hold at `at`. No frame is due before `due` from then on, so that none overtakes those
    /// that another emulator has.
    pub fn end_hold<B: Buffer>(&mut self, shared: &mut Shared<B>, at: Instant, due: Instant) {
        // Frames that have left the queue by now are not concerned.
        self.serve_until(shared, at);
        self.delay.not_before(due);
        let Some(OnHold { work, .. }) = self.cold.on_hold.take() else { return };
        self.shaper.rest();
        if let Some(head) = self.fifo.queued(&shared.store) {
            if self.extras.watched {
                self.attach(at, Some(head.arrived));
            }
            match work {
                0 => self.shaper.start(at, head.bytes()),
                _ => self.shaper.resume(at, work),
            }
        }
        self.look_later();
        self.serve_until(shared, at);
    }

    /// Ends a hold whose time is over at `at`.
    pub(super) fn end_hold_in_time<B: Buffer>(&mut self, shared: &mut Shared<B>, at: Instant) {
        if self.cold.on_hold.is_some_and(|it| it.until <= at) {
            self.end_hold(shared, at, Instant::ZERO);
        }
    }

    /// Makes a change of the shaper, which a hold outlasts.
    pub(super) fn despite_hold(&mut self, at: Instant, change: impl FnOnce(&mut Self)) {
        if self.cold.on_hold.is_none() {
            return change(self);
        }
        self.shaper.rest();
        change(self);
        self.shaper.halt(at);
        // What it had served of the frame in service was at another rate.
        if let Some(it) = &mut self.cold.on_hold {
            it.work = 0;
        }
    }

    /// What it has at the instant to which it was advanced.
    #[must_use]
    pub fn look_at(&self) -> Look {
        let stats = self.stats();
        Look {
            received: stats.received.packets,
            queued: u64::from(self.fifo.queue_len() - self.phantoms),
            held: stats.held.packets,
            last_due: self.delay.last_due(),
        }
    }
}

/// Longest hold.
pub const MAX_HOLD: Nanos = Nanos::from_millis(60_000);
