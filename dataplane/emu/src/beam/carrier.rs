// SPDX-License-Identifier: Apache-2.0
//! A carrier in one direction: the beam of clients with capacity on demand ([`crate::access`]). Its rate is
//! the capacity of the superframes that all of its terminals have in common, and a scheduler divides it. The
//! virtual terminals outside the lab, if there are any, claim theirs as well.
//!
//! The scheduler knows of a request when it has arrived, and computes the plan of a superframe `plan_delay`
//! before its start. So that superframe is the first one after both delays, and the plan may as well
//! be computed at its start.
//!
//! A terminal is listed while frames wait, and until its requests are served or end. A superframe is an
//! event only while a terminal is listed, and costs a time for each of these. Constant and free bursts go
//! to terminals whose frames wait: those of the others are divided as well.
//!
//! Frames that arrive at the start of a superframe wait for the next one. `advance` to one instant and then
//! to a later one is `advance` to the later one.
//!
//! Units: bursts of the terminals, in bytes as the framing of their pipes counts them.

use crate::access::{AccessPlan, Claim, Others, divide};
use crate::rng::StreamKey;
use crate::units::{BitRate, Instant, Nanos};

use super::server::{Member, Place, Queues};

#[derive(Debug)]
pub struct Carrier {
    access: AccessPlan,
    rate: BitRate,
    /// Start of superframe 0.
    phase: Instant,
    /// The next superframe.
    next: u64,
    /// The listed terminals.
    listed: Vec<u32>,
    /// Of the superframe that is divided.
    claims: Vec<Claim>,
    /// Terminals outside the lab.
    others: Option<Box<Others>>,
    members: usize,
}

/// The claim of [`Carrier::others`].
const OTHERS: u32 = u32::MAX;

impl Carrier {
    /// Of terminals with such access. Superframe 0 begins at `phase`. The carrier is beam `index` of the
    /// plan.
    pub fn new(
        access: AccessPlan,
        rate: BitRate,
        phase: Instant,
        key: StreamKey,
        index: u8,
    ) -> Self {
        Self {
            access,
            rate,
            phase,
            next: 0,
            listed: Vec::new(),
            claims: Vec::new(),
            others: access.others.map(|it| Box::new(Others::new(it, key, Some(index)))),
            members: 0,
        }
    }

    pub fn phase(&self) -> Instant {
        self.phase
    }

    /// Whether its superframes suit terminals with such access.
    pub fn suits(&self, access: &AccessPlan) -> bool {
        self.access.is_as(access)
    }

    /// Reserves room for one more terminal, so that packets allocate nothing.
    pub fn add_room(&mut self) {
        self.members += 1;
        self.listed.reserve(self.members - self.listed.len().min(self.members));
        self.claims.reserve(self.members + 1);
    }

    /// Takes another rate, after it was advanced.
    pub fn replan(&mut self, rate: BitRate) {
        self.rate = rate;
    }

    /// Keeps the listed terminals for which `stays` is true, and removes the others.
    pub fn regroup(&mut self, stays: impl Fn(u32) -> bool) {
        self.members = 0;
        self.claims.clear();
        self.listed.retain(|id| stays(*id));
    }

    /// A terminal that is not listed has frames at `at`.
    pub fn enroll(&mut self, member: &mut Member, id: u32, at: Instant) {
        if self.listed.is_empty() {
            let past = at.since(self.phase).0 / self.access.superframe.0.max(1);
            let after = if at < self.phase { 0 } else { past + 1 };
            self.next = self.next.max(after);
        }
        member.place = Place::Round;
        self.listed.push(id);
    }

    /// The start of the next superframe that is an event.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        (!self.listed.is_empty()).then(|| self.starts(self.next))
    }

    fn starts(&self, superframe: u64) -> Instant {
        self.phase + Nanos(superframe.saturating_mul(self.access.superframe.0))
    }

    /// Bursts of a superframe: their sums are those of the rate since superframe 0.
    fn capacity(&self, superframe: u64) -> u64 {
        match self.rate {
            BitRate::PerSec(rate) => self.access.bursts_of(rate.get(), superframe),
            BitRate::Down => 0,
            // Such a direction has no carrier.
            BitRate::Unlimited => u64::MAX,
        }
    }

    /// Divides superframes that start up to and including `t`, until they were at least `most` claims;
    /// returns their number, at most `most`.
    pub fn advance(&mut self, queues: &mut impl Queues, t: Instant, most: u32) -> u32 {
        let mut claims = 0;
        while claims < most
            && let Some(at) = self.deadline().filter(|at| *at <= t)
        {
            claims += self.listed.len() as u32 + self.others.as_ref().map_or(0, |it| it.work());
            self.serve_superframe(queues, at);
        }
        claims.min(most)
    }

    fn serve_superframe(&mut self, queues: &mut impl Queues, at: Instant) {
        let n = self.next;
        self.next += 1;
        self.claims.clear();
        for id in self.listed.drain(..) {
            let wanted = queues.wanted(id, n, at);
            let Member { weight, credit, .. } = *queues.member(id);
            self.claims.push(Claim::new(id, weight.into(), wanted, credit));
        }
        if let Some(others) = &mut self.others {
            self.claims.push(others.claim(OTHERS, &self.access, n));
        }
        divide(self.capacity(n), &mut self.claims);
        for Claim { id, given, credit, .. } in &self.claims {
            if *id == OTHERS {
                self.others.iter_mut().for_each(|it| it.credit = *credit);
                continue;
            }
            let stays = queues.send(*id, n, at, *given);
            let member = queues.member(*id);
            member.credit = *credit;
            if stays {
                self.listed.push(*id);
            } else {
                member.place = Place::Away;
            }
        }
    }
}
