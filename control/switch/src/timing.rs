// SPDX-License-Identifier: Apache-2.0
//! Time limits and intervals of a session.

use crate::hosts::Ageing;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Interval of the periodic check, and the maximum interval between attempts to connect.
    pub poll: Duration,
    /// Interval between the first two attempts to connect. It doubles with each attempt.
    pub first_wait: Duration,
    /// Interval between retries of rejected entries.
    pub retry: Duration,
    /// Interval between comparisons of the switch's entries with those that were written.
    pub check: Duration,
    /// Time until an unused loss is removed.
    pub idle: Duration,
    /// Time limit for an answer of the switch. Callers wait at most [`Self::ask`].
    pub patience: Duration,
    /// Time limit for the answer to a caller.
    pub ask: Duration,
    /// Maximum age of counters that are returned without a read.
    pub fresh: Duration,
    pub ageing: Ageing,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            first_wait: Duration::from_millis(50),
            retry: Duration::from_secs(10),
            check: Duration::from_secs(5),
            idle: Duration::from_secs(600),
            patience: Duration::from_secs(5),
            ask: Duration::from_secs(1),
            fresh: Duration::from_millis(100),
            ageing: Ageing::default(),
        }
    }
}
