// SPDX-License-Identifier: Apache-2.0
//! Why a switch does not do what it is asked, in its own words as far as it has some.

use super::Change;
use crate::entry::EntryError;
use crate::info::InfoError;
use crate::proto::google::rpc;
use crate::proto::p4::v1 as p4;
use prost::Message;
use std::time::Duration;
use tonic::{Code, Status};

/// Characters of a switch's words that are kept.
const WORDS: usize = 300;
/// Failures that an error lists.
const LISTED: usize = 3;

/// An error of a session.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Nothing answers.
    #[error("the switch at {address} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        address: String,
        /// What the system said.
        why: String,
    },
    /// No answer in time.
    #[error("the switch has not answered {what} within {} s", limit.as_secs())]
    Deadline {
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        limit: Duration,
    },
    /// Another controller is the primary.
    #[error("the switch takes orders from another controller: {message}")]
    NotPrimary {
        /// The switch's words.
        message: String,
    },
    /// It has no program.
    #[error("the switch has no program: {message}")]
    NoProgram {
        /// The switch's words.
        message: String,
    },
    /// It refuses the call, or the connection broke.
    #[error("the switch refuses: {message} ({code:?})")]
    Refused {
        /// Of gRPC.
        code: Code,
        /// The switch's words.
        message: String,
    },
    /// It did not make some of the changes.
    #[error("the switch has not made {} of the changes: {}", .0.len(), listed(.0))]
    Rejected(Vec<Failure>),
    /// It answers what cannot be.
    #[error("the switch answers {what}: it runs another program, or is no P4Runtime server")]
    Strange {
        /// What.
        what: String,
    },
    /// A counter that is not there.
    #[error("{counter} has {size} cells: an index is less")]
    Index {
        /// By its name.
        counter: String,
        /// Cells.
        size: u64,
    },
    /// The stream has come to its end.
    #[error("the switch has ended the session")]
    Ended,
    /// An entry that cannot be said, or that came.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The program does not have it.
    #[error(transparent)]
    Info(#[from] InfoError),
}

/// A change that the switch did not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub change: Change,
    /// Of gRPC, such as `AlreadyExists`.
    pub code: Code,
    /// The switch's words.
    pub message: String,
}

fn listed(failures: &[Failure]) -> String {
    let listed = failures.iter().take(LISTED);
    let mut words: Vec<_> = listed
        .map(|Failure { change, code, message }| format!("{change}: {message} ({code:?})"))
        .collect();
    if failures.len() > LISTED {
        words.push("...".into());
    }
    words.join("; ")
}

impl Error {
    pub(super) fn strange(what: &str) -> Self {
        Self::Strange { what: words(what) }
    }

    pub(super) fn unreachable(address: &str, error: &tonic::transport::Error) -> Self {
        // The innermost cause says what happened; the outer ones only where.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Self::Unreachable { address: words(address), why: words(&cause.to_string()) }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let message = words(status.message());
        match status.code() {
            Code::PermissionDenied => Self::NotPrimary { message },
            // The codes of a server without a program: PI's, and others'.
            Code::FailedPrecondition if message.to_lowercase().contains("pipeline") => {
                Self::NoProgram { message }
            }
            code => Self::Refused { code, message },
        }
    }
}

/// A switch's words, of bounded length and without control characters.
pub(super) fn words(said: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut words: String = said.chars().take(WORDS).map(printable).collect();
    if said.chars().nth(WORDS).is_some() {
        words.push_str("...");
    }
    words
}

/// The changes that were not made, from the details of a write's status.
///
/// # Errors
/// The status is of the whole call.
pub(super) fn failures(changes: &[Change], status: &Status) -> Result<Vec<Failure>, Error> {
    let details = rpc::Status::decode(status.details()).unwrap_or_default().details;
    if details.len() != changes.len() {
        return Err(status.clone().into());
    }
    let mut failures = Vec::new();
    for (change, detail) in changes.iter().zip(details) {
        let error = p4::Error::decode(detail.value.as_slice());
        let error = error.map_err(|e| Error::strange(&format!("a damaged error: {e}")))?;
        let code = Code::from(error.canonical_code);
        if code != Code::Ok {
            let message = words(&error.message);
            failures.push(Failure { change: change.clone(), code, message });
        }
    }
    if failures.is_empty() { Err(status.clone().into()) } else { Ok(failures) }
}
