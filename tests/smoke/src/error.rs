// SPDX-License-Identifier: Apache-2.0
//! What can go wrong while a test bed is built, run or read.

use std::io;
use std::time::Duration;

/// An error of the test bed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A command ended otherwise than it should.
    #[error("`{command}` ended with {outcome}: {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        outcome: String,
        /// What it said.
        stderr: String,
    },
    /// A condition did not come true in time.
    #[error("{what}: not within {limit:?}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// Output that does not have the form it should.
    #[error("{what} cannot be read: {detail}")]
    Parse {
        /// The output's origin.
        what: String,
        /// Where it departs from the form.
        detail: String,
    },
}

/// A result of the test bed.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A parse error.
    pub fn parse(what: impl Into<String>, detail: impl ToString) -> Self {
        Self::Parse { what: what.into(), detail: detail.to_string() }
    }
}

/// Says what was tried when the system refuses it.
pub trait Trying<T> {
    /// Turns the system's error into one that says what was tried.
    ///
    /// # Errors
    /// The error it was given, with `what` in front.
    fn trying(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Trying<T> for std::result::Result<T, E> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::Io { what: what(), source: e.into() })
    }
}
