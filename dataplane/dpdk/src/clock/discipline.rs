// SPDX-License-Identifier: Apache-2.0
//! Keeps a counter's time at the system's: what to do about each new look at both.
//!
//! The rate is measured over a long baseline, so that the error of a look (tens of
//! nanoseconds) weighs little. What the counter's time is off is slewed away over some
//! seconds, never stepped. A counter that stood still or jumped against the system's clock by
//! more than any drift explains is a jump: the time goes on from where it is, and what it is
//! off from then on is forgotten. Pure: no clock is read here. Control thread.

use std::collections::VecDeque;

use super::line::{Line, SHIFT};

/// Looks that the baseline spans at most: at one a second, a minute in which a counter's rate
/// follows its temperature little.
const LOOKS: usize = 64;
/// An offset is slewed away over this long, ns,
const SLEW_OVER: f64 = 8e9;
/// at no more than this part of the rate.
const SLEW_MOST: f64 = 500e-6;
/// Between two looks a counter that is off by more than this, ns,
const JUMP: u64 = 2_000_000;
/// and this part of the time between them, has jumped.
const JUMP_PART: u64 = 500;
/// A line bends so far ahead of the look, ns: longer than it takes to publish it.
const AHEAD: u64 = 10_000_000;

/// Both clocks at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub ticks: u64,
    /// The system's clock, ns.
    pub raw: u64,
    /// Ticks within which the two were read.
    pub window: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// The counter's time less the system's, ns.
    pub offset_ns: i64,
    /// What the rate was off before this look, parts per million.
    pub rate_ppm: f64,
    /// Bound of the error of the rate measured, parts per million.
    pub error_ppm: f64,
    /// How far the counter jumped, ns, if it did.
    pub jump_ns: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Discipline {
    /// The system's clock at the counter's time 0; shifted by jumps.
    raw_zero: u64,
    line: Line,
    /// ns per tick, without what is slewed.
    rate: f64,
    looks: VecDeque<Look>,
}

impl Discipline {
    /// Time 0 is at `zero`; the counter is thought to make `rate` nanoseconds per tick.
    pub(super) fn new(zero: Look, rate: f64) -> Self {
        let slope = slope(rate);
        let line = Line { bend: zero.ticks, before: slope, after: slope, ..Line::default() };
        Self { raw_zero: zero.raw, line, rate, looks: VecDeque::from([zero]) }
    }

    /// The line to go by.
    pub(super) const fn line(&self) -> Line {
        self.line
    }

    /// The counter's rate, ns per tick.
    pub(super) const fn rate(&self) -> f64 {
        self.rate
    }

    /// The counter's time less the system's at a look, ns.
    pub(super) fn offset(&self, look: Look) -> i64 {
        let elapsed = look.raw.wrapping_sub(self.raw_zero);
        self.line.at(look.ticks).wrapping_sub(elapsed).cast_signed()
    }

    /// Takes a look in; the line to go by from then on is another one, unless the last one
    /// bends only later.
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
            // The last line is not what all go by yet.
            return verdict;
        }
        let slew = (verdict.offset_ns as f64 / SLEW_OVER).clamp(-SLEW_MOST, SLEW_MOST);
        let before = self.line.after;
        let bend = look.ticks.saturating_add((AHEAD as f64 / self.rate) as u64);
        // The old line's slope from now to the bend, also where the counter has gone back.
        let ahead = u128::from(bend - look.ticks) * u128::from(before);
        let ns = now + (ahead >> SHIFT) as u64;
        let after = slope(self.rate * (1.0 - slew));
        self.line = Line { bend, ns, before, after, least: now };
        verdict
    }

    /// How far the counter jumped since the last look, if it did.
    fn jump(&self, look: Look) -> Option<u64> {
        let last = self.looks.back()?;
        let raw = look.raw.saturating_sub(last.raw);
        let Some(ticks) = look.ticks.checked_sub(last.ticks) else {
            // It began anew: nobody knows how long it stood.
            return Some(raw.max(1));
        };
        let own = (ticks as f64 * self.rate) as u64;
        let off = own.abs_diff(raw);
        (off > JUMP + raw / JUMP_PART).then_some(off)
    }
}

fn slope(rate: f64) -> u64 {
    // Saturates, as it should.
    (rate * (1_u64 << SHIFT) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A counter whose rate and faults are known.
    struct Machine {
        raw: u64,
        ticks: f64,
        /// Ticks per ns.
        hz: f64,
        discipline: Discipline,
        /// The latest time that a reader has seen.
        seen: u64,
    }

    impl Machine {
        /// A counter of `hz` ticks per ns that is thought to make `thought`.
        fn new(hz: f64, thought: f64) -> Self {
            let zero = Look { ticks: 1_000, raw: 77, window: 40 };
            let discipline = Discipline::new(zero, 1.0 / thought);
            Self { raw: 77, ticks: 1_000.0, hz, discipline, seen: 0 }
        }

        fn reading(&self) -> Look {
            Look { ticks: self.ticks as u64, raw: self.raw, window: 40 }
        }

        /// Lets time pass; what is read in it never goes back.
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
    fn a_rate_that_was_thought_149_ppm_times_ten_off_is_found_and_its_offset_slewed_away() {
        // What the processor's nominal rate says against what it is.
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
            // Each second takes an eighth of what is left.
            assert!(verdict.offset_ns.abs() <= before.max(16), "{verdict:?}");
            before = verdict.offset_ns.abs();
        }
        // 1.49 ms times (7/8)^120 are nothing; each line rounds down by up to 2 ns, which is
        // made up for over 8 s.
        assert!(before <= 16, "{before} ns");
    }

    #[test]
    fn a_rate_that_drifts_is_followed() {
        let mut m = Machine::new(2.6, 2.6);
        for _ in 0..600 {
            m.pass(SECOND);
            m.look();
            // 0.01 ppm a second: 6 ppm in ten minutes.
            m.hz *= 1.0 + 1e-8;
        }
        // The baseline's mean rate is half a minute old, 0.32 ppm off, which the offset makes
        // up for: 0.32 ppm over 8 s are 2.6 us.
        assert!(m.offset().abs() < 3_500, "{} ns", m.offset());
    }

    #[test]
    fn readings_that_scatter_move_the_rate_little() {
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
    fn a_counter_that_jumps_ahead_is_noticed_and_time_goes_on_from_there() {
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
    fn a_counter_that_stood_still_or_began_anew_is_noticed_and_time_never_goes_back() {
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
        // It stood until the look, and has run since then.
        assert!(m.seen.abs_diff(seen + SECOND) < 20_000_000, "{} after {seen}", m.seen);
    }

    #[test]
    fn looks_at_one_instant_change_nothing() {
        let mut m = Machine::new(2.6, 2.6);
        m.pass(SECOND);
        for _ in 0..100 {
            let verdict = m.look();
            assert_eq!(verdict.jump_ns, None);
            assert!(verdict.offset_ns.abs() < 5, "{verdict:?}");
        }
    }
}
