// SPDX-License-Identifier: Apache-2.0
//! The law of a study's published curve of round trips.
//!
//! A curve has no time in it: the duration of routine episodes is stated, not estimated, and
//! their frequency follows from it. That of the rarest ones has a wide prior, and follows from
//! the largest round trips of days, if they were published: the fewer episodes share the time
//! above a level, the more days have none. The errors are those of reading the curve off a
//! plot, and those of the study's own sample under the law.

use nalgebra::{DMatrix, DVector};

use super::assemble::{Found, Observed, assemble};
use super::body;
use super::estimate::{DelayError, Delays, LEAST_SAMPLES, LONGEST_EXTRA, best_of};
use super::largest::Probing;
use super::law::Body;
use super::moments::{Figures, Largest, Moments};
use super::search::{Durations, Rare, Shape, fit};
use crate::baseline::Summary;
use crate::interval::Interval;
use crate::seconds;

/// Points of a curve that are used.
const POINTS: usize = 60;
/// Points that are exceeded by fewer probes are left to chance.
const LEAST_ABOVE: f64 = 2.5;
/// Beyond the end of a slot, this part of it is not used.
const EDGE: f64 = 0.05;
/// A sample's errors before the law is known: as if each probe came with nine that are
/// like it.
const CLUSTER: f64 = 10.0;

/// The law of a curve; `routine` and `rare` are the stated durations of episodes in seconds.
///
/// # Errors
/// If the curve has too little behind it.
pub fn estimate(
    curve: &Summary,
    routine: Option<f64>,
    rare: Option<f64>,
) -> Result<Delays, DelayError> {
    let n = curve.delay_samples as f64;
    if curve.delay_samples < LEAST_SAMPLES as u64 {
        return Err(DelayError::TooFew(curve.delay_samples as usize));
    }
    let points = curve.points();
    let quantile = |q: f64| inverse(&points, 1.0 - q);
    let slot = body::slot(quantile, 2.0 * curve.reading_error_ns as f64 / 1e9);
    let interval = curve.interval_ns as f64 / 1e9;
    let least = quantile(0.0);
    let (base, shape_body, threshold) = match slot {
        Some((base, period)) => (base, Body::Slot { period, regular: false }, base + period),
        None => {
            let threshold = quantile(0.5) + 3.0 * (quantile(0.95) - quantile(0.5));
            let top = 1.0 - above(&points, threshold);
            let table = (0..=256).map(|i| (quantile(f64::from(i) / 256.0 * top) - least).max(0.0));
            let quantiles = table.collect();
            (least, Body::Held { quantiles, correlation: interval / 4.0 }, threshold)
        }
    };
    // The body determines base and slot. Its edge is softer than a slot's and is left to chance;
    // beyond it, every point determines the tail.
    let edge = threshold + EDGE * (threshold - base);
    let used: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|(y, p)| {
            *p * n >= LEAST_ABOVE
                && (*y > edge || (*y < threshold && slot.is_some() && (0.1..0.97).contains(p)))
        })
        .collect();
    let step = used.len().div_ceil(POINTS).max(1);
    let used: Vec<(f64, f64)> = used.into_iter().step_by(step).collect();
    let probing = Probing { interval, span: n * interval };
    let maxima = curve.maxima_ns.iter().map(|ns| Largest { round_trip: seconds(*ns), probing });
    let moments = Moments { maxima: maxima.collect(), ..moments(&used, curve, n, quantile(0.5)) };
    let far = points.last().map_or(base, |(y, _)| *y);
    let far = curve.maxima_ns.iter().map(|ns| seconds(*ns)).fold(far, f64::max);
    // Half of the interval, for want of anything better.
    let prior = interval / 2.0;
    let durations = Durations {
        routine: routine.unwrap_or(prior),
        rare: rare.map_or(Rare::Prior(prior), Rare::Stated),
    };
    let shape = Shape {
        base,
        base_free: slot.is_some(),
        body: shape_body,
        slot: slot.is_some(),
        classes: 0,
        durations: Some(durations),
        max: LONGEST_EXTRA,
    };
    let lags = |lag: usize| vec![lag as f64 * interval];
    let best = best_of(&shape, 3, |shape| fit(shape, &moments, &lags, threshold, interval));
    let reading = curve.reading_error_ns as f64 / 1e9;
    let base = Interval { value: base, low: base - 2.0 * reading, high: base + 2.0 * reading };
    let of_rare = match durations.rare {
        Rare::Stated(stated) => format!("{:.0} ms is stated for rare ones", stated * 1e3),
        Rare::Prior(prior) if curve.maxima_ns.is_empty() => {
            format!("{:.0} ms, within a factor of 50, is the prior for rare ones", prior * 1e3)
        }
        Rare::Prior(_) => "that of rare ones follows from the largest round trips of spans".into(),
    };
    let mut unidentified = vec![format!(
        "delay excursions: a curve does not tell how long episodes last; {:.0} ms is a stated prior \
         for routine ones, {of_rare}; their number follows from that",
        durations.routine * 1e3,
    )];
    if slot.is_none() {
        unidentified.push(format!(
            "delay body: a curve does not tell how long a value is held; {:.0} ms is a stated prior",
            interval / 4.0 * 1e3
        ));
    }
    let found = Found {
        base,
        shape: &shape,
        best: best.as_ref(),
        moments: &moments,
        lags: &lags,
        regimes: Vec::new(),
        correlation: None,
        observed: Observed { probing, largest: far, beyond: far > threshold },
    };
    Ok(assemble(found, unidentified))
}

/// The curve as bands, with the covariance of reading it and a first guess of the sample's.
fn moments(used: &[(f64, f64)], curve: &Summary, n: f64, median: f64) -> Moments {
    let m = used.len();
    let figures = Figures { levels: used.iter().map(|(y, _)| *y).collect(), joints: Vec::new() };
    // From shares above a level to shares in bands.
    let bands = DMatrix::from_fn(m, m, |i, j| f64::from(i == j) - f64::from(i + 1 == j));
    let above = DVector::from_iterator(m, used.iter().map(|(_, p)| *p));
    let error = |i: usize| {
        let (y, p) = used[i];
        let error = curve.reading_error(y, median);
        // An error of reading a round trip is one of the share above it, by the slope.
        let (a, b) = (used[i.saturating_sub(1)], used[(i + 1).min(m - 1)]);
        let slope = (a.1 - b.1) / (b.0 - a.0).max(1e-9);
        (slope * error).min(p / 2.0)
    };
    let read = DMatrix::from_diagonal(&DVector::from_iterator(m, (0..m).map(|i| error(i).powi(2))));
    let sample = DMatrix::from_fn(m, m, |i, j| {
        let (p, q) = (used[i].1, used[j].1);
        CLUSTER * (p.min(q) - p * q) / n
    });
    Moments {
        mean: &bands * above,
        covariance: &bands * sample * bands.transpose(),
        reading: &bands * read * bands.transpose(),
        figures,
        probes: n,
        blocks: None,
        maxima: Vec::new(),
    }
}

/// The round trip that is exceeded with probability `p`, linear between points.
pub(crate) fn inverse(points: &[(f64, f64)], p: f64) -> f64 {
    let i = points.partition_point(|(_, q)| *q > p);
    match (i.checked_sub(1).map(|j| points[j]), points.get(i).copied()) {
        (Some((y0, p0)), Some((y1, p1))) => y0 + (y1 - y0) * (p0 - p) / (p0 - p1),
        (None, Some((y, _))) | (Some((y, _)), None) => y,
        (None, None) => 0.0,
    }
}

/// The share above `y`, linear between points.
pub(crate) fn above(points: &[(f64, f64)], y: f64) -> f64 {
    let i = points.partition_point(|(x, _)| *x < y);
    match (i.checked_sub(1).map(|j| points[j]), points.get(i).copied()) {
        (Some((y0, p0)), Some((y1, p1))) => p0 + (p1 - p0) * (y - y0) / (y1 - y0),
        (Some(_), None) => 0.0,
        (None, _) => 1.0,
    }
}
