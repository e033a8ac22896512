// SPDX-License-Identifier: Apache-2.0
//! Statistics over flows, with confidence intervals at 95 %.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{Binomial, ChiSquared, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::figure::Statistic;

const CONFIDENCE: f64 = 0.95;
/// Of the bootstrap: the same flows give the same interval.
const SEED: u64 = 1;
const RESAMPLES: usize = 2000;

/// An estimate and its confidence interval. Without enough values the interval is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// Number of flows.
    pub flows: usize,
}

#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation; absent for fewer than two values.
#[must_use]
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Quantile of sorted values, interpolated.
#[must_use]
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let place = p * sorted.len().checked_sub(1)? as f64;
    let (low, part) = (place.floor() as usize, place.fract());
    let high = sorted.get(low + 1).or(sorted.last())?;
    Some(sorted.get(low)? * (1.0 - part) + high * part)
}

/// A statistic of the flows of a row: the mean by Student's t, the standard deviation by
/// chi-squared (for normal values), quantiles by order statistics.
#[must_use]
pub fn estimate(values: &[f64], statistic: Statistic) -> Option<Estimate> {
    let flows = values.len();
    let around = |value: f64, ends: Option<(f64, f64)>| {
        let (low, high) = ends.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        Estimate { value, low, high, flows }
    };
    match statistic {
        Statistic::Mean => {
            let half = deviation(values).and_then(|sd| Some(sd * margin(flows)?));
            mean(values).map(|m| around(m, half.map(|h| (m - h, m + h))))
        }
        Statistic::Sd => deviation(values).map(|sd| {
            let ends = chi(flows).map(|(low, high)| (sd * low, sd * high));
            around(sd, ends)
        }),
        Statistic::Median => quantile_of(values, 0.5),
        Statistic::P25 => quantile_of(values, 0.25),
        Statistic::P75 => quantile_of(values, 0.75),
        // A property of these flows, without an interval.
        Statistic::Max => {
            values.iter().copied().reduce(f64::max).map(|most| around(most, Some((most, most))))
        }
    }
}

fn quantile_of(values: &[f64], p: f64) -> Option<Estimate> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ends = quantile_ends(&sorted, p);
    let (low, high) = ends.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
    quantile(&sorted, p).map(|value| Estimate { value, low, high, flows: values.len() })
}

/// The difference of a statistic of two rows (`more` less `less`). Each flow has one value, or two of
/// which the ratio of the statistics counts. Means by Welch's t, all else by the bootstrap.
#[must_use]
pub fn difference(less: &[Vec<f64>], more: &[Vec<f64>], statistic: Statistic) -> Option<Estimate> {
    let value = |less: &[Vec<f64>], more: &[Vec<f64>]| {
        Some(combined(more, statistic)? - combined(less, statistic)?)
    };
    let single = less.iter().chain(more).all(|flow| flow.len() == 1);
    if single && statistic == Statistic::Mean {
        return welch(&less.concat(), &more.concat());
    }
    bootstrap(less, more, value)
}

/// The ratio of a statistic of two rows.
#[must_use]
pub fn ratio(top: &[f64], bottom: &[f64], statistic: Statistic) -> Option<Estimate> {
    let single = |values: &[f64]| values.iter().map(|v| vec![*v]).collect::<Vec<_>>();
    bootstrap(&single(top), &single(bottom), |top, bottom| {
        Some(combined(top, statistic)? / combined(bottom, statistic)?)
    })
}

/// The ratio of a statistic of two metrics of the same flows.
#[must_use]
pub fn paired(flows: &[Vec<f64>], statistic: Statistic) -> Option<Estimate> {
    bootstrap(flows, flows, |flows, _| combined(flows, statistic))
}

/// A statistic of flows with one value each, or the ratio for flows with two.
fn combined(flows: &[Vec<f64>], statistic: Statistic) -> Option<f64> {
    let of = |place: usize| {
        let values: Vec<f64> = flows.iter().filter_map(|f| f.get(place).copied()).collect();
        estimate(&values, statistic).map(|e| e.value)
    };
    let top = of(0)?;
    Some(of(1).map_or(top, |bottom| top / bottom))
}

/// Percentile interval of a function of two rows, from a fixed seed.
fn bootstrap(
    one: &[Vec<f64>],
    other: &[Vec<f64>],
    value: impl Fn(&[Vec<f64>], &[Vec<f64>]) -> Option<f64>,
) -> Option<Estimate> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut again = |flows: &[Vec<f64>]| -> Vec<Vec<f64>> {
        (0..flows.len()).map(|_| flows[random.random_range(0..flows.len())].clone()).collect()
    };
    let estimate = value(one, other)?;
    let draws = (0..RESAMPLES).filter_map(|_| value(&again(one), &again(other)));
    let mut drawn: Vec<f64> = draws.filter(|v| v.is_finite()).collect();
    drawn.sort_by(f64::total_cmp);
    let flows = one.len().min(other.len());
    let end = |p: f64| quantile(&drawn, p).filter(|_| flows > 1);
    let low = end((1.0 - CONFIDENCE) / 2.0).unwrap_or(f64::NEG_INFINITY);
    let high = end((1.0 + CONFIDENCE) / 2.0).unwrap_or(f64::INFINITY);
    Some(Estimate { value: estimate, low, high, flows })
}

fn welch(less: &[f64], more: &[f64]) -> Option<Estimate> {
    let (a, b) = (mean(less)?, mean(more)?);
    let flows = less.len().min(more.len());
    let part = |values: &[f64]| Some(deviation(values)?.powi(2) / values.len() as f64);
    let interval = || {
        let (x, y) = (part(less)?, part(more)?);
        if x + y == 0.0 {
            // Two rows without any spread differ by exactly this.
            return Some((b - a, b - a));
        }
        let freedom =
            (x + y).powi(2) / (x * x / (less.len() - 1) as f64 + y * y / (more.len() - 1) as f64);
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf((1.0 + CONFIDENCE) / 2.0);
        Some((b - a - t * (x + y).sqrt(), b - a + t * (x + y).sqrt()))
    };
    let (low, high) = interval().unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
    Some(Estimate { value: b - a, low, high, flows })
}

/// Half the interval of a mean, in standard deviations.
fn margin(flows: usize) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, flows.checked_sub(1)? as f64).ok()?;
    Some(t.inverse_cdf((1.0 + CONFIDENCE) / 2.0) / (flows as f64).sqrt())
}

/// Factors of a standard deviation at the ends of its interval.
fn chi(flows: usize) -> Option<(f64, f64)> {
    let freedom = flows.checked_sub(1)? as f64;
    let chi = ChiSquared::new(freedom).ok()?;
    let end = |p: f64| (freedom / chi.inverse_cdf(p)).sqrt();
    Some((end((1.0 + CONFIDENCE) / 2.0), end((1.0 - CONFIDENCE) / 2.0)))
}

/// The order statistics that enclose a quantile; absent if there are too few values (fewer than six
/// for the median).
fn quantile_ends(sorted: &[f64], p: f64) -> Option<(f64, f64)> {
    let count = sorted.len() as u64;
    let below = Binomial::new(p, count).ok()?;
    let tail = (1.0 - CONFIDENCE) / 2.0;
    // The largest and the smallest k with P(X < k) and P(X >= k) at most 2.5 %.
    let low = (1..=count).take_while(|k| below.cdf(k - 1) <= tail).last()?;
    let high = (1..=count).find(|k| 1.0 - below.cdf(k - 1) <= tail)?;
    let at = |k: u64| sorted.get(usize::try_from(k).ok()? - 1).copied();
    Some((at(low)?, at(high)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(estimate: Estimate, value: f64, low: f64, high: f64) {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
        let Estimate { value: v, low: l, high: h, .. } = estimate;
        assert!(near(v, value) && near(l, low) && near(h, high), "{estimate:?}");
    }

    #[test]
    fn intervals_match_tables() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        // t(4, 97.5 %) = 2.776; chi-squared(4) = 0.4844 and 11.143; s = 1.5811.
        close(estimate(&values, Statistic::Mean).unwrap(), 3.0, 1.0368, 4.9632);
        close(estimate(&values, Statistic::Sd).unwrap(), 1.5811, 0.9473, 4.5434);
    }

    #[test]
    fn median_of_ten_lies_between_the_second_and_ninth() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        close(estimate(&values, Statistic::Median).unwrap(), 5.5, 2.0, 9.0);
        let few = estimate(&values[..5], Statistic::Median).unwrap();
        assert_eq!((few.low, few.high), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn quartiles_and_maximum_of_many_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        // Binomial(100, 1/4): 2.5 % below 17, and above 34.
        let quartile = estimate(&values, Statistic::P25).unwrap();
        close(quartile, 25.75, 17.0, 35.0);
        close(estimate(&values, Statistic::P75).unwrap(), 75.25, 66.0, 84.0);
        close(estimate(&values, Statistic::Max).unwrap(), 100.0, 100.0, 100.0);
    }

    #[test]
    fn one_flow_has_no_interval() {
        let one = estimate(&[3.0], Statistic::Mean).unwrap();
        assert_eq!((one.value, one.low, one.high), (3.0, f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(estimate(&[3.0], Statistic::Sd), None);
        assert_eq!(estimate(&[], Statistic::Mean), None);
    }

    #[test]
    fn difference_has_the_interval_of_welch() {
        let less = [1.0, 2.0, 3.0, 4.0, 5.0];
        let more = [11.0, 12.0, 13.0, 14.0, 15.0];
        // Equal variances: t(8, 97.5 %) = 2.306, times the square root of 1.
        close(welch(&less, &more).unwrap(), 10.0, 7.694, 12.306);
        close(welch(&[1.0, 1.0], &[2.0, 2.0]).unwrap(), 1.0, 1.0, 1.0);
    }

    #[test]
    fn bootstrap_interval_of_a_mean_is_near_that_of_student() {
        let flows: Vec<Vec<f64>> = (0..40).map(|n| vec![100.0 + f64::from(n % 8), 1.0]).collect();
        let student = estimate(&flows.iter().map(|f| f[0]).collect::<Vec<_>>(), Statistic::Mean);
        let (ours, student) = (paired(&flows, Statistic::Mean).unwrap(), student.unwrap());
        assert!((ours.value - student.value).abs() < 1e-9);
        assert!((ours.low - student.low).abs() < 0.1 && (ours.high - student.high).abs() < 0.1);
    }

    #[test]
    fn quantile_interpolates() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.75), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
