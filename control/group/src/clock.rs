// SPDX-License-Identifier: Apache-2.0
//! The group's clock, and the offsets of the boxes' clocks from it.
//!
//! A box states its time in an answer. That instant lies between the request and the answer, so that
//! half of the round trip bounds the error of the midpoint, however the way there and the way back
//! differ (Cristian, "Probabilistic clock synchronization", 1989). No wall clock takes part: boxes need
//! not be synchronised.
//!
//! Times are nanoseconds: on the group's clock since linkd-group started, on a box's since its
//! dataplane started.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};

/// Readings that are kept: of about four seconds.
const KEPT: usize = 16;
/// Bound of the difference of two clocks' rates, parts per million: crystals are within ±50, and the
/// dataplane slews within that (docs/clock.md).
const DRIFT_PPM: u64 = 100;

/// The clock of the group: `CLOCK_MONOTONIC_RAW` since its start, as the dataplane's.
#[derive(Clone, Copy, Debug)]
pub struct GroupClock {
    read: fn() -> u64,
    start_ns: u64,
}

impl GroupClock {
    /// Starts at zero now.
    #[must_use]
    pub fn start() -> Self {
        Self::of(raw_ns)
    }

    /// A clock with another source of nanoseconds, such as that of a simulation.
    #[must_use]
    pub fn of(read: fn() -> u64) -> Self {
        Self { read, start_ns: read() }
    }

    #[must_use]
    pub fn now_ns(&self) -> u64 {
        (self.read)() - self.start_ns
    }

    /// The wall-clock time of an instant.
    #[must_use]
    pub fn utc(&self, time_ns: u64) -> SystemTime {
        let (now_ns, now) = (self.now_ns(), SystemTime::now());
        let ahead = Duration::from_nanos(time_ns.saturating_sub(now_ns));
        now + ahead - Duration::from_nanos(now_ns.saturating_sub(time_ns))
    }
}

fn raw_ns() -> u64 {
    // It cannot fail on Linux.
    clock_gettime(ClockId::CLOCK_MONOTONIC_RAW)
        .map(Duration::from)
        .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A box's clock less the group's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    pub ns: i64,
    /// Bound of the error.
    pub error_ns: u64,
}

impl Offset {
    /// An instant of the group's clock on the box's.
    #[must_use]
    pub fn of_box(self, group_ns: u64) -> u64 {
        group_ns.saturating_add_signed(self.ns)
    }

    /// An instant of the box's clock on the group's.
    #[must_use]
    pub fn of_group(self, box_ns: u64) -> u64 {
        box_ns.saturating_add_signed(self.ns.saturating_neg())
    }
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Midpoint of request and answer, on the group's clock.
    at_ns: u64,
    offset: Offset,
    round_trip_ns: u64,
}

impl Reading {
    fn at(&self, now_ns: u64) -> Offset {
        let drift_ns = now_ns.abs_diff(self.at_ns).saturating_mul(DRIFT_PPM).div_ceil(1_000_000);
        Offset { error_ns: self.offset.error_ns.saturating_add(drift_ns), ..self.offset }
    }
}

/// The last readings of a box's clock.
#[derive(Clone, Debug, Default)]
pub struct Readings(VecDeque<Reading>);

impl Readings {
    /// Adds a reading: when it was asked for and answered on the group's clock, and the box's time in
    /// the answer. One that contradicts the earlier ones replaces them: the clock jumped, or the
    /// dataplane was restarted.
    pub fn add(&mut self, asked_ns: u64, answered_ns: u64, box_ns: u64) {
        let round_trip_ns = answered_ns.saturating_sub(asked_ns);
        let at_ns = asked_ns + round_trip_ns / 2;
        let ns = i64::try_from(i128::from(box_ns) - i128::from(at_ns)).unwrap_or(i64::MAX);
        let offset = Offset { ns, error_ns: round_trip_ns.div_ceil(2) };
        if let Some(known) = self.at(at_ns)
            && known.ns.abs_diff(ns) > known.error_ns + offset.error_ns
        {
            self.0.clear();
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Reading { at_ns, offset, round_trip_ns });
    }

    /// The offset, from the reading with the least bound of the error at this time.
    #[must_use]
    pub fn at(&self, now_ns: u64) -> Option<Offset> {
        self.0.iter().map(|it| it.at(now_ns)).min_by_key(|offset| offset.error_ns)
    }

    /// The longest recent round trip; zero without readings.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        self.0.iter().map(|it| it.round_trip_ns).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_round_trip_gives_the_offset_until_it_is_old() {
        let mut readings = Readings::default();
        assert_eq!(readings.at(0), None);
        readings.add(1_000_000, 1_200_000, 51_100_000);
        readings.add(2_000_000, 4_000_000, 53_900_000);
        let offset = readings.at(4_000_000).unwrap();
        assert_eq!((offset.ns, readings.longest_ns()), (50_000_000, 2_000_000));
        // Half the round trip, and 100 ppm of 3 ms at most.
        assert!((100_000..=100_301).contains(&offset.error_ns), "{offset:?}");
        assert_eq!((offset.of_box(7), offset.of_group(50_000_007)), (50_000_007, 7));
        // After 20 s the short one is worth less than the long one is now.
        readings.add(20_000_000_000, 20_001_000_000, 20_050_400_000);
        assert_eq!(readings.at(20_001_000_000).unwrap().ns, 49_900_000);
    }

    #[test]
    fn clock_that_jumps_is_read_anew() {
        let mut readings = Readings::default();
        readings.add(0, 1_000, 9_000_500);
        readings.add(1_000_000, 1_900_000, 450_000);
        assert_eq!(readings.at(2_000_000).unwrap().ns, -1_000_000);
        assert_eq!(readings.longest_ns(), 900_000);
    }

    #[test]
    fn offset_is_within_its_bound_for_any_asymmetry() {
        // The true offset is 7 ms; the clock runs 50 ppm fast.
        let box_ns = |group_ns: u64| 7_000_000 + group_ns + group_ns / 20_000;
        let mut readings = Readings::default();
        for n in 0..100_u64 {
            let (asked, there, back) =
                (n * 250_000_000, n * 7_919 % 300_000, n * 104_729 % 500_000);
            readings.add(asked, asked + there + back, box_ns(asked + there));
            let now = asked + there + back + 123_456_789;
            let offset = readings.at(now).unwrap();
            let error = offset.of_box(now).abs_diff(box_ns(now));
            assert!(error <= offset.error_ns, "{n}: {error} > {}", offset.error_ns);
        }
    }
}
