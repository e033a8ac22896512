// SPDX-License-Identifier: Apache-2.0
//! Likelihoods: their maximum, and intervals from their shape.
//!
//! The searches are argmin's: J. A. Nelder, R. Mead, "A Simplex Method for Function
//! Minimization", 1965, and R. P. Brent, "Algorithms for Minimization without
//! Derivatives", 1973, ch. 4. Parameters are on a scale on which a step of one is
//! large, such as logarithms.

use crate::work;
use argmin::core::{CostFunction, Error, Executor, State};
use argmin::solver::brent::BrentRoot;
use argmin::solver::neldermead::NelderMead;
use argmin_math::{ArgminAdd, ArgminMul, ArgminSub};

/// Half of the 95 % quantile of χ² with one degree of freedom: how far a
/// log-likelihood falls from its maximum to the end of a 95 % interval (S. S. Wilks,
/// 1938).
pub const DROP_95: f64 = 1.920_729_410_347_062;
/// The same for the 99.5 % quantile: two parameters are both inside with 99 % (C. E. Bonferroni,
/// 1936).
pub const DROP_99_5: f64 = 3.939_719_288_3;
/// The 97.5 % quantile of the normal distribution.
pub const Z_95: f64 = 1.959_963_984_540_054;
/// Represents a likelihood of zero; finite, so that the search can recover.
const IMPOSSIBLE: f64 = -1e300;
/// How far intervals are looked for: a factor of e^12 in a logarithm.
const FARTHEST: f64 = 12.0;

/// A corner of the simplex. argmin-math's own implementation for vectors brings a second
/// version of `rand` with it.
#[derive(Clone)]
struct Corner(Vec<f64>);

impl Corner {
    fn with(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| f(*a, *b)).collect())
    }
}

impl ArgminAdd<Self, Self> for Corner {
    fn add(&self, other: &Self) -> Self {
        self.with(other, |a, b| a + b)
    }
}

impl ArgminSub<Self, Self> for Corner {
    fn sub(&self, other: &Self) -> Self {
        self.with(other, |a, b| a - b)
    }
}

impl ArgminMul<f64, Self> for Corner {
    fn mul(&self, factor: &f64) -> Self {
        Self(self.0.iter().map(|a| a * factor).collect())
    }
}

/// The inverse of the log-odds.
#[must_use]
pub fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A figure with its standard error by leaving out each block in turn (M. H. Quenouille, 1949).
/// `figure` is that of all blocks, or of all but the given one.
pub fn jackknife(blocks: usize, figure: impl Fn(Option<usize>) -> f64) -> (f64, f64) {
    let value = figure(None);
    let squares: f64 = (0..blocks).map(|left_out| (figure(Some(left_out)) - value).powi(2)).sum();
    let n = blocks as f64;
    (value, (squares * (n - 1.0) / n).sqrt())
}

struct Negative<'a, F>(&'a F);

impl<F: Fn(&[f64]) -> f64> CostFunction for Negative<'_, F> {
    type Param = Corner;
    type Output = f64;

    fn cost(&self, at: &Corner) -> Result<f64, Error> {
        // The search unwraps errors; where all is equal it ends.
        if work::is_cancelled() {
            return Ok(-IMPOSSIBLE);
        }
        Ok(-finite((self.0)(&at.0)))
    }
}

fn finite(x: f64) -> f64 {
    if x.is_nan() { IMPOSSIBLE } else { x.clamp(IMPOSSIBLE, -IMPOSSIBLE) }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Maximum {
    pub at: Vec<f64>,
    pub value: f64,
}

/// Climbs from `start` with first steps of `step`, and once more from where that ends.
pub fn maximise<F: Fn(&[f64]) -> f64>(f: &F, start: &[f64], step: f64) -> Maximum {
    climb(f, start, &[step, step / 4.0], 1e-7)
}

/// As [`maximise`], of a function that takes long: one climb of at most `iterations` steps.
pub fn maximise_within<F>(f: &F, start: &[f64], step: f64, iterations: u64) -> Maximum
where
    F: Fn(&[f64]) -> f64,
{
    climb_within(f, start, &[step], 1e-3, iterations)
}

fn climb<F: Fn(&[f64]) -> f64>(f: &F, start: &[f64], steps: &[f64], tolerance: f64) -> Maximum {
    climb_within(f, start, steps, tolerance, 400 * start.len() as u64)
}

fn climb_within<F: Fn(&[f64]) -> f64>(
    f: &F,
    start: &[f64],
    steps: &[f64],
    tolerance: f64,
    iterations: u64,
) -> Maximum {
    let mut best = Maximum { at: start.to_vec(), value: finite(f(start)) };
    if start.is_empty() {
        return best;
    }
    for step in steps.iter().copied() {
        let corner = |i: usize| {
            let mut at = best.at.clone();
            at[i] += step;
            at
        };
        let corners = [best.at.clone()].into_iter().chain((0..start.len()).map(corner));
        let simplex = corners.map(Corner).collect();
        let found = NelderMead::new(simplex)
            .with_sd_tolerance(tolerance)
            .and_then(|s| {
                Executor::new(Negative(f), s).configure(|state| state.max_iters(iterations)).run()
            })
            .ok()
            .and_then(|r| Some((r.state().get_best_param()?.clone(), r.state().get_best_cost())));
        if let Some((Corner(at), cost)) = found
            && -cost > best.value
        {
            best = Maximum { at, value: -cost };
        }
    }
    best
}

/// The 95 % interval of one parameter from the profile likelihood: where the maximum
/// over all others has fallen by [`DROP_95`]. An end that is not reached is infinite.
pub fn profile_interval<F: Fn(&[f64]) -> f64>(
    f: &F,
    maximum: &Maximum,
    parameter: usize,
) -> (f64, f64) {
    profile_interval_at(DROP_95, f, maximum, parameter)
}

/// The same, where the maximum has fallen by `fall`.
pub fn profile_interval_at<F: Fn(&[f64]) -> f64>(
    fall: f64,
    f: &F,
    maximum: &Maximum,
    parameter: usize,
) -> (f64, f64) {
    let best = maximum.at[parameter];
    // Where the others were best last: a near place to start from.
    let others = std::cell::RefCell::new(maximum.at.clone());
    others.borrow_mut().remove(parameter);
    let drop = |x: f64| {
        let restricted = |o: &[f64]| {
            let mut at = o.to_vec();
            at.insert(parameter, x);
            f(&at)
        };
        let from = others.borrow().clone();
        let found = climb(&restricted, &from, &[0.05], 1e-4);
        *others.borrow_mut() = found.at;
        maximum.value - found.value - fall
    };
    let end = |sign: f64| {
        let mut near = 0.0;
        let mut far = 0.05;
        while drop(best + sign * far) < 0.0 {
            (near, far) = (far, far * 2.0);
            if far > FARTHEST {
                return sign * f64::INFINITY;
            }
        }
        let (a, b) = (best + sign * near, best + sign * far);
        root(&drop, a.min(b), a.max(b)).unwrap_or(b)
    };
    (end(-1.0), end(1.0))
}

struct Crossing<'a, F>(&'a F);

impl<F: Fn(f64) -> f64> CostFunction for Crossing<'_, F> {
    type Param = f64;
    type Output = f64;

    fn cost(&self, x: &f64) -> Result<f64, Error> {
        Ok((self.0)(*x))
    }
}

/// Where `f` crosses zero between `a` and `b`.
pub fn root<F: Fn(f64) -> f64>(f: &F, a: f64, b: f64) -> Option<f64> {
    let solver = BrentRoot::new(a, b, 1e-3 * (b - a).abs().max(1e-9));
    let run = Executor::new(Crossing(f), solver).configure(|s| s.max_iters(40)).run().ok()?;
    run.state().get_best_param().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_likelihood_gives_its_mean_and_its_interval() {
        // Two correlated normal parameters: the profile of each has its marginal width.
        let f = |p: &[f64]| {
            let (x, y) = (p[0] - 1.0, (p[1] + 2.0) / 0.5);
            -(x * x - 2.0 * 0.6 * x * y + y * y) / (2.0 * (1.0 - 0.36))
        };
        let m = maximise(&f, &[0.0, 0.0], 0.5);
        assert!((m.at[0] - 1.0).abs() < 1e-3 && (m.at[1] + 2.0).abs() < 1e-3, "{m:?}");
        let (low, high) = profile_interval(&f, &m, 1);
        assert!((low + 2.0 + 0.5 * Z_95).abs() < 5e-3, "{low}");
        assert!((high + 2.0 - 0.5 * Z_95).abs() < 5e-3, "{high}");
    }

    #[test]
    fn unbounded_parameter_has_infinite_interval() {
        let f = |p: &[f64]| -(-p[0]).max(0.0);
        let m = maximise(&f, &[1.0], 0.5);
        assert_eq!(profile_interval(&f, &m, 0).1, f64::INFINITY);
    }
}
