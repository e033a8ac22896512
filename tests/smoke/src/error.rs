// SPDX-License-Identifier: Apache-2.0
//! Errors while a test bed is built, run or read.

use std::io;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A command ended in an unexpected way.
    #[error("`{command}` ended with {outcome}: {stderr}")]
    Command { command: String, outcome: String, stderr: String },
    /// A condition was not met in time.
    #[error("{what}: not within {limit:?}")]
    Timeout { what: String, limit: Duration },
    #[error("{what} cannot be read: {detail}")]
    Parse {
        what: String,
        /// Position and kind of the error.
        detail: String,
    },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn parse(what: impl Into<String>, detail: impl ToString) -> Self {
        Self::Parse { what: what.into(), detail: detail.to_string() }
    }
}

/// Adds the attempted action to an error of the operating system.
pub trait Trying<T> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Trying<T> for std::result::Result<T, E> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::Io { what: what(), source: e.into() })
    }
}
