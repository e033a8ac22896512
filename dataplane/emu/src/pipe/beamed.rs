// SPDX-License-Identifier: Apache-2.0
//! A pipe of a client in a beam ([`crate::beam`]): frames that have left the shaper wait for
//! the beam, in order, in the same queue.
//!
//! The engine calls such a pipe when the beam has served a frame; the pipe never lets
//! one leave by itself. It is advanced to an instant only after its beam, so that
//! the number of waiting frames is known at each of the shaper's finishes.

use std::num::NonZeroU64;

use crate::aqm::codel::{Candidate, MAX_PACKET};
use crate::beam::Standing;
use crate::frame::Buffer;
use crate::stats::DropReason;
use crate::store::{Ahead, Place, Store};
use crate::units::{BitRate, Instant};

use super::{Pipe, Served, Shared};

/// Additional state of a pipe in a beam.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// The frame that the shaper serves next.
    pub(super) ahead: Ahead,
    pub(super) rate: Option<NonZeroU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Shaper,
    Beam,
}

impl Pipe {
    /// Whether the engine lets frames leave its queue, because of a beam or a carrier.
    #[inline]
    #[must_use]
    pub fn is_in_beam(&self) -> bool {
        matches!(self.served, Served::ByBeam | Served::ByCarrier)
    }

    /// From `at` on frames that leave the shaper wait for a beam.
    pub fn join_beam<B: Buffer>(&mut self, shared: &mut Shared<B>, at: Instant) {
        self.serve(shared, at, u32::MAX);
        self.stop_cross();
        self.served = Served::ByBeam;
        self.choosing = false;
        self.cold.stage = Stage { ahead: self.fifo.ahead(), rate: None };
        self.look_later();
        self.look_for_special();
    }

    /// From `at` on no frame waits for a beam: those that wait leave.
    pub fn leave_beam<B: Buffer>(&mut self, shared: &mut Shared<B>, at: Instant) {
        self.pull(shared, at);
        while self.cold.stage.ahead.waiting() > 0 {
            self.depart(shared, at);
        }
        self.served = Served::ByShaper;
        self.look_for_superframes();
        self.choosing = false;
        self.cold.stage = Stage::default();
        self.look_later();
        self.look_for_special();
    }

    /// Sets the rate of the beam, for AQMs that use it.
    pub fn set_beam_rate(&mut self, rate: BitRate) {
        self.cold.stage.rate = match rate {
            BitRate::PerSec(rate) => Some(rate),
            BitRate::Unlimited | BitRate::Down => None,
        };
    }

    /// The state for the beam as of the last instant to which the pipe was advanced.
    #[inline]
    pub fn standing<B: Buffer>(&self, store: &Store<B>) -> Standing {
        if self.cold.stage.ahead.waiting() > 0
            && let Some(head) = self.fifo.queued(store)
        {
            Standing::Waits(head.bytes())
        } else if self.shaper.is_idle() {
            Standing::Empty
        } else {
            Standing::Comes(self.shaper.finish().unwrap_or(Instant::MAX))
        }
    }

    /// Serves the shaper up to and including `t`.
    #[inline]
    pub(super) fn pull<B: Buffer>(&mut self, shared: &mut Shared<B>, t: Instant) {
        while let Some(finish) = self.shaper.finish().filter(|f| *f <= t) {
            let ahead = &mut self.cold.stage.ahead;
            self.fifo.pass(&shared.store, ahead);
            // Else the queue is before the beam, and the AQM acts there.
            if self.extras.watched && ahead.waiting() == 1 {
                self.police_at(shared, finish, At::Shaper);
            }
            match self.fifo.ahead_of(&shared.store, &self.cold.stage.ahead) {
                Some((next, arrived)) => self.shaper.follow(next, arrived),
                None => self.shaper.rest(),
            }
        }
    }

    /// The beam would take the first waiting frame at `now`: lets the AQM drop it.
    #[inline]
    pub fn look_at_beam<B: Buffer>(&mut self, shared: &mut Shared<B>, now: Instant) {
        if self.extras.watched && self.cold.stage.ahead.waiting() > 1 {
            self.police_at(shared, now, At::Beam);
        }
    }

    /// The first waiting frame has left the beam at `t`.
    #[inline]
    pub fn depart<B: Buffer>(&mut self, shared: &mut Shared<B>, t: Instant) {
        let Some(head) = self.fifo.queued(&shared.store) else { return };
        self.leave_queue::<false, B>(shared, t, head);
        self.fifo.departed(&shared.store, &mut self.cold.stage.ahead);
        if self.extras.watched {
            self.attach(t, self.fifo.queued(&shared.store).map(|head| head.arrived));
        }
    }

    /// A frame of `len` bytes that arrived at `at` was appended at `place`.
    pub(super) fn joined(&mut self, at: Instant, len: u32, place: Place) {
        self.fifo.appended(&mut self.cold.stage.ahead, place);
        if self.extras.watched && self.fifo.queue_len() == 1 {
            self.attach(at, Some(at));
        }
        if self.shaper.is_idle() {
            self.shaper.start(at, len);
        }
    }

    /// The frame at either place as the AQM sees it at `now`, and its length.
    fn candidate_at<B: Buffer>(
        &self,
        store: &Store<B>,
        now: Instant,
        place: At,
    ) -> Option<(Candidate, u32)> {
        let ahead = &self.cold.stage.ahead;
        let (frame, cursor) = match place {
            At::Shaper => (self.fifo.ahead_of(store, ahead), Some(ahead)),
            At::Beam => (self.fifo.queued(store).map(|head| (head.bytes(), head.arrived)), None),
        };
        let (len, arrived) = frame.filter(|(_, arrived)| *arrived < now)?;
        let behind = self.fifo.behind_either(store, cursor, now, MAX_PACKET);
        Some((Candidate { arrived, behind }, len))
    }

    /// Lets an AQM that drops leaving frames act on those that would enter service at `now`.
    #[inline(never)]
    fn police_at<B: Buffer>(&mut self, shared: &mut Shared<B>, now: Instant, place: At) {
        if !self.cold.aqm.plan().drops_late() {
            return;
        }
        // There is no queue before a shaper without a limit.
        let passes = place == At::Shaper && self.shaper.is_unlimited();
        let mut head = self.candidate_at(&shared.store, now, place).filter(|_| !passes);
        let mut chosen =
            std::mem::take(&mut self.choosing) || self.cold.aqm.chooses(now, head.map(|(h, _)| h));
        while chosen && let Some((_, len)) = head {
            let stage = &self.cold.stage;
            let at = match place {
                At::Shaper => self.fifo.place_ahead(&stage.ahead),
                At::Beam if stage.ahead.waiting() > 0 => self.fifo.place_queued(),
                // The frame is still in the shaper.
                At::Beam => None,
            };
            let Some(at) = at else {
                self.choosing = true;
                return;
            };
            if self.cold.aqm.plan().ecn && self.mark_at(shared, now, at, len) {
                self.cold.aqm.marked(now);
                return;
            }
            self.queued -= u64::from(len);
            self.count_drop(shared, now, DropReason::Aqm, Some(at), len);
            let stage = &mut self.cold.stage;
            match place {
                At::Shaper => self.fifo.drop_ahead(&mut shared.store, &mut stage.ahead),
                At::Beam => {
                    self.fifo.depart(&mut shared.store, None);
                    self.fifo.departed(&shared.store, &mut stage.ahead);
                }
            }
            head = self.candidate_at(&shared.store, now, place);
            chosen = self.cold.aqm.dropped(now, head.map(|(h, _)| h));
        }
    }
}
