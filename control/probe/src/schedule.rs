// SPDX-License-Identifier: Apache-2.0
//! When probes are due, in time since the run's start.
//!
//! The instants do not depend on when probes were sent, so the schedule does not
//! drift. Constant: the k-th probe, from zero, at k intervals. Poisson: after a sum of
//! exponential draws with the interval as mean (RFC 2330, section 11.1.1), so that a
//! periodic process of the link cannot hide between the probes; the same seed and
//! stream give the same instants.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use std::time::Duration;

/// The instants at which probes are due.
#[derive(Clone, Debug)]
pub struct Schedule {
    interval: Duration,
    next: Duration,
    gaps: Gaps,
}

#[derive(Clone, Debug)]
enum Gaps {
    Constant,
    // The generator's state is large.
    Exponential(Box<ChaCha8Rng>),
}

impl Schedule {
    #[must_use]
    pub const fn constant(interval: Duration) -> Self {
        Self { interval, next: Duration::ZERO, gaps: Gaps::Constant }
    }

    /// At exponential intervals with this mean. Streams of one seed are independent.
    #[must_use]
    pub fn poisson(interval: Duration, seed: u64, stream: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        let gaps = Gaps::Exponential(Box::new(random));
        let mut schedule = Self { interval, next: Duration::ZERO, gaps };
        schedule.advance();
        schedule
    }

    /// The interval, or its mean.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// When the next probe is due.
    #[must_use]
    pub const fn next(&self) -> Duration {
        self.next
    }

    /// Advances to the next instant.
    pub fn advance(&mut self) {
        let gap = match &mut self.gaps {
            Gaps::Constant => self.interval,
            Gaps::Exponential(random) => {
                let gap: f64 = Exp1.sample(random);
                // At most about 45 means; rounded to whole ns, half a nanosecond each way.
                Duration::from_nanos((gap * self.interval.as_nanos() as f64).round() as u64)
            }
        };
        self.next = self.next.saturating_add(gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(mut schedule: Schedule, n: usize) -> Vec<Duration> {
        let step = |_| {
            let next = schedule.next();
            schedule.advance();
            next
        };
        (0..n).map(step).collect()
    }

    #[test]
    fn the_kth_constant_probe_is_due_at_k_intervals_exactly() {
        let interval = Duration::from_nanos(14_925_373);
        let week = 40_521_600;
        let last = instants(Schedule::constant(interval), week + 1).pop().unwrap();
        assert_eq!(last, interval * week as u32);
    }

    #[test]
    fn poisson_gaps_are_exponential_with_the_interval_as_mean() {
        let interval = Duration::from_millis(200);
        let n = 100_000;
        let instants = instants(Schedule::poisson(interval, 7, 0), n);
        let gaps: Vec<f64> = std::iter::once(Duration::ZERO)
            .chain(instants.iter().copied())
            .zip(&instants)
            .map(|(before, at)| (*at - before).as_secs_f64() / interval.as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / n as f64;
        // The mean of n unit exponentials deviates by 1/sqrt(n): five times that.
        let tolerance = 5.0 / (n as f64).sqrt();
        assert!((mean - 1.0).abs() < tolerance, "{mean}");
        // The share above x is exp(-x), within five deviations of a binomial.
        for x in [0.1, 1.0, 3.0] {
            let share = gaps.iter().filter(|gap| **gap > x).count() as f64 / n as f64;
            let p = f64::exp(-x);
            let tolerance = 5.0 * (p * (1.0 - p) / n as f64).sqrt();
            assert!((share - p).abs() < tolerance, "P(> {x}): {share}, not {p}");
        }
    }

    #[test]
    fn a_seed_and_a_stream_give_the_same_instants_and_others_give_others() {
        let of =
            |seed, stream| instants(Schedule::poisson(Duration::from_millis(1), seed, stream), 100);
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 1));
    }
}
