// SPDX-License-Identifier: Apache-2.0
//! Burstiness of losses: the index of dispersion of their counts (D. R. Cox, P. A. W. Lewis, "The
//! Statistical Analysis of Series of Events", 1966, ch. 4).

use crate::baseline::Series;
use crate::numeric::jackknife;

/// Blocks of the jackknife.
const BLOCKS: usize = 50;
/// Windows that are counted at least.
const LEAST_WINDOWS: u64 = 200;
/// Probes of the shortest window.
const LEAST_PROBES: u64 = 10;
/// Windows grow by this factor.
const STEP: u64 = 10;

/// Windows in ns in which the losses of a log are counted: each ten times as long as the one before.
pub fn windows(interval_ns: u64, length_ns: u64) -> Vec<u64> {
    let second = 1_000_000_000;
    let shortest = (LEAST_PROBES * interval_ns).div_ceil(second).max(1) * second;
    let lengths = std::iter::successors(Some(shortest), |w| w.checked_mul(STEP));
    lengths.take_while(|w| length_ns / w >= LEAST_WINDOWS).collect()
}

/// The variance of the number of lost probes in a window over its mean, with its standard error
/// by a jackknife over blocks. It is one if probes are lost independently and seldom.
pub fn dispersion(series: &Series, window_ns: u64) -> (f64, f64) {
    let mut counts: Vec<f64> = Vec::new();
    let mut last = None;
    for segment in series.segments() {
        for probe in series.slice(segment) {
            let window = probe.sent_ns / window_ns;
            if last.replace(window) != Some(window) {
                counts.push(0.0);
            }
            if let (None, Some(count)) = (probe.rtt_ns, counts.last_mut()) {
                *count += 1.0;
            }
        }
    }
    let of = |sums: [f64; 3]| {
        let [n, sum, squares] = sums;
        let mean = sum / n.max(1.0);
        if mean > 0.0 { (squares / n - mean * mean) / mean } else { 1.0 }
    };
    let blocks = BLOCKS.min(counts.len().max(1));
    let mut parts = vec![[0.0; 3]; blocks];
    for (i, count) in counts.iter().enumerate() {
        let part = &mut parts[i * blocks / counts.len()];
        *part = [part[0] + 1.0, part[1] + count, part[2] + count * count];
    }
    let all = parts.iter().fold([0.0; 3], |all, part| std::array::from_fn(|i| all[i] + part[i]));
    jackknife(blocks, |left_out| match left_out {
        None => of(all),
        Some(block) => of(std::array::from_fn(|i| all[i] - parts[block][i])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Probe;

    /// A probe every 10 ms for 1000 s; `lost` tells which ones are lost.
    fn series(lost: impl Fn(u64) -> bool) -> Series {
        let mut series = Series::default();
        for i in 0..100_000 {
            let rtt_ns = (!lost(i)).then_some(1);
            series.push(Probe { sent_ns: i * 10_000_000, rtt_ns });
        }
        series
    }

    #[test]
    fn dispersion_of_bursts_is_their_length() {
        // Bursts of 20 in every 7th window, and the same number one by one.
        let bursts = series(|i| (i / 100) % 7 == 0 && i % 100 < 20);
        let (value, error) = dispersion(&bursts, 1_000_000_000);
        let expected = 20.0 * (1.0 - 1.0 / 7.0);
        assert!((value - expected).abs() < 0.2 && error < 2.0, "{value} {error}");
        let even = series(|i| i % 35 == 0);
        assert!(dispersion(&even, 1_000_000_000).0 < 0.2);
        assert_eq!(dispersion(&series(|_| false), 1_000_000_000).0, 1.0);
    }

    #[test]
    fn windows_grow_until_the_log_has_too_few() {
        let s = 1_000_000_000;
        assert_eq!(windows(10_000_000, 3_600 * s), [s, 10 * s]);
        assert_eq!(windows(s, 86_400 * s), [10 * s, 100 * s]);
        assert_eq!(windows(10_000_000, 100 * s), [] as [u64; 0]);
    }
}
