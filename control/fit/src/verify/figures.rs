// SPDX-License-Identifier: Apache-2.0
//! Figures of a series of probes, each with its counts per block, so that its
//! error is known.

use crate::baseline::Series;

/// Blocks that errors come from.
pub const BLOCKS: usize = 100;
/// Neighbouring blocks are also joined by so many, for errors of values that hang together over
/// more than one block.
const JOINED: [usize; 3] = [1, 2, 4];

/// A share, or a rate: sums over blocks, counted against sums of something else.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Counts in each block.
    pub counts: Vec<f64>,
    /// Denominator of each count.
    pub of: Vec<f64>,
    /// Whether it is a share: each unit of `of` is counted once at most.
    pub share: bool,
}

impl Ratio {
    fn new(share: bool) -> Self {
        Self { counts: vec![0.0; BLOCKS], of: vec![0.0; BLOCKS], share }
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

    /// Half of the confidence interval of the ratio, `z` standard errors to each side, if the
    /// series were `longer` times as long as it is. Infinite if there is nothing to count
    /// against.
    ///
    /// The variance of the count is that of a ratio estimator over blocks (W. G. Cochran,
    /// "Sampling Techniques", 1977, ch. 6), and not less than that of independent counts. It
    /// grows in proportion to the length. z² counts are added to it, so that an interval about a
    /// count of zero has a length (A. Agresti, B. A. Coull, 1998), times the design effect of the
    /// counts (J. N. K. Rao, A. J. Scott, 1992).
    #[must_use]
    pub fn error(&self, z: f64, longer: f64) -> f64 {
        let of: f64 = self.of.iter().sum();
        if of <= 0.0 {
            return f64::INFINITY;
        }
        let count = self.count();
        let independent = if self.share { count * (1.0 - count / of) } else { count };
        let variance = self.between_blocks().max(independent);
        let effect = variance / independent.max(1.0);
        z * (variance * longer + z * z * effect.max(1.0)).sqrt() / (of * longer)
    }

    /// The variance of the count about the ratio, by blocks; of several lengths of block the
    /// largest.
    fn between_blocks(&self) -> f64 {
        let value = self.value();
        let residuals: Vec<f64> =
            self.counts.iter().zip(&self.of).map(|(c, o)| c - value * o).collect();
        let by = |joined: usize| {
            let n = (residuals.len() / joined) as f64;
            let squares = residuals.chunks(joined).map(|c| c.iter().sum::<f64>().powi(2));
            squares.sum::<f64>() * n / (n - 1.0)
        };
        JOINED.into_iter().map(by).fold(0.0, f64::max)
    }
}

/// Runs of more probes than these are counted.
pub const LONGER: [u32; 6] = [2, 4, 8, 16, 32, 64];

/// Figures of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub probes: usize,
    /// Round trips in ascending order, in ns.
    pub sorted: Vec<u64>,
    /// Share of round trips above each level.
    pub above: Vec<Ratio>,
    /// Episodes above each level, per second.
    pub episodes: Vec<Ratio>,
    pub lost: Ratio,
    /// Runs of lost probes, per second.
    pub events: Ratio,
    /// Share of runs with one probe.
    pub single: Ratio,
    /// Lost probes per run of several.
    pub several: Ratio,
    /// Share of runs with more probes than each of [`LONGER`].
    pub longer: Vec<Ratio>,
    /// Number of runs by their length.
    pub lengths: std::collections::BTreeMap<u32, u64>,
    /// Autocorrelation of the round trips at each lag, with its error.
    pub autocorrelation: Vec<(f64, f64)>,
}

impl Figures {
    /// Figures of a series with ascending round trips: shares and episodes above `levels`
    /// (in ns), and the autocorrelation of round trips, cut at `cut`, at `lags` (in probes).
    #[must_use]
    pub fn of(series: &Series, sorted: Vec<u64>, levels: &[u64], lags: &[usize], cut: u64) -> Self {
        let (share, rate) = (Ratio::new(true), Ratio::new(false));
        let mut figures = Self {
            probes: series.len(),
            sorted,
            above: vec![share.clone(); levels.len()],
            episodes: vec![rate.clone(); levels.len()],
            lost: share.clone(),
            events: rate.clone(),
            single: share.clone(),
            several: rate,
            longer: vec![share; LONGER.len()],
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
        for (ratio, length) in self.longer.iter_mut().zip(LONGER) {
            ratio.of[block] += 1.0;
            ratio.counts[block] += f64::from(u8::from(lost > length));
        }
    }

    /// The round trip that is exceeded with probability `p`, in ns.
    #[must_use]
    pub fn exceeded(&self, p: f64) -> u64 {
        exceeded(&self.sorted, p)
    }

    /// Half of the confidence interval of the round trip that is exceeded with probability `p`,
    /// in ns, if its interval in probability is `p` ± `share`; the longer side. Infinite if the
    /// interval reaches beyond all round trips (R. S. Woodruff, 1952).
    #[must_use]
    pub fn quantile_error(&self, p: f64, share: f64) -> f64 {
        if share >= p || share >= 1.0 - p {
            return f64::INFINITY;
        }
        let here = self.exceeded(p) as f64;
        let (longer, shorter) = (self.exceeded(p - share) as f64, self.exceeded(p + share) as f64);
        (longer - here).max(here - shorter)
    }

    /// The curve of exceedances: (round trip in ms, share above), thinned.
    #[must_use]
    pub fn curve(&self) -> Vec<(f64, f64)> {
        thinned(&self.sorted)
    }
}

/// The exceedances of ascending round trips in ns: (round trip in ms, share above), some 300 points.
#[must_use]
pub fn thinned(sorted: &[u64]) -> Vec<(f64, f64)> {
    let n = sorted.len();
    let mut at: Vec<usize> = (0..200).map(|i| i * n / 200).collect();
    let mut left = n as f64 / 200.0;
    while left >= 1.0 {
        at.push(n - left as usize);
        left /= 1.12;
    }
    at.retain(|i| *i < n);
    at.sort_unstable();
    at.dedup();
    at.into_iter().map(|i| (sorted[i] as f64 / 1e6, (n - i - 1) as f64 / n as f64)).collect()
}

/// The round trips of a series in ascending order, in ns.
#[must_use]
pub fn sorted(series: &Series) -> Vec<u64> {
    let mut sorted: Vec<u64> = series.iter().filter_map(|p| p.rtt_ns).collect();
    sorted.sort_unstable();
    sorted
}

/// The one of the ascending round trips that is exceeded with probability `p`; zero without any.
#[must_use]
pub fn exceeded(sorted: &[u64], p: f64) -> u64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0 };
    let at = (last as f64 * (1.0 - p.clamp(0.0, 1.0))).round();
    sorted[(at as usize).min(last)]
}

/// The autocorrelation at a lag, and its error by a jackknife over blocks.
fn autocorrelation(series: &Series, lag: usize, value: impl Fn(u64) -> f64) -> (f64, f64) {
    let pairs = crate::delay::body::pairs(series, lag, BLOCKS / 2, |rtt| rtt.map(&value));
    crate::delay::body::autocorrelation_of(&pairs)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// So many counts, spread evenly over the blocks.
    fn ratio(count: usize, of: f64, share: bool) -> Ratio {
        let mut ratio = Ratio::new(share);
        for i in 0..count {
            ratio.counts[i * 37 % BLOCKS] += 1.0;
        }
        ratio.of = vec![of / BLOCKS as f64; BLOCKS];
        ratio
    }

    #[test]
    fn a_one_sided_interval_about_a_count_has_its_level_down_to_counts_of_zero() {
        // The 95 % quantile of the normal distribution; Poisson counts of each mean.
        let z = 1.644_853_6;
        for mean in [0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0_f64] {
            let mut probability = (-mean).exp();
            let (mut low, mut high) = (0.0, 0.0);
            for count in 0..300 {
                let ratio = ratio(count, 1e6, false);
                let (value, error) = (ratio.value() * 1e6, ratio.error(z, 1.0) * 1e6);
                high += if value + error >= mean { probability } else { 0.0 };
                low += if value - error <= mean { probability } else { 0.0 };
                probability *= mean / (count as f64 + 1.0);
            }
            assert!(high > 0.93 && low > 0.93, "mean {mean}: {high:.3} {low:.3}");
        }
    }

    #[test]
    fn clustered_counts_have_larger_errors_than_scattered_counts() {
        let even = ratio(400, 1e6, false);
        let mut joined = even.clone();
        // All of a hundred blocks' counts in every tenth, and then in neighbouring ones.
        joined.counts = (0..BLOCKS).map(|i| if i % 10 == 0 { 40.0 } else { 0.0 }).collect();
        let by = joined.error(1.6, 1.0) / even.error(1.6, 1.0);
        assert!((5.0..8.0).contains(&by), "{by}");
        let mut slow = even.clone();
        slow.counts = (0..BLOCKS).map(|i| if i % 8 < 4 { 8.0 } else { 0.0 }).collect();
        // Blocks of four show what single ones halve.
        let by = slow.error(1.6, 1.0) / even.error(1.6, 1.0);
        assert!((3.8..4.4).contains(&by), "{by}");
    }

    #[test]
    fn errors_fall_with_length_and_faster_for_zero_counts() {
        let (some, none) = (ratio(10_000, 1e6, true), ratio(0, 1e6, true));
        let falls = |ratio: &Ratio| ratio.error(1.6, 1.0) / ratio.error(1.6, 100.0);
        assert!((falls(&some) / 10.0 - 1.0).abs() < 1e-3, "{}", falls(&some));
        assert!((falls(&none) / 100.0 - 1.0).abs() < 1e-9, "{}", falls(&none));
        assert_eq!(Ratio::new(true).error(1.6, 1.0), f64::INFINITY);
        // For a share near one, the remainder is counted.
        let most = ratio(1_000_000 - 100, 1e6, true).error(1.6, 1.0);
        assert!((most / ratio(100, 1e6, true).error(1.6, 1.0) - 1.0).abs() < 0.05, "{most}");
    }

    #[test]
    fn a_quantile_has_an_error_only_within_the_round_trips() {
        let mut series = Series::default();
        for i in 0..1_000 {
            series.push(crate::baseline::Probe { sent_ns: i, rtt_ns: Some(1_000 + i * i) });
        }
        let figures = Figures::of(&series, sorted(&series), &[], &[], 0);
        assert_eq!(figures.exceeded(0.1), 1_000 + 899 * 899);
        // The longer side: 949² − 899².
        assert_eq!(figures.quantile_error(0.1, 0.05), 92_400.0);
        assert_eq!(figures.quantile_error(0.1, 0.1), f64::INFINITY);
        assert_eq!(figures.quantile_error(0.9, 0.1), f64::INFINITY);
    }
}
