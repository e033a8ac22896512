// SPDX-License-Identifier: Apache-2.0
//! Nanoseconds from the processor's time stamp counter.
//!
//! The counter's rate is measured against `CLOCK_MONOTONIC_RAW`. `rte_get_tsc_hz()` is not used: it
//! is rounded to 10 MHz on AMD (0.149 % error measured). Ticks are converted by an integer product
//! and shift. The measured rate error after 0.5 s of calibration is within ±0.6 ppm;
//! [`TscClock::error_ppm`] bounds the error of the current calibration. The control thread calls
//! [`TscClock::correct`] about once a second. It measures over a longer time and slews the clock;
//! all copies follow.
//!
//! NTP does not steer `CLOCK_MONOTONIC_RAW`, so this clock and `CLOCK_MONOTONIC` drift apart by the
//! NTP correction (up to tens of ppm).
//!
//! Invariants: one thread never sees time go backwards, with two exceptions. If the counter
//! restarted (a restored virtual machine), time may go back by up to the time since the last
//! measurement. A thread that is interrupted during a reading while the clock is slewed may see
//! less than a microsecond. Across threads the clock is as consistent as the processor's counters
//! (constant and synchronous on supported machines). Without an invariant counter each reading
//! calls `clock_gettime`. `correct`: control thread; the rest: any thread.

mod discipline;
mod line;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use discipline::{Discipline, Look, Verdict};
use line::Published;

/// Number of readings; the one with the shortest window is used.
const TRIES: u32 = 32;
/// A correction is retried if its bend is less than this far ahead when published, ns.
const PUBLISH_WITHIN: u64 = 5_000_000;

/// Nanoseconds since calibration. Copies share one clock.
#[derive(Clone, Copy, Debug)]
pub struct TscClock(&'static Shared);

/// A measurement of the counter that has begun. The caller can do other work meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Calibration(Look);

impl Calibration {
    #[must_use]
    pub fn begin() -> Self {
        Self(look())
    }

    /// Ends the measurement. Sleeps until `least` has passed since it began. Time starts at 0.
    #[must_use]
    pub fn finish(self, least: Duration) -> TscClock {
        let Self(first) = self;
        if !counter::invariant() {
            return TscClock::over(false, look(), 1.0, 0.0);
        }
        let least = least.max(Duration::from_millis(1));
        let passed = Duration::from_nanos(raw_ns().saturating_sub(first.raw));
        thread::sleep(least.saturating_sub(passed));
        let last = look();
        let ns = last.raw.saturating_sub(first.raw).max(1);
        let ticks = last.ticks.saturating_sub(first.ticks).max(1);
        let uncertain = (first.window + last.window) as f64 / 2.0;
        TscClock::over(true, last, ns as f64 / ticks as f64, uncertain / ticks as f64 * 1e6)
    }
}

/// Allocated for the life of the process, so that threads can copy the clock.
#[derive(Debug)]
struct Shared {
    line: Published,
    /// True if the processor's counter is used.
    counts: bool,
    /// `CLOCK_MONOTONIC_RAW` at zero, ns.
    raw_zero: u64,
    error_ppm: f64,
    discipline: Mutex<Discipline>,
    jumps: AtomicU64,
    longest_jump: AtomicU64,
}

/// Deviation of a [`TscClock`] from `CLOCK_MONOTONIC_RAW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    pub elapsed: Duration,
    /// This clock minus `CLOCK_MONOTONIC_RAW`, ns, without jumps of the counter.
    pub offset_ns: i64,
    /// The offset as parts per million of the elapsed time.
    pub ppm: f64,
}

/// Result of [`TscClock::correct`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Correction {
    /// This clock minus `CLOCK_MONOTONIC_RAW` before the correction, ns. The clock slews it away.
    pub offset_ns: i64,
    /// Rate error before the correction, parts per million.
    pub rate_ppm: f64,
    /// Bound of the rate error after the correction, parts per million.
    pub error_ppm: f64,
    /// Jump of the counter against the system clock, if any: the machine was suspended or a virtual
    /// machine was paused.
    pub jump: Option<Duration>,
}

impl TscClock {
    /// Measures the counter over `duration` (sleeps that long; use 0.25 s). Time starts at 0.
    #[must_use]
    pub fn calibrate(duration: Duration) -> Self {
        Calibration::begin().finish(duration)
    }

    fn over(counts: bool, zero: Look, rate: f64, error_ppm: f64) -> Self {
        let discipline = Discipline::new(zero, rate);
        Self(Box::leak(Box::new(Shared {
            line: Published::new(discipline.line()),
            counts,
            raw_zero: zero.raw,
            error_ppm,
            discipline: Mutex::new(discipline),
            jumps: AtomicU64::new(0),
            longest_jump: AtomicU64::new(0),
        })))
    }

    /// Nanoseconds since the calibration.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        if self.0.counts {
            // Read the line before the counter: a line published in between bends later than this
            // reading.
            let line = self.0.line.read();
            line.at(counter::read())
        } else {
            raw_ns().saturating_sub(self.0.raw_zero)
        }
    }

    /// Measures the counter again and slews the clock towards `CLOCK_MONOTONIC_RAW`.
    pub fn correct(&self) -> Correction {
        if !self.0.counts {
            return Correction::default();
        }
        let mut discipline = self.0.discipline.lock().unwrap_or_else(PoisonError::into_inner);
        let mut verdict = Verdict::default();
        for _ in 0..TRIES {
            let mut next = discipline.clone();
            verdict = next.look(look());
            let line = next.line();
            // If this thread was interrupted, the bend may already be in the past for other
            // threads.
            if line.ns.saturating_sub(line.at(counter::read())) >= PUBLISH_WITHIN
                || line == discipline.line()
            {
                self.0.line.publish(line);
                *discipline = next;
                break;
            }
        }
        drop(discipline);
        if let Some(jump) = verdict.jump_ns {
            self.0.jumps.fetch_add(1, Ordering::Relaxed);
            self.0.longest_jump.fetch_max(jump, Ordering::Relaxed);
        }
        Correction {
            offset_ns: verdict.offset_ns,
            rate_ppm: verdict.rate_ppm,
            error_ppm: verdict.error_ppm,
            jump: verdict.jump_ns.map(Duration::from_nanos),
        }
    }

    /// Number of counter jumps that corrections have detected.
    #[must_use]
    pub fn jumps(&self) -> u64 {
        self.0.jumps.load(Ordering::Relaxed)
    }

    /// Longest jump since the last mark. `mark` resets it.
    #[must_use]
    pub fn longest_jump(&self, mark: bool) -> Duration {
        let longest = &self.0.longest_jump;
        let ns =
            if mark { longest.swap(0, Ordering::Relaxed) } else { longest.load(Ordering::Relaxed) };
        Duration::from_nanos(ns)
    }

    /// True if the clock reads the processor's counter, false if it calls the kernel each time.
    #[must_use]
    pub const fn uses_counter(&self) -> bool {
        self.0.counts
    }

    /// The counter's rate in Hz, as last measured; `None` without a counter.
    #[must_use]
    pub fn hz(&self) -> Option<f64> {
        let discipline = self.0.discipline.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.counts.then(|| 1e9 / discipline.rate())
    }

    /// Bound on the rate's error from the calibration's own readings, in parts per million.
    #[must_use]
    pub const fn error_ppm(&self) -> f64 {
        self.0.error_ppm
    }

    /// Compares the clock with `CLOCK_MONOTONIC_RAW`. Precision grows with the time since
    /// calibration.
    #[must_use]
    pub fn drift(&self) -> Drift {
        let look = look();
        let elapsed = look.raw.saturating_sub(self.0.raw_zero);
        let discipline = self.0.discipline.lock().unwrap_or_else(PoisonError::into_inner);
        let offset_ns = if self.0.counts { discipline.offset(look) } else { 0 };
        let ppm = offset_ns as f64 / elapsed.max(1) as f64 * 1e6;
        Drift { elapsed: Duration::from_nanos(elapsed), offset_ns, ppm }
    }
}

/// Reads both clocks within the shortest window of [`TRIES`] readings.
fn look() -> Look {
    let mut best = Look { ticks: 0, raw: 0, window: u64::MAX };
    for _ in 0..TRIES {
        let before = counter::read();
        let raw = raw_ns();
        let window = counter::read().saturating_sub(before);
        if window < best.window {
            best = Look { ticks: before + window / 2, raw, window };
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
        // SAFETY: every x86-64 processor has rdtsc; Linux does not forbid it to processes unless
        // they ask.
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
    fn drift_stays_within_the_calibration_bound() {
        let clock = TscClock::calibrate(Duration::from_millis(200));
        thread::sleep(Duration::from_millis(200));
        let drift = clock.drift();
        // Twice the rate bound covers the error of the drift reading too. 2 ppm covers the kernel's
        // own conversion of the same counter.
        let bound = 2.0 * clock.error_ppm() + 2.0;
        eprintln!("{drift:?}, bound {bound:.2} ppm, {:?} Hz", clock.hz());
        assert!(drift.ppm.abs() <= bound, "{drift:?} exceeds {bound} ppm");
    }

    #[test]
    fn clock_without_counter_reads_the_system_clock() {
        let clock = TscClock::over(false, look(), 1.0, 0.0);
        let first = clock.now();
        assert!(clock.now() >= first);
        assert_eq!(clock.drift().offset_ns, 0);
        assert_eq!(clock.hz(), None);
        assert_eq!(clock.correct(), Correction::default());
    }

    #[test]
    fn corrected_time_never_goes_back() {
        let clock = TscClock::calibrate(Duration::from_millis(5));
        thread::scope(|s| {
            let corrections = s.spawn(|| {
                for _ in 0..50 {
                    clock.correct();
                    thread::sleep(Duration::from_millis(2));
                }
            });
            let mut last = 0;
            while !corrections.is_finished() {
                let now = clock.now();
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
    }
}
