// SPDX-License-Identifier: Apache-2.0
//! The likelihood of runs under outages that all last equally long.
//!
//! The link alternates between clear times, which are exponential, and outages of one duration D: an
//! alternating renewal process (D. R. Cox, "Renewal Theory", 1962, ch. 7). Clear at time 0, it is clear
//! at t with the probability that n outages have begun in the clear part of t, t − nD, summed
//! over n. A probe that came back tells that the link is clear, so each run stands for itself.
//!
//! What a run tells is sharp: a duration is either possible or not. [`super::chain::Law`] has nearly equal
//! durations in its place, whose likelihood is smooth; this one gives the durations that they do
//! not reach, for example where each outage loses the same number of probes.

use super::runs::{Run, Runs};
use crate::interval::Interval;
use crate::numeric::{Maximum, maximise, profile_interval_at};

/// Intervals that the end of an outage is integrated over, between two probes.
const CELLS: usize = 8;
/// Terms, and parts of a run's probability, that are smaller than this part of it are left out.
const NEGLIGIBLE: f64 = 1e-12;
/// Durations that are tried between the least and the largest, beside those at which a run
/// becomes possible or impossible.
const DURATIONS: u32 = 48;
/// More edges than this are thinned out.
const EDGES: usize = 96;
/// With more runs of different gaps the durations are not searched: it would take minutes.
const MOST: usize = 5_000;
/// How often the step between two durations is halved to find the end of a range.
const HALVINGS: u32 = 10;

/// Outages of one duration, and isolated losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fixed {
    /// Outages per second of clear time.
    pub rate: f64,
    /// Their duration in seconds.
    pub duration: f64,
    /// Probability that a probe is lost for itself.
    pub isolated: f64,
    /// Duration of an isolated loss in seconds.
    pub isolated_s: f64,
}

/// What the runs leave open: ranges of duration and mean clear time in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    pub duration: Interval,
    pub interval: Interval,
    /// The largest log-likelihood.
    pub best: f64,
}

/// An outage under way ends between `from` and `to`, with this probability.
#[derive(Clone, Copy)]
struct Cell {
    from: f64,
    to: f64,
    mass: f64,
}

/// Where a run may be after its last probe.
enum Place {
    /// That came back.
    Answered,
    /// That was lost: in outages under way, or in an isolated loss, with these probabilities.
    Lost { cells: Vec<Cell>, isolated: f64 },
}

impl Cell {
    /// The mean time of those ends that have passed, and their probability.
    fn ended(&self, now: f64) -> Option<(f64, f64)> {
        let to = self.to.min(now);
        let share = (to - self.from) / (self.to - self.from);
        (share > 0.0).then(|| (f64::midpoint(self.from, to), share * self.mass))
    }

    /// The ends that are still to come.
    fn after(&self, now: f64) -> Option<Self> {
        let from = self.from.max(now);
        let share = (self.to - from) / (self.to - self.from);
        (share > 0.0).then_some(Self { from, to: self.to, mass: share * self.mass })
    }
}

impl Place {
    fn whole(&self) -> f64 {
        match self {
            Self::Answered => 1.0,
            Self::Lost { cells, isolated } => {
                isolated + cells.iter().map(|cell| cell.mass).sum::<f64>()
            }
        }
    }

    /// Without what holds next to nothing.
    fn thinned(mut self) -> Self {
        let least = NEGLIGIBLE * self.whole();
        if let Self::Lost { cells, isolated } = &mut self {
            cells.retain(|cell| cell.mass > least);
            if *isolated < least {
                *isolated = 0.0;
            }
        }
        self
    }

    /// How many further probes are lost for certain, each after this gap.
    fn idle(&self, now: f64, gap: f64) -> u32 {
        match self {
            Self::Lost { cells, isolated: 0.0 } => {
                let first = cells.iter().map(|cell| cell.from).fold(f64::INFINITY, f64::min);
                ((first - now) / gap).clamp(0.0, f64::from(u32::MAX)) as u32
            }
            _ => 0,
        }
    }
}

impl Fixed {
    /// The probability of being clear `t` seconds after being clear.
    fn clear(&self, t: f64) -> f64 {
        let mut sum = 0.0;
        let mut n = 0.0_f64;
        let mut log_factorial = 0.0;
        loop {
            let clear = t - n * self.duration;
            if clear < 0.0 {
                return sum;
            }
            let begun = self.rate * clear;
            let term = match n {
                0.0 => (-begun).exp(),
                _ if begun > 0.0 => (n * begun.ln() - begun - log_factorial).exp(),
                _ => 0.0,
            };
            sum += term;
            if n > self.rate * t && term < NEGLIGIBLE * sum {
                return sum;
            }
            n += 1.0;
            log_factorial += n.ln();
        }
    }

    /// The probabilities that a clear link loses a probe for itself, `gap` seconds after an answer and after
    /// such a loss.
    fn hits(&self, gap: f64) -> (f64, f64) {
        let covered = if gap < self.isolated_s { gap / self.isolated_s } else { 1.0 };
        let hit = self.isolated * covered;
        (hit, (1.0 - covered) + covered * hit)
    }

    /// Outages that begin after `clear_at`, with the probability `mass` of being clear
    /// then, and end within a cell.
    fn begin(&self, clear_at: f64, mass: f64, into: &mut [Cell]) {
        for cell in into {
            let from = cell.from.max(clear_at + self.duration);
            let begins = f64::midpoint(from, cell.to) - self.duration;
            if from < cell.to {
                cell.mass += mass * self.rate * (cell.to - from) * self.clear(begins - clear_at);
            }
        }
    }

    /// Cells for outages that begin after `clear_at` and last at `now`, without any probability.
    fn cells(&self, clear_at: f64, now: f64) -> Vec<Cell> {
        let from = now.max(clear_at + self.duration);
        let width = (now + self.duration - from) / CELLS as f64;
        let edge = |i: usize| from + i as f64 * width;
        (0..CELLS).map(|i| Cell { from: edge(i), to: edge(i + 1), mass: 0.0 }).collect()
    }

    /// The probability of a run.
    fn run(&self, run: &Run, runs: &Runs) -> f64 {
        let mut place = if run.begun { Place::Answered } else { self.begin_lost() };
        let mut now = 0.0;
        let last = run.gaps.len().saturating_sub(1);
        for (i, (parts, times)) in run.gaps.iter().enumerate() {
            let gap = runs.seconds(*parts);
            // The last probe of an ended run came back.
            let back = run.ended && i == last;
            let mut left = times - u32::from(back);
            while left > 0 {
                let idle = (place.idle(now, gap)).min(left - 1);
                left -= idle + 1;
                now += f64::from(idle + 1) * gap;
                place = self.lose(&place, now - gap, now);
                if place.whole() < f64::MIN_POSITIVE {
                    return 0.0;
                }
            }
            if back {
                return self.back(&place, now, now + gap);
            }
        }
        place.whole()
    }

    /// At the beginning of a stretch, with a probe that was lost.
    fn begin_lost(&self) -> Place {
        let down = self.share();
        let cells = vec![Cell { from: 0.0, to: self.duration, mass: down }];
        Place::Lost { cells, isolated: (1.0 - down) * self.isolated }
    }

    /// The share of time in outages.
    fn share(&self) -> f64 {
        self.rate * self.duration / (1.0 + self.rate * self.duration)
    }

    /// The probabilities that the link is clear now: after an outage or an answer, and after an isolated loss
    /// without an outage since.
    fn clear_now(&self, place: &Place, before: f64, now: f64) -> (f64, f64) {
        match place {
            Place::Answered => (self.clear(now - before), 0.0),
            Place::Lost { cells, isolated } => {
                let ended = cells.iter().filter_map(|cell| cell.ended(now));
                let up = ended.map(|(end, mass)| mass * self.clear(now - end)).sum();
                (up, isolated * self.clear(now - before))
            }
        }
    }

    /// Another probe is lost.
    fn lose(&self, place: &Place, before: f64, now: f64) -> Place {
        let (hit, again) = self.hits(now - before);
        let (up, still) = self.clear_now(place, before, now);
        let mut cells = self.cells(before, now);
        match place {
            Place::Answered => self.begin(before, 1.0, &mut cells),
            Place::Lost { cells: under_way, isolated } => {
                self.begin(before, *isolated, &mut cells);
                for cell in under_way {
                    if let Some((end, mass)) = cell.ended(now) {
                        self.begin(end, mass, &mut cells);
                    }
                    cells.extend(cell.after(now));
                }
            }
        }
        Place::Lost { cells, isolated: up * hit + still * again }.thinned()
    }

    /// The probability that the next probe comes back.
    fn back(&self, place: &Place, before: f64, now: f64) -> f64 {
        let (hit, again) = self.hits(now - before);
        let (up, still) = self.clear_now(place, before, now);
        up * (1.0 - hit) + still * (1.0 - again)
    }

    /// The log-likelihood of all runs. The times of probes are known to a part of the interval, so
    /// a duration is as likely for a run as those nearby in the mean.
    #[must_use]
    pub fn log_likelihood(&self, runs: &Runs) -> f64 {
        let up = (1.0 - self.share()) * (1.0 - self.isolated);
        let mut sum = runs.starts as f64 * up.ln();
        for (parts, n) in &runs.quiet {
            let gap = runs.seconds(*parts);
            sum += *n as f64 * (self.clear(gap) * (1.0 - self.hits(gap).0)).ln();
        }
        for (run, n) in &runs.runs {
            let unknown = unknown(run, runs);
            let near = [-unknown, 0.0, unknown].map(|d| self.duration + d);
            let likely = near.map(|duration| match duration {
                0.0.. => Self { duration, ..*self }.run(run, runs),
                _ => 0.0,
            });
            sum += *n as f64 * (likely.iter().sum::<f64>() / 3.0).ln();
            if sum == f64::NEG_INFINITY {
                break;
            }
        }
        sum
    }
}

/// Durations and clear times whose likelihood is at most `fall` below the largest, for
/// durations from `least` seconds on. `isolated` is the probability of an isolated loss, which lasts
/// for `isolated_s`. `None` if no duration is possible, or there are too many runs to say.
#[must_use]
pub fn region(
    runs: &Runs,
    (isolated, isolated_s): (f64, f64),
    least: f64,
    fall: f64,
) -> Option<Region> {
    if runs.runs.len() > MOST {
        return None;
    }
    let most = runs.runs.keys().map(|run| Edges::of(run, runs).most).fold(least, f64::max);
    let rate = |at: &[f64], duration: f64| {
        Fixed { rate: at[0].exp(), duration, isolated, isolated_s }.log_likelihood(runs)
    };
    let tried = durations(runs, least, most);
    let mut found: Vec<(f64, f64, f64)> = tried
        .iter()
        .flat_map(|duration| {
            let guess = |share: f64| share * runs.rate_of_outages(*duration);
            let guesses = [0.25, 0.5, 1.0].map(|share| guess(share).ln());
            let guesses = guesses.map(|r| (*duration, r, rate(&[r], *duration)));
            guesses.into_iter().max_by(|a, b| a.2.total_cmp(&b.2))
        })
        .filter(|(.., value)| *value > f64::NEG_INFINITY)
        .collect();
    let best = found.iter().map(|(.., value)| *value).fold(f64::NEG_INFINITY, f64::max);
    found.retain(|(.., value)| *value > best - 3.0 * fall - 3.0);
    let profiled: Vec<_> = found
        .iter()
        .map(|(duration, guess, _)| {
            let at = |at: &[f64]| rate(at, *duration);
            (*duration, maximise(&at, &[*guess], 0.1))
        })
        .collect();
    let (_, top) = profiled.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let inside = |duration: f64, maximum: &Maximum| {
        let at = |at: &[f64]| rate(at, duration);
        let left = fall - (top.value - maximum.value);
        let (low, high) = profile_interval_at(left, &at, maximum, 0);
        let rate = Interval { value: maximum.at[0], low, high };
        Region {
            duration: Interval { value: duration, low: duration, high: duration },
            interval: rate.map(|r| (-r).exp()),
            best: top.value,
        }
    };
    let mut likely = profiled.iter().filter(|(_, m)| m.value > top.value - fall);
    let (first, maximum) = likely.next()?;
    let mut region = inside(*first, maximum);
    let mut last = (*first, maximum);
    for (duration, maximum) in likely {
        let here = inside(*duration, maximum);
        region.duration = region.duration.with(here.duration);
        region.interval = region.interval.with(here.interval);
        last = (*duration, maximum);
    }
    // The ends lie between a duration that is likely and the next one that is not.
    let end = |(likely, maximum): (f64, &Maximum), unlikely: Option<f64>| {
        let (mut near, mut far) = (likely, unlikely.unwrap_or(likely));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(near, far);
            let value = rate(&maximum.at, middle);
            *(if value > top.value - fall { &mut near } else { &mut far }) = middle;
        }
        near
    };
    let below = tried.iter().rev().find(|d| **d < *first).copied();
    let above = tried.iter().find(|d| **d > last.0).copied();
    let unknown = runs.runs.keys().map(|run| unknown(run, runs)).fold(0.0, f64::max);
    region.duration.low = (end((*first, maximum), below) - unknown).max(0.0);
    region.duration.high = end(last, above) + unknown;
    Some(region)
}

/// How well the times of a run's probes are known, in seconds.
fn unknown(run: &Run, runs: &Runs) -> f64 {
    let gaps: u32 = run.gaps.iter().map(|(_, times)| times).sum();
    runs.seconds(1) * f64::from(gaps).sqrt()
}

/// The durations, in seconds, of one outage that a run can be.
struct Edges {
    least: f64,
    most: f64,
}

impl Edges {
    fn of(run: &Run, runs: &Runs) -> Self {
        let parts = |(gap, times): &(u32, u32)| u64::from(*gap) * u64::from(*times);
        let whole: u64 = run.gaps.iter().map(parts).sum();
        let edge = |known: bool, gap: Option<&(u32, u32)>| {
            gap.filter(|_| known).map_or(0, |(gap, _)| u64::from(*gap))
        };
        let edges = edge(run.begun, run.gaps.first()) + edge(run.ended, run.gaps.last());
        let seconds = |parts: u64| parts as f64 * runs.seconds(1);
        Self { least: seconds(whole - edges.min(whole)), most: seconds(whole) }
    }
}

/// Durations to try, ascending.
fn durations(runs: &Runs, least: f64, most: f64) -> Vec<f64> {
    let step = (most / least).ln() / f64::from(DURATIONS);
    let even = (0..=DURATIONS).map(|i| least * (step * f64::from(i)).exp());
    let mut edges: Vec<f64> = runs
        .runs
        .keys()
        .map(|run| Edges::of(run, runs))
        .flat_map(|edges| [edges.least, edges.most])
        .filter(|edge| (least..=most).contains(edge))
        .collect();
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    let thin = edges.len().div_ceil(EDGES).max(1);
    let edges: Vec<f64> = edges.into_iter().step_by(thin).collect();
    let between = edges.windows(2).map(|pair| f64::midpoint(pair[0], pair[1]));
    let mut all: Vec<f64> = even.chain(between).chain(edges.iter().copied()).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::runs::PARTS;
    use super::*;

    fn runs(interval_s: f64, gaps: &[(u32, u32)]) -> (Run, Runs) {
        let run = Run { gaps: gaps.to_vec(), begun: true, ended: true };
        (run.clone(), Runs { interval_s, runs: BTreeMap::from([(run, 1)]), ..Runs::default() })
    }

    fn law(rate: f64, duration: f64, isolated: f64) -> Fixed {
        Fixed { rate, duration, isolated, isolated_s: 0.05 }
    }

    #[test]
    fn runs_of_all_lengths_have_a_probability_of_one() {
        for law in [law(0.02, 1.3, 0.0), law(0.05, 0.3, 0.01), law(0.3, 2.0, 0.1)] {
            let none = law.clear(1.0) * (1.0 - law.isolated);
            let lost = (1..300).map(|lost| {
                // The prober waits for 2 s after a loss.
                let (run, all) = runs(1.0, &[(PARTS, 1), (2 * PARTS, lost)]);
                law.run(&run, &all)
            });
            let sum = none + lost.sum::<f64>();
            assert!((sum - 1.0).abs() < 2e-3, "{law:?}: {sum}");
        }
    }

    #[test]
    fn clear_probability_settles_at_its_share_of_the_time() {
        let law = law(0.1, 3.0, 0.0);
        assert!((law.clear(2.0) - (-0.2_f64).exp()).abs() < 1e-12);
        assert!((law.clear(500.0) - 1.0 / 1.3).abs() < 1e-9);
    }

    #[test]
    fn a_run_is_possible_for_durations_between_its_inner_and_its_outer_length() {
        let (run, all) = runs(1.0, &[(PARTS, 1), (2 * PARTS, 2)]);
        let at = |duration: f64| law(1e-4, duration, 0.0).run(&run, &all) / 1e-4;
        // An outage from the second before the first loss, until after the second one.
        assert!((at(3.0) - 1.0).abs() < 1e-3, "{}", at(3.0));
        assert!((at(2.5) - 0.5).abs() < 1e-3, "{}", at(2.5));
        assert!((at(4.5) - 0.5).abs() < 1e-3, "{}", at(4.5));
        // Two outages.
        assert!(at(1.9) < 3e-4 && at(1.9) > 0.0, "{}", at(1.9));
        assert!(at(5.1) == 0.0);
    }
}
