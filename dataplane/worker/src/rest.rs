// SPDX-License-Identifier: Apache-2.0
//! When an idle worker polls, and when it sleeps.
//!
//! To sleep and to wake up takes processor time, 15 to 20 µs in a virtual machine, and a timer wakes
//! late by about as much. So a worker that slept before each frame would need most of a core at some
//! ten thousand frames a second. Here all waiting, asleep or polling, is paid from a budget of a
//! [`PART`] of the core:
//!
//! * Within the budget the worker wakes for each frame that arrives and ahead of each one that is
//!   due, by as much as timers are late, and polls for the rest of the time. It also polls for the time
//!   that a sleep would cost after the last frame.
//! * Beyond it, it sleeps until it has paid, whatever arrives meanwhile, and then takes all
//!   at once. That bounds its processor time. Frames are taken in late, and leave late, by up to
//!   [`DEAF_MAX`] each and what timers are late. Late departures are in the statistics of lateness; the time
//!   in which arrivals wait counts as a stall.
//! * While frames are dense ([`DENSE`]) it polls, at no charge: the frames take most of the core.
//!
//! What a sleep costs and how late a timer is are measured while it runs.

use emu::units::{Instant, Nanos};

/// Waiting may take this fraction of the time: one part in so many.
const PART: i64 = 8;
/// Most processor time that is saved up.
const SAVED: i64 = 500_000;
/// Longest sleep.
const SLEEP_MAX: Nanos = Nanos::from_millis(1);
/// Longest sleep on which no frame wakes.
const DEAF_MAX: Nanos = Nanos::from_micros(160);
/// A shorter sleep is not worth its cost.
const SLEEP_MIN: Nanos = Nanos::from_micros(2);
/// Frames received and released in a [`WINDOW`] that are dense: at 50,000 a second through a link.
const DENSE: usize = 100;
const WINDOW: Nanos = Nanos::from_millis(1);
/// One sleep of so many is measured.
const MEASURED: u32 = 8;
/// Bounds of the measured cost of a sleep; a sleep during which the kernel did something else on the
/// thread's account says nothing.
const COST: [Nanos; 2] = [Nanos::from_micros(1), Nanos::from_micros(50)];
/// A step towards the lateness of timers that nine of ten do not exceed, and its bound.
const LATE_STEP: u64 = 100;
const LATE_MAX: u64 = 100_000;

/// How a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Poll,
    /// Until an instant, or a frame arrives.
    Frame(Instant),
    /// Until an instant.
    Deaf(Instant),
}

/// Decides how an idle worker waits.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Processor time of a sleep.
    cost: Nanos,
    /// Lateness of timers that nine of ten do not exceed.
    late: u64,
    /// Processor time that waiting may still take at `at`, in ns. Negative: it has taken too much.
    credit: i64,
    at: Instant,
    /// Whether the time since `at` was spent polling.
    polled: bool,
    /// The last turn that moved a frame.
    active: Instant,
    /// Begin of the window, frames in it, and whether those of the last one were dense.
    window: Instant,
    frames: usize,
    dense: bool,
    sleeps: u32,
}

impl Rest {
    pub(crate) fn new() -> Self {
        Self {
            cost: Nanos::from_micros(10),
            late: 0,
            credit: 0,
            at: Instant::ZERO,
            polled: false,
            active: Instant::ZERO,
            window: Instant::ZERO,
            frames: 0,
            dense: false,
            sleeps: 0,
        }
    }

    /// A turn at `now` has moved so many frames.
    #[inline]
    pub(crate) fn moved(&mut self, now: Instant, frames: usize) {
        self.turn_window(now);
        self.frames += frames;
        self.active = now;
    }

    fn turn_window(&mut self, now: Instant) {
        let past = now.since(self.window);
        if past >= WINDOW {
            self.dense = self.frames >= DENSE && past < Nanos(2 * WINDOW.0);
            (self.window, self.frames) = (now, 0);
        }
    }

    /// How to wait after a turn at `now` that moved no frame, if the next one is due at `deadline`.
    pub(crate) fn wait(&mut self, now: Instant, deadline: Instant) -> Wait {
        self.turn_window(now);
        let past = now.since(self.at).0.cast_signed();
        self.at = now;
        self.credit = (self.credit + past / PART).min(SAVED);
        if self.dense || self.frames >= DENSE || deadline <= now {
            // Frames that were refused, and changes that clients have yet to take, are due now.
            self.polled = false;
            return Wait::Poll;
        }
        if self.polled {
            self.credit -= past;
        }
        self.polled = false;
        if self.credit < 0 {
            let debt = Nanos(self.credit.unsigned_abs() * PART.unsigned_abs());
            let sleep = Nanos(debt.min(DEAF_MAX).0.saturating_sub(self.late)).max(SLEEP_MIN);
            return Wait::Deaf(now + sleep);
        }
        let left = Nanos(deadline.since(now).min(SLEEP_MAX).0.saturating_sub(self.late));
        if left < SLEEP_MIN || now.since(self.active) < self.cost {
            self.polled = true;
            return Wait::Poll;
        }
        Wait::Frame(now + left)
    }

    /// Whether the processor time of the next sleep should be measured.
    pub(crate) fn measures(&mut self) -> bool {
        self.sleeps = (self.sleeps + 1) % MEASURED;
        self.sleeps == 1
    }

    /// A sleep has ended at `now`. `until` is when a timer should have ended it, unless a frame did;
    /// `took` is its processor time, if that was measured.
    pub(crate) fn slept(&mut self, now: Instant, until: Option<Instant>, took: Option<Nanos>) {
        if let Some(took) = took {
            let took = took.clamp(COST[0], COST[1]).0.cast_signed();
            let cost = self.cost.0.cast_signed();
            self.cost = Nanos((cost + (took - cost) / 4).unsigned_abs());
        }
        self.credit -= self.cost.0.cast_signed();
        if let Some(until) = until {
            let later = now.since(until).0 > self.late;
            let up = (self.late + 9 * LATE_STEP).min(LATE_MAX);
            self.late = if later { up } else { self.late.saturating_sub(LATE_STEP) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps that cost this much and end this late.
    const TAKES: Nanos = Nanos::from_micros(18);
    const LATE: Nanos = Nanos::from_micros(25);

    /// What a worker has spent on waiting in a second, and the latest frames.
    #[derive(Debug, Default)]
    struct Spent {
        asleep: u64,
        polling: u64,
        sleeps: u64,
        late: Vec<u64>,
    }

    /// Frames that are due every `every`, through a worker that is in no other way busy.
    fn run(rest: &mut Rest, from: u64, every: u64) -> Spent {
        let (mut now, mut due) = (from, from + every);
        let mut spent = Spent::default();
        while now < from + 1_000_000_000 {
            let mut moved = 0;
            while due <= now {
                spent.late.push(now - due);
                due += every;
                moved += 1;
            }
            if moved > 0 {
                rest.moved(Instant(now), moved);
                now += 300 * moved as u64;
                continue;
            }
            let until = match rest.wait(Instant(now), Instant(due)) {
                Wait::Poll => {
                    spent.polling += 100;
                    now += 100;
                    continue;
                }
                Wait::Frame(until) | Wait::Deaf(until) => until,
            };
            let took = rest.measures().then_some(TAKES);
            now = until.0 + LATE.0;
            spent.sleeps += 1;
            spent.asleep += TAKES.0;
            rest.slept(Instant(now), Some(until), took);
        }
        spent.late.sort_unstable();
        spent
    }

    fn p99(spent: &Spent) -> u64 {
        spent.late[spent.late.len() * 99 / 100]
    }

    /// After a second in which it learns what sleeps cost.
    fn of_rate(rate: u64) -> Spent {
        let mut rest = Rest::new();
        run(&mut rest, 0, 1_000_000_000 / rate);
        run(&mut rest, 2_000_000_000, 1_000_000_000 / rate)
    }

    #[test]
    fn waiting_takes_no_more_than_its_part_of_the_core() {
        for rate in [1_000, 5_000, 13_000, 26_000, 45_000] {
            let spent = of_rate(rate);
            let all = spent.asleep + spent.polling;
            // Waiting may also use what was saved before, overdraw by one sleep, and end a sleep late.
            let part = (1_000_000_000 + SLEEP_MAX.0) / PART.unsigned_abs();
            let most = part + SAVED.unsigned_abs() + TAKES.0;
            assert!(all <= most, "{rate}: {all} of {most}, {} sleeps", spent.sleeps);
            assert!(p99(&spent) <= (DEAF_MAX + LATE).0, "{rate}: {}", p99(&spent));
        }
    }

    #[test]
    fn few_frames_leave_as_soon_as_they_are_due() {
        let spent = of_rate(1_000);
        assert!(p99(&spent) < 1_000, "{}", p99(&spent));
    }

    #[test]
    fn dense_frames_are_polled_for() {
        let spent = of_rate(200_000);
        assert_eq!(spent.sleeps, 0, "{spent:?}");
        // And no longer than a window or two after them.
        let mut rest = Rest::new();
        run(&mut rest, 0, 5_000);
        let now = Instant(1_000_000_000) + Nanos(2 * WINDOW.0);
        rest.wait(now, Instant::MAX);
        assert_ne!(rest.wait(now + WINDOW, Instant::MAX), Wait::Poll);
    }

    #[test]
    fn work_that_is_due_is_polled_for_even_in_debt() {
        let mut rest = Rest::new();
        let now = Instant(1_000_000);
        rest.slept(now, None, None);
        (0..100).for_each(|_| rest.slept(now, None, None));
        assert!(matches!(rest.wait(now, Instant::MAX), Wait::Deaf(_)));
        assert_eq!(rest.wait(now, now), Wait::Poll);
    }

    #[test]
    fn what_the_kernel_did_meanwhile_is_not_the_cost_of_a_sleep() {
        let mut rest = Rest::new();
        for n in 0..1_000 {
            let (until, now) = (Instant(n * 1_000_000), Instant(n * 1_000_000 + 500_000_000));
            rest.slept(now, Some(until), Some(Nanos::from_secs(1)));
        }
        assert!(rest.cost <= COST[1] && rest.late <= LATE_MAX, "{rest:?}");
    }
}
