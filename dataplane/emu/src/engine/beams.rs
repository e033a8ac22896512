// SPDX-License-Identifier: Apache-2.0
//! The beams of a worker's clients, and how they go with the pipes.
//!
//! Before anything else happens to a client of a beam, its beam is brought up to that
//! instant: what the client's queue holds depends on the others. Events of the beams are in
//! the wheel behind those of the pipes.

use crate::beam::{Beam, BeamsPlan, Member, NO_BEAM, Place, Queues, Standing, number};
use crate::frame::{Buffer, Frame};
use crate::units::{BitRate, Direction, Instant};

use super::{Engine, SERVED};

impl<B: Buffer> Queues for Engine<B> {
    #[inline]
    fn member(&mut self, id: u32) -> &mut Member {
        &mut self.members[id as usize]
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
}

impl<B: Buffer> Engine<B> {
    /// The beams of a plan, idle.
    pub(super) fn form_beams(&mut self, plan: &BeamsPlan) {
        let at = self.now;
        let terms = plan.terms(self.limits.frame);
        self.beams = terms.map(|t| t.map(|t| Box::new(Beam::new(t, at)))).collect();
    }

    /// Gives a new pipe its place among the members.
    pub(super) fn enlist(&mut self, plan: &BeamsPlan, id: u32, direction: Direction) {
        let slot = &mut self.slots[id as usize];
        let share = plan.share(slot.client, direction);
        let beam = share.map_or(NO_BEAM, |share| number(share.beam, direction));
        let member = Member::new(beam, share.map_or(1, |share| share.weight));
        match self.members.get_mut(id as usize) {
            Some(place) => *place = member,
            None => self.members.push(member),
        }
        if share.is_none() {
            return;
        }
        slot.pipe.join_beam(&mut self.shared, self.now);
        slot.pipe.set_beam_rate(rate_of(plan, beam));
        if let Some(beam) = &mut self.beams[beam as usize] {
            beam.add_room();
        }
    }

    /// A frame arrives for a client of a beam.
    #[inline(never)]
    pub(super) fn take_in_beam(&mut self, id: u32, frame: Frame<'_, B>, len: u32, tag: &[u8]) {
        let number = self.members[id as usize].beam;
        let now = self.now;
        self.advance_beam(number, now, u32::MAX);
        let pipe = &mut self.slots[id as usize].pipe;
        pipe.arrive(&mut self.shared, now, frame, len, tag);
        let member = &mut self.members[id as usize];
        if member.place == Place::Away
            && let Some(beam) = &mut self.beams[number as usize]
        {
            beam.enroll(member, id, pipe.standing(&self.shared.store), now);
            self.schedule_beam(number);
        }
    }

    /// Does up to `most` things of a beam up to `t`; returns how many.
    #[inline]
    pub(super) fn advance_beam(&mut self, number: u32, t: Instant, most: u32) -> u32 {
        let place = self.beams.get_mut(number as usize);
        let Some(mut beam) = place.and_then(|b| b.take_if(|b| b.is_behind(t))) else { return 0 };
        let steps = beam.advance(self, t, most);
        self.beams[number as usize] = Some(beam);
        self.schedule_beam(number);
        steps
    }

    /// Brings all beams up to `t`.
    pub(super) fn advance_beams(&mut self, t: Instant) {
        for number in 0..self.beams.len() as u32 {
            self.advance_beam(number, t, u32::MAX);
        }
    }

    /// Brings the beam of a client up to `t`, if it has one.
    pub(super) fn advance_beam_of(&mut self, id: u32, t: Instant) {
        self.advance_beam(self.members[id as usize].beam, t, u32::MAX);
    }

    /// Sees to it that the wheel brings a beam up in time, as [`Engine::reschedule`] does.
    fn schedule_beam(&mut self, number: u32) {
        if let Some(beam) = &mut self.beams[number as usize]
            && !beam.lags
            && let Some(t) = beam.deadline()
            && t < beam.scheduled
        {
            beam.later = beam.scheduled;
            beam.scheduled = t;
            self.wheel.insert(self.is_ready.len() as u32 + number, t);
        }
    }

    /// Brings beams that the wheel brought up to `now`, some of the work in each turn.
    pub(super) fn serve_beams(&mut self, now: Instant) {
        let mut most = SERVED;
        for _ in 0..self.lagging.len() {
            let Some(number) = self.lagging.pop_front() else { break };
            most -= self.advance_beam(number, now, most);
            let Some(beam) = &mut self.beams[number as usize] else { continue };
            if beam.is_behind(now) {
                self.lagging.push_back(number);
                if most == 0 {
                    break;
                }
                continue;
            }
            beam.lags = false;
            if beam.scheduled <= now {
                beam.scheduled = if beam.later > now { beam.later } else { Instant::MAX };
                beam.later = Instant::MAX;
            }
            self.schedule_beam(number);
        }
    }

    /// Brings the beams up to `at`, and forms them anew if the members or their weights
    /// are others in the plan that comes.
    pub(super) fn end_beams(&mut self, at: Instant, plan: &BeamsPlan, regroups: bool) {
        self.advance_beams(at);
        if !regroups {
            return;
        }
        // Each pipe is to be under the plan that ends.
        self.settle_all();
        let mut before = std::mem::take(&mut self.beams).into_iter();
        let terms = plan.terms(self.limits.frame);
        let beams = terms.map(|terms| {
            let stays = before.next().flatten();
            terms.map(|t| stays.unwrap_or_else(|| Box::new(Beam::new(t, at))))
        });
        self.beams = beams.collect();
        self.lagging.retain(|n| self.beams.get(*n as usize).is_some_and(Option::is_some));
        for id in 0..self.slots.len() {
            // Who leaves a beam may lose frames on the way.
            self.look_for_observer(id as u32);
            let slot = &mut self.slots[id];
            let direction = Direction::BOTH[id % 2];
            let share = plan.share(slot.client, direction);
            let beam = share.map_or(NO_BEAM, |s| number(s.beam, direction));
            let weight = share.map_or(1, |s| s.weight);
            let member = &mut self.members[id];
            let stays =
                member.beam == beam && matches!(member.place, Place::Round | Place::Service);
            let was_in_beam = member.beam != NO_BEAM;
            let place = if stays { member.place } else { Place::Away };
            *member = Member::new(beam, weight);
            member.place = place;
            match (was_in_beam, beam != NO_BEAM) {
                (false, true) => slot.pipe.join_beam(&mut self.shared, at),
                (true, false) => slot.pipe.leave_beam(&mut self.shared, at),
                _ => {}
            }
        }
        for (number, beam) in self.beams.iter_mut().enumerate() {
            let Some(beam) = beam else { continue };
            beam.regroup(at, |id| {
                let member = &self.members[id as usize];
                member.beam as usize == number && member.place != Place::Away
            });
        }
        for member in &self.members {
            if let Some(Some(beam)) = self.beams.get_mut(member.beam as usize) {
                beam.add_room();
            }
        }
    }

    /// Puts the beams' part of the change that was put on record at `at` in force. `turned`
    /// tells in which directions the clients' own rates are others.
    pub(super) fn begin_beams(&mut self, at: Instant, regroups: bool, turned: [bool; 2]) {
        let Some(change) = self.changes.back() else { return };
        let plan = change.plan.beams.clone();
        for (beam, terms) in self.beams.iter_mut().zip(plan.terms(self.limits.frame)) {
            if let (Some(beam), Some(terms)) = (beam, terms) {
                beam.replan(terms, at);
            }
        }
        if regroups {
            self.settle_all();
            for id in 0..self.slots.len() as u32 {
                let standing = self.slots[id as usize].pipe.standing(&self.shared.store);
                let member = &mut self.members[id as usize];
                if member.place == Place::Away
                    && let Some(Some(beam)) = self.beams.get_mut(member.beam as usize)
                {
                    beam.enroll(member, id, standing, at);
                }
                self.reschedule(id);
            }
        }
        for number in 0..self.beams.len() {
            if turned[number % 2]
                && !regroups
                && let Some(mut beam) = self.beams[number].take()
            {
                beam.rekey(|id| self.bring_up(id, at), at);
                self.beams[number] = Some(beam);
            }
            self.schedule_beam(number as u32);
        }
    }

    /// A member takes a change: its AQM may ask for the beam's rate.
    pub(super) fn tell_beam_rate(&mut self, id: u32) {
        let Some(change) = self.changes.back() else { return };
        let rate = rate_of(&change.plan.beams, self.members[id as usize].beam);
        self.slots[id as usize].pipe.set_beam_rate(rate);
    }
}

/// The rate of a beam of an engine.
fn rate_of(plan: &BeamsPlan, number: u32) -> BitRate {
    let beam = plan.beams.get(number as usize / 2);
    beam.map_or(BitRate::Unlimited, |b| b.rate.0[number as usize % 2])
}
