// SPDX-License-Identifier: Apache-2.0
//! Errors of writing and resuming a log.

use std::io;
use std::path::{Path, PathBuf};

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{} exists: give --resume to go on with it, or another -w", .0.display())]
    Exists(PathBuf),
    #[error("{} is being written by another sender: stop that, or give another -w", .0.display())]
    Busy(PathBuf),
    #[error("{} is not a log that can be resumed: {why}; give another -w", path.display())]
    Foreign {
        path: PathBuf,
        /// Reason why it is no log.
        why: String,
    },
    #[error(
        "{} has {}: a log has one of each, so give the same again, or another -w",
        path.display(),
        .differences.join(", ")
    )]
    Different {
        path: PathBuf,
        /// Entries `key = VALUE IN THE LOG, not VALUE OF THE PLAN`.
        differences: Vec<String>,
    },
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

pub(super) fn failed<'a, E: Into<io::Error>>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(E) -> LogError + 'a {
    move |source| LogError::Io { what, path: path.into(), source: source.into() }
}
