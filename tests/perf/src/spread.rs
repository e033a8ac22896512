// SPDX-License-Identifier: Apache-2.0
//! The spread of repeated measurements.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Median and extremes of some repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one; the lower of the two middle ones of an even number.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// The spread of values; zero if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        match (sorted.first(), sorted.last()) {
            (Some(min), Some(max)) => {
                Self { median: sorted[(sorted.len() - 1) / 2], min: *min, max: *max }
            }
            _ => Self::default(),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} [{:.1}, {:.1}]", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        let s = Spread::of(&[3.0, 1.0, 2.0, 9.0]);
        assert_eq!((s.median, s.min, s.max), (2.0, 1.0, 9.0));
        assert_eq!(s.to_string(), "2.0 [1.0, 9.0]");
    }

    #[test]
    fn empty_values_do_not_panic() {
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
