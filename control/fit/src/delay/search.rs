// SPDX-License-Identifier: Apache-2.0
//! Searches the law that fits measured figures best.
//!
//! The generalized method of moments (L. P. Hansen, 1982): the parameters minimise the
//! squared distance between the figures of log and law, in units of their errors, by
//! K. Levenberg's and D. Marquardt's search. At the minimum the distance is χ² if the law
//! holds, and its curvature gives the intervals. How many classes of excursions there are
//! is chosen by the criterion of D. W. K. Andrews and B. Lu (2001), BIC for moments.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

use super::largest::draws;
use super::law::{Body, Excursions, Law};
use super::moments::Moments;
use super::sampling;
use crate::work;

/// Errors of the law itself (slots that beat with the probes; that episodes never meet), as
/// a share of each band and of each pair; and the least error of a figure.
const FLOOR: f64 = 0.004;
const PAIR_FLOOR: f64 = 0.015;
const LEAST_ERROR: f64 = 1e-7;
/// An excursion is no excursion that is on most of the time: intervals are longer than so
/// many durations.
pub(super) const SELDOM: f64 = 5.0;
/// Largest logarithm of a drawn law's weight.
const MOST_WEIGHT: f64 = 3.0;
/// Largest standard error of the logarithm of a known parameter.
const VAGUE: f64 = 1.0;

/// Parameters as the search sees them: logarithms, the shape through tanh, and the base in
/// units of the body.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) base: f64,
    /// Whether the base is searched for.
    pub(super) base_free: bool,
    pub(super) body: Body,
    /// Whether the slot's period is searched for.
    pub(super) slot: bool,
    pub(super) classes: usize,
    /// Durations of routine and rare episodes, if the figures have no time in them.
    pub(super) durations: Option<Durations>,
    /// Extra delays are cut to this.
    pub(super) max: f64,
}

/// Durations that a curve does not determine: that of all classes but the rarest is stated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Durations {
    pub(super) routine: f64,
    pub(super) rare: Rare,
}

/// The duration of the rarest episodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rare {
    Stated(f64),
    /// Searched for; its logarithm has a weak normal prior about that of this.
    Prior(f64),
}

/// Standard deviation of the prior of the logarithm of a duration: a factor of 50 at 95 %.
pub(super) const DURATION_PRIOR: f64 = 2.0;

pub(super) fn shape_of(t: f64) -> f64 {
    0.05 + 0.85 * t.tanh()
}

fn of_shape(shape: f64) -> f64 {
    ((shape - 0.05) / 0.85).clamp(-0.99, 0.99).atanh()
}

/// A weak prior that keeps shapes off their bounds: the standard deviation of tanh⁻¹.
const SHAPE_PRIOR: f64 = 2.0;
/// An interval counts as the least one if the logarithm of its excess is below this.
pub(super) const AT_BOUND: f64 = -8.0;
/// The place of the shape among the parameters of a class.
const SHAPE: usize = 2;

impl Shape {
    /// Parameters before those of the classes.
    pub(super) fn first(&self) -> usize {
        usize::from(self.base_free) + usize::from(self.slot)
    }

    pub(super) fn per_class(&self) -> usize {
        if self.durations.is_some() { 3 } else { 4 }
    }

    /// The place of the logarithm of the rare duration, if that is searched for: the last.
    pub(super) fn rare(&self) -> Option<usize> {
        let searched = self.durations.is_some_and(|d| matches!(d.rare, Rare::Prior(_)));
        (searched && self.classes > 0).then(|| self.first() + self.per_class() * self.classes)
    }

    fn parameters(&self) -> usize {
        self.first() + self.per_class() * self.classes + usize::from(self.rare().is_some())
    }

    /// How far the searched rare duration is from its prior, in standard deviations.
    fn off_prior(&self, at: &[f64]) -> Option<f64> {
        match self.durations?.rare {
            Rare::Stated(_) => None,
            Rare::Prior(median) => Some((at[self.rare()?] - median.ln()) / DURATION_PRIOR),
        }
    }

    /// Logarithm of a class's interval beyond its least, of its scale, then its shape, then the logarithm of its
    /// duration. The rare duration of a curve is last of all.
    fn class(&self, at: &[f64], class: usize) -> Excursions {
        let c = &at[self.first() + self.per_class() * class..];
        // The last class has the last of the stated durations.
        let time = |logarithm: f64| logarithm.clamp(-20.0, 12.0).exp();
        let duration = match self.durations {
            Some(d) if class + 1 < self.classes => d.routine,
            Some(Durations { rare: Rare::Stated(stated), .. }) => stated,
            Some(_) => self.rare().map_or(0.0, |i| time(at[i])),
            None => time(c[3]),
        };
        Excursions {
            interval: SELDOM * duration + c[0].clamp(-20.0, 30.0).exp(),
            duration,
            location: 0.0,
            scale: c[1].clamp(-20.0, 6.0).exp(),
            shape: shape_of(c[2]),
            max: self.max,
            regime: None,
        }
    }

    pub(super) fn law(&self, at: &[f64]) -> Law {
        let body = match &self.body {
            Body::Slot { regular, .. } if self.slot => Body::Slot {
                period: at[usize::from(self.base_free)].clamp(-20.0, 3.0).exp(),
                regular: *regular,
            },
            body => body.clone(),
        };
        let base = if self.base_free { self.base + at[0] * self.body.top() } else { self.base };
        Law { base, body, excursions: (0..self.classes).map(|c| self.class(at, c)).collect() }
    }

    pub(super) fn point(&self, excursions: &[Excursions]) -> Vec<f64> {
        let base = self.base_free.then_some(0.0);
        let period = match self.body {
            Body::Slot { period, .. } if self.slot => Some(period.ln()),
            _ => None,
        };
        let classes = excursions.iter().flat_map(|e| {
            let duration = self.durations.is_none().then(|| e.duration.ln());
            let interval = (e.interval - SELDOM * e.duration).max(e.duration).ln();
            [interval, e.scale.ln(), of_shape(e.shape)].into_iter().chain(duration)
        });
        let rare = self.rare().zip(excursions.last()).map(|(_, e)| e.duration.ln());
        base.into_iter().chain(period).chain(classes).chain(rare).collect()
    }
}

/// The distance between log and law, whitened.
struct Problem<'a> {
    shape: &'a Shape,
    moments: &'a Moments,
    lags: &'a dyn Fn(usize) -> Vec<f64>,
    /// The inverse of the Cholesky factor of the covariance.
    whitener: &'a DMatrix<f64>,
    at: DVector<f64>,
}

impl Problem<'_> {
    fn distance(&self, at: &DVector<f64>) -> DVector<f64> {
        let law = self.shape.law(at.as_slice());
        let predicted = self.moments.figures.of_law(&law, self.lags);
        let off = self.whitener * (predicted - &self.moments.mean);
        let mut all: Vec<f64> = off.iter().copied().collect();
        all.extend(
            (0..self.shape.classes)
                .map(|c| at[self.shape.first() + self.shape.per_class() * c + SHAPE] / SHAPE_PRIOR),
        );
        all.extend(self.shape.off_prior(at.as_slice()));
        all.extend(self.moments.maxima.iter().map(|largest| largest.score(&law)));
        DVector::from_vec(all)
    }

    fn slope(&self) -> DMatrix<f64> {
        const STEP: f64 = 1e-4;
        let columns: Vec<DVector<f64>> = (0..self.at.len())
            .map(|i| {
                let side = |sign: f64| {
                    let mut at = self.at.clone();
                    at[i] += sign * STEP;
                    self.distance(&at)
                };
                (side(1.0) - side(-1.0)) / (2.0 * STEP)
            })
            .collect();
        DMatrix::from_columns(&columns)
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, at: &DVector<f64>) {
        self.at.copy_from(at);
    }

    fn params(&self) -> DVector<f64> {
        self.at.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        if work::is_cancelled() {
            return None;
        }
        Some(self.distance(&self.at)).filter(|r| r.iter().all(|x| x.is_finite()))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        Some(self.slope()).filter(|j| j.iter().all(|x| x.is_finite()))
    }
}

/// A law that was fitted.
pub(super) struct Fitted {
    pub(super) shape: Shape,
    pub(super) at: DVector<f64>,
    /// Whitens the errors of the figures.
    whitener: DMatrix<f64>,
    /// Covariance of `at`.
    pub(super) covariance: DMatrix<f64>,
    /// The squared distance, χ² if the law holds.
    pub(super) distance: f64,
    /// The squared distance in errors that are the same for all laws, to compare them by.
    pub(super) compared: f64,
    /// Least decrease of the distance that justifies one more class.
    pub(super) cost: f64,
}

impl Fitted {
    /// The standard error of a parameter.
    pub(super) fn error(&self, i: usize) -> f64 {
        self.covariance[(i, i)].max(0.0).sqrt()
    }

    /// Laws that the errors allow, with their weights: drawn from the normal errors, and
    /// weighted by how likely the figures make them beside that (importance sampling). A
    /// parameter at its bound stays there.
    pub(super) fn laws(
        &self,
        moments: &Moments,
        lags: &dyn Fn(usize) -> Vec<f64>,
    ) -> Vec<(f64, Law)> {
        let shape = &self.shape;
        let (first, per_class) = (shape.first(), shape.per_class());
        let free: Vec<usize> = (0..self.at.len())
            .filter(|i| {
                let place = i.checked_sub(first).map(|i| i % per_class);
                self.at[*i] >= AT_BOUND || place != Some(0)
            })
            .collect();
        let covariance = self.covariance.select_rows(&free).select_columns(&free);
        let whitener = &self.whitener;
        let draws = draws(&covariance).into_iter().map(|draw| {
            let mut at = self.at.clone();
            for (k, i) in free.iter().enumerate() {
                at[*i] += draw.off[k];
            }
            let law = shape.law(at.as_slice());
            let problem = Problem { shape, moments, lags, whitener, at };
            let worse = problem.distance(&problem.at).norm_squared() - self.distance;
            let weight = ((draw.distance - worse) / 2.0).min(MOST_WEIGHT).exp();
            (if weight.is_finite() { weight } else { 0.0 }, law)
        });
        draws.collect()
    }

    /// The criterion: less is better.
    pub(super) fn score(&self) -> f64 {
        self.compared + self.at.len() as f64 * self.cost / self.shape.per_class() as f64
    }
}

/// The best law of one shape: first in units of the log's errors, then in those of the law
/// that this gives.
pub(super) fn fit(
    shape: &Shape,
    moments: &Moments,
    lags: &dyn Fn(usize) -> Vec<f64>,
    threshold: f64,
    interval: f64,
) -> Option<Fitted> {
    if moments.figures.len() <= shape.parameters() {
        return None;
    }
    // The inverse of an estimated covariance is too large (J. Hartlap, 2007).
    let m = moments.figures.len() as f64;
    let (larger, n) = match moments.blocks {
        Some(blocks) => {
            (((blocks as f64 - m - 2.0) / (blocks as f64 - 1.0)).max(0.1), blocks as f64)
        }
        None => (1.0, m),
    };
    let own = whitener(moments, &moments.covariance)?;
    let starts = starts(shape, moments, threshold, interval);
    let found = starts
        .into_iter()
        .filter_map(|at| search(shape, moments, lags, &own, DVector::from_vec(at)));
    let (distance, mut at) = found.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let own_distance = distance * larger;
    let mut whitener = own;
    let mut distance = distance;
    if shape.classes > 0 {
        for _ in 0..2 {
            let law = shape.law(at.as_slice());
            let by_law = sampling::covariance(&law, &moments.figures, interval, moments.probes);
            whitener = self::whitener(moments, &by_law)?;
            (distance, at) = search(shape, moments, lags, &whitener, at)?;
        }
    }
    let problem = Problem { shape, moments, lags, whitener: &whitener, at: at.clone() };
    let covariance = if at.is_empty() {
        DMatrix::zeros(0, 0)
    } else {
        let slope = problem.slope();
        // A parameter at its bound has no slope, so its error has no limit.
        let ridge = DMatrix::from_diagonal_element(at.len(), at.len(), 1e-6);
        (slope.transpose() * slope + ridge).try_inverse()?
    };
    // A log's own errors are the same for all laws; a curve has no errors itself.
    let compared = if moments.blocks.is_some() { own_distance } else { distance };
    let cost = shape.per_class() as f64 * n.ln();
    let shape_too = shape.clone();
    let fitted = Fitted { shape: shape_too, at, whitener, covariance, distance, compared, cost };
    // A class without bounds from the log is rejected. How often rare episodes come follows
    // from their duration, which has a prior.
    let rare = shape.rare();
    let known = (0..fitted.at.len()).all(|i| {
        let place = i.checked_sub(shape.first()).map(|i| i % shape.per_class());
        let of_rare = rare.is_some_and(|r| i == r || i + shape.per_class() == r);
        fitted.error(i) < VAGUE
            || of_rare
            || place == Some(SHAPE)
            || (place == Some(0) && fitted.at[i] < AT_BOUND)
    });
    known.then_some(fitted)
}

/// The nearest law from one start: its squared distance, and where it is.
fn search(
    shape: &Shape,
    moments: &Moments,
    lags: &dyn Fn(usize) -> Vec<f64>,
    whitener: &DMatrix<f64>,
    start: DVector<f64>,
) -> Option<(f64, DVector<f64>)> {
    if work::is_cancelled() {
        return None;
    }
    let problem = Problem { shape, moments, lags, whitener, at: start };
    let at = if problem.at.is_empty() {
        problem.at.clone()
    } else {
        LevenbergMarquardt::new().with_patience(40).minimize(problem).0.at
    };
    let problem = Problem { shape, moments, lags, whitener, at: at.clone() };
    Some((problem.distance(&at).norm_squared(), at)).filter(|(d, _)| d.is_finite())
}

/// Whitens the errors of the figures (independent, of size one): the inverse of the
/// Cholesky factor of their covariance.
fn whitener(moments: &Moments, covariance: &DMatrix<f64>) -> Option<DMatrix<f64>> {
    let mut v = covariance + &moments.reading;
    for (i, mean) in moments.mean.iter().enumerate() {
        let floor = if i < moments.figures.levels.len() { FLOOR } else { PAIR_FLOOR };
        let chance = mean * (1.0 - mean) / moments.probes;
        v[(i, i)] += (floor * mean).powi(2) + LEAST_ERROR.powi(2) + 0.1 * chance;
    }
    v.cholesky()?.l().try_inverse()
}

/// Places to start from: scales from the slope of the tail, durations from how often the
/// next probe is still raised, intervals from how much is.
fn starts(shape: &Shape, moments: &Moments, threshold: f64, interval: f64) -> Vec<Vec<f64>> {
    if shape.classes == 0 {
        return vec![shape.point(&[])];
    }
    let levels = &moments.figures.levels;
    let mut above = vec![0.0; levels.len()];
    let mut sum = 0.0;
    for i in (0..levels.len()).rev() {
        sum += moments.mean[i];
        above[i] = sum;
    }
    let tail: Vec<usize> = (0..levels.len()).filter(|i| levels[*i] >= threshold).collect();
    if tail.len() < 2 + shape.classes {
        return Vec::new();
    }
    // Duration of episodes that explains how often the next probe is still raised.
    let mut lasting: Vec<(usize, f64)> = Vec::new();
    for (k, joint) in moments.figures.joints.iter().enumerate().filter(|(_, j)| j.lag == 1) {
        let again = moments.mean[levels.len() + k] / above[joint.level].max(1e-12);
        lasting.push((joint.level, -interval / again.clamp(0.02, 0.998).ln()));
    }
    lasting.sort_by_key(|(level, _)| *level);
    let low = lasting.first().map_or(interval, |(_, d)| *d);
    let high = lasting.last().map_or(interval, |(_, d)| *d);
    let middle = shape.base + shape.body.top() / 2.0;
    let class = |from: usize, to: usize, duration: f64, steeper: f64, shape: f64| {
        let drop = (above[from] / above[to].max(1e-12)).ln().max(0.1);
        let scale = steeper * ((levels[to] - levels[from]) / drop).max(1e-6);
        let x = (levels[from] - middle).max(0.0);
        let raised = (above[from] * (x / scale).min(4.0).exp()).clamp(1e-9, 0.3);
        let interval = (duration + scale) / raised;
        Excursions { interval, duration, location: 0.0, scale, shape, max: f64::MAX, regime: None }
    };
    let (first, last) = (tail[0], tail[tail.len() - 1]);
    let mut starts = Vec::new();
    if shape.classes == 1 {
        for steeper in [0.6, 1.0] {
            for form in [-0.1, 0.3] {
                starts.push(shape.point(&[class(first, last, low, steeper, form)]));
            }
        }
    } else {
        for part in [4, 3, 2] {
            let knee = tail[(tail.len() - 1) / part];
            let knee = knee.clamp(first + 1, last - 1);
            for (form, steeper) in [(-0.2, 1.0), (0.0, 0.7)] {
                let routine = class(first, knee, low, steeper, form);
                let rare = class(knee, last, high, 0.7, 0.2);
                let mut classes = vec![routine, rare];
                // One more lies between.
                if shape.classes > 2 {
                    let far = tail[tail.len() - 1 - tail.len() / 4].clamp(first + 1, last - 1);
                    classes.push(class(far, last, high, 0.8, 0.3));
                }
                starts.push(shape.point(&classes));
            }
        }
    }
    starts
}
