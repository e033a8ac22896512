// SPDX-License-Identifier: Apache-2.0
//! The sufficient statistics of a log: its runs of lost probes, counted.

use std::collections::BTreeMap;

use crate::baseline::{LossCounts, Probe, Series, Spacing};

/// Gaps are distinguished to this fraction of the probing interval.
pub(super) const PARTS: u32 = 64;
/// A gap that is off one interval by less than this part of it is the sender's jitter.
const JITTER: f64 = 0.25;
/// In a longer time without probes, counted in intervals, a fade may begin or end unseen.
const UNSEEN: f64 = 20.0;

/// A run of lost probes between two that came back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Gaps between the probes, from the first to the last of the run, with the answered ones
    /// around it: (gap in parts of the interval, how many times).
    pub gaps: Vec<(u32, u32)>,
    /// Whether it follows a probe that came back; at the beginning of a stretch it does not.
    pub begun: bool,
    /// Whether a probe that came back ends it; the end of the log does not.
    pub ended: bool,
}

impl Run {
    #[must_use]
    pub fn lost(&self) -> u32 {
        let gaps = self.gaps.iter().map(|(_, n)| n).sum::<u32>();
        gaps + u32::from(!self.begun) - u32::from(self.ended)
    }
}

/// All runs of a log, equal ones counted together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    /// The probing interval, in seconds.
    pub interval_s: f64,
    /// Probes that came back after one that came back: (gap in parts, how many).
    pub quiet: BTreeMap<u32, u64>,
    /// Runs of at least one lost probe, and how many.
    pub runs: BTreeMap<Run, u64>,
    /// Stretches of known times that begin with a probe that came back.
    pub starts: u64,
    /// Instants at which runs begin, in seconds, for slow variations; empty for counts.
    pub begins_s: Vec<f64>,
    /// Stretches of the log, in seconds.
    pub stretches_s: Vec<(f64, f64)>,
    /// Whether only the sum of the lengths of runs of two and more is known.
    pub grouped: bool,
}

impl Runs {
    #[must_use]
    pub fn of_series(series: &Series, interval_ns: u64, spacing: Spacing) -> Self {
        let mut runs = Self { interval_s: interval_ns as f64 / 1e9, ..Self::default() };
        for stretch in series.timed() {
            runs.stretch(series.slice(stretch), interval_ns, spacing);
        }
        runs
    }

    /// Counts the runs of a stretch of known times.
    fn stretch(&mut self, probes: impl Iterator<Item = Probe>, interval_ns: u64, spacing: Spacing) {
        let mut before: Option<Probe> = None;
        let mut run = Run { gaps: Vec::new(), begun: false, ended: false };
        let mut seen: Option<(f64, f64)> = None;
        let mut lost = false;
        for probe in probes {
            let at = probe.sent_ns as f64 / 1e9;
            let came_back = probe.rtt_ns.is_some();
            let Some(last) = before.replace(probe) else {
                seen = Some((at, at));
                self.starts += u64::from(came_back);
                lost = !came_back;
                continue;
            };
            let intervals = (probe.sent_ns - last.sent_ns) as f64 / interval_ns as f64;
            let gap = parts(intervals, spacing);
            seen = match seen {
                Some((from, _)) if lost || intervals <= UNSEEN => Some((from, at)),
                _ => {
                    self.stretches_s.extend(seen);
                    Some((at, at))
                }
            };
            if came_back && !lost {
                *self.quiet.entry(gap).or_default() += 1;
                continue;
            }
            if !lost {
                self.begins_s.push(at);
                (lost, run.begun) = (true, true);
            }
            match run.gaps.last_mut() {
                Some((same, n)) if *same == gap => *n += 1,
                _ => run.gaps.push((gap, 1)),
            }
            if came_back {
                lost = false;
                let ended = Run { ended: true, ..run.clone() };
                run.gaps.clear();
                *self.runs.entry(ended).or_default() += 1;
            }
        }
        if lost {
            *self.runs.entry(run).or_default() += 1;
        }
        self.stretches_s.extend(seen);
    }

    /// From a study's counts. Runs of two and more are assumed as equal in length as possible: with
    /// one class of exponential outages only their sum matters.
    #[must_use]
    pub fn of_counts(counts: &LossCounts, samples: u64, interval_ns: u64) -> Self {
        let gap = PARTS;
        let interval_s = interval_ns as f64 / 1e9;
        let mut runs = Self { interval_s, grouped: true, ..Self::default() };
        let quiet = samples.saturating_sub(counts.lost + counts.single + counts.runs);
        runs.quiet.insert(gap, quiet);
        let mut add = |lost: u64, n: u64| {
            if n > 0 {
                let lost = u32::try_from(lost).unwrap_or(u32::MAX - 1);
                let run = Run { gaps: vec![(gap, lost + 1)], begun: true, ended: true };
                *runs.runs.entry(run).or_default() += n;
            }
        };
        add(1, counts.single);
        let in_runs = counts.lost.saturating_sub(counts.single);
        if let Some(each) = in_runs.checked_div(counts.runs) {
            let rest = in_runs % counts.runs;
            add(each, counts.runs - rest);
            add(each + 1, rest);
        }
        runs
    }

    /// The greatest common divisor of all gaps, in parts.
    #[must_use]
    pub fn unit(&self) -> u32 {
        let of_runs = self.runs.keys().flat_map(|run| run.gaps.iter().map(|(gap, _)| *gap));
        let gaps = self.quiet.keys().copied().chain(of_runs);
        let divisor = |mut a: u32, mut b: u32| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        gaps.fold(0, divisor).max(1)
    }

    /// A gap in seconds.
    #[must_use]
    pub fn seconds(&self, parts: u32) -> f64 {
        f64::from(parts) / f64::from(PARTS) * self.interval_s
    }

    #[must_use]
    pub fn events(&self) -> u64 {
        self.runs.values().sum()
    }

    #[must_use]
    pub fn lost(&self) -> u64 {
        self.runs.iter().map(|(r, n)| u64::from(r.lost()) * n).sum()
    }

    /// Runs between two probes that came back, by their length.
    #[must_use]
    pub fn lengths(&self) -> BTreeMap<u32, u64> {
        let mut lengths = BTreeMap::new();
        for (run, n) in self.runs.iter().filter(|(r, _)| r.begun && r.ended) {
            *lengths.entry(run.lost()).or_default() += n;
        }
        lengths
    }

    #[must_use]
    pub fn received(&self) -> u64 {
        let ended = self.runs.iter().filter(|(r, _)| r.ended).map(|(_, n)| n);
        self.starts + self.quiet.values().chain(ended).sum::<u64>()
    }

    /// The gaps in seconds after an answer and after a lost probe, if nearly all are equal.
    #[must_use]
    pub fn usual_gaps(&self) -> Option<[f64; 2]> {
        let (mut after_answer, mut after_loss) = (self.quiet.clone(), BTreeMap::new());
        for (run, n) in &self.runs {
            for (i, (gap, times)) in run.gaps.iter().enumerate() {
                let first = u64::from(i == 0 && run.begun);
                *after_answer.entry(*gap).or_default() += first * n;
                *after_loss.entry(*gap).or_default() += (u64::from(*times) - first) * n;
            }
        }
        let usual = |gaps: &BTreeMap<u32, u64>| {
            let (gap, most) = gaps.iter().max_by_key(|(_, n)| **n)?;
            let all = gaps.values().sum::<u64>();
            (*most as f64 >= 0.9 * all as f64).then(|| self.seconds(*gap))
        };
        Some([usual(&after_answer)?, usual(&after_loss)?])
    }

    /// The outages per second of clear time if each run is one of this duration in seconds.
    #[must_use]
    pub fn rate_of_outages(&self, duration: f64) -> f64 {
        let first = self.runs.iter().filter(|(run, _)| run.begun);
        let first = first.filter_map(|(run, n)| Some((run.gaps.first()?.0, n)));
        let gaps = self.quiet.iter().map(|(gap, n)| (*gap, n)).chain(first);
        // An outage that is shorter than a gap may fall between two probes.
        let seen = |(gap, n): (u32, &u64)| self.seconds(gap).min(duration) * *n as f64;
        self.events() as f64 / gaps.map(seen).sum::<f64>()
    }

    /// The mean gap in seconds after a lost probe; that of all without one.
    #[must_use]
    pub fn mean_gap_after_loss(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for (run, n) in &self.runs {
            for (i, (gap, times)) in run.gaps.iter().enumerate() {
                let times = f64::from(times - u32::from(i == 0 && run.begun)) * *n as f64;
                (sum, count) = (sum + self.seconds(*gap) * times, count + times);
            }
        }
        if count > 0.0 { sum / count } else { self.interval_s }
    }

    /// Time that was looked at, in seconds.
    #[must_use]
    pub fn observed_s(&self) -> f64 {
        let quiet: f64 = self.quiet.iter().map(|(g, n)| self.seconds(*g) * *n as f64).sum();
        let runs = self.runs.iter().flat_map(|(r, n)| r.gaps.iter().map(move |g| (g, n)));
        quiet
            + runs
                .map(|((gap, times), n)| self.seconds(*gap) * f64::from(*times) * *n as f64)
                .sum::<f64>()
    }
}

/// A gap of so many intervals in parts of one.
fn parts(intervals: f64, spacing: Spacing) -> u32 {
    let jitter = spacing == Spacing::Constant && (intervals - 1.0).abs() < JITTER;
    let meant = if jitter { 1.0 } else { intervals };
    ((meant * f64::from(PARTS)).round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(pattern: &str) -> Series {
        let mut s = Series::default();
        for (i, c) in pattern.chars().enumerate() {
            if c == '|' {
                s.interrupt();
            } else {
                let sent_ns = i as u64 * 200_000_000 + 1;
                s.push(Probe { sent_ns, rtt_ns: (c == '.').then_some(600_000_000) });
            }
        }
        s
    }

    #[test]
    fn runs_are_counted_by_length_and_cut_ones_are_kept_apart() {
        let r = Runs::of_series(&series("xx..x..xxx.x|x..xx"), 200_000_000, Spacing::Constant);
        assert_eq!(r.lengths().into_iter().collect::<Vec<_>>(), [(1, 1), (3, 1)]);
        assert_eq!(r.runs.iter().filter(|(r, _)| !r.ended).map(|(_, n)| n).sum::<u64>(), 2);
        assert_eq!((r.starts, r.lost(), r.events()), (0, 10, 6));
        assert_eq!(r.quiet.into_iter().collect::<Vec<_>>(), [(64, 3)]);
        assert_eq!(r.begins_s.len(), 4);
    }

    #[test]
    fn a_study_s_counts_keep_their_sums() {
        let counts = LossCounts { lost: 604, single: 465, runs: 44, longest: 11 };
        let r = Runs::of_counts(&counts, 3_024_000, 200_000_000);
        assert_eq!((r.lost(), r.events(), r.received()), (604, 509, 3_024_000 - 604));
        assert!((r.observed_s() - 604_800.0).abs() < 1.0);
    }
}
