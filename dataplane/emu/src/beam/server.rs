// SPDX-License-Identifier: Apache-2.0
//! The server of a beam in one direction: whose frame is next, and when it has left.
//!
//! A client is in the round while something waits; else, while its own shaper is busy, its
//! next finish is in a heap. So idle clients cost nothing. All is done in the order of time,
//! and `advance` to one instant and then to a later one is `advance` to the later one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::framing::Framing;
use crate::shaper::Shaper;
use crate::units::{BitRate, Instant};

/// The number of no beam.
pub const NO_BEAM: u32 = u32::MAX;

/// Whether a beam has something to do for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A frame of this length waits for it.
    Waits(u32),
    /// One will at this instant; [`Instant::MAX`] while the client's link is down.
    Comes(Instant),
    /// The client has nothing.
    Empty,
}

/// Where a client is as its beam sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has nothing.
    Away,
    /// Its next finish is in the heap.
    Coming,
    /// In the round.
    Round,
    /// Its frame is in service.
    Service,
}

/// What a beam keeps with a client.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its beam's number.
    pub beam: u32,
    /// Its weight.
    pub weight: u16,
    /// Where it is.
    pub place: Place,
    /// What it may send besides, in bytes × the least weight.
    deficit: u64,
}

impl Member {
    /// A client of weight `weight` that has nothing.
    pub fn new(beam: u32, weight: u16) -> Self {
        Self { beam, weight, place: Place::Away, deficit: 0 }
    }
}

/// The clients' queues, by their numbers.
pub trait Queues {
    /// What a beam keeps with a client.
    fn member(&mut self, id: u32) -> &mut Member;
    /// Brings a client's shaper up to `t`.
    fn bring_up(&mut self, id: u32, t: Instant) -> Standing;
    /// The beam would take the client's first frame at `t`: lets its AQM choose.
    fn choose(&mut self, id: u32, t: Instant) -> Standing;
    /// The client's first frame has left the beam at `t`.
    fn leave(&mut self, id: u32, t: Instant);
}

/// On which terms a beam serves.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Its rate.
    pub rate: BitRate,
    framing: Framing,
    /// The least weight, by which frames are charged.
    lightest: u64,
    /// What a turn adds for each unit of weight.
    quantum: u64,
}

impl Terms {
    /// Of a beam whose clients have the least weight `lightest`.
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
    /// Whose frame is in service.
    serving: Option<u32>,
    /// Clients in the round, the next one first.
    round: VecDeque<u32>,
    /// When something of the others comes.
    coming: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Of the last thing that happened.
    now: Instant,
    /// When the wheel brings it up next, and after that, as far as is known.
    pub scheduled: Instant,
    /// See `scheduled`.
    pub later: Instant,
    /// Whether it is among those that lag behind.
    pub lags: bool,
    /// Clients.
    members: usize,
}

impl Beam {
    /// An idle beam.
    pub fn new(terms: Terms, at: Instant) -> Self {
        Self {
            server: Shaper::new(&terms.rate.into(), terms.framing, at),
            terms,
            serving: None,
            round: VecDeque::new(),
            coming: BinaryHeap::new(),
            now: at,
            scheduled: Instant::MAX,
            later: Instant::MAX,
            lags: false,
            members: 0,
        }
    }

    /// Has room for one client more, so that packets allocate nothing.
    pub fn add_room(&mut self) {
        self.members += 1;
        self.round.reserve(self.members - self.round.len().min(self.members));
        self.coming.reserve(self.members - self.coming.len().min(self.members));
    }

    /// Takes other terms at `at`, up to which it was advanced: at once for the frame in
    /// service, whose framing stays.
    pub fn replan(&mut self, terms: Terms, at: Instant) {
        self.server.replan(&terms.rate.into(), terms.framing, at, at);
        self.terms = terms;
        self.now = at;
    }

    /// Keeps those clients of the round that `stays` knows, and forgets the others.
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

    /// When there is something to do; `None` while nothing comes, or the beam is down.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.serving {
            // Nothing that comes meanwhile matters before.
            Some(_) => self.server.finish(),
            None if self.round.is_empty() => self.comes(),
            None => Some(self.now),
        }
    }

    /// Whether there is something to do up to and including `t`.
    #[inline]
    pub fn is_behind(&self, t: Instant) -> bool {
        self.comes().is_some_and(|c| c <= t) || self.deadline().is_some_and(|d| d <= t)
    }

    #[inline]
    fn comes(&self) -> Option<Instant> {
        let Reverse((at, _)) = self.coming.peek()?;
        Some(*at).filter(|at| *at < Instant::MAX)
    }

    /// Does up to `most` things up to and including `t`; returns how many.
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

    /// Something of the first client of the heap comes at `at`.
    fn gather(&mut self, queues: &mut impl Queues, at: Instant) {
        self.now = self.now.max(at);
        let Some(Reverse((_, id))) = self.coming.pop() else { return };
        let standing = queues.bring_up(id, at);
        self.put(queues, id, standing, at);
    }

    /// Puts a client of this beam where it belongs at `at`.
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

    /// A client that is away has `standing` at `at`; what waits already does so from then on.
    pub fn enroll(&mut self, member: &mut Member, id: u32, standing: Standing, at: Instant) {
        let then = match standing {
            Standing::Waits(_) => at,
            Standing::Comes(then) => then,
            Standing::Empty => return,
        };
        member.place = Place::Coming;
        self.coming.push(Reverse((then, id)));
    }

    /// Tells anew when something comes of those of whom it was known.
    pub fn rekey(&mut self, mut standing: impl FnMut(u32) -> Standing, at: Instant) {
        let mut coming = std::mem::take(&mut self.coming).into_vec();
        for Reverse((then, id)) in &mut coming {
            *then = match standing(*id) {
                Standing::Waits(_) => at,
                Standing::Comes(then) => then,
                // Whoever is in the heap has a frame in the shaper.
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

    /// Takes a frame of this client into service, if what it may send suffices; else it
    /// waits for its next turn, or has nothing.
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
