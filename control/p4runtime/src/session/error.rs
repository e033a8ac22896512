// SPDX-License-Identifier: Apache-2.0
//! Errors of a session, with the switch's own message if it has one.

use super::Change;
use crate::entry::EntryError;
use crate::info::InfoError;
use crate::proto::google::rpc;
use crate::proto::p4::v1 as p4;
use prost::Message;
use std::time::Duration;
use tonic::{Code, Status};

/// Maximum number of characters kept of a switch's message.
const WORDS: usize = 300;
/// Maximum number of failures that an error lists.
const LISTED: usize = 3;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the switch at {address} cannot be reached: {why}; check its P4Runtime server, and `address` of [switch] in the box file"
    )]
    Unreachable { address: String, why: String },
    /// One side refuses the certificate of the other, or a file cannot be used.
    #[error("no TLS with the switch at {address}: {why}")]
    Tls { address: String, why: String },
    /// The switch has no device with our id.
    #[error(
        "the switch has no device {device}: {message}; set `device` of [switch] in the box file to the id that the switch was started with"
    )]
    NoDevice { device: u64, message: String },
    /// The switch did not load the program.
    #[error(
        "the switch does not load the program as its device {device}: {message} ({code:?}); check `device` and `target` of [switch] in the box file"
    )]
    NotLoaded { device: u64, code: Code, message: String },
    #[error("the switch has not answered {what} within {} s", limit.as_secs())]
    Deadline { what: &'static str, limit: Duration },
    /// Another controller is the primary.
    #[error("the switch takes orders from another controller: {message}")]
    NotPrimary { message: String },
    #[error("the switch has no program: {message}")]
    NoProgram { message: String },
    /// The switch refuses the call, or the connection broke.
    #[error("the switch refuses: {message} ({code:?})")]
    Refused { code: Code, message: String },
    /// The switch rejected some of the changes.
    #[error("the switch has not made {} of the changes: {}", .0.len(), listed(.0))]
    Rejected(Vec<Failure>),
    /// The answer is not possible for our program.
    #[error("the switch answers {what}: it runs another program, or is not a P4Runtime server")]
    Strange { what: String },
    /// The cell does not exist.
    #[error("{counter} has {size} cells: use a smaller index")]
    Index { counter: String, size: u64 },
    /// The stream ended.
    #[error("the switch has ended the session")]
    Ended,
    /// An entry cannot be encoded or decoded.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The program lacks a named object.
    #[error(transparent)]
    Info(#[from] InfoError),
}

/// A change that the switch rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub change: Change,
    /// gRPC status code, such as `AlreadyExists`.
    pub code: Code,
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

    /// A refusal of a call that is about the device as a whole.
    pub(super) fn of_device(self, device: u64) -> Self {
        match self {
            Self::Refused { code: Code::NotFound, message } => Self::NoDevice { device, message },
            other => other,
        }
    }

    pub(super) fn unreachable(address: &str, error: &tonic::transport::Error) -> Self {
        // The innermost cause states the reason; the outer ones only the place.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Self::Unreachable { address: words(address), why: words(&cause.to_string()) }
    }
}

/// True if the connection broke during a call, for which tonic makes up a status, or if what came was not
/// HTTP/2, such as an alert of TLS.
pub(super) fn is_broken(error: &Error) -> bool {
    let Error::Refused { code, message } = error else { return false };
    match code {
        Code::Unknown => message == "transport error",
        Code::Internal => message.starts_with("h2 protocol error"),
        _ => false,
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let message = words(status.message());
        match status.code() {
            Code::PermissionDenied => Self::NotPrimary { message },
            // Status codes of PI and other servers without a program.
            Code::FailedPrecondition if message.to_lowercase().contains("pipeline") => {
                Self::NoProgram { message }
            }
            code => Self::Refused { code, message },
        }
    }
}

/// A message of the switch, truncated and without control characters.
pub(super) fn words(said: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut words: String = said.chars().take(WORDS).map(printable).collect();
    if said.chars().nth(WORDS).is_some() {
        words.push_str("...");
    }
    words
}

/// The rejected changes, from the details of a write's status.
///
/// # Errors
/// If the status concerns the whole call.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::proto::p4::v1 as p4;
    use proptest::prelude::*;

    fn changes(count: u8) -> Vec<Change> {
        (0..count).map(|n| Change::Insert(Entry::new("t").exact("k", n))).collect()
    }

    fn status(codes: &[Code]) -> Status {
        let detail = |code: &Code| prost_types::Any {
            type_url: "type.googleapis.com/p4.v1.Error".into(),
            value: p4::Error {
                canonical_code: (*code).into(),
                message: "Match entry\nexists".into(),
                ..Default::default()
            }
            .encode_to_vec(),
        };
        let details = codes.iter().map(detail).collect();
        let details = rpc::Status { code: 2, message: String::new(), details };
        Status::with_details(Code::Unknown, "", details.encode_to_vec().into())
    }

    #[test]
    fn rejected_changes_are_reported_with_the_switch_message() {
        let status = status(&[Code::Ok, Code::AlreadyExists, Code::Ok]);
        let failed = failures(&changes(3), &status).unwrap();
        assert_eq!(failed.len(), 1);
        let said = Error::Rejected(failed).to_string();
        assert!(said.contains("insert t[k=0x1]"), "{said}");
        assert!(said.contains("Match entry exists (AlreadyExists)"), "{said}");
    }

    #[test]
    fn status_without_details_concerns_the_whole_call() {
        for (codes, count) in [(&[Code::Ok, Code::NotFound][..], 3), (&[Code::Ok; 3], 3), (&[], 1)]
        {
            let said = failures(&changes(count), &status(codes));
            assert!(matches!(said, Err(Error::Refused { .. })), "{said:?}");
        }
    }

    #[test]
    fn status_codes_map_to_not_primary_and_no_program() {
        let of = |status: Status| Error::from(status);
        assert!(matches!(of(Status::permission_denied("x")), Error::NotPrimary { .. }));
        let none = Status::failed_precondition("No forwarding pipeline config set");
        assert!(matches!(of(none), Error::NoProgram { .. }));
        let other = Status::failed_precondition("something else");
        assert!(matches!(of(other), Error::Refused { .. }));
    }

    #[test]
    fn switch_message_is_truncated_to_one_line() {
        let said = words(&"a\u{1b}[2J\n".repeat(1000));
        assert!(said.chars().count() <= WORDS + 3);
        assert!(!said.chars().any(char::is_control));
    }

    proptest! {
        #[test]
        fn any_status_details_decode_without_panic(details: Vec<u8>, count in 0u8..4) {
            let status = Status::with_details(Code::Unknown, "", details.into());
            if let Ok(failed) = failures(&changes(count), &status) {
                prop_assert!(!failed.is_empty() && failed.len() <= count.into());
            }
        }
    }
}
