// SPDX-License-Identifier: Apache-2.0
//! Instants at which the level of the round trips changes most.

use std::collections::VecDeque;

use crate::baseline::Series;
use crate::splitmix::unit;

/// Places per shortest period at which a change is looked for.
const PLACES: f64 = 64.0;
/// A window needs this share of the probes that it could have.
const COVERED: f64 = 0.5;

/// The ranks of the answered round trips in time, from 0 to 1; equal ones have their mean rank.
pub struct Ranks {
    /// When each probe was sent, ascending.
    sent: Vec<f64>,
    /// Sums of the ranks before each probe, and of all.
    sums: Vec<f64>,
}

impl Ranks {
    pub fn of(series: &Series) -> Self {
        let mut answered: Vec<(u64, u64)> =
            series.iter().filter_map(|p| Some((p.sent_ns, p.rtt_ns?))).collect();
        answered.sort_unstable_by_key(|(sent, _)| *sent);
        let mut sorted: Vec<u64> = answered.iter().map(|(_, rtt)| *rtt).collect();
        sorted.sort_unstable();
        let rank = |rtt: u64| {
            let below = sorted.partition_point(|r| *r < rtt);
            let upto = sorted.partition_point(|r| *r <= rtt);
            (below + upto) as f64 / (2 * sorted.len()) as f64
        };
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for (_, rtt) in &answered {
            sum += rank(*rtt);
            sums.push(sum);
        }
        Self { sent: answered.iter().map(|(sent, _)| crate::seconds(*sent)).collect(), sums }
    }

    /// When the first and the last answered probe were sent.
    pub fn span(&self) -> Option<(f64, f64)> {
        Some((*self.sent.first()?, *self.sent.last()?))
    }

    /// The answered probes that were sent within a time.
    pub fn within(&self, from: f64, to: f64) -> std::ops::Range<usize> {
        let begin = self.sent.partition_point(|t| *t < from);
        begin..begin + self.sent[begin..].partition_point(|t| *t < to)
    }

    pub fn sent(&self, probe: usize) -> f64 {
        self.sent[probe]
    }

    /// The mean rank of some probes; none of no probe.
    pub fn mean(&self, probes: &std::ops::Range<usize>) -> Option<f64> {
        (!probes.is_empty())
            .then(|| (self.sums[probes.end] - self.sums[probes.start]) / probes.len() as f64)
    }

    /// By how much the mean rank of the `half` after an instant is above that of the `half` before
    /// it, if both have enough probes.
    pub fn change(&self, at: f64, half: f64, interval: f64) -> Option<f64> {
        let (before, after) = (self.within(at - half, at), self.within(at, at + half));
        let least = (COVERED * half / interval).max(2.0);
        let enough = |probes: &std::ops::Range<usize>| probes.len() as f64 >= least;
        (enough(&before) && enough(&after))
            .then(|| Some(self.mean(&after)? - self.mean(&before)?))?
    }

    /// The instants within `span` at which the level changes more than half a period before and
    /// after, for periods of `shortest` and more. They are spread at random over the distance
    /// between two places, so that no period agrees with the grid of places.
    pub fn changes(&self, span: (f64, f64), shortest: f64, interval: f64) -> Vec<f64> {
        let half = shortest / 2.0;
        let step = (shortest / PLACES).max(interval);
        let places = ((span.1 - span.0) / step) as usize;
        let near = (half / step) as usize;
        // Between probes at equal intervals, not at them.
        let at = |place: usize| span.0 + (place as f64 + 0.5) * step;
        let sizes: Vec<f64> = (0..places)
            .map(|place| self.change(at(place), half, interval).map_or(0.0, f64::abs))
            .collect();
        // A queue of places with ever smaller changes: its head has the largest change of the last
        // `2 near` places.
        let mut largest: VecDeque<usize> = VecDeque::new();
        let mut times = Vec::new();
        for place in 0..places + near {
            if let Some(size) = sizes.get(place) {
                while largest.back().is_some_and(|last| sizes[*last] < *size) {
                    largest.pop_back();
                }
                largest.push_back(place);
            }
            let Some(middle) = place.checked_sub(near) else { continue };
            while largest.front().is_some_and(|first| first + near < middle) {
                largest.pop_front();
            }
            if largest.front() == Some(&middle) && sizes[middle] > 0.0 {
                times.push(at(middle) + (unit(middle as u64) - 0.5) * step);
            }
        }
        times
    }
}
