// SPDX-License-Identifier: Apache-2.0
//! Changes of plan, which each pipe takes when it is next looked at.

use std::sync::Arc;

use crate::beam::regroups;
use crate::client::ClientKey;
use crate::frame::Buffer;
use crate::observe::Scope;
use crate::plan::{Kept, Plan};
use crate::rng::StreamKey;
use crate::shaper::Origin;
use crate::units::{ByDirection, Direction, Instant};

use super::{BYPASS, Engine, SERVICE_LINES, SETTLED};

#[derive(Debug)]
pub(super) struct Change {
    pub(super) at: Instant,
    pub(super) plan: Plan,
    /// Parts of each pipe that it leaves as they are.
    pub(super) kept: ByDirection<Kept>,
    pub(super) restart: bool,
    /// Changes since the last restart of the random processes.
    pub(super) epoch: u32,
    /// Start of each direction's rate trace.
    pub(super) since: ByDirection<Instant>,
    /// The last restart of the random processes.
    pub(super) start: Instant,
}

impl<B: Buffer> Engine<B> {
    /// Applies a plan at `at`, for every pipe of both directions, as
    /// `generation`. With `restart`, all random processes restart. An unchanged rate trace
    /// continues, unless there is a restart. Returns the time of effect: `at`, or the latest time
    /// seen if that is later.
    ///
    /// From then on its rules classify frames. A client that they no longer name
    /// keeps its accounts and its frames, which leave when they are due.
    ///
    /// Each pipe takes the change when it is next accessed, as of that instant;
    /// [`Engine::release`] visits the other pipes, some at a time.
    pub fn apply(&mut self, at: Instant, plan: Plan, generation: u64, restart: bool) -> Instant {
        self.now = self.now.max(at);
        let at = self.now;
        let plan = plan.offloaded(self.limits.offloaded > 0);
        let Some(before) = self.changes.back() else { return at };
        let mut since = before.since;
        let start = if restart { at } else { before.start };
        let turned =
            Direction::BOTH.map(|d| restart || plan.pipes[d].rate != before.plan.pipes[d].rate);
        for direction in Direction::BOTH {
            if turned[direction as usize] {
                since[direction] = at;
            }
        }
        let epoch = if restart { 0 } else { before.epoch.wrapping_add(1) };
        let kept = ByDirection(Direction::BOTH.map(|d| match restart {
            true => Kept::default(),
            false => Kept::between(&before.plan.pipes[d], &plan.pipes[d]),
        }));
        if restart {
            self.expired.since_restart = 0;
        }
        // The old plan keeps its rules: nothing is freed here.
        self.is_ruled = !plan.rules.is_empty();
        self.by_address = plan.rules.by_address();
        self.rules = Arc::clone(&plan.rules);
        self.epoch = plan.epoch;
        let regroups = regroups(plan.beamed(), before.plan.beamed(), restart);
        self.forget_targets();
        self.end_beams(at, &plan, epoch, restart, regroups);
        self.changes.push_back(Change { at, plan, kept, restart, epoch, since, start });
        self.version += 1;
        self.begin_beams(at, regroups, turned);
        self.generation = generation;
        at
    }

    /// Lets a pipe take pending changes, and tells it whether it is observed.
    /// Precedes every other access to a pipe.
    #[inline]
    pub(super) fn catch_up(&mut self, id: u32) {
        let slot = &self.slots[id as usize];
        if slot.version != self.version || slot.asked != self.observer {
            self.catch_up_late(id);
        }
    }

    /// As [`Engine::catch_up`], of a pipe that has something to take.
    #[cold]
    #[inline(never)]
    pub(super) fn catch_up_late(&mut self, id: u32) {
        let slot = &self.slots[id as usize];
        let is_behind = slot.version != self.version;
        if slot.asked != self.observer {
            self.look_for_observer(id);
        }
        if is_behind {
            self.take_changes(id);
        }
    }

    pub(super) fn look_for_observer(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        slot.asked = self.observer;
        let direction = Direction::BOTH[id as usize % 2];
        let observer = self.shared.observer.as_ref();
        slot.pipe.set_scope(observer.map_or(Scope::Nothing, |o| o.scope(slot.client, direction)));
    }

    #[cold]
    pub(super) fn take_changes(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        let missed = self.version - slot.version;
        slot.version = self.version;
        self.settled += missed;
        // The bypass keeps its plan, and a vacant slot needs none.
        if id / 2 == BYPASS || slot.client == ClientKey::Expired {
            return;
        }
        let direction = Direction::BOTH[id as usize % 2];
        let first = self.changes.len() - missed as usize;
        for change in self.changes.range(first..) {
            let Change { at, plan, kept, restart, epoch, since, start } = change;
            let client = slot.client;
            let key = StreamKey { seed: plan.seed, client, direction, epoch: *epoch };
            let origin = Origin { trace: since[direction], start: *start, key };
            let plan = &plan.pipes[direction];
            slot.pipe.replan(&mut self.shared, plan, &origin, *at, *restart, kept[direction]);
        }
        if slot.pipe.is_in_beam() {
            self.tell_beam_rate(id);
        }
        self.reschedule(id);
    }

    /// Fetches the memory that pipes need to take a pending change. Their slots have been fetched before
    /// ([`Engine::prefetch_slot`]).
    #[cold]
    pub(super) fn prefetch_changes(&self, pipes: impl Iterator<Item = u32> + Clone) {
        let Some(change) = self.changes.back() else { return };
        let behind = |id: u32| {
            let slot = self.slots.get(id as usize)?;
            let kept = change.kept[Direction::BOTH[id as usize % 2]];
            (slot.version != self.version).then_some((&slot.pipe, kept))
        };
        // Each step prefetches for the next one.
        pipes.clone().filter_map(behind).for_each(|(pipe, kept)| pipe.prefetch_change(kept));
        pipes.filter_map(behind).for_each(|(pipe, kept)| pipe.prefetch_change_further(kept));
    }

    /// Lets all pipes take pending changes.
    pub fn settle_all(&mut self) {
        while self.oldest != self.version {
            self.settled = 0;
            self.settle();
        }
    }

    /// Lets some more pipes take pending changes.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.oldest != self.version {
            self.settle_some();
        }
    }

    #[inline(never)]
    fn settle_some(&mut self) {
        let (next, target) = self.settling.unwrap_or((0, self.version));
        let end = self.slots.len() as u32;
        let mut next = next;
        let ahead = next..end.min(next + SETTLED.saturating_sub(self.settled));
        for id in ahead.clone() {
            self.prefetch_slot::<SERVICE_LINES>(id);
        }
        self.prefetch_changes(ahead);
        while next < end && self.settled < SETTLED {
            self.catch_up(next);
            next += 1;
        }
        self.settling = Some((next, target));
        if next < end {
            return;
        }
        self.settling = None;
        while self.oldest != target {
            self.oldest += 1;
            self.replaced.extend(self.changes.pop_front().map(|c| c.plan));
        }
    }

    /// The next plan that all pipes have replaced; each one once, in
    /// order.
    pub fn replaced(&mut self) -> Option<Plan> {
        self.replaced.pop_front()
    }
}
