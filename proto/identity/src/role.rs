// SPDX-License-Identifier: Apache-2.0
//! Roles of callers.

use std::fmt;
use std::str::FromStr;

/// Prefix of the role in a certificate's URI.
pub const ROLE_URI: &str = "linkemu:role:";

/// Role of a caller. Each role includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Viewer,
    /// May change the link and run scenarios.
    Operator,
    /// May revoke another caller's lease and read the audit log.
    Admin,
}

/// The word is not a role.
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

    /// The role as a URI in a certificate.
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
