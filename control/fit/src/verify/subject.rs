// SPDX-License-Identifier: Apache-2.0
//! Measuring a live link like its baseline was measured, and checking that two logs can be compared.

use probe::{Extent, Plan, Target};
use profile::format_duration;
use std::path::Path;
use std::time::Duration;

use super::comparison::length;
use super::play::PlayError;
use crate::baseline::{Baseline, Spacing};
use crate::delay::estimate::LEAST_SAMPLES;
use crate::digits::four_digits;
use crate::emulator::{CertificateError, certify};
use crate::read::{self, Input, ReadError};
use crate::seconds;
use crate::work::Cancelled;

/// Largest relative difference of the probing intervals of two logs that are compared.
const INTERVALS: f64 = 0.05;

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A log is too short for any figure.
    #[error(
        "{name}: {count} {of} are too few to compare, which needs {LEAST_SAMPLES}: probe for {} or \
         longer",
        length(*needed_s)
    )]
    TooFew {
        name: String,
        count: usize,
        of: &'static str,
        /// Length of a log that has enough, in seconds.
        needed_s: f64,
    },
    /// The log was probed at other intervals than the baseline.
    #[error(
        "{name}: it was probed at {log}, the baseline at {baseline}: episodes and runs of losses \
         would differ for that alone; probe both alike"
    )]
    Intervals { name: String, log: String, baseline: String },
    /// The file has published figures.
    #[error("{0}: it is no log of probes")]
    NoLog(String),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The certificate does not vouch for the log.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The profile cannot be played.
    #[error(transparent)]
    Play(#[from] PlayError),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// Checks that a baseline is long enough to compare any figure.
///
/// # Errors
/// [`VerifyError::TooFew`]
pub fn check_baseline(input: &Input) -> Result<(), VerifyError> {
    match input {
        Input::Log(log) => enough(log, log.series.len() - log.series.lost(), "round trips"),
        Input::Summary(_) => Ok(()),
    }
}

/// Plans to probe a live link for `duration`, at the intervals of the baseline.
#[must_use]
pub fn live_plan(baseline: &Input, target: Target, duration: Duration) -> Plan {
    let (interval_ns, spacing) = intervals(baseline);
    Plan {
        interval: Duration::from_nanos(four_digits(interval_ns)),
        spacing: match spacing {
            Some(Spacing::Poisson) => probe::Spacing::Poisson { seed: None },
            Some(Spacing::Constant | Spacing::Irregular) | None => probe::Spacing::Constant,
        },
        extent: Extent::Duration(duration),
        ..Plan::new(target)
    }
}

/// Reads a log that was measured over the link, and the certificate of the emulator's run if given.
///
/// # Errors
/// If the file is not a log in a format that needs no options, or the certificate does not vouch for
/// it.
pub fn read_log(path: &Path, certificate: Option<&Path>) -> Result<Baseline, VerifyError> {
    let mut input = read::read(path, &read::Options::default())?;
    if let (Input::Log(_), Some(certificate)) = (&input, certificate) {
        certify(&mut input, certificate)?;
    }
    match input {
        Input::Log(log) => Ok(log),
        Input::Summary(_) => Err(VerifyError::NoLog(path.display().to_string())),
    }
}

/// Checks that a log is long enough and was probed like the baseline.
pub(super) fn check_log(baseline: &Input, log: &Baseline) -> Result<(), VerifyError> {
    // Lost probes count: if nearly all are lost, the comparison shows that.
    enough(log, log.series.len(), "probes")?;
    let (interval_ns, spacing) = intervals(baseline);
    let difference = log.interval_ns.abs_diff(interval_ns) as f64;
    if difference <= INTERVALS * interval_ns as f64 && spacing.is_none_or(|s| s == log.spacing) {
        return Ok(());
    }
    let text = |ns: u64, spacing| {
        let kind = if spacing == Spacing::Poisson { "exponential " } else { "" };
        format!("{kind}intervals of {}", format_duration(four_digits(ns)))
    };
    Err(VerifyError::Intervals {
        name: log.source.name.clone(),
        log: text(log.interval_ns, log.spacing),
        baseline: text(interval_ns, spacing.unwrap_or(Spacing::Constant)),
    })
}

/// Probing interval in ns, and the spacing if it is known.
fn intervals(input: &Input) -> (u64, Option<Spacing>) {
    match input {
        Input::Log(log) => (log.interval_ns, Some(log.spacing)),
        Input::Summary(summary) => (summary.interval_ns, None),
    }
}

fn enough(log: &Baseline, count: usize, of: &'static str) -> Result<(), VerifyError> {
    if count >= LEAST_SAMPLES {
        return Ok(());
    }
    let probes = LEAST_SAMPLES as f64 * log.series.len() as f64 / count.max(1) as f64;
    let needed_s = probes * seconds(log.interval_ns);
    Err(VerifyError::TooFew { name: log.source.name.clone(), count, of, needed_s })
}
