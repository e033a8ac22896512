// SPDX-License-Identifier: Apache-2.0
//! The delay: base + wait for a transmission slot + body + excursion, first in first
//! out.
//!
//! - *Slots*: frames of a TDMA return link wait for the next boundary of a period
//!   with a phase that is drawn once, so that a frame at a random instant waits
//!   uniformly up to the period, and frames of one slot leave together.
//! - *Body*: an extra delay that is held for a random time and then redrawn from a
//!   table of quantiles; it falls as fast as time passes (`delay/body.rs`).
//! - *Excursions*: episodes of continuous time ([`crate::episode`]) in which the
//!   delay is higher by an amount drawn once per episode from a generalized Pareto
//!   distribution. When one ends, the frames that it held up leave at once: the extra delay
//!   falls as fast as time passes, to zero. Not a draw per frame: that would, in
//!   FIFO order, hold the whole link at the tail of the distribution.
//!
//! A frame waits for its slot first, then for the body, and then for the
//! excursion; none of the three makes a later frame leave earlier.
//! So the delay is a function of time alone, the same for a link that carries five frames per
//! second and for a full one, and no frame overtakes another. After a
//! change to a smaller delay, frames are due together with the last one until the delay
//! line has caught up.
//!
//! Differs from `tc-netem`, which draws the delay per frame and then sorts by it.

mod body;

use crate::episode::{DurationLaw, EpisodePlan, Episodes};
use crate::rng::{Stage, Stream, StreamKey, generalized_pareto};
use crate::units::{Instant, Nanos};

use body::Body;
pub use body::BodyPlan;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExcursionPlan {
    /// Mean of the quiet span between two episodes.
    pub interval: Nanos,
    /// Mean duration of an episode; exponential.
    pub duration: Nanos,
    pub location: Nanos,
    /// Scale of the extra delay.
    pub scale: Nanos,
    /// Shape of the extra delay; zero is exponential.
    pub shape: f64,
    /// Larger draws are clamped to this.
    pub max: Nanos,
}

impl ExcursionPlan {
    fn episodes(&self) -> EpisodePlan {
        EpisodePlan {
            interval: self.interval,
            duration: self.duration,
            law: DurationLaw::Exponential,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelayPlan {
    /// Delay of every frame.
    pub base: Nanos,
    /// Period of the transmission slots; zero for none.
    pub slot: Nanos,
    /// A delay that varies all the time.
    pub body: Option<BodyPlan>,
    /// Classes of excursions; where several are in an episode, the largest counts.
    pub excursions: Vec<ExcursionPlan>,
}

impl DelayPlan {
    /// Upper bound of the time in the delay line.
    #[must_use]
    pub fn max(&self) -> Nanos {
        let extra = self.excursions.iter().map(|e| e.max).max().unwrap_or_default();
        let body = self.body.as_ref().map(BodyPlan::max).unwrap_or_default();
        self.base + self.slot + body + extra
    }
}

#[derive(Clone, Debug)]
struct Excursion {
    plan: ExcursionPlan,
    episodes: Episodes,
    /// Extra delay of the current or next episode.
    extra: Nanos,
    /// When the backlog of past episodes has left.
    caught_up: Instant,
}

impl Excursion {
    fn new(plan: ExcursionPlan, key: StreamKey, class: u8, at: Instant) -> Self {
        let stream = Stream::new(key, Stage::Excursion, class);
        let episodes = Episodes::new(plan.episodes(), stream, at);
        let mut e = Self { plan, episodes, extra: Nanos::ZERO, caught_up: at };
        e.draw();
        e
    }

    fn replan(&mut self, plan: ExcursionPlan, at: Instant) {
        self.plan = plan;
        self.episodes.replan(None, plan.episodes(), at);
        self.caught_up = at;
        self.draw();
    }

    fn draw(&mut self) {
        let ExcursionPlan { location, scale, shape, max, .. } = self.plan;
        self.extra = generalized_pareto(self.episodes.mark(), location, scale, shape).min(max);
    }

    fn extra(&mut self, t: Instant) -> Nanos {
        while self.episodes.is_over(t) {
            self.caught_up = self.caught_up.max(self.episodes.end() + self.extra);
            self.episodes.next();
            self.draw();
        }
        // After a change to a shorter slot or body, `t` may be before the last instant asked for.
        let held = self.caught_up.since(t).min(self.plan.max);
        if self.episodes.covers(t) { held.max(self.extra) } else { held }
    }

    /// How long it adds nothing, as seen at `t`, for which [`Excursion::extra`] was
    /// asked; `t` or earlier if it adds something.
    fn quiet_until(&self, t: Instant) -> Instant {
        if self.caught_up > t { t } else { self.episodes.start() }
    }
}

#[derive(Clone, Debug)]
pub struct Delay {
    base: Nanos,
    slot: Nanos,
    /// A boundary between slots; the others lie at multiples of `slot` from it.
    boundary: Instant,
    calm: Calm,
    last_due: Instant,
    processes: Box<Processes>,
}

#[derive(Clone, Debug, Default)]
struct Processes {
    body: Option<Body>,
    excursions: Vec<Excursion>,
}

/// Delay that the processes add, and how long that stays valid.
#[derive(Clone, Copy, Debug, Default)]
struct Calm {
    until: Instant,
    extra: Nanos,
}

impl Delay {
    /// The processes start at `at`.
    #[must_use]
    pub fn new(plan: &DelayPlan, key: StreamKey, at: Instant) -> Self {
        let mut d = Self {
            base: Nanos::ZERO,
            slot: Nanos::ZERO,
            boundary: at,
            calm: Calm::default(),
            last_due: Instant::ZERO,
            processes: Box::default(),
        };
        d.replan(plan, key, at);
        d
    }

    /// Takes a new plan from `at` on. Slots, a body, and classes of excursions, by position,
    /// continue if their parameters stay.
    pub fn replan(&mut self, plan: &DelayPlan, key: StreamKey, at: Instant) {
        self.base = plan.base;
        self.calm = Calm::default();
        if self.slot != plan.slot {
            self.slot = plan.slot;
            self.boundary = at + Stream::new(key, Stage::Slot, 0).below(plan.slot);
        }
        let Processes { body, excursions } = &mut *self.processes;
        if body.as_ref().map(Body::plan) != plan.body.as_ref() {
            *body = plan.body.as_ref().map(|b| Body::new(b.clone(), key, at));
        }
        excursions.truncate(plan.excursions.len());
        excursions.reserve_exact(plan.excursions.len() - excursions.len());
        for (i, p) in plan.excursions.iter().enumerate() {
            match excursions.get_mut(i) {
                Some(e) if e.plan == *p => {}
                Some(e) => e.replan(*p, at),
                None => {
                    let class = u8::try_from(i).unwrap_or(u8::MAX);
                    excursions.push(Excursion::new(*p, key, class, at));
                }
            }
        }
    }

    /// Restarts the processes at `at`; frames in flight keep their place.
    pub fn restart(&mut self, plan: &DelayPlan, key: StreamKey, at: Instant) {
        let last_due = self.last_due;
        *self = Self::new(plan, key, at);
        self.last_due = last_due;
    }

    /// When a frame that leaves the channel at `t` is due. `t` never decreases.
    #[inline]
    pub fn due(&mut self, t: Instant) -> Instant {
        let out = t + self.slot_wait(t);
        let extra = if out < self.calm.until { self.calm.extra } else { self.extra(out) };
        let due = out + extra + self.base;
        self.last_due = self.last_due.max(due);
        self.last_due
    }

    /// Delay that body and excursions add for a frame with a slot at `t`.
    fn extra(&mut self, t: Instant) -> Nanos {
        let Processes { body, excursions } = &mut *self.processes;
        let mut calm = Calm { until: Instant::MAX, extra: Nanos::ZERO };
        if let Some(b) = body {
            calm.extra = b.extra(t);
            calm.until = b.steady_until(t);
        }
        let out = t + calm.extra;
        let mut extra = Nanos::ZERO;
        for e in excursions {
            extra = extra.max(e.extra(out));
            calm.until = calm.until.min(e.quiet_until(out) - calm.extra);
        }
        self.calm = calm;
        calm.extra + extra
    }

    /// Advances the body and the excursions to `at`.
    pub fn keep_up(&mut self, at: Instant) {
        let Processes { body, excursions } = &mut *self.processes;
        if let Some(b) = body {
            b.extra(at);
        }
        for e in excursions {
            e.extra(at);
        }
    }

    #[inline]
    fn slot_wait(&mut self, t: Instant) -> Nanos {
        if self.slot == Nanos::ZERO {
            return Nanos::ZERO;
        }
        if t > self.boundary {
            let into = t.since(self.boundary).0 % self.slot.0;
            self.boundary = t + Nanos(if into == 0 { 0 } else { self.slot.0 - into });
        }
        let wait = self.boundary.since(t);
        if wait < self.slot { wait } else { Nanos(wait.0 % self.slot.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::units::Direction;
    use proptest::prelude::*;

    fn key() -> StreamKey {
        StreamKey { seed: 1, client: ClientKey::Default, direction: Direction::Return, epoch: 0 }
    }

    fn plan(base: u64, slot: u64) -> DelayPlan {
        DelayPlan { base: Nanos(base), slot: Nanos(slot), ..DelayPlan::default() }
    }

    fn body(correlation: u64, quantiles: &[u64]) -> Option<BodyPlan> {
        let quantiles = quantiles.iter().map(|q| Nanos::from_millis(*q)).collect();
        Some(BodyPlan { correlation: Nanos::from_millis(correlation), quantiles })
    }

    #[test]
    fn the_wait_for_a_slot_is_uniform_below_the_period() {
        let slot = 43_000_000;
        let mut d = Delay::new(&plan(0, slot), key(), Instant::ZERO);
        // A step that shares no factor with the period visits every phase equally often.
        let n = 43_000;
        let waits: Vec<u64> = (0..n)
            .map(|i| {
                let t = Instant(i * (5 * slot + 999_979));
                d.due(t).since(t).0
            })
            .collect();
        assert!(waits.iter().all(|w| *w < slot));
        let mean = waits.iter().sum::<u64>() / n;
        // Standard error of the mean of a uniform: slot / sqrt(12 n); allow five.
        let tolerance = 5.0 * slot as f64 / (12.0 * n as f64).sqrt();
        assert!((mean as f64 - slot as f64 / 2.0).abs() < tolerance, "{mean}");
    }

    #[test]
    fn excursion_raises_delay_until_backlog_has_left() {
        let e = ExcursionPlan {
            interval: Nanos::from_secs(5),
            duration: Nanos::from_millis(200),
            location: Nanos::from_millis(30),
            scale: Nanos::from_millis(10),
            shape: 0.2,
            max: Nanos::from_millis(100),
        };
        let p = DelayPlan { excursions: vec![e], ..plan(300_000_000, 0) };
        let mut d = Delay::new(&p, key(), Instant::ZERO);
        let (mut raised, n) = (0, 1_000_000_u64);
        for i in 0..n {
            let t = Instant(i * 1_000_000);
            let delay = d.due(t).since(t);
            assert!(delay >= p.base && delay <= p.max());
            raised += u64::from(delay > p.base);
        }
        // Duration plus catching up of about 42 ms, of a cycle of 5.2 s: 4.7 %.
        // About 192 cycles: a relative error of some 1/sqrt(192) = 7 %; allow four.
        let share = raised as f64 / n as f64;
        assert!((share - 0.0466).abs() < 4.0 * 0.07 * 0.0466, "{share}");
    }

    #[test]
    fn sparse_and_dense_flow_see_same_delay() {
        let e = ExcursionPlan {
            interval: Nanos::from_millis(300),
            duration: Nanos::from_millis(50),
            location: Nanos::ZERO,
            scale: Nanos::from_millis(40),
            shape: 0.3,
            max: Nanos::from_millis(400),
        };
        let p = DelayPlan {
            base: Nanos::from_millis(300),
            slot: Nanos::from_millis(43),
            body: body(30, &[0, 1, 4, 60]),
            excursions: vec![e, ExcursionPlan { shape: 0.0, ..e }],
        };
        let mut dense = Delay::new(&p, key(), Instant::ZERO);
        let mut sparse = dense.clone();
        for i in 0..2_000_000_u64 {
            let t = Instant(i * 100_000);
            let due = dense.due(t);
            if i % 2000 == 0 {
                assert_eq!(due, sparse.due(t), "at {t}");
            }
        }
    }

    #[test]
    fn unchanged_body_continues_over_change() {
        let p = DelayPlan { body: body(30, &[0, 1, 4, 60]), ..plan(100_000_000, 0) };
        let extra = |change: &DelayPlan| {
            let mut d = Delay::new(&p, key(), Instant::ZERO);
            d.replan(change, StreamKey { epoch: 1, ..key() }, Instant(1_000_000));
            let due = |i: u64| Instant(i * 1_000_000);
            (2..1_000).map(|i| d.due(due(i)).since(due(i)).0).collect::<Vec<_>>()
        };
        let kept = extra(&p);
        let further = DelayPlan { base: Nanos::from_millis(101), ..p.clone() };
        assert!(extra(&further).iter().zip(&kept).all(|(a, b)| *a == b + 1_000_000));
        assert_ne!(extra(&DelayPlan { body: body(31, &[0, 1, 4, 60]), ..p.clone() }), kept);
        let none = extra(&DelayPlan { body: None, ..p.clone() });
        // Once what the first body held up is out.
        assert!(none[100..].iter().all(|e| *e == 100_000_000));
    }

    fn excursion(max: u64) -> ExcursionPlan {
        ExcursionPlan {
            interval: Nanos::from_millis(100),
            duration: Nanos::from_millis(30),
            location: Nanos::from_millis(10),
            scale: Nanos::from_millis(20),
            shape: 0.2,
            max: Nanos::from_millis(max),
        }
    }

    #[test]
    fn classes_of_excursions_that_stay_go_on_over_a_change_and_another_one_takes_its_new_extra() {
        let with = |classes: &[u64]| DelayPlan {
            excursions: classes.iter().copied().map(excursion).collect(),
            ..plan(100_000_000, 0)
        };
        let delays = |change: Option<&DelayPlan>| {
            let mut d = Delay::new(&with(&[50, 60]), key(), Instant::ZERO);
            if let Some(change) = change {
                d.replan(change, StreamKey { epoch: 1, ..key() }, Instant(500_000_000));
            }
            let at = |i: u64| Instant(i * 1_000_000);
            (500..3_000).map(|i| d.due(at(i)).since(at(i)).0).collect::<Vec<_>>()
        };
        let kept = delays(None);
        assert_eq!(delays(Some(&with(&[50, 60]))), kept);
        let further = DelayPlan { base: Nanos::from_millis(101), ..with(&[50, 60]) };
        assert!(delays(Some(&further)).iter().zip(&kept).all(|(a, b)| *a == b + 1_000_000));
        // The first class stays, the second one adds nothing more: only the first is left.
        let first = delays(Some(&with(&[50])));
        assert_ne!(first, kept);
        assert_eq!(delays(Some(&with(&[50, 0]))), first);
        // Neither adds anything, at once.
        assert!(delays(Some(&with(&[0, 0]))).iter().all(|delay| *delay == 100_000_000));
    }

    #[test]
    fn restart_restarts_processes_and_keeps_frames_in_flight() {
        let p = DelayPlan {
            body: body(30, &[0, 1, 4, 60]),
            excursions: vec![excursion(50)],
            ..plan(100_000_000, 43_000_000)
        };
        let mut d = Delay::new(&p, key(), Instant::ZERO);
        let at = |i: u64| Instant(i * 1_000_000);
        let last = (0..500).map(|i| d.due(at(i))).last().unwrap();
        let next = StreamKey { epoch: 1, ..key() };
        let mut anew = Delay::new(&p, next, at(500));
        d.restart(&p, next, at(500));
        for i in 500..2_000 {
            assert_eq!(d.due(at(i)), anew.due(at(i)).max(last), "frame {i}");
        }
    }

    #[test]
    fn frame_before_change_waits_for_old_slot() {
        let slot = 40_000_000;
        let mut d = Delay::new(&plan(0, slot), key(), Instant(10 * slot));
        let boundary = d.boundary;
        for quarter in (0..=20).rev() {
            let t = Instant(boundary.0 - quarter * slot / 4);
            assert_eq!(d.slot_wait(t).0, quarter % 4 * slot / 4, "{quarter} quarters before it");
        }
    }

    type Change = (u64, u64, Option<(u64, Vec<u64>)>);

    fn change() -> impl Strategy<Value = Change> {
        let body = (1_u64..40, prop::collection::vec(0_u64..80, 1..6));
        (0_u64..600_000_000, 0_u64..50_000_000, prop::option::of(body))
    }

    fn changed((base, slot, held): Change) -> DelayPlan {
        let excursion = ExcursionPlan {
            interval: Nanos::from_millis(100),
            duration: Nanos::from_millis(20),
            location: Nanos::ZERO,
            scale: Nanos::from_millis(20),
            shape: 0.1,
            max: Nanos::from_millis(100),
        };
        DelayPlan {
            body: held.and_then(|(correlation, mut quantiles)| {
                quantiles.sort_unstable();
                body(correlation, &quantiles)
            }),
            excursions: vec![excursion],
            ..plan(base, slot)
        }
    }

    proptest! {
        #[test]
        fn due_times_never_decrease(
            first in change(),
            steps in prop::collection::vec((0_u64..50_000_000, prop::option::of(change())), 1..200),
        ) {
            let mut p = changed(first);
            let mut d = Delay::new(&p, key(), Instant::ZERO);
            let (mut t, mut last) = (Instant::ZERO, Instant::ZERO);
            for (step, change) in steps {
                t = t + Nanos(step);
                if let Some(change) = change {
                    p = changed(change);
                    d.replan(&p, key(), t);
                }
                let due = d.due(t);
                prop_assert!(due >= last && due >= t + p.base);
                prop_assert!(due == last || due <= t + p.max());
                last = due;
            }
        }

        /// Without the memory of the last frame: the delay itself never overtakes.
        #[test]
        fn delay_is_monotone_in_time(plan in change(), steps in prop::collection::vec(0_u64..5_000_000, 1..500)) {
            let mut d = Delay::new(&changed(plan), key(), Instant::ZERO);
            let (mut t, mut last) = (Instant::ZERO, Instant::ZERO);
            for step in steps {
                t = t + Nanos(step);
                d.last_due = Instant::ZERO;
                let due = d.due(t);
                prop_assert!(due >= last);
                last = due;
            }
        }
    }
}
