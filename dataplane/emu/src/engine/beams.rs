// SPDX-License-Identifier: Apache-2.0
//! How the engine drives the beams.
//!
//! Before anything else happens to a client of a beam, the beam is advanced to that
//! instant: the client's queue depends on the other clients. Events of the beams are in
//! the wheel behind those of the pipes.

use crate::access::Bursts;
use crate::beam::{BeamsPlan, Member, Queues, Standing};
use crate::frame::{Buffer, Frame};
use crate::plan::Plan;
use crate::units::{Direction, Instant};

use super::{Engine, SERVED};

impl<B: Buffer> Queues for Engine<B> {
    #[inline]
    fn member(&mut self, id: u32) -> &mut Member {
        self.beams.member(id)
    }

    #[inline]
    fn bring_up(&mut self, id: u32, t: Instant) -> Standing {
        self.catch_up(id);
        let pipe = &mut self.slots[id as usize].pipe;
        pipe.serve_until(&mut self.shared, t);
        pipe.standing(&self.shared.store)
    }

    #[inline]
    fn choose(&mut self, id: u32, t: Instant) -> Standing {
        let pipe = &mut self.slots[id as usize].pipe;
        pipe.look_at_beam(&mut self.shared, t);
        pipe.standing(&self.shared.store)
    }

    #[inline]
    fn leave(&mut self, id: u32, t: Instant) {
        self.slots[id as usize].pipe.depart(&mut self.shared, t);
        self.reschedule(id);
    }

    fn wanted(&mut self, id: u32, superframe: u64, t: Instant) -> Bursts {
        self.catch_up(id);
        self.slots[id as usize].pipe.wanted(superframe, t)
    }

    fn send(&mut self, id: u32, superframe: u64, t: Instant, bursts: Bursts) -> bool {
        let pipe = &mut self.slots[id as usize].pipe;
        let stays = pipe.serve_superframe(&mut self.shared, (superframe, t), bursts);
        self.reschedule(id);
        stays
    }
}

impl<B: Buffer> Engine<B> {
    /// Adds a new pipe to the members of its beam.
    pub(super) fn enlist(&mut self, plan: &BeamsPlan, id: u32, direction: Direction) {
        let slot = &mut self.slots[id as usize];
        let share = plan.share(slot.client, direction);
        self.beams.enlist(id, share, direction);
        if share.is_some() {
            match self.beams.phase(id) {
                Some(phase) => slot.pipe.join_carrier(&mut self.shared, phase, self.now),
                None => slot.pipe.join_beam(&mut self.shared, self.now),
            }
            slot.pipe.set_beam_rate(plan.rate(self.beams.beam_of(id)));
        }
    }

    /// A frame arrives for a client of a beam.
    #[inline(never)]
    pub(super) fn take_in_beam(&mut self, id: u32, frame: Frame<'_, B>, len: u32, tag: &[u8]) {
        let number = self.beams.beam_of(id);
        let now = self.now;
        self.advance_beam(number, now, u32::MAX);
        let pipe = &mut self.slots[id as usize].pipe;
        pipe.arrive(&mut self.shared, now, frame, len, tag);
        if self.beams.is_away(id) {
            self.beams.enroll(id, pipe.standing(&self.shared.store), now);
            self.schedule_beam(number);
        }
    }

    /// Processes up to `most` events of a beam up to `t`; returns the number.
    #[inline]
    pub(super) fn advance_beam(&mut self, number: u32, t: Instant, most: u32) -> u32 {
        let Some(mut beam) = self.beams.take_behind(number, t) else { return 0 };
        let steps = beam.advance(self, t, most);
        self.beams.put(number, beam);
        self.schedule_beam(number);
        steps
    }

    /// Advances all beams to `t`.
    pub(super) fn advance_beams(&mut self, t: Instant) {
        for number in 0..self.beams.len() {
            self.advance_beam(number, t, u32::MAX);
        }
    }

    /// Advances the beam of a client to `t`, if it has one.
    pub(super) fn advance_beam_of(&mut self, id: u32, t: Instant) {
        self.advance_beam(self.beams.beam_of(id), t, u32::MAX);
    }

    /// Inserts a beam into the wheel, as [`Engine::reschedule`] does.
    fn schedule_beam(&mut self, number: u32) {
        if let Some(t) = self.beams.reschedule(number) {
            self.wheel.insert(self.ready.room() as u32 + number, t);
        }
    }

    /// Advances lagging beams, of `only` one direction if there is one, to `now`, with a bounded
    /// amount of work per turn. Returns whether some still lag.
    pub(super) fn serve_beams(&mut self, now: Instant, only: Option<Direction>) -> bool {
        let mut most = SERVED;
        for _ in 0..self.beams.lagging() {
            let Some(number) = self.beams.next_lagging() else { break };
            let direction = Direction::BOTH[number as usize % 2];
            if only.is_some_and(|only| only != direction) {
                self.beams.lag_on(number);
                continue;
            }
            most -= self.advance_beam(number, now, most);
            if self.beams.served(number, now) {
                self.schedule_beam(number);
            } else if most == 0 {
                return true;
            }
        }
        false
    }

    /// Advances the beams to `at`, and regroups them if members or weights
    /// differ in the next plan.
    pub(super) fn end_beams(
        &mut self,
        at: Instant,
        plan: &Plan,
        epoch: u32,
        restart: bool,
        regroups: bool,
    ) {
        self.advance_beams(at);
        if !regroups {
            return;
        }
        // All pipes have to be under the old plan.
        self.settle_all();
        self.beams.form(plan.beamed(), epoch, self.limits.frame, at, restart);
        for id in 0..self.slots.len() as u32 {
            // A pipe that leaves a beam may lose frames on the way.
            self.look_for_observer(id);
            let slot = &mut self.slots[id as usize];
            let direction = Direction::BOTH[id as usize % 2];
            let share = plan.beams.share(slot.client, direction);
            let stays = self.beams.transfer(id, share, direction);
            let is_carried = self.beams.phase(id).is_some();
            let joins = share.is_some() && !is_carried;
            let pipe = &mut slot.pipe;
            if pipe.is_in_carrier() && !(stays && is_carried) {
                pipe.leave_carrier();
            } else if pipe.is_in_beam() && !pipe.is_in_carrier() && !joins {
                pipe.leave_beam(&mut self.shared, at);
            }
            if joins && !pipe.is_in_beam() {
                pipe.join_beam(&mut self.shared, at);
            }
        }
        self.beams.regroup(at);
    }

    /// Applies the beams' part of the change that was recorded at `at`. `turned` tells in which
    /// directions the clients' own rates change.
    pub(super) fn begin_beams(&mut self, at: Instant, regroups: bool, turned: [bool; 2]) {
        let Some(change) = self.changes.back() else { return };
        self.beams.replan(&change.plan.beams, self.limits.frame, at);
        if regroups {
            self.settle_all();
            for id in 0..self.slots.len() as u32 {
                let pipe = &mut self.slots[id as usize].pipe;
                // Under the new plan it has a terminal.
                if let Some(phase) = self.beams.phase(id)
                    && !pipe.is_in_carrier()
                {
                    pipe.join_carrier(&mut self.shared, phase, at);
                }
                if self.beams.is_away(id) {
                    let standing = self.slots[id as usize].pipe.standing(&self.shared.store);
                    self.beams.enroll(id, standing, at);
                }
                self.reschedule(id);
            }
        }
        for number in 0..self.beams.len() {
            if turned[number as usize % 2]
                && !regroups
                && let Some(mut beam) = self.beams.take(number)
            {
                beam.rekey(|id| self.bring_up(id, at), at);
                self.beams.put(number, beam);
            }
            self.schedule_beam(number);
        }
    }

    /// A member takes a change: its AQM may use the beam's rate.
    pub(super) fn tell_beam_rate(&mut self, id: u32) {
        let Some(change) = self.changes.back() else { return };
        let rate = change.plan.beams.rate(self.beams.beam_of(id));
        self.slots[id as usize].pipe.set_beam_rate(rate);
    }
}
