// SPDX-License-Identifier: Apache-2.0
//! The body of the round trips: a slot's uniform wait, or held values.

use super::law::{Body, Law};
use crate::baseline::{Series, Spacing};
use crate::interval::Interval;
use crate::numeric::{Z_95, jackknife};

/// Blocks of the jackknife.
const BLOCKS: usize = 50;
/// The error of the model itself: excursions, and falls that are caught up with, take a
/// little from the autocorrelation.
const OWN_ERROR: f64 = 0.003;
/// Autocorrelations below this count as zero.
const LEAST: f64 = 0.05;

/// A value of a table of quantiles at equally spaced probabilities, linear between.
#[must_use]
pub fn quantile(table: &[f64], p: f64) -> f64 {
    let Some(last) = table.len().checked_sub(1) else { return 0.0 };
    let at = p.clamp(0.0, 1.0) * last as f64;
    let i = (at as usize).min(last);
    let next = table[(i + 1).min(last)];
    table[i] + (next - table[i]) * (at - i as f64)
}

/// Whether the quantiles of a body lie on a straight line, as those of a slot do: the
/// period and the intercept of the line through those from 15 to 80 %, if none is off by
/// more than 3 % of the period, or than `error`.
#[must_use]
pub fn slot(quantiles: impl Fn(f64) -> f64, error: f64) -> Option<(f64, f64)> {
    const POINTS: u32 = 27;
    let at = |i: u32| 0.15 + 0.65 * f64::from(i) / f64::from(POINTS - 1);
    let n = f64::from(POINTS);
    let xs: Vec<f64> = (0..POINTS).map(at).collect();
    let ys: Vec<f64> = xs.iter().map(|p| quantiles(*p)).collect();
    let (mx, my) = (xs.iter().sum::<f64>() / n, ys.iter().sum::<f64>() / n);
    let sxy: f64 = xs.iter().zip(&ys).map(|(x, y)| (x - mx) * (y - my)).sum();
    let sxx: f64 = xs.iter().map(|x| (x - mx) * (x - mx)).sum();
    let period = sxy / sxx;
    let base = my - period * mx;
    let off = xs.iter().zip(&ys).map(|(x, y)| (base + period * x - y).abs()).fold(0.0, f64::max);
    // A slot ends: beyond its end there is little.
    let ends = quantiles(0.95) < base + 1.15 * period;
    (period > 0.0 && off < (0.03 * period).max(error) && ends).then_some((base, period))
}

/// The values that a process of held values must draw so that what leaves it, first in
/// first out, has the quantiles `seen`: a fall is caught up with as fast as time passes,
/// which raises the delay. With F the law of the draws, G the law of the observed delays and τ the
/// mean time of holding,
///
/// G(x) = F(x) exp(−(1/τ) ∫ₓ (1 − F)),
///
/// solved from the top down. Where nothing is seen, a fall takes longer than that if the
/// gap is wider than τ; then the nearest law there is.
#[must_use]
pub fn drawn(seen: &[f64], correlation: f64) -> Vec<f64> {
    let (Some(last), Some(top)) = (seen.len().checked_sub(1), seen.last().copied()) else {
        return Vec::new();
    };
    if last == 0 || top <= seen[0] {
        return seen.to_vec();
    }
    const PARTS: usize = 8;
    // (x, F(x)) from the top down.
    let mut curve = vec![(top, 1.0)];
    let mut m = 0.0_f64;
    for i in (0..last).rev() {
        let h = (seen[i + 1] - seen[i]) / PARTS as f64;
        for part in (0..PARTS).rev() {
            let g = (i as f64 + part as f64 / PARTS as f64) / last as f64;
            let (_, above) = curve[curve.len() - 1];
            m += (1.0 - above) * h;
            let f = g * (m / correlation).exp();
            curve.push((seen[i] + part as f64 * h, f.min(above)));
        }
    }
    curve.reverse();
    // The probability that remains at the bottom is an atom there.
    let mut j = 0;
    let draws = (0..=last).map(|i| {
        let p = i as f64 / last as f64;
        while j + 1 < curve.len() && curve[j].1 < p {
            j += 1;
        }
        let ((x1, f1), (x0, f0)) = (curve[j], curve[j.saturating_sub(1)]);
        if f1 > f0 { x0 + (x1 - x0) * ((p - f0) / (f1 - f0)).clamp(0.0, 1.0) } else { x1 }
    });
    draws.collect()
}

/// The quantiles of a body from the observed ones, to which excursions have added: the share of
/// the body up to x is the observed share, corrected for the time spent in excursions.
#[must_use]
pub fn without(seen: &[f64], law: &Law) -> Vec<f64> {
    let Some(last) = seen.len().checked_sub(1).filter(|n| *n > 0) else { return seen.to_vec() };
    let quiet = |x: f64| law.excursions.iter().map(|e| 1.0 - e.share(x)).product::<f64>();
    // The body's distribution at the values that were seen.
    let mut body: Vec<f64> = (0..=last).map(|i| i as f64 / last as f64).collect();
    for _ in 0..3 {
        let mut next = body.clone();
        for i in 1..=last {
            let mean: f64 = (1..=i)
                .map(|j| (body[j] - body[j - 1]) * quiet(seen[i] - seen[j].midpoint(seen[j - 1])))
                .sum();
            if mean > 0.0 {
                next[i] = i as f64 / last as f64 * body[i] / mean;
            }
        }
        let whole = next[last];
        let mut most: f64 = 0.0;
        for (b, n) in body.iter_mut().zip(next) {
            most = most.max(n / whole);
            *b = most.min(1.0);
        }
    }
    let mut j = 0;
    let table = (0..=last).map(|i| {
        let p = i as f64 / last as f64;
        while j < last && body[j] < p {
            j += 1;
        }
        if j == 0 {
            return seen[0];
        }
        let (b, a) = (body[j], body[j - 1]);
        let part = if b > a { ((p - a) / (b - a)).clamp(0.0, 1.0) } else { 1.0 };
        seen[j - 1] + (seen[j] - seen[j - 1]) * part
    });
    table.collect()
}

/// How long values are held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// Mean time; `None` if the probes are too far apart to estimate it.
    pub value: Option<Interval>,
    /// The autocorrelation of one probe with the next.
    pub next: f64,
}

/// Sums over pairs of round trips.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pairs {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Pairs {
    pub(crate) fn of(x: f64, y: f64) -> Self {
        Self { n: 1.0, x, y, xx: x * x, yy: y * y, xy: x * y }
    }

    pub(crate) fn add(&mut self, o: &Self, sign: f64) {
        self.n += sign * o.n;
        self.x += sign * o.x;
        self.y += sign * o.y;
        self.xx += sign * o.xx;
        self.yy += sign * o.yy;
        self.xy += sign * o.xy;
    }

    fn autocorrelation(&self) -> f64 {
        let cov = self.xy - self.x * self.y / self.n;
        let var = (self.xx - self.x * self.x / self.n) * (self.yy - self.y * self.y / self.n);
        // A variance within the rounding error counts as zero.
        if var > 1e-20 * self.xx * self.yy && var > 0.0 { cov / var.sqrt() } else { 0.0 }
    }
}

/// How long values of a body are held, from the autocorrelation of the round trips up to
/// `threshold` at a lag at which it is about one half; the error is that of a jackknife
/// over blocks (M. H. Quenouille, 1949).
#[must_use]
pub fn correlation(
    series: &Series,
    interval: f64,
    spacing: Spacing,
    base: f64,
    threshold: f64,
) -> Correlation {
    let at = |lag: usize| autocorrelation(series, base, threshold, lag);
    let (next, error) = at(1);
    if next < LEAST || next < 3.0 * error {
        return Correlation { value: None, next };
    }
    let (mut lag, mut rho, mut error) = (1, next, error);
    while rho > 0.7 && lag < series.len() / 20 {
        let (r, e) = at(2 * lag);
        if r < 0.2 {
            break;
        }
        (lag, rho, error) = (2 * lag, r, e);
    }
    let time = |rho: f64| {
        let rho = rho.clamp(1e-6, 1.0 - 1e-9);
        match spacing {
            Spacing::Constant | Spacing::Irregular => -(lag as f64) * interval / rho.ln(),
            // The mean of e^(−t/τ) over a sum of exponential gaps.
            Spacing::Poisson => interval / (rho.powf(-1.0 / lag as f64) - 1.0),
        }
    };
    let half = Z_95 * error.hypot(OWN_ERROR);
    let value = Interval { value: time(rho), low: time(rho - half), high: time(rho + half) };
    Correlation { value: Some(value), next }
}

fn autocorrelation(series: &Series, base: f64, threshold: f64, lag: usize) -> (f64, f64) {
    let top = (threshold * 1e9) as u64;
    let value = |rtt: Option<u64>| rtt.filter(|r| *r <= top).map(|r| r as f64 / 1e9 - base);
    autocorrelation_of(&pairs(series, lag, BLOCKS, value))
}

/// Sums over pairs of probes, `lag` apart, in blocks.
pub(crate) fn pairs(
    series: &Series,
    lag: usize,
    blocks: usize,
    value: impl Fn(Option<u64>) -> Option<f64>,
) -> Vec<Pairs> {
    let mut sums = vec![Pairs::default(); blocks];
    for segment in series.segments() {
        let start = segment.start;
        let later = series.slice((start + lag).min(segment.end)..segment.end);
        for (i, (a, b)) in series.slice(segment).zip(later).enumerate() {
            if let (Some(x), Some(y)) = (value(a.rtt_ns), value(b.rtt_ns)) {
                let block = (start + i) * blocks / series.len();
                sums[block].add(&Pairs::of(x, y), 1.0);
            }
        }
    }
    sums
}

/// The autocorrelation and its error by a jackknife over blocks.
pub(crate) fn autocorrelation_of(blocks: &[Pairs]) -> (f64, f64) {
    let mut all = Pairs::default();
    blocks.iter().for_each(|b| all.add(b, 1.0));
    jackknife(blocks.len(), |left_out| {
        let mut rest = all;
        if let Some(block) = left_out {
            rest.add(&blocks[block], -1.0);
        }
        rest.autocorrelation()
    })
}

impl Body {
    /// A body that does not vary.
    #[must_use]
    pub fn constant() -> Self {
        Self::Held { quantiles: vec![0.0], correlation: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_detected_by_its_straight_line() {
        let (base, period) = slot(|p| 0.575 + 0.043 * p, 0.0).unwrap();
        assert!((base - 0.575).abs() < 1e-9 && (period - 0.043).abs() < 1e-9);
        // Neither an exponential nor a normal body is one.
        assert!(slot(|p| 0.01 - 0.005 * (1.0 - p).ln(), 0.0).is_none());
        assert!(slot(|p| 0.01 + 0.001 * (p / (1.0 - p)).ln(), 0.0).is_none());
    }

    #[test]
    fn draws_held_long_equal_observed_delays() {
        let seen: Vec<f64> = (0..=100).map(|i| f64::from(i) * 1e-4).collect();
        let drawn = drawn(&seen, 1000.0);
        assert!(seen.iter().zip(&drawn).all(|(s, d)| (s - d).abs() < 1e-6));
    }

    #[test]
    fn draws_held_shortly_are_below_observed_delays() {
        let seen: Vec<f64> = (0..=100).map(|i| f64::from(i) * 1e-4).collect();
        let values = drawn(&seen, 0.02);
        assert!(values[50] < seen[50] - 1e-4, "{}", values[50]);
        // Back again: G(x) = F(x) exp(−∫(1−F)/τ).
        let (x, steps) = (0.006, 100_000);
        let cdf = |x: f64| values.iter().filter(|v| **v <= x).count() as f64 / 101.0;
        let h = (0.01 - x) / f64::from(steps);
        let m: f64 = (0..steps).map(|i| (1.0 - cdf(x + f64::from(i) * h)) * h).sum();
        let g = cdf(x) * (-m / 0.02).exp();
        assert!((g - 0.6).abs() < 0.02, "{g}");
    }
}
