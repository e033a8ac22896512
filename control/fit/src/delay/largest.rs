// SPDX-License-Identifier: Apache-2.0
//! The law of the largest round trip of a span of probes.
//!
//! Episodes come at random. An episode of amount a and duration d raises the delay above
//! x < a for d + (a − x), so regular probes δ apart see it above x with the probability
//! min(1, (d + a − x) / δ). From this follows the rate of episodes that a probe sees above
//! a level. The largest round trip of a span is below the level if no such episode begins
//! in it (extreme values of a Poisson process of peaks: R. L. Smith, 1989).
//!
//! Times are in seconds.

use nalgebra::{DMatrix, DVector};
use statrs::distribution::{ContinuousCDF, Normal};

use super::body::quantile;
use super::law::{Body, Excursions, Law, RULE};
use crate::interval::Interval;
use crate::mmpp::Modulation;

/// Waits of the body that a level is averaged over.
const WAITS: u32 = 8;
/// Laws drawn from the errors of the estimates.
const DRAWS: u32 = 256;
/// Halvings of a search for a quantile: to a millionth of the range.
const HALVINGS: usize = 40;

/// Probes at equal intervals over a span of time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probing {
    pub interval: f64,
    pub span: f64,
}

impl Probing {
    pub const DAY: f64 = 86_400.0;

    /// The same probes over another span.
    #[must_use]
    pub const fn over(self, span: f64) -> Self {
        Self { span, ..self }
    }
}

impl Excursions {
    /// The probability that probes, `interval` apart, see an episode above `x`.
    fn seen(&self, x: f64, interval: f64) -> f64 {
        let d = self.duration;
        let whole = d / interval * -(-interval / d).exp_m1();
        let falling = |c: f64| -((c - interval) / d).exp_m1() / interval;
        let part = RULE.integrate(0.0, interval, |c| self.survival(x + c) * falling(c));
        self.survival(x) * whole + part
    }
}

impl Law {
    /// The share of the episodes of a class that have a probe above `y`.
    fn peaks(&self, class: &Excursions, y: f64, interval: f64) -> f64 {
        // A long episode has several probes, and the longest of their waits counts.
        let probes = |held: f64| (class.duration / held.max(interval)).max(1.0);
        let sum: f64 = (0..WAITS)
            .map(|i| {
                let u = (f64::from(i) + 0.5) / f64::from(WAITS);
                let wait = match &self.body {
                    Body::Slot { period, .. } => period * u.powf(1.0 / probes(0.0)),
                    Body::Held { quantiles, correlation } => {
                        quantile(quantiles, u.powf(1.0 / probes(*correlation)))
                    }
                };
                class.seen(y - self.base - wait, interval)
            })
            .sum();
        sum / f64::from(WAITS)
    }

    /// The mean number of episodes of a class in a span that have a probe above `y`.
    #[must_use]
    pub fn episodes_seen(&self, class: &Excursions, y: f64, probing: Probing) -> f64 {
        self.peaks(class, y, probing.interval) * class.rate() * probing.span
    }

    /// The probability that the largest round trip of a span is at most `y`.
    #[must_use]
    pub fn largest_below(&self, y: f64, probing: Probing) -> f64 {
        if y < self.base + self.body.top() {
            return 0.0;
        }
        let none = |e: &Excursions| {
            let share = self.peaks(e, y, probing.interval);
            match e.regime {
                None => -share * e.rate() * probing.span,
                Some(r) => {
                    let rates = e.rates().map(|rate| share * rate);
                    let (interval, duration) = (r.interval, r.duration);
                    Modulation { rates, interval, duration }.none(probing.span)
                }
            }
        };
        self.excursions.iter().map(none).sum::<f64>().exp()
    }

    /// The round trip that the largest of a span is below with probability `p`.
    #[must_use]
    pub fn largest(&self, p: f64, probing: Probing) -> f64 {
        largest(&[(1.0, self.clone())], p, probing)
    }
}

/// A quantile of the largest round trip of a span over laws with these weights.
fn largest(laws: &[(f64, Law)], p: f64, probing: Probing) -> f64 {
    let far = |law: &Law| {
        law.base + law.body.top() + law.excursions.iter().map(|e| e.max).fold(0.0, f64::max)
    };
    let all: f64 = laws.iter().map(|(weight, _)| weight).sum();
    let below = |y: f64| {
        let of = |(weight, law): &(f64, Law)| weight * law.largest_below(y, probing);
        laws.iter().map(of).sum::<f64>() / all
    };
    let (mut low, mut high) = (0.0_f64, laws.iter().map(|(_, l)| far(l)).fold(0.0, f64::max));
    for _ in 0..HALVINGS {
        let middle = low.midpoint(high);
        if below(middle) < p { low = middle } else { high = middle }
    }
    high
}

/// The median of the largest round trip of a span, and the interval that holds it with a
/// probability of 95 %, over laws with these weights.
#[must_use]
pub fn predicted(laws: &[(f64, Law)], probing: Probing) -> Interval {
    let [low, value, high] = [0.025, 0.5, 0.975].map(|p| largest(laws, p, probing));
    Interval { value, low, high }
}

/// Parameters drawn from their errors.
pub struct Draw {
    /// Distance from the estimate.
    pub off: DVector<f64>,
    /// Its square in units of the errors.
    pub distance: f64,
}

/// Draws from normal errors: evenly spread (the additive sequence of the generalised golden
/// ratio, M. Roberts, 2018), so that they are the same in every run.
#[must_use]
pub fn draws(covariance: &DMatrix<f64>) -> Vec<Draw> {
    let n = covariance.nrows();
    let symmetric = (covariance + covariance.transpose()) / 2.0;
    let ridge = DMatrix::from_diagonal_element(n, n, 1e-12);
    let Some(factor) = (symmetric + ridge).cholesky().map(|c| c.l()).filter(|_| n > 0) else {
        return vec![Draw { off: DVector::zeros(n), distance: 0.0 }];
    };
    // The root of x^(n+1) = x + 1.
    let golden = (0..64).fold(2.0_f64, |x, _| (1.0 + x).powf(1.0 / (n as f64 + 1.0)));
    let normal = Normal::standard();
    let draw = |k: u32| {
        let z = DVector::from_fn(n, |j, _| {
            let u = (0.5 + f64::from(k) * golden.powi(-(j as i32 + 1))).fract();
            normal.inverse_cdf(u.clamp(1e-6, 1.0 - 1e-6))
        });
        Draw { off: &factor * &z, distance: z.norm_squared() }
    };
    (1..=DRAWS).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(excursions: Vec<Excursions>) -> Law {
        let body = Body::Slot { period: 0.04, regular: true };
        Law { base: 0.575, body, excursions }
    }

    const RARE: Excursions = Excursions {
        interval: 60.0,
        duration: 0.5,
        location: 0.0,
        scale: 0.05,
        shape: 0.2,
        max: 5.0,
        regime: None,
    };
    const DAY: Probing = Probing { interval: 0.2, span: Probing::DAY };

    #[test]
    fn without_excursions_the_largest_is_the_end_of_the_body() {
        let end = law(Vec::new()).largest(0.5, DAY);
        assert!((end - 0.615).abs() < 1e-6, "{end}");
    }

    #[test]
    fn longer_spans_have_larger_maxima_up_to_the_cut() {
        let law = law(vec![RARE]);
        let of = |days: f64| law.largest(0.5, DAY.over(days * Probing::DAY));
        assert!(of(0.1) < of(1.0) && of(1.0) < of(10.0));
        assert!((of(1e9) - 5.615).abs() < 5e-3, "{}", of(1e9));
        let interval = predicted(&[(1.0, law)], DAY);
        assert!(interval.low < interval.value && interval.value < interval.high);
    }

    #[test]
    fn draws_have_the_stated_covariance() {
        let covariance = DMatrix::from_row_slice(2, 2, &[0.25, 0.1, 0.1, 0.16]);
        let all = draws(&covariance);
        let n = all.len() as f64;
        let mean = all.iter().fold(DVector::zeros(2), |sum, d| sum + &d.off) / n;
        assert!(mean.norm() < 0.02, "{mean}");
        let seen = all.iter().fold(DMatrix::zeros(2, 2), |sum, d| sum + &d.off * d.off.transpose());
        let seen = seen / n;
        assert!((seen - covariance).norm() < 0.03);
    }
}
