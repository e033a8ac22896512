// SPDX-License-Identifier: Apache-2.0
//! The sufficient statistics of a log: its runs of lost probes, counted.

use std::collections::BTreeMap;

use crate::baseline::{LossCounts, Series, Spacing};

/// Gaps are distinguished to this fraction of the probing interval.
const PARTS: f64 = 64.0;
/// A gap of one interval.
pub(super) const WHOLE: u32 = 64;
/// A gap that is off a whole number of intervals by less than this part of one is the
/// sender's jitter.
const JITTER: f64 = 0.25;

/// A run of lost probes between two that came back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Gaps between the probes, from the last answered probe before the run: (gap in parts
    /// of the interval, how many times).
    pub gaps: Vec<(u32, u32)>,
    /// Whether a probe that came back ends it; the end of the log does not.
    pub ended: bool,
}

impl Run {
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.gaps.iter().map(|(_, n)| n).sum::<u32>() - u32::from(self.ended)
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
    /// Lost probes before the first of a stretch that came back: they tell nothing.
    pub leading: u64,
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
        for segment in series.segments() {
            let mut up = None;
            let mut gaps: Vec<(u32, u32)> = Vec::new();
            let mut span: Option<(u64, u64)> = None;
            for probe in series.slice(segment) {
                let (from, _) = *span.get_or_insert((probe.sent_ns, probe.sent_ns));
                span = Some((from, probe.sent_ns));
                let Some(last) = up.replace(probe.sent_ns) else {
                    if probe.rtt_ns.is_none() {
                        up = None;
                        runs.leading += 1;
                    }
                    continue;
                };
                let intervals = (probe.sent_ns - last) as f64 / interval_ns as f64;
                let whole = intervals.round();
                let meant = match spacing {
                    Spacing::Constant if (intervals - whole).abs() < JITTER => whole,
                    _ => intervals,
                };
                let gap = ((meant * PARTS).round() as u32).max(1);
                if probe.rtt_ns.is_some() && gaps.is_empty() {
                    *runs.quiet.entry(gap).or_default() += 1;
                    continue;
                }
                if gaps.is_empty() {
                    runs.begins_s.push(probe.sent_ns as f64 / 1e9);
                }
                match gaps.last_mut() {
                    Some((same, n)) if *same == gap => *n += 1,
                    _ => gaps.push((gap, 1)),
                }
                if probe.rtt_ns.is_some() {
                    let gaps = std::mem::take(&mut gaps);
                    *runs.runs.entry(Run { gaps, ended: true }).or_default() += 1;
                }
            }
            if !gaps.is_empty() {
                *runs.runs.entry(Run { gaps, ended: false }).or_default() += 1;
            }
            if let Some((from, to)) = span {
                runs.stretches_s.push((from as f64 / 1e9, to as f64 / 1e9));
            }
        }
        runs
    }

    /// From a study's counts. Runs of two and more are assumed as equal in length as possible: with
    /// one class of exponential outages only their sum matters.
    #[must_use]
    pub fn of_counts(counts: &LossCounts, samples: u64, interval_ns: u64) -> Self {
        let gap = WHOLE;
        let interval_s = interval_ns as f64 / 1e9;
        let mut runs = Self { interval_s, grouped: true, ..Self::default() };
        let quiet = samples.saturating_sub(counts.lost + counts.single + counts.runs);
        runs.quiet.insert(gap, quiet);
        let mut add = |lost: u64, n: u64| {
            if n > 0 {
                let lost = u32::try_from(lost).unwrap_or(u32::MAX - 1);
                *runs.runs.entry(Run { gaps: vec![(gap, lost + 1)], ended: true }).or_default() +=
                    n;
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

    /// A gap in seconds.
    #[must_use]
    pub fn seconds(&self, parts: u32) -> f64 {
        f64::from(parts) / PARTS * self.interval_s
    }

    #[must_use]
    pub fn events(&self) -> u64 {
        self.runs.values().sum()
    }

    #[must_use]
    pub fn lost(&self) -> u64 {
        self.runs.iter().map(|(r, n)| u64::from(r.lost()) * n).sum()
    }

    /// Runs that a probe ended, by their length.
    #[must_use]
    pub fn lengths(&self) -> BTreeMap<u32, u64> {
        let mut lengths = BTreeMap::new();
        for (run, n) in self.runs.iter().filter(|(r, _)| r.ended) {
            *lengths.entry(run.lost()).or_default() += n;
        }
        lengths
    }

    #[must_use]
    pub fn received(&self) -> u64 {
        self.quiet.values().sum::<u64>() + self.lengths().values().sum::<u64>()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Probe;

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
        assert_eq!((r.leading, r.lost(), r.events()), (3, 7, 4));
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
