// SPDX-License-Identifier: Apache-2.0
//! The server of a beam in one direction: which client is next, and when its frame has left.
//!
//! A client is in the round while it has frames waiting; else, while its own shaper is busy, its
//! next finish is in a heap. So idle clients cost nothing. Events are processed in order of time,
//! and `advance` to one instant and then to a later one is `advance` to the later one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::access::{Bursts, Credit};
use crate::framing::Framing;
use crate::shaper::Shaper;
use crate::units::{BitRate, Instant};

/// Marks a pipe without a beam.
pub const NO_BEAM: u32 = u32::MAX;

/// The state of a client as its beam sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A frame of this length waits for it.
    Waits(u32),
    /// A frame will wait at this instant; [`Instant::MAX`] while the client's link is down.
    Comes(Instant),
    /// No frame waits or is in the shaper.
    Empty,
}

/// Where a beam lists a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it has no frame.
    Away,
    /// In the heap, by its next finish.
    Coming,
    /// In the round, or listed by a carrier.
    Round,
    Service,
}

/// A beam's record of a client.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub beam: u32,
    pub weight: u16,
    pub place: Place,
    /// Unused allowance, in bytes × the least weight.
    deficit: u64,
    /// Of a terminal of a carrier.
    pub credit: Credit,
}

impl Member {
    /// A client of weight `weight` without frames.
    pub fn new(beam: u32, weight: u16) -> Self {
        Self { beam, weight, place: Place::Away, deficit: 0, credit: Credit::default() }
    }
}

/// The clients' queues, by their numbers.
pub trait Queues {
    /// A beam's record of a client.
    fn member(&mut self, id: u32) -> &mut Member;
    /// Advances a client's shaper to `t`.
    fn bring_up(&mut self, id: u32, t: Instant) -> Standing;
    /// The beam would take the client's first frame at `t`: the AQM may drop it.
    fn choose(&mut self, id: u32, t: Instant) -> Standing;
    /// The client's first frame has left the beam at `t`.
    fn leave(&mut self, id: u32, t: Instant);
    /// The bursts that a terminal may have in a superframe, which starts at `t`.
    fn wanted(&mut self, id: u32, superframe: u64, t: Instant) -> Bursts;
    /// A terminal sends in a superframe, which starts at `t`, and asks for more. Returns whether it takes
    /// part in the next one.
    fn send(&mut self, id: u32, superframe: u64, t: Instant, bursts: Bursts) -> bool;
}

/// The parameters of a beam, and quanta that follow from them.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub rate: BitRate,
    framing: Framing,
    /// Least weight of all members, by which frames are charged.
    lightest: u64,
    /// Allowance of a turn for each unit of weight.
    quantum: u64,
}

impl Terms {
    /// Of a beam whose clients have weights of at least `lightest`.
    pub fn new(rate: BitRate, framing: Framing, lightest: u16, longest: u32) -> Self {
        let mut terms = Self { rate, framing, lightest: u64::from(lightest.max(1)), quantum: 0 };
        terms.quantum = terms.charged(longest);
        terms
    }

    fn charged(&self, len: u32) -> u64 {
        self.framing.bytes(len)
    }

    fn cost(&self, len: u32) -> u64 {
        self.charged(len) * self.lightest
    }
}

/// A beam in one direction.
#[derive(Debug)]
pub struct Beam {
    terms: Terms,
    server: Shaper,
    /// The client in service.
    serving: Option<u32>,
    /// Clients in the round, the next one first.
    round: VecDeque<u32>,
    /// The next finish of the other clients.
    coming: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Time of the last event.
    now: Instant,
    members: usize,
}

impl Beam {
    pub fn new(terms: Terms, at: Instant) -> Self {
        Self {
            server: Shaper::constant(terms.rate, terms.framing),
            terms,
            serving: None,
            round: VecDeque::new(),
            coming: BinaryHeap::new(),
            now: at,
            members: 0,
        }
    }

    /// Reserves room for one more client, so that packets allocate nothing.
    pub fn add_room(&mut self) {
        self.members += 1;
        self.round.reserve(self.members - self.round.len().min(self.members));
        self.coming.reserve(self.members - self.coming.len().min(self.members));
    }

    /// Takes other terms at `at`, to which it has been advanced. They apply to the frame in
    /// service too, except for its framing.
    pub fn replan(&mut self, terms: Terms, at: Instant) {
        self.server.set_constant(terms.rate, terms.framing, at);
        self.terms = terms;
        self.now = at;
    }

    /// Keeps the clients in the round for which `stays` is true, and removes the others.
    pub fn regroup(&mut self, at: Instant, stays: impl Fn(u32) -> bool) {
        self.now = at;
        self.members = 0;
        self.coming.clear();
        self.round.retain(|id| stays(*id));
        if self.serving.is_some_and(|id| !stays(id)) {
            self.serving = None;
            self.server.rest();
        }
    }

    /// The next event; `None` if there is none, or while the beam is down.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.serving {
            // Arrivals in the meantime do not matter before.
            Some(_) => self.server.finish(),
            None if self.round.is_empty() => self.comes(),
            None => Some(self.now),
        }
    }

    /// Whether there is an event up to and including `t`.
    #[inline]
    pub fn is_behind(&self, t: Instant) -> bool {
        self.comes().is_some_and(|c| c <= t) || self.deadline().is_some_and(|d| d <= t)
    }

    #[inline]
    fn comes(&self) -> Option<Instant> {
        let Reverse((at, _)) = self.coming.peek()?;
        Some(*at).filter(|at| *at < Instant::MAX)
    }

    /// Processes up to `most` events up to and including `t`; returns the number.
    pub fn advance(&mut self, queues: &mut impl Queues, t: Instant, most: u32) -> u32 {
        for step in 0..most {
            let comes = self.comes().filter(|c| *c <= t);
            let finish = self.serving.and_then(|id| Some((self.server.finish()?, id)));
            let finish = finish.filter(|(f, _)| *f <= t);
            let waits = self.serving.is_none() && !self.round.is_empty();
            match (comes, finish) {
                (Some(c), _) if finish.is_none_or(|(f, _)| c <= f) && (!waits || c <= self.now) => {
                    self.gather(queues, c);
                }
                _ if waits => self.take(queues),
                (_, Some((finish, id))) => self.complete(queues, id, finish),
                _ => return step,
            }
        }
        most
    }

    /// A frame of the first client in the heap finishes at `at`.
    fn gather(&mut self, queues: &mut impl Queues, at: Instant) {
        self.now = self.now.max(at);
        let Some(Reverse((_, id))) = self.coming.pop() else { return };
        let standing = queues.bring_up(id, at);
        self.put(queues, id, standing, at);
    }

    /// Lists a client of this beam where it belongs at `at`.
    fn put(&mut self, queues: &mut impl Queues, id: u32, standing: Standing, at: Instant) {
        let member = queues.member(id);
        member.place = match standing {
            Standing::Waits(_) => {
                self.round.push_back(id);
                Place::Round
            }
            Standing::Comes(then) => {
                self.coming.push(Reverse((then.max(at), id)));
                Place::Coming
            }
            Standing::Empty => Place::Away,
        };
        if member.place != Place::Round {
            member.deficit = 0;
        }
    }

    /// A client that is not listed has `standing` at `at`. Frames that wait count from then on.
    pub fn enroll(&mut self, member: &mut Member, id: u32, standing: Standing, at: Instant) {
        let then = match standing {
            Standing::Waits(_) => at,
            Standing::Comes(then) => then,
            Standing::Empty => return,
        };
        member.place = Place::Coming;
        self.coming.push(Reverse((then, id)));
    }

    /// Updates the times of the clients in the heap.
    pub fn rekey(&mut self, mut standing: impl FnMut(u32) -> Standing, at: Instant) {
        let mut coming = std::mem::take(&mut self.coming).into_vec();
        for Reverse((then, id)) in &mut coming {
            *then = match standing(*id) {
                Standing::Waits(_) => at,
                Standing::Comes(then) => then,
                // Each client in the heap has a frame in its shaper.
                Standing::Empty => Instant::MAX,
            };
        }
        self.coming = BinaryHeap::from(coming);
    }

    /// Takes the next client's frame into service.
    fn take(&mut self, queues: &mut impl Queues) {
        while let Some(id) = self.round.pop_front() {
            let member = queues.member(id);
            member.deficit += self.terms.quantum * u64::from(member.weight);
            if self.offer(queues, id) {
                return;
            }
        }
        self.server.rest();
    }

    /// Takes a frame of this client into service if its allowance suffices; else the client
    /// waits for its next turn, or is no longer listed.
    fn offer(&mut self, queues: &mut impl Queues, id: u32) -> bool {
        let now = self.now;
        queues.bring_up(id, now);
        let standing = queues.choose(id, now);
        let member = queues.member(id);
        if let Standing::Waits(len) = standing
            && let Some(rest) = member.deficit.checked_sub(self.terms.cost(len))
        {
            member.deficit = rest;
            member.place = Place::Service;
            self.serving = Some(id);
            if self.server.is_idle() {
                self.server.start(now, len);
            } else {
                self.server.follow(len, Instant::ZERO);
            }
            return true;
        }
        self.put(queues, id, standing, now);
        false
    }

    /// The frame in service has left.
    fn complete(&mut self, queues: &mut impl Queues, id: u32, finish: Instant) {
        self.now = finish;
        self.serving = None;
        queues.bring_up(id, finish);
        queues.leave(id, finish);
        if !self.offer(queues, id) && self.round.is_empty() {
            self.server.rest();
        }
    }
}
