// SPDX-License-Identifier: Apache-2.0
//! Order and trend of a series of values.

/// Number of values that come after a higher one.
pub fn out_of_order<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> usize {
    let mut highest = None;
    let is_late = |value| {
        let late = highest.is_some_and(|highest| value < highest);
        if !late {
            highest = Some(value);
        }
        late
    };
    values.into_iter().map(is_late).filter(|late| *late).count()
}

/// Slope of the least-squares line through points.
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
    use super::{out_of_order, slope};

    #[test]
    fn values_below_the_highest_so_far_are_out_of_order() {
        assert_eq!(out_of_order([1, 4, 2, 3, 4, 5]), 2);
    }

    #[test]
    fn line_has_its_slope() {
        let points: Vec<_> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x) - 7.0)).collect();
        assert!((slope(&points) - 3.0).abs() < 1e-9);
    }
}
