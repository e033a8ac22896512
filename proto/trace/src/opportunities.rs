// SPDX-License-Identifier: Apache-2.0
//! A mahimahi trace as single opportunities to send.

use crate::{RateError, times};

/// The opportunities of one turn of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Unit of the gaps.
    pub step_ns: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// Steps since the run before, or the start, and the number of opportunities then. The first
    /// gap may be zero, and no count is.
    pub runs: Vec<(u64, u64)>,
    pub name: String,
    /// SHA-256 of the file's bytes, in hexadecimal.
    pub sha256: String,
}

/// The opportunities of a file: milliseconds since the run before, and their number.
pub(crate) fn runs(bytes: &[u8]) -> Result<Vec<(u64, u64)>, RateError> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut last = 0;
    times(bytes, |ms| match runs.last_mut() {
        Some(run) if ms == last => run.1 += 1,
        _ => {
            runs.push((ms - last, 1));
            last = ms;
        }
    })?;
    Ok(runs)
}
