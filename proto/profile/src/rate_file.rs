// SPDX-License-Identifier: Apache-2.0
//! Reading a rate trace from a file: mahimahi, CSV or Parquet ([`trace`]). A mahimahi trace without a step
//! becomes single opportunities.
//!
//! The process that reads a profile's file also reads the trace file it names. The message contains
//! rates and never a file name, so a request cannot make another process open a file. A text
//! without a file, for example of a request, cannot name one.

use crate::limits::{OPPORTUNITIES_RUNS_ITEMS, PIPE_RATE_BPS, RATE_TRACE_RATES_BPS_ITEMS};
use crate::{Rate, format_duration};
use proto::linkemu::v1 as pb;
use std::path::{Component, Path, PathBuf};
use trace::{Opportunities, RateError, RateFile, RateFormat, RateSteps, read_rate};

/// Finest step of a mahimahi trace, ns.
const MS: u64 = 1_000_000;
/// Factor of the steps in an item of runs; the opportunities in it are fewer.
const RUN: u64 = 16;

#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    pub trace: pb::RateTrace,
    /// Notes about the conversion, for users.
    pub remarks: Vec<String>,
}

/// Reason why a file is not a usable rate trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or parsed.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// More steps than a profile can hold.
    #[error(
        "{count} steps of {} are more than the {} that a profile holds: {} each are few enough",
        format_duration(*step_ns), RATE_TRACE_RATES_BPS_ITEMS.end(), format_duration(*enough_ns)
    )]
    Steps {
        count: usize,
        step_ns: u64,
        /// A step length that fits, ns.
        enough_ns: u64,
    },
    /// More instants than a profile can hold.
    #[error(
        "{count} runs of opportunities are more than the {} that a profile holds: write a step, \
         over which they are averaged",
        OPPORTUNITIES_RUNS_ITEMS.end()
    )]
    Runs { count: usize },
    /// The profile was not read from a file.
    #[error(
        "a file is looked for beside the profile's file, and this text came without one: write \
         step and rates, or set a profile that has it"
    )]
    Alone,
    #[error("{0:?} is no file beside the profile: write its name, without .. or / in front")]
    Elsewhere(String),
}

/// Reads a trace in steps of about `step_ns`. Default: the opportunities of mahimahi, or the rows of
/// a CSV.
///
/// # Errors
/// If it is not a trace, or has more steps than a profile can hold.
pub fn read_trace(path: &Path, step_ns: Option<u64>) -> Result<TraceFile, TraceError> {
    match read_rate(path, step_ns)? {
        RateFile::Steps(steps) => of_steps(steps),
        RateFile::Opportunities(found) => of_opportunities(&found),
    }
}

fn of_opportunities(found: &Opportunities) -> Result<TraceFile, TraceError> {
    let (count, most) = (packed(&found.runs).count(), *OPPORTUNITIES_RUNS_ITEMS.end());
    if count > most {
        return Err(TraceError::Runs { count });
    }
    let size_bytes = u32::try_from(found.bytes).unwrap_or(u32::MAX);
    let runs = packed(&found.runs).collect();
    let opportunities = Some(pb::Opportunities { size_bytes, runs });
    let trace = pb::RateTrace { step_ns: found.step_ns, opportunities, ..Default::default() };
    Ok(TraceFile { trace, remarks: Vec::new() })
}

/// The items of `Opportunities.runs`: a run with too many opportunities for one is several.
fn packed(runs: &[(u64, u64)]) -> impl Iterator<Item = u64> {
    let most = RUN - 1;
    runs.iter().flat_map(move |(gap, count)| {
        let first = gap * RUN + count.min(&most);
        let rest = count.saturating_sub(most);
        let full = std::iter::repeat_n(most, usize::try_from(rest / most).unwrap_or(0));
        std::iter::once(first).chain(full).chain(Some(rest % most).filter(|rest| *rest > 0))
    })
}

/// The items of `Opportunities.runs`: for each the steps since the item before, and the opportunities after
/// them.
pub fn opportunity_runs(runs: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    runs.iter().map(|run| (run / RUN, run % RUN))
}

fn of_steps(steps: RateSteps) -> Result<TraceFile, TraceError> {
    let (count, most) = (steps.rates_bps.len(), *RATE_TRACE_RATES_BPS_ITEMS.end());
    let (step_ns, mut remarks) = (steps.step_ns, steps.remarks);
    enough(count, step_ns, most)?;
    let mut rates_bps = steps.rates_bps;
    let least = *PIPE_RATE_BPS.start();
    let mut slow = 0;
    // In mahimahi it is the remainder of an opportunity that is split by a step.
    let is_rest = |rate: u64| steps.format == RateFormat::Mahimahi && (1..least).contains(&rate);
    for rate in rates_bps.iter_mut().filter(|rate| is_rest(**rate)) {
        *rate = 0;
        slow += 1;
    }
    if slow > 0 {
        remarks.push(format!("{slow} steps of less than {} are down", Rate::from_bps(Some(least))));
    }
    let trace = pb::RateTrace { step_ns, rates_bps, ..Default::default() };
    Ok(TraceFile { trace, remarks })
}

/// Checks the number of steps.
pub(crate) fn enough(count: usize, step_ns: u64, most: usize) -> Result<(), TraceError> {
    if count <= most {
        return Ok(());
    }
    let whole = step_ns.saturating_mul(count as u64).div_ceil(most as u64);
    let enough_ns = whole.checked_next_multiple_of(MS).unwrap_or(u64::MAX);
    Err(TraceError::Steps { count, step_ns, enough_ns })
}

/// Path of a file that a profile in `directory` names.
pub(crate) fn beside(directory: Option<&Path>, name: &str) -> Result<PathBuf, TraceError> {
    let directory = directory.ok_or(TraceError::Alone)?;
    let path = Path::new(name);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if name.is_empty() || !path.components().all(plain) {
        return Err(TraceError::Elsewhere(name.chars().take(100).collect()));
    }
    Ok(directory.join(path))
}
