// SPDX-License-Identifier: Apache-2.0
//! The time for which linkd itself stood still: it was stopped, had no processor, or its event loop
//! was held up. Nobody could renew a lease in that time, so it does not count against one.
//!
//! The clock is CLOCK_MONOTONIC, which a suspended machine stops as well.

use nix::time::ClockId;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep};

/// Between one look at the clock and the next.
const TICK: Duration = Duration::from_millis(100);
/// Lateness of a look that is ordinary.
const SLACK: Duration = Duration::from_millis(100);

/// Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Stalls(Arc<Mutex<Seen>>, Clocks);

#[derive(Debug)]
struct Seen {
    /// Until the last look.
    total: Duration,
    last: Instant,
}

/// The clocks that leases go by.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Since the boot, suspension included.
    pub boot: fn() -> Duration,
    pub wall: fn() -> SystemTime,
}

impl Default for Clocks {
    fn default() -> Self {
        // Linux has CLOCK_BOOTTIME since 2.6.39.
        let boot = || ClockId::CLOCK_BOOTTIME.now().map_or(Duration::ZERO, Duration::from);
        Self { boot, wall: SystemTime::now }
    }
}

impl Default for Stalls {
    fn default() -> Self {
        Self::of(Clocks::default())
    }
}

impl Seen {
    fn at(&self, now: Instant) -> Duration {
        let late = now.saturating_duration_since(self.last + TICK);
        self.total + if late > SLACK { late } else { Duration::ZERO }
    }

    fn look(&mut self, now: Instant) {
        (self.total, self.last) = (self.at(now), now);
    }
}

impl Stalls {
    pub fn of(clocks: Clocks) -> Self {
        let seen = Seen { total: Duration::ZERO, last: Instant::now() };
        Self(Arc::new(Mutex::new(seen)), clocks)
    }

    /// The clocks beside.
    pub fn clocks(&self) -> Clocks {
        self.1
    }

    /// Looks at the clock until dropped, on the event loop that answers requests.
    pub async fn watch(&self) {
        loop {
            self.seen(|seen| seen.look(Instant::now()));
            sleep(TICK).await;
        }
    }

    /// All such time, with the stall that ends now.
    pub fn total(&self) -> Duration {
        self.seen(|seen| seen.at(Instant::now()))
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_look_counts_once_and_a_punctual_one_not_at_all() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut seen = Seen { total: Duration::ZERO, last: start };
        assert_eq!(seen.at(at(200)), Duration::ZERO);
        seen.look(at(150));
        assert_eq!(seen.at(at(150)), Duration::ZERO);
        // Before the look that ends the stall, and after it.
        let stall = Duration::from_millis(5_000);
        assert_eq!(seen.at(at(5_250)), stall);
        seen.look(at(5_250));
        assert_eq!(seen.at(at(5_250)), stall);
        seen.look(at(5_360));
        assert_eq!(seen.at(at(5_360)), stall);
    }
}
