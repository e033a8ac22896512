// SPDX-License-Identifier: Apache-2.0
//! Arguments that name a profile or a file, as several commands take them.

use crate::failure::Failure;
use crate::terminal::warn;
use ::trace::RateError;
use profile::{Catalog, Profile, TraceError, format_duration, read_path_trace, read_trace};
use proto::linkemu::v1 as pb;
use std::path::Path;

/// Returns a built-in profile by its name, or reads one from a file.
pub fn profile(text: &str) -> Result<Profile, Failure> {
    if text.contains('/') || text.ends_with(".toml") {
        return Profile::from_file(Path::new(text))
            .map_err(|error| Failure::failed("profile", error.to_string()));
    }
    let catalog = Catalog::built_in();
    catalog.get(text).cloned().ok_or_else(|| {
        let near = catalog.nearest(text);
        let near = near.map_or(String::new(), |near| format!(": the nearest is {near:?}"));
        Failure::failed("not_found", format!("there is no built-in profile {text:?}{near}"))
            .hint("a profile of your own is a file: write its path, ending in .toml")
    })
}

/// Reads a rate trace, in steps of `step_ns` if given.
pub fn trace(path: &Path, step_ns: Option<u64>) -> Result<pb::RateTrace, Failure> {
    let read = read_trace(path, step_ns).map_err(|error| unread(path, &error))?;
    warn(&read.remarks);
    Ok(read.trace)
}

/// Reads a trace of delay and loss, in steps of `step_ns` if given.
pub fn path_trace(path: &Path, step_ns: Option<u64>) -> Result<pb::PathTrace, Failure> {
    let (trace, remarks) = read_path_trace(path, step_ns).map_err(|error| unread(path, &error))?;
    warn(&remarks);
    Ok(trace)
}

fn unread(path: &Path, error: &TraceError) -> Failure {
    let path = path.display();
    let message = match error {
        TraceError::Steps { enough_ns, .. } => format!(
            "{path}: {error}: --trace-step {} or longer",
            format_duration(*enough_ns).replace(' ', "")
        ),
        TraceError::Runs { .. } => format!("{path}: {error}: --trace-step 10ms"),
        TraceError::Rate(
            RateError::Io { .. } | RateError::NoFile { .. } | RateError::Bytes { .. },
        ) => error.to_string(),
        _ => format!("{path}: {error}"),
    };
    Failure::failed("trace", message)
}
