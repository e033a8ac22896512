// SPDX-License-Identifier: Apache-2.0
//! Maximum likelihood over the laws that the emulator can play.
//!
//! Laws are compared by G. Schwarz's criterion (BIC, 1978) over the number of runs:
//! isolated losses alone, one or two exponential classes, or a class of nearly equal
//! durations, each with and without isolated losses. Intervals are those of the
//! profile likelihood: the interval and the duration of a class are both inside with 99 % if its
//! law is the true one, and with 95 % as the log also chose the law.

use super::Runs;
use super::chain::{Class, Law};
use super::fixed::{Region, region};
use crate::goodness::Goodness;
use crate::interval::Interval;
use crate::numeric::{DROP_95, DROP_99_5, Maximum, maximise, profile_interval_at};
use crate::work;

/// Least runs of a class.
const LEAST_RUNS: u64 = 3;
/// Differences of the criterion that are "not worth more than a bare mention", and "strong" (R. E.
/// Kass, A. E. Raftery, "Bayes Factors", 1995).
const BARE: f64 = 2.0;
const STRONG: f64 = 6.0;
/// Shortest outages that are considered, in intervals between probes.
const LEAST_DURATION: f64 = 0.125;
/// A prober waits if so many intervals pass after a lost probe.
const WAITS: f64 = 1.5;

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
    /// Duration in seconds: stated, not estimated. Its interval is wider than that if the prober
    /// waits after a loss: then nothing tells of outages that are shorter than the wait.
    pub duration: Interval,
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
    /// Lost probes that the estimate is from, and the runs that they make.
    pub lost: u64,
    pub events: u64,
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
    fn law(self, at: &[f64], stated: Stated) -> Law {
        let Stated { isolated_s, directions } = stated;
        let classes: Vec<Class> = at[..2 * self.classes]
            .chunks_exact(2)
            .map(|c| Class { rate: c[0].exp(), mean: c[1].exp() })
            .collect();
        let isolated = if self.isolated { at[2 * self.classes].exp() } else { 0.0 };
        match classes.first() {
            Some(class) if self.peaked => {
                let peaked = Some(*class);
                Law { classes: Vec::new(), directions: 1, peaked, isolated, isolated_s }
            }
            _ => Law { classes, directions, peaked: None, isolated, isolated_s },
        }
    }

    /// Places to start from.
    fn starts(self, runs: &Runs, directions: u32) -> Vec<Vec<f64>> {
        let d = f64::from(if self.peaked { 1 } else { directions });
        let (observed, gap) = (runs.observed_s(), runs.mean_gap_after_loss());
        let of = |rate: f64, mean: f64| [(rate / d).max(1e-12).ln(), mean.ln()];
        let lengths = runs.lengths();
        let several: u64 = lengths.range(2..).map(|(_, n)| n).sum();
        let beyond: f64 = lengths.range(2..).map(|(j, n)| f64::from(j - 2) * *n as f64).sum();
        // Within runs of two and more, the share of probes that another lost one follows.
        let again = ((beyond + 0.5) / (beyond + several as f64 + 1.0)).clamp(0.01, 0.999_999);
        let mean = -gap / again.ln();
        let rate = (several as f64 + 0.5) / again / observed;
        let single = lengths.get(&1).copied().unwrap_or(0) as f64;
        let isolated = ((single * 0.8 + 0.5) / (runs.received() as f64 + 1.0)).ln();
        let mut starts = Vec::new();
        match self.classes {
            0 => starts.push(Vec::new()),
            1 if self.peaked => {
                let runs = several as f64 + if self.isolated { 0.5 } else { single };
                let lost = runs.max(1.0) + beyond + several as f64;
                let mean = gap * lost / runs.max(1.0);
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

/// Values that are not estimated.
#[derive(Clone, Copy)]
struct Stated {
    isolated_s: f64,
    directions: u32,
}

impl Stated {
    /// The log-likelihood of a candidate's parameters.
    fn score(self, c: Candidate, at: &[f64], runs: &Runs) -> f64 {
        let (least, most) = (runs.interval_s * LEAST_DURATION, 2.0 * runs.observed_s());
        let mut means = at[..2 * c.classes].iter().skip(1).step_by(2).map(|m| m.exp());
        if means.any(|m| !(least..=most).contains(&m)) {
            return f64::NEG_INFINITY;
        }
        c.law(at, self).log_likelihood(runs)
    }

    /// The most likely parameters of a candidate.
    fn best(self, c: Candidate, runs: &Runs) -> Option<Maximum> {
        let starts = c.starts(runs, self.directions);
        let score = |at: &[f64]| self.score(c, at, runs);
        let found = starts.iter().map(|s| maximise(&score, s, 0.4));
        found.max_by(|a, b| a.value.total_cmp(&b.value))
    }
}

/// The law of a log's losses.
#[must_use]
pub fn estimate(runs: &Runs, options: LossOptions) -> Losses {
    let LossOptions { isolated_s, directions } = options;
    let interval = runs.interval_s;
    let isolated_s = isolated_s.unwrap_or(interval / 2.0);
    let stated = Stated { isolated_s, directions };
    let events = runs.events();
    let mut unidentified = Vec::new();
    if events == 0 {
        unidentified.push(format!(
            "losses: none of {} probes was lost, so fewer than one in {} is (95 %); the profile has \
             none",
            runs.received(),
            runs.received() / 3
        ));
        let none = Candidate { name: "no losses", classes: 0, peaked: false, isolated: false };
        return Losses {
            law: none.law(&[], stated),
            name: none.name,
            lost: 0,
            events,
            classes: Vec::new(),
            isolated: None,
            rejected: Vec::new(),
            goodness: None,
            unidentified,
        };
    }
    let several: u64 =
        runs.runs.iter().filter(|(r, _)| r.lost() > 1 || !r.ended).map(|(_, n)| n).sum();
    // One long run tells that there are outages, if not how long they are; a second class
    // takes more. The criterion decides.
    let least = |classes: usize| match classes {
        0 => 0,
        1 => 1,
        n => LEAST_RUNS * n as u64,
    };
    let mut tried: Vec<(f64, Candidate, Maximum)> = CANDIDATES
        .into_iter()
        .filter(|c| several >= least(c.classes))
        // If only the sum of the runs is known, they cannot determine the shape of their law.
        .filter(|c| !runs.grouped || (c.classes < 2 && !c.peaked))
        .enumerate()
        .filter_map(|(tried, c)| {
            work::done(tried as f64 / CANDIDATES.len() as f64);
            let best = stated.best(c, runs)?;
            let bic = c.parameters() as f64 * (events as f64).ln() - 2.0 * best.value;
            Some((bic, c, best))
        })
        .collect();
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Of laws that are about as likely, the simplest.
    let likely = tried.iter().take_while(|(bic, ..)| bic - tried[0].0 < BARE).enumerate();
    let simplest = likely.min_by_key(|(_, (_, c, _))| (c.parameters(), c.peaked));
    let taken = tried.remove(simplest.map_or(0, |(i, _)| i));
    let rejected =
        tried.iter().map(|(bic, c, _)| Rejected { law: c.name, bic_excess: bic - taken.0 });
    let rejected = rejected.collect();
    let (_, candidate, best) = &taken;
    let (candidate, best) = (*candidate, best);
    let f = |at: &[f64]| stated.score(candidate, at, runs);
    let mut classes: Vec<OutageClass> =
        (0..candidate.classes).map(|i| class(stated, candidate, best, i, runs)).collect();
    let mut also = Vec::new();
    if let [only] = &mut classes[..] {
        let likely = tried.iter().filter(|(bic, c, _)| c.classes == 1 && bic - taken.0 < STRONG);
        for (_, other, at) in likely {
            let of_other = class(stated, *other, at, 0, runs);
            only.interval = only.interval.with(of_other.interval);
            only.duration = only.duration.with(of_other.duration);
            if other.peaked != candidate.peaked {
                also.push(other.name);
            }
        }
    }
    classes.sort_by(|a, b| a.duration.value.total_cmp(&b.duration.value));
    let isolated = candidate.isolated.then(|| {
        let i = 2 * candidate.classes;
        let (low, high) = profile_interval_at(DROP_95, &f, best, i);
        let probability = Interval { value: best.at[i], low, high }.map(|p| p.exp().min(1.0));
        let n = f64::from(directions);
        let interval = probability.map(|p| {
            // Stationary share d / (I + d) in each direction, p in all together.
            let share = -((-p).ln_1p() / n).exp_m1();
            isolated_s / share - isolated_s
        });
        let duration = Interval { value: isolated_s, low: isolated_s, high: isolated_s };
        let isolated = Isolated { probability, interval, duration };
        if candidate.classes == 0 { unseen(isolated, stated, runs) } else { isolated }
    });
    let law = candidate.law(&best.at, stated);
    if let Some(other) = also.first() {
        unidentified.push(format!(
            "outages: the lengths of the runs do not rule out {other}; the intervals are those of \
             both laws"
        ));
    }
    if several < LEAST_RUNS {
        unidentified.push(format!(
            "outages: too few runs of several lost probes ({several}) to tell well how long outages \
             last; {}",
            if classes.is_empty() { "all losses count as isolated" } else { "see the interval" }
        ));
    }
    if runs.grouped && !classes.is_empty() {
        unidentified.push(
            "outages: without the lengths of the runs, one class of exponential outages is assumed"
                .into(),
        );
    }
    if let Some(isolated) = &isolated {
        let high = isolated.duration.high;
        let unseen = if high > isolated_s {
            format!("the prober waits after a loss, so each may last up to {:.0} ms", high * 1e3)
        } else {
            format!("how long each lasts cannot be seen by probes {:.0} ms apart", interval * 1e3)
        };
        unidentified.push(format!(
            "isolated losses: {unseen}; {:.0} ms is a stated prior, and their number follows from it",
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
    let (name, lost) = (candidate.name, runs.lost());
    Losses { law, name, lost, events, classes, isolated, rejected, goodness, unidentified }
}

/// Isolated losses with the durations that a waiting prober does not see: up to nearly the time
/// until it sends again, an outage loses one probe.
fn unseen(isolated: Isolated, stated: Stated, runs: &Runs) -> Isolated {
    if runs.mean_gap_after_loss() < WAITS * runs.interval_s {
        return isolated;
    }
    let Some(region) = fixed(0.0, stated, runs) else { return isolated };
    Isolated {
        duration: isolated.duration.with(region.duration),
        interval: isolated.interval.with(region.interval),
        ..isolated
    }
}

/// What the runs leave open about outages of one duration.
fn fixed(isolated: f64, stated: Stated, runs: &Runs) -> Option<Region> {
    let Stated { isolated_s, directions } = stated;
    let least = runs.interval_s * LEAST_DURATION;
    let mut region = region(runs, (isolated, isolated_s), least, DROP_99_5)?;
    region.interval = region.interval.map(|interval| interval * f64::from(directions));
    Some(region)
}

/// An outage class of a candidate, with its intervals.
fn class(stated: Stated, c: Candidate, best: &Maximum, index: usize, runs: &Runs) -> OutageClass {
    let f = |at: &[f64]| stated.score(c, at, runs);
    let parameter = |i: usize| {
        let (low, high) = profile_interval_at(DROP_99_5, &f, best, i);
        Interval { value: best.at[i], low, high }
    };
    let shared = f64::from(if c.peaked { stated.directions } else { 1 });
    let duration = parameter(2 * index + 1).map(f64::exp);
    let interval = parameter(2 * index).map(|r| shared * (-r).exp());
    let class = OutageClass { interval, duration, peaked: c.peaked };
    if !c.peaked {
        return class;
    }
    // A fixed duration is sharper than the law, and can lie where that has it improbable.
    let isolated = if c.isolated { best.at[2].exp() } else { 0.0 };
    match fixed(isolated, stated, runs) {
        Some(region) if region.best > best.value - DROP_99_5 => OutageClass {
            interval: interval.with(region.interval),
            duration: duration.with(region.duration),
            ..class
        },
        _ => class,
    }
}

/// Run lengths against the law's.
fn goodness(runs: &Runs, law: &Law, fitted: usize) -> Option<Goodness> {
    let lengths = runs.lengths();
    let gaps = runs.usual_gaps().filter(|_| !runs.grouped)?;
    let longest = *lengths.keys().max()?;
    let n = runs.received() as f64;
    let mut cells: Vec<(f64, f64)> = Vec::new();
    let mut beyond = 1.0 - law.run_probability(0, gaps);
    for j in 1..=longest.min(1000) {
        let p = law.run_probability(j, gaps);
        cells.push((lengths.get(&j).copied().unwrap_or(0) as f64, n * p));
        beyond -= p;
    }
    let more: u64 = lengths.range(longest.min(1000) + 1..).map(|(_, n)| n).sum();
    cells.push((more as f64, n * beyond.max(0.0)));
    Goodness::pearson("lengths of runs of lost probes", &cells, fitted)
}
