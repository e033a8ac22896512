// SPDX-License-Identifier: Apache-2.0
//! The chains against their theory: both are hidden Markov chains, of which the share that
//! is lost and the law of the runs follow from the matrix of moves.

use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::*;
use crate::client::ClientKey;
use crate::units::Direction;

const N: usize = 1_000_000;

/// Moves between states, and the probability of loss in each.
struct Chain<const K: usize> {
    moves: [[f64; K]; K],
    loss: [f64; K],
}

impl<const K: usize> Chain<K> {
    fn step(&self, from: [f64; K], keep: impl Fn(f64) -> f64) -> [f64; K] {
        std::array::from_fn(|j| {
            (0..K).map(|i| from[i] * self.moves[i][j]).sum::<f64>() * keep(self.loss[j])
        })
    }

    fn stationary(&self) -> [f64; K] {
        (0..100_000).fold([1.0 / K as f64; K], |pi, _| self.step(pi, |_| 1.0))
    }

    fn share(&self) -> f64 {
        self.stationary().iter().zip(self.loss).map(|(pi, e)| pi * e).sum()
    }

    /// The variance of the share of `N` packets that is lost: that of independent ones and
    /// twice the covariances with all later packets.
    fn variance(&self) -> f64 {
        let (pi, share) = (self.stationary(), self.share());
        let mut lost: [f64; K] = std::array::from_fn(|i| pi[i] * self.loss[i]);
        let mut sum = share * (1.0 - share);
        for _ in 0..100_000 {
            lost = self.step(lost, |_| 1.0);
            let both: f64 = lost.iter().zip(self.loss).map(|(p, e)| p * e).sum();
            sum += 2.0 * (both - share * share);
        }
        sum / N as f64
    }

    /// The probabilities of runs of losses of 1, 2, … packets.
    fn runs(&self, longest: usize) -> Vec<f64> {
        let pi = self.stationary();
        let arrived = std::array::from_fn(|i| pi[i] * (1.0 - self.loss[i]));
        let mut now = self.step(arrived, |e| e);
        let all: f64 = now.iter().sum();
        (0..longest)
            .map(|_| {
                let ends: f64 = self.step(now, |e| 1.0 - e).iter().sum();
                now = self.step(now, |e| e);
                ends / all
            })
            .collect()
    }
}

fn key(seed: u64) -> StreamKey {
    StreamKey { seed, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 }
}

fn played(plan: LossPlan, seed: u64) -> Vec<bool> {
    let mut loss = Loss::new(plan, key(seed)).unwrap();
    (0..N).map(|_| loss.lose()).collect()
}

/// Fails where a statistic is beyond 95 % of its law.
fn within_chi_square(statistic: f64, degrees_of_freedom: usize) {
    let law = ChiSquared::new(degrees_of_freedom as f64).unwrap();
    let p = law.sf(statistic);
    assert!(p > 0.05, "chi-square {statistic} with {degrees_of_freedom} degrees: p = {p}");
}

fn follows<const K: usize>(plan: LossPlan, chain: &Chain<K>, seed: u64) {
    let lost = played(plan, seed);
    let share = lost.iter().filter(|l| **l).count() as f64 / N as f64;
    within_chi_square((share - chain.share()).powi(2) / chain.variance(), 1);
    // Adjacent runs are correlated; runs eight apart are nearly independent.
    let runs: Vec<usize> =
        lost.split(|l| !l).map(<[bool]>::len).filter(|len| *len > 0).step_by(8).collect();
    let all = runs.len() as f64;
    assert!(all > 2_000.0, "{all}");
    // One class for each length that is expected often enough, and one for all longer ones.
    let expected: Vec<f64> =
        chain.runs(1_000).into_iter().map(|p| p * all).take_while(|n| *n >= 10.0).collect();
    let mut classes: Vec<(f64, f64)> = expected
        .iter()
        .enumerate()
        .map(|(i, n)| (runs.iter().filter(|len| **len == i + 1).count() as f64, *n))
        .collect();
    let rest = all - expected.iter().sum::<f64>();
    if rest >= 5.0 {
        classes.push((runs.iter().filter(|len| **len > expected.len()).count() as f64, rest));
    }
    assert!(classes.len() > 2, "{classes:?}");
    let statistic = classes.iter().map(|(seen, n)| (seen - n).powi(2) / n).sum();
    within_chi_square(statistic, classes.len() - 1);
}

fn gilbert(to_bad: f64, to_good: f64, loss_in_bad: f64, loss_in_good: f64) -> LossPlan {
    LossPlan::GilbertElliott(GilbertElliott {
        to_bad: Probability::new(to_bad),
        to_good: Probability::new(to_good),
        loss_in_bad: Probability::new(loss_in_bad),
        loss_in_good: Probability::new(loss_in_good),
    })
}

fn four(p13: f64, p31: f64, p32: f64, p23: f64, p14: f64) -> LossPlan {
    LossPlan::FourState(FourState {
        p13: Probability::new(p13),
        p31: Probability::new(p31),
        p32: Probability::new(p32),
        p23: Probability::new(p23),
        p14: Probability::new(p14),
    })
}

#[test]
fn gilbert_s_losses_are_bad_times_of_geometric_length() {
    let (p, r) = (0.02, 0.3);
    let chain = Chain { moves: [[1.0 - p, p], [r, 1.0 - r]], loss: [0.0, 1.0] };
    assert!((chain.share() - p / (p + r)).abs() < 1e-12);
    for (n, share) in chain.runs(5).into_iter().enumerate() {
        assert!((share - r * (1.0 - r).powi(n as i32)).abs() < 1e-12);
    }
    for seed in 1..=3 {
        follows(gilbert(p, r, 1.0, 0.0), &chain, seed);
    }
}

#[test]
fn elliott_s_losses_follow_both_states() {
    let (p, r, bad, good) = (0.05, 0.1, 0.7, 0.02);
    let chain = Chain { moves: [[1.0 - p, p], [r, 1.0 - r]], loss: [good, bad] };
    assert!((chain.share() - (p * bad + r * good) / (p + r)).abs() < 1e-12);
    for seed in 1..=3 {
        follows(gilbert(p, r, bad, good), &chain, seed);
    }
}

#[test]
fn four_states_lose_in_gaps_and_in_bursts() {
    let (p13, p31, p32, p23, p14) = (0.02, 0.15, 0.25, 0.4, 0.01);
    let chain = Chain {
        moves: [
            [1.0 - p13 - p14, 0.0, p13, p14],
            [0.0, 1.0 - p23, p23, 0.0],
            [p31, p32, 1.0 - p31 - p32, 0.0],
            [1.0, 0.0, 0.0, 0.0],
        ],
        loss: [0.0, 0.0, 1.0, 1.0],
    };
    // The shares of the states as in the paper, relative to that of state 1.
    let first = 1.0 / (1.0 + p13 / p31 + p13 * p32 / (p31 * p23) + p14);
    assert!((chain.share() - first * (p13 / p31 + p14)).abs() < 1e-9);
    for seed in 1..=3 {
        follows(four(p13, p31, p32, p23, p14), &chain, seed);
    }
}

#[test]
fn chain_continues_with_new_parameters_and_restarts_for_new_model() {
    let stuck = gilbert(1.0, 0.0, 1.0, 0.0);
    let mut loss = Loss::new(stuck, key(1)).unwrap();
    assert!(!loss.lose() && loss.lose());
    let mut loss = loss.replanned(gilbert(0.0, 0.0, 1.0, 0.0), key(1)).unwrap();
    assert!(loss.lose(), "it is still bad");
    let mut loss = loss.replanned(four(0.0, 1.0, 0.0, 0.0, 0.0), key(1)).unwrap();
    assert!(!loss.lose());
    assert!(loss.replanned(LossPlan::None, key(1)).is_none());
}
