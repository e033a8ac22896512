// SPDX-License-Identifier: Apache-2.0
//! Assembles a profile from the estimates: parameters per direction in the units of the schema, and
//! the provenance of each.

mod delays;
mod losses;
mod notes;
mod options;
mod reconfiguration;
pub mod summary;
pub mod text;

pub use options::{Capacity, Direction, Options, plain_name};
pub use reconfiguration::Reconfigured;

use profile::{Profile, Violations, format_duration};
use proto::linkemu::v1 as pb;

use crate::baseline::{Baseline, OneWay, Source, Summary};
use crate::delay::estimate::{self as delay, DelayError, Delays};
use crate::delay::published;
use crate::emulator::UNKNOWN;
use crate::loss::{FadeEstimate, LossOptions, Losses, MOST_RUNS, Runs, at_boundaries};
use crate::loss::{estimate as estimate_losses, estimate_fade};
use crate::period::{self, levels};
use crate::read::Input;
use crate::seconds;
use crate::work::{self, Cancelled, Step, ongoing};
use delays::split;
use losses::outages;
use notes::Notes;
use reconfiguration::reconfigure;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The delays cannot be estimated.
    #[error(transparent)]
    Delay(#[from] DelayError),
    /// The study has no curve of round trips.
    #[error("the summary has no [delay]: give its curve of round trips, at least two points")]
    NoDelay,
    /// The stated constant delay is longer than the whole round trip.
    #[error(
        "a forward delay of {stated} is more than the least round trip of {base}: state less than \
         that"
    )]
    Split { stated: String, base: String },
    /// The stated duration of isolated losses does not fit.
    #[error(
        "isolated losses of {stated} are longer than the probing interval of {interval}: they would \
         be seen as runs; state at most the interval"
    )]
    Isolated { stated: String, interval: String },
    /// A duration of delay episodes is stated that the log determines.
    #[error("a log determines how long {0} episodes of delay last: do not state it")]
    Episodes(Episodes),
    /// The estimates break rules of profiles.
    #[error("what was estimated is outside of what a profile can say:\n{0}")]
    Schema(Violations),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Episodes {
    /// [`Options::routine_ns`]
    Routine,
    /// [`Options::rare_ns`]
    Rare,
}

impl std::fmt::Display for Episodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Routine => "routine",
            Self::Rare => "rare",
        })
    }
}

/// A fitted profile and its estimates.
#[derive(Clone, Debug)]
pub struct Fitted {
    pub profile: Profile,
    /// Loss estimates; `None` if none were published.
    pub losses: Option<Losses>,
    /// Fade estimate; `None` if the log shows no fades.
    pub fade: Option<FadeEstimate>,
    pub delays: Delays,
    /// Periodic reconfiguration; `None` if the log shows none.
    pub reconfiguration: Option<Reconfigured>,
}

/// A log or a summary, as far as provenance and assembly need it.
struct Measured<'a> {
    source: &'a Source,
    samples: u64,
    lost: u64,
    interval_ns: u64,
    one_way: Option<OneWay>,
    /// When the first probe was sent, in ns since 1970 UTC.
    first_utc_ns: Option<u64>,
    unidentified: Option<&'a str>,
    remarks: Vec<String>,
}

/// Fits a profile.
///
/// # Errors
/// If the baseline determines too little, or contradicts the options.
pub fn fit(input: &Input, options: &Options) -> Result<Fitted, FitError> {
    match input {
        Input::Log(baseline) => fit_log(baseline, options),
        Input::Summary(summary) => fit_summary(summary, options),
    }
}

fn fit_log(baseline: &Baseline, options: &Options) -> Result<Fitted, FitError> {
    let stated = [(options.routine_ns, Episodes::Routine), (options.rare_ns, Episodes::Rare)];
    if let Some((_, episodes)) = stated.into_iter().find(|(ns, _)| ns.is_some()) {
        return Err(FitError::Episodes(episodes));
    }
    check_isolated(options, baseline.interval_ns)?;
    work::step(Step::Periods, 0.0, 0.15);
    let reconfiguration = reconfiguration(baseline);
    ongoing()?;
    work::step(Step::Losses, 0.15, 0.4);
    let at_boundaries = reconfiguration.as_ref().and_then(|found| found.at_boundaries.as_ref());
    let elsewhere = at_boundaries.map_or(&baseline.series, |losses| &losses.elsewhere);
    let runs = Runs::of_series(elsewhere, baseline.interval_ns, baseline.spacing);
    let fade = estimate_fade(&runs);
    // Fades of both directions would be independent.
    let one_way = options.losses_in == Direction::Both && fade.is_some();
    let losses_in = if one_way { Direction::Forward } else { options.losses_in };
    let mut losses = estimate_losses(&runs, loss_options(options, losses_in));
    if one_way {
        losses.unidentified.push(
            "fades: those of two directions would be independent, so all losses are forward".into(),
        );
    }
    if runs.begins_s.len() > MOST_RUNS {
        losses.unidentified.push(format!(
            "fades: not looked for among {} runs of lost probes, at most {MOST_RUNS} are",
            runs.begins_s.len()
        ));
    }
    ongoing()?;
    work::step(Step::Delays, 0.4, 1.0);
    let levels = reconfiguration.as_ref().and_then(|found| found.levels.as_ref());
    let delays = delay::estimate(levels.map_or(baseline, |levels| &levels.rest))?;
    ongoing()?;
    let measured = Measured {
        source: &baseline.source,
        samples: baseline.series.len() as u64,
        lost: baseline.series.lost() as u64,
        interval_ns: baseline.interval_ns,
        one_way: baseline.one_way,
        first_utc_ns: baseline
            .recorded
            .and_then(|[first, _]| u64::try_from(first.as_nanosecond()).ok()),
        unidentified: baseline.emulator.is_none().then_some(UNKNOWN),
        remarks: baseline.remarks.iter().chain(&baseline.emulator).cloned().collect(),
    };
    let mut options = options.clone();
    options.losses_in = losses_in;
    assemble(&measured, &options, Some(losses), fade, delays, reconfiguration)
}

/// The periodic reconfiguration of a log, if it has one.
fn reconfiguration(baseline: &Baseline) -> Option<Reconfigured> {
    let period = period::detect(&baseline.series, baseline.interval_ns)?;
    let at_boundaries = at_boundaries(&baseline.series, &period, baseline.interval_ns);
    Some(Reconfigured { period, levels: levels(baseline, &period), at_boundaries })
}

fn fit_summary(summary: &Summary, options: &Options) -> Result<Fitted, FitError> {
    check_isolated(options, summary.interval_ns)?;
    if summary.exceedance.is_empty() {
        return Err(FitError::NoDelay);
    }
    let losses = summary.losses.as_ref().map(|counts| {
        let runs = Runs::of_counts(counts, summary.loss_samples, summary.interval_ns);
        estimate_losses(&runs, loss_options(options, options.losses_in))
    });
    let [routine, rare] = [options.routine_ns, options.rare_ns].map(|ns| ns.map(seconds));
    let delays = published::estimate(summary, routine, rare)?;
    let measured = Measured {
        source: &summary.source,
        samples: summary.loss_samples.max(summary.delay_samples),
        lost: summary.losses.as_ref().map_or(0, |l| l.lost),
        interval_ns: summary.interval_ns,
        one_way: None,
        first_utc_ns: None,
        unidentified: None,
        remarks: Vec::new(),
    };
    assemble(&measured, options, losses, None, delays, None)
}

fn loss_options(options: &Options, losses_in: Direction) -> LossOptions {
    let directions = if losses_in == Direction::Both { 2 } else { 1 };
    LossOptions { isolated_s: options.isolated_ns.map(seconds), directions }
}

fn check_isolated(options: &Options, interval_ns: u64) -> Result<(), FitError> {
    match options.isolated_ns {
        Some(stated) if stated > interval_ns || stated == 0 => Err(FitError::Isolated {
            stated: format_duration(stated),
            interval: format_duration(interval_ns),
        }),
        _ => Ok(()),
    }
}

fn assemble(
    measured: &Measured<'_>,
    options: &Options,
    losses: Option<Losses>,
    fade: Option<FadeEstimate>,
    delays: Delays,
    reconfiguration: Option<Reconfigured>,
) -> Result<Fitted, FitError> {
    let mut notes = Notes::default();
    let mut forward = options.forward.clone();
    let mut back = options.back.clone();
    let limited = |c: &pb::Pipe| c.rate_bps.is_some() || c.rate_trace.is_some();
    if !limited(&options.forward) || !limited(&options.back) {
        notes
            .unidentified
            .push("rates and queues: pings tell neither; what is not stated is not limited".into());
    }
    if let Some(losses) = &losses {
        let (outages, fade) = outages(losses, fade.as_ref(), options.losses_in, &mut notes);
        for (pipe, direction) in
            [(&mut forward, Direction::Forward), (&mut back, Direction::Return)]
        {
            if options.losses_in == direction || options.losses_in == Direction::Both {
                pipe.outages.clone_from(&outages);
                pipe.fade = fade;
            }
        }
    } else {
        notes.unidentified.push("losses: none were published; the profile has none".into());
    }
    split(measured, options, &delays, &mut forward, &mut back, &mut notes)?;
    if let Some(found) = &reconfiguration {
        reconfigure(found, measured, options, &mut forward, &mut back, &mut notes);
    }
    notes.unidentified.extend(measured.unidentified.map(str::to_owned));
    let Source { name, format, sha256 } = measured.source;
    let provenance = pb::Provenance {
        source: name.clone(),
        format: format.name().into(),
        sha256: sha256.clone(),
        samples: measured.samples,
        lost: measured.lost,
        interval_ns: measured.interval_ns,
        estimates: notes.estimates,
        goodness: notes.goodness,
        unidentified: notes.unidentified,
        remarks: measured.remarks.clone(),
        sensitivities: Vec::new(),
    };
    let profile = pb::Profile {
        name: options.name.clone(),
        description: options.description.clone(),
        source: name.clone(),
        forward_pipe: Some(forward),
        return_pipe: Some(back),
        provenance: Some(provenance),
        group: String::new(),
    };
    let profile = Profile::try_from(profile).map_err(FitError::Schema)?;
    Ok(Fitted { profile, losses, fade, delays, reconfiguration })
}
