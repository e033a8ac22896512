// SPDX-License-Identifier: Apache-2.0
//! Expected distributions of losses.
//!
//! The chain of Gilbert and Elliott has p (good to bad), r (bad to good), and loss h in the bad
//! state only. A packet is lost only if the chain is in the bad state, and the chain moves after
//! it. So after a loss, independent of earlier packets, the next packet is lost if the chain stays
//! (1 - r) and loses (h). The run grows with probability q = (1 - r) h each time, and its length k
//! has the geometric law P(k) = q^(k-1) (1 - q). Runs are independent of each other.
//!
//! With h = 1 the losses are the bad states, and the gaps between runs are geometric as well: a gap
//! begins in the good state and continues with probability 1 - p.
//!
//! The chain is in the bad state for a share of π = p / (p + r) of packets, so πh of n are lost.
//! Bad states k packets apart have the covariance π (1 - π) λ^k with λ = 1 - p - r. Losses have h²
//! times that, so the variance of the number of losses is about n (πh (1 - πh) + 2 h² π (1 - π) λ /
//! (1 - λ)).

/// Cells of run lengths; the last one contains all longer runs.
pub const CELLS: usize = 24;

/// Counts of the lengths of runs of `value` in a sequence: cell i has length i + 1, the last one
/// all longer lengths. The first and the last run are omitted, because they can be truncated.
#[must_use]
pub fn runs(sequence: &[bool], value: bool) -> Vec<u64> {
    let mut counts = vec![0; CELLS];
    let runs: Vec<&[bool]> = sequence.chunk_by(|a, b| a == b).collect();
    for run in runs.get(1..runs.len().saturating_sub(1)).unwrap_or_default() {
        if run.first() == Some(&value) {
            counts[(run.len() - 1).min(CELLS - 1)] += 1;
        }
    }
    counts
}

/// Expected counts of run lengths, if each run continues with probability `q`.
#[must_use]
pub fn geometric(runs: u64, q: f64) -> Vec<f64> {
    let mut left = runs as f64;
    let mut expected = Vec::with_capacity(CELLS);
    for _ in 1..CELLS {
        expected.push(left * (1.0 - q));
        left *= q;
    }
    expected.push(left);
    expected
}

/// Parameters of Gilbert and Elliott, without loss in the good state.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    pub to_bad: f64,
    pub to_good: f64,
    pub loss_in_bad: f64,
}

impl Bursts {
    /// Probability that a run continues.
    #[must_use]
    pub fn grows(&self) -> f64 {
        (1.0 - self.to_good) * self.loss_in_bad
    }

    /// Share of lost packets.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.bad() * self.loss_in_bad
    }

    fn bad(&self) -> f64 {
        self.to_bad / (self.to_bad + self.to_good)
    }

    #[must_use]
    pub fn memory(&self) -> f64 {
        1.0 - self.to_bad - self.to_good
    }

    /// h² π (1 - π).
    #[must_use]
    pub fn spread(&self) -> f64 {
        self.loss_in_bad * self.loss_in_bad * self.bad() * (1.0 - self.bad())
    }

    /// Variance of the number of losses among `n` packets.
    #[must_use]
    pub fn variance(&self, n: f64) -> f64 {
        let (share, lambda) = (self.share(), self.memory());
        n * (share * (1.0 - share) + 2.0 * self.spread() * lambda / (1.0 - lambda))
    }
}

/// A probability in the switch's unit of 2^-32.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 2^32")]
pub fn units(p: f64) -> u32 {
    (p * 4_294_967_296.0).round().min(f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_runs_are_not_counted() {
        let (o, x) = (false, true);
        let lost = runs(&[x, o, o, x, x, x, o, x, o, o], true);
        assert_eq!(lost[..4], [1, 0, 1, 0]);
        assert_eq!(runs(&[o, x, o, o, x, x, o], false)[..3], [0, 1, 0]);
        let long = runs(&[vec![o], vec![x; 100], vec![o]].concat(), true);
        assert_eq!(long[CELLS - 1], 1);
        assert_eq!(runs(&[], true), vec![0; CELLS]);
    }

    #[test]
    fn geometric_law_sums_to_one() {
        let expected = geometric(1000, 0.75);
        assert!((expected.iter().sum::<f64>() - 1000.0).abs() < 1e-9);
        assert!((expected[1] - 1000.0 * 0.75 * 0.25).abs() < 1e-9);
        assert!((expected[CELLS - 1] - 1000.0 * 0.75f64.powi(23)).abs() < 1e-9);
    }

    #[test]
    fn without_memory_bursts_are_independent_losses() {
        let even = Bursts { to_bad: 0.1, to_good: 0.9, loss_in_bad: 1.0 };
        assert!((even.share() - 0.1).abs() < 1e-12);
        assert!((even.variance(100.0) - 9.0).abs() < 1e-9);
        assert_eq!(units(0.5), 1 << 31);
    }
}
