// SPDX-License-Identifier: Apache-2.0
//! Error messages of programs.

use std::error::Error;

/// An error with its causes, on one line. Most messages include their cause; a cause that is
/// already part of the text is not repeated.
#[must_use]
pub fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("cannot bind {0}")]
        Silent(&'static str, #[source] io::Error),
        #[error("cannot bind: {source}; give another")]
        Whole { source: io::Error },
        #[error("{0}")]
        Passed(#[from] io::Error),
    }

    #[test]
    fn repeated_causes_are_reported_once() {
        let busy = || io::Error::other("it is busy");
        for (error, expected) in [
            (Failed::Silent("x", busy()), "cannot bind x: it is busy"),
            (Failed::Whole { source: busy() }, "cannot bind: it is busy; give another"),
            (Failed::Passed(busy()), "it is busy"),
        ] {
            assert_eq!(told(&error), expected);
        }
    }
}
