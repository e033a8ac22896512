// SPDX-License-Identifier: Apache-2.0
//! Pearson's χ² test (1900), and the number of its repetitions.
//!
//! The random generator of the switch cannot be seeded, so a test at the level of 5 % fails one
//! time in twenty without a fault. A failed measurement is repeated, up to [`TRIES`] times in all.
//! A test of several statistics divides the 5 % among them (Bonferroni). A correct switch fails a
//! test with a probability of at most 0.05⁴ = 6.25 × 10⁻⁶, and a suite of up to 15 such tests with
//! less than 10⁻⁴. An incorrect switch fails every time: at 10⁵ packets, a loss of 5 % that is
//! wrong by a twentieth of its value deviates by 3.6 standard errors.

use std::fmt;

use statrs::distribution::{ChiSquared, ContinuousCDF};

pub const LEVEL: f64 = 0.05;
/// Number of measurements before a test fails.
pub const TRIES: u32 = 4;
/// Minimum expected count of a cell for Pearson's approximation.
const LEAST_EXPECTED: f64 = 5.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub what: String,
    pub statistic: f64,
    /// Degrees of freedom.
    pub freedom: f64,
    /// Probability of at least this statistic under the hypothesis.
    pub p: f64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, statistic, freedom, p } = self;
        write!(f, "{what}: χ² {statistic:.2} at {freedom} degrees of freedom, p {p:.3}")
    }
}

impl Finding {
    fn new(what: &str, statistic: f64, freedom: usize) -> Self {
        let what = what.to_owned();
        let freedom = freedom as f64;
        let p = ChiSquared::new(freedom).map_or(1.0, |d| d.sf(statistic));
        Self { what, statistic, freedom, p }
    }

    /// One value compared with its expectation, by its standard deviation.
    #[must_use]
    pub fn of_normal(what: &str, value: f64, mean: f64, deviation: f64) -> Self {
        let z = (value - mean) / deviation;
        Self::new(what, z * z, 1)
    }

    /// Counts compared with their expectations. The last cell contains all greater values. Cells
    /// with too few expected counts are merged with the cell before.
    #[must_use]
    pub fn of_fit(what: &str, observed: &[u64], expected: &[f64]) -> Self {
        let pairs = observed.iter().map(|&o| o as f64).zip(expected.iter().copied());
        let cells = joined(pairs.collect(), |&(_, e)| e);
        let statistic = cells.iter().map(|(o, e)| (o - e) * (o - e) / e).sum();
        Self::new(what, statistic, cells.len().saturating_sub(1))
    }

    /// Counts of two samples, under the hypothesis of equal distributions.
    #[must_use]
    pub fn of_two(what: &str, one: &[u64], other: &[u64]) -> Self {
        let [n, m] = [one, other].map(|counts| counts.iter().sum::<u64>() as f64);
        let pairs = one.iter().zip(other).map(|(&a, &b)| (a as f64, b as f64));
        let smaller = n.min(m) / (n + m);
        let cells = joined(pairs.collect(), |(a, b)| (a + b) * smaller);
        let cell = |&(a, b): &(f64, f64)| {
            let both = a + b;
            let [of_a, of_b] = [n, m].map(|all| both * all / (n + m));
            (a - of_a) * (a - of_a) / of_a + (b - of_b) * (b - of_b) / of_b
        };
        Self::new(what, cells.iter().map(cell).sum(), cells.len().saturating_sub(1))
    }
}

/// Merges cells until each has the minimum expected count.
fn joined(cells: Vec<(f64, f64)>, expected: impl Fn(&(f64, f64)) -> f64) -> Vec<(f64, f64)> {
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for cell in cells {
        match joined.last_mut() {
            Some(last) if expected(last) < LEAST_EXPECTED => {
                last.0 += cell.0;
                last.1 += cell.1;
            }
            _ => joined.push(cell),
        }
    }
    if joined.len() > 1
        && let Some(rest) = joined.pop_if(|last| expected(last) < LEAST_EXPECTED)
        && let Some(last) = joined.last_mut()
    {
        last.0 += rest.0;
        last.1 += rest.1;
    }
    joined
}

/// Measures until no finding is significant, at most [`TRIES`] times.
pub fn repeated(measure: impl FnMut() -> anyhow::Result<Vec<Finding>>) -> anyhow::Result<()> {
    at_most(TRIES, measure)
}

fn at_most(
    tries: u32,
    mut measure: impl FnMut() -> anyhow::Result<Vec<Finding>>,
) -> anyhow::Result<()> {
    for attempt in 1..=tries {
        let findings = measure()?;
        anyhow::ensure!(!findings.is_empty(), "nothing was tested");
        let level = LEVEL / findings.len() as f64;
        let mut held = true;
        for finding in &findings {
            println!("    {finding} (level {level:.4})");
            held &= finding.p >= level;
        }
        if held {
            return Ok(());
        }
        println!("    attempt {attempt} of {tries}: rejected");
    }
    anyhow::bail!("rejected at {LEVEL} in each of {tries} attempts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_match_tables() {
        // χ² of 3.841 with one degree of freedom, and of 11.070 with five, is at 5 %.
        assert!((Finding::of_normal("", 1.959_964, 0.0, 1.0).p - 0.05).abs() < 1e-6);
        assert!((Finding::new("", 11.070_498, 5).p - 0.05).abs() < 1e-6);
    }

    #[test]
    fn sparse_cells_are_merged() {
        let fit = Finding::of_fit("", &[50, 4, 0, 1], &[48.0, 4.0, 2.0, 1.0]);
        assert!((fit.freedom - 1.0).abs() < f64::EPSILON);
        let expected = 4.0 / 48.0 + 4.0 / 7.0;
        assert!((fit.statistic - expected).abs() < 1e-9, "{fit}");
    }

    #[test]
    fn two_samples_agree_or_not() {
        assert!(Finding::of_two("", &[500, 9_500], &[520, 9_480]).p > 0.05);
        assert!(Finding::of_two("", &[500, 9_500], &[600, 9_400]).p < 0.01);
        // By hand: 2 × 2 with 10, 20 of 100 each: (10 - 15)² / 15 × 2 + (90 - 85)² / 85 × 2.
        let two = Finding::of_two("", &[10, 90], &[20, 80]);
        assert!((two.statistic - (50.0 / 15.0 + 50.0 / 85.0)).abs() < 1e-9, "{two}");
    }

    #[test]
    fn wrong_law_fails_each_time_and_right_law_passes_once() {
        let mut rounds = 0;
        let wrong = repeated(|| {
            rounds += 1;
            Ok(vec![Finding::of_two("", &[500, 9_500], &[800, 9_200])])
        });
        assert!(wrong.is_err() && rounds == TRIES);
        let mut fine = false;
        let right = repeated(|| {
            let z = if std::mem::replace(&mut fine, true) { 0.5 } else { 3.0 };
            Ok(vec![Finding::of_normal("", z, 0.0, 1.0)])
        });
        assert!(right.is_ok());
    }
}
