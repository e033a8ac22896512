// SPDX-License-Identifier: Apache-2.0
//! What a caller may do.

use std::fmt;
use std::str::FromStr;

/// What stands before the role in a certificate's URI.
pub const ROLE_URI: &str = "linkemu:role:";

/// What a caller may do; each may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Viewer,
    /// Change the link and run scenarios.
    Operator,
    /// Take a lease from its holder; see who did what.
    Admin,
}

/// A word that is no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write viewer, operator or admin")]
pub struct UnknownRole;

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// What stands in a certificate.
    pub fn uri(self) -> String {
        format!("{ROLE_URI}{self}")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let all = [Self::Viewer, Self::Operator, Self::Admin];
        all.into_iter().find(|role| role.as_str() == text).ok_or(UnknownRole)
    }
}
