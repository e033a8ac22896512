// SPDX-License-Identifier: Apache-2.0
//! The scan statistic: how many instants fall into a window of the phase, over all periods.

use statrs::function::factorial::ln_binomial;

/// Bins of the phase.
const BINS: usize = 64;
/// Lengths of the window of the phase, in bins.
const WINDOWS: [usize; 4] = [2, 4, 8, 16];
/// Fewer instants show no period.
const LEAST: usize = 6;

/// The period at which most instants agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub period: f64,
    /// The middle of the window, in seconds, as the time of one boundary.
    pub boundary: f64,
    /// Logarithm of the probability of that by chance.
    pub ln_p: f64,
    /// The end of the time that was looked at.
    pub until: f64,
}

/// Scans the instants, which lie within `span`, over periods from the first up to the second one.
pub fn scan(times: &[f64], span: (f64, f64), periods: (f64, f64)) -> Option<Found> {
    let n = times.len();
    let length = span.1 - span.0;
    if n < LEAST || periods.0 >= periods.1 {
        return None;
    }
    let tails = WINDOWS.map(|window| tails(n, window as f64 / BINS as f64));
    // Over the whole length a step moves an instant by one bin.
    let step = 1.0 / (BINS as f64 * length);
    let (lowest, highest) = (1.0 / periods.1, 1.0 / periods.0);
    let count = ((highest - lowest) / step).ceil() as usize + 1;
    let mut best: Option<(f64, f64, f64)> = None;
    for i in 0..count {
        let frequency = lowest + i as f64 * step;
        let mut bins = [0_usize; BINS];
        for t in times {
            let cycles = (t - span.0) * frequency;
            bins[((cycles - cycles.floor()) * BINS as f64) as usize % BINS] += 1;
        }
        for (window, tails) in WINDOWS.into_iter().zip(&tails) {
            let mut inside: usize = bins[..window].iter().sum();
            for first in 0..BINS {
                let ln_p = tails[inside];
                if best.is_none_or(|(least, _, _)| ln_p < least) {
                    let middle = (first as f64 + window as f64 / 2.0) / BINS as f64;
                    best = Some((ln_p, frequency, middle));
                }
                inside += bins[(first + window) % BINS];
                inside -= bins[first];
            }
        }
    }
    let (ln_p, frequency, middle) = best?;
    let trials = (count * BINS * WINDOWS.len()) as f64;
    Some(Found {
        period: 1.0 / frequency,
        boundary: span.0 + middle / frequency,
        ln_p: ln_p + trials.ln(),
        until: span.1,
    })
}

/// Logarithms of the probabilities that at least 0, 1 … `n` of `n` independent instants fall into
/// this share of the phase.
fn tails(n: usize, share: f64) -> Vec<f64> {
    let mut tails = vec![0.0; n + 1];
    let mut sum = f64::NEG_INFINITY;
    for k in (0..=n).rev() {
        let each = ln_binomial(n as u64, k as u64)
            + k as f64 * share.ln()
            + (n - k) as f64 * (-share).ln_1p();
        let (high, low) = (each.max(sum), each.min(sum));
        sum = high + (low - high).exp().ln_1p();
        tails[k] = sum.min(0.0);
    }
    tails
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_binomial_distribution() {
        let tails = tails(3, 0.25);
        let expected = [1.0, 1.0 - 0.421_875, 10.0 / 64.0, 1.0 / 64.0_f64];
        for (tail, p) in tails.iter().zip(expected) {
            assert!((tail.exp() - p).abs() < 1e-12, "{} {p}", tail.exp());
        }
    }

    #[test]
    fn instants_of_a_period_are_found_and_others_are_not() {
        let regular: Vec<f64> = (0..12).map(|k| 3.3 + 15.0 * f64::from(k)).collect();
        let found = scan(&regular, (0.0, 180.0), (12.8, 22.5)).unwrap();
        assert!((found.period - 15.0).abs() < 0.1 && found.ln_p < -20.0, "{found:?}");
        let off = (found.boundary - 3.3).rem_euclid(15.0);
        assert!(!(0.3..=14.7).contains(&off), "{found:?}");
        let irregular: Vec<f64> =
            (0..12).map(|k| 15.0 * f64::from(k) + f64::from(k * k % 11)).collect();
        assert!(scan(&irregular, (0.0, 190.0), (12.8, 22.5)).unwrap().ln_p > -5.0);
    }
}
