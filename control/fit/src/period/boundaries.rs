// SPDX-License-Identifier: Apache-2.0
//! The boundaries of a period that was found, located one by one.

use super::changes::Ranks;
use super::scan::Found;
use crate::interval::Interval;
use crate::numeric::Z_95;
use statrs::distribution::{Binomial, DiscreteCDF};

/// The squared changes at the boundaries are at least so many times those half a period from them,
/// and those of independent round trips.
const LARGER: f64 = 2.0;
/// A new level is there at once: the squared changes close to the boundaries are at least this share
/// of those over half a period. A smooth oscillation has less.
const ABRUPT: f64 = 0.5;
/// The time on either side of a boundary that counts as close: so many seconds and probes, but at
/// most this share of the period.
const CLOSE: f64 = 0.5;
const CLOSE_PROBES: f64 = 8.0;
const CLOSE_SHARE: f64 = 0.125;
/// Largest probability that as many changes are larger at the boundaries by chance.
const BY_CHANCE: f64 = 0.05;
/// Fewer located boundaries do not determine a line.
const LEAST: usize = 6;
/// So many boundaries are used, if there are.
const ENOUGH: usize = 12;
/// Iterations of the weights.
const ITERATIONS: usize = 30;
/// From the median absolute deviation to the standard deviation of a normal distribution.
const TO_DEVIATION: f64 = 1.4826;
/// Periods that divide this time, in seconds, are taken to be exact.
const MINUTE: f64 = 60.0;

/// Boundaries: their numbers, and the instants at which the level changes.
pub struct Boundaries {
    located: Vec<(f64, f64)>,
    interval: f64,
}

impl Boundaries {
    /// Locates the boundaries of a period, at first in the time that was scanned and then in twice
    /// as much, until the end of the log. None if the level does not change there.
    pub fn locate(ranks: &Ranks, span: (f64, f64), interval: f64, found: &Found) -> Option<Self> {
        let mut until = found.until.min(span.1);
        let scanned = (span.0, until);
        let (mut period, mut boundary) =
            fundamental(ranks, scanned, interval, (found.period, found.boundary));
        loop {
            let changes = changes(ranks, (span.0, until), interval, period, boundary);
            if !reconfigured(&changes, period / 2.0 / interval) {
                return None;
            }
            // Small changes cannot be located: the larger half is used, if it is enough.
            let mut sizes: Vec<f64> = changes.iter().map(|c| c.here).collect();
            sizes.sort_by(|a, b| b.total_cmp(a));
            let used = (sizes.len() / 2).max(ENOUGH).min(sizes.len());
            let least = sizes.get(used.checked_sub(1)?).copied()?;
            let large = changes.iter().filter(|c| c.here >= least);
            let located = large.filter_map(|c| {
                let k = c.number as f64;
                Some((k, split(ranks, boundary + k * period, period)?))
            });
            let boundaries = Self { located: located.collect(), interval };
            let line = boundaries.fitted()?;
            (period, boundary) = (line.period, line.boundary);
            if until >= span.1 {
                return Some(boundaries);
            }
            until = (span.0 + 2.0 * (until - span.0)).min(span.1);
        }
    }

    /// The period and its first boundary at or after zero.
    pub fn line(&self) -> Option<(Interval, Interval)> {
        let line = self.fitted()?;
        let exact = (MINUTE / line.period).round().max(1.0);
        let near = MINUTE / exact;
        let half = Z_95 * line.period_error;
        // A division of the minute, if its neighbours are excluded.
        let known = near - MINUTE / (exact + 1.0) > 4.0 * half;
        let (low, high) = (line.period - half, line.period + half);
        let (value, at, error) = if known && low <= near && near <= high {
            let middle = line.boundary + line.middle * line.period;
            (near, middle - line.middle * near, line.middle_error)
        } else {
            let error = line.middle_error.hypot(line.middle * line.period_error);
            (line.period, line.boundary, error)
        };
        let period = Interval { value, low, high };
        let first = at.rem_euclid(value);
        let half = Z_95 * error;
        Some((period, Interval { value: first, low: first - half, high: first + half }))
    }

    /// A line through the boundaries, by least squares with weights that limit the influence of
    /// those that are far from it.
    fn fitted(&self) -> Option<Line> {
        let mut weights = vec![1.0; self.located.len()];
        let mut line = Line::through(&self.located, &weights, self.interval)?;
        for _ in 0..ITERATIONS {
            let mut off: Vec<f64> = self.located.iter().map(|at| line.off(at).abs()).collect();
            for (weight, off) in weights.iter_mut().zip(&off) {
                *weight = off.min(line.far) / off.max(f64::MIN_POSITIVE);
            }
            off.sort_by(f64::total_cmp);
            let median = off[off.len() / 2];
            line = Line::through(&self.located, &weights, self.interval)?;
            line.far = (TO_DEVIATION * median).max(self.interval / 2.0);
        }
        Some(line)
    }
}

/// Numbers of the boundaries with half a period of log on either side.
fn numbers(span: (f64, f64), period: f64, boundary: f64) -> std::ops::RangeInclusive<i64> {
    let number = |t: f64| (t - boundary) / period;
    (number(span.0) + 0.5).ceil() as i64..=(number(span.1) - 0.5).floor() as i64
}

/// How much the level changes at a boundary, close to it, and half a period after it.
struct Change {
    number: i64,
    here: f64,
    close: f64,
    between: f64,
}

fn changes(
    ranks: &Ranks,
    span: (f64, f64),
    interval: f64,
    period: f64,
    boundary: f64,
) -> Vec<Change> {
    let close = CLOSE.max(CLOSE_PROBES * interval).min(CLOSE_SHARE * period);
    let all = numbers(span, period, boundary);
    all.filter_map(|number| {
        let half = period / 2.0;
        let size = |at: f64, half: f64| ranks.change(at, half, interval).map(f64::abs);
        let at = boundary + number as f64 * period;
        let here = size(at, half)?;
        // Too few probes to see it.
        let close = size(at, close).unwrap_or(here);
        Some(Change { number, here, close, between: size(at + half, half)? })
    })
    .collect()
}

/// Whether the level changes at boundaries, with so many probes in half a period.
fn reconfigured(changes: &[Change], probes: f64) -> bool {
    let n = changes.len() as f64;
    let larger = changes.iter().filter(|c| c.here > c.between).count() as u64;
    let chance = Binomial::new(0.5, changes.len() as u64)
        .map_or(1.0, |b| larger.checked_sub(1).map_or(1.0, |l| b.sf(l)));
    // The squared change of independent ranks. Their variance is one twelfth.
    let independent = 2.0 / 12.0 / probes;
    let squares = |of: fn(&Change) -> f64| changes.iter().map(|c| of(c).powi(2)).sum::<f64>();
    let here = squares(|c| c.here);
    here >= LARGER * n * independent
        && squares(|c| c.close) >= ABRUPT * here
        && change(changes.iter()) >= LARGER
        && chance < BY_CHANCE
}

/// The squared changes at boundaries over those between them.
fn change<'a>(changes: impl Iterator<Item = &'a Change>) -> f64 {
    let (here, between) = changes.fold((0.0, 0.0), |(here, between), c| {
        (here + c.here * c.here, between + c.between * c.between)
    });
    here / f64::max(between, f64::MIN_POSITIVE)
}

/// The period, in place of its half, third and so on, and its boundary: as long as the level changes
/// at one in two or three boundaries only, the period is two or three times as long.
fn fundamental(
    ranks: &Ranks,
    span: (f64, f64),
    interval: f64,
    (period, boundary): (f64, f64),
) -> (f64, f64) {
    let changes = changes(ranks, span, interval, period, boundary);
    let multiple = [2_i64, 3].into_iter().find_map(|times| {
        let is_strong = |class: &i64| {
            change(changes.iter().filter(|c| c.number.rem_euclid(times) == *class)) >= LARGER
        };
        match (0..times).filter(is_strong).collect::<Vec<i64>>()[..] {
            [class] => Some((times as f64 * period, boundary + class as f64 * period)),
            _ => None,
        }
    });
    let longer = multiple.filter(|(longer, _)| longer * LEAST as f64 <= span.1 - span.0);
    longer.map_or((period, boundary), |longer| fundamental(ranks, span, interval, longer))
}

/// The instant within a quarter of the period about a boundary that divides the half periods on
/// both sides best into two levels.
fn split(ranks: &Ranks, at: f64, period: f64) -> Option<f64> {
    let all = ranks.within(at - period / 2.0, at + period / 2.0);
    let near = ranks.within(at - period / 4.0, at + period / 4.0);
    let first = near.start.max(all.start + 1);
    let best = (first..near.end)
        .filter_map(|probe| {
            let (before, after) = (all.start..probe, probe..all.end);
            let change = ranks.mean(&after)? - ranks.mean(&before)?;
            let (l, r) = (before.len() as f64, after.len() as f64);
            Some((l * r / (l + r) * change * change, probe))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(ranks.sent(best.1 - 1).midpoint(ranks.sent(best.1)))
}

/// A line through numbers and instants of boundaries.
struct Line {
    period: f64,
    /// The instant of boundary zero.
    boundary: f64,
    /// The mean number.
    middle: f64,
    /// Standard errors of the period, and of the instant in the middle.
    period_error: f64,
    middle_error: f64,
    /// From this distance on, boundaries have no more influence.
    far: f64,
}

impl Line {
    /// The standard errors are those of an M-estimator (P. J. Huber, 1967), and not less than those
    /// of instants that are known to a probing interval.
    fn through(located: &[(f64, f64)], weights: &[f64], interval: f64) -> Option<Self> {
        if located.len() < LEAST {
            return None;
        }
        let sum = |f: &dyn Fn(&(f64, f64)) -> f64| {
            located.iter().zip(weights).map(|(at, w)| w * f(at)).sum::<f64>()
        };
        let n = sum(&|_| 1.0);
        let (middle, mean) = (sum(&|(k, _)| *k) / n, sum(&|(_, t)| *t) / n);
        let spread = sum(&|(k, _)| (k - middle).powi(2));
        let period = sum(&|(k, t)| (k - middle) * (t - mean)) / spread;
        if period.is_nan() || period <= 0.0 {
            return None;
        }
        let boundary = mean - period * middle;
        let mut line = Self {
            period,
            boundary,
            middle,
            period_error: 0.0,
            middle_error: 0.0,
            far: f64::INFINITY,
        };
        let freedom = located.len() as f64 / (located.len() as f64 - 2.0);
        let pulls = located.iter().zip(weights).map(|(at, w)| (at.0 - middle, w * line.off(at)));
        let (of_period, of_middle) =
            pulls.fold((0.0, 0.0), |(p, m), (k, pull)| (p + (k * pull).powi(2), m + pull.powi(2)));
        let least = interval * interval / 12.0;
        line.period_error = (of_period * freedom / spread.powi(2)).max(least / spread).sqrt();
        line.middle_error = (of_middle * freedom / n.powi(2)).max(least / n).sqrt();
        Some(line)
    }

    /// How far a boundary is off the line.
    fn off(&self, (number, at): &(f64, f64)) -> f64 {
        at - self.boundary - number * self.period
    }
}
