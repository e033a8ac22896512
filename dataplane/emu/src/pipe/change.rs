// SPDX-License-Identifier: Apache-2.0
//! Changes of plan, and pipes that were idle for long.

use crate::aqm::Aqm;
use crate::channel::Channel;
use crate::corrupt::Corrupt;
use crate::duplicate::Duplicate;
use crate::frame::Buffer;
use crate::memory::prefetch_slice;
use crate::mtu::Mtu;
use crate::plan::{Kept, PipePlan};
use crate::reorder::Reorder;
use crate::shaper::Origin;
use crate::units::Instant;

use super::{AT_ONCE, Cold, Extras, Pipe, Shared, at_arrival};

impl Pipe {
    /// Applies a plan at `at`; with `restart`, all random processes restart
    /// with the key's seed. Frames in the pipe
    /// keep their place: the one in service continues at the new rate, a smaller limit
    /// purges nothing, a smaller delay overtakes nothing. Parts that are `kept` are not accessed; a restart
    /// keeps none.
    pub fn replan<B: Buffer>(
        &mut self,
        shared: &mut Shared<B>,
        plan: &PipePlan,
        origin: &Origin,
        at: Instant,
        restart: bool,
        kept: Kept,
    ) {
        let Origin { key, start, .. } = *origin;
        // All of it: frames that a plan without a limit released must leave under that plan.
        self.serve(shared, at, u32::MAX);
        self.keep_access();
        self.admitted = plan.queue.admits_up_to();
        self.extras = Extras::of(plan);
        self.unchecked = Mtu::unchecked(plan.mtu);
        debug_assert!(!restart || kept == Kept::default());
        if !kept.channel {
            self.cold.loss = if self.cold.is_offloaded { plan.offload.loss } else { 0 };
        }
        if restart {
            let channel = plan.channel(self.cold.loss == 0);
            self.despite_hold(at, |it| it.shaper.restart(&plan.rate, plan.framing, at, origin));
            self.cold.aqm = Aqm::new(plan.queue, key, at);
            self.cold.mtu = None;
            self.cold.duplicate = None;
            self.cold.corrupt = None;
            self.cold.reorder = None;
            self.stop_cross();
            self.channel = Channel::new(&channel, key, at, start);
            self.delay.restart(&plan.delay, key, at, start);
        } else {
            self.despite_hold(at, |it| it.shaper.replan(&plan.rate, plan.framing, at, origin));
            if !kept.queue {
                self.cold.aqm.replan(plan.queue, at);
            }
            if !kept.channel {
                let channel = plan.channel(self.cold.loss == 0);
                self.channel.replan(&channel, key, at, start);
            }
            if kept.delay {
                self.delay.set_base(plan.delay.base);
            } else {
                self.delay.replan(&plan.delay, key, at, start);
            }
        }
        if self.extras.watched {
            self.attach(at, self.fifo.queued(&shared.store).map(|head| head.arrived));
            if !self.has_queue() {
                // There is no queue: the state of choosing from it ends.
                self.cold.aqm.chooses(at, None);
            }
        }
        if !kept.extras {
            let Cold { mtu, duplicate, corrupt, reorder, .. } = &mut *self.cold;
            *mtu = Mtu::new(plan.mtu, at, mtu.take());
            *duplicate = Duplicate::new(plan.duplicate, key, duplicate.take());
            *corrupt = Corrupt::new(plan.corrupt, key, corrupt.take());
            *reorder = Reorder::new(plan.reorder, key, reorder.take());
            self.set_cross(plan, key, at);
        }
        self.at_arrival = at_arrival(plan);
        self.look_for_superframes();
        self.look_later();
        // Without a rate limit the queue empties from now on.
        self.serve_until(shared, at);
        self.look_for_special();
    }

    /// Keeps the accounts of capacity on demand, which the next plan may not have.
    fn keep_access(&mut self) {
        if self.shaper.is_on_demand() {
            let past = self.cold.access.get_or_insert_default();
            **past = past.plus(self.shaper.take_access());
        }
    }

    /// Hints that it will take a change soon, which leaves some parts as they are.
    #[inline]
    pub fn prefetch_change(&self, kept: Kept) {
        if !kept.queue {
            prefetch_slice::<_, 8>(std::slice::from_ref(&self.cold.aqm));
        }
        if !kept.channel {
            self.channel.prefetch();
        }
    }

    /// The same again, once the first hint has been followed.
    #[inline]
    pub fn prefetch_change_further(&self, kept: Kept) {
        if !kept.channel {
            self.channel.prefetch_classes();
        }
    }

    /// Advances the random processes to `at`, so that a pipe that was idle for
    /// long has little to catch up with.
    pub fn keep_up<B: Buffer>(&mut self, shared: &mut Shared<B>, at: Instant) {
        self.end_hold_in_time(shared, at);
        if self.has_cross() {
            self.serve(shared, at, AT_ONCE);
        } else {
            self.serve_until(shared, at);
        }
        // Frames that have yet to arrive at or leave the queue ask for earlier instants.
        if self.cross_next <= at || self.shaper.finish().is_some_and(|finish| finish <= at) {
            return;
        }
        if self.shaper.is_idle() {
            self.shaper.keep_up(at);
        }
        self.cold.aqm.keep_up(at);
        self.channel.keep_up(at);
        self.delay.keep_up(at);
    }
}
