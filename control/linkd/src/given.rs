// SPDX-License-Identifier: Apache-2.0
//! The profile in a request: a message, or the TOML text of a profile file. And parts of one.

use crate::refusal;
use profile::{Part, Profile, Violations};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tokio::task::spawn_blocking;
use tonic::Status;

/// Parses a profile from TOML, off the event loop: parsing 1 MiB takes milliseconds.
///
/// # Errors
/// If linkd shuts down. The inner error lists the violations of the profile.
pub(crate) async fn text(toml: String) -> Result<Result<Profile, Violations>, Status> {
    spawn_blocking(move || Profile::from_toml(&toml))
        .await
        .map_err(|_| Status::unavailable("linkd ends, and the profile was not read: send it again"))
}

/// The profile of a request that has either of both.
///
/// # Errors
/// If the request has none or both. The inner error lists the violations of the profile.
pub(crate) async fn profile(
    profile: Option<pb::Profile>,
    toml: String,
) -> Result<Result<Profile, Violations>, Status> {
    match (profile, toml.is_empty()) {
        (Some(profile), true) => Ok(Profile::try_from(profile)),
        (None, false) => text(toml).await,
        (None, true) => Err(refusal::field("profile", "missing: give a whole profile, or `toml`")),
        (Some(_), false) => {
            Err(refusal::field("toml", "given beside `profile`: give one of the two"))
        }
    }
}

/// A part of a pipe as a message.
pub(crate) fn part(direction: i32, part: &Part) -> dp::Part {
    let paths = part.paths.iter().map(|path| (*path).to_owned()).collect();
    let mask = Some(prost_types::FieldMask { paths });
    dp::Part { direction, pipe: Some(part.pipe.clone()), mask }
}
