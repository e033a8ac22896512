// SPDX-License-Identifier: Apache-2.0
//! The likelihood of runs under a law of outages.
//!
//! *Exponential* classes are independent two-state Markov chains, each in as many
//! directions as the emulator plays it in; their state after a time t is known in
//! closed form (D. R. Cox, H. D. Miller, "The Theory of Stochastic Processes", 1965,
//! §4.5), and so is that of all together. A *peaked* class has outages of nearly equal
//! length: the sum of [`PHASES`] exponential phases (A. K. Erlang's method of stages).
//! It approximates the emulator's fixed law, which no log follows to the nanosecond.
//!
//! Isolated losses hit each probe independently.

use nalgebra::{DMatrix, DVector};

use super::runs::{Run, Runs, WHOLE};

/// Phases of a peaked class: its durations have a coefficient of variation of 0.2.
pub const PHASES: usize = 25;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Outages per second of time that is clear of the class, in each direction.
    pub rate: f64,
    /// Their mean duration in seconds.
    pub mean: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    pub classes: Vec<Class>,
    /// Directions in which each class is played on its own.
    pub directions: u32,
    /// A class of nearly equal durations, both directions taken together.
    pub peaked: Option<Class>,
    /// Probability that a probe is lost for itself.
    pub isolated: f64,
}

/// Transition from one probe to the next.
enum Step {
    /// For each chain: the probabilities of going down and of staying down.
    Chains(Vec<(f64, f64)>),
    Matrix(DMatrix<f64>),
}

impl Law {
    /// The log-likelihood of all runs.
    #[must_use]
    pub fn log_likelihood(&self, runs: &Runs) -> f64 {
        if !(0.0..1.0).contains(&self.isolated) {
            return f64::NEG_INFINITY;
        }
        let mut steps = Steps { law: self, runs, known: std::collections::BTreeMap::new() };
        let mut sum = 0.0;
        for (gap, n) in &runs.quiet {
            let up = match steps.get(*gap) {
                Step::Chains(c) => c.iter().map(|(go, _)| (-go).ln_1p()).sum(),
                Step::Matrix(m) => m[(0, 0)].ln(),
            };
            sum += *n as f64 * (up + (-self.isolated).ln_1p());
        }
        // Runs are in order: those at one gap by their length.
        let mut walk: Option<(u32, Walk)> = None;
        for (run, n) in &runs.runs {
            let log = match run.gaps[..] {
                [(gap, _)] => {
                    let lost = run.lost();
                    let walk = match &mut walk {
                        Some((same, walk)) if *same == gap && walk.lost <= lost => walk,
                        other => &mut other.insert((gap, Walk::new(self))).1,
                    };
                    let step = steps.get(gap);
                    walk.lose(self, step, lost - walk.lost);
                    walk.log + if run.ended { walk.back(self, step) } else { 0.0 }
                }
                _ => steps.run(run),
            };
            sum += *n as f64 * log;
        }
        sum
    }

    /// The probability that a run of `lost` probes at equal gaps of `interval_s` seconds
    /// follows a probe that came back.
    #[must_use]
    pub fn run_probability(&self, lost: u32, interval_s: f64) -> f64 {
        let runs = Runs { interval_s, ..Runs::default() };
        let mut steps = Steps { law: self, runs: &runs, known: std::collections::BTreeMap::new() };
        steps.run(&Run { gaps: vec![(WHOLE, lost + 1)], ended: true }).exp()
    }

    fn states(&self) -> usize {
        match self.peaked {
            Some(_) => PHASES + 1,
            None => 1 << (self.classes.len() * self.directions as usize),
        }
    }

    fn step(&self, t: f64) -> Step {
        if let Some(class) = self.peaked {
            let phase = PHASES as f64 / class.mean;
            let mut q = DMatrix::zeros(PHASES + 1, PHASES + 1);
            (q[(0, 0)], q[(0, 1)]) = (-class.rate * t, class.rate * t);
            for i in 1..=PHASES {
                (q[(i, i)], q[(i, (i + 1) % (PHASES + 1))]) = (-phase * t, phase * t);
            }
            return Step::Matrix(q.exp());
        }
        let chain = |c: &Class| {
            let total = c.rate + 1.0 / c.mean;
            let (down, gone) = (c.rate / total, -(-total * t).exp_m1());
            (down * gone, 1.0 - (1.0 - down) * gone)
        };
        let of_all = self.classes.iter().map(chain);
        Step::Chains(of_all.flat_map(|c| (0..self.directions).map(move |_| c)).collect())
    }
}

struct Steps<'a> {
    law: &'a Law,
    runs: &'a Runs,
    known: std::collections::BTreeMap<u32, Step>,
}

impl Steps<'_> {
    fn get(&mut self, gap: u32) -> &Step {
        let (law, t) = (self.law, self.runs.seconds(gap));
        self.known.entry(gap).or_insert_with(|| law.step(t))
    }

    /// The logarithm of a run's probability.
    fn run(&mut self, run: &Run) -> f64 {
        let law = self.law;
        let mut walk = Walk::new(law);
        let last = run.gaps.len().saturating_sub(1);
        for (i, (gap, times)) in run.gaps.iter().enumerate() {
            let step = self.get(*gap);
            // The last probe of an ended run came back.
            let back = run.ended && i == last;
            walk.lose(law, step, times - u32::from(back));
            if back {
                return walk.log + walk.back(law, step);
            }
        }
        walk.log
    }
}

/// A run in progress: the state after a number of lost probes, given these, and their
/// probability.
struct Walk {
    state: DVector<f64>,
    next: DVector<f64>,
    lost: u32,
    log: f64,
    kept: f64,
}

impl Walk {
    fn new(law: &Law) -> Self {
        let mut state = DVector::zeros(law.states());
        state[0] = 1.0;
        let next = state.clone();
        Self { state, next, lost: 0, log: 0.0, kept: f64::NAN }
    }

    /// Another `n` probes are lost.
    fn lose(&mut self, law: &Law, step: &Step, n: u32) {
        for k in 0..n {
            step.apply(&mut self.state, &mut self.next);
            self.state[0] *= law.isolated;
            let kept = self.state.sum();
            if kept <= 0.0 {
                self.log = f64::NEG_INFINITY;
                break;
            }
            self.state /= kept;
            self.log += kept.ln();
            let steady = (kept - self.kept).abs() <= 1e-14 * kept;
            self.kept = kept;
            if steady {
                // The remaining probes continue with the same ratio.
                self.log += f64::from(n - k - 1) * kept.ln();
                break;
            }
        }
        self.lost += n;
    }

    /// The logarithm of the probability that the next probe comes back.
    fn back(&mut self, law: &Law, step: &Step) -> f64 {
        let mut state = self.state.clone();
        step.apply(&mut state, &mut self.next);
        (state[0] * (1.0 - law.isolated)).ln()
    }
}

impl Step {
    /// Steps; `spare` is as long as the state.
    fn apply(&self, state: &mut DVector<f64>, spare: &mut DVector<f64>) {
        match self {
            Self::Matrix(m) => {
                spare.gemv_tr(1.0, m, state, 0.0);
                std::mem::swap(state, spare);
            }
            Self::Chains(chains) => {
                for (bit, (go, stay)) in chains.iter().enumerate() {
                    let mask = 1 << bit;
                    for up in (0..state.len()).filter(|s| s & mask == 0) {
                        let (u, d) = (state[up], state[up | mask]);
                        state[up] = u * (1.0 - go) + d * (1.0 - stay);
                        state[up | mask] = u * go + d * stay;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(classes: &[(f64, f64)], directions: u32, isolated: f64) -> Law {
        let classes = classes.iter().map(|(rate, mean)| Class { rate: *rate, mean: *mean });
        Law { classes: classes.collect(), directions, peaked: None, isolated }
    }

    #[test]
    fn runs_of_all_lengths_have_a_probability_of_one() {
        let peaked = Some(Class { rate: 0.05, mean: 0.5 });
        for law in [
            law(&[(0.05, 0.3)], 1, 0.01),
            law(&[(0.05, 0.3), (0.01, 2.0)], 2, 0.002),
            Law { peaked, ..law(&[], 1, 0.001) },
        ] {
            let sum: f64 = (0..3000).map(|j| law.run_probability(j, 0.2)).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }
    }

    #[test]
    fn rare_outage_has_geometric_frequency_and_length() {
        // Seen with probability (D/δ)(1 − e^(−δ/D)); each further probe with e^(−δ/D).
        let (rate, mean, interval) = (1e-6, 0.32, 0.2_f64);
        let law = law(&[(rate, mean)], 1, 0.0);
        let q = (-interval / mean).exp();
        let seen = rate * interval * (mean / interval) * (1.0 - q);
        for lost in 1..8 {
            let p = law.run_probability(lost, interval);
            let expected = seen * q.powf(f64::from(lost - 1)) * (1.0 - q);
            assert!((p / expected - 1.0).abs() < 1e-4, "{lost}: {p} {expected}");
        }
    }

    #[test]
    fn two_directions_lose_as_one_of_twice_the_rate_while_outages_are_rare() {
        let one = law(&[(2e-6, 0.32)], 1, 0.0).run_probability(2, 0.2);
        let two = law(&[(1e-6, 0.32)], 2, 0.0).run_probability(2, 0.2);
        assert!((one / two - 1.0).abs() < 1e-5);
    }

    #[test]
    fn long_run_stops_at_its_steady_state() {
        let law = law(&[(1e-4, 60.0)], 1, 0.0);
        let million = law.run_probability(1_000_000, 0.2);
        assert!(million == 0.0, "underflows, in no time");
    }
}
