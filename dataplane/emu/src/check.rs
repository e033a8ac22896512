// SPDX-License-Identifier: Apache-2.0
//! Whether the core can run a plan, within its memory and in time.

use thiserror::Error;

use crate::access::AccessError;
use crate::aqm::AqmPlan;
use crate::beam::BeamsError;
use crate::cross::{self, Arrivals, CrossPlan, OnOff};
use crate::envelope::{self, Shortage, TooBusy};
use crate::episode::fade::{FadePlan, MAX_FACTOR};
use crate::held::{HeldPlan, Values};
use crate::plan::{PipePlan, Plan, Room};
use crate::shaper::{Opportunities, RatePlan, RateTrace};
use crate::units::{BitRate, Direction, Nanos};

/// The shortest mean interval of a process: it bounds the work of catching up
/// with a pipe that was idle for long.
pub const MIN_INTERVAL: Nanos = Nanos::from_millis(10);
/// The most classes of outages, and of excursions, in a pipe.
pub const MAX_CLASSES: usize = 8;
/// The shortest step of a rate trace.
pub const MIN_STEP: Nanos = Nanos::from_millis(1);
/// The most steps of a rate trace.
pub const MAX_STEPS: usize = 65_536;
/// The most instants of a trace of opportunities.
pub const MAX_INSTANTS: usize = 524_288;
/// The shortest mean hold of a value, for the same reason as [`MIN_INTERVAL`].
pub const MIN_CORRELATION: Nanos = Nanos::from_millis(1);
/// The shortest time between updates of PIE, for the same reason.
pub const MIN_UPDATE: Nanos = Nanos::from_millis(1);
/// The most values of a table.
pub const MAX_QUANTILES: usize = 1_025;

/// A plan that the core does not take.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PlanError {
    #[error("{0} classes of episodes, at most {MAX_CLASSES}: merge some")]
    Classes(usize),
    /// A process with too many events.
    #[error("mean interval of {} ns between episodes, at least {} ns", .0.0, MIN_INTERVAL.0)]
    Interval(Nanos),
    /// A fade that makes nothing more frequent, or everything too much so.
    #[error("a fade of factor {0}: choose 1 to {MAX_FACTOR}")]
    Factor(f64),
    /// A process with too many events in a fade.
    #[error(
        "mean interval of {} ns between episodes in a fade of factor {factor}, at least {} ns: \
         choose a smaller factor",
        .interval.0, MIN_INTERVAL.0
    )]
    Faded {
        factor: f64,
        /// Mean interval between two episodes of a class in a fade.
        interval: Nanos,
    },
    /// A trace with too few steps or too many.
    #[error("a trace of {0} steps: 1 to {MAX_STEPS}, choose longer ones")]
    Steps(usize),
    /// A trace with steps that are too short.
    #[error("steps of {} ns in a trace, at least {} ns: choose longer ones", .0.0, MIN_STEP.0)]
    Step(Nanos),
    /// Opportunities that never come, or too many.
    #[error(
        "{0} instants with opportunities: 1 to {MAX_INSTANTS}, and a turn of a step at least; \
         use a shorter trace"
    )]
    Opportunities(usize),
    /// A table with too few values or too many.
    #[error("{0} values of a delay or a rate, 1 to {MAX_QUANTILES}: choose a coarser table")]
    Quantiles(usize),
    /// Quantiles that do not ascend.
    #[error("quantile {0} of a delay or a rate is smaller than the one before it: sort them")]
    Descending(usize),
    /// A process with too many holds.
    #[error(
        "values of a delay or a rate are held for {} ns, at least {} ns: choose a longer time",
        .0.0, MIN_CORRELATION.0
    )]
    Correlation(Nanos),
    /// An AQM with too many updates.
    #[error("updates of PIE each {} ns, at least {} ns: choose a longer time", .0.0, MIN_UPDATE.0)]
    Update(Nanos),
    /// Cross traffic with too many frames.
    #[error(
        "cross traffic of a frame each {} ns while frames arrive, at least {} ns: choose a lower \
         rate or longer frames",
        .0.0, cross::MIN_GAP.0
    )]
    CrossGap(Nanos),
    /// Phantom frames that are too short or too long.
    #[error(
        "cross traffic of frames of {} B: choose {} to {} B",
        .0, cross::FRAMES.start(), cross::FRAMES.end()
    )]
    CrossFrame(u32),
    /// Cross traffic with too many periods, or without a mean.
    #[error(
        "cross traffic with periods of {} and {} ns and shape {}: choose at least {} ns and a shape \
         of at least {}",
        .0.on.0, .0.off.0, .0.shape, cross::MIN_PERIOD.0, cross::MIN_SHAPE
    )]
    CrossPeriods(OnOff),
    /// Cross traffic that consumes nothing.
    #[error("cross traffic without a rate limit consumes nothing: set a rate, or leave it out")]
    CrossUnlimited,
    /// Cross traffic of clients that share a beam.
    #[error(
        "cross traffic where clients share a beam: leave out one of both, or add a client with \
         traffic to the beam"
    )]
    CrossInBeam,
    /// Behind a switch, which expects its tag on each frame.
    #[error(
        "senders of packets above the MTU cannot be told through a P4 switch: write exceeded = \
         \"drop\""
    )]
    Answers,
    #[error("capacity on demand: {0}")]
    Access(#[from] AccessError),
    #[error("capacity on demand with cross traffic: leave out one of them")]
    AccessCross,
    #[error("{0}")]
    Beams(#[from] BeamsError),
    /// The frames that the plan can hold do not fit into memory.
    #[error("{0}")]
    Memory(Box<Shortage>),
    /// Catching up with the random processes takes too much of a core.
    #[error("{0}")]
    Work(Box<TooBusy>),
}

impl PlanError {
    /// Whether the plan can be run anyway, and then loses packets or sends them late:
    /// it is outside of the envelope and otherwise sound.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Work(_))
    }
}

impl Plan {
    /// Checks the assumptions of the core, and that the plan fits into `room` for any
    /// frames. The assumptions come first: if an error
    /// [`PlanError::is_lossy`], the plan has no other error.
    ///
    /// # Errors
    /// The first limit that the plan breaks.
    pub fn check(&self, room: Room) -> Result<(), PlanError> {
        for p in &self.pipes.0 {
            check_pipe(p)?;
            if room.unanswered && p.mtu.is_some_and(|mtu| mtu.answers.is_some()) {
                return Err(PlanError::Answers);
            }
        }
        self.beams.check()?;
        for direction in Direction::BOTH {
            if self.pipes[direction].cross.is_some() && self.beams.shares_in(direction) {
                return Err(PlanError::CrossInBeam);
            }
            let pipe = &self.pipes[direction];
            if pipe.rate.is_on_demand() && pipe.cross.is_some() {
                return Err(PlanError::AccessCross);
            }
        }
        if let Some(busy) = TooBusy::of(self, room) {
            return Err(PlanError::Work(Box::new(busy)));
        }
        if let Some(short) = Shortage::of(self, room) {
            return Err(PlanError::Memory(Box::new(short)));
        }
        Ok(())
    }

    /// The most memory that this plan can use by itself ([`envelope::memory`]).
    #[must_use]
    pub fn memory(&self, room: Room) -> u64 {
        envelope::memory(self, room)
    }
}

fn check_pipe(p: &PipePlan) -> Result<(), PlanError> {
    for n in [p.outages.len(), p.delay.excursions.len()] {
        if n > MAX_CLASSES {
            return Err(PlanError::Classes(n));
        }
    }
    let outages = p.outages.iter().map(|o| o.interval);
    let excursions = p.delay.excursions.iter().map(|e| e.interval);
    for i in outages.chain(excursions) {
        if i < MIN_INTERVAL {
            return Err(PlanError::Interval(i));
        }
    }
    if let Some(f) = p.fade {
        check_fade(f, p.outages.iter().map(|o| o.interval))?;
    }
    for e in &p.delay.excursions {
        if let Some(r) = e.regime {
            check_fade(r, [e.interval].into_iter())?;
        }
    }
    match &p.rate {
        RatePlan::Constant(_) => {}
        RatePlan::Trace(t) => check_trace(t)?,
        RatePlan::Opportunities(o) => check_opportunities(o)?,
        RatePlan::Access(access) => access.check()?,
        RatePlan::Varying(v) => v.shares.iter().flatten().try_for_each(check_held)?,
    }
    if let Some(period) = p.boundary.map(|b| b.grid.period).filter(|n| *n < MIN_CORRELATION) {
        return Err(PlanError::Correlation(period));
    }
    if let AqmPlan::Pie(pie) = p.queue.aqm
        && pie.update < MIN_UPDATE
    {
        return Err(PlanError::Update(pie.update));
    }
    if let Some(cross) = p.cross {
        check_cross(cross, p.rate.max())?;
    }
    for trace in [&p.delay.trace, &p.loss_trace].into_iter().flatten() {
        let (steps, step) = (trace.values.table().len(), trace.interval());
        if !(1..=MAX_STEPS).contains(&steps) {
            return Err(PlanError::Steps(steps));
        }
        if step < MIN_STEP {
            return Err(PlanError::Step(step));
        }
    }
    [&p.delay.level, &p.delay.body].into_iter().flatten().try_for_each(check_held)
}

fn check_cross(cross: CrossPlan, rate: BitRate) -> Result<(), PlanError> {
    if !cross::FRAMES.contains(&cross.frame) {
        return Err(PlanError::CrossFrame(cross.frame));
    }
    if let Arrivals::OnOff(periods) = cross.arrivals
        && (periods.on.min(periods.off) < cross::MIN_PERIOD
            || !(cross::MIN_SHAPE..f64::INFINITY).contains(&periods.shape))
    {
        return Err(PlanError::CrossPeriods(periods));
    }
    if cross.interval() < cross::MIN_GAP {
        return Err(PlanError::CrossGap(cross.interval()));
    }
    if rate == BitRate::Unlimited {
        return Err(PlanError::CrossUnlimited);
    }
    Ok(())
}

fn check_fade(f: FadePlan, intervals: impl Iterator<Item = Nanos>) -> Result<(), PlanError> {
    if f.interval < MIN_INTERVAL {
        return Err(PlanError::Interval(f.interval));
    }
    if !(1.0..=MAX_FACTOR).contains(&f.factor) {
        return Err(PlanError::Factor(f.factor));
    }
    for interval in intervals {
        let interval = f.shortened(interval);
        if interval < MIN_INTERVAL {
            return Err(PlanError::Faded { factor: f.factor, interval });
        }
    }
    Ok(())
}

fn check_trace(t: &RateTrace) -> Result<(), PlanError> {
    if !(1..=MAX_STEPS).contains(&t.steps()) {
        return Err(PlanError::Steps(t.steps()));
    }
    if t.step() < MIN_STEP {
        return Err(PlanError::Step(t.step()));
    }
    Ok(())
}

fn check_opportunities(o: &Opportunities) -> Result<(), PlanError> {
    if !o.is_sound() || o.instants() > MAX_INSTANTS {
        return Err(PlanError::Opportunities(o.instants()));
    }
    if o.step() < MIN_STEP {
        return Err(PlanError::Step(o.step()));
    }
    Ok(())
}

fn check_held(plan: &HeldPlan) -> Result<(), PlanError> {
    let n = plan.values.table().len();
    if !(1..=MAX_QUANTILES).contains(&n) {
        return Err(PlanError::Quantiles(n));
    }
    if let Values::Quantiles(table) = &plan.values
        && let Some(i) = table.windows(2).position(|w| w[1] < w[0])
    {
        return Err(PlanError::Descending(i + 1));
    }
    if plan.interval() < MIN_CORRELATION {
        return Err(PlanError::Correlation(plan.interval()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::pie::PiePlan;
    use crate::delay::ExcursionPlan;
    use crate::episode::{DurationLaw, EpisodePlan};
    use crate::plan::Room;
    use crate::store::SEGMENT;
    use crate::units::BitRate;

    const ROOM: Room = Room {
        clients: 1,
        port_bps: 10_000_000_000,
        frame: 1514,
        capacity: 0,
        workers: 1,
        tag: 0,
        unanswered: false,
    };

    #[test]
    fn oversized_plan_is_refused_with_numbers() {
        let mut plan = Plan::transparent();
        for p in &mut plan.pipes.0 {
            p.rate = BitRate::bps(144_000_000).into();
            p.queue.limit = 36_000_000;
            p.delay.base = Nanos::from_millis(300);
        }
        let need = plan.memory(ROOM);
        // Two clients × 2 pipes × (36 MB + 5.4 MB) × 48/34, and 5 % for the rests of segments.
        assert!((233_000_000..247_000_000).contains(&need), "{need}");
        assert!(plan.check(Room { capacity: need, ..ROOM }).is_ok());
        let e = plan.check(Room { clients: 2, capacity: need, ..ROOM }).unwrap_err();
        assert!(e.to_string().contains("2 clients"), "{e}");
    }

    #[test]
    fn trace_and_body_need_memory_of_largest_values() {
        let mut constant = Plan::transparent();
        constant.pipes.0[0].rate = BitRate::bps(144_000_000).into();
        constant.pipes.0[0].delay.base = Nanos::from_millis(300);
        let mut varying = constant.clone();
        let rates = [0, 144_000_000, 1_000];
        varying.pipes.0[0].rate = RatePlan::Trace(RateTrace::new(Nanos::from_secs(1), &rates));
        varying.pipes.0[0].delay.base = Nanos::from_millis(100);
        varying.pipes.0[0].delay.body = Some(body(10, &[0, 200]));
        assert_eq!(varying.memory(ROOM), constant.memory(ROOM));
        assert!(varying.check(Room { capacity: varying.memory(ROOM), ..ROOM }).is_ok());
    }

    fn body(correlation: u64, quantiles: &[u64]) -> HeldPlan {
        let quantiles = quantiles.iter().map(|q| Nanos::from_millis(*q));
        HeldPlan::renewal(Nanos::from_millis(correlation), quantiles)
    }

    #[test]
    fn plan_with_too_many_events_is_refused() {
        let refused = |change: &dyn Fn(&mut PipePlan)| {
            let mut plan = Plan::transparent();
            change(&mut plan.pipes.0[1]);
            plan.check(Room { capacity: u64::MAX, ..ROOM }).unwrap_err()
        };
        let trace = |step, n| {
            let rates = vec![1_000_000; n];
            refused(&|p| p.rate = RatePlan::Trace(RateTrace::new(step, &rates)))
        };
        assert_eq!(trace(Nanos::from_secs(1), 0), PlanError::Steps(0));
        assert_eq!(trace(Nanos::from_secs(1), 65_537), PlanError::Steps(65_537));
        assert_eq!(trace(Nanos(999_999), 1), PlanError::Step(Nanos(999_999)));
        let holds = |b: HeldPlan| refused(&|p| p.delay.body = Some(b.clone()));
        assert_eq!(holds(body(10, &[])), PlanError::Quantiles(0));
        assert_eq!(holds(body(10, &[1; 1_026])), PlanError::Quantiles(1_026));
        assert_eq!(holds(body(10, &[1, 1, 3, 2])), PlanError::Descending(3));
        assert_eq!(holds(body(0, &[1])), PlanError::Correlation(Nanos(0)));
        let pie = PiePlan {
            target: Nanos(1),
            update: Nanos(999_999),
            alpha: 1.0,
            beta: 1.0,
            max_burst: Nanos(0),
        };
        let found = refused(&|p| p.queue.aqm = AqmPlan::Pie(pie));
        assert_eq!(found, PlanError::Update(Nanos(999_999)));
        let fade = |interval, factor| {
            let (interval, duration) = (Nanos::from_millis(interval), Nanos::from_secs(1));
            refused(&|p| {
                p.fade = Some(FadePlan { interval, duration, factor });
                p.outages = vec![EpisodePlan {
                    interval: Nanos::from_secs(1),
                    duration: Nanos::from_millis(1),
                    law: DurationLaw::Fixed,
                }];
            })
        };
        assert_eq!(fade(9, 2.0), PlanError::Interval(Nanos::from_millis(9)));
        for factor in [0.99, 1e6 + 1.0, f64::INFINITY] {
            assert_eq!(fade(1000, factor), PlanError::Factor(factor));
        }
        assert!(matches!(fade(1000, f64::NAN), PlanError::Factor(_)));
        let interval = Nanos::from_millis(8);
        assert_eq!(fade(1000, 125.0), PlanError::Faded { factor: 125.0, interval });
        let regime = |factor| {
            refused(&|p| {
                p.delay.excursions = vec![ExcursionPlan {
                    interval: Nanos::from_secs(1),
                    duration: Nanos::from_millis(1),
                    location: Nanos::ZERO,
                    scale: Nanos::ZERO,
                    shape: 0.0,
                    max: Nanos::ZERO,
                    regime: Some(FadePlan {
                        interval: Nanos::from_secs(60),
                        duration: Nanos::from_secs(60),
                        factor,
                    }),
                }];
            })
        };
        assert_eq!(regime(125.0), PlanError::Faded { factor: 125.0, interval });
        assert_eq!(regime(0.5), PlanError::Factor(0.5));
    }

    #[test]
    fn answers_behind_switch_are_refused() {
        use crate::mtu::{AnswerPlan, MtuPlan};
        let with = |answers, unanswered| {
            let mut plan = Plan::transparent();
            plan.pipes.0[1].mtu = Some(MtuPlan { limit: 1_400, answers });
            plan.check(Room { capacity: u64::MAX, tag: 32, unanswered, ..ROOM })
        };
        let answers = Some(AnswerPlan { v4: None, v6: None, rate: 1 });
        assert_eq!(with(answers, true), Err(PlanError::Answers));
        assert!(!PlanError::Answers.is_lossy());
        assert_eq!(with(answers, false), Ok(()));
        assert_eq!(with(None, true), Ok(()));
    }

    #[test]
    fn unlimited_rate_needs_memory_for_port_rate() {
        let mut plan = Plan::transparent();
        plan.pipes.0[0].delay.base = Nanos::from_millis(300);
        let one = plan.memory(ROOM);
        assert!((529_000_000..560_000_000).contains(&one), "{one}");
        let many = plan.memory(Room { clients: 101, ..ROOM });
        assert_eq!(many - one, 100 * 4 * u64::from(SEGMENT));
    }
}
