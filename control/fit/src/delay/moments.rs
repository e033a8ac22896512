// SPDX-License-Identifier: Apache-2.0
//! Moments of the round trips in a log, with their errors.
//!
//! Two kinds of figures: the share of probes in each band of round trips, and the share
//! of pairs, a lag apart, that are both above a level. Their covariance comes from
//! blocks of the log much longer than any episode: probes are not independent, blocks
//! nearly are (the method of batch means; C. Alexopoulos, A. F. Seila, 1998).

use nalgebra::{DMatrix, DVector, RowDVector};
use statrs::distribution::{ContinuousCDF, Normal};

use super::largest::Probing;
use super::law::Law;
use crate::baseline::{Probe, Series};

/// A pair of probes: both above a level, a number of probes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    pub level: usize,
    /// Distance of the two round trips, in probes.
    pub lag: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Levels in seconds, ascending; bands lie between them and above the last.
    pub levels: Vec<f64>,
    pub joints: Vec<Joint>,
}

impl Figures {
    #[must_use]
    pub fn len(&self) -> usize {
        self.levels.len() + self.joints.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Moments under a law; `lags` are the spans of time that each number of probes takes,
    /// equally likely.
    #[must_use]
    pub fn of_law(&self, law: &Law, lags: impl Fn(usize) -> Vec<f64>) -> DVector<f64> {
        let above: Vec<f64> = self.levels.iter().map(|y| law.exceedance(*y)).collect();
        let bands = (0..above.len()).map(|i| above[i] - above.get(i + 1).copied().unwrap_or(0.0));
        let joints = self.joints.iter().map(|j| {
            let lags = lags(j.lag);
            let sum: f64 = lags.iter().map(|lag| law.joint(self.levels[j.level], *lag)).sum();
            sum / lags.len().max(1) as f64
        });
        DVector::from_iterator(self.len(), bands.chain(joints))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    pub figures: Figures,
    pub mean: DVector<f64>,
    /// Covariance of the figures in `mean`.
    pub covariance: DMatrix<f64>,
    /// The covariance of errors of reading, which no longer log takes away.
    pub reading: DMatrix<f64>,
    pub probes: f64,
    /// Blocks that the covariance is from; none if it is not from a log.
    pub blocks: Option<usize>,
    /// Largest round trips of spans of their own.
    pub maxima: Vec<Largest>,
}

/// The largest round trip of a span, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Largest {
    pub round_trip: f64,
    pub probing: Probing,
}

impl Largest {
    /// Where it is among those of a law, as a normal score: standard normal if the law holds.
    #[must_use]
    pub fn score(&self, law: &Law) -> f64 {
        let below = law.largest_below(self.round_trip, self.probing);
        Normal::standard().inverse_cdf(below.clamp(LEAST, 1.0 - LEAST))
    }
}

/// Probabilities nearer to zero or one are as this one.
const LEAST: f64 = 1e-12;

/// The counts of a block.
#[derive(Clone)]
struct Block {
    counts: Vec<f64>,
    probes: f64,
    pairs: Vec<f64>,
}

impl Moments {
    /// Moments of a log, in `blocks` blocks with the same number of probes.
    #[must_use]
    pub fn of_series(series: &Series, figures: Figures, blocks: usize) -> Self {
        let mut lags: Vec<usize> = figures.joints.iter().map(|j| j.lag).collect();
        lags.sort_unstable();
        lags.dedup();
        let slots: Vec<usize> =
            figures.joints.iter().map(|j| lags.partition_point(|l| *l < j.lag)).collect();
        let levels: Vec<u64> = figures.levels.iter().map(|y| (y * 1e9).round() as u64).collect();
        let longest = lags.last().copied().unwrap_or(0);
        let empty =
            Block { counts: vec![0.0; figures.len()], probes: 0.0, pairs: vec![0.0; lags.len()] };
        let blocks = blocks.max(1);
        let mut all = vec![empty; blocks];
        let bands = levels.len();
        // How many levels a round trip is above; for the last probes, `None` if lost.
        let above = |p: &Probe| p.rtt_ns.map(|rtt| levels.partition_point(|y| *y < rtt));
        for segment in series.segments() {
            let mut recent: Vec<Option<usize>> = Vec::with_capacity(longest + 1);
            let start = segment.start;
            for (i, probe) in series.slice(segment).enumerate() {
                let at = ((start + i) as u128 * blocks as u128 / series.len() as u128) as usize;
                let block = &mut all[at];
                let now = above(&probe);
                if let Some(n) = now {
                    block.probes += 1.0;
                    if n > 0 {
                        block.counts[n - 1] += 1.0;
                    }
                    for (slot, lag) in lags.iter().enumerate() {
                        if let Some(then) =
                            i.checked_sub(*lag).and_then(|j| recent[j % (longest + 1)])
                        {
                            block.pairs[slot] += 1.0;
                            if n > 0 && then > 0 {
                                let both = n.min(then);
                                for (k, joint) in figures.joints.iter().enumerate() {
                                    if slots[k] == slot && joint.level < both {
                                        block.counts[bands + k] += 1.0;
                                    }
                                }
                            }
                        }
                    }
                }
                if recent.len() <= longest {
                    recent.push(now);
                } else {
                    recent[i % (longest + 1)] = now;
                }
            }
        }
        let probes: f64 = all.iter().map(|b| b.probes).sum();
        let pairs: Vec<f64> =
            (0..lags.len()).map(|s| all.iter().map(|b| b.pairs[s]).sum()).collect();
        let of = |k: usize| if k < bands { probes } else { pairs[slots[k - bands]] }.max(1.0);
        let mean = DVector::from_fn(figures.len(), |k, _| {
            all.iter().map(|b| b.counts[k]).sum::<f64>() / of(k)
        });
        // Ratio estimators: the error is that of count − mean × number.
        let residual = |b: &Block, k: usize| {
            let n = if k < bands { b.probes } else { b.pairs[slots[k - bands]] };
            (b.counts[k] - mean[k] * n) / of(k)
        };
        let residuals = DMatrix::from_fn(all.len(), figures.len(), |b, k| residual(&all[b], k));
        let correction = all.len() as f64 / (all.len() as f64 - 1.0).max(1.0);
        let covariance = residuals.transpose() * residuals * correction;
        let reading = DMatrix::zeros(figures.len(), figures.len());
        let (blocks, maxima) = (Some(blocks), Vec::new());
        Self { figures, mean, covariance, reading, probes, blocks, maxima }
    }

    /// Omits figures with a relative error of `error` or more: such errors are not normal.
    /// The bands at the top become one.
    #[must_use]
    pub fn precise(self, error: f64) -> Self {
        let Figures { levels, joints } = &self.figures;
        let bands = levels.len();
        let known = |row: &RowDVector<f64>| {
            let variance = (row * &self.covariance * row.transpose())[(0, 0)];
            variance.sqrt() < error * (row * &self.mean)[(0, 0)]
        };
        let sum = |k: usize| {
            RowDVector::from_fn(self.figures.len(), |_, j| f64::from(j >= k && j < bands))
        };
        let one = |k: usize| RowDVector::from_fn(self.figures.len(), |_, j| f64::from(j == k));
        let top = (0..bands).rev().find(|k| known(&sum(*k))).map_or(0, |k| k + 1);
        let mut rows: Vec<RowDVector<f64>> = (1..top).map(|k| one(k - 1)).collect();
        rows.extend(top.checked_sub(1).map(sum));
        let kept: Vec<usize> = (0..joints.len())
            .filter(|k| joints[*k].level < top && known(&one(bands + k)))
            .collect();
        rows.extend(kept.iter().map(|k| one(bands + k)));
        let figures = Figures {
            levels: levels[..top].to_vec(),
            joints: kept.iter().map(|k| joints[*k]).collect(),
        };
        if rows.is_empty() {
            let (mean, covariance) = (DVector::zeros(0), DMatrix::zeros(0, 0));
            return Self { figures, mean, reading: covariance.clone(), covariance, ..self };
        }
        let a = DMatrix::from_rows(&rows);
        let (mean, covariance) = (&a * &self.mean, &a * &self.covariance * a.transpose());
        let reading = &a * &self.reading * a.transpose();
        Self { figures, mean, covariance, reading, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counted_across_losses_and_breaks() {
        let mut s = Series::default();
        for (i, rtt) in [5, 15, 25, 0, 35, 35, 5, 25].into_iter().enumerate() {
            if i == 6 {
                s.interrupt();
            }
            let rtt_ns = (rtt > 0).then_some(rtt * 1_000_000);
            s.push(Probe { sent_ns: (i as u64 + 1) * 200_000_000, rtt_ns });
        }
        let figures = Figures {
            levels: vec![0.010, 0.020, 0.030],
            joints: vec![Joint { level: 1, lag: 1 }, Joint { level: 0, lag: 2 }],
        };
        let m = Moments::of_series(&s, figures, 2);
        // Seven round trips: one within 10 to 20, two within 20 to 30, two above.
        for (k, n) in [(0, 1.0), (1, 2.0), (2, 2.0)] {
            assert!((m.mean[k] - n / 7.0).abs() < 1e-12, "{k}");
        }
        // Pairs one apart: 5-15, 15-25, 35-35, 5-25; both above 20: one.
        assert!((m.mean[3] - 0.25).abs() < 1e-12);
        // Two apart: 5-25, 25-35; both above 10: one.
        assert!((m.mean[4] - 0.5).abs() < 1e-12);
    }
}
