// SPDX-License-Identifier: Apache-2.0
//! The delay: base + wait for a transmission slot + trace + level + body + excursion, first in
//! first out.
//!
//! - *Slots*: frames of a TDMA return link wait for the next boundary of a period
//!   with a phase that is drawn once, so that a frame at a random instant waits
//!   uniformly up to the period, and frames of one slot leave together.
//! - *Trace*: an extra delay that is listed for steps of equal length, as measured on a link.
//! - *Level*: an extra delay that is held for a period and then takes its next value, as with a
//!   link that is reconfigured periodically.
//! - *Body*: an extra delay that is held for a random time and then redrawn from a
//!   table of quantiles. Trace, level and body fall as fast as time passes (`delay/body.rs`).
//! - *Excursions*: episodes of continuous time ([`crate::episode`]) in which the
//!   delay is higher by an amount drawn once per episode from a generalized Pareto
//!   distribution. When one ends, the frames that it held up leave at once: the extra delay
//!   falls as fast as time passes, to zero. In a regime ([`crate::episode::fade`]) those of
//!   a class are more frequent. Not a draw per frame: that would, in
//!   FIFO order, hold the whole link at the tail of the distribution.
//!
//! A frame waits for its slot first, then for the trace, the level, the body, and the
//! excursion; none of the five makes a later frame leave earlier.
//! So the delay is a function of time alone, the same for a link that carries five frames per
//! second and for a full one, and no frame overtakes another. After a
//! change to a smaller delay, frames are due together with the last one until the delay
//! line has caught up.
//!
//! Differs from `tc-netem`, which draws the delay per frame and then sorts by it.

mod body;

use crate::episode::fade::{FadePlan, Fades};
use crate::episode::{DurationLaw, EpisodePlan, Episodes};
use crate::held::HeldPlan;
use crate::rng::{Stage, Stream, StreamKey, generalized_pareto};
use crate::units::{Instant, Nanos};

use body::Body;

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
    /// Periods in which the episodes are more frequent.
    pub regime: Option<FadePlan>,
}

impl ExcursionPlan {
    fn episodes(&self) -> EpisodePlan {
        EpisodePlan {
            interval: self.interval,
            duration: self.duration,
            law: DurationLaw::Exponential,
        }
    }

    fn regime(&self, key: StreamKey, class: u8, at: Instant) -> Option<Fades> {
        self.regime.map(|r| Fades::new(r, Stream::new(key, Stage::Regime, class), at))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelayPlan {
    /// Delay of every frame.
    pub base: Nanos,
    /// Period of the transmission slots; zero for none.
    pub slot: Nanos,
    /// A delay in listed steps, in nanoseconds.
    pub trace: Option<HeldPlan>,
    /// A delay that changes periodically, in nanoseconds.
    pub level: Option<HeldPlan>,
    /// A delay that varies all the time, in nanoseconds.
    pub body: Option<HeldPlan>,
    /// Classes of excursions; where several are in an episode, the largest counts.
    pub excursions: Vec<ExcursionPlan>,
}

impl DelayPlan {
    /// Whether another plan has the same parameters but for the base.
    #[must_use]
    pub fn has_processes_of(&self, other: &Self) -> bool {
        let Self { base: _, slot, trace, level, body, excursions } = self;
        *slot == other.slot
            && *trace == other.trace
            && *level == other.level
            && *body == other.body
            && *excursions == other.excursions
    }

    /// Upper bound of the time in the delay line.
    #[must_use]
    pub fn max(&self) -> Nanos {
        let extra = self.excursions.iter().map(|e| e.max).max().unwrap_or_default();
        let held = |plan: &Option<HeldPlan>| Nanos(plan.as_ref().map_or(0, HeldPlan::max));
        let held = held(&self.trace) + held(&self.level) + held(&self.body);
        self.base + self.slot + held + extra
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
        let regime = plan.regime(key, class, at);
        let episodes = Episodes::among(regime, plan.episodes(), stream, at);
        let mut e = Self { plan, episodes, extra: Nanos::ZERO, caught_up: at };
        e.draw();
        e
    }

    fn replan(&mut self, plan: ExcursionPlan, key: StreamKey, class: u8, at: Instant) {
        self.plan = plan;
        self.episodes.replan(plan.regime(key, class, at), plan.episodes(), at);
        self.caught_up = at;
        self.draw();
    }

    fn draw(&mut self) {
        let ExcursionPlan { location, scale, shape, max, .. } = self.plan;
        self.extra = generalized_pareto(self.episodes.mark(), location, scale, shape).min(max);
    }

    fn extra(&mut self, t: Instant) -> Nanos {
        while self.episodes.is_over(t) {
            // At a boundary of a regime an episode of no length ends, which delays nothing.
            if self.episodes.end() > self.episodes.start() {
                self.caught_up = self.caught_up.max(self.episodes.end() + self.extra);
            }
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
#[repr(C)]
pub struct Delay {
    base: Nanos,
    slot: Nanos,
    calm: Calm,
    last_due: Instant,
    /// A boundary between slots; the others lie at multiples of `slot` from it.
    boundary: Instant,
    processes: Box<Processes>,
}

#[derive(Clone, Debug, Default)]
struct Processes {
    trace: Option<Body>,
    level: Option<Body>,
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
    /// The processes start at `at`. Periods since a start count from `start`.
    #[must_use]
    pub fn new(plan: &DelayPlan, key: StreamKey, at: Instant, start: Instant) -> Self {
        let mut d = Self {
            base: Nanos::ZERO,
            slot: Nanos::ZERO,
            boundary: at,
            calm: Calm::default(),
            last_due: Instant::ZERO,
            processes: Box::default(),
        };
        d.replan(plan, key, at, start);
        d
    }

    /// Takes a new plan from `at` on. Slots, a level, a body, and classes of excursions, by
    /// position, continue if their parameters stay.
    pub fn replan(&mut self, plan: &DelayPlan, key: StreamKey, at: Instant, start: Instant) {
        self.base = plan.base;
        self.calm = Calm::default();
        if self.slot != plan.slot {
            self.slot = plan.slot;
            self.boundary = at + Stream::new(key, Stage::Slot, 0).below(plan.slot);
        }
        let Processes { trace, level, body, excursions } = &mut *self.processes;
        for (process, plan, stage) in [
            (trace, &plan.trace, Stage::DelayTrace),
            (level, &plan.level, Stage::Level),
            (body, &plan.body, Stage::Body),
        ] {
            if process.as_ref().map(Body::plan) != plan.as_ref() {
                let stream = || Stream::new(key, stage, 0);
                *process = plan.as_ref().map(|p| Body::new(p.clone(), stream(), at, start));
            }
        }
        excursions.truncate(plan.excursions.len());
        excursions.reserve_exact(plan.excursions.len() - excursions.len());
        for (i, p) in plan.excursions.iter().enumerate() {
            let class = u8::try_from(i).unwrap_or(u8::MAX);
            match excursions.get_mut(i) {
                Some(e) if e.plan == *p => {}
                Some(e) => e.replan(*p, key, class, at),
                None => excursions.push(Excursion::new(*p, key, class, at)),
            }
        }
    }

    /// Takes another base; the processes continue.
    pub fn set_base(&mut self, base: Nanos) {
        self.base = base;
    }

    /// Restarts the processes at `at`; frames in flight keep their place.
    pub fn restart(&mut self, plan: &DelayPlan, key: StreamKey, at: Instant, start: Instant) {
        let last_due = self.last_due;
        *self = Self::new(plan, key, at, start);
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

    /// No frame is due before `due` from now on.
    pub fn not_before(&mut self, due: Instant) {
        self.last_due = self.last_due.max(due);
    }

    /// The last due time.
    #[must_use]
    pub fn last_due(&self) -> Instant {
        self.last_due
    }

    /// Delay that level, body and excursions add for a frame with a slot at `t`.
    fn extra(&mut self, t: Instant) -> Nanos {
        let Processes { trace, level, body, excursions } = &mut *self.processes;
        let mut calm = Calm { until: Instant::MAX, extra: Nanos::ZERO };
        for b in [trace, level, body].into_iter().flatten() {
            let at = t + calm.extra;
            let extra = b.extra(at);
            calm.until = calm.until.min(b.steady_until(at) - calm.extra);
            calm.extra = calm.extra + extra;
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

    /// Advances the level, the body and the excursions to `at`.
    pub fn keep_up(&mut self, at: Instant) {
        let Processes { trace, level, body, excursions } = &mut *self.processes;
        for b in [trace, level, body].into_iter().flatten() {
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

    fn delay(plan: &DelayPlan) -> Delay {
        Delay::new(plan, key(), Instant::ZERO, Instant::ZERO)
    }

    fn body(correlation: u64, quantiles: &[u64]) -> Option<HeldPlan> {
        let quantiles = quantiles.iter().map(|q| Nanos::from_millis(*q));
        Some(HeldPlan::renewal(Nanos::from_millis(correlation), quantiles))
    }

    #[test]
    fn the_wait_for_a_slot_is_uniform_below_the_period() {
        let slot = 43_000_000;
        let mut d = delay(&plan(0, slot));
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
    fn trace_adds_its_step_and_falls_as_fast_as_time_passes() {
        let ms = Nanos::from_millis;
        let steps = HeldPlan::steps(ms(10), [20, 50, 0].map(|n| ms(n).0));
        let p = DelayPlan { trace: Some(steps), ..plan(5_000_000, 0) };
        assert_eq!(p.max(), ms(55));
        let mut d = delay(&p);
        let mut at = |n: u64| d.due(Instant(n * 1_000_000)).0 / 1_000_000 - n;
        assert_eq!((at(0), at(9), at(10), at(19)), (25, 25, 55, 55));
        // Frames of the second step leave at 70 ms at the latest; then the trace repeats.
        assert_eq!((at(20), at(25), at(29)), (55, 50, 46));
        assert_eq!((at(30), at(39), at(40)), (45, 36, 55));
        // The same for a flow that was not there.
        let mut sparse = delay(&p);
        assert_eq!(sparse.due(Instant(39_000_000)), Instant(75_000_000));
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
            regime: None,
        };
        let p = DelayPlan { excursions: vec![e], ..plan(300_000_000, 0) };
        let mut d = delay(&p);
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
    fn excursions_are_more_frequent_in_a_regime_and_add_nothing_else() {
        let regime = FadePlan {
            interval: Nanos::from_secs(900),
            duration: Nanos::from_secs(100),
            factor: 30.0,
        };
        let e = ExcursionPlan {
            interval: Nanos::from_secs(20),
            duration: Nanos::from_millis(200),
            location: Nanos::from_millis(30),
            scale: Nanos::ZERO,
            shape: 0.0,
            max: Nanos::from_millis(100),
            regime: Some(regime),
        };
        let mut d = delay(&DelayPlan { excursions: vec![e], ..plan(0, 0) });
        let mut regime = e.regime(key(), 0, Instant::ZERO).unwrap();
        // Seconds, and those with a raised delay, in the clear and in the regime.
        let (mut all, mut raised) = ([0_u64; 2], [0_u64; 2]);
        let n = 20_000_000_u64;
        for i in 0..n {
            let t = Instant(i * 10_000_000);
            let i = usize::from(regime.covers(t));
            all[i] += 1;
            let delay = d.due(t).since(t);
            assert!(delay <= Nanos::from_millis(30));
            raised[i] += u64::from(delay > Nanos::ZERO);
        }
        // The episode and 30 ms of catching up, of the time from start to start.
        for (i, interval) in [20.0, 20.0 / 30.0].into_iter().enumerate() {
            let share = raised[i] as f64 / all[i] as f64;
            let expected = 0.23 / (interval + 0.2);
            // One cycle's length has the mean as its deviation; five standard errors.
            let cycles = all[i] as f64 * 0.01 / (interval + 0.2);
            assert!((share / expected - 1.0).abs() < 5.0 / cycles.sqrt() + 0.02, "{i}: {share}");
        }
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
            regime: None,
        };
        let p = DelayPlan {
            trace: Some(HeldPlan::steps(Nanos::from_millis(7), [0, 30_000_000, 2_000_000])),
            base: Nanos::from_millis(300),
            slot: Nanos::from_millis(43),
            level: body(900, &[0, 2, 50]),
            body: body(30, &[0, 1, 4, 60]),
            excursions: vec![e, ExcursionPlan { shape: 0.0, ..e }],
        };
        let mut dense = delay(&p);
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
            let mut d = delay(&p);
            d.replan(change, StreamKey { epoch: 1, ..key() }, Instant(1_000_000), Instant::ZERO);
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
            regime: None,
        }
    }

    #[test]
    fn classes_of_excursions_that_stay_go_on_over_a_change_and_another_one_takes_its_new_extra() {
        let with = |classes: &[u64]| DelayPlan {
            excursions: classes.iter().copied().map(excursion).collect(),
            ..plan(100_000_000, 0)
        };
        let delays = |change: Option<&DelayPlan>| {
            let mut d = delay(&with(&[50, 60]));
            if let Some(change) = change {
                d.replan(
                    change,
                    StreamKey { epoch: 1, ..key() },
                    Instant(500_000_000),
                    Instant::ZERO,
                );
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
        let mut d = delay(&p);
        let at = |i: u64| Instant(i * 1_000_000);
        let last = (0..500).map(|i| d.due(at(i))).last().unwrap();
        let next = StreamKey { epoch: 1, ..key() };
        let mut anew = Delay::new(&p, next, at(500), Instant::ZERO);
        d.restart(&p, next, at(500), Instant::ZERO);
        for i in 500..2_000 {
            assert_eq!(d.due(at(i)), anew.due(at(i)).max(last), "frame {i}");
        }
    }

    #[test]
    fn frame_before_change_waits_for_old_slot() {
        let slot = 40_000_000;
        let mut d = Delay::new(&plan(0, slot), key(), Instant(10 * slot), Instant::ZERO);
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
            regime: None,
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
            let mut d = delay(&p);
            let (mut t, mut last) = (Instant::ZERO, Instant::ZERO);
            for (step, change) in steps {
                t = t + Nanos(step);
                if let Some(change) = change {
                    p = changed(change);
                    d.replan(&p, key(), t, Instant::ZERO);
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
            let mut d = delay(&changed(plan));
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
