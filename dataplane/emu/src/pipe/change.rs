// SPDX-License-Identifier: Apache-2.0
//! Changes of plan, and pipes that were idle for long.

use super::*;

impl Pipe {
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
}
