// SPDX-License-Identifier: Apache-2.0
//! Reading a trace of delay and loss from CSV or Parquet ([`trace::read_path`]), as with a rate trace.

use crate::limits::PATH_TRACE_DELAYS_NS_ITEMS;
use crate::rate_file::{TraceError, enough};
use proto::linkemu::v1 as pb;
use std::path::Path;

/// Reads a trace in steps of about `step_ns`, by default those of its rows. Returns it with notes
/// for users.
///
/// # Errors
/// If it is not a trace, or has more steps than a profile can hold.
pub fn read_path_trace(
    path: &Path,
    step_ns: Option<u64>,
) -> Result<(pb::PathTrace, Vec<String>), TraceError> {
    let trace::PathSteps { step_ns, delays_ns, losses, remarks } = trace::read_path(path, step_ns)?;
    enough(delays_ns.len().max(losses.len()), step_ns, *PATH_TRACE_DELAYS_NS_ITEMS.end())?;
    Ok((pb::PathTrace { step_ns, delays_ns, losses, begin_ns: 0 }, remarks))
}
