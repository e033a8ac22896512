// SPDX-License-Identifier: Apache-2.0
//! Refusals of requests as gRPC statuses with details.

use profile::{StoreError, Violations};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) use owner::{clip, invalid};

const REQUEST_ID_BYTES: usize = 128;

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
