// SPDX-License-Identifier: Apache-2.0
//! A carrier in one direction: the beam of clients with capacity on demand ([`crate::access`]). Its rate is
//! the capacity of the superframes that all of its terminals have in common, and a scheduler divides it.
//!
//! The bursts of a superframe are divided in the order of [`Bursts`], and in each by weighted max-min
//! fairness (D. Bertsekas, R. Gallager, "Data Networks", 2nd ed., §6.5.2): who wants less than a share by
//! weight gets all of it, and the others divide the rest by weight. Only whole bursts are assigned. The
//! fractions are credits: who has the largest one gets the next burst, so that over time each terminal gets
//! its share but for a few bursts. The sum never exceeds the capacity.
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

use std::cmp::Reverse;

use crate::access::{AccessPlan, Bursts};
use crate::units::{BitRate, Instant, Nanos};

use super::server::{Member, Place, Queues};

/// A burst, in the units of a credit.
const BURST: i64 = 1 << 32;

/// A terminal's part of a superframe.
#[derive(Clone, Copy, Debug)]
struct Claim {
    id: u32,
    weight: u64,
    wanted: Bursts,
    given: Bursts,
    credit: Credit,
}

/// Fractions of bursts that a terminal was not given yet, or was given before its share, in multiples of
/// 2⁻³².
pub type Credit = [i64; Bursts::WAYS];

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
    members: usize,
}

impl Carrier {
    /// Of terminals with such access. Superframe 0 begins at `phase`.
    pub fn new(access: AccessPlan, rate: BitRate, phase: Instant) -> Self {
        Self { access, rate, phase, next: 0, listed: Vec::new(), claims: Vec::new(), members: 0 }
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
        self.claims.reserve(self.members);
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
            BitRate::PerSec(rate) => {
                self.access.bytes_of(rate.get(), superframe) / u64::from(self.access.burst.max(1))
            }
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
            claims += self.listed.len() as u32;
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
            let given = Bursts::default();
            self.claims.push(Claim { id, weight: weight.into(), wanted, given, credit });
        }
        let mut left = self.capacity(n);
        for way in 0..Bursts::WAYS {
            left -= divide(left, way, &mut self.claims);
        }
        for Claim { id, given, credit, .. } in &self.claims {
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

/// Divides up to `capacity` bursts among the claims, of what each wants in one way. Returns how many are
/// given.
fn divide(capacity: u64, way: usize, claims: &mut [Claim]) -> u64 {
    let wanted = |claim: &Claim| claim.wanted.0[way];
    let total = claims.iter().map(wanted).fold(0, u64::saturating_add);
    if total <= capacity {
        claims.iter_mut().for_each(|claim| claim.given.0[way] = claim.wanted.0[way]);
        return total;
    }
    claims.sort_unstable_by(|a, b| {
        let by_weight = |a: &Claim, b: &Claim| u128::from(wanted(a)) * u128::from(b.weight);
        by_weight(a, b).cmp(&by_weight(b, a)).then(a.id.cmp(&b.id))
    });
    let (mut left, mut weights) = (capacity, claims.iter().map(|claim| claim.weight).sum::<u64>());
    let mut first = 0;
    for claim in claims.iter_mut() {
        let all = u128::from(wanted(claim)) * u128::from(weights);
        if all > u128::from(left) * u128::from(claim.weight) {
            break;
        }
        claim.given.0[way] = claim.wanted.0[way];
        left -= claim.wanted.0[way];
        weights -= claim.weight;
        first += 1;
    }
    // Each of the others wants more than its share of what is left.
    let limited = &mut claims[first..];
    let mut over = left;
    for claim in limited.iter_mut() {
        let share = u128::from(left) * u128::from(claim.weight);
        let weights = u128::from(weights);
        claim.given.0[way] = u64::try_from(share / weights).unwrap_or(u64::MAX);
        over -= claim.given.0[way];
        claim.credit[way] += i64::try_from(((share % weights) << 32) / weights).unwrap_or(0);
    }
    limited.sort_unstable_by_key(|claim| (Reverse(claim.credit[way]), claim.id));
    // Fewer bursts than claims.
    for claim in limited.iter_mut().take(usize::try_from(over).unwrap_or(usize::MAX)) {
        claim.given.0[way] += 1;
        claim.credit[way] -= BURST;
    }
    capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(id: u32, weight: u16, wanted: u64) -> Claim {
        let wanted = Bursts([0, 0, wanted, 0]);
        let given = Bursts::default();
        Claim { id, weight: weight.into(), wanted, given, credit: Credit::default() }
    }

    proptest! {
        /// In each superframe the sum is the least of capacity and demand, and none gets more than it
        /// wants. Over time each gets its exact share but for three bursts.
        #[test]
        fn division_is_exact_and_fair(
            demands in prop::collection::vec((1_u16..=1_000, 0_u64..60), 1..40),
            capacity in 0_u64..500,
        ) {
            let rounds = 200;
            let mut credits = vec![Credit::default(); demands.len()];
            let mut sums = vec![0_u64; demands.len()];
            for _ in 0..rounds {
                let mut claims: Vec<_> = (0..)
                    .zip(&demands)
                    .map(|(id, (weight, wanted))| Claim {
                        credit: credits[id as usize],
                        ..claim(id, *weight, *wanted)
                    })
                    .collect();
                let given = divide(capacity, 2, &mut claims);
                let all: u64 = demands.iter().map(|(_, wanted)| wanted).sum();
                prop_assert_eq!(given, all.min(capacity));
                prop_assert_eq!(claims.iter().map(|claim| claim.given.total()).sum::<u64>(), given);
                for claim in claims {
                    prop_assert!(claim.given.0[2] <= claim.wanted.0[2]);
                    credits[claim.id as usize] = claim.credit;
                    sums[claim.id as usize] += claim.given.0[2];
                }
            }
            // The level of the water, by bisection.
            let filled = |level: f64| -> f64 {
                demands.iter().map(|(w, d)| (f64::from(*w) * level).min(*d as f64)).sum()
            };
            let (mut low, mut high) = (0.0, 60.0);
            for _ in 0..100 {
                let middle = (low + high) / 2.0;
                if filled(middle) < capacity as f64 { low = middle } else { high = middle }
            }
            for ((weight, wanted), sum) in demands.iter().zip(sums) {
                let share = (f64::from(*weight) * high).min(*wanted as f64) * f64::from(rounds);
                prop_assert!((sum as f64 - share).abs() < 3.0, "{sum} of {share}");
            }
        }
    }
}
