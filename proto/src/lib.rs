// SPDX-License-Identifier: Apache-2.0
//! Messages and services generated from `linkemu/v1` and `dataplane/v1`.
//!
//! The `.proto` files have the documentation.

mod finding;
mod json;
mod stats;

pub use json::{Json, POOL, comment, from_json, json};
pub use stats::{EXPIRED, add};

/// The public packages, nested as the protos name them.
#[allow(clippy::all)]
pub mod linkemu {
    pub mod v1 {
        tonic::include_proto!("linkemu.v1");
    }
}

/// The packages between linkd and the dataplane.
#[allow(clippy::all)]
pub mod dataplane {
    pub mod v1 {
        tonic::include_proto!("dataplane.v1");
    }
}

/// State of linkd on disk.
#[allow(clippy::all)]
pub mod linkd {
    pub mod v1 {
        tonic::include_proto!("linkd.v1");
    }
}

impl linkemu::v1::ScenarioState {
    /// True from the start of the scenario until it has finished or stopped.
    #[must_use]
    pub fn runs(&self) -> bool {
        use linkemu::v1::ScenarioPhase::{Paused, Running, Waiting};
        [Running, Waiting, Paused].contains(&self.phase())
    }
}

impl linkemu::v1::Queue {
    /// True if it has an AQM besides tail drop.
    #[must_use]
    pub fn has_aqm(&self) -> bool {
        let Self { random_drop, red, codel, pie, .. } = self;
        random_drop.is_some() || red.is_some() || codel.is_some() || pie.is_some()
    }
}

/// One change, of one link.
impl From<dataplane::v1::LinkChange> for dataplane::v1::ApplyRequest {
    fn from(change: dataplane::v1::LinkChange) -> Self {
        Self { changes: vec![change] }
    }
}

impl dataplane::v1::ApplyResponse {
    /// The link after a request of one change.
    #[must_use]
    pub fn into_one(mut self) -> dataplane::v1::LinkChanged {
        self.changes.pop().unwrap_or_default()
    }
}

/// One change, of one link, without a key.
impl From<linkemu::v1::LinkUpdate> for linkemu::v1::UpdateLinksRequest {
    fn from(update: linkemu::v1::LinkUpdate) -> Self {
        Self { updates: vec![update], ..Self::default() }
    }
}

/// Of the link of the metadata, whatever its generation, and only inside of the envelope.
impl From<linkemu::v1::ProfileUpdate> for linkemu::v1::LinkUpdate {
    fn from(profile: linkemu::v1::ProfileUpdate) -> Self {
        Self { profile: Some(profile), ..Self::default() }
    }
}

/// As that of a profile.
impl From<linkemu::v1::PipeUpdate> for linkemu::v1::LinkUpdate {
    fn from(pipe: linkemu::v1::PipeUpdate) -> Self {
        Self { pipes: vec![pipe], ..Self::default() }
    }
}

/// As that of a profile.
impl From<linkemu::v1::Clients> for linkemu::v1::LinkUpdate {
    fn from(clients: linkemu::v1::Clients) -> Self {
        Self { clients: Some(clients), ..Self::default() }
    }
}

impl linkemu::v1::UpdateLinksResponse {
    /// The link after a request of one change.
    #[must_use]
    pub fn into_one(mut self) -> linkemu::v1::Link {
        self.links.pop().unwrap_or_default()
    }
}

/// Metadata key of a lease token (`linkemu/v1/lease.proto`).
pub const LEASE_METADATA: &str = "linkemu-lease";

/// Metadata key of the link that a request is about (`dataplane/v1/dataplane.proto`).
pub const LINK_METADATA: &str = "linkemu-link";

/// The link that always exists.
pub const MAIN_LINK: &str = "main";

/// Prefix of the resource names of links.
const LINKS: &str = "links/";

/// The resource name of a link, such as `links/lab1`.
#[must_use]
pub fn link_name(id: &str) -> String {
    format!("{LINKS}{id}")
}

/// The id of a link, such as `lab1`, from its resource name; an id stays as it is.
#[must_use]
pub fn link_id(name: &str) -> &str {
    name.strip_prefix(LINKS).unwrap_or(name)
}

/// Metadata key of a controller token (`dataplane/v1/dataplane.proto`).
pub const TOKEN_METADATA: &str = "linkemu-token";

/// Ranges of parameters in the units of their fields, from the field option
/// (`linkemu/v1/parameter.proto`).
pub mod limits {
    use std::ops::RangeInclusive;

    include!(concat!(env!("OUT_DIR"), "/limits.rs"));
}

/// All protos as a `google.protobuf.FileDescriptorSet`, as gRPC reflection serves them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
