// SPDX-License-Identifier: Apache-2.0
//! Refusals of requests as gRPC statuses with details.

use crate::caller::{Caller, Role};
use profile::{StoreError, Violations};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) use owner::{clip, invalid};

const REQUEST_ID_BYTES: usize = 128;
/// The reason of a refusal because of the role, for programs.
const ROLE_NEEDED: &str = "ROLE_NEEDED";

/// One field that cannot be.
pub(crate) fn field(path: &str, message: impl Into<String>) -> Status {
    let mut found = Violations::default();
    found.push(path, message);
    invalid("the request", &found)
}

/// The caller needs another role for `what`.
pub(crate) fn denied(caller: &Caller, what: &str, needed: Role) -> Status {
    let Caller { name, role, .. } = caller;
    let message = if caller.session.is_some() {
        format!(
            "{what} needs the role {needed}, and the session of {name:?} has {role}: log in with a \
             link for that role (linkctl web --role {needed})"
        )
    } else {
        format!(
            "{what} needs the role {needed}, and the certificate of {name:?} gives {role}: ask for \
             one with that role (linkctl pki client --role {needed})"
        )
    };
    let facts = [("needed", needed.as_str()), ("role", role.as_str()), ("method", what)];
    let facts = facts.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let details = ErrorDetails::with_error_info(ROLE_NEEDED, "linkemu", facts);
    Status::with_error_details(Code::PermissionDenied, message, details)
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
