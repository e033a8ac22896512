// SPDX-License-Identifier: Apache-2.0
//! From the law that was found to the estimates: intervals, the regime of each class, the cut
//! of extra delays, and the largest round trip that a span may have.

use super::estimate::{Delays, ExcursionEstimate, LONGEST_EXTRA};
use super::largest::{Probing, predicted};
use super::law::{Body, Excursions, Law};
use super::moments::Moments;
use super::search::{AT_BOUND, Fitted, SELDOM, Shape, shape_of};
use crate::goodness::Goodness;
use crate::interval::Interval;
use crate::mmpp::BusyTimes;
use crate::numeric::Z_95;
use statrs::distribution::{ContinuousCDF, Normal};

/// The probability that a baseline exceeds the cut of its extra delays.
const SELDOM_SEEN: f64 = 0.025;
/// Spans that differ by less than this share are the same.
const SAME_SPAN: f64 = 0.02;
/// Fractional parts of multiples of these, the square roots of 2, 3 and 5, are even.
const GENERATORS: [f64; 3] = [0.414_213_562_373_095, 0.732_050_807_568_877, 0.236_067_977_499_79];
/// Largest standard error of a logarithm that is drawn with.
const VAGUE: f64 = 1.0;

/// The probes of a baseline and its largest round trip.
#[derive(Clone, Copy)]
pub(super) struct Observed {
    pub(super) probing: Probing,
    /// The largest round trip in seconds.
    pub(super) largest: f64,
    /// Whether it saw round trips beyond the body.
    pub(super) beyond: bool,
}

impl Observed {
    /// The largest extra delay that the baseline can tell of: its span exceeds that with a
    /// probability of 2.5 %.
    fn cut(&self, law: &Law) -> f64 {
        let seldom = law.largest(1.0 - SELDOM_SEEN, self.probing).max(self.largest);
        (seldom - law.base - law.body.top()).clamp(law.body.top(), LONGEST_EXTRA)
    }

    /// Predicted largest round trips of a day and of as long a span.
    fn predicted(&self, laws: &[(f64, Law)]) -> Vec<(Probing, Interval)> {
        let mut spans = vec![Probing::DAY, self.probing.span];
        spans.dedup_by(|a, b| (*a / *b - 1.0).abs() < SAME_SPAN);
        let of = |span| self.probing.over(span);
        spans.into_iter().map(|span| (of(span), predicted(laws, of(span)))).collect()
    }
}

/// What was found of a baseline.
pub(super) struct Found<'a> {
    pub(super) base: Interval,
    pub(super) shape: &'a Shape,
    pub(super) best: Option<&'a Fitted>,
    pub(super) moments: &'a Moments,
    pub(super) lags: &'a dyn Fn(usize) -> Vec<f64>,
    /// Of each class, if the baseline has time in it.
    pub(super) regimes: Vec<Option<BusyTimes>>,
    pub(super) correlation: Option<Interval>,
    pub(super) observed: Observed,
}

/// The estimates; `unidentified` has the parameters that the baseline does not determine.
pub(super) fn assemble(found: Found<'_>, mut unidentified: Vec<String>) -> Delays {
    let Found { base, shape, best, moments, lags, regimes, correlation, observed } = found;
    let Some(best) = best else {
        let law = shape.law(&shape.point(&[]));
        let slot = match law.body {
            Body::Slot { period, .. } => {
                Some(Interval { value: period, low: 0.0, high: f64::INFINITY })
            }
            Body::Held { .. } => None,
        };
        let (excursions, largest, goodness) = (Vec::new(), Vec::new(), None);
        return Delays {
            law,
            base,
            slot,
            correlation,
            excursions,
            largest,
            goodness,
            unidentified,
        };
    };
    let mut law = best.shape.law(best.at.as_slice());
    // A prediction for the link needs the classes of excursions that the baseline saw.
    let told = !observed.beyond || !law.excursions.is_empty();
    let drawn = best.laws(moments, lags).into_iter().enumerate();
    let laws: Vec<(f64, Law)> =
        drawn.map(|(k, (weight, law))| (weight, in_regimes(law, &regimes, Some(k)))).collect();
    let largest = if told { observed.predicted(&laws) } else { Vec::new() };
    law = in_regimes(law, &regimes, None);
    let max = observed.cut(&law);
    law.excursions.iter_mut().for_each(|e| e.max = max);
    let parameter = |i: usize| {
        let (value, half) = (best.at[i], Z_95 * best.error(i));
        Interval { value, low: value - half, high: value + half }
    };
    let (shape, first) = (&best.shape, best.shape.first());
    let base = if shape.base_free {
        parameter(0).map(|b| shape.base + b * shape.body.top())
    } else {
        base
    };
    let slot = shape.slot.then(|| parameter(first - 1).map(f64::exp));
    let mut excursions: Vec<(ExcursionEstimate, Excursions)> = law
        .excursions
        .iter()
        .enumerate()
        .map(|(c, e)| {
            let i = first + shape.per_class() * c;
            let regime = regimes.get(c).copied().flatten();
            let mean = if best.at[i] < AT_BOUND {
                constant(SELDOM * e.duration)
            } else {
                parameter(i).map(|t| SELDOM * e.duration + t.exp())
            };
            let estimate = ExcursionEstimate {
                interval: regime.map_or(mean, |r| r.clear_interval(mean, e.interval)),
                regime,
                scale: parameter(i + 1).map(f64::exp),
                shape: parameter(i + 2).map(shape_of),
                duration: match (shape.durations, shape.rare()) {
                    (None, _) => parameter(i + 3).map(f64::exp),
                    (Some(_), Some(rare)) if c + 1 == shape.classes => {
                        parameter(rare).map(f64::exp)
                    }
                    _ => constant(e.duration),
                },
            };
            (estimate, *e)
        })
        .collect();
    for (c, (_, e)) in excursions.iter().enumerate() {
        if best.at[first + shape.per_class() * c] < AT_BOUND {
            unidentified.push(format!(
                "delay excursions: those of scale {:.1} ms are so frequent that they belong to the \
                 body; their interval is the least that an excursion may have, {SELDOM} durations",
                e.scale * 1e3
            ));
        }
    }
    excursions.sort_by(|(_, a), (_, b)| a.interval.total_cmp(&b.interval));
    law.excursions = excursions.iter().map(|(_, e)| *e).collect();
    let excursions: Vec<ExcursionEstimate> = excursions.into_iter().map(|(e, _)| e).collect();
    if !excursions.is_empty() {
        unidentified.push(format!(
            "delay excursions: extra delays are cut at {:.0} ms; a span as long as the baseline has \
             one beyond that with a probability of 2.5 %, so it tells nothing of them",
            max * 1e3
        ));
    }
    let prior = usize::from(shape.rare().is_some());
    let figures = (moments.figures.len() + moments.maxima.len() + prior) as f64;
    let goodness = Goodness::chi_squared(
        "round trips: bands, and pairs above levels",
        best.distance,
        figures - best.at.len() as f64,
    );
    Delays { law, base, slot, correlation, excursions, largest, goodness, unidentified }
}

const fn constant(value: f64) -> Interval {
    Interval { value, low: value, high: value }
}

/// The law with its episodes in their regimes; `draw` is the number of a law that is drawn
/// from the errors, in which the regimes vary, too.
fn in_regimes(mut law: Law, regimes: &[Option<BusyTimes>], draw: Option<usize>) -> Law {
    for (e, found) in law.excursions.iter_mut().zip(regimes) {
        let Some(r) = found else { continue };
        *e = e.among(r.interval.value, r.duration.value, r.factor.value);
        let (Some(k), Some(regime)) = (draw, &mut e.regime) else { continue };
        let vary = |estimate: Interval, generator: f64| {
            let error = (estimate.high / estimate.low).ln() / (2.0 * Z_95);
            let u = (0.5 + k as f64 * generator).fract().clamp(1e-6, 1.0 - 1e-6);
            (Normal::standard().inverse_cdf(u) * error.min(VAGUE)).exp()
        };
        regime.interval *= vary(r.interval, GENERATORS[0]);
        regime.duration *= vary(r.duration, GENERATORS[1]);
        regime.factor = (regime.factor * vary(r.factor, GENERATORS[2])).max(1.0);
    }
    law
}
