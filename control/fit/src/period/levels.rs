// SPDX-License-Identifier: Apache-2.0
//! The levels of the periods of a log, and the log without them.
//!
//! The emulator adds an independent level to a faster variation that has the same law in every
//! period. In a log both may depend on each other: in a period with a higher level there may be more
//! excursions. Several definitions of the level are tried: a low quantile of the period's round
//! trips, their median, and their mean. For each of them, levels and rest are taken as independent
//! of each other, and compared with the log: the share of the variance that lies between periods,
//! and the quantiles of all round trips. The best definition is used.

use std::collections::BTreeMap;

use super::Period;
use crate::baseline::{Baseline, Series};
use crate::delay::body::quantile;
use crate::seconds;

/// Fewer periods have no distribution of levels.
const LEAST_PERIODS: usize = 6;
/// A period needs this share of the answers of the middle one to have a level.
const ANSWERED: f64 = 0.5;
/// Most values in the table of levels.
const TABLE: usize = 129;
/// Values in the table of the rest.
const REST: usize = 257;
/// Most levels of a list.
const LISTED: usize = 1025;
/// Levels depend on those before if their autocorrelation is above this many standard errors.
const DEPENDENT: f64 = 2.58;
/// Probabilities of the quantiles that are compared.
const COMPARED: [f64; 6] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99];
/// A share of the variance counts as much as quantiles that differ by this share of half of their
/// distance from p5 to p95.
const ALIKE: f64 = 0.5;

/// The levels of the periods.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    /// Quantiles of the levels above the least one at equally spaced probabilities, in seconds.
    pub delays: Vec<f64>,
    /// The levels above the least one in their order, if each depends on the one before it.
    pub listed: Option<Vec<f64>>,
    /// Number of periods that have a level.
    pub periods: usize,
    /// The log with its levels replaced by the least one. No round trip is below the log's least,
    /// which the path does not undercut: in a period of a high level some would be.
    pub rest: Baseline,
}

/// What counts as the level of a period.
#[derive(Clone, Copy)]
enum Level {
    Quantile(f64),
    Mean,
}

impl Level {
    const ALL: [Self; 4] =
        [Self::Quantile(0.1), Self::Quantile(0.25), Self::Quantile(0.5), Self::Mean];

    /// Of ascending round trips.
    fn of(self, sorted: &[f64]) -> f64 {
        match self {
            Self::Quantile(p) => quantile(sorted, p),
            Self::Mean => mean(sorted.iter().copied()),
        }
    }
}

/// The levels of a log with a period; none if too few periods have enough answers.
#[must_use]
pub fn levels(baseline: &Baseline, period: &Period) -> Option<Levels> {
    let mut periods: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for probe in baseline.series.iter() {
        if let Some(rtt) = probe.rtt_ns {
            periods.entry(period.number(seconds(probe.sent_ns))).or_default().push(seconds(rtt));
        }
    }
    let mut answers: Vec<usize> = periods.values().map(Vec::len).collect();
    answers.sort_unstable();
    let least = ANSWERED * answers.get(answers.len() / 2).copied()? as f64;
    periods.retain(|_, rtts| rtts.len() as f64 >= least);
    if periods.len() < LEAST_PERIODS {
        return None;
    }
    periods.values_mut().for_each(|rtts| rtts.sort_by(f64::total_cmp));
    let all = sorted(periods.values().flatten().copied());
    let share = between(periods.values());
    let best = Level::ALL
        .into_iter()
        .map(|level| {
            let levels: Vec<f64> = periods.values().map(|rtts| level.of(rtts)).collect();
            (misfit(&periods, &levels, &all, share), levels)
        })
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let (_, found) = best?;
    let noise = noise(&periods);
    let levels = sorted(found.iter().copied());
    let middle = quantile(&levels, 0.5);
    // Levels of few probes scatter more than those of the link.
    let variance = variance(&levels);
    let shrunk = if variance > noise { (1.0 - noise / variance).sqrt() } else { 0.0 };
    let levels: Vec<f64> = levels.iter().map(|l| middle + (l - middle) * shrunk).collect();
    let lowest = levels[0];
    let size = levels.len().min(TABLE);
    let delays = (0..size).map(|i| quantile(&levels, i as f64 / (size - 1) as f64) - lowest);
    let known: BTreeMap<i64, f64> = periods.keys().copied().zip(found).collect();
    let mut rest = Series::default();
    let mut starts = baseline.series.segments().into_iter().map(|s| s.start).peekable();
    for (i, mut probe) in baseline.series.iter().enumerate() {
        if starts.next_if_eq(&i).is_some() {
            rest.interrupt();
        }
        let level = known.get(&period.number(seconds(probe.sent_ns))).copied().unwrap_or(middle);
        probe.rtt_ns = probe.rtt_ns.map(|rtt| {
            let without = seconds(rtt) - middle - (level - middle) * shrunk + lowest;
            (without.max(all[0]) * 1e9).round().max(1.0) as u64
        });
        rest.push(probe);
    }
    let rest = Baseline { series: rest, ..baseline.clone() };
    let listed = dependent(&known).then(|| {
        let ends = known.keys().next().zip(known.keys().next_back());
        let numbers = ends.map_or(0..=0, |(first, last)| *first..=*last);
        let mut last = middle;
        let in_turn = numbers.take(LISTED).map(|number| {
            // A period without a level keeps the one before.
            last = known.get(&number).copied().unwrap_or(last);
            middle + (last - middle) * shrunk - lowest
        });
        in_turn.collect()
    });
    Some(Levels { delays: delays.collect(), listed, periods: known.len(), rest })
}

/// Whether a level depends on the one before it, by the autocorrelation of their ranks.
fn dependent(levels: &BTreeMap<i64, f64>) -> bool {
    let ascending = sorted(levels.values().copied());
    let rank = |level: f64| {
        let (below, upto) =
            (ascending.partition_point(|l| *l < level), ascending.partition_point(|l| *l <= level));
        (below + upto) as f64 / 2.0 - ascending.len() as f64 / 2.0
    };
    let squares: f64 = levels.values().map(|l| rank(*l).powi(2)).sum();
    let pairs = levels
        .iter()
        .filter_map(|(number, level)| Some(rank(*level) * rank(*levels.get(&(number + 1))?)));
    let (n, products) = pairs.fold((0.0, 0.0), |(n, sum), product| (n + 1.0, sum + product));
    let autocorrelation = products / f64::max(n, 1.0) * levels.len() as f64 / squares;
    autocorrelation * f64::sqrt(n) > DEPENDENT
}

/// The share of the variance of values that lies between groups: the sum of the squared
/// differences of the groups' means from the mean of all, of all squared differences from it.
fn between<'a>(groups: impl Iterator<Item = &'a Vec<f64>> + Clone) -> f64 {
    let all = mean(groups.clone().flatten().copied());
    let squares: f64 = groups.clone().flatten().map(|x| (x - all).powi(2)).sum();
    let between: f64 =
        groups.map(|g| g.len() as f64 * (mean(g.iter().copied()) - all).powi(2)).sum();
    if squares > 0.0 { between / squares } else { 0.0 }
}

/// The variance of a period's mean by the number of its probes.
fn noise(periods: &BTreeMap<i64, Vec<f64>>) -> f64 {
    mean(periods.values().map(|rtts| variance(rtts) / rtts.len() as f64))
}

/// How far independent levels and rest are off the share of the variance between periods and off the
/// quantiles of all round trips.
fn misfit(periods: &BTreeMap<i64, Vec<f64>>, levels: &[f64], all: &[f64], share: f64) -> f64 {
    let least = all[0] - levels.iter().copied().fold(f64::INFINITY, f64::min);
    let rest = periods.values().zip(levels);
    let rest = rest.flat_map(|(rtts, l)| rtts.iter().map(move |r| (r - l).max(least)));
    let rest = sorted(rest);
    let (of_levels, of_rest) = (variance(levels), variance(&rest));
    let predicted = (of_levels / (of_levels + of_rest).max(f64::MIN_POSITIVE)).min(1.0);
    let middles = |values: &[f64], n: usize| -> Vec<f64> {
        (0..n).map(|i| quantile(values, (i as f64 + 0.5) / n as f64)).collect()
    };
    let levels = sorted(levels.iter().copied());
    let (levels, rest) = (middles(&levels, TABLE.min(levels.len())), middles(&rest, REST));
    let sums = sorted(levels.iter().flat_map(|l| rest.iter().map(move |r| l + r)));
    let spread = (quantile(all, 0.95) - quantile(all, 0.05)).max(f64::MIN_POSITIVE) / 2.0;
    let off = |p: f64| {
        let apart = (quantile(all, p) - quantile(all, 0.5)).abs().max(spread);
        (quantile(&sums, p) - quantile(all, p)).abs() / apart
    };
    COMPARED.into_iter().map(off).fold((predicted - share).abs() / ALIKE, f64::max)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), x| (sum + x, n + 1.0));
    sum / f64::max(n, 1.0)
}

fn variance(values: &[f64]) -> f64 {
    let middle = mean(values.iter().copied());
    mean(values.iter().map(|x| (x - middle).powi(2)))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Probe;
    use crate::interval::Interval;
    use crate::splitmix::unit;

    /// An hour of probes at 10 Hz with a level for each 10 s.
    fn levels_of(level_ms: impl Fn(usize) -> u64) -> Levels {
        let mut series = Series::default();
        for i in 0..36_000_u64 {
            let within = i * 37 % 100;
            let rtt_ns =
                Some(30_000_000 + level_ms(i as usize / 100) * 1_000_000 + within * 10_000);
            series.push(Probe { sent_ns: i * 100_000_000 + 1, rtt_ns });
        }
        let baseline = Baseline::regular("levels", 100_000_000, series);
        let exact = |value| Interval { value, low: value, high: value };
        let period = Period { length: exact(10.0), phase: exact(0.0), log10_p: -20.0 };
        levels(&baseline, &period).unwrap()
    }

    #[test]
    fn independent_levels_are_drawn_and_removed() {
        let found = levels_of(|number| (unit(number as u64) * 12.0) as u64);
        assert_eq!((found.periods, &found.listed), (360, &None));
        assert_eq!(found.delays[0], 0.0);
        let top = found.delays[found.delays.len() - 1];
        assert!((top - 0.011).abs() < 1e-4, "{top}");
        let rtts = found.rest.series.iter().flat_map(|p| p.rtt_ns);
        let (least, most) = rtts.fold((u64::MAX, 0), |(a, b), rtt| (a.min(rtt), b.max(rtt)));
        assert!(least > 29_900_000 && most < 31_100_000, "{least} {most}");
    }

    #[test]
    fn levels_that_depend_on_each_other_are_listed_in_their_order() {
        let found = levels_of(|number| (number as u64 / 10) % 12);
        let listed = found.listed.unwrap();
        assert_eq!(listed.len(), 360);
        for (number, level) in listed.into_iter().enumerate() {
            assert!((level * 1e3 - ((number / 10) % 12) as f64).abs() < 0.1, "{number} {level}");
        }
    }
}
