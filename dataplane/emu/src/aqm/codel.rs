// SPDX-License-Identifier: Apache-2.0
//! CoDel: controlled delay (RFC 8289).
//!
//! Looks at packets when they leave the queue. Where every packet of an interval waited for
//! longer than the target, one is dropped, and then more in a rhythm of interval / √n until
//! one waits for less. A drop takes none of the shaper's time.
//!
//! The pseudo code of RFC 8289, section 5, step by step, with the time at which a packet
//! would begin service as its time of leaving; MAXPACKET is 1514 bytes. With marks
//! (section 6 of RFC 3168 applies), a packet that is marked leaves, as in Linux.
//! Differs in that the control law is computed in integers, rounded down to a nanosecond.

use crate::units::{Instant, Nanos};

/// The largest packet: with less than this behind it no packet is dropped.
pub const MAX_PACKET: u64 = 1_514;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelPlan {
    pub target: Nanos,
    /// How long the sojourn may exceed the target; about one round trip.
    pub interval: Nanos,
}

/// A packet at the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub arrived: Instant,
    /// Bytes in the queue behind it.
    pub behind: u64,
}

/// The state of one queue.
#[derive(Clone, Debug, Default)]
pub struct CoDel {
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u64,
    last_count: u64,
    dropping: bool,
    /// Whether the chosen packet starts a dropping state.
    entering: bool,
}

impl CoDel {
    /// Whether to drop or mark `head`, which leaves the queue at `now`. The caller then calls
    /// [`CoDel::dropped`] or [`CoDel::marked`].
    pub fn chooses(&mut self, plan: CoDelPlan, now: Instant, head: Option<Candidate>) -> bool {
        let above = self.is_above(plan, now, head);
        self.entering = !self.dropping && above;
        self.dropping &= above;
        let due = self.dropping && now >= self.drop_next;
        self.count += u64::from(due);
        self.entering || due
    }

    /// The chosen packet was dropped and `head` is next: whether to drop that as well.
    pub fn dropped(&mut self, plan: CoDelPlan, now: Instant, head: Option<Candidate>) -> bool {
        let above = self.is_above(plan, now, head);
        if self.entering {
            self.enter(plan, now);
            return false;
        }
        self.dropping = above;
        if !above {
            return false;
        }
        self.drop_next = control_law(plan, self.drop_next, self.count);
        let due = now >= self.drop_next;
        self.count += u64::from(due);
        due
    }

    /// The chosen packet was marked, and leaves.
    pub fn marked(&mut self, plan: CoDelPlan, now: Instant) {
        if self.entering {
            self.enter(plan, now);
        } else {
            self.drop_next = control_law(plan, self.drop_next, self.count);
        }
    }

    /// Whether packets have waited for longer than the target for an interval.
    fn is_above(&mut self, plan: CoDelPlan, now: Instant, head: Option<Candidate>) -> bool {
        let head = head.filter(|h| now.since(h.arrived) >= plan.target && h.behind > MAX_PACKET);
        if head.is_none() {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + plan.interval)
    }

    /// Starts a dropping state, at the rate of the last one if that was recent.
    fn enter(&mut self, plan: CoDelPlan, now: Instant) {
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < Nanos(plan.interval.0.saturating_mul(16));
        self.dropping = true;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = control_law(plan, now, self.count);
        self.last_count = self.count;
    }
}

/// `t` + interval / √`count`.
fn control_law(plan: CoDelPlan, t: Instant, count: u64) -> Instant {
    let square = u128::from(plan.interval.0) * u128::from(plan.interval.0);
    let step = (square / u128::from(count.max(1))).isqrt();
    t + Nanos(u64::try_from(step).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: CoDelPlan =
        CoDelPlan { target: Nanos::from_millis(5), interval: Nanos::from_millis(100) };

    /// A packet that has waited for this time, with a queue behind it.
    fn waited(now: Instant, ms: u64) -> Option<Candidate> {
        Some(Candidate { arrived: Instant(now.0 - ms * 1_000_000), behind: 100_000 })
    }

    /// When packets are dropped if one leaves each millisecond after it waited for `ms`.
    fn drops(codel: &mut CoDel, from_ms: u64, to_ms: u64, ms: u64) -> Vec<u64> {
        let mut drops = Vec::new();
        for t in from_ms..to_ms {
            let now = Instant(t * 1_000_000);
            let mut chosen = codel.chooses(PLAN, now, waited(now, ms));
            while chosen {
                drops.push(t);
                chosen = codel.dropped(PLAN, now, waited(now, ms));
            }
        }
        drops
    }

    #[test]
    fn dropping_resumes_at_its_rate_within_sixteen_intervals() {
        let last = Instant(1_000_000_000);
        for (after_ms, count) in [(1_599, 18), (1_600, 1), (5_000, 1)] {
            let mut codel = CoDel { count: 20, last_count: 2, drop_next: last, ..CoDel::default() };
            codel.enter(PLAN, last + Nanos::from_millis(after_ms));
            assert_eq!(codel.count, count, "{after_ms} ms after the last drop");
        }
    }

    #[test]
    fn drops_come_in_a_rhythm_of_interval_over_root_n() {
        let mut codel = CoDel::default();
        let drops = drops(&mut codel, 1_000, 60_000, 20);
        // The first one interval after the first packet that waited for too long.
        assert_eq!(drops[0], 1_100);
        // The k-th follows one of the law's instants by less than a millisecond.
        let mut law = 1_100.0;
        for (k, t) in drops.iter().enumerate().skip(1) {
            law += 100.0 / (k as f64).sqrt();
            let late = *t as f64 - law;
            // Each step of the law is rounded down to a nanosecond.
            let rounding = k as f64 * 1e-6;
            assert!((-rounding..1.0).contains(&late), "drop {k} at {t} ms, by law at {law}");
        }
        // ∑ 100 / √k ≈ 200 √n over 59 s.
        assert!((80_000..95_000).contains(&drops.len()), "{}", drops.len());
    }

    #[test]
    fn sojourn_below_target_never_drops() {
        assert_eq!(drops(&mut CoDel::default(), 1_000, 20_000, 4), []);
        // Nor one above it that does not last for an interval.
        let mut codel = CoDel::default();
        for t in (1_000..20_000).step_by(100) {
            assert_eq!(drops(&mut codel, t, t + 99, 20), []);
            assert_eq!(drops(&mut codel, t + 99, t + 100, 4), []);
        }
    }

    #[test]
    fn the_last_packets_of_a_queue_are_not_dropped() {
        let mut codel = CoDel::default();
        for t in 1_000..5_000 {
            let now = Instant(t * 1_000_000);
            let head = waited(now, 20).map(|h| Candidate { behind: MAX_PACKET, ..h });
            assert!(!codel.chooses(PLAN, now, head));
        }
    }

    #[test]
    fn dropping_state_resumes_at_its_rate_if_recent() {
        let mut codel = CoDel::default();
        let first = drops(&mut codel, 1_000, 3_000, 20).len() as u64;
        assert_eq!(codel.count, first);
        drops(&mut codel, 3_000, 3_010, 0);
        drops(&mut codel, 3_010, 3_111, 20);
        // Since the last state began with one.
        assert_eq!(codel.count, first - 1);
        drops(&mut codel, 3_111, 3_112, 0);
        drops(&mut codel, 8_000, 8_101, 20);
        assert_eq!(codel.count, 1, "more than 16 intervals later");
    }

    #[test]
    fn marks_come_when_drops_would() {
        let (mut dropping, mut marking) = (CoDel::default(), CoDel::default());
        let dropped = drops(&mut dropping, 1_000, 3_000, 20);
        let mut marked = Vec::new();
        for t in 1_000..3_000 {
            let now = Instant(t * 1_000_000);
            if marking.chooses(PLAN, now, waited(now, 20)) {
                marked.push(t);
                marking.marked(PLAN, now);
            }
        }
        assert_eq!(marked, dropped);
    }
}
