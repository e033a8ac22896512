// SPDX-License-Identifier: Apache-2.0
//! The beams of an engine and their members.
//!
//! Pipes have the numbers of the engine, beams those of [`number`].

use std::collections::VecDeque;

use crate::units::{Direction, Instant};

use super::server::{Beam, Member, NO_BEAM, Place, Standing};
use super::{BeamsPlan, MAX_BEAMS, Share, number};

/// The beams, their members, and which of them have work to catch up with.
#[derive(Debug)]
pub struct Beams {
    /// `None` where the plan has no limit.
    beams: Vec<Option<Box<Beam>>>,
    /// By pipe.
    members: Vec<Member>,
    /// Beams that expired in the wheel, in order; each once.
    lagging: VecDeque<u32>,
}

fn member(share: Option<Share>, direction: Direction) -> Member {
    let beam = share.map_or(NO_BEAM, |share| number(share.beam, direction));
    Member::new(beam, share.map_or(1, |share| share.weight))
}

impl Beams {
    /// No beams, and room for so many pipes.
    pub fn with_room_for(pipes: usize) -> Self {
        Self {
            beams: Vec::new(),
            members: Vec::with_capacity(pipes),
            lagging: VecDeque::with_capacity(2 * MAX_BEAMS),
        }
    }

    pub fn len(&self) -> u32 {
        self.beams.len() as u32
    }

    fn get(&mut self, number: u32) -> Option<&mut Beam> {
        self.beams.get_mut(number as usize)?.as_deref_mut()
    }

    /// Forms the beams of a plan at `at`. Those that there were stay.
    pub fn form(&mut self, plan: &BeamsPlan, longest: u32, at: Instant) {
        let mut before = std::mem::take(&mut self.beams).into_iter();
        let beams = plan.terms(longest).map(|terms| {
            let stays = before.next().flatten();
            terms.map(|terms| stays.unwrap_or_else(|| Box::new(Beam::new(terms, at))))
        });
        self.beams = beams.collect();
        self.lagging.retain(|n| self.beams.get(*n as usize).is_some_and(Option::is_some));
    }

    /// Gives a new pipe its share.
    pub fn enlist(&mut self, id: u32, share: Option<Share>, direction: Direction) {
        let member = member(share, direction);
        match self.members.get_mut(id as usize) {
            Some(place) => *place = member,
            None => self.members.push(member),
        }
        if let Some(beam) = self.get(member.beam) {
            beam.add_room();
        }
    }

    /// Gives a pipe another share. Returns whether it was in a beam, and whether it is.
    /// [`Beams::regroup`] comes after all pipes.
    pub fn transfer(&mut self, id: u32, share: Option<Share>, direction: Direction) -> [bool; 2] {
        let before = self.members[id as usize];
        let mut after = member(share, direction);
        if before.beam == after.beam && matches!(before.place, Place::Round | Place::Service) {
            after.place = before.place;
        }
        self.members[id as usize] = after;
        [before, after].map(|member| member.beam != NO_BEAM)
    }

    /// Keeps those of each beam's round that are still its members.
    pub fn regroup(&mut self, at: Instant) {
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

    /// Takes the rates and framings of a plan at `at`.
    pub fn replan(&mut self, plan: &BeamsPlan, longest: u32, at: Instant) {
        for (beam, terms) in self.beams.iter_mut().zip(plan.terms(longest)) {
            if let (Some(beam), Some(terms)) = (beam, terms) {
                beam.replan(terms, at);
            }
        }
    }

    pub fn member(&mut self, id: u32) -> &mut Member {
        &mut self.members[id as usize]
    }

    /// The number of a pipe's beam; [`NO_BEAM`] if it has none.
    pub fn beam_of(&self, id: u32) -> u32 {
        self.members[id as usize].beam
    }

    /// Whether its beam does not list the pipe.
    pub fn is_away(&self, id: u32) -> bool {
        self.members[id as usize].place == Place::Away
    }

    /// A pipe that is not listed has `standing` at `at`.
    pub fn enroll(&mut self, id: u32, standing: Standing, at: Instant) {
        let member = &mut self.members[id as usize];
        if let Some(Some(beam)) = self.beams.get_mut(member.beam as usize) {
            beam.enroll(member, id, standing, at);
        }
    }

    /// Takes out a beam that has something to do up to `t`.
    #[inline]
    pub fn take_behind(&mut self, number: u32, t: Instant) -> Option<Box<Beam>> {
        self.beams.get_mut(number as usize)?.take_if(|b| b.is_behind(t))
    }

    pub fn take(&mut self, number: u32) -> Option<Box<Beam>> {
        self.beams.get_mut(number as usize)?.take()
    }

    pub fn put(&mut self, number: u32, beam: Box<Beam>) {
        self.beams[number as usize] = Some(beam);
    }

    /// The time for which to insert a beam into the wheel, if that is sooner than the scheduled one.
    pub fn reschedule(&mut self, number: u32) -> Option<Instant> {
        let beam = self.get(number).filter(|beam| !beam.lags)?;
        let t = beam.deadline().filter(|t| *t < beam.scheduled)?;
        beam.later = beam.scheduled;
        beam.scheduled = t;
        Some(t)
    }

    /// A beam expired in the wheel.
    pub fn lag(&mut self, number: u32) {
        if let Some(beam) = self.get(number)
            && !std::mem::replace(&mut beam.lags, true)
        {
            self.lagging.push_back(number);
        }
    }

    /// Number of beams that lag.
    pub fn lagging(&self) -> usize {
        self.lagging.len()
    }

    pub fn next_lagging(&mut self) -> Option<u32> {
        self.lagging.pop_front()
    }

    /// A beam lags on.
    pub fn lag_on(&mut self, number: u32) {
        self.lagging.push_back(number);
    }

    /// A beam that lagged was served at `now`. Returns whether it has nothing left to do then;
    /// else it lags on.
    pub fn served(&mut self, number: u32, now: Instant) -> bool {
        let Some(beam) = self.get(number) else { return true };
        if beam.is_behind(now) {
            self.lagging.push_back(number);
            return false;
        }
        beam.lags = false;
        if beam.scheduled <= now {
            beam.scheduled = if beam.later > now { beam.later } else { Instant::MAX };
            beam.later = Instant::MAX;
        }
        true
    }
}
