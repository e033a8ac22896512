// SPDX-License-Identifier: Apache-2.0
//! The profile: a description of the link to emulate.
//!
//! A profile is a TOML file with units, or the equivalent protobuf message
//! ([`proto::linkemu::v1::Profile`]). This crate converts exactly between both. [`validate`]
//! applies the same rules to TOML files, gRPC requests and `linkctl profile check`.
//!
//! ```
//! let profile = profile::Profile::from_toml(
//!     r#"
//!     name = "lab"
//!     [forward]
//!     rate = "72 Mbit/s"
//!     queue.limit = "1 MiB"
//!     delay.base = "20 ms"
//!     [return]
//!     rate = "unlimited"
//!     queue.limit = "1 MiB"
//!     delay.base = "20 ms"
//!     "#,
//! )?;
//! assert_eq!(profile.name(), "lab");
//! # Ok::<(), profile::Violations>(())
//! ```
//!
//! Units: times in nanoseconds, rates in bit/s, sizes in bytes. No clock, no
//! thread; the only I/O is [`Catalog::load`] and [`Profile::from_file`].

mod catalog;
mod file;
mod limits;
mod patch;
mod path_file;
mod rate_file;
mod read;
pub mod reference;
mod schema;
mod tolerance;
mod validate;
mod violation;
mod write;

pub use catalog::{Catalog, CatalogError, Entry, Origin, StoreError};
pub use file::FileError;
pub use limits::*;
pub use patch::Patch;
pub use path_file::read_path_trace;
pub use rate_file::{TraceError, TraceFile, opportunity_runs, read_trace};
pub use read::Part;
pub use tolerance::{LATENESS, STALL, strict_tolerance, strictest, tolerance};
pub use units::{
    Rate, UnitError, counted, format_duration, format_overhead, format_probability, format_size,
    nearest, parse_duration, parse_overhead, parse_probability, parse_rate, parse_size,
};
pub use validate::{validate, validate_pipe};
pub use violation::{Place, Violation, Violations};

use proto::linkemu::v1 as pb;
use std::path::Path;

/// TOML parsing with the place of each value, for other files that describe links.
pub mod reading {
    pub use crate::file::parse_file;
    pub use crate::read::reader::{Item, Node, Reader, describe};
}

/// Suffix of the name of a profile that was patched after it was set.
pub const PATCHED: char = '*';

#[derive(Clone, Debug, PartialEq)]
pub struct Profile(pb::Profile);

impl Profile {
    /// Parses a profile that names no other file.
    ///
    /// # Errors
    /// All faults of the text, each with line and column.
    pub fn from_toml(text: &str) -> Result<Self, Violations> {
        read::profile(text, None).map(Self)
    }

    /// Parses a file, and the rate trace that it names in the same directory.
    ///
    /// # Errors
    /// If a file cannot be read, or the profile is not valid.
    pub fn from_file(path: &Path) -> Result<Self, FileError> {
        let directory = path.parent().unwrap_or(Path::new(""));
        let parse = |text: &str| read::profile(text, Some(directory)).map(Self);
        file::parse_file(path, FILE_BYTES, "is not a valid profile", parse)
    }

    /// Prints TOML that parses to the same profile.
    pub fn to_toml(&self) -> String {
        write::profile(&self.0)
    }

    /// Name, with a trailing `*` if the profile was patched.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn as_proto(&self) -> &pb::Profile {
        &self.0
    }

    pub fn into_proto(self) -> pb::Profile {
        self.0
    }
}

impl TryFrom<pb::Profile> for Profile {
    type Error = Violations;

    fn try_from(message: pb::Profile) -> Result<Self, Violations> {
        validate(&message)?;
        Ok(Self(message))
    }
}

impl From<Profile> for pb::Profile {
    fn from(profile: Profile) -> Self {
        profile.0
    }
}
