// SPDX-License-Identifier: Apache-2.0
//! A pipe of a client with capacity on demand in a beam, which is a carrier then
//! ([`crate::beam`]): its frames leave in the bursts that the carrier assigns.
//!
//! The engine calls such a pipe at the start of a superframe; the pipe never lets a frame leave by itself.

use crate::access::Bursts;
use crate::frame::Buffer;
use crate::units::Instant;

use super::{Pipe, Served, Shared};

impl Pipe {
    #[inline]
    #[must_use]
    pub fn is_in_carrier(&self) -> bool {
        self.served == Served::ByCarrier
    }

    /// From `at` on frames leave in superframes of a carrier, of which the first one starts at `phase`. All
    /// requests and grants end.
    pub fn join_carrier<B: Buffer>(&mut self, shared: &mut Shared<B>, phase: Instant, at: Instant) {
        self.serve(shared, at, u32::MAX);
        self.stop_cross();
        self.served = Served::ByCarrier;
        self.despite_hold(at, |it| it.shaper.align(phase, at));
        self.look_later();
        self.look_for_special();
    }

    /// From now on its capacity is its own. Requests and grants stay.
    pub fn leave_carrier(&mut self) {
        self.served = Served::ByShaper;
        self.look_for_superframes();
        self.look_later();
        self.look_for_special();
    }

    /// The bursts that the terminal may have in a superframe, which starts at `t`.
    pub(crate) fn wanted(&mut self, superframe: u64, t: Instant) -> Bursts {
        let waits = self.waits_at(t);
        self.shaper.terminal().map_or(Bursts::default(), |it| it.wanted(superframe, waits))
    }

    /// Lets frames leave in the bursts of a superframe and its start. Returns whether the terminal takes part
    /// in the next superframe.
    pub(crate) fn serve_superframe<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        (superframe, t): (u64, Instant),
        bursts: Bursts,
    ) -> bool {
        let waits = self.waits_at(t);
        let Some(terminal) = self.shaper.terminal() else { return false };
        if waits {
            terminal.take(superframe, bursts);
            self.serve_frames::<false, true, B>(shared, t, u32::MAX);
        } else {
            terminal.pass(superframe, bursts);
        }
        !self.shaper.is_idle()
            || self.shaper.terminal().is_some_and(|it| it.is_served_after(superframe))
    }

    /// Whether a frame waits for the superframe that starts at `t`: not while the pipe is on hold.
    fn waits_at(&self, t: Instant) -> bool {
        self.shaper.finish().is_some_and(|finish| finish <= t)
    }
}
