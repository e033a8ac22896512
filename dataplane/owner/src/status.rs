// SPDX-License-Identifier: Apache-2.0
//! Broken rules as gRPC statuses with details (google.rpc.BadRequest).
//!
//! A status travels in HTTP/2 headers, which have a limited size: messages are clipped and long
//! lists are cut.

use profile::Violations;
use proto::link_id;
use tonic::codegen::Bytes;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

const MESSAGE_CHARS: usize = 400;
const VIOLATIONS: usize = 16;

/// At most 400 characters of a text.
#[must_use]
pub fn clip(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The status of one of several links, with its name in the message.
#[must_use]
pub fn of_link(link: &str, status: &Status) -> Status {
    let message = format!("link `{}`: {}", clip(link_id(link)), status.message());
    let details = Bytes::copy_from_slice(status.details());
    Status::with_details(status.code(), message, details)
}

/// The status of one of `n` links: with its name if there are several.
#[must_use]
pub fn among(n: usize, link: &str, status: Status) -> Status {
    if n == 1 { status } else { of_link(link, &status) }
}

/// INVALID_ARGUMENT: rules that `what` breaks. The message has the first one, the details have up
/// to 16.
#[must_use]
pub fn invalid(what: &str, found: &Violations) -> Status {
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
