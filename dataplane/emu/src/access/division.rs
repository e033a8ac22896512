// SPDX-License-Identifier: Apache-2.0
//! How a scheduler divides the bursts of a superframe.
//!
//! They are divided in the order of [`Bursts`], and in each by weighted max-min
//! fairness (D. Bertsekas, R. Gallager, "Data Networks", 2nd ed., §6.5.2): who wants less than a share by
//! weight gets all of it, and the others divide the rest by weight. Only whole bursts are assigned. The
//! fractions are credits: who has the largest one gets the next burst, so that over time each terminal gets
//! its share but for a few bursts. The sum never exceeds the capacity.

use std::cmp::Reverse;

use super::Bursts;

/// A burst, in the units of a credit.
const BURST: i64 = 1 << 32;

/// What a terminal wants and gets of a superframe. A group of equal terminals is one claim, with the sums of
/// their weights and demands.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub id: u32,
    /// At most 2²⁴.
    pub weight: u64,
    pub wanted: Bursts,
    pub given: Bursts,
    pub credit: Credit,
}

/// Fractions of bursts that a terminal was not given yet, or was given before its share, in multiples of
/// 2⁻³².
pub type Credit = [i64; Bursts::WAYS];

impl Claim {
    pub fn new(id: u32, weight: u64, wanted: Bursts, credit: Credit) -> Self {
        Self { id, weight, wanted, given: Bursts::default(), credit }
    }
}

/// Divides the bursts of a superframe among the claims.
pub fn divide(capacity: u64, claims: &mut [Claim]) {
    let mut left = capacity;
    for way in 0..Bursts::WAYS {
        left -= divide_way(left, way, claims);
    }
}

/// Divides up to `capacity` bursts among the claims, of what each wants in one way. Returns how many are
/// given.
fn divide_way(capacity: u64, way: usize, claims: &mut [Claim]) -> u64 {
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
    // The other claims want more than their shares of the remaining bursts.
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
        Claim::new(id, weight.into(), Bursts([0, 0, wanted, 0]), Credit::default())
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
                let given = divide_way(capacity, 2, &mut claims);
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
