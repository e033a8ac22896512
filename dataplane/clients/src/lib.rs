// SPDX-License-Identifier: Apache-2.0
//! Clients of a box, as the operator defines them by rules.
//!
//! Clients are a TOML file or the equivalent protobuf message ([`proto::linkemu::v1::Clients`]).
//! This crate converts between both. [`check`] validates files, gRPC requests and plans of the
//! dataplane by the same rules, and returns the classifier's rules and beams.
//!
//! ```
//! let clients = clients::Clients::from_toml(
//!     r#"
//!     automatic.limit = 1000
//!     [[client]]
//!     name = "alice"
//!     prefix = ["10.1.0.0/24", "2001:db8:1::/48"]
//!     vlan = [100]
//!     mac = ["02:00:00:00:00:01"]
//!
//!     [[client]]
//!     name = "voice"
//!     [[client.match]]
//!     prefix = "10.1.0.0/24"
//!     dscp = 46
//!     "#,
//! )?;
//! assert_eq!(clients.rules().len(), 5);
//! # Ok::<(), profile::Violations>(())
//! ```
//!
//! No clock, no thread; the only I/O is [`Clients::from_file`].

mod beams;
mod check;
mod fields;
mod matches;
mod read;
mod write;

pub use beams::BEAMS;
pub use check::{Fault, check, rules};

use emu::beam::BeamsPlan;
use emu::rules::Rules;
use profile::{FileError, Violations, reading};
use proto::linkemu::v1 as pb;
use std::path::Path;

/// Parses a match as in a file of clients, on one line: `protocol = "udp", port = "5001"`.
///
/// # Errors
/// All faults of the text.
pub fn parse_match(text: &str) -> Result<pb::Match, Violations> {
    read::one_match(text)
}

/// Maximum file size, bytes: the maximum number of rules, with room for comments.
pub const FILE_BYTES: usize = 8 << 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clients {
    message: pb::Clients,
    rules: Rules,
    beams: BeamsPlan,
}

impl Clients {
    /// Parses TOML.
    ///
    /// # Errors
    /// All faults of the text, each with line and column.
    pub fn from_toml(text: &str) -> Result<Self, Violations> {
        read::clients(text)
    }

    /// Reads and parses a TOML file.
    ///
    /// # Errors
    /// If the file cannot be read or is not valid.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        reading::parse_file(
            path,
            FILE_BYTES,
            "does not say what clients there are",
            Self::from_toml,
        )
    }

    /// Prints TOML that parses to the same clients.
    pub fn to_toml(&self) -> String {
        write::clients(&self.message)
    }

    pub fn as_proto(&self) -> &pb::Clients {
        &self.message
    }

    pub fn into_proto(self) -> pb::Clients {
        self.message
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn beams(&self) -> &BeamsPlan {
        &self.beams
    }
}

impl TryFrom<pb::Clients> for Clients {
    type Error = Violations;

    fn try_from(message: pb::Clients) -> Result<Self, Violations> {
        let (rules, beams) = check(&message)?;
        Ok(Self { message, rules, beams })
    }
}
