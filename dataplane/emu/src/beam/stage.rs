// SPDX-License-Identifier: Apache-2.0
//! The beams of an engine and their members.
//!
//! Pipes have the numbers of the engine, beams those of [`number`].

use std::collections::VecDeque;

use crate::access::AccessPlan;
use crate::client::ClientKey;
use crate::rng::{self, Stream, StreamKey};
use crate::units::{ByDirection, Direction, Instant};

use super::carrier::Carrier;
use super::server::{Beam, Member, NO_BEAM, Place, Queues, Standing, Terms};
use super::{BeamsPlan, MAX_BEAMS, Share, number};

/// What serves the clients of a beam.
#[derive(Debug)]
enum Kind {
    Beam(Beam),
    Carrier(Carrier),
}

/// A beam in one direction, and its place in the wheel.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    /// The next time in the wheel, and the one after that, as far as known.
    scheduled: Instant,
    /// See `scheduled`.
    later: Instant,
    /// Whether it is in the list of beams that lag.
    lags: bool,
}

impl Server {
    fn new(kind: Kind) -> Self {
        Self { kind, scheduled: Instant::MAX, later: Instant::MAX, lags: false }
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Beam(beam) => beam.deadline(),
            Kind::Carrier(carrier) => carrier.deadline(),
        }
    }

    /// Whether there is an event up to and including `t`.
    #[inline]
    fn is_behind(&self, t: Instant) -> bool {
        match &self.kind {
            Kind::Beam(beam) => beam.is_behind(t),
            Kind::Carrier(carrier) => carrier.deadline().is_some_and(|at| at <= t),
        }
    }

    /// Does up to `most` steps up to and including `t`; returns the number.
    #[inline]
    pub fn advance(&mut self, queues: &mut impl Queues, t: Instant, most: u32) -> u32 {
        match &mut self.kind {
            Kind::Beam(beam) => beam.advance(queues, t, most),
            Kind::Carrier(carrier) => carrier.advance(queues, t, most),
        }
    }

    /// Updates when frames of clients come whose own rates have changed.
    pub fn rekey(&mut self, standing: impl FnMut(u32) -> Standing, at: Instant) {
        // Rates of terminals take effect in the next superframe.
        if let Kind::Beam(beam) = &mut self.kind {
            beam.rekey(standing, at);
        }
    }

    fn add_room(&mut self) {
        match &mut self.kind {
            Kind::Beam(beam) => beam.add_room(),
            Kind::Carrier(carrier) => carrier.add_room(),
        }
    }

    fn regroup(&mut self, at: Instant, stays: impl Fn(u32) -> bool) {
        match &mut self.kind {
            Kind::Beam(beam) => beam.regroup(at, stays),
            Kind::Carrier(carrier) => carrier.regroup(stays),
        }
    }

    fn replan(&mut self, terms: Terms, at: Instant) {
        match &mut self.kind {
            Kind::Beam(beam) => beam.replan(terms, at),
            Kind::Carrier(carrier) => carrier.replan(terms.rate),
        }
    }

    fn enroll(&mut self, member: &mut Member, id: u32, standing: Standing, at: Instant) {
        match &mut self.kind {
            Kind::Beam(beam) => beam.enroll(member, id, standing, at),
            Kind::Carrier(_) if standing == Standing::Empty => {}
            Kind::Carrier(carrier) => carrier.enroll(member, id, at),
        }
    }

    /// Whether it continues in a plan with such access.
    fn suits(&self, access: Option<&AccessPlan>) -> bool {
        match (&self.kind, access) {
            (Kind::Beam(_), None) => true,
            (Kind::Carrier(carrier), Some(access)) => carrier.suits(access),
            _ => false,
        }
    }
}

/// What a plan says of its beams.
#[derive(Clone, Copy, Debug)]
pub struct Beamed<'a> {
    pub beams: &'a BeamsPlan,
    /// Of the terminals of each direction.
    pub access: ByDirection<Option<&'a AccessPlan>>,
    pub seed: u64,
}

/// Whether the engine has to regroup its beams when `plan` follows `before`: members or weights differ, or
/// a carrier begins, ends or begins again.
pub fn regroups(plan: Beamed<'_>, before: Beamed<'_>, restart: bool) -> bool {
    let turns = |d| match (plan.access[d], before.access[d]) {
        (None, None) => false,
        (Some(access), Some(before)) => restart || !access.is_as(before),
        _ => true,
    };
    !plan.beams.groups_as(before.beams)
        || Direction::BOTH.into_iter().any(|d| plan.beams.shares_in(d) && turns(d))
}

/// The beams, their members, and which of them have work to catch up with.
#[derive(Debug)]
pub struct Beams {
    /// `None` where the plan has no limit.
    beams: Vec<Option<Box<Server>>>,
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

    fn get(&mut self, number: u32) -> Option<&mut Server> {
        self.beams.get_mut(number as usize)?.as_deref_mut()
    }

    /// Forms the beams of a plan at `at`. Those that there were stay, except for carriers of other
    /// superframes and, with `restart`, all carriers.
    pub fn form(&mut self, plan: Beamed<'_>, epoch: u32, longest: u32, at: Instant, restart: bool) {
        let mut before = std::mem::take(&mut self.beams).into_iter();
        let mut numbers = 0_u32..;
        let beams = plan.beams.terms(longest).map(|terms| {
            let number = numbers.next().unwrap_or_default();
            let direction = Direction::BOTH[number as usize % 2];
            let access = plan.access[direction];
            let stays = before.next().flatten().filter(|server| {
                server.suits(access) && !(restart && matches!(server.kind, Kind::Carrier(_)))
            });
            let Some(terms) = terms else { return (None, false) };
            if stays.is_some() {
                return (stays, true);
            }
            let kind = match access {
                None => Kind::Beam(Beam::new(terms, at)),
                Some(access) => {
                    let client = ClientKey::Default;
                    let key = StreamKey { seed: plan.seed, client, direction, epoch };
                    let index = u8::try_from(number / 2).unwrap_or(u8::MAX);
                    let mut phase = Stream::new(key, rng::Stage::Slot, index);
                    let phase = at + phase.below(access.superframe);
                    Kind::Carrier(Carrier::new(*access, terms.rate, phase, key, index))
                }
            };
            (Some(Box::new(Server::new(kind))), false)
        });
        let (beams, stay): (Vec<_>, Vec<_>) = beams.unzip();
        self.beams = beams;
        for member in &mut self.members {
            if !stay.get(member.beam as usize).is_some_and(|stays| *stays) {
                *member = Member::new(NO_BEAM, member.weight);
            }
        }
        self.lagging.retain(|n| stay.get(*n as usize).is_some_and(|stays| *stays));
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

    /// Gives a pipe another share. Returns whether it is in the beam in which it was, or still in none.
    /// [`Beams::regroup`] comes after all pipes.
    pub fn transfer(&mut self, id: u32, share: Option<Share>, direction: Direction) -> bool {
        let before = self.members[id as usize];
        let mut after = member(share, direction);
        let stays = before.beam == after.beam;
        if stays && matches!(before.place, Place::Round | Place::Service) {
            (after.place, after.credit) = (before.place, before.credit);
        }
        self.members[id as usize] = after;
        stays
    }

    /// Start of the first superframe of a pipe's carrier, if it is in one.
    pub fn phase(&self, id: u32) -> Option<Instant> {
        match &self.beams.get(self.beam_of(id) as usize)?.as_deref()?.kind {
            Kind::Carrier(carrier) => Some(carrier.phase()),
            Kind::Beam(_) => None,
        }
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
    pub fn take_behind(&mut self, number: u32, t: Instant) -> Option<Box<Server>> {
        self.beams.get_mut(number as usize)?.take_if(|b| b.is_behind(t))
    }

    pub fn take(&mut self, number: u32) -> Option<Box<Server>> {
        self.beams.get_mut(number as usize)?.take()
    }

    pub fn put(&mut self, number: u32, beam: Box<Server>) {
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
