// SPDX-License-Identifier: Apache-2.0
//! Nanoseconds from the processor's time stamp counter.
//!
//! The counter's rate is measured against `CLOCK_MONOTONIC_RAW`, never taken from
//! `rte_get_tsc_hz()`, which is rounded to 10 MHz on AMD (0.149 % off where it was measured).
//! Converted by an integer product and shift. Error after 0.5 s of calibration: within ±0.6 ppm
//! measured; [`TscClock::error_ppm`] bounds that of the calibration at hand.
//!
//! `CLOCK_MONOTONIC_RAW` is not steered by NTP, so this clock and `CLOCK_MONOTONIC` drift apart
//! by what NTP corrects (up to tens of ppm). Invariants: never goes backwards as seen by one
//! thread; across threads it is as consistent as the processor's counters (constant and
//! synchronous on what we run on). Without an invariant counter each reading is a call of
//! `clock_gettime`. Any thread.

use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Fraction bits of the multiplier.
const SHIFT: u32 = 48;
/// Readings of which the tightest is taken.
const TRIES: u32 = 32;

/// A clock that counts nanoseconds since it was calibrated.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    source: Source,
    /// `CLOCK_MONOTONIC_RAW` at zero, ns.
    raw_zero: u64,
    error_ppm: f64,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// ns = (counter - zero) * multiplier / 2^SHIFT
    Counter {
        zero: u64,
        multiplier: u64,
    },
    System,
}

/// How far a [`TscClock`] is off `CLOCK_MONOTONIC_RAW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Time since the calibration.
    pub elapsed: Duration,
    /// This clock minus `CLOCK_MONOTONIC_RAW`, ns.
    pub offset_ns: i64,
    /// The offset as parts per million of the elapsed time.
    pub ppm: f64,
}

/// Both clocks at one instant.
#[derive(Clone, Copy)]
struct Pair {
    counter: u64,
    raw: u64,
    /// Counter ticks within which the two were read.
    window: u64,
}

impl TscClock {
    /// Measures the counter over `duration` (it sleeps that long; 0.5 s is good) and starts at 0.
    #[must_use]
    pub fn calibrate(duration: Duration) -> Self {
        if !counter::invariant() {
            return Self { source: Source::System, raw_zero: raw_ns(), error_ppm: 0.0 };
        }
        let first = read_pair();
        thread::sleep(duration.max(Duration::from_millis(1)));
        let last = read_pair();
        let ns = last.raw.saturating_sub(first.raw).max(1);
        let ticks = last.counter.saturating_sub(first.counter).max(1);
        let multiplier = (u128::from(ns) << SHIFT) / u128::from(ticks);
        let uncertain = (first.window + last.window) as f64 / 2.0;
        Self {
            source: Source::Counter {
                zero: last.counter,
                multiplier: u64::try_from(multiplier).unwrap_or(u64::MAX),
            },
            raw_zero: last.raw,
            error_ppm: uncertain / ticks as f64 * 1e6,
        }
    }

    /// Nanoseconds since the calibration.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        match self.source {
            Source::Counter { zero, multiplier } => {
                let ticks = counter::read().saturating_sub(zero);
                // 64 by 64 bits: fits 128; the quotient fits 64 for 584 years.
                ((u128::from(ticks) * u128::from(multiplier)) >> SHIFT) as u64
            }
            Source::System => raw_ns().saturating_sub(self.raw_zero),
        }
    }

    /// True if it reads the processor's counter, false if it asks the kernel each time.
    #[must_use]
    pub const fn uses_counter(&self) -> bool {
        matches!(self.source, Source::Counter { .. })
    }

    /// The counter's rate in Hz; `None` without a counter.
    #[must_use]
    pub fn hz(&self) -> Option<f64> {
        match self.source {
            Source::Counter { multiplier, .. } => {
                Some(1e9 * (1_u64 << SHIFT) as f64 / multiplier as f64)
            }
            Source::System => None,
        }
    }

    /// Bound on the rate's error from the calibration's own readings, in parts per million.
    #[must_use]
    pub const fn error_ppm(&self) -> f64 {
        self.error_ppm
    }

    /// Compares with `CLOCK_MONOTONIC_RAW` again; the longer after the calibration, the finer.
    #[must_use]
    pub fn drift(&self) -> Drift {
        let (own, raw) = match self.source {
            Source::Counter { zero, multiplier } => {
                let pair = read_pair();
                let ticks = pair.counter.saturating_sub(zero);
                (((u128::from(ticks) * u128::from(multiplier)) >> SHIFT) as u64, pair.raw)
            }
            Source::System => {
                let raw = raw_ns();
                (raw.saturating_sub(self.raw_zero), raw)
            }
        };
        let elapsed = raw.saturating_sub(self.raw_zero);
        let offset_ns = own.wrapping_sub(elapsed).cast_signed();
        let ppm = offset_ns as f64 / elapsed.max(1) as f64 * 1e6;
        Drift { elapsed: Duration::from_nanos(elapsed), offset_ns, ppm }
    }
}

/// Reads both clocks as close together as it gets.
fn read_pair() -> Pair {
    let mut best = Pair { counter: 0, raw: 0, window: u64::MAX };
    for _ in 0..TRIES {
        let before = counter::read();
        let raw = raw_ns();
        let window = counter::read().saturating_sub(before);
        if window < best.window {
            best = Pair { counter: before + window / 2, raw, window };
        }
    }
    best
}

fn raw_ns() -> u64 {
    // It cannot fail on Linux for this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC_RAW).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
    })
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use core::arch::x86_64::{__cpuid, _rdtsc};

    const POWER_LEAF: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has rdtsc; Linux does not forbid it to processes that
        // did not ask for that.
        unsafe { _rdtsc() }
    }

    /// True if the counter runs at one rate in every power state.
    #[allow(unused_unsafe, reason = "__cpuid is an unsafe function in older releases of Rust")]
    pub(super) fn invariant() -> bool {
        // SAFETY: every x86-64 processor has cpuid.
        unsafe {
            let highest = __cpuid(0x8000_0000).eax;
            highest >= POWER_LEAF && __cpuid(POWER_LEAF).edx & INVARIANT_TSC != 0
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) const fn read() -> u64 {
        0
    }

    pub(super) const fn invariant() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let clock = TscClock::calibrate(Duration::from_millis(5));
        let mut last = 0;
        for _ in 0..100_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_drift_is_within_the_calibrations_own_bound() {
        let clock = TscClock::calibrate(Duration::from_millis(200));
        thread::sleep(Duration::from_millis(200));
        let drift = clock.drift();
        // The bound of the rate, and as much again for the reading of the drift itself; 2 ppm
        // for the kernel's own conversion of the same counter.
        let bound = 2.0 * clock.error_ppm() + 2.0;
        eprintln!("{drift:?}, bound {bound:.2} ppm, {:?} Hz", clock.hz());
        assert!(drift.ppm.abs() <= bound, "{drift:?} exceeds {bound} ppm");
    }

    #[test]
    fn without_a_counter_the_system_clock_serves() {
        let clock = TscClock { source: Source::System, raw_zero: raw_ns(), error_ppm: 0.0 };
        let first = clock.now();
        assert!(clock.now() >= first);
        assert_eq!(clock.drift().offset_ns, 0);
        assert_eq!(clock.hz(), None);
    }

    #[test]
    fn a_century_does_not_overflow() {
        let century = 100 * 365 * 24 * 3600 * 1_000_000_000_u64;
        let multiplier = (1_u128 << SHIFT) / 4; // a counter of 4 GHz
        let ticks = u128::from(century) * 4;
        assert_eq!((ticks * multiplier) >> SHIFT, u128::from(century));
        assert!(ticks <= u128::from(u64::MAX));
    }
}
