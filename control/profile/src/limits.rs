// SPDX-License-Identifier: Apache-2.0
//! The limits that a profile must keep: those of single parameters, from `linkemu/v1/model.proto`,
//! and those of texts, whole messages and files. Ranges include both ends.

pub use proto::limits::*;

/// One full Ethernet frame with a VLAN tag: the least that a queue must hold.
pub const FRAME_BYTES: u64 = *QUEUE_LIMIT_BYTES.start();
/// The least shape of the generalized Pareto distribution (its mean exists below 1).
pub const SHAPE_MIN: f64 = -1.0;
/// The shape must be below this.
pub const SHAPE_BELOW: f64 = 1.0;
pub const NAME_CHARS: usize = 64;
/// Bytes of a description, of a source, and of each text of a provenance.
pub const TEXT_BYTES: usize = 4_096;
/// Bytes of all texts of a provenance.
pub const PROVENANCE_BYTES: usize = 64 << 10;
/// A profile's message has fewer bytes: two full rate traces and all else at its
/// limits.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// Bytes of a profile's TOML: the same, with every rate at its longest, written as
/// "399.999999999 Gbit/s".
pub const FILE_BYTES: usize = 4 << 20;
