// SPDX-License-Identifier: Apache-2.0
//! What losses are to be like.
//!
//! Gilbert and Elliott's chain with p (good to bad), r (bad to good), loss h in the bad state
//! and none in the good one. A packet is lost only if the chain was found bad, and moves it
//! after. So after a loss, whatever came before it, the next packet is lost if the chain stays
//! (1 - r) and loses (h): the run grows with chance q = (1 - r) h each time, and its length k
//! has the geometric law P(k) = q^(k-1) (1 - q). Runs are independent of each other.
//!
//! With h = 1 the losses are the bad states, and the gaps between runs are geometric too: a
//! gap begins in the good state and goes on with chance 1 - p.
//!
//! The chain is bad for a share of π = p / (p + r) of packets, so πh of n are lost. Bad states
//! k packets apart have the covariance π (1 - π) λ^k with λ = 1 - p - r, losses h² times that,
//! so that the variance of the number lost is about
//! n (πh (1 - πh) + 2 h² π (1 - π) λ / (1 - λ)).

/// Runs of one length in a cell each, the longer ones in the last.
pub const CELLS: usize = 24;

/// Lengths of the runs of `value` in a sequence, counted: cell i is of length i + 1, and the
/// last one of all longer. The first and the last run are left out, since they are cut.
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

/// How many of so many runs have each length, if each goes on with chance `q`.
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

/// Gilbert and Elliott's figures, without loss in the good state.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    /// p.
    pub to_bad: f64,
    /// r.
    pub to_good: f64,
    /// h.
    pub loss_in_bad: f64,
}

impl Bursts {
    /// The chance that a run goes on.
    #[must_use]
    pub fn grows(&self) -> f64 {
        (1.0 - self.to_good) * self.loss_in_bad
    }

    /// The share that is lost.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.bad() * self.loss_in_bad
    }

    fn bad(&self) -> f64 {
        self.to_bad / (self.to_bad + self.to_good)
    }

    /// λ.
    #[must_use]
    pub fn memory(&self) -> f64 {
        1.0 - self.to_bad - self.to_good
    }

    /// h² π (1 - π).
    #[must_use]
    pub fn spread(&self) -> f64 {
        self.loss_in_bad * self.loss_in_bad * self.bad() * (1.0 - self.bad())
    }

    /// The variance of the number lost of `n`.
    #[must_use]
    pub fn variance(&self, n: f64) -> f64 {
        let (share, lambda) = (self.share(), self.memory());
        n * (share * (1.0 - share) + 2.0 * self.spread() * lambda / (1.0 - lambda))
    }
}

/// A probability as the switch takes it, in units of 2^-32.
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
