// SPDX-License-Identifier: Apache-2.0
//! The monotonic clock and the wall clock, read together.
//!
//! The kernel stamps an arriving datagram with the wall clock (`SO_TIMESTAMPNS`, in
//! softirq, before it wakes anybody). To take that to the monotonic clock, the time from
//! the stamp to now, by the wall clock, is taken off the monotonic now. It is
//! only done if the two clocks kept their distance since the socket was last found empty;
//! NTP slews both alike, so only a step of the wall clock or a suspend separates them.
//! Then the instant of reading is taken, which is late by the time that the process
//! took to wake up.

use std::time::{Duration, Instant, SystemTime};

/// A reading of both clocks that took longer is taken again, for the process was
/// interrupted between the two.
const APART: Duration = Duration::from_micros(10);
/// A change of the clocks' distance above this is a step.
const STEP: Duration = Duration::from_micros(50);
/// A datagram can be stamped so long before it gets into the socket, in which case the
/// socket was found empty after its stamp.
const BACKLOG: Duration = Duration::from_millis(10);

/// An instant on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Since the run's start, monotonic.
    pub elapsed: Duration,
    /// By the wall clock.
    pub utc: SystemTime,
}

impl Stamp {
    /// When the datagram arrived that the kernel stamped with `stamped`, if it was read
    /// at `self` from a socket that was empty at `empty`.
    #[must_use]
    pub fn arrival(&self, stamped: Option<SystemTime>, empty: &Self) -> Duration {
        let trusted = || {
            let monotonic = self.elapsed.checked_sub(empty.elapsed)?;
            let wall = self.utc.duration_since(empty.utc).ok()?;
            if monotonic.abs_diff(wall) > STEP {
                return None;
            }
            let waited = self.utc.duration_since(stamped?).ok()?;
            let arrival = self.elapsed.checked_sub(waited)?;
            (arrival + BACKLOG >= empty.elapsed).then_some(arrival)
        };
        trusted().unwrap_or(self.elapsed)
    }
}

/// Reads both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    #[must_use]
    pub fn now(&self) -> Stamp {
        let mut tries = 3;
        loop {
            tries -= 1;
            let before = self.start.elapsed();
            let utc = SystemTime::now();
            let apart = self.start.elapsed() - before;
            if apart <= APART || tries == 0 {
                return Stamp { elapsed: before + apart / 2, utc };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);

    fn at(elapsed: Duration, step: i32) -> Stamp {
        let utc = SystemTime::UNIX_EPOCH + 1000 * S + elapsed;
        let utc = if step < 0 { utc - S * step.unsigned_abs() } else { utc + S * step as u32 };
        Stamp { elapsed, utc }
    }

    #[test]
    fn the_kernels_stamp_gives_the_arrival_however_late_it_is_read() {
        let stamped = Some(at(3 * S, 0).utc);
        for read in [3 * S, 3 * S + US, 3 * S + 700 * MS, 900 * S] {
            assert_eq!(at(read, 0).arrival(stamped, &at(2 * S, 0)), 3 * S);
        }
    }

    #[test]
    fn wall_clock_step_falls_back_to_reading_time() {
        let (empty, read) = (at(2 * S, 0), 4 * S);
        for step in [-10, -1, 1, 10] {
            // The datagram was stamped before the step, or after it.
            for stamped in [at(3 * S, 0).utc, at(3 * S, step).utc] {
                assert_eq!(at(read, step).arrival(Some(stamped), &empty), read);
            }
        }
    }

    #[test]
    fn impossible_stamp_falls_back_to_reading_time() {
        let read = at(4 * S, 0);
        let empty = at(2 * S, 0);
        let future = Some(at(4 * S + US, 0).utc);
        for stamped in [None, future, Some(SystemTime::UNIX_EPOCH), Some(at(S, 0).utc)] {
            assert_eq!(read.arrival(stamped, &empty), 4 * S);
        }
    }

    #[test]
    fn a_datagram_may_be_stamped_shortly_before_the_socket_was_found_empty() {
        let stamped = Some(at(2 * S - MS, 0).utc);
        assert_eq!(at(3 * S, 0).arrival(stamped, &at(2 * S, 0)), 2 * S - MS);
    }
}
