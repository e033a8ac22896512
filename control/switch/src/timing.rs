// SPDX-License-Identifier: Apache-2.0
//! How long a session waits for what.

use std::time::Duration;

/// How long a session waits for what.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two looks at the switch, and the longest between two attempts to reach it.
    pub poll: Duration,
    /// Between the first two attempts to reach it; each further one takes twice as long.
    pub first_wait: Duration,
    /// Until what it refuses is tried again.
    pub retry: Duration,
    /// Until a loss goes that no plan uses.
    pub idle: Duration,
    /// For an answer of the switch, of which callers see at most [`Self::ask`].
    pub patience: Duration,
    /// For the answer to a caller.
    pub ask: Duration,
    /// For which counts are as good as those read now.
    pub fresh: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            first_wait: Duration::from_millis(50),
            retry: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            patience: Duration::from_secs(5),
            ask: Duration::from_secs(1),
            fresh: Duration::from_millis(100),
        }
    }
}
