// SPDX-License-Identifier: Apache-2.0
//! Maximum likelihood over the laws that the emulator can play.
//!
//! Laws are compared by G. Schwarz's criterion (BIC, 1978) over the number of runs:
//! isolated losses alone, one or two exponential classes, or a class of nearly equal
//! durations, each with and without isolated losses. Intervals are those of the
//! profile likelihood.

use super::chain::{Class, Law};
use super::runs::WHOLE;
use super::{Interval, Runs};
use crate::goodness::Goodness;
use crate::numeric::{Maximum, maximise, profile_interval};

/// A peaked class needs a matrix per gap: at most this many are tried.
const MOST_GAPS: usize = 64;
/// Least runs of a class.
const LEAST_RUNS: u64 = 3;

/// Values that the user states about the losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossOptions {
    /// How long an isolated loss lasts, in seconds; half of the interval where not stated.
    pub isolated_s: Option<f64>,
    /// Directions that the emulator plays each class in: 1 or 2.
    pub directions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutageClass {
    /// Mean clear time between outages, in each direction, in seconds.
    pub interval: Interval,
    /// Mean duration in seconds.
    pub duration: Interval,
    /// Nearly equal durations: the emulator's fixed law.
    pub peaked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Isolated {
    /// Probability that a probe is lost so.
    pub probability: Interval,
    /// Mean clear time between them, in each direction, in seconds; given the duration.
    pub interval: Interval,
    /// Duration in seconds: stated, not estimated.
    pub duration_s: f64,
}

/// A law that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    pub law: &'static str,
    /// How much larger its BIC is than that of the law that was taken.
    pub bic_excess: f64,
}

/// The losses of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Losses {
    pub law: Law,
    pub name: &'static str,
    pub classes: Vec<OutageClass>,
    pub isolated: Option<Isolated>,
    /// Other laws that were tried.
    pub rejected: Vec<Rejected>,
    /// The law against the lengths of the runs.
    pub goodness: Option<Goodness>,
    /// Parameters that the log does not determine.
    pub unidentified: Vec<String>,
}

#[derive(Clone, Copy)]
struct Candidate {
    name: &'static str,
    classes: usize,
    peaked: bool,
    isolated: bool,
}

const CANDIDATES: [Candidate; 7] = [
    Candidate { name: "isolated losses", classes: 0, peaked: false, isolated: true },
    Candidate { name: "one class of outages", classes: 1, peaked: false, isolated: false },
    Candidate {
        name: "one class of outages and isolated losses",
        classes: 1,
        peaked: false,
        isolated: true,
    },
    Candidate { name: "two classes of outages", classes: 2, peaked: false, isolated: false },
    Candidate {
        name: "two classes of outages and isolated losses",
        classes: 2,
        peaked: false,
        isolated: true,
    },
    Candidate { name: "outages of equal duration", classes: 1, peaked: true, isolated: false },
    Candidate {
        name: "outages of equal duration and isolated losses",
        classes: 1,
        peaked: true,
        isolated: true,
    },
];

impl Candidate {
    fn parameters(self) -> usize {
        2 * self.classes + usize::from(self.isolated)
    }

    /// From logarithms: rate and mean of each class, then the isolated probability.
    fn law(self, at: &[f64], directions: u32) -> Law {
        let classes: Vec<Class> = at[..2 * self.classes]
            .chunks_exact(2)
            .map(|c| Class { rate: c[0].exp(), mean: c[1].exp() })
            .collect();
        let isolated = if self.isolated { at[2 * self.classes].exp() } else { 0.0 };
        match classes.first() {
            Some(class) if self.peaked => {
                Law { classes: Vec::new(), directions: 1, peaked: Some(*class), isolated }
            }
            _ => Law { classes, directions, peaked: None, isolated },
        }
    }

    /// Places to start from.
    fn starts(self, runs: &Runs, directions: u32) -> Vec<Vec<f64>> {
        let d = f64::from(if self.peaked { 1 } else { directions });
        let (observed, interval) = (runs.observed_s(), runs.interval_s);
        let of = |rate: f64, mean: f64| [(rate / d).max(1e-12).ln(), mean.ln()];
        let lengths = runs.lengths();
        let several: u64 = lengths.range(2..).map(|(_, n)| n).sum();
        let beyond: f64 = lengths.range(2..).map(|(j, n)| f64::from(j - 2) * *n as f64).sum();
        // Within runs of two and more, the share of probes that another lost one follows.
        let again = ((beyond + 0.5) / (beyond + several as f64 + 1.0)).clamp(0.01, 0.999_999);
        let mean = -interval / again.ln();
        let rate = (several as f64 + 0.5) / again / observed;
        let single = lengths.get(&1).copied().unwrap_or(0) as f64;
        let isolated = ((single * 0.8 + 0.5) / (runs.received() as f64 + 1.0)).ln();
        let mut starts = Vec::new();
        match self.classes {
            0 => starts.push(Vec::new()),
            1 if self.peaked => {
                let runs = several as f64 + if self.isolated { 0.5 } else { single };
                let lost = runs.max(1.0) + beyond + several as f64;
                let mean = interval * lost / runs.max(1.0);
                for factor in [0.8, 1.0, 1.25] {
                    starts.push(of(runs / observed, mean * factor).to_vec());
                }
            }
            1 => starts.push(of(rate, mean).to_vec()),
            _ => {
                for (short, long, share) in [(0.5, 4.0, 0.2), (0.25, 1.5, 0.3), (0.3, 20.0, 0.05)] {
                    let a = of(rate * (1.0 - share), mean * short);
                    starts.push([a, of(rate * share, mean * long)].concat());
                }
            }
        }
        if self.isolated {
            starts.iter_mut().for_each(|s| s.push(isolated));
        }
        starts
    }
}

/// The law of a log's losses.
#[must_use]
pub fn estimate(runs: &Runs, options: LossOptions) -> Losses {
    let LossOptions { isolated_s, directions } = options;
    let interval = runs.interval_s;
    let isolated_s = isolated_s.unwrap_or(interval / 2.0);
    let events = runs.events();
    let mut unidentified = Vec::new();
    let nothing = Law { classes: Vec::new(), directions, peaked: None, isolated: 0.0 };
    if events == 0 {
        unidentified.push(format!(
            "losses: none of {} probes was lost, so fewer than one in {} is (95 %); the profile has \
             none",
            runs.received(),
            runs.received() / 3
        ));
        return Losses {
            law: nothing,
            name: "no losses",
            classes: Vec::new(),
            isolated: None,
            rejected: Vec::new(),
            goodness: None,
            unidentified,
        };
    }
    let several: u64 =
        runs.runs.iter().filter(|(r, _)| r.lost() > 1 || !r.ended).map(|(_, n)| n).sum();
    let least = (interval / 8.0).ln();
    let most = (2.0 * runs.observed_s()).ln();
    let score = |c: Candidate, at: &[f64]| {
        let means = at[..2 * c.classes].iter().skip(1).step_by(2);
        if means.into_iter().any(|m| *m < least || *m > most) {
            return f64::NEG_INFINITY;
        }
        c.law(at, directions).log_likelihood(runs)
    };
    let gaps = runs.quiet.len();
    // One long run tells that there are outages, if not how long they are; a second class
    // takes more. The criterion decides.
    let least = |classes: usize| match classes {
        0 => 0,
        1 => 1,
        n => LEAST_RUNS * n as u64,
    };
    let mut tried: Vec<(f64, Candidate, Maximum)> = CANDIDATES
        .into_iter()
        .filter(|c| several >= least(c.classes) && (!c.peaked || gaps <= MOST_GAPS))
        // If only the sum of the runs is known, they cannot determine the shape of their law.
        .filter(|c| !runs.grouped || (c.classes < 2 && !c.peaked))
        .filter_map(|c| {
            let starts = c.starts(runs, directions);
            let found = starts.iter().map(|s| maximise(&|at: &[f64]| score(c, at), s, 0.4));
            let best = found.max_by(|a, b| a.value.total_cmp(&b.value))?;
            let bic = c.parameters() as f64 * (events as f64).ln() - 2.0 * best.value;
            Some((bic, c, best))
        })
        .collect();
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rejected = tried
        .iter()
        .skip(1)
        .map(|(bic, c, _)| Rejected { law: c.name, bic_excess: bic - tried[0].0 });
    let rejected = rejected.collect();
    let (_, candidate, best) = tried.swap_remove(0);
    let f = |at: &[f64]| score(candidate, at);
    let parameter = |i: usize| {
        let (low, high) = profile_interval(&f, &best, i);
        Interval { value: best.at[i], low, high }
    };
    let shared = f64::from(if candidate.peaked { directions } else { 1 });
    let mut classes: Vec<OutageClass> = (0..candidate.classes)
        .map(|i| OutageClass {
            interval: parameter(2 * i).map(|r| shared * (-r).exp()),
            duration: parameter(2 * i + 1).map(f64::exp),
            peaked: candidate.peaked,
        })
        .collect();
    classes.sort_by(|a, b| a.duration.value.total_cmp(&b.duration.value));
    let isolated = candidate.isolated.then(|| {
        let probability = parameter(2 * candidate.classes).map(|p| p.exp().min(1.0));
        let n = f64::from(directions);
        let interval = probability.map(|p| {
            // Stationary share d / (I + d) in each direction, p in all together.
            let share = -((-p).ln_1p() / n).exp_m1();
            isolated_s / share - isolated_s
        });
        Isolated { probability, interval, duration_s: isolated_s }
    });
    let law = candidate.law(&best.at, directions);
    if several < LEAST_RUNS {
        unidentified.push(format!(
            "outages: too few runs of several lost probes ({several}) to tell well how long outages \
             last; {}",
            if classes.is_empty() { "all losses count as isolated" } else { "see the interval" }
        ));
    }
    if gaps > MOST_GAPS {
        unidentified.push(
            "outages: with probes at irregular gaps, outages of nearly equal duration were not \
             tried"
                .into(),
        );
    }
    if runs.grouped && !classes.is_empty() {
        unidentified.push(
            "outages: without the lengths of the runs, one class of exponential outages is assumed"
                .into(),
        );
    }
    if isolated.is_some() {
        unidentified.push(format!(
            "isolated losses: how long each lasts cannot be seen by probes {:.0} ms apart; {:.0} ms \
             is a stated prior, and their number follows from it",
            interval * 1e3,
            isolated_s * 1e3
        ));
    }
    if directions > 1 {
        unidentified.push(
            "losses: a round trip does not tell which way a probe was lost; each direction gets \
             half"
                .into(),
        );
    }
    let goodness = goodness(runs, &law, candidate.parameters());
    Losses { law, name: candidate.name, classes, isolated, rejected, goodness, unidentified }
}

/// Run lengths against the law's.
fn goodness(runs: &Runs, law: &Law, fitted: usize) -> Option<Goodness> {
    let lengths = runs.lengths();
    // The law's lengths below are those at equal gaps.
    let equal = runs.quiet.get(&WHOLE).copied().unwrap_or(0) as f64;
    let known = !runs.grouped && equal >= 0.9 * runs.quiet.values().sum::<u64>() as f64;
    let longest = *lengths.keys().max().filter(|_| known)?;
    let n = runs.received() as f64;
    let mut cells: Vec<(f64, f64)> = Vec::new();
    let mut beyond = 1.0 - law.run_probability(0, runs.interval_s);
    for j in 1..=longest.min(1000) {
        let p = law.run_probability(j, runs.interval_s);
        cells.push((lengths.get(&j).copied().unwrap_or(0) as f64, n * p));
        beyond -= p;
    }
    let more: u64 = lengths.range(longest.min(1000) + 1..).map(|(_, n)| n).sum();
    cells.push((more as f64, n * beyond.max(0.0)));
    Goodness::pearson("lengths of runs of lost probes", &cells, fitted)
}
