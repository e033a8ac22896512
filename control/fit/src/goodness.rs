// SPDX-License-Identifier: Apache-2.0
//! Tests of a fitted law against the measurement.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Expected counts below this are pooled (W. G. Cochran, 1954).
const LEAST_EXPECTED: f64 = 5.0;

/// The result of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Goodness {
    pub test: String,
    /// The statistic, χ² where the law holds.
    pub statistic: f64,
    pub degrees_of_freedom: f64,
    /// The probability of one as large, if the law holds.
    pub p_value: f64,
}

impl Goodness {
    /// Test of a statistic that follows χ².
    #[must_use]
    pub fn chi_squared(test: &str, statistic: f64, degrees_of_freedom: f64) -> Option<Self> {
        let law = ChiSquared::new(degrees_of_freedom).ok()?;
        let p_value = law.sf(statistic);
        let test = test.to_owned();
        p_value.is_finite().then_some(Self { test, statistic, degrees_of_freedom, p_value })
    }

    /// K. Pearson's χ² (1900) over cells of (observed, expected) counts, the rare ones
    /// pooled with their neighbours; `fitted` parameters cost a degree of freedom each.
    #[must_use]
    pub fn pearson(test: &str, cells: &[(f64, f64)], fitted: usize) -> Option<Self> {
        let mut pooled: Vec<(f64, f64)> = Vec::new();
        for (observed, expected) in cells.iter().rev() {
            match pooled.last_mut() {
                Some(cell) if cell.1 < LEAST_EXPECTED => {
                    cell.0 += observed;
                    cell.1 += expected;
                }
                _ => pooled.push((*observed, *expected)),
            }
        }
        if pooled.len() > 1
            && let Some(last) = pooled.pop_if(|cell| cell.1 < LEAST_EXPECTED)
            && let Some(neighbour) = pooled.last_mut()
        {
            neighbour.0 += last.0;
            neighbour.1 += last.1;
        }
        let statistic =
            pooled.iter().map(|(o, e)| (o - e) * (o - e) / e.max(f64::MIN_POSITIVE)).sum();
        Self::chi_squared(test, statistic, pooled.len() as f64 - fitted as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_cells_are_pooled() {
        let cells = [(100.0, 110.0), (50.0, 45.0), (3.0, 4.0), (1.0, 0.5), (0.0, 0.1)];
        let g = Goodness::pearson("test", &cells, 1).unwrap();
        // The last three make one of 4.6, pooled further with 45.
        assert_eq!(g.degrees_of_freedom, 1.0);
        let expected = 100.0 / 110.0 + (54.0_f64 - 49.6).powi(2) / 49.6;
        assert!((g.statistic - expected).abs() < 1e-9, "{g:?}");
    }

    #[test]
    fn without_degrees_of_freedom_there_is_no_verdict() {
        assert!(Goodness::pearson("test", &[(10.0, 10.0)], 1).is_none());
    }
}
