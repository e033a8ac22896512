// SPDX-License-Identifier: Apache-2.0
//! Waits on conditions with deadlines.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `condition` returns a value, and returns it.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout { what: what.to_owned(), limit });
        }
        thread::sleep(PAUSE);
    }
}

/// Waits until an instant, where the time of the experiment is the condition.
pub fn until_instant(instant: Instant) {
    thread::sleep(instant.saturating_duration_since(Instant::now()));
}
