// SPDX-License-Identifier: Apache-2.0
//! Result of a check.

pub use proto::linkemu::v1::{Finding, FindingLevel as Level};

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A finding says these words, and a remedy unless all is well.
    pub fn is(finding: &Finding, level: Level, words: &str) {
        assert_eq!(finding.level(), level, "{finding:?}");
        let all = format!("{} {} {}", finding.found, finding.why, finding.remedy);
        assert!(all.contains(words), "{words}: {finding:?}");
        assert_eq!(finding.remedy.is_empty(), level == Level::Ok, "{finding:?}");
    }
}
