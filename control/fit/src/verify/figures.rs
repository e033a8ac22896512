// SPDX-License-Identifier: Apache-2.0
//! Figures of a series of probes, each with what it is made of in blocks, so that its
//! error is known.

use crate::baseline::Series;

/// Blocks that errors come from.
pub const BLOCKS: usize = 100;

/// A share, or a rate: sums over blocks, counted against sums of something else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ratio {
    /// Counts in each block.
    pub counts: Vec<f64>,
    /// What they are counted against.
    pub of: Vec<f64>,
}

impl Ratio {
    fn new() -> Self {
        Self { counts: vec![0.0; BLOCKS], of: vec![0.0; BLOCKS] }
    }

    /// The sum of the counts.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// The ratio; zero if there is nothing to count against.
    #[must_use]
    pub fn value(&self) -> f64 {
        let of: f64 = self.of.iter().sum();
        if of > 0.0 { self.count() / of } else { 0.0 }
    }

    /// Its standard error: that of a ratio estimator over blocks, and not less than that of
    /// independent counts, `floor` of them at least.
    #[must_use]
    pub fn error(&self, floor: f64) -> f64 {
        let (n, of, value) = (BLOCKS as f64, self.of.iter().sum::<f64>(), self.value());
        if of <= 0.0 {
            return f64::INFINITY;
        }
        let residuals = self.counts.iter().zip(&self.of).map(|(c, o)| (c - value * o).powi(2));
        let blocks = residuals.sum::<f64>() * n / (n - 1.0);
        // Of a share near one, what is left is counted.
        let count = self.count();
        let counted = if count <= of { count.min(of - count) } else { count };
        blocks.max(counted.max(floor)).sqrt() / of
    }
}

/// What is measured of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Probes.
    pub probes: usize,
    /// Round trips in ascending order, in ns.
    pub sorted: Vec<u64>,
    /// Share of round trips above each level.
    pub above: Vec<Ratio>,
    /// Episodes above each level, per second.
    pub episodes: Vec<Ratio>,
    /// Share of probes lost.
    pub lost: Ratio,
    /// Runs of lost probes, per second.
    pub events: Ratio,
    /// Share of runs with one probe.
    pub single: Ratio,
    /// Lost probes per run of several.
    pub several: Ratio,
    /// Runs by length.
    pub lengths: std::collections::BTreeMap<u32, u64>,
    /// Autocorrelation of the round trips at each lag, with its error.
    pub autocorrelation: Vec<(f64, f64)>,
}

impl Figures {
    /// Of a series: shares and episodes above `levels` (in ns), and the autocorrelation of
    /// round trips, cut at `cut`, at `lags` (in probes).
    #[must_use]
    pub fn of(series: &Series, levels: &[u64], lags: &[usize], cut: u64) -> Self {
        let mut sorted: Vec<u64> = series.iter().filter_map(|p| p.rtt_ns).collect();
        sorted.sort_unstable();
        let mut figures = Self {
            probes: series.len(),
            sorted,
            above: vec![Ratio::new(); levels.len()],
            episodes: vec![Ratio::new(); levels.len()],
            lost: Ratio::new(),
            events: Ratio::new(),
            single: Ratio::new(),
            several: Ratio::new(),
            lengths: std::collections::BTreeMap::new(),
            autocorrelation: Vec::new(),
        };
        for segment in series.segments() {
            figures.segment(series, segment, levels);
        }
        // Around the middle, so that no digits are lost.
        let middle = figures.exceeded(0.5) as f64;
        let cut = |rtt: u64| (rtt.min(cut) as f64 - middle) / 1e9;
        figures.autocorrelation =
            lags.iter().map(|lag| autocorrelation(series, *lag, cut)).collect();
        figures
    }

    fn segment(&mut self, series: &Series, segment: std::ops::Range<usize>, levels: &[u64]) {
        let mut raised = vec![false; levels.len()];
        let mut run = 0_u32;
        let mut last: Option<u64> = None;
        let block_of = |i: usize| i * BLOCKS / series.len().max(1);
        let start = segment.start;
        for (i, probe) in series.slice(segment.clone()).enumerate() {
            let block = block_of(start + i);
            if let Some(before) = last.replace(probe.sent_ns) {
                let seconds = (probe.sent_ns - before) as f64 / 1e9;
                self.events.of[block] += seconds;
                self.episodes.iter_mut().for_each(|e| e.of[block] += seconds);
            }
            self.lost.of[block] += 1.0;
            let Some(rtt) = probe.rtt_ns else {
                self.lost.counts[block] += 1.0;
                if run == 0 {
                    self.events.counts[block] += 1.0;
                }
                run += 1;
                continue;
            };
            self.end_run(&mut run, block);
            for (k, level) in levels.iter().enumerate() {
                self.above[k].of[block] += 1.0;
                let now = rtt > *level;
                if now {
                    self.above[k].counts[block] += 1.0;
                    if !raised[k] {
                        self.episodes[k].counts[block] += 1.0;
                    }
                }
                raised[k] = now;
            }
        }
        self.end_run(&mut run, block_of(segment.end.saturating_sub(1)));
    }

    fn end_run(&mut self, run: &mut u32, block: usize) {
        let lost = std::mem::take(run);
        if lost == 0 {
            return;
        }
        *self.lengths.entry(lost).or_default() += 1;
        self.single.of[block] += 1.0;
        if lost == 1 {
            self.single.counts[block] += 1.0;
        } else {
            self.several.of[block] += 1.0;
            self.several.counts[block] += f64::from(lost);
        }
    }

    /// The round trip that is exceeded with probability `p`, in ns.
    #[must_use]
    pub fn exceeded(&self, p: f64) -> u64 {
        let Some(last) = self.sorted.len().checked_sub(1) else { return 0 };
        let at = (last as f64 * (1.0 - p.clamp(0.0, 1.0))).round();
        self.sorted[(at as usize).min(last)]
    }

    /// The curve of exceedances: (round trip in ms, share above), thinned.
    #[must_use]
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let n = self.sorted.len();
        let mut at: Vec<usize> = (0..200).map(|i| i * n / 200).collect();
        let mut left = n as f64 / 200.0;
        while left >= 1.0 {
            at.push(n - left as usize);
            left /= 1.12;
        }
        at.retain(|i| *i < n);
        at.sort_unstable();
        at.dedup();
        at.into_iter()
            .map(|i| (self.sorted[i] as f64 / 1e6, (n - i - 1) as f64 / n as f64))
            .collect()
    }
}

/// The autocorrelation at a lag, and its error by a jackknife over blocks.
fn autocorrelation(series: &Series, lag: usize, value: impl Fn(u64) -> f64) -> (f64, f64) {
    let pairs = crate::delay::body::pairs(series, lag, BLOCKS / 2, |rtt| rtt.map(&value));
    crate::delay::body::jackknife(&pairs)
}

/// The largest and the least round trip in each of `spans` equal spans of time: (hours, ms),
/// largest and least after each other.
#[must_use]
pub fn envelope(series: &Series, spans: usize) -> Vec<(f64, f64)> {
    let end = series.iter().last().map_or(1, |p| p.sent_ns).max(1);
    let mut ends = vec![None::<(u64, u64)>; spans];
    for probe in series.iter() {
        let Some(rtt) = probe.rtt_ns else { continue };
        let at = (probe.sent_ns as u128 * spans as u128 / (u128::from(end) + 1)) as usize;
        let (high, low) = ends[at].unwrap_or((rtt, rtt));
        ends[at] = Some((high.max(rtt), low.min(rtt)));
    }
    let hours = |i: usize| end as f64 / 3.6e12 * (i as f64 + 0.5) / spans as f64;
    let points = ends.into_iter().enumerate().flat_map(|(i, e)| {
        let (high, low) = e.map_or((f64::NAN, f64::NAN), |(h, l)| (h as f64 / 1e6, l as f64 / 1e6));
        [(hours(i), high), (hours(i), low)]
    });
    points.collect()
}
