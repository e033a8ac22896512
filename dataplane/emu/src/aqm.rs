// SPDX-License-Identifier: Apache-2.0
//! Queue management: tail drop at the limit, and which packets are dropped, or marked, before
//! that.
//!
//! *Random drop* is from the gateway in SAT20 (S. Claypool, J. Chung, M. Claypool, CCNC 2021):
//! arriving frames are dropped at random while the queue is above half of its limit. The
//! study does not publish the probability. Here it is linear in the queue's length from
//! the threshold to the limit, and constant if both ends are equal. Differs from [`red`]
//! in that it looks at the queue as it is and not at a moving average, and does not space
//! the drops.
//!
//! [`red`] and [`pie`] decide on arriving frames, [`codel`] on leaving ones; with `ecn`
//! chosen packets are marked ([`crate::ecn`]) instead of dropped, where possible. Without a
//! rate limit there is no queue, and no AQM acts.

pub mod codel;
pub mod pie;
pub mod red;

use std::num::NonZeroU64;

use crate::rng::{Stage, Stream, StreamKey};
use crate::stats::DropReason;
use crate::units::{Instant, Probability};

use codel::{Candidate, CoDel, CoDelPlan};
use pie::{Pie, PiePlan};
use red::{Red, RedPlan};

/// Random drop of arriving frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomDrop {
    /// Applies while more bytes than this are queued.
    pub threshold: u64,
    /// The probability just above the threshold.
    pub at_threshold: Probability,
    /// The probability at the limit.
    pub at_limit: Probability,
    /// The least probability while more bytes than `early_threshold` are queued.
    pub early: Probability,
    pub early_threshold: u64,
}

impl RandomDrop {
    /// The most bytes queued at which nothing is dropped.
    fn starts(&self) -> u64 {
        let early = (self.early != Probability::ZERO).then_some(self.early_threshold);
        early.map_or(self.threshold, |early| early.min(self.threshold))
    }

    /// The probability with more bytes than [`Self::starts`] in a queue of `limit` bytes.
    fn probability(&self, queued: u64, limit: u64) -> Probability {
        let Some(above) = queued.checked_sub(self.threshold).filter(|above| *above > 0) else {
            return self.early;
        };
        let span = limit.saturating_sub(self.threshold);
        self.at_threshold.toward(self.at_limit, above, span).max(self.early)
    }
}

/// Which frames are dropped, or marked, before the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum AqmPlan {
    #[default]
    TailDrop,
    /// Arriving ones, by the current queue length.
    RandomDrop(RandomDrop),
    /// Arriving ones, by the average queue length.
    Red(RedPlan),
    /// Leaving ones, by how long they waited.
    CoDel(CoDelPlan),
    /// Arriving ones, by the queueing delay.
    Pie(PiePlan),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuePlan {
    /// Most bytes queued, the frame in service included.
    pub limit: u64,
    /// Which frames are dropped or marked before that.
    pub aqm: AqmPlan,
    /// Whether frames are marked instead of dropped, where possible.
    pub ecn: bool,
}

impl QueuePlan {
    /// A queue of this many bytes with tail drop.
    #[must_use]
    pub fn tail_drop(limit: u64) -> Self {
        Self { limit, aqm: AqmPlan::TailDrop, ecn: false }
    }

    /// The most bytes in the queue, the arriving frame included, at which every frame is
    /// admitted without a look.
    #[must_use]
    pub fn admits_up_to(&self) -> u64 {
        match self.aqm {
            AqmPlan::TailDrop | AqmPlan::CoDel(_) => self.limit,
            AqmPlan::RandomDrop(r) => self.limit.min(r.starts()),
            AqmPlan::Red(_) | AqmPlan::Pie(_) => 0,
        }
    }

    /// Whether its AQM has to see frames that leave the queue.
    #[must_use]
    pub fn watches(&self) -> bool {
        matches!(self.aqm, AqmPlan::Red(_) | AqmPlan::CoDel(_) | AqmPlan::Pie(_))
    }

    /// Whether its AQM drops queued frames, not arriving ones.
    #[must_use]
    pub fn drops_late(&self) -> bool {
        matches!(self.aqm, AqmPlan::CoDel(_))
    }
}

/// The decision on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// The AQM chose it: it is marked if it can be, and else dropped.
    Signal,
    Drop(DropReason),
}

#[derive(Clone, Debug)]
enum State {
    Stateless,
    Red(Red),
    CoDel(CoDel),
    Pie(Box<Pie>),
}

/// An AQM and its state.
#[derive(Clone, Debug)]
pub struct Aqm {
    plan: QueuePlan,
    stream: Stream,
    state: State,
}

impl Aqm {
    /// The AQM of a queue that is empty at `at`.
    #[must_use]
    pub fn new(plan: QueuePlan, key: StreamKey, at: Instant) -> Self {
        let stream = Stream::new(key, Stage::Aqm, 0);
        let mut aqm = Self { plan, stream, state: Self::begin(&plan, at) };
        aqm.attach(at, None);
        aqm
    }

    fn begin(plan: &QueuePlan, at: Instant) -> State {
        match plan.aqm {
            AqmPlan::TailDrop | AqmPlan::RandomDrop(_) => State::Stateless,
            AqmPlan::Red(_) => State::Red(Red::default()),
            AqmPlan::CoDel(_) => State::CoDel(CoDel::default()),
            AqmPlan::Pie(p) => State::Pie(Box::new(Pie::new(p, at))),
        }
    }

    /// Takes another plan at `at`; the caller then calls [`Aqm::attach`]. An unchanged AQM continues
    /// with its new parameters.
    pub fn replan(&mut self, plan: QueuePlan, at: Instant) {
        // The time until now counts under the old plan.
        self.attach(at, None);
        let stays = std::mem::discriminant(&plan.aqm) == std::mem::discriminant(&self.plan.aqm);
        self.plan = plan;
        if !stays {
            self.state = Self::begin(&plan, at);
        }
    }

    #[must_use]
    pub fn plan(&self) -> &QueuePlan {
        &self.plan
    }

    /// From `t` on the head of the queue is a packet that arrived at `head`, or there is
    /// none.
    pub fn attach(&mut self, t: Instant, head: Option<Instant>) {
        match (&mut self.state, self.plan.aqm) {
            (State::Red(red), _) => red.head(t, head.is_some()),
            (State::Pie(pie), AqmPlan::Pie(plan)) => pie.head(plan, t, head),
            _ => {}
        }
    }

    /// Advances it to `at`, so that little is left to catch up with later.
    pub fn keep_up(&mut self, at: Instant) {
        if let (State::Pie(pie), AqmPlan::Pie(plan)) = (&mut self.state, self.plan.aqm) {
            pie.advance(plan, at);
        }
    }

    /// Decides on a frame of `len` bytes that arrives at `at`, finds `queued` bytes and will
    /// wait for a link of `rate`; none if the link is down.
    #[inline]
    pub fn admit(
        &mut self,
        at: Instant,
        queued: u64,
        len: u64,
        rate: Option<NonZeroU64>,
    ) -> Verdict {
        let Self { plan, stream, state } = self;
        let rate = rate.unwrap_or(NonZeroU64::MIN);
        if queued.saturating_add(len) > plan.limit {
            if let (AqmPlan::Red(p), State::Red(red)) = (plan.aqm, state) {
                // The average is of all arrivals.
                red.sample(p, at, queued, rate);
            }
            return Verdict::Drop(DropReason::Limit);
        }
        match (plan.aqm, state) {
            (AqmPlan::RandomDrop(r), _) if queued > r.starts() => {
                let p = r.probability(queued, plan.limit);
                if stream.chance(p) { Verdict::Signal } else { Verdict::Pass }
            }
            (AqmPlan::Red(p), State::Red(red)) => red.arrive(p, at, queued, rate, stream),
            (AqmPlan::Pie(p), State::Pie(pie)) => pie.arrive(p, at, queued, stream),
            _ => Verdict::Pass,
        }
    }

    /// Whether to mark or drop `head`, which leaves the queue at `now`. The caller then calls
    /// [`Aqm::dropped`] or [`Aqm::marked`].
    pub fn chooses(&mut self, now: Instant, head: Option<Candidate>) -> bool {
        match (&mut self.state, self.plan.aqm) {
            (State::CoDel(codel), AqmPlan::CoDel(plan)) => codel.chooses(plan, now, head),
            _ => false,
        }
    }

    /// The chosen packet was dropped and `head` is next: whether to drop that as well.
    pub fn dropped(&mut self, now: Instant, head: Option<Candidate>) -> bool {
        match (&mut self.state, self.plan.aqm) {
            (State::CoDel(codel), AqmPlan::CoDel(plan)) => codel.dropped(plan, now, head),
            _ => false,
        }
    }

    /// The chosen packet was marked.
    pub fn marked(&mut self, now: Instant) {
        if let (State::CoDel(codel), AqmPlan::CoDel(plan)) = (&mut self.state, self.plan.aqm) {
            codel.marked(plan, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::units::{Direction, Nanos};

    const RATE: Option<NonZeroU64> = NonZeroU64::new(80_000_000);

    fn key() -> StreamKey {
        StreamKey { seed: 1, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 }
    }

    /// Drops everything while the average queue is above `max` bytes.
    fn red(max: u64) -> QueuePlan {
        let (at_max, weight) = (Probability::ONE, Probability::new(0.01));
        let aqm =
            AqmPlan::Red(RedPlan { min: 1_000, max, at_max, weight, packet: 1_000, gentle: false });
        QueuePlan { aqm, ..QueuePlan::tail_drop(1_000_000) }
    }

    /// A RED with an average queue of almost 40 kB, and the instant of that.
    fn loaded() -> (Aqm, Instant) {
        let mut q = Aqm::new(red(30_000), key(), Instant::ZERO);
        q.attach(Instant::ZERO, Some(Instant::ZERO));
        let at = |n: u64| Instant(n * 1_000_000);
        for n in 0..1_000 {
            q.admit(at(n), 40_000, 1_000, RATE);
        }
        (q, at(1_000))
    }

    #[test]
    fn frame_at_the_threshold_is_admitted() {
        let (threshold, one) = (1_000, Probability::ONE);
        let law =
            RandomDrop { threshold, at_threshold: one, at_limit: one, ..RandomDrop::default() };
        let plan = QueuePlan { aqm: AqmPlan::RandomDrop(law), ..QueuePlan::tail_drop(10_000) };
        let mut q = Aqm::new(plan, key(), Instant::ZERO);
        assert_eq!(q.admit(Instant::ZERO, threshold, 60, RATE), Verdict::Pass);
        assert_eq!(q.admit(Instant::ZERO, threshold + 1, 60, RATE), Verdict::Signal);
    }

    #[test]
    fn changed_limit_applies_to_the_next_frame() {
        let mut q = Aqm::new(QueuePlan::tail_drop(10_000), key(), Instant::ZERO);
        assert_eq!(q.admit(Instant::ZERO, 5_000, 60, RATE), Verdict::Pass);
        q.replan(QueuePlan::tail_drop(5_000), Instant::ZERO);
        let verdict = q.admit(Instant::ZERO, 5_000, 60, RATE);
        assert_eq!(verdict, Verdict::Drop(DropReason::Limit));
    }

    #[test]
    fn changed_parameters_keep_the_average_and_another_aqm_resets_it() {
        let (mut q, at) = loaded();
        q.replan(red(35_000), at);
        q.attach(at, Some(at));
        assert_eq!(q.admit(at, 40_000, 1_000, RATE), Verdict::Drop(DropReason::Aqm));
        q.replan(QueuePlan::tail_drop(1_000_000), at);
        assert!(matches!(q.state, State::Stateless));
        q.replan(red(35_000), at);
        assert!(matches!(q.state, State::Red(_)));
        assert_eq!(q.admit(at, 40_000, 1_000, RATE), Verdict::Pass);
    }

    #[test]
    fn average_decays_while_the_queue_is_empty() {
        let (mut q, at) = loaded();
        let mut busy = q.clone();
        q.attach(at, None);
        // 80 Mbit/s are 10,000 packets of 1,000 bytes a second.
        let later = at + Nanos::from_secs(1);
        assert_eq!(busy.admit(later, 0, 1_000, RATE), Verdict::Drop(DropReason::Aqm));
        assert_eq!(q.admit(later, 0, 1_000, RATE), Verdict::Pass);
    }

    #[test]
    fn codel_marks_at_the_instants_at_which_it_drops() {
        let plan = CoDelPlan { target: Nanos::from_millis(5), interval: Nanos::from_millis(100) };
        let plan = QueuePlan { aqm: AqmPlan::CoDel(plan), ..QueuePlan::tail_drop(1_000_000) };
        let instants = |ecn: bool| -> Vec<u64> {
            let mut q = Aqm::new(plan, key(), Instant::ZERO);
            let chosen = (100..3_000).filter(|ms| {
                let now = Instant(ms * 1_000_000);
                let arrived = Instant((ms - 50) * 1_000_000);
                let head = Some(Candidate { arrived, behind: 100_000 });
                let chosen = q.chooses(now, head);
                match ecn {
                    _ if !chosen => {}
                    true => q.marked(now),
                    false => assert!(!q.dropped(now, head)),
                }
                chosen
            });
            chosen.collect()
        };
        let marks = instants(true);
        assert_eq!(marks, instants(false));
        // The first interval passes, then they come more and more often.
        assert_eq!(marks[..3], [200, 300, 371]);
        assert!((50..500).contains(&marks.len()), "{marks:?}");
    }

    #[test]
    fn early_drops_are_the_least_of_the_law() {
        let law = RandomDrop {
            threshold: 18_000,
            at_limit: Probability::new(0.4),
            early: Probability::new(0.05),
            early_threshold: 4_000,
            ..RandomDrop::default()
        };
        let at = |queued| law.probability(queued, 36_000);
        assert_eq!(law.starts(), 4_000);
        for (queued, p) in [(4_001, 0.05), (18_000, 0.05), (18_045, 0.05), (27_000, 0.2)] {
            assert_eq!(at(queued), Probability::new(p), "{queued}");
        }
        let none = RandomDrop { early: Probability::ZERO, ..law };
        assert_eq!((none.starts(), none.probability(18_000, 36_000)), (18_000, Probability::ZERO));
        let plan = QueuePlan { aqm: AqmPlan::RandomDrop(law), ..QueuePlan::tail_drop(36_000) };
        assert_eq!(plan.admits_up_to(), 4_000);
        let mut q = Aqm::new(plan, key(), Instant::ZERO);
        let mut hits = |queued| {
            (0..100_000)
                .filter(|_| q.admit(Instant::ZERO, queued, 1, None) != Verdict::Pass)
                .count()
        };
        assert_eq!(hits(4_000), 0);
        assert!((4_600..5_400).contains(&hits(4_001)));
    }

    #[test]
    fn random_drop_follows_its_law() {
        let key = key();
        let plan = QueuePlan {
            aqm: AqmPlan::RandomDrop(RandomDrop {
                threshold: 18_000_000,
                at_threshold: Probability::ZERO,
                at_limit: Probability::new(0.4),
                ..RandomDrop::default()
            }),
            ..QueuePlan::tail_drop(36_000_000)
        };
        let mut q = Aqm::new(plan, key, Instant::ZERO);
        let mut admit = |queued| q.admit(Instant::ZERO, queued, 1514, None);
        let n = 100_000;
        for (queued, p) in
            [(18_000_000, 0.0), (22_500_000, 0.1), (27_000_000, 0.2), (35_990_000, 0.4)]
        {
            let hits = (0..n).filter(|_| admit(queued) == Verdict::Signal).count();
            let tolerance = 5.0 * (f64::from(n) * p * (1.0 - p)).sqrt() + 30.0;
            assert!((hits as f64 - p * f64::from(n)).abs() <= tolerance, "{hits} at {queued}");
        }
        assert_eq!(admit(36_000_000 - 1513), Verdict::Drop(DropReason::Limit));
        let mut certain = Aqm::new(QueuePlan::tail_drop(36_000_000), key, Instant::ZERO);
        let verdict = certain.admit(Instant::ZERO, 36_000_000 - 1514, 1514, None);
        assert_eq!(verdict, Verdict::Pass);
    }
}
