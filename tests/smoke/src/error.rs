// SPDX-License-Identifier: Apache-2.0
//! What can go wrong while a test bed is built, run or read.

use std::io;
use std::time::Duration;

/// An error of the test bed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A command ended otherwise than it should.
    #[error("`{command}` ended with {outcome}: {stderr}")]
    Command { command: String, outcome: String, stderr: String },
    /// A condition did not come true in time.
    #[error("{what}: not within {limit:?}")]
    Timeout { what: String, limit: Duration },
    /// Output that does not have the form it should.
    #[error("{what} cannot be read: {detail}")]
    Parse {
        what: String,
        /// Where it departs from the form.
        detail: String,
    },
}

/// A result of the test bed.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn parse(what: impl Into<String>, detail: impl ToString) -> Self {
        Self::Parse { what: what.into(), detail: detail.to_string() }
    }
}

/// Says what was tried when the system refuses it.
pub trait Trying<T> {
    /// Turns the system's error into one that says what was tried.
    fn trying(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Trying<T> for std::result::Result<T, E> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::Io { what: what(), source: e.into() })
    }
}
