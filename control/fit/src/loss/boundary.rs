// SPDX-License-Identifier: Apache-2.0
//! Losses at the boundaries of a period: outages that are centred at a boundary.
//!
//! With probability *p* a boundary has an outage of exponential duration, with mean *d*. It covers
//! the *m* probes nearest to the boundary if half of it is longer than the distance of the *m*-th one
//! and not than that of the next. Where probes are δ apart and have the same places about each
//! boundary, these distances are v, δ − v, δ + v, 2δ − v …, with v to be estimated. Otherwise v is
//! uniform: *m* ≥ 1 probes are covered with probability p (d/δ) (1 − r)² rᵐ⁻¹, where r = exp(−δ/d).
//! Other losses near a boundary are as those near the instants half a period from the boundaries:
//! their counts are added. *p* and *d* are estimated by maximum likelihood; intervals are from the
//! profile likelihood.

use std::collections::BTreeMap;

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::baseline::Series;
use crate::interval::Interval;
use crate::numeric::{logistic, maximise, profile_interval};
use crate::period::Period;
use crate::seconds;

/// The longest distance from a boundary that counts as near, as a share of the period.
const LONGEST: f64 = 1.0 / 6.0;
/// Each distance that is tried is so many times the one before.
const STEP: f64 = 1.25;
/// Fewer runs of losses tell nothing.
const LEAST_RUNS: usize = 10;
/// Largest probability that as many runs are near boundaries by chance.
const BY_CHANCE: f64 = 1e-3;

/// Places of probes are the same if their mean resultant length is above this.
const SAME: f64 = 0.9;

/// The logit of a probability that counts as one.
const CERTAIN: f64 = 9.0;

/// Outages at boundaries.
#[derive(Clone, Debug, PartialEq)]
pub struct AtBoundaries {
    /// Of an outage at a boundary.
    pub probability: Interval,
    /// Mean duration of an outage, in seconds.
    pub duration: Interval,
    /// Losses within this time of a boundary are attributed to it, in seconds.
    pub near: f64,
    /// Boundaries that were seen, and those of them with a loss.
    pub boundaries: u64,
    pub with_losses: u64,
    /// The log without the probes near boundaries.
    pub elsewhere: Series,
}

/// Estimates the outages at the boundaries of a period; none if losses are not more frequent there.
/// The probing interval is in ns.
#[must_use]
pub fn at_boundaries(series: &Series, period: &Period, interval_ns: u64) -> Option<AtBoundaries> {
    let interval = seconds(interval_ns);
    let near = near(series, period, interval)?;
    let of = attributed(series, period, near, 0.0);
    let at = counts(series, &of);
    let between = counts(series, &attributed(series, period, near, 0.5));
    let with_losses = at.iter().skip(1).sum::<u64>();
    let others: f64 = between.iter().sum::<u64>() as f64;
    let other = |m: usize| between.get(m).map_or(0.0, |n| *n as f64) / others.max(1.0);
    let fixed = same_places(series, period, interval);
    let log_likelihood = |x: &[f64]| {
        let (p, d) = (logistic(x[0].min(CERTAIN)), x[1].exp());
        let v = x.get(2).map(|v| logistic(*v) * interval / 2.0);
        let of =
            |m: usize| (0..=m).map(|j| other(j) * covered(m - j, p, d, v, interval)).sum::<f64>();
        let each = at.iter().enumerate().filter(|(_, n)| **n > 0);
        each.map(|(m, n)| *n as f64 * of(m).max(f64::MIN_POSITIVE).ln()).sum::<f64>()
    };
    let boundaries: u64 = at.iter().sum();
    let lost: u64 = at.iter().enumerate().map(|(m, n)| m as u64 * n).sum();
    let mean = interval * lost as f64 / with_losses.max(1) as f64;
    let share = (with_losses as f64 / boundaries as f64).clamp(0.01, 0.99);
    let start = [(share / (1.0 - share)).ln(), mean.ln(), 0.0];
    let mut best = maximise(&log_likelihood, &start[..if fixed { 3 } else { 2 }], 0.5);
    best.at[0] = best.at[0].min(CERTAIN);
    let parameter = |i: usize| {
        let (low, high) = profile_interval(&log_likelihood, &best, i);
        Interval { value: best.at[i], low, high }
    };
    let probability = parameter(0).map(logistic);
    let duration = parameter(1).map(f64::exp);
    let elsewhere = without(series, &of);
    Some(AtBoundaries { probability, duration, near, boundaries, with_losses, elsewhere })
}

/// The probability that an outage covers `m` probes, with the distance of the nearest probe from the
/// boundary, if it is the same for all.
fn covered(m: usize, p: f64, d: f64, nearest: Option<f64>, interval: f64) -> f64 {
    let longer = |m: usize| match (nearest, m) {
        (_, 0) => 1.0,
        (Some(v), m) => {
            let distance = m.div_ceil(2) as f64 * interval;
            let distance = if m % 2 == 1 { distance - interval + v } else { distance - v };
            (-2.0 * distance / d).exp()
        }
        (None, m) => {
            let r = (-interval / d).exp();
            d / interval * (1.0 - r) * r.powi(m as i32 - 1)
        }
    };
    let some = p * (longer(m) - longer(m + 1));
    if m == 0 { 1.0 - p + some } else { some }
}

/// Whether the probes have nearly the same places about each boundary.
fn same_places(series: &Series, period: &Period, interval: f64) -> bool {
    let mut sum = (0.0, 0.0, 0.0);
    for probe in series.iter() {
        let off = period.from_boundary(seconds(probe.sent_ns));
        if off.abs() < interval {
            let (sin, cos) = (std::f64::consts::TAU * off / interval).sin_cos();
            sum = (sum.0 + 1.0, sum.1 + cos, sum.2 + sin);
        }
    }
    f64::hypot(sum.1, sum.2) > SAME * sum.0
}

/// The distance from a boundary within which lost probes are most concentrated: the maximum of the
/// likelihood of two densities, one near boundaries and one elsewhere. None if not more runs of
/// them begin there than by chance.
fn near(series: &Series, period: &Period, interval: f64) -> Option<f64> {
    let (mut lost, mut runs): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for segment in series.segments() {
        let mut before = true;
        for probe in series.slice(segment) {
            let answered = probe.rtt_ns.is_some();
            if !answered {
                let off = period.from_boundary(seconds(probe.sent_ns)).abs();
                lost.push(off);
                if before {
                    runs.push(off);
                }
            }
            before = answered;
        }
    }
    if runs.len() < LEAST_RUNS {
        return None;
    }
    let longest = LONGEST * period.length.value;
    let tried = std::iter::successors(Some(2.0 * interval), |d| Some(STEP * d))
        .take_while(|d| *d <= longest)
        .collect::<Vec<f64>>();
    let inside = |of: &[f64], d: f64| of.iter().filter(|off| **off <= d).count() as f64;
    let share = |d: f64| 2.0 * d / period.length.value;
    let n = lost.len() as f64;
    let log_likelihood = |d: f64| {
        let (k, s) = (inside(&lost, d), share(d));
        let of = |k: f64, s: f64| if k > 0.0 { k * (k / s).ln() } else { 0.0 };
        of(k, s) + of(n - k, 1.0 - s)
    };
    let best = tried
        .iter()
        .copied()
        .filter(|d| inside(&lost, *d) > share(*d) * n)
        .max_by(|a, b| log_likelihood(*a).total_cmp(&log_likelihood(*b)))?;
    let near = inside(&runs, best) as u64;
    let chance = Binomial::new(share(best), runs.len() as u64)
        .map_or(1.0, |b| near.checked_sub(1).map_or(1.0, |less| b.sf(less)));
    (chance * (tried.len() as f64) < BY_CHANCE).then_some(best)
}

/// The boundary that each probe is attributed to: those sent within `near` of a boundary, and the
/// whole run of lost probes that one of them belongs to. None of a run that is longer than a third
/// of the period: it is another outage. The boundaries are moved by `off` periods.
fn attributed(series: &Series, period: &Period, near: f64, off: f64) -> Vec<Option<i64>> {
    let mut of: Vec<Option<i64>> = series
        .iter()
        .map(|probe| {
            let at = (seconds(probe.sent_ns) - period.phase.value) / period.length.value - off;
            let is_near = (at - at.round()).abs() * period.length.value <= near;
            is_near.then_some(at.round() as i64)
        })
        .collect();
    for segment in series.segments() {
        let mut first = None;
        for i in segment.clone().chain([segment.end]) {
            let lost = i < segment.end && series.get(i).is_some_and(|p| p.rtt_ns.is_none());
            if lost {
                first.get_or_insert(i);
            } else if let Some(first) = first.take()
                && let Some(number) = of[first..i].iter().flatten().next().copied()
            {
                let time = |i: usize| series.get(i).map_or(0.0, |p| seconds(p.sent_ns));
                let long = time(i - 1) - time(first) > 2.0 * LONGEST * period.length.value;
                of[first..i].fill((!long).then_some(number));
            }
        }
    }
    of
}

/// How many boundaries have 0, 1, 2 … lost probes.
fn counts(series: &Series, attributed: &[Option<i64>]) -> Vec<u64> {
    let mut lost: BTreeMap<i64, usize> = BTreeMap::new();
    for (probe, number) in series.iter().zip(attributed) {
        if let Some(number) = number {
            *lost.entry(*number).or_default() += usize::from(probe.rtt_ns.is_none());
        }
    }
    let mut counts = vec![0; lost.values().max().map_or(1, |most| most + 1)];
    lost.values().for_each(|n| counts[*n] += 1);
    counts
}

/// The series without the attributed probes, with a break in place of each.
fn without(series: &Series, attributed: &[Option<i64>]) -> Series {
    let mut rest = Series::default();
    for segment in series.segments() {
        rest.interrupt();
        for (probe, number) in series.slice(segment.clone()).zip(&attributed[segment]) {
            match number {
                Some(_) => rest.interrupt(),
                None => rest.push(probe),
            }
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Probe;
    use crate::splitmix::unit;

    const INTERVAL_NS: u64 = 50_000_000;

    fn period() -> Period {
        let exact = |value| Interval { value, low: value, high: value };
        Period { length: exact(15.0), phase: exact(5.0), log10_p: -20.0 }
    }

    /// Probes of three hours, with outages of a mean of 300 ms at 40 % of the boundaries, and one
    /// probe in 500 lost elsewhere.
    fn series(seed: u64, at_boundaries: bool) -> Series {
        let mut series = Series::default();
        for i in 0..216_000 {
            let sent_ns = i * INTERVAL_NS;
            let number = ((seconds(sent_ns) - 5.0) / 15.0).round();
            let at = 5.0 + 15.0 * number;
            let draw = |k: u64| unit((number as i64).unsigned_abs() * 4 + k + seed * 1_000_003);
            let outage = at_boundaries && draw(0) < 0.4;
            let covered = outage && (seconds(sent_ns) - at).abs() < -0.15 * draw(1).ln();
            let lost = covered || unit(i * 7 + 3 + seed * 7_000_003) < 0.002;
            series.push(Probe { sent_ns, rtt_ns: (!lost).then_some(30_000_000) });
        }
        series
    }

    #[test]
    fn outages_at_boundaries_are_estimated_within_their_intervals() {
        let mut inside = [0; 2];
        for seed in 0..20 {
            let found = at_boundaries(&series(seed, true), &period(), INTERVAL_NS).unwrap();
            inside[0] += u32::from(found.probability.covers(0.4));
            inside[1] += u32::from(found.duration.covers(0.3));
            assert!(found.boundaries == 720 || found.boundaries == 721);
            let rest = found.elsewhere;
            let share = rest.lost() as f64 / rest.len() as f64;
            assert!((0.0015..0.003).contains(&share), "{share}");
        }
        assert!(inside[0] >= 17 && inside[1] >= 17, "{inside:?}");
    }

    #[test]
    fn losses_elsewhere_are_not_attributed_to_boundaries() {
        for seed in 0..20 {
            assert_eq!(at_boundaries(&series(seed, false), &period(), INTERVAL_NS), None, "{seed}");
        }
    }
}
