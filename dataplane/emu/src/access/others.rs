// SPDX-License-Identifier: Apache-2.0
//! Terminals outside the lab: a number of independent sources with exponential periods, in which they ask for
//! a rate, and pauses (the on-off sources of D. Anick, D. Mitra, M. M. Sondhi, "Stochastic theory of a
//! data-handling system", BSTJ 61, 1982). They send no packets. What they are
//! assigned is not available to the terminals of the lab.
//!
//! How many ask in a superframe is drawn from how many did in the last one that mattered: a source that asked
//! does so again with probability π + (1 − π) e^−t/τ after a time t, where π = on / (on + off) and
//! 1/τ = 1/on + 1/off. So superframes without packets of the lab cost nothing.

use crate::rng::{Stage, Stream, StreamKey};
use crate::units::Probability;

use super::{AccessPlan, Bursts, Claim, Credit, OthersPlan, divide};

#[derive(Clone, Debug)]
pub struct Others {
    plan: OthersPlan,
    /// The last superframe that mattered, and how many asked in it.
    last: Option<(u64, u32)>,
    /// What they have for the burst that is not complete, in bit-nanoseconds.
    carried: u64,
    pub credit: Credit,
    /// Of a terminal that shares the peak of its pipe with them.
    own: Credit,
    random: Stream,
}

impl Others {
    /// Of a carrier, by its number, or of a terminal without one.
    pub fn new(plan: OthersPlan, key: StreamKey, carrier: Option<u8>) -> Self {
        let random = match carrier {
            Some(index) => Stream::new(key, Stage::CarrierOthers, index),
            None => Stream::new(key, Stage::Others, 0),
        };
        let (credit, own) = (Credit::default(), Credit::default());
        Self { plan, last: None, carried: 0, credit, own, random }
    }

    /// The superframes begin again.
    pub fn restart(&mut self) {
        (self.last, self.carried) = (None, 0);
        (self.credit, self.own) = (Credit::default(), Credit::default());
    }

    /// Events' worth of work in a superframe ([`OthersPlan::work`]).
    pub fn work(&self) -> u32 {
        self.plan.work() as u32
    }

    /// Their part of superframe `n`. Called once for a superframe.
    pub fn claim(&mut self, id: u32, access: &AccessPlan, n: u64) -> Claim {
        let active = self.active(access, n);
        let rate = u128::from(self.plan.rate.get()) * u128::from(active);
        let bursts = access.next_bursts(rate, &mut self.carried);
        Claim::new(id, active.max(1).into(), Bursts([0, bursts, 0, 0]), self.credit)
    }

    /// What they leave of the bursts that one terminal may have in superframe `n`.
    pub fn leave(&mut self, wanted: Bursts, access: &AccessPlan, n: u64) -> Bursts {
        let capacity = access.bursts_of(access.peak.get(), n);
        let mut claims = [Claim::new(0, 1, wanted, self.own), self.claim(1, access, n)];
        divide(capacity, &mut claims);
        // Division sorts them.
        let [own, others] = if claims[0].id == 0 { claims } else { [claims[1], claims[0]] };
        (self.own, self.credit) = (own.credit, others.credit);
        own.given
    }

    /// How many ask in superframe `n`.
    fn active(&mut self, access: &AccessPlan, n: u64) -> u32 {
        let OthersPlan { terminals, on, off, .. } = self.plan;
        let [on, off] = [on.0 as f64, off.0 as f64];
        let share = on / (on + off);
        let (asked, memory) = match self.last {
            _ if off == 0.0 => (0, 0.0),
            None => (0, 0.0),
            Some((last, asked)) => {
                let time = n.saturating_sub(last).saturating_mul(access.superframe.0) as f64;
                (asked, libm::exp(-time * (1.0 / on + 1.0 / off)))
            }
        };
        let random = &mut self.random;
        let mut draw = |number: u32, p: f64| {
            let p = Probability::new(p);
            (0..number).map(|_| u32::from(random.chance(p))).sum::<u32>()
        };
        let stay = draw(asked, share + (1.0 - share) * memory);
        let active = stay + draw(terminals - asked, share * (1.0 - memory));
        self.last = Some((n, active));
        active
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::units::{Direction, Nanos};
    use std::num::NonZeroU64;

    const SUPERFRAME: Nanos = Nanos::from_millis(40);

    fn others(plan: OthersPlan) -> (Others, AccessPlan) {
        let client = ClientKey::Default;
        let key = StreamKey { seed: 5, client, direction: Direction::Return, epoch: 0 };
        let access = AccessPlan { others: Some(plan), ..AccessPlan::constant(SUPERFRAME) };
        (Others::new(plan, key, None), access)
    }

    fn plan(on: u64, off: u64) -> OthersPlan {
        let rate = NonZeroU64::new(100_000).unwrap();
        OthersPlan { terminals: 50, rate, on: Nanos::from_millis(on), off: Nanos::from_millis(off) }
    }

    /// Mean, variance and correlation over `step` superframes of the number that asks.
    fn moments(step: usize, visits: usize) -> (f64, f64, f64) {
        let (mut others, access) = others(plan(200, 600));
        let numbers: Vec<f64> = (0..visits)
            .map(|visit| f64::from(others.active(&access, (visit * step) as u64)))
            .collect();
        let n = visits as f64;
        let mean = numbers.iter().sum::<f64>() / n;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let next = numbers.windows(2).map(|x| (x[0] - mean) * (x[1] - mean)).sum::<f64>() / n;
        (mean, variance, next / variance)
    }

    #[test]
    fn number_that_asks_has_the_law_of_on_off_sources() {
        // Of 50 a quarter each; the time constant is 150 ms, a superframe 40 ms.
        for step in [1, 4] {
            let (mean, variance, correlation) = moments(step, 40_000);
            assert!((mean - 12.5).abs() < 0.15, "{mean}");
            assert!((variance - 50.0 * 0.25 * 0.75).abs() < 0.4, "{variance}");
            let expected = (-40.0 * step as f64 / 150.0).exp();
            assert!((correlation - expected).abs() < 0.02, "{correlation} for {expected}");
        }
    }

    #[test]
    fn without_pauses_all_ask_for_the_rate_exactly() {
        let (mut others, access) = others(plan(200, 0));
        // 50 × 100 kbit/s × 40 ms are 250 bursts.
        for n in 0..100 {
            let claim = others.claim(7, &access, n);
            assert_eq!((claim.weight, claim.wanted), (50, Bursts([0, 250, 0, 0])));
        }
    }
}
