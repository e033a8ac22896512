// SPDX-License-Identifier: Apache-2.0
//! Decides how to correct a counter's time after each new reading of the counter and the system
//! clock (a look).
//!
//! The rate is measured over a long baseline, so that the error of one look (tens of nanoseconds)
//! has little weight. The offset is slewed away over some seconds, never stepped. If the counter
//! stopped or jumped against the system clock by more than drift can explain, that is a jump: time
//! continues from its current value and the resulting offset is ignored. Pure: this module reads no
//! clock. Control thread.

use std::collections::VecDeque;

use super::line::{Line, SHIFT};

/// Maximum number of looks in the baseline. At one look per second this is a minute, in which
/// temperature changes the counter's rate little.
const LOOKS: usize = 64;
/// Time over which an offset is slewed away, ns.
const SLEW_OVER: f64 = 8e9;
/// Largest slew, as a part of the rate.
const SLEW_MOST: f64 = 500e-6;
/// An offset larger than this, ns, and than [`JUMP_PART`] of the time between two looks is a jump.
const JUMP: u64 = 2_000_000;
/// Reciprocal of the part of the time between two looks; see [`JUMP`].
const JUMP_PART: u64 = 500;
/// Distance from a look to the bend of its line, ns: longer than publishing takes.
const AHEAD: u64 = 10_000_000;

/// Readings of both clocks at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub ticks: u64,
    /// System clock, ns.
    pub raw: u64,
    /// Ticks between the start and the end of the reading.
    pub window: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// Counter time minus system time, ns.
    pub offset_ns: i64,
    /// Rate error before this look, parts per million.
    pub rate_ppm: f64,
    /// Bound of the error of the measured rate, parts per million.
    pub error_ppm: f64,
    /// Size of the counter's jump, ns, if it jumped.
    pub jump_ns: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Discipline {
    /// System time at counter time 0, shifted by jumps, ns.
    raw_zero: u64,
    line: Line,
    /// ns per tick, without the slew.
    rate: f64,
    looks: VecDeque<Look>,
}

impl Discipline {
    /// Time 0 is at `zero`. `rate` is the initial estimate, ns per tick.
    pub(super) fn new(zero: Look, rate: f64) -> Self {
        let slope = slope(rate);
        let line = Line { bend: zero.ticks, before: slope, after: slope, ..Line::default() };
        Self { raw_zero: zero.raw, line, rate, looks: VecDeque::from([zero]) }
    }

    pub(super) const fn line(&self) -> Line {
        self.line
    }

    /// The counter's rate, ns per tick.
    pub(super) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Counter time minus system time at a look, ns.
    pub(super) fn offset(&self, look: Look) -> i64 {
        let elapsed = look.raw.wrapping_sub(self.raw_zero);
        self.line.at(look.ticks).wrapping_sub(elapsed).cast_signed()
    }

    /// Adds a look and computes a new line, unless the bend of the last line is still ahead.
    pub(super) fn look(&mut self, look: Look) -> Verdict {
        let mut verdict = Verdict::default();
        let now = self.line.at(look.ticks);
        if let Some(jump) = self.jump(look) {
            verdict.jump_ns = Some(jump);
            self.raw_zero = look.raw.wrapping_sub(now);
            self.looks.clear();
        }
        verdict.offset_ns = self.offset(look);
        if let Some(oldest) = self.looks.front() {
            let (ticks, raw) = (look.ticks - oldest.ticks, look.raw.saturating_sub(oldest.raw));
            if ticks > 0 && raw > 0 {
                let measured = raw as f64 / ticks as f64;
                verdict.rate_ppm = (self.rate / measured - 1.0) * 1e6;
                verdict.error_ppm = (oldest.window + look.window) as f64 / 2.0 / ticks as f64 * 1e6;
                self.rate = measured;
            }
        }
        self.looks.push_back(look);
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        if look.ticks < self.line.bend && verdict.jump_ns.is_none() {
            // Not all readers use the last line yet.
            return verdict;
        }
        let slew = (verdict.offset_ns as f64 / SLEW_OVER).clamp(-SLEW_MOST, SLEW_MOST);
        let before = self.line.after;
        let bend = look.ticks.saturating_add((AHEAD as f64 / self.rate) as u64);
        // The old line's slope from now to the bend, even if the counter went back.
        let ahead = u128::from(bend - look.ticks) * u128::from(before);
        let ns = now + (ahead >> SHIFT) as u64;
        let after = slope(self.rate * (1.0 - slew));
        self.line = Line { bend, ns, before, after, least: now };
        verdict
    }

    /// Size of the counter's jump since the last look, if it jumped.
    fn jump(&self, look: Look) -> Option<u64> {
        let last = self.looks.back()?;
        let raw = look.raw.saturating_sub(last.raw);
        let Some(ticks) = look.ticks.checked_sub(last.ticks) else {
            // The counter restarted: the length of the pause is unknown.
            return Some(raw.max(1));
        };
        let own = (ticks as f64 * self.rate) as u64;
        let off = own.abs_diff(raw);
        (off > JUMP + raw / JUMP_PART).then_some(off)
    }
}

fn slope(rate: f64) -> u64 {
    // Saturates.
    (rate * (1_u64 << SHIFT) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A counter with a known rate and known faults.
    struct Machine {
        raw: u64,
        ticks: f64,
        /// Ticks per ns.
        hz: f64,
        discipline: Discipline,
        /// Latest time that a reader has seen.
        seen: u64,
    }

    impl Machine {
        /// A counter of `hz` ticks per ns with an initial estimate of `thought`.
        fn new(hz: f64, thought: f64) -> Self {
            let zero = Look { ticks: 1_000, raw: 77, window: 40 };
            let discipline = Discipline::new(zero, 1.0 / thought);
            Self { raw: 77, ticks: 1_000.0, hz, discipline, seen: 0 }
        }

        fn reading(&self) -> Look {
            Look { ticks: self.ticks as u64, raw: self.raw, window: 40 }
        }

        /// Lets time pass and checks that readings never go back.
        fn pass(&mut self, ns: u64) {
            for _ in 0..10 {
                self.raw += ns / 10;
                self.ticks += (ns / 10) as f64 * self.hz;
                self.read();
            }
        }

        fn read(&mut self) {
            let now = self.discipline.line().at(self.ticks as u64);
            assert!(now >= self.seen, "{now} after {}", self.seen);
            self.seen = now;
        }

        fn look(&mut self) -> Verdict {
            let verdict = self.discipline.look(self.reading());
            self.read();
            verdict
        }

        fn offset(&self) -> i64 {
            self.discipline.offset(self.reading())
        }
    }

    #[test]
    fn rate_error_of_1490_ppm_is_measured_and_slewed_away() {
        // The processor's nominal rate against its real rate.
        let mut m = Machine::new(2.6, 2.6 * 1.00149);
        m.pass(SECOND);
        assert!((m.offset() + 1_487_783).abs() < 10, "{}", m.offset());
        let verdict = m.look();
        assert_eq!(verdict.jump_ns, None);
        assert!((verdict.rate_ppm + 1_487.8).abs() < 1.0, "{verdict:?}");
        let mut before = m.offset().abs();
        for _ in 0..120 {
            m.pass(SECOND);
            let verdict = m.look();
            assert!(verdict.rate_ppm.abs() < 0.1, "{verdict:?}");
            // Each second removes an eighth of the remaining offset.
            assert!(verdict.offset_ns.abs() <= before.max(16), "{verdict:?}");
            before = verdict.offset_ns.abs();
        }
        // 1.49 ms times (7/8)^120 is negligible. Each line rounds down by up to 2 ns, which is
        // corrected over 8 s.
        assert!(before <= 16, "{before} ns");
    }

    #[test]
    fn drifting_rate_is_followed() {
        let mut m = Machine::new(2.6, 2.6);
        for _ in 0..600 {
            m.pass(SECOND);
            m.look();
            // 0.01 ppm a second: 6 ppm in ten minutes.
            m.hz *= 1.0 + 1e-8;
        }
        // The baseline's mean rate is half a minute old, so 0.32 ppm off. The offset compensates
        // for it: 0.32 ppm over 8 s is 2.6 us.
        assert!(m.offset().abs() < 3_500, "{} ns", m.offset());
    }

    #[test]
    fn noisy_readings_barely_move_the_rate() {
        let mut m = Machine::new(3.0, 3.0);
        for n in 0..600_u64 {
            m.pass(SECOND);
            let mut look = m.reading();
            // Up to 100 ns either way.
            look.raw = look.raw + n * 7919 % 201 - 100;
            let verdict = m.discipline.look(look);
            m.read();
            if n >= 64 {
                // 200 ns over a baseline of 63 s.
                assert!(verdict.rate_ppm.abs() < 2.0 * 0.2 / 63.0, "{verdict:?}");
            }
            assert!(m.offset().abs() < 200, "{}", m.offset());
        }
    }

    #[test]
    fn counter_jump_is_detected_and_time_continues() {
        let mut m = Machine::new(2.6, 2.6);
        for _ in 0..5 {
            m.pass(SECOND);
            assert_eq!(m.look().jump_ns, None);
        }
        m.ticks += 2.6 * 0.3e9;
        m.pass(SECOND);
        let jump = m.look().jump_ns.unwrap();
        assert!(jump.abs_diff(300_000_000) < 1_000, "{jump}");
        assert_eq!(m.offset(), 0);
        m.pass(SECOND);
        assert_eq!(m.look().jump_ns, None);
        assert!(m.seen.abs_diff(7 * SECOND + 300_000_000) < 1_000);
    }

    #[test]
    fn stopped_or_restarted_counter_is_detected_and_time_never_goes_back() {
        let mut m = Machine::new(2.6, 2.6);
        m.pass(SECOND);
        m.look();
        m.raw += 5 * SECOND;
        m.read();
        let jump = m.look().jump_ns.unwrap();
        assert!(jump.abs_diff(5 * SECOND) < 1_000, "{jump}");
        m.pass(SECOND);
        m.look();
        let seen = m.seen;
        // As after a suspend to memory.
        m.ticks = 50.0;
        m.raw += SECOND;
        m.read();
        assert_eq!(m.look().jump_ns, Some(SECOND));
        m.pass(SECOND);
        // It stopped until the look and has run since then.
        assert!(m.seen.abs_diff(seen + SECOND) < 20_000_000, "{} after {seen}", m.seen);
    }

    #[test]
    fn repeated_look_changes_nothing() {
        let mut m = Machine::new(2.6, 2.6);
        m.pass(SECOND);
        for _ in 0..100 {
            let verdict = m.look();
            assert_eq!(verdict.jump_ns, None);
            assert!(verdict.offset_ns.abs() < 5, "{verdict:?}");
        }
    }
}
