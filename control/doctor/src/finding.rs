// SPDX-License-Identifier: Apache-2.0
//! Result of a check.

use serde::Serialize;
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// It works, and less well than it could.
    Warning,
    /// Something will not work, or its results cannot be believed.
    Bad,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// One finding. Its keys in JSON are a contract: they stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: Cow<'static, str>,
    pub level: Level,
    pub found: String,
    /// Why it matters; empty if all is well.
    pub why: String,
    /// A command to type; empty if all is well.
    pub remedy: String,
}

impl Finding {
    pub fn ok(check: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Self {
        let (check, found) = (check.into(), found.into());
        Self { check, level: Level::Ok, found, why: String::new(), remedy: String::new() }
    }

    /// It works, and less well than it could.
    pub fn warning(
        check: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (check, found) = (check.into(), found.into());
        let (why, remedy) = (why.into(), remedy.into());
        Self { check, level: Level::Warning, found, why, remedy }
    }

    /// This worse than a warning, if `bad`.
    pub fn bad_if(mut self, bad: bool) -> Self {
        if bad && self.level == Level::Warning {
            self.level = Level::Bad;
        }
        self
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A finding says these words, and a remedy unless all is well.
    pub fn is(finding: &Finding, level: Level, words: &str) {
        assert_eq!(finding.level, level, "{finding:?}");
        let all = format!("{} {} {}", finding.found, finding.why, finding.remedy);
        assert!(all.contains(words), "{words}: {finding:?}");
        assert_eq!(finding.remedy.is_empty(), level == Level::Ok, "{finding:?}");
    }
}
