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
//! Isolated losses are shorter than the interval, for a stated time *d*. Probes further apart
//! than *d* are lost independently of each other. Of two that are *g* < *d* apart, the second is lost
//! for the same reason with probability 1 − *g*/*d*: the rest of an outage that a probe hits at random.
//!
//! Probes may be sent at any times. A stretch begins in the stationary state, so that losses
//! before its first answer count, too.

use std::collections::BTreeMap;
use std::rc::Rc;

use nalgebra::{DMatrix, DVector};

use super::runs::{PARTS, Run, Runs};

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
    /// Duration of an isolated loss in seconds.
    pub isolated_s: f64,
}

/// Transition from one probe to the next.
struct Step {
    change: Change,
    /// Probability that all classes stay up.
    quiet: f64,
    /// Probability of an isolated loss, after an answer and after an isolated loss.
    hit: f64,
    again: f64,
}

enum Change {
    /// For each chain: the probabilities of going down and of staying down.
    Chains(Vec<(f64, f64)>),
    /// The factors of the matrix.
    Matrices(Vec<Rc<DMatrix<f64>>>),
}

impl Law {
    /// The log-likelihood of all runs.
    #[must_use]
    pub fn log_likelihood(&self, runs: &Runs) -> f64 {
        if !(0.0..1.0).contains(&self.isolated) {
            return f64::NEG_INFINITY;
        }
        let mut steps = Steps::new(self, runs.interval_s, runs.unit());
        let up = self.stationary()[0] * (1.0 - self.isolated);
        let mut sum = runs.starts as f64 * up.ln();
        for (gap, n) in &runs.quiet {
            let step = steps.get(*gap);
            sum += *n as f64 * (step.quiet.ln() + (-step.hit).ln_1p());
        }
        // Runs are in order: those at one gap by their length.
        let mut walk: Option<(u32, Walk)> = None;
        for (run, n) in &runs.runs {
            let log = match run.gaps[..] {
                [(gap, _)] if run.begun => {
                    let lost = run.lost();
                    let walk = match &mut walk {
                        Some((same, walk)) if *same == gap && walk.lost <= lost => walk,
                        other => &mut other.insert((gap, Walk::new(self))).1,
                    };
                    let step = steps.get(gap);
                    walk.lose(step, lost - walk.lost);
                    walk.log + if run.ended { walk.back(step) } else { 0.0 }
                }
                _ => steps.run(run),
            };
            sum += *n as f64 * log;
        }
        sum
    }

    /// The probability that a run of `lost` probes follows a probe that came back; the first is
    /// sent `gaps[0]` seconds after that one, the others `gaps[1]` seconds after a lost one.
    #[must_use]
    pub fn run_probability(&self, lost: u32, gaps: [f64; 2]) -> f64 {
        let mut walk = Walk::new(self);
        let [first, next] = gaps.map(|gap| {
            let change = Steps::new(self, gap, PARTS).change(PARTS);
            self.step(gap, change)
        });
        walk.lose(&first, lost.min(1));
        walk.lose(&next, lost.saturating_sub(1));
        let step = if lost == 0 { &first } else { &next };
        (walk.log + walk.back(step)).exp()
    }

    fn states(&self) -> usize {
        match self.peaked {
            Some(_) => PHASES + 1,
            None => 1 << (self.classes.len() * self.directions as usize),
        }
    }

    fn chains(&self) -> impl Iterator<Item = &Class> {
        let directions = self.directions as usize;
        self.classes.iter().flat_map(move |c| std::iter::repeat_n(c, directions))
    }

    /// The probabilities of the states at a random time.
    fn stationary(&self) -> DVector<f64> {
        let down = |c: &Class| c.rate * c.mean / (1.0 + c.rate * c.mean);
        if let Some(class) = &self.peaked {
            let mut state = DVector::from_element(PHASES + 1, down(class) / PHASES as f64);
            state[0] = 1.0 - down(class);
            return state;
        }
        let chains: Vec<f64> = self.chains().map(down).collect();
        DVector::from_fn(self.states(), |state, _| {
            let of = |(bit, down): (usize, &f64)| match state & (1 << bit) {
                0 => 1.0 - down,
                _ => *down,
            };
            chains.iter().enumerate().map(of).product()
        })
    }

    fn step(&self, t: f64, change: Change) -> Step {
        let quiet = match &change {
            Change::Chains(chains) => chains.iter().map(|(go, _)| 1.0 - go).product(),
            Change::Matrices(matrices) => {
                let mut state = DVector::zeros(PHASES + 1);
                state[0] = 1.0;
                for m in matrices {
                    state = m.tr_mul(&state);
                }
                state[0]
            }
        };
        let covered = if t < self.isolated_s { t / self.isolated_s } else { 1.0 };
        let hit = self.isolated * covered;
        Step { change, quiet, hit, again: (1.0 - covered) + covered * hit }
    }
}

/// The transitions over the gaps between probes.
struct Steps<'a> {
    law: &'a Law,
    interval_s: f64,
    known: BTreeMap<u32, Step>,
    /// All gaps are multiples of this.
    unit: u32,
    /// Of a peaked class: the transitions over 1, 2, 4, ... units.
    doubled: Vec<Rc<DMatrix<f64>>>,
}

impl<'a> Steps<'a> {
    const fn new(law: &'a Law, interval_s: f64, unit: u32) -> Self {
        Self { law, interval_s, unit, known: BTreeMap::new(), doubled: Vec::new() }
    }

    fn get(&mut self, gap: u32) -> &Step {
        if !self.known.contains_key(&gap) {
            let change = self.change(gap);
            let t = f64::from(gap) / f64::from(PARTS) * self.interval_s;
            self.known.insert(gap, self.law.step(t, change));
        }
        &self.known[&gap]
    }

    fn change(&mut self, gap: u32) -> Change {
        let law = self.law;
        let part = self.interval_s / f64::from(PARTS);
        let Some(class) = law.peaked else {
            let t = f64::from(gap) * part;
            let chain = |c: &Class| {
                let total = c.rate + 1.0 / c.mean;
                let (down, gone) = (c.rate / total, -(-total * t).exp_m1());
                (down * gone, 1.0 - (1.0 - down) * gone)
            };
            return Change::Chains(law.chains().map(chain).collect());
        };
        let (units, unit) = (gap / self.unit, part * f64::from(self.unit));
        let bits = 0..u32::BITS - units.leading_zeros();
        while self.doubled.len() < bits.len() {
            let next = match self.doubled.last() {
                Some(last) => last.as_ref() * last.as_ref(),
                None => generator(&class, unit).exp(),
            };
            self.doubled.push(Rc::new(next));
        }
        let used = bits.filter(|bit| units & (1 << bit) != 0);
        Change::Matrices(used.map(|bit| Rc::clone(&self.doubled[bit as usize])).collect())
    }

    /// The logarithm of a run's probability.
    fn run(&mut self, run: &Run) -> f64 {
        let law = self.law;
        let mut walk = if run.begun { Walk::new(law) } else { Walk::begin_lost(law) };
        let last = run.gaps.len().saturating_sub(1);
        for (i, (gap, times)) in run.gaps.iter().enumerate() {
            let step = self.get(*gap);
            // The last probe of an ended run came back.
            let back = run.ended && i == last;
            walk.lose(step, times - u32::from(back));
            if back {
                return walk.log + walk.back(step);
            }
        }
        walk.log
    }
}

/// The generator of a peaked class, times `t`.
fn generator(class: &Class, t: f64) -> DMatrix<f64> {
    let phase = PHASES as f64 / class.mean;
    let mut q = DMatrix::zeros(PHASES + 1, PHASES + 1);
    (q[(0, 0)], q[(0, 1)]) = (-class.rate * t, class.rate * t);
    for i in 1..=PHASES {
        (q[(i, i)], q[(i, (i + 1) % (PHASES + 1))]) = (-phase * t, phase * t);
    }
    q
}

/// A run in progress: the state after a number of lost probes, given these, and their
/// probability. After a lost probe, state 0 is an isolated loss.
struct Walk {
    state: DVector<f64>,
    next: DVector<f64>,
    lost: u32,
    log: f64,
    kept: f64,
}

impl Walk {
    /// After a probe that came back.
    fn new(law: &Law) -> Self {
        let mut state = DVector::zeros(law.states());
        state[0] = 1.0;
        let next = state.clone();
        Self { state, next, lost: 0, log: 0.0, kept: f64::NAN }
    }

    /// At the beginning of a stretch, with a probe that was lost.
    fn begin_lost(law: &Law) -> Self {
        let mut walk = Self { state: law.stationary(), lost: 1, ..Self::new(law) };
        walk.state[0] *= law.isolated;
        walk.keep();
        walk
    }

    /// Returns the probability of the observation, and makes the observation the condition of the rest.
    fn keep(&mut self) -> f64 {
        let kept = self.state.sum();
        if kept > 0.0 {
            self.state /= kept;
            self.log += kept.ln();
        } else {
            self.log = f64::NEG_INFINITY;
        }
        kept
    }

    /// Time passes. Returns the probabilities that all classes are up, and were up before, too.
    fn pass(&mut self, step: &Step) -> (f64, f64) {
        let both = self.state[0] * step.quiet;
        step.change.apply(&mut self.state, &mut self.next);
        (self.state[0], both)
    }

    /// Probability of an isolated loss, if the classes were up before, too.
    const fn hit(&self, step: &Step) -> f64 {
        if self.lost > 0 { step.again } else { step.hit }
    }

    /// Another `n` probes are lost.
    fn lose(&mut self, step: &Step, n: u32) {
        self.kept = f64::NAN;
        for k in 0..n {
            let (up, both) = self.pass(step);
            self.state[0] = (up - both).max(0.0) * step.hit + both * self.hit(step);
            self.lost += 1;
            let kept = self.keep();
            if kept <= 0.0 {
                break;
            }
            let steady = (kept - self.kept).abs() <= 1e-14 * kept;
            self.kept = kept;
            if steady {
                // The remaining probes continue with the same ratio.
                self.log += f64::from(n - k - 1) * kept.ln();
                self.lost += n - k - 1;
                break;
            }
        }
    }

    /// The logarithm of the probability that the next probe comes back.
    fn back(&mut self, step: &Step) -> f64 {
        let state = self.state.clone();
        let (up, both) = self.pass(step);
        self.state = state;
        ((up - both).max(0.0) * (1.0 - step.hit) + both * (1.0 - self.hit(step))).ln()
    }
}

impl Change {
    /// Changes the state; `spare` is as long.
    fn apply(&self, state: &mut DVector<f64>, spare: &mut DVector<f64>) {
        match self {
            Self::Matrices(matrices) => {
                for m in matrices {
                    spare.gemv_tr(1.0, m, state, 0.0);
                    std::mem::swap(state, spare);
                }
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
        Law { classes: classes.collect(), directions, peaked: None, isolated, isolated_s: 0.1 }
    }

    #[test]
    fn runs_of_all_lengths_have_a_probability_of_one() {
        let peaked = Some(Class { rate: 0.05, mean: 0.5 });
        for law in [
            law(&[(0.05, 0.3)], 1, 0.01),
            law(&[(0.05, 0.3), (0.01, 2.0)], 2, 0.002),
            Law { peaked, ..law(&[], 1, 0.001) },
        ] {
            let sum: f64 = (0..3000).map(|j| law.run_probability(j, [0.2; 2])).sum();
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
            let p = law.run_probability(lost, [interval; 2]);
            let expected = seen * q.powf(f64::from(lost - 1)) * (1.0 - q);
            assert!((p / expected - 1.0).abs() < 1e-4, "{lost}: {p} {expected}");
        }
    }

    #[test]
    fn two_directions_lose_as_one_of_twice_the_rate_while_outages_are_rare() {
        let one = law(&[(2e-6, 0.32)], 1, 0.0).run_probability(2, [0.2; 2]);
        let two = law(&[(1e-6, 0.32)], 2, 0.0).run_probability(2, [0.2; 2]);
        assert!((one / two - 1.0).abs() < 1e-5);
    }

    #[test]
    fn long_run_stops_at_its_steady_state() {
        let law = law(&[(1e-4, 60.0)], 1, 0.0);
        let million = law.run_probability(1_000_000, [0.2; 2]);
        assert!(million == 0.0, "underflows, in no time");
    }
}
