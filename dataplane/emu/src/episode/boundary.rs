// SPDX-License-Identifier: Apache-2.0
//! Outages around the boundaries of a period, as of a link that is reconfigured periodically.
//!
//! Each boundary has an outage with a probability. It lasts from half its duration before the
//! boundary to half its duration after it, and at most from the middle of one period to the
//! middle of the next.

use super::DurationLaw;
use crate::held::Grid;
use crate::rng::{Stage, Stream, StreamKey};
use crate::units::{Instant, Nanos, Probability};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundaryPlan {
    pub grid: Grid,
    pub probability: Probability,
    /// Mean duration of an outage.
    pub duration: Nanos,
    pub law: DurationLaw,
}

#[derive(Clone, Debug)]
pub struct Boundaries {
    plan: BoundaryPlan,
    stream: Stream,
    start_of_grid: Instant,
    boundary: Instant,
    /// The outage of that boundary; of no length if it has none.
    start: Instant,
    end: Instant,
}

impl Boundaries {
    /// The first boundary is the first one after `at`. Periods since a start count from
    /// `start`.
    #[must_use]
    pub fn new(plan: BoundaryPlan, key: StreamKey, at: Instant, start: Instant) -> Self {
        let stream = Stream::new(key, Stage::Boundary, 0);
        let mut b = Self { plan, stream, start_of_grid: start, boundary: at, start: at, end: at };
        b.next();
        b
    }

    #[must_use]
    pub fn plan(&self) -> BoundaryPlan {
        self.plan
    }

    /// Whether `t` falls into an outage. `t` never goes back.
    pub fn covers(&mut self, t: Instant) -> bool {
        while t >= self.end && self.end < Instant::MAX {
            self.next();
        }
        t >= self.start && t < self.end
    }

    /// Start of the outage that covers, or comes after, the instant asked last, or an earlier
    /// instant before which there is none.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }

    fn next(&mut self) {
        let BoundaryPlan { grid, probability, duration, law } = self.plan;
        (_, self.boundary) = grid.period_at(self.boundary, self.start_of_grid);
        let has_outage = self.stream.chance(probability);
        // Drawn for each boundary, so that the stream does not depend on the probability.
        let lasts = match law {
            DurationLaw::Exponential => self.stream.exponential(duration),
            DurationLaw::Fixed => duration,
        };
        let half = if has_outage { Nanos(lasts.min(grid.period).0 / 2) } else { Nanos::ZERO };
        self.start = self.boundary - half;
        self.end = self.boundary + half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::held::Clock;
    use crate::units::Direction;

    fn boundaries(plan: BoundaryPlan, at: Instant) -> Boundaries {
        let client = ClientKey::Default;
        let key = StreamKey { seed: 4, client, direction: Direction::Forward, epoch: 0 };
        Boundaries::new(plan, key, at, Instant::ZERO)
    }

    fn plan(probability: f64, duration: u64, law: DurationLaw) -> BoundaryPlan {
        let (period, phase) = (Nanos::from_secs(15), Nanos::from_secs(12));
        let grid = Grid { period, phase, clock: Clock::Utc(Nanos::ZERO) };
        let probability = Probability::new(probability);
        BoundaryPlan { grid, probability, duration: Nanos::from_millis(duration), law }
    }

    #[test]
    fn fixed_outage_is_centred_at_boundary() {
        let mut b = boundaries(plan(1.0, 100, DurationLaw::Fixed), Instant::ZERO);
        let mut out = |millis: u64| b.covers(Instant(millis * 1_000_000));
        let found = [0, 11_949, 11_950, 12_000, 12_049, 12_050, 26_949, 26_950].map(&mut out);
        assert_eq!(found, [false, false, true, true, true, false, false, true]);
    }

    #[test]
    fn share_and_mean_duration_of_outages_match_plan() {
        let (p, mean) = (0.3, 80_u64);
        let mut b = boundaries(plan(p, mean, DurationLaw::Exponential), Instant::ZERO);
        let n = 20_000_u64;
        let (mut outages, mut total) = (0_u64, 0_u64);
        for _ in 0..n {
            outages += u64::from(b.end > b.start);
            total += b.end.since(b.start).0;
            b.next();
        }
        let expected = p * n as f64;
        let tolerance = 5.0 * (expected * (1.0 - p)).sqrt();
        assert!((outages as f64 - expected).abs() < tolerance, "{outages} of {n}");
        let found = total as f64 / outages as f64;
        let mean = mean as f64 * 1e6;
        assert!((found - mean).abs() < 5.0 * mean / (outages as f64).sqrt(), "{found}");
    }

    #[test]
    fn outages_do_not_depend_on_number_of_reads() {
        // As long as a period: one outage ends where the next one begins.
        let plan = plan(0.5, 20_000, DurationLaw::Exponential);
        let mut often = boundaries(plan, Instant(5));
        let mut seldom = often.clone();
        for i in 1..200_000_u64 {
            let t = Instant(i * 10_000_000);
            let out = often.covers(t);
            if i % 1_999 == 0 {
                assert_eq!(out, seldom.covers(t), "at {t}");
            }
        }
        // The end of time is reached.
        boundaries(plan, Instant(u64::MAX - 1)).covers(Instant::MAX);
    }
}
