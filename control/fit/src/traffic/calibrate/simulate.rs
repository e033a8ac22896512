// SPDX-License-Identifier: Apache-2.0
//! Simulated figures: flows of the model of TCP for each observation, on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::Profile;

use super::super::flow::{Flow, Setup, play};
use super::super::observation::{Figure, Observation, Quantity, Statistic};
use super::{Options, Progress};
use crate::verify::PlayError;

/// Standard errors of the model of TCP, as shares of a figure: throughput, round trip, time, round
/// trip of a second of the start, and the spread of any. From comparisons with real hosts (Linux 6.18) on a geostationary link: throughput
/// 1 %, round trips 3 to 5 %. Times of a start-up depend on the hosts more.
pub const MODEL_ERRORS: [f64; 5] = [0.02, 0.05, 0.15, 0.1, 0.2];
/// Counts for a figure that no simulated flow reaches.
const UNREACHED: f64 = 0.0;

/// Values of quantities: by observation and figure, of each flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(pub Vec<Vec<Vec<f64>>>);

impl Sample {
    /// The figures in order, of the flows for which `keeps` is true.
    fn figures(&self, observations: &[Observation], keeps: impl Fn(usize) -> bool) -> Vec<f64> {
        let mut figures = Vec::new();
        for (values, o) in self.0.iter().zip(observations) {
            for (values, figure) in values.iter().zip(&o.figures) {
                let kept = values.iter().enumerate().filter(|(i, v)| keeps(*i) && v.is_finite());
                let kept: Vec<f64> = kept.map(|(_, v)| *v).collect();
                figures.push(figure.statistic.of(&kept).unwrap_or(UNREACHED));
            }
        }
        figures
    }

    /// The figures, and those without each flow in turn.
    pub fn jackknife(&self, observations: &[Observation]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let n = self.0.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let whole = self.figures(observations, |_| true);
        let without = (0..n).map(|i| self.figures(observations, |j| j != i)).collect();
        (whole, without)
    }
}

/// Plays flows over variants of one profile.
pub struct Bench<'a> {
    pub profile: &'a Profile,
    pub observations: &'a [Observation],
    options: Options,
    progress: Progress<'a>,
    done: AtomicUsize,
    total: usize,
}

impl<'a> Bench<'a> {
    pub fn new(
        profile: &'a Profile,
        observations: &'a [Observation],
        options: &Options,
        progress: Progress<'a>,
        total: usize,
    ) -> Self {
        Self {
            profile,
            observations,
            options: *options,
            progress,
            done: AtomicUsize::new(0),
            total,
        }
    }

    /// The figures of all observations, in order.
    pub fn figures(&self) -> impl Iterator<Item = (&'a Observation, &'a Figure)> {
        self.observations.iter().flat_map(|o| o.figures.iter().map(move |f| (o, f)))
    }

    /// Simulates `flows` flows per observation. `change` changes the hosts.
    ///
    /// # Errors
    /// If the profile cannot be played.
    pub fn simulate(
        &self,
        profile: &Profile,
        flows: usize,
        change: impl Fn(Setup) -> Setup + Sync,
    ) -> Result<Sample, PlayError> {
        let jobs: Vec<(usize, usize)> =
            (0..self.observations.len()).flat_map(|o| (0..flows).map(move |i| (o, i))).collect();
        let shape = |o: &Observation| vec![vec![f64::NAN; flows]; o.figures.len()];
        let sample = Mutex::new(Ok(Sample(self.observations.iter().map(shape).collect())));
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(&(o, i)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let observation = &self.observations[o];
                let setup = change(observation.setup);
                // The same seeds for all observations: the flows were interlaced in time.
                let flow = play(profile, self.options.seed + i as u64, &setup);
                let Ok(mut sample) = sample.lock() else { return };
                match (flow, &mut *sample) {
                    (Ok(flow), Ok(sample)) => enter(sample, (o, i), &observation.figures, &flow),
                    (Err(error), sample) => *sample = Err(error),
                    (Ok(_), Err(_)) => {}
                }
                drop(sample);
                let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
                (self.progress)(done, self.total.max(done));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        sample.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Variances of the figures beside those of the observation and of the model of TCP: what flows
    /// differ by in the sample, over its number of flows and, where the observation does not tell
    /// its error, over that of the observation.
    pub fn variances(&self, sample: &Sample) -> Vec<f64> {
        let mut variances = Vec::new();
        for (values, o) in sample.0.iter().zip(self.observations) {
            for (values, figure) in values.iter().zip(&o.figures) {
                let reached: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
                let spread = Statistic::Spread.of(&reached).unwrap_or(0.0);
                let error = |n: f64| figure.statistic.error(spread, n).powi(2);
                let observed = match figure.error {
                    Some(error) => error * error,
                    None => error(o.count as f64),
                };
                let model = model_error(figure) * figure.value;
                variances.push(observed + error(reached.len().max(1) as f64) + model * model);
            }
        }
        variances
    }
}

fn enter(sample: &mut Sample, (o, i): (usize, usize), figures: &[Figure], flow: &Flow) {
    for (values, figure) in sample.0[o].iter_mut().zip(figures) {
        values[i] = figure.quantity.of(flow).unwrap_or(f64::NAN);
    }
}

fn model_error(figure: &Figure) -> f64 {
    let [throughput, round_trip, time, early, spread] = MODEL_ERRORS;
    match (figure.statistic, figure.quantity) {
        (Statistic::Spread, _) => spread,
        (_, Quantity::Throughput { from: 0, .. }) => time,
        (_, Quantity::Throughput { .. }) => throughput,
        (_, Quantity::RoundTrip { .. }) => round_trip,
        (_, Quantity::EarlyRoundTrip { .. }) => early,
        (_, Quantity::EarlyAcknowledgements { .. } | Quantity::Time { .. }) => time,
    }
}
