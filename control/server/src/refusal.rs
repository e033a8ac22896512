// SPDX-License-Identifier: Apache-2.0
//! Why a request is refused, as gRPC statuses with details.
//!
//! A status travels in HTTP/2 headers, whose size is limited: messages are
//! clipped and long lists cut.

use profile::{StoreError, Violations};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

const MESSAGE_CHARS: usize = 400;
const VIOLATIONS: usize = 16;
const REQUEST_ID_BYTES: usize = 128;

/// At most `MESSAGE_CHARS` of a text.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Broken rules of `what`.
pub(crate) fn invalid(what: &str, found: &Violations) -> Status {
    let first = found.iter().next().map(ToString::to_string).unwrap_or_default();
    let more = match found.len() {
        0 | 1 => String::new(),
        n => format!(" (and {} more)", n - 1),
    };
    let fields: Vec<_> = found
        .iter()
        .take(VIOLATIONS)
        .map(|v| FieldViolation::new(clip(&v.path), clip(&v.message)))
        .collect();
    let message = format!("{what} is refused: {}{more}", clip(&first));
    Status::with_error_details(
        Code::InvalidArgument,
        message,
        ErrorDetails::with_bad_request(fields),
    )
}

/// One field that cannot be.
pub(crate) fn field(path: &str, message: impl Into<String>) -> Status {
    let mut found = Violations::default();
    found.push(path, message);
    invalid("the request", &found)
}

/// A profile that is not there.
pub(crate) fn no_profile(name: &str, nearest: Option<&str>) -> Status {
    let remedy = match nearest {
        Some(near) => format!("the nearest is {near:?}"),
        None => "see `linkctl profile list`".to_owned(),
    };
    let message = format!("no profile is named {:?}: {remedy}", clip(name));
    let details = ErrorDetails::with_resource_info("profile", clip(name), "", message.clone());
    Status::with_error_details(Code::NotFound, message, details)
}

/// A name of a request that is too long.
pub(crate) fn check_request_id(id: &str) -> Result<(), Status> {
    match id.len() {
        n if n > REQUEST_ID_BYTES => {
            let message = format!("{n} bytes are longer than {REQUEST_ID_BYTES}: shorten it");
            Err(field("request_id", message))
        }
        _ => Ok(()),
    }
}

/// A profile that cannot be stored or removed.
pub(crate) fn not_stored(error: StoreError) -> Status {
    let code = match error {
        StoreError::Fixed { .. } => Code::FailedPrecondition,
        StoreError::Exists(_) => Code::AlreadyExists,
        StoreError::Marked(_) => Code::InvalidArgument,
        StoreError::Missing(_) => Code::NotFound,
        StoreError::Full => Code::ResourceExhausted,
    };
    Status::new(code, clip(&error.to_string()))
}

/// A change that was made for another generation.
pub(crate) fn other_generation(expected: u64, in_force: u64) -> Status {
    Status::aborted(format!(
        "generation {expected} was expected and {in_force} is in force: someone else changed the \
         link; look at it (`linkctl show`) and decide anew"
    ))
}

/// A change to a link that nothing was set on.
pub(crate) fn no_link() -> Status {
    Status::failed_precondition(
        "no profile is in force yet: set one first, such as `linkctl set profile viasat2`",
    )
}
