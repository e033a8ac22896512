// SPDX-License-Identifier: Apache-2.0
//! Messages and services generated from `linkemu/v1` and `dataplane/v1`.
//!
//! The documentation is that of the `.proto` files.
#![allow(clippy::all)]

pub mod method;

/// The public packages, nested as the protos name them.
pub mod linkemu {
    pub mod v1 {
        tonic::include_proto!("linkemu.v1");
    }
}

/// The packages between linkd and the dataplane.
pub mod dataplane {
    pub mod v1 {
        tonic::include_proto!("dataplane.v1");
    }
}

/// What linkd keeps on disk.
pub mod linkd {
    pub mod v1 {
        tonic::include_proto!("linkd.v1");
    }
}

impl linkemu::v1::ScenarioState {
    /// Whether a scenario runs: it has begun and not come to its end, whatever that is.
    #[must_use]
    pub fn runs(&self) -> bool {
        use linkemu::v1::ScenarioPhase::{Paused, Running, Waiting};
        [Running, Waiting, Paused].contains(&self.phase())
    }
}

impl linkemu::v1::Queue {
    /// Whether it has an AQM, and does not drop from the tail alone.
    #[must_use]
    pub fn has_aqm(&self) -> bool {
        let Self { random_drop, red, codel, pie, .. } = self;
        random_drop.is_some() || red.is_some() || codel.is_some() || pie.is_some()
    }
}

/// The metadata that carries the token of a lease (`linkemu/v1/lease.proto`).
pub const LEASE_METADATA: &str = "linkemu-lease";

/// The metadata that carries the token of a controller (`dataplane/v1/dataplane.proto`).
pub const TOKEN_METADATA: &str = "linkemu-token";

/// The ranges of parameters, from their fields' option (`linkemu/v1/parameter.proto`), in the
/// units of the fields.
pub mod limits {
    use std::ops::RangeInclusive;

    include!(concat!(env!("OUT_DIR"), "/limits.rs"));
}

/// All protos as a `google.protobuf.FileDescriptorSet`, as gRPC reflection serves them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
