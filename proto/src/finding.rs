// SPDX-License-Identifier: Apache-2.0
//! Findings of checks.

use crate::linkemu::v1::{DiagnoseResponse, Finding, FindingLevel};

impl Finding {
    /// All is well.
    pub fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        let level = FindingLevel::Ok.into();
        Self { check: check.into(), level, found: found.into(), ..Self::default() }
    }

    /// It works, and less well than it could. `remedy` is a command to type.
    pub fn warning(
        check: impl Into<String>,
        found: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check: check.into(),
            level: FindingLevel::Warning.into(),
            found: found.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// This worse than a warning, if `bad`.
    #[must_use]
    pub fn bad_if(mut self, bad: bool) -> Self {
        if bad && self.level() == FindingLevel::Warning {
            self.set_level(FindingLevel::Bad);
        }
        self
    }
}

impl FindingLevel {
    /// As tables name it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            // An unknown level is not known to be harmless.
            Self::Bad | Self::Unspecified => "bad",
        }
    }
}

impl From<Vec<Finding>> for DiagnoseResponse {
    fn from(checks: Vec<Finding>) -> Self {
        let count = |level| {
            let count = checks.iter().filter(|finding| finding.level() == level).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let (bad, warnings) = (count(FindingLevel::Bad), count(FindingLevel::Warning));
        Self { checks, bad, warnings }
    }
}
