// SPDX-License-Identifier: Apache-2.0
//! Estimates the law that fits the figures of a log best.
//!
//! Levels are chosen from the log, its figures counted, and the law searched for that
//! has the same ([`super::search`]).

use profile::{DELAY_SLOT_NS, EXCURSION_MAX_NS};
use statrs::distribution::{ContinuousCDF, Gamma};

use super::assemble::{Found, Observed, assemble};
use super::body;
use super::largest::Probing;
use super::law::{Body, Law};
use super::moments::{Figures, Joint, Moments};
use super::regime;
use super::search::{Fitted, Shape, fit};
use crate::baseline::{Baseline, Spacing};
use crate::goodness::Goodness;
use crate::interval::Interval;
use crate::mmpp::BusyTimes;
use crate::seconds;
use crate::work;

/// Fewer round trips tell nothing of a distribution.
pub const LEAST_SAMPLES: usize = 100;
/// A level must be exceeded by so many probes.
const LEAST_ABOVE: f64 = 40.0;
/// A figure with a larger relative error is not used.
const LEAST_KNOWN: f64 = 0.3;
/// Each level is exceeded by this share of those that exceed the one below.
const RATIO: f64 = 0.68;
/// Quantiles in the table of a body.
const TABLE: usize = 257;
/// The longest period of slots that a profile can say, and the longest extra delay.
const LONGEST_SLOT: f64 = seconds(*DELAY_SLOT_NS.end());
pub(super) const LONGEST_EXTRA: f64 = seconds(*EXCURSION_MAX_NS.end());
/// The least round trip may be off the line of a slot's waits by this part of the period.
const OFF_LINE: f64 = 0.15;
/// Steps of the waits for a slot that are larger than this part of its period are a beat.
const BEAT: f64 = 0.005;
/// At most so many blocks.
const BLOCKS: usize = 1500;

/// A class of excursions with its intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExcursionEstimate {
    pub interval: Interval,
    pub duration: Interval,
    /// Scale of the extra delay.
    pub scale: Interval,
    pub shape: Interval,
    /// Periods with more episodes; rates are those of episodes that probes see above a level.
    pub regime: Option<BusyTimes>,
}

/// The round trips of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    pub law: Law,
    pub base: Interval,
    /// The period of its slots, if it has any.
    pub slot: Option<Interval>,
    /// The mean time for which a value of the body is held, if it is held.
    pub correlation: Option<Interval>,
    /// Its excursions, the most frequent first.
    pub excursions: Vec<ExcursionEstimate>,
    /// The largest round trip of a day, then of a span as long as the baseline.
    pub largest: Vec<(Probing, Interval)>,
    /// The law against the log.
    pub goodness: Option<Goodness>,
    /// Parameters that the log does not determine.
    pub unidentified: Vec<String>,
}

/// Why there is no law.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelayError {
    #[error(
        "{0} round trips are too few for a distribution of delays, which needs {LEAST_SAMPLES}: \
         probe for longer"
    )]
    TooFew(usize),
}

/// The law of a log's round trips.
///
/// # Errors
/// If the log has too few.
pub fn estimate(baseline: &Baseline) -> Result<Delays, DelayError> {
    // Pairs of probes are compared at equal distances.
    let paused = baseline
        .waiting
        .map(|_| baseline.series.paused_where_longer(baseline.interval_ns.saturating_mul(3) / 2));
    let series = paused.as_ref().unwrap_or(&baseline.series);
    let mut sorted: Vec<u64> = series.iter().filter_map(|p| p.rtt_ns).collect();
    if sorted.len() < LEAST_SAMPLES {
        return Err(DelayError::TooFew(sorted.len()));
    }
    sorted.sort_unstable();
    let n = sorted.len();
    let at = |p: f64| sorted[((n - 1) as f64 * p).round() as usize] as f64 / 1e9;
    let resolution = baseline.resolution_ns as f64 / 1e9;
    let mut base = at(0.0);
    let interval = baseline.interval_ns as f64 / 1e9;
    let mut unidentified = Vec::new();
    // If the sender's jitter is well below the slot, its probes keep their phase.
    let jitter = jitter(baseline);
    let slot = body::slot(at, 0.0)
        .filter(|(_, period)| *period > 8.0 * resolution && *period <= LONGEST_SLOT);
    if let Some((line, period)) = slot
        && (base - line).abs() > OFF_LINE * period
    {
        // One strange sample must not move all.
        unidentified.push(format!(
            "base: the least round trip, {:.3} ms, is off the line of the slot's waits; its begin, \
             {:.3} ms, is taken",
            base * 1e3,
            line * 1e3
        ));
        base = line;
    }
    let mut correlation = None;
    let (body, threshold) = match slot {
        Some((_, period)) => {
            let regular = baseline.spacing == Spacing::Constant && jitter < period / 6.0;
            (Body::Slot { period, regular }, base + period)
        }
        None => {
            let threshold = (at(0.5) + 3.0 * (at(0.95) - at(0.5)).max(resolution)).min(at(1.0));
            let quantiles = seen(&sorted, base, threshold);
            if quantiles.len() > 1 {
                let found = body::correlation(series, interval, baseline.spacing, base, threshold);
                let stated = found.value.is_none().then(|| {
                    unidentified.push(format!(
                        "delay body: probes {:.0} ms apart are uncorrelated (autocorrelation {:.3}); \
                         {:.0} ms is a stated prior for how long a value is held",
                        interval * 1e3,
                        found.next,
                        interval / 4.0 * 1e3
                    ));
                    interval / 4.0
                });
                correlation = found.value;
                let time = correlation.map_or(stated.unwrap_or(interval), |c| c.value);
                (Body::Held { quantiles, correlation: time }, threshold)
            } else {
                (Body::constant(), threshold)
            }
        }
    };
    let lags = |lag: usize| match baseline.spacing {
        Spacing::Constant | Spacing::Irregular => vec![lag as f64 * interval],
        Spacing::Poisson => gamma_nodes(lag, interval),
    };
    let observed = interval * series.len() as f64;
    let blocks = ((observed / 30.0) as usize).min(series.len() / 20).clamp(20, BLOCKS);
    let figures = figures(&sorted, slot.is_some(), threshold, resolution, blocks);
    let moments = Moments::of_series(series, figures, blocks).precise(LEAST_KNOWN);
    let shape = Shape {
        base,
        base_free: false,
        body,
        slot: slot.is_some(),
        classes: 0,
        durations: None,
        max: LONGEST_EXTRA,
    };
    let fit = |shape: &Shape| fit(shape, &moments, &lags, threshold, interval);
    let mut best = best_of(&shape, 2, fit);
    if let (Some(found), Body::Held { quantiles, correlation }) = (&best, &shape.body)
        && quantiles.len() > 1
        && found.shape.classes > 0
    {
        // Delays that excursions add within the body do not belong to the body.
        let law = found.shape.law(found.at.as_slice());
        let quantiles = body::without(quantiles, &law);
        let body = Body::Held { quantiles, correlation: *correlation };
        best = fit(&Shape { body, ..found.shape.clone() }).or(best);
    }
    let edge = lower_edge(&sorted);
    let base = Interval {
        value: base,
        low: base - edge - resolution / 2.0,
        high: base + resolution / 2.0,
    };
    let beyond = n - sorted.partition_point(|y| (*y as f64) <= threshold * 1e9);
    if beyond > 0 && best.as_ref().is_none_or(|b| b.shape.classes == 0) {
        unidentified.push(format!(
            "delay excursions: {beyond} round trips above {:.1} ms, the longest of {:.1} ms, are too \
             few or too strange to fit; the profile has none",
            threshold * 1e3,
            at(1.0) * 1e3
        ));
    }
    let probing = Probing { interval, span: observed };
    let beyond = beyond > 0;
    let observed = Observed { probing, largest: at(1.0), beyond };
    let regimes = best.as_ref().map(|best| {
        let law = best.shape.law(best.at.as_slice());
        regime::estimate_regimes(series, &law, probing)
    });
    let found = Found {
        base,
        shape: &shape,
        best: best.as_ref(),
        moments: &moments,
        lags: &lags,
        regimes: regimes.unwrap_or_default(),
        correlation,
        observed,
    };
    let mut delays = assemble(found, unidentified);
    // Where slots beat with the probes, waits come in steps, and no finer is the period known.
    if let Some(slot) = &mut delays.slot
        && edge > BEAT * slot.value
    {
        (slot.low, slot.high) = (slot.low - edge, slot.high + edge);
        delays.unidentified.push(format!(
            "slot: its period beats with the probes, whose waits come in steps of {:.2} ms; it is \
             not known better, nor is how the round trips hang together over longer lags",
            edge * 1e3
        ));
    }
    Ok(delays)
}

/// The best number of classes, up to `most`. One more is tried as long as what it could
/// take off the distance is more than what it costs.
pub(super) fn best_of(
    shape: &Shape,
    most: usize,
    fit: impl Fn(&Shape) -> Option<Fitted>,
) -> Option<Fitted> {
    let mut best: Option<Fitted> = None;
    for classes in 0..=most {
        work::done(classes as f64 / (most + 1) as f64);
        let Some(found) = fit(&Shape { classes, ..shape.clone() }) else { continue };
        let enough = found.compared < found.cost;
        if best.as_ref().is_none_or(|b| found.score() < b.score()) {
            best = Some(found);
        }
        if enough {
            break;
        }
    }
    best
}

/// Quantiles of the delays below the threshold, minus the base.
fn seen(sorted: &[u64], base: f64, threshold: f64) -> Vec<f64> {
    let within = sorted.partition_point(|y| (*y as f64) <= threshold * 1e9).max(1);
    let of = |i: usize| sorted[(within - 1) * i / (TABLE - 1)] as f64 / 1e9 - base;
    if of(TABLE - 1) <= 0.0 { vec![0.0] } else { (0..TABLE).map(of).collect() }
}

/// How far below the least round trip the base may be: three mean spacings of the least
/// ones, as if they were uniform, or the widest gap among them, if they are on a lattice.
fn lower_edge(sorted: &[u64]) -> f64 {
    let few = &sorted[..=(sorted.len() - 1).min(sorted.len() / 20 + 1)];
    let spacing = (few[few.len() - 1] - few[0]) as f64 / few.len() as f64;
    let widest = few.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0) as f64;
    (3.0 * spacing).max(widest) / 1e9
}

/// The standard deviation of the sender's spacing.
fn jitter(baseline: &Baseline) -> f64 {
    let mut sum = (0.0, 0.0);
    let mut last: Option<u64> = None;
    for p in baseline.series.iter().take(100_000) {
        if let Some(l) = last.replace(p.sent_ns)
            && p.sent_ns > l
        {
            let off = (p.sent_ns - l) as f64 - baseline.interval_ns as f64;
            if off.abs() < baseline.interval_ns as f64 / 2.0 {
                sum = (sum.0 + 1.0, sum.1 + off * off);
            }
        }
    }
    (sum.1 / f64::max(sum.0, 1.0)).sqrt() / 1e9
}

/// Equally likely spans of `lag` exponential intervals.
fn gamma_nodes(lag: usize, interval: f64) -> Vec<f64> {
    const NODES: u32 = 6;
    match Gamma::new(lag as f64, 1.0 / interval) {
        Ok(gamma) => {
            (0..NODES).map(|i| gamma.inverse_cdf((f64::from(i) + 0.5) / f64::from(NODES))).collect()
        }
        Err(_) => vec![lag as f64 * interval],
    }
}

/// Levels from the body up to the highest one that enough probes exceed, and pairs above the body.
fn figures(sorted: &[u64], slot: bool, threshold: f64, resolution: f64, blocks: usize) -> Figures {
    let n = sorted.len() as f64;
    let exceeded = |p: f64| sorted[((n - 1.0) * (1.0 - p)) as usize] as f64 / 1e9;
    // Between two steps of the log's resolution nothing depends on its rounding.
    let snap = |y: f64| ((y / resolution).floor() + 0.5) * resolution;
    let above = sorted.len() - sorted.partition_point(|y| (*y as f64) <= threshold * 1e9);
    let mut p = above as f64 / n;
    // Within a slot a few levels determine its length.
    let inside = [0.75, 0.5, 0.25, 0.1].into_iter().filter(|q| slot && *q > 1.2 * p);
    let mut levels: Vec<f64> = inside.map(|q| snap(exceeded(q))).collect();
    let most = (blocks / 12).clamp(6, 26);
    while p * n >= LEAST_ABOVE && levels.len() < most {
        let y = snap(exceeded(p));
        if levels.last().is_none_or(|last| y > last + resolution / 2.0) {
            levels.push(y);
        }
        p *= RATIO;
    }
    let above: Vec<usize> =
        (0..levels.len()).filter(|i| levels[*i] > threshold + resolution / 2.0).collect();
    let every = above.len().div_ceil((blocks / 60).clamp(1, 6)).max(1);
    let mut joints = Vec::new();
    for level in above.into_iter().step_by(every) {
        for lag in [1, 2, 4] {
            joints.push(Joint { level, lag });
        }
    }
    Figures { levels, joints }
}
