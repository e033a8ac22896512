// SPDX-License-Identifier: Apache-2.0
//! Quantiles and means of measured values.

/// Values in ascending order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantiles(Vec<f64>);

impl FromIterator<f64> for Quantiles {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }
}

impl Quantiles {
    /// The value below which this share of all values lies, between neighbours by
    /// linear interpolation; NaN if there are none.
    #[must_use]
    pub fn at(&self, share: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return f64::NAN };
        let place = share.clamp(0.0, 1.0) * last as f64;
        let below = place.floor() as usize;
        let above = (below + 1).min(last);
        self.0[below] + (self.0[above] - self.0[below]) * (place - below as f64)
    }

    /// The mean; NaN if there are no values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The slope of the least-squares line through points.
#[must_use]
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let (mut xy, mut xx) = (0.0, 0.0);
    for (x, y) in points {
        xy += (x - mean_x) * (y - mean_y);
        xx += (x - mean_x) * (x - mean_x);
    }
    xy / xx
}

#[cfg(test)]
mod tests {
    use super::{Quantiles, slope};

    #[test]
    fn quantiles_lie_between_neighbours() {
        let q: Quantiles = [4.0, 1.0, 3.0, 2.0].into_iter().collect();
        assert!((q.at(0.5) - 2.5).abs() < 1e-9 && (q.at(1.0) - 4.0).abs() < 1e-9);
        assert!(Quantiles::default().at(0.5).is_nan());
    }

    #[test]
    fn the_slope_of_a_line_is_found() {
        let points: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x) - 7.0)).collect();
        assert!((slope(&points) - 3.0).abs() < 1e-9);
    }
}
