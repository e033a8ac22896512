// SPDX-License-Identifier: Apache-2.0
//! Limits of a profile: of single parameters, from `linkemu/v1/model.proto`, and of texts, messages
//! and files. Ranges include both ends.

pub use proto::limits::*;

/// One full Ethernet frame with a VLAN tag: the smallest queue limit, bytes.
pub const FRAME_BYTES: u64 = *QUEUE_LIMIT_BYTES.start();
/// Minimum shape of the generalized Pareto distribution. Its mean exists below 1.
pub const SHAPE_MIN: f64 = -1.0;
/// The shape must be below this.
pub const SHAPE_BELOW: f64 = 1.0;
pub const NAME_CHARS: usize = 64;
/// Maximum length of a description, of a source, and of each text of a provenance, bytes.
pub const TEXT_BYTES: usize = 4_096;
/// Maximum total length of the texts of a provenance, bytes.
pub const PROVENANCE_BYTES: usize = 64 << 10;
/// Maximum size of a profile's message, bytes: two full traces of rates, or of opportunities of
/// which most have no more than 7 steps between them, and everything else at its limit.
pub const MESSAGE_BYTES: usize = 3 << 20;
/// Maximum size of a TOML profile, bytes: the same with each number in its longest form.
pub const FILE_BYTES: usize = 12 << 20;
