// SPDX-License-Identifier: Apache-2.0
//! Errors of writing and resuming a log.

use std::io;
use std::path::{Path, PathBuf};

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file is there.
    #[error("{} exists: give --resume to go on with it, or another -w", .0.display())]
    Exists(PathBuf),
    /// Another process has it.
    #[error("{} is being written by another sender: stop that, or give another -w", .0.display())]
    Busy(PathBuf),
    /// It is something else.
    #[error("{} is not a log that can be resumed: {why}; give another -w", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It was made otherwise.
    #[error(
        "{} has {}: a log has one of each, so give the same again, or another -w",
        path.display(),
        .differences.join(", ")
    )]
    Different {
        /// The file.
        path: PathBuf,
        /// Each as `key = there, not here`.
        differences: Vec<String>,
    },
    /// The system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

pub(super) fn failed<'a, E: Into<io::Error>>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(E) -> LogError + 'a {
    move |source| LogError::Io { what, path: path.into(), source: source.into() }
}
