// SPDX-License-Identifier: Apache-2.0
//! Virtual time that the traffic itself moves on.
//!
//! Each frame takes the time that it would take on a wire of the load's rate, so that a delay
//! holds as many frames as it would at that rate, however fast or slow the processor is and
//! whatever else it does. Units: nanoseconds, carried in parts of 2⁻²⁰ ns, so that the error of
//! a frame's time stays below 10⁻⁶ ns. Reference: IEEE 802.3, clause 4.4.2 (interpacket gap) and
//! 3.1.1 (preamble, start of frame, frame check sequence).

use std::cell::Cell;
use std::rc::Rc;

use emu::units::{Instant, NANOS_PER_SEC};
use worker::clock::VirtualClock;

/// Bytes that a frame without FCS takes on the wire besides its own: preamble and start of
/// frame (8), FCS (4), gap (12).
pub const WIRE_OVERHEAD: u32 = 24;
/// Fraction bits of a nanosecond.
const FRACTION: u32 = 20;

/// The wire time of a frame of `len` bytes without FCS, in 2⁻²⁰ ns.
#[must_use]
pub fn wire_ticks(len: u32, bps: u64) -> u64 {
    let bits = u128::from(len + WIRE_OVERHEAD) * 8;
    let ticks = ((bits * u128::from(NANOS_PER_SEC)) << FRACTION) / u128::from(bps.max(1));
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Moves a shared clock on with the traffic.
///
/// Clones move the same clock, by the same count.
#[derive(Clone, Debug)]
pub struct Pacer {
    clock: VirtualClock,
    ticks: Rc<Cell<u64>>,
}

impl Pacer {
    /// Starts the clock at zero.
    #[must_use]
    pub fn new() -> Self {
        let clock = VirtualClock::default();
        clock.set(Instant::ZERO);
        Self { clock, ticks: Rc::default() }
    }

    /// The clock that it moves.
    #[must_use]
    pub fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }

    /// Moves on by a time in 2⁻²⁰ ns; the clock shows it after [`Pacer::show`].
    #[inline]
    pub fn step(&self, ticks: u64) {
        self.ticks.set(self.ticks.get() + ticks);
    }

    /// Sets the clock.
    #[inline]
    pub fn show(&self) {
        self.clock.set(Instant(self.ticks.get() >> FRACTION));
    }
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use worker::clock::Clock;

    const TEN_G: u64 = 10_000_000_000;

    #[test]
    fn the_smallest_frame_takes_67_2_ns_at_10_gbit() {
        let ns = wire_ticks(60, TEN_G) as f64 / f64::from(1 << FRACTION);
        assert!((ns - 67.2).abs() < 1e-6, "{ns}");
        let ns = wire_ticks(1514, TEN_G) as f64 / f64::from(1 << FRACTION);
        assert!((ns - 1230.4).abs() < 1e-6, "{ns}");
    }

    #[test]
    fn second_of_smallest_frames_is_14_88_million() {
        let pacer = Pacer::new();
        let mut clock = pacer.clock();
        for _ in 0..14_880_952 {
            pacer.step(wire_ticks(60, TEN_G));
        }
        pacer.show();
        // One frame short of a second at most, and 10⁻⁶ ns of rounding for each.
        let now = clock.now().0;
        assert!((NANOS_PER_SEC - 100..=NANOS_PER_SEC).contains(&now), "{now}");
    }

    #[test]
    fn rate_of_zero_does_not_divide_by_zero() {
        assert!(wire_ticks(60, 0) > 0);
    }
}
