// SPDX-License-Identifier: Apache-2.0
//! The search: the least distance between simulated and observed figures, and its curvature.
//!
//! First a few points spread over the middle of the prior (J. H. Halton, 1960), with few flows each;
//! from the best of them a simplex (Nelder and Mead) with all flows. The errors are those of the
//! generalized method of moments (L. P. Hansen, 1982) from a Jacobian of central differences, with
//! steps that are large against the noise of the simulation.

use std::cell::RefCell;

use nalgebra::{DMatrix, DVector};

use super::parameter::{self, Parameter, Prior};
use super::simulate::{Bench, Sample};
use super::{CalibrateError, Options};
use crate::numeric::maximise_within;

/// First step of the simplex, and half of a step of the Jacobian, in spreads of the prior.
const STEP: f64 = 0.35;
const DIFFERENCE: f64 = 0.2;
/// Fewest flows of a point of the first stage.
const FEWEST: usize = 4;
/// Part of the prior that the first stage covers, in spreads.
const COVERED: f64 = 1.2;
const PRIMES: [u32; 13] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41];

/// The minimum.
pub struct Found {
    pub at: Vec<f64>,
    /// Covariance of the parameters, on the scale of the search.
    pub covariance: DMatrix<f64>,
    pub priors: Vec<Prior>,
    /// Simulated figures there.
    pub sample: Sample,
    pub figures: Vec<f64>,
    pub variances: Vec<f64>,
    /// The distance of the figures, and the number of parameters that they determined.
    pub distance: f64,
    pub determined: f64,
}

/// About how many flows a calibration plays, per observation.
pub fn simulations(options: &Options, parameters: usize) -> usize {
    let first = options.points * parameters * few(options);
    let evaluations = 2 * options.steps as usize * parameters + 3 * parameters + 2;
    // And about ten priors with two flows each.
    (first + (evaluations + 20) * options.flows) * 2
}

fn few(options: &Options) -> usize {
    (options.flows / 3).max(FEWEST.min(options.flows))
}

pub(super) fn halton(mut n: u32, base: u32) -> f64 {
    let (mut x, mut digit) = (0.0, 1.0);
    while n > 0 {
        digit /= f64::from(base);
        x += digit * f64::from(n % base);
        n /= base;
    }
    x
}

/// Searches the parameters.
///
/// # Errors
/// If a profile cannot be played.
pub fn search(
    bench: &Bench<'_>,
    parameters: &[(Parameter, f64)],
    options: &Options,
) -> Result<Found, CalibrateError> {
    let priors: Vec<Prior> = parameters.iter().map(|(p, start)| p.prior(*start)).collect();
    let observed: Vec<f64> = bench.figures().map(|(_, figure)| figure.value).collect();
    let sample = |at: &[f64], flows: usize| -> Result<Sample, CalibrateError> {
        let profile = parameter::apply(bench.profile, parameters, at)?;
        Ok(bench.simulate(&profile, flows, |setup| setup)?)
    };
    let surprise = |at: &[f64]| -> f64 {
        at.iter().zip(&priors).map(|(x, p)| ((x - p.mean) / p.spread).powi(2)).sum()
    };
    let distance = |figures: &[f64], variances: &[f64]| -> f64 {
        let parts = figures.iter().zip(&observed).zip(variances);
        parts.map(|((f, o), v)| (f - o).powi(2) / v.max(f64::MIN_POSITIVE)).sum()
    };

    // The first stage.
    let mut best: Option<(f64, Vec<f64>, Sample)> = None;
    for point in 0..(options.points * parameters.len()).max(1) {
        let place = |(i, p): (usize, &Prior)| {
            let u = if point == 0 { 0.5 } else { halton(point as u32, PRIMES[i % PRIMES.len()]) };
            p.mean + p.spread * COVERED * (2.0 * u - 1.0)
        };
        let at: Vec<f64> = priors.iter().enumerate().map(place).collect();
        let sample = sample(&at, few(options))?;
        let (figures, _) = sample.jackknife(bench.observations);
        let far = distance(&figures, &bench.variances(&sample)) + surprise(&at);
        if best.as_ref().is_none_or(|(least, ..)| far < *least) {
            best = Some((far, at, sample));
        }
    }
    let Some((_, start, pilot)) = best else { return Err(CalibrateError::NoFigure) };

    // The second one, with weights that stay.
    let variances = bench.variances(&pilot);
    let failed = RefCell::new(None);
    let near = |scaled: &[f64]| -> f64 {
        let at = unscaled(scaled, &priors);
        match sample(&at, options.flows) {
            Ok(sample) => {
                let (figures, _) = sample.jackknife(bench.observations);
                -distance(&figures, &variances) - surprise(&at)
            }
            Err(error) => {
                failed.borrow_mut().get_or_insert(error);
                f64::NEG_INFINITY
            }
        }
    };
    let scaled: Vec<f64> =
        start.iter().zip(&priors).map(|(x, p)| (x - p.mean) / p.spread).collect();
    let maximum = maximise_within(&near, &scaled, STEP, options.steps * parameters.len() as u64);
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    let at = unscaled(&maximum.at, &priors);
    let best = sample(&at, options.flows)?;
    let jacobian = differences(&at, &priors, |at| {
        Ok(sample(at, options.flows)?.jackknife(bench.observations).0)
    })?;
    let variances = bench.variances(&best);
    let (figures, _) = best.jackknife(bench.observations);
    let (covariance, determined) = errors(bench, &jacobian, &priors, &variances, &best);
    let distance = distance(&figures, &variances);
    Ok(Found { at, covariance, priors, sample: best, figures, variances, distance, determined })
}

fn unscaled(scaled: &[f64], priors: &[Prior]) -> Vec<f64> {
    scaled.iter().zip(priors).map(|(s, p)| p.mean + s * p.spread).collect()
}

/// Derivatives of the figures, a column for each parameter.
fn differences(
    at: &[f64],
    priors: &[Prior],
    figures: impl Fn(&[f64]) -> Result<Vec<f64>, CalibrateError>,
) -> Result<DMatrix<f64>, CalibrateError> {
    let mut columns = Vec::new();
    for (i, prior) in priors.iter().enumerate() {
        let step = DIFFERENCE * prior.spread;
        let moved = |by: f64| {
            let mut at = at.to_vec();
            at[i] += by;
            figures(&at)
        };
        let (high, low) = (moved(step)?, moved(-step)?);
        let slope = |(h, l): (&f64, &f64)| (h - l) / (2.0 * step);
        columns.push(DVector::from_iterator(high.len(), high.iter().zip(&low).map(slope)));
    }
    Ok(DMatrix::from_columns(&columns))
}

/// The sandwich of the generalized method of moments, with the priors as further moments. The
/// covariance of the figures has the correlations of the simulated flows. Returns also the number of
/// parameters that the figures determined: the trace of their part of the information.
fn errors(
    bench: &Bench<'_>,
    jacobian: &DMatrix<f64>,
    priors: &[Prior],
    variances: &[f64],
    sample: &Sample,
) -> (DMatrix<f64>, f64) {
    let weights = DMatrix::from_diagonal(&DVector::from_iterator(
        variances.len(),
        variances.iter().map(|v| 1.0 / v.max(f64::MIN_POSITIVE)),
    ));
    let prior = DMatrix::from_diagonal(&DVector::from_iterator(
        priors.len(),
        priors.iter().map(|p| p.spread.powi(-2)),
    ));
    let information = jacobian.transpose() * &weights * jacobian;
    let Some(inverse) = (&information + &prior).try_inverse() else {
        let wide = DVector::from_iterator(priors.len(), priors.iter().map(|p| p.spread.powi(2)));
        return (DMatrix::from_diagonal(&wide), 0.0);
    };
    let omega = correlated(bench, sample, variances);
    let meat = jacobian.transpose() * &weights * omega * &weights * jacobian + prior;
    let determined = (&inverse * &information).trace();
    (&inverse * meat * &inverse, determined)
}

/// Variances with the correlations of figures of the same flows.
fn correlated(bench: &Bench<'_>, sample: &Sample, variances: &[f64]) -> DMatrix<f64> {
    let (_, without) = sample.jackknife(bench.observations);
    let n = variances.len();
    let mean = |i: usize| without.iter().map(|w| w[i]).sum::<f64>() / without.len().max(1) as f64;
    let means: Vec<f64> = (0..n).map(mean).collect();
    let product = |i: usize, j: usize| -> f64 {
        without.iter().map(|w| (w[i] - means[i]) * (w[j] - means[j])).sum()
    };
    DMatrix::from_fn(n, n, |i, j| {
        let scale = (product(i, i) * product(j, j)).sqrt();
        let correlation = if i == j {
            1.0
        } else if scale > 0.0 {
            product(i, j) / scale
        } else {
            0.0
        };
        correlation * (variances[i] * variances[j]).sqrt()
    })
}
