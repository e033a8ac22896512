// SPDX-License-Identifier: Apache-2.0
//! The shaper: exact serialization at a rate.
//!
//! A frame of `n` bits takes `n × 10⁹ / rate` nanoseconds. The division's
//! remainder is carried from frame to frame, as a fraction of `1 / rate` ns, so
//! that a busy shaper is exact over any length of time. A frame has left when its
//! last bit has, rounded up to a nanosecond: never early.
//!
//! Work left in the frame in service is counted in bit-nanoseconds (bits × 10⁹),
//! which turn into time at one rate and back at another without loss: a change of
//! rate applies to the frame in service pro rata. None of the products overflows:
//! a frame has less than 2¹⁸ bits, so its work is below 2⁴⁸.
//!
//! Differs from a token bucket (`tc-tbf`) in having no burst allowance.

use crate::units::{BitRate, Instant, NANOS_PER_SEC};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Idle,
    /// The frame in service leaves at `at` + `fraction` / rate nanoseconds.
    Busy {
        at: Instant,
        fraction: u64,
    },
    /// The link is down with this much work left, in bit-nanoseconds.
    Halted {
        work: u64,
    },
}

/// The shaper of one pipe. Serves one frame at a time.
#[derive(Clone, Debug)]
pub struct Shaper {
    rate: BitRate,
    overhead: i32,
    service: Service,
}

impl Shaper {
    /// An idle shaper; `overhead` bytes are added to each frame.
    #[must_use]
    pub fn new(rate: BitRate, overhead: i32) -> Self {
        Self { rate, overhead, service: Service::Idle }
    }

    /// Whether no frame is in service.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.service == Service::Idle
    }

    /// When the frame in service has left, as things stand; `None` when idle or down.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> Option<Instant> {
        match self.service {
            Service::Busy { at, fraction } => {
                Some(Instant(at.0.saturating_add(u64::from(fraction > 0))))
            }
            Service::Idle | Service::Halted { .. } => None,
        }
    }

    /// Takes a frame of `len` bytes into an idle shaper at `at`.
    pub fn start(&mut self, at: Instant, len: u32) {
        debug_assert!(self.is_idle());
        self.serve(at, 0, len);
    }

    /// Takes the next frame at the exact instant at which the one in service
    /// leaves; to be called once that has come.
    pub fn follow(&mut self, len: u32) {
        if let Service::Busy { at, fraction } = self.service {
            self.serve(at, fraction, len);
        }
    }

    /// Ends service: the frame has left and none follows.
    pub fn rest(&mut self) {
        self.service = Service::Idle;
    }

    /// Takes a new rate and overhead at `at`. The overhead counts from the next
    /// frame on, the rate from this instant.
    pub fn replan(&mut self, rate: BitRate, overhead: i32, at: Instant) {
        self.overhead = overhead;
        if rate == self.rate {
            return;
        }
        let work = match (self.service, self.rate) {
            (Service::Idle, _) => None,
            (Service::Halted { work }, _) => Some(work),
            (Service::Busy { at: end, fraction }, BitRate::PerSec(r)) => {
                Some(end.since(at).0.saturating_mul(r.get()).saturating_add(fraction))
            }
            (Service::Busy { .. }, _) => Some(0),
        };
        self.rate = rate;
        if let Some(work) = work {
            self.spend(at, work);
        }
    }

    fn serve(&mut self, at: Instant, fraction: u64, len: u32) {
        let bytes = i64::from(len).saturating_add(i64::from(self.overhead)).max(1);
        let bits = bytes.unsigned_abs().saturating_mul(8);
        self.spend(at, bits.saturating_mul(NANOS_PER_SEC).saturating_add(fraction));
    }

    fn spend(&mut self, at: Instant, work: u64) {
        self.service = match self.rate {
            BitRate::Unlimited => Service::Busy { at, fraction: 0 },
            BitRate::Down => Service::Halted { work },
            BitRate::PerSec(r) => Service::Busy {
                at: Instant(at.0.saturating_add(work / r.get())),
                fraction: work % r.get(),
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_busy_shaper_does_not_drift_over_hours() {
        // 1514 bytes at 144 Mbit/s take 84,111.1̅ ns; nine take 757,000 ns exactly.
        let mut s = Shaper::new(BitRate::bps(144_000_000), 0);
        s.start(Instant::ZERO, 1514);
        let n = 9 * 5_000_000_u64;
        for _ in 1..n {
            s.follow(1514);
        }
        assert_eq!(s.finish(), Some(Instant(n / 9 * 757_000)));
    }

    #[test]
    fn a_new_rate_applies_to_the_frame_in_service_pro_rata() {
        // 1250 bytes at 1 Mbit/s take 10 ms. After 4 ms the rate is halved: 6 ms
        // of work take 12.
        let mut s = Shaper::new(BitRate::bps(1_000_000), 0);
        s.start(Instant::ZERO, 1250);
        s.replan(BitRate::bps(500_000), 0, Instant(4_000_000));
        assert_eq!(s.finish(), Some(Instant(16_000_000)));
        // Down for a second at 10 ms: what is left waits.
        s.replan(BitRate::Down, 0, Instant(10_000_000));
        assert_eq!(s.finish(), None);
        s.replan(BitRate::bps(500_000), 0, Instant(1_010_000_000));
        assert_eq!(s.finish(), Some(Instant(1_016_000_000)));
        s.replan(BitRate::Unlimited, 0, Instant(1_011_000_000));
        assert_eq!(s.finish(), Some(Instant(1_011_000_000)));
    }

    proptest! {
        #[test]
        fn no_work_is_lost_or_won_by_changes_of_rate(
            len in 60_u32..9000,
            changes in prop::collection::vec((1_u64..2_000_000, 1_000_u64..100_000_000_000), 0..50),
            first in 1_000_u64..1_000_000_000,
        ) {
            // Sum the work done in each span by exact arithmetic and compare.
            let mut s = Shaper::new(BitRate::bps(first), 0);
            s.start(Instant::ZERO, len);
            let mut left = i128::from(len) * 8 * 1_000_000_000;
            let (mut t, mut rate) = (0_u64, first);
            for (step, next) in changes {
                if s.finish().is_some_and(|f| f.0 <= t + step) {
                    break;
                }
                t += step;
                left -= i128::from(step) * i128::from(rate);
                s.replan(BitRate::bps(next), 0, Instant(t));
                rate = next;
            }
            let exact = i128::from(t) + (left + i128::from(rate) - 1) / i128::from(rate);
            prop_assert_eq!(i128::from(s.finish().unwrap().0), exact);
        }
    }
}
