// SPDX-License-Identifier: Apache-2.0
//! Estimates parameters that pings leave open from the figures of bulk flows, by simulated moments
//! (D. McFadden, Econometrica 57, 1989; C. Gouriéroux, A. Monfort, "Simulation-Based Econometric
//! Methods", 1996).
//!
//! The search plays flows of the model of TCP over the emulation core, until their figures are the
//! observed ones. All evaluations use the same seeds, so that the distance
//! does not jump from one to the next by chance alone. A figure counts by its error: of the
//! observation, of the simulated flows, and of the model of TCP, which was compared with real hosts.
//! Each parameter has a weak prior, so that one that the figures do not determine keeps its value.
//!
//! The model guides the search. Confirm the profile with real hosts (docs/adr/0052).

mod parameter;
mod provenance;
mod search;
mod sensitivity;
mod simulate;

use profile::{Profile, Violations};

use super::observation::Observation;
use crate::goodness::Goodness;
use crate::interval::Interval;
use crate::verify::PlayError;

pub use parameter::Parameter;
pub use sensitivity::Sensitivity;
pub use simulate::MODEL_ERRORS;

/// Why nothing can be estimated from traffic.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    #[error(transparent)]
    Play(#[from] PlayError),
    #[error("what was estimated is outside of what a profile can say:\n{0}")]
    Schema(#[from] Violations),
    /// Nothing to estimate.
    #[error(
        "the profile has none of the parameters that these figures tell of: a constant rate towards the \
         client (--forward-rate, or --like), isolated losses, or random drop; with figures of the \
         start, capacity on demand from the client (--like)"
    )]
    NoParameter,
    #[error("there are no figures of flows")]
    NoFigure,
}

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Flows per observation.
    pub flows: usize,
    pub seed: u64,
    /// Points of the first stage of the search, and steps of the second, for each parameter.
    pub points: usize,
    pub steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { flows: 16, seed: 1, points: 8, steps: 8 }
    }
}

/// An estimated parameter.
#[derive(Clone, Debug)]
pub struct Estimated {
    pub parameter: Parameter,
    pub interval: Interval,
    /// Share of the prior's variance that the figures left; 1 if they tell nothing.
    pub from_prior: f64,
}

/// An observed figure beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Congestion control and figure.
    pub name: String,
    pub unit: &'static str,
    pub observed: f64,
    pub modelled: f64,
    /// Standard error of the difference.
    pub error: f64,
}

/// A calibrated profile.
#[derive(Clone, Debug)]
pub struct Calibrated {
    pub profile: Profile,
    pub estimates: Vec<Estimated>,
    pub figures: Vec<Compared>,
    pub goodness: Option<Goodness>,
    pub sensitivities: Vec<Sensitivity>,
}

/// Where a calibration is: simulations done, and about how many there are.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// The figures that the link of a profile can have: those of capacity on demand only with it.
fn usable(profile: &Profile, observations: &[Observation]) -> Vec<Observation> {
    let back = profile.as_proto().return_pipe.as_ref();
    let has_access = back.is_some_and(|pipe| pipe.access.is_some());
    let mut observations = observations.to_vec();
    for o in &mut observations {
        o.figures.retain(|figure| has_access || !figure.quantity.is_of_access());
    }
    observations.retain(|o| !o.figures.is_empty());
    observations
}

/// Estimates the open parameters of a profile.
///
/// # Errors
/// [`CalibrateError`]
pub fn calibrate(
    profile: &Profile,
    observations: &[Observation],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Calibrated, CalibrateError> {
    let observations = &usable(profile, observations);
    let figures = observations.iter().flat_map(|o| &o.figures);
    let quantities: Vec<_> = figures.map(|figure| figure.quantity).collect();
    if quantities.is_empty() {
        return Err(CalibrateError::NoFigure);
    }
    let parameters = parameter::of(profile, &quantities);
    if parameters.is_empty() {
        return Err(CalibrateError::NoParameter);
    }
    let total = search::simulations(options, parameters.len());
    let bench = simulate::Bench::new(profile, observations, options, progress, total);
    let found = search::search(&bench, &parameters, options)?;
    let calibrated = parameter::apply(profile, &parameters, &found.at)?;
    let sensitivities = sensitivity::of(&bench, &calibrated, &parameters, &found)?;
    provenance::assemble(calibrated, observations, &parameters, found, sensitivities)
}

#[cfg(test)]
mod tests;
