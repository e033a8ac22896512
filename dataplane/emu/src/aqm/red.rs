// SPDX-License-Identifier: Apache-2.0
//! RED: random early detection (S. Floyd, V. Jacobson, "Random Early Detection Gateways for
//! Congestion Avoidance", 1993), with the gentle slope of S. Floyd, 2000.
//!
//! Drops arriving packets by a moving average of the queue in bytes: none below the lower
//! threshold, then with a probability that is linear up to the upper one, all above; or, if
//! gentle, linear on to one at twice the upper threshold. Drops are spread evenly: while the
//! average stays, the packets from one to the next are uniform on 1 to 1/p (method 2 of the
//! paper). After an idle time the average has fallen as if as many packets of mean length
//! had arrived as the link could have sent.
//!
//! Differs from Linux's `sch_red` in that weight and thresholds need not be powers of two and
//! the average after an idle time is the exact power and not a table's. The probability does
//! not depend on a packet's length. Packets are counted before the draw as the paper's text
//! has it, of which its listing is one off. All in integers: the average in 2⁻¹⁶ bytes.

use std::num::NonZeroU64;

use crate::rng::Stream;
use crate::stats::DropReason;
use crate::units::{Instant, NANOS_PER_SEC, Nanos, Probability};

use super::Verdict;

/// Bits of an average below the byte.
const FRACTION: u32 = 16;
const ONE: u128 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedPlan {
    /// Averages below this, in bytes, drop nothing.
    pub min: u64,
    /// Where the probability is `at_max`.
    pub max: u64,
    /// The probability at the upper threshold.
    pub at_max: Probability,
    /// Weight of the newest sample in the average.
    pub weight: Probability,
    /// Mean length of packets in bytes, to compute how many an idle time stands for.
    pub packet: u32,
    /// Gentle RED: the probability rises to one at twice the upper threshold.
    pub gentle: bool,
}

impl RedPlan {
    /// The probability at an average of this many bytes, before spreading.
    #[must_use]
    pub fn probability(&self, average: u64) -> Probability {
        let above = average.saturating_sub(self.max);
        if average < self.min {
            Probability::ZERO
        } else if average < self.max {
            Probability::ZERO.toward(self.at_max, average - self.min, self.max - self.min)
        } else if self.gentle {
            self.at_max.toward(Probability::ONE, above, self.max)
        } else {
            Probability::ONE
        }
    }
}

/// The state of one queue.
#[derive(Clone, Debug, Default)]
pub struct Red {
    average: u64,
    /// Packets since the last chosen one.
    count: u64,
    /// When the queue became empty.
    idle: Option<Instant>,
}

impl Red {
    /// From `t` on the queue is in use or empty.
    pub fn head(&mut self, t: Instant, queue: bool) {
        self.idle = if queue { None } else { Some(self.idle.unwrap_or(t)) };
    }

    /// The verdict on a packet that arrives at `at`, finds `queued` bytes and waits for a
    /// link of `rate` bit/s.
    pub fn arrive(
        &mut self,
        plan: RedPlan,
        at: Instant,
        queued: u64,
        rate: NonZeroU64,
        stream: &mut Stream,
    ) -> Verdict {
        self.sample(plan, at, queued, rate);
        let p = u128::from(plan.probability(self.average >> FRACTION).raw());
        if p == 0 {
            self.count = 0;
            return Verdict::Pass;
        }
        if p >= ONE {
            self.count = 0;
            return Verdict::Drop(DropReason::Aqm);
        }
        // p / (1 − count × p)
        let rest = ONE.saturating_sub(u128::from(self.count) * p);
        let spread = if rest <= p { ONE } else { p * ONE / rest };
        if u128::from(stream.raw()) < spread {
            self.count = 0;
            Verdict::Signal
        } else {
            self.count += 1;
            Verdict::Pass
        }
    }

    /// Adds the queue length that an arrival finds to the average.
    pub fn sample(&mut self, plan: RedPlan, at: Instant, queued: u64, rate: NonZeroU64) {
        let weight = u128::from(plan.weight.raw());
        let average = u128::from(self.average);
        let average = match self.idle {
            Some(idle) if queued == 0 => {
                let bits = u128::from(at.since(idle).0) * u128::from(rate.get());
                let packet = u128::from(plan.packet.max(1)) * 8 * u128::from(NANOS_PER_SEC);
                let packets = bits / packet;
                // Each arrival accounts for the idle time before it, in whole packets; what
                // is left of it counts for the next one.
                let spent = u64::try_from(packets * packet / u128::from(rate.get()));
                self.idle = Some(idle + Nanos(spent.unwrap_or(u64::MAX)));
                average * power(ONE - weight, packets) / ONE
            }
            _ => {
                let sample = u128::from(queued) << FRACTION;
                (average * (ONE - weight) + sample * weight) / ONE
            }
        };
        self.average = u64::try_from(average).unwrap_or(u64::MAX);
    }
}

/// `base`^`n`, both base and result in 2⁻³².
fn power(mut base: u128, mut n: u128) -> u128 {
    let mut result = ONE;
    while n > 0 && result > 0 {
        if n & 1 == 1 {
            result = result * base / ONE;
        }
        base = base * base / ONE;
        n >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::rng::{Stage, StreamKey};
    use crate::units::Direction;
    use statrs::distribution::{ChiSquared, ContinuousCDF};

    /// The weight of 0.002 is Floyd's.
    fn plan(gentle: bool) -> RedPlan {
        RedPlan {
            min: 30_000,
            max: 90_000,
            at_max: Probability::new(0.1),
            weight: Probability::new(0.002),
            packet: 1_000,
            gentle,
        }
    }

    fn rate() -> NonZeroU64 {
        NonZeroU64::new(8_000_000).unwrap()
    }

    fn stream(seed: u64) -> Stream {
        let key =
            StreamKey { seed, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 };
        Stream::new(key, Stage::Aqm, 0)
    }

    /// Packets from one that is chosen to the next, while the average stays.
    fn gaps(plan: RedPlan, average: u64, n: usize, seed: u64) -> Vec<u64> {
        let mut s = stream(seed);
        let mut red = Red { average: average << FRACTION, ..Red::default() };
        let mut gap = 0;
        let mut gaps = Vec::new();
        while gaps.len() < n {
            gap += 1;
            if red.arrive(plan, Instant::ZERO, average, rate(), &mut s) != Verdict::Pass {
                gaps.push(gap);
                gap = 0;
            }
        }
        gaps
    }

    #[test]
    fn average_decays_by_the_packets_that_the_idle_time_could_have_carried() {
        // 1,000 bytes at 8 Mbit/s take 1 ms.
        let half_ms = |n: u64| Instant(n * 500_000);
        let idle_since =
            |t: Instant| Red { average: 60_000 << FRACTION, idle: Some(t), ..Red::default() };
        let bytes = |red: &Red| red.average as f64 / f64::from(1_u32 << FRACTION);
        let mut red = idle_since(half_ms(0));
        red.sample(plan(false), half_ms(2_000), 0, rate());
        let expected = 60_000.0 * 0.998_f64.powi(1_000);
        assert!((bytes(&red) - expected).abs() < 1.0, "{} not {expected}", bytes(&red));
        // Half a packet is left of the first 1.5 ms, and counts for the next sample.
        let mut red = idle_since(half_ms(0));
        red.sample(plan(false), half_ms(3), 0, rate());
        red.sample(plan(false), half_ms(4), 0, rate());
        let expected = 60_000.0 * 0.998_f64.powi(2);
        assert!((bytes(&red) - expected).abs() < 0.1, "{} not {expected}", bytes(&red));
        // A queue that is not empty is a sample like any other.
        let mut red = Red { average: 60_000 << FRACTION, ..Red::default() };
        red.sample(plan(false), half_ms(2_000), 10_000, rate());
        let expected = 60_000.0 * 0.998 + 10_000.0 * 0.002;
        assert!((bytes(&red) - expected).abs() < 0.1, "{} not {expected}", bytes(&red));
    }

    #[test]
    fn the_probability_is_linear_in_the_average_between_the_thresholds() {
        for (plan, average, p) in [
            (plan(false), 29_999, 0.0),
            (plan(false), 30_000, 0.0),
            (plan(false), 45_000, 0.025),
            (plan(false), 60_000, 0.05),
            (plan(false), 89_999, 0.1),
            (plan(false), 90_000, 1.0),
            (plan(true), 90_000, 0.1),
            (plan(true), 135_000, 0.55),
            (plan(true), 180_000, 1.0),
        ] {
            let found = plan.probability(average).raw() as f64 / ONE as f64;
            assert!((found - p).abs() < 1e-5, "{found} at {average}");
        }
    }

    #[test]
    fn chosen_packets_are_spread_uniformly() {
        // The gaps are uniform on 1 to 1/p, their mean (1 + 1/p) / 2.
        for (plan, average, longest) in
            [(plan(false), 60_000, 20), (plan(false), 45_000, 40), (plan(true), 100_000, 5)]
        {
            let n = 100_000;
            let gaps = gaps(plan, average, n, 3);
            let expected = n as f64 / longest as f64;
            let statistic: f64 = (1..=longest)
                .map(|len| gaps.iter().filter(|g| **g == len).count() as f64)
                .map(|seen| (seen - expected).powi(2) / expected)
                .sum();
            let p = ChiSquared::new(longest as f64 - 1.0).unwrap().sf(statistic);
            assert!(p > 0.05, "chi-square {statistic}: p = {p}");
            // Rounding of the probability adds one that is a gap longer, seldom.
            assert!(gaps.iter().filter(|g| **g > longest).count() < 3);
        }
    }

    #[test]
    fn average_is_a_moving_average() {
        let mut red = Red::default();
        let mut s = stream(1);
        for n in 1..=2_000 {
            red.arrive(plan(false), Instant::ZERO, 20_000, rate(), &mut s);
            let expected = 20_000.0 * (1.0 - 0.998_f64.powi(n));
            assert!((red.average as f64 / 65_536.0 - expected).abs() < 1.0, "{n}");
        }
    }

    #[test]
    fn delay_falls_during_fast_arrivals() {
        let start = 90_000 << FRACTION;
        // 1000 bytes take 1 ms; one is dropped each 0.3 ms.
        let mut often = Red { average: start, ..Red::default() };
        let mut once = often.clone();
        for red in [&mut often, &mut once] {
            red.head(Instant::ZERO, false);
        }
        for n in 1..=10_000 {
            often.sample(plan(false), Instant(n * 300_000), 0, rate());
        }
        once.sample(plan(false), Instant(3_000_000_000), 0, rate());
        // Each step rounds down by less than a part.
        assert!(once.average.abs_diff(often.average) <= 10_000, "{often:?} {once:?}");
        assert!(often.average < start / 300, "{often:?}");
    }

    #[test]
    fn average_falls_while_link_is_idle() {
        // A packet of mean length takes 1 ms.
        let mut red = Red { average: 80_000 << FRACTION, ..Red::default() };
        let mut s = stream(1);
        red.head(Instant::ZERO, false);
        let ms = |n: u64| Instant(n * 1_000_000);
        red.arrive(plan(false), ms(500), 0, rate(), &mut s);
        let expected = 80_000.0 * 0.998_f64.powi(500);
        assert!((red.average as f64 / 65_536.0 - expected).abs() < 1.0);
        // What was accounted for is not again, and ages of idleness do no harm.
        red.arrive(plan(false), ms(500), 0, rate(), &mut s);
        assert!((red.average as f64 / 65_536.0 - expected).abs() < 1.0);
        red.arrive(plan(false), Instant(u64::MAX / 2), 0, rate(), &mut s);
        assert_eq!(red.average, 0);
    }

    #[test]
    fn above_upper_threshold_all_are_dropped_not_marked() {
        for (plan, average) in [(plan(false), 95_000), (plan(true), 190_000)] {
            let mut red = Red { average: average << FRACTION, ..Red::default() };
            let verdict = red.arrive(plan, Instant::ZERO, average, rate(), &mut stream(1));
            assert_eq!(verdict, Verdict::Drop(DropReason::Aqm));
        }
    }
}
