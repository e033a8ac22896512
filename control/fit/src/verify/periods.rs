// SPDX-License-Identifier: Apache-2.0
//! Figures of a series by the periods of a reconfiguration.
//!
//! The boundaries of a period are at a phase of the series. Half periods and pairs of probes that
//! lack probes are left out. Errors are those of a jackknife over blocks of periods (M. H.
//! Quenouille, 1949).

use super::figures::{BLOCKS, Ratio};
use crate::baseline::Series;
use crate::delay::body::{Pairs, autocorrelation_of};
use crate::numeric::jackknife;
use crate::seconds;

/// Blocks of the jackknife.
const JACKKNIFE: usize = 50;
/// A probe is near a boundary if it was sent within this share of the period from it.
pub const NEAR: f64 = 0.05;
/// Phases that are tried for a link without a known one, per period.
const PHASES: usize = 240;
/// The distance of pairs within a period, as a share of it.
pub const APART: f64 = 0.25;

/// Sums over the answered probes of half a period.
#[derive(Clone, Copy, Default)]
struct Half {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Half {
    fn add(&mut self, x: f64) {
        self.n += 1.0;
        self.sum += x;
        self.squares += x * x;
    }

    fn mean(&self) -> Option<f64> {
        (self.n > 0.0).then(|| self.sum / self.n)
    }
}

/// A period.
#[derive(Clone, Copy, Default)]
struct Slot {
    halves: [Half; 2],
    /// Whether it follows the one before without a break.
    follows: bool,
    /// Probes near its boundaries, and the lost ones of them.
    near: [f64; 2],
    /// Lost probes.
    lost: f64,
    /// Pairs of probes within the period, and with the next one.
    pairs: [Pairs; 2],
}

/// Sums of some periods.
#[derive(Clone, Copy, Default)]
struct Sums {
    n: f64,
    sum: f64,
    squares: f64,
    /// Σ (sum of a period)² / (its probes).
    of_periods: f64,
    /// Squared changes at the boundaries, and half a period from them.
    changes: [f64; 2],
}

impl Sums {
    fn add(&mut self, o: &Self, sign: f64) {
        self.n += sign * o.n;
        self.sum += sign * o.sum;
        self.squares += sign * o.squares;
        self.of_periods += sign * o.of_periods;
        for (own, other) in self.changes.iter_mut().zip(o.changes) {
            *own += sign * other;
        }
    }

    /// The share of the variance that lies between periods.
    fn between(&self) -> f64 {
        let all = self.sum * self.sum / self.n.max(1.0);
        let total = self.squares - all;
        if total > 0.0 { ((self.of_periods - all) / total).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The share of the squared changes that lies at the boundaries; one half without boundaries.
    fn at_boundaries(&self) -> f64 {
        let all = self.changes[0] + self.changes[1];
        if all > 0.0 { self.changes[0] / all } else { 0.5 }
    }
}

/// The periods of one or several series.
pub struct Periods {
    period: f64,
    interval: f64,
    /// Round trips are cut to this, in ns.
    cut: u64,
    /// Subtracted from round trips, in ns, so that no digits are lost.
    middle: u64,
    slots: Vec<Slot>,
}

/// Figures of periods, each with its standard error.
pub struct PeriodFigures {
    pub between: (f64, f64),
    pub at_boundaries: (f64, f64),
    /// Autocorrelation of probes of the same period, and of those one period apart.
    pub autocorrelation: [(f64, f64); 2],
    /// Share of the probes near boundaries that are lost.
    pub lost: Ratio,
    /// Share of the lost probes that are near boundaries.
    pub near: Ratio,
}

impl Periods {
    /// Of periods and probing intervals in seconds.
    pub const fn new(period: f64, interval: f64, cut: u64, middle: u64) -> Self {
        Self { period, interval, cut, middle, slots: Vec::new() }
    }

    /// Adds a series with a boundary at `phase`, in seconds.
    pub fn add(&mut self, series: &Series, phase: f64) {
        let value = |rtt: u64| (rtt.min(self.cut) as f64 - self.middle as f64) / 1e9;
        let lags = [APART * self.period, self.period]
            .map(|lag| ((lag / self.interval).round() as usize).max(1));
        for segment in series.segments() {
            let mut last: Option<f64> = None;
            for (i, probe) in series.slice(segment.clone()).enumerate() {
                let at = (seconds(probe.sent_ns) - phase) / self.period;
                let number = at.floor();
                if last != Some(number) {
                    let follows = last.is_some_and(|last| number == last + 1.0);
                    self.slots.push(Slot { follows, ..Slot::default() });
                    last = Some(number);
                }
                let Some(slot) = self.slots.last_mut() else { continue };
                let within = at - number;
                let is_near = !(NEAR..1.0 - NEAR).contains(&within);
                slot.near[0] += f64::from(u8::from(is_near));
                let Some(rtt) = probe.rtt_ns else {
                    slot.lost += 1.0;
                    slot.near[1] += f64::from(u8::from(is_near));
                    continue;
                };
                let x = value(rtt);
                slot.halves[usize::from(within >= 0.5)].add(x);
                for (k, lag) in lags.into_iter().enumerate() {
                    let place = segment.start + i + lag;
                    let Some(other) = series.get(place).filter(|_| place < segment.end) else {
                        continue;
                    };
                    let at = ((seconds(other.sent_ns) - phase) / self.period).floor();
                    if let Some(rtt) = other.rtt_ns
                        && at == number + k as f64
                    {
                        slot.pairs[k].add(&Pairs::of(x, value(rtt)), 1.0);
                    }
                }
            }
        }
    }

    /// The figures of all periods.
    pub fn figures(&self) -> PeriodFigures {
        let n = self.slots.len().max(1);
        let blocks = JACKKNIFE.min(n);
        let mut sums = vec![Sums::default(); blocks];
        let mut pairs = [vec![Pairs::default(); blocks], vec![Pairs::default(); blocks]];
        let ratio = || Ratio { counts: vec![0.0; BLOCKS], of: vec![0.0; BLOCKS], share: true };
        let (mut lost, mut near) = (ratio(), ratio());
        for (i, slot) in self.slots.iter().enumerate() {
            let of = &mut sums[i * blocks / n];
            let [first, second] = slot.halves;
            let (count, sum) = (first.n + second.n, first.sum + second.sum);
            of.n += count;
            of.sum += sum;
            of.squares += first.squares + second.squares;
            if count > 0.0 {
                of.of_periods += sum * sum / count;
            }
            let before = i.checked_sub(1).filter(|_| slot.follows).map(|b| self.slots[b].halves[1]);
            // Changes are compared in pairs: with the half before, and with the half after.
            if let (Some(before), Some(here), Some(after)) =
                (before.and_then(|b| b.mean()), first.mean(), second.mean())
            {
                of.changes[0] += (here - before).powi(2);
                of.changes[1] += (after - here).powi(2);
            }
            for (all, own) in pairs.iter_mut().zip(&slot.pairs) {
                all[i * blocks / n].add(own, 1.0);
            }
            let block = i * BLOCKS / n;
            lost.of[block] += slot.near[0];
            lost.counts[block] += slot.near[1];
            near.of[block] += slot.lost;
            near.counts[block] += slot.near[1];
        }
        PeriodFigures {
            between: leaving_out(&sums, Sums::between),
            at_boundaries: leaving_out(&sums, Sums::at_boundaries),
            autocorrelation: pairs.map(|blocks| autocorrelation_of(&blocks)),
            lost,
            near,
        }
    }
}

/// A figure of all blocks, and its error by leaving out each of them.
fn leaving_out(blocks: &[Sums], figure: impl Fn(&Sums) -> f64) -> (f64, f64) {
    let mut all = Sums::default();
    blocks.iter().for_each(|b| all.add(b, 1.0));
    jackknife(blocks.len(), |left_out| {
        let mut rest = all;
        if let Some(block) = left_out {
            rest.add(&blocks[block], -1.0);
        }
        figure(&rest)
    })
}

/// The phase of a series at which the largest share of its variance lies between periods.
pub fn phase(series: &Series, period: f64, cut: u64, middle: u64) -> f64 {
    let phases = (0..PHASES).map(|i| period * i as f64 / PHASES as f64);
    let of = |phase: f64| {
        let mut sums = std::collections::BTreeMap::<i64, Half>::new();
        for probe in series.iter() {
            if let Some(rtt) = probe.rtt_ns {
                let number = ((seconds(probe.sent_ns) - phase) / period).floor() as i64;
                let x = (rtt.min(cut) as f64 - middle as f64) / 1e9;
                sums.entry(number).or_default().add(x);
            }
        }
        sums.values().map(|half| half.sum * half.sum / half.n).sum::<f64>()
    };
    phases
        .map(|phase| (of(phase), phase))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(0.0, |(_, p)| p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Probe;

    /// An hour of probes at 10 Hz, with boundaries at 3 s and every 10 s: a level for each period, a
    /// square wave of ± 1 ms within it, and a loss at each third boundary.
    fn periods(level_ms: impl Fn(u64) -> f64, phase: f64) -> PeriodFigures {
        let mut series = Series::default();
        for i in 0..36_000_u64 {
            let number = (i + 70) / 100;
            let rtt_ms = 50.0 + level_ms(number) + if i % 2 == 0 { 1.0 } else { -1.0 };
            let lost = (i + 70) % 300 == 1 || i % 1_000 == 500;
            let rtt_ns = (!lost).then_some((rtt_ms * 1e6) as u64);
            series.push(Probe { sent_ns: i * 100_000_000, rtt_ns });
        }
        assert!((super::phase(&series, 10.0, u64::MAX, 50_000_000) - 3.0).abs() < 0.05);
        let mut periods = Periods::new(10.0, 0.1, u64::MAX, 50_000_000);
        periods.add(&series, phase);
        periods.figures()
    }

    #[test]
    fn shares_are_those_of_the_levels() {
        // Two levels in turn, 4 ms apart: a variance of 4 ms² beside one of 1 ms².
        let figures = periods(|number| if number % 2 == 0 { 2.0 } else { -2.0 }, 3.0);
        assert!((figures.between.0 - 0.8).abs() < 0.005, "{:?}", figures.between);
        assert!(figures.between.1 < 0.01 && figures.at_boundaries.0 > 0.99);
        // Pairs an even number of probes apart: the same in a period, opposite in the next one.
        let [within, next] = figures.autocorrelation;
        assert!((next.0 + 0.6).abs() < 0.01, "{next:?}");
        // 25 probes apart, where the fast variation is opposite.
        assert!((within.0 - 0.6).abs() < 0.01, "{within:?}");
        // At the wrong phase the level changes in the middle of the periods.
        let wrong = periods(|number| if number % 2 == 0 { 2.0 } else { -2.0 }, 8.0);
        assert!(wrong.at_boundaries.0 < 0.01 && wrong.between.0 < 0.01, "{:?}", wrong.between);
    }

    #[test]
    fn losses_near_boundaries_are_counted() {
        // At this phase no probe is exactly at the limit of `NEAR`.
        let figures = periods(|number| (number % 7) as f64, 2.95);
        // 120 of 156 losses; a tenth of the probes.
        assert_eq!(figures.near.count(), 120.0);
        assert!((figures.near.value() - 120.0 / 156.0).abs() < 1e-9);
        assert!((figures.lost.value() - 120.0 / 3_600.0).abs() < 1e-9);
    }
}
