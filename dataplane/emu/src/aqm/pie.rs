// SPDX-License-Identifier: Apache-2.0
//! PIE: proportional integral controller enhanced (RFC 8033).
//!
//! Drops arriving packets with a probability that is updated at equal intervals from how
//! long packets wait, relative to a reference, and from the trend of that.
//!
//! The pseudo code of RFC 8033, sections 4.1 to 4.4, with marks as in 5.1: a packet is marked
//! while the probability is below a tenth, and dropped above. The delay is that of
//! timestamps (section 5.2): the age of the packet in service at the instant of the update,
//! zero for an empty queue. MEAN_PKTSIZE is 1024 bytes. Not implemented: the other optional parts of
//! section 5, so PIE is always on, and its drops are not derandomised.
//!
//! Updates are per interval and not per packet, so that they may use floats; without a queue
//! and with a probability of zero there are none.

use crate::rng::Stream;
use crate::units::{Instant, NANOS_PER_SEC, Nanos, Probability};

use super::Verdict;
use crate::stats::DropReason;

const MEAN_PACKET: u64 = 1_024;
/// A probability of half of the finest that is drawn, or less, is zero.
const NONE: f64 = 1.0 / 8_589_934_592.0;
/// Above this probability packets are dropped and not marked.
const MARK_BELOW: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PiePlan {
    pub target: Nanos,
    /// Time between updates of the probability.
    pub update: Nanos,
    /// Gain of the distance to the reference, per second.
    pub alpha: f64,
    /// Gain of the change of the delay, per second.
    pub beta: f64,
    /// How long a burst after a quiet time passes without drops.
    pub max_burst: Nanos,
}

/// The state of one queue.
#[derive(Clone, Debug)]
pub struct Pie {
    probability: f64,
    /// The delay at the last update.
    delay: Nanos,
    burst: Nanos,
    /// When the next update is.
    next: Instant,
    /// When the packet at the head of the queue arrived.
    head: Option<Instant>,
}

impl Pie {
    /// A controller that starts at `at`.
    #[must_use]
    pub fn new(plan: PiePlan, at: Instant) -> Self {
        Self {
            probability: 0.0,
            delay: Nanos::ZERO,
            burst: plan.max_burst,
            next: at + plan.update,
            head: None,
        }
    }

    /// From `t` on the head of the queue is a packet that arrived at `arrived`, or there is
    /// none.
    pub fn head(&mut self, plan: PiePlan, t: Instant, arrived: Option<Instant>) {
        self.advance(plan, t);
        self.head = arrived;
    }

    /// The verdict on a packet that arrives at `at` and finds `queued` bytes.
    pub fn arrive(
        &mut self,
        plan: PiePlan,
        at: Instant,
        queued: u64,
        stream: &mut Stream,
    ) -> Verdict {
        self.advance(plan, at);
        let calm = self.delay.0 < plan.target.0 / 2 && self.probability < 0.2;
        if self.burst > Nanos::ZERO || calm || queued <= 2 * MEAN_PACKET {
            return Verdict::Pass;
        }
        if !stream.chance(Probability::new(self.probability)) {
            Verdict::Pass
        } else if self.probability < MARK_BELOW {
            Verdict::Signal
        } else {
            Verdict::Drop(DropReason::Aqm)
        }
    }

    /// Makes the updates up to and including `t`.
    pub fn advance(&mut self, plan: PiePlan, t: Instant) {
        let update = plan.update.0.max(1);
        while self.next <= t {
            let delay = self.head.map_or(Nanos::ZERO, |arrived| self.next.since(arrived));
            let still = self.head.is_none() && self.probability == 0.0 && self.delay == Nanos::ZERO;
            if still {
                // All that follow are alike.
                self.burst = plan.max_burst;
                let steps = t.since(self.next).0 / update + 1;
                self.next = self.next + Nanos(steps.saturating_mul(update));
                return;
            }
            self.calculate(plan, delay);
            self.next = self.next + plan.update;
        }
    }

    /// One update, as of RFC 8033's `calculate_drop_prob()`.
    fn calculate(&mut self, plan: PiePlan, delay: Nanos) {
        let change = plan.alpha * (seconds(delay) - seconds(plan.target))
            + plan.beta * (seconds(delay) - seconds(self.delay));
        let divisor = match self.probability {
            p if p < 0.000_001 => 2048.0,
            p if p < 0.000_01 => 512.0,
            p if p < 0.000_1 => 128.0,
            p if p < 0.001 => 32.0,
            p if p < 0.01 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        self.probability += change / divisor;
        if delay == Nanos::ZERO && self.delay == Nanos::ZERO {
            self.probability *= 0.98;
            // It is drawn as zero, and would take a hundred times as long to become it.
            if self.probability <= NONE {
                self.probability = 0.0;
            }
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        let half = plan.target.0 / 2;
        if self.probability == 0.0 && delay.0 < half && self.delay.0 < half {
            self.burst = plan.max_burst;
        } else {
            self.burst = Nanos(self.burst.0.saturating_sub(plan.update.0));
        }
        self.delay = delay;
    }
}

#[allow(clippy::cast_precision_loss, reason = "delays are far below 2⁵³ ns")]
fn seconds(n: Nanos) -> f64 {
    n.0 as f64 / NANOS_PER_SEC as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::rng::{Stage, StreamKey};
    use crate::units::Direction;

    /// The defaults of RFC 8033.
    const PLAN: PiePlan = PiePlan {
        target: Nanos::from_millis(15),
        update: Nanos::from_millis(15),
        alpha: 0.125,
        beta: 1.25,
        max_burst: Nanos::from_millis(150),
    };

    fn stream() -> Stream {
        let key = StreamKey {
            seed: 1,
            client: ClientKey::Default,
            direction: Direction::Forward,
            epoch: 0,
        };
        Stream::new(key, Stage::Aqm, 0)
    }

    /// A controller that finds this delay of the head at each update.
    fn after(delays_ms: &[u64]) -> Pie {
        let mut pie = Pie::new(PLAN, Instant(1_000_000_000));
        wait(&mut pie, delays_ms);
        pie
    }

    fn wait(pie: &mut Pie, delays_ms: &[u64]) {
        for ms in delays_ms {
            let at = pie.next;
            pie.head(PLAN, Instant(at.0 - 1), Some(Instant(at.0 - ms * 1_000_000)));
            pie.advance(PLAN, at);
        }
    }

    #[test]
    fn the_probability_is_updated_as_in_the_pseudo_code() {
        // By hand: p += (0.125 (d − 15 ms) + 1.25 (d − before)) / divisor of p's decade.
        let mut p = (0.125 * 0.015 + 1.25 * 0.030) / 2048.0;
        assert!((after(&[30]).probability - p).abs() < 1e-15);
        p += (0.125 * 0.025 + 1.25 * 0.010) / 128.0;
        assert!((after(&[30, 40]).probability - p).abs() < 1e-15);
        p += (0.125 * 0.985 + 1.25 * 0.960) / 32.0;
        assert!((after(&[30, 40, 1_000]).probability - p).abs() < 1e-15);
        p += (0.125 * -0.010 + 1.25 * -0.995) / 2.0;
        assert_eq!(after(&[30, 40, 1_000, 5]).probability, p.max(0.0));
    }

    /// A controller in this state, at an update with this delay.
    fn updated(plan: PiePlan, probability: f64, old_us: u64, burst_ms: u64, us: u64) -> Pie {
        let mut pie = Pie::new(plan, Instant(1_000_000_000));
        pie.probability = probability;
        pie.delay = Nanos::from_micros(old_us);
        pie.burst = Nanos::from_millis(burst_ms);
        pie.calculate(plan, Nanos::from_micros(us));
        pie
    }

    #[test]
    fn divisor_changes_at_the_decades_of_rfc_8033() {
        for (p, divisor) in [
            (0.000_000_9, 2048.0),
            (0.000_001, 512.0),
            (0.000_009_9, 512.0),
            (0.000_01, 128.0),
            (0.000_099, 128.0),
            (0.000_1, 32.0),
            (0.000_99, 32.0),
            (0.001, 8.0),
            (0.009_9, 8.0),
            (0.01, 2.0),
            (0.099, 2.0),
            (0.1, 1.0),
            (0.5, 1.0),
        ] {
            let expected = p + (0.125 * 0.001 + 1.25 * 0.001) / divisor;
            let found = updated(PLAN, p, 15_000, 0, 16_000).probability;
            assert!((found - expected).abs() < 1e-14, "{p}: {found}, not {expected}");
        }
    }

    #[test]
    fn probability_decays_only_while_both_delays_are_zero() {
        let idle = 0.125 * -0.015;
        for (old_us, us, expected) in [
            (0, 0, (0.5 + idle) * 0.98),
            (1_000, 0, 0.5 + idle - 1.25 * 0.001),
            (0, 1_000, 0.5 + 0.125 * -0.014 + 1.25 * 0.001),
        ] {
            let found = updated(PLAN, 0.5, old_us, 0, us).probability;
            assert!((found - expected).abs() < 1e-14, "{old_us} {us}: {found}, not {expected}");
        }
        // Without a target nothing but the decay changes it: below half of the finest draw it is 0.
        let plan = PiePlan { target: Nanos::ZERO, ..PLAN };
        assert_eq!(updated(plan, 1e-11, 0, 0, 0).probability, 0.0);
        let found = updated(plan, 1e-9, 0, 0, 0).probability;
        assert!((found - 0.98e-9).abs() < 1e-20, "{found}");
    }

    #[test]
    fn burst_allowance_is_restored_below_half_of_the_target() {
        let (max, less) = (Nanos::from_millis(150), Nanos::from_millis(85));
        for (p, old_us, us, expected) in [
            (0.0, 7_000, 7_000, max),
            (0.0, 0, 0, max),
            (0.0, 7_500, 7_500, less),
            (0.0, 7_500, 0, less),
            (0.0, 7_400, 7_500, less),
            (0.0, 7_400, 0, max),
            // The probability does not become zero.
            (0.5, 0, 0, less),
            (0.5, 7_000, 7_000, less),
        ] {
            let pie = updated(PLAN, p, old_us, 100, us);
            assert_eq!(pie.burst, expected, "p {p}, {old_us} us, then {us} us");
            assert_eq!(pie.delay, Nanos::from_micros(us));
        }
    }

    #[test]
    fn delay_of_an_empty_queue_is_zero_at_the_next_update() {
        let mut pie = Pie::new(PLAN, Instant(1_000_000_000));
        pie.delay = Nanos::from_millis(10);
        let next = pie.next;
        pie.advance(PLAN, next);
        assert_eq!(pie.delay, Nanos::ZERO);
    }

    #[test]
    fn safeguards_of_rfc_8033_admit_every_packet() {
        let verdicts = |p: f64, delay_us: u64, burst: Nanos, queued: u64| {
            let mut pie = Pie::new(PLAN, Instant(1_000_000_000));
            (pie.probability, pie.delay, pie.burst) = (p, Nanos::from_micros(delay_us), burst);
            let mut stream = stream();
            let mut counts = [0; 3];
            for _ in 0..1_000 {
                match pie.arrive(PLAN, Instant(1_000_000_000), queued, &mut stream) {
                    Verdict::Pass => counts[0] += 1,
                    Verdict::Signal => counts[1] += 1,
                    Verdict::Drop(_) => counts[2] += 1,
                }
            }
            counts
        };
        let none = Nanos::ZERO;
        let all = [1_000, 0, 0];
        assert_eq!(verdicts(0.5, 20_000, Nanos(1), 9_000), all, "a burst is allowed");
        assert_eq!(verdicts(0.19, 7_400, none, 9_000), all, "the delay is short");
        assert_eq!(verdicts(0.5, 20_000, none, 2_048), all, "two packets wait");
        for (p, delay_us, queued) in [(0.19, 7_500, 9_000), (0.2, 0, 9_000), (0.5, 20_000, 2_049)] {
            let [passed, marked, dropped] = verdicts(p, delay_us, none, queued);
            let expected = 1_000.0 * p;
            assert!((f64::from(dropped) - expected).abs() < 80.0, "{p}: {dropped} dropped");
            assert_eq!((passed + dropped, marked), (1_000, 0));
        }
        // From 10 % on packets are dropped although they could be marked.
        assert!(verdicts(0.099, 20_000, none, 9_000)[1] > 50);
        assert!(verdicts(0.1, 20_000, none, 9_000)[2] > 50);
    }

    #[test]
    fn probability_is_constant_at_reference() {
        let mut pie = after(&[15]);
        for p in [1e-7, 1e-3, 0.05, 0.7] {
            pie.probability = p;
            wait(&mut pie, &[15; 10]);
            assert_eq!(pie.probability, p);
        }
    }

    #[test]
    fn probability_decays_without_queue_and_updates_stop() {
        let mut pie = after(&[400; 60]);
        let risen = pie.probability;
        assert!(risen > 0.1, "{risen}");
        let from = pie.next;
        pie.head(PLAN, Instant(from.0 - 1), None);
        let mut other = pie.clone();
        // One that is asked at every update, and one that is asked late.
        for i in 0..100_000 {
            pie.advance(PLAN, Instant(from.0 + i * PLAN.update.0));
        }
        other.advance(PLAN, Instant(from.0 + 99_999 * PLAN.update.0));
        for p in [pie, other] {
            assert_eq!((p.probability, p.burst), (0.0, PLAN.max_burst));
            assert_eq!(p.next, Instant(from.0 + 100_000 * PLAN.update.0));
        }
    }

    #[test]
    fn drops_come_with_the_probability_and_not_in_a_burst() {
        let at = |pie: &Pie| Instant(pie.next.0 - 1);
        let mut fresh = after(&[400; 9]);
        let now = at(&fresh);
        let mut s = stream();
        assert!(fresh.probability > 0.0);
        assert!((0..10_000).all(|_| fresh.arrive(PLAN, now, 1 << 20, &mut s) == Verdict::Pass));
        let mut pie = after(&[100; 26]);
        let (now, p) = (at(&pie), pie.probability);
        assert!((0.001..MARK_BELOW).contains(&p), "{p}");
        let n = 1_000_000;
        let hits =
            (0..n).filter(|_| pie.arrive(PLAN, now, 1 << 20, &mut s) == Verdict::Signal).count();
        let sd = (f64::from(n) * p * (1.0 - p)).sqrt();
        assert!((hits as f64 - f64::from(n) * p).abs() < 5.0 * sd, "{hits} {p}");
        // Two packets are no queue.
        assert!((0..10_000).all(|_| pie.arrive(PLAN, now, 2_048, &mut s) == Verdict::Pass));
        // Where it is severe, marks are not enough.
        let mut severe = after(&[400; 60]);
        let now = at(&severe);
        let verdicts: Vec<_> =
            (0..10_000).map(|_| severe.arrive(PLAN, now, 1 << 20, &mut s)).collect();
        assert!(verdicts.contains(&Verdict::Drop(DropReason::Aqm)));
        assert!(!verdicts.contains(&Verdict::Signal));
    }
}
