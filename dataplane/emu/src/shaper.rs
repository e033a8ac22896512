// SPDX-License-Identifier: Apache-2.0
//! The shaper: exact serialization at a rate.
//!
//! A frame of `n` bits takes `n × 10⁹ / rate` nanoseconds. The division's
//! remainder is carried from frame to frame, as a fraction of `1 / rate` ns, so
//! that a busy shaper is exact over any length of time. A frame has left when its
//! last bit has, rounded up to a nanosecond: never early.
//!
//! Work left in the frame in service is counted in bit-nanoseconds (bits × 10⁹),
//! which turn into time at one rate and back at another without loss: a change of
//! rate applies to the frame in service pro rata. None of the products overflows:
//! a frame has less than 2¹⁸ bits, so its work is below 2⁴⁸.
//!
//! A rate trace changes the rate at the exact boundaries of its steps, in the same way.
//! When a frame will have left is known when it enters service, however many steps that
//! takes: the shaper remembers the step in which it ends.
//!
//! Delivery opportunities are the alternative to a rate: a frame leaves at one of them
//! ([`opportunity`]). So is capacity on demand ([`crate::access`]): then a finish is the start of a
//! superframe in which the frame in service may leave, and [`Shaper::leaves`] decides.
//!
//! Differs from a token bucket (`tc-tbf`) in having no burst allowance.

mod opportunity;
mod trace;
mod varying;

use std::num::NonZeroU64;

use crate::access::{AccessPlan, AccessStats, Terminal};
use crate::framing::Framing;
use crate::rng::StreamKey;
use crate::units::{BitRate, Instant, NANOS_PER_SEC, Nanos};

use opportunity::Link;
pub use opportunity::{Bound, Opportunities};
pub use trace::RateTrace;
use trace::{Running, Step};
use varying::Varying;
pub use varying::VaryingPlan;

/// Work of a byte, in bit-nanoseconds.
const WORK_OF_BYTE: u64 = 8 * NANOS_PER_SEC;

/// The rate of a shaper in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RatePlan {
    Constant(BitRate),
    Trace(RateTrace),
    Varying(VaryingPlan),
    Opportunities(Opportunities),
    Access(AccessPlan),
}

impl RatePlan {
    #[must_use]
    pub fn max(&self) -> BitRate {
        match self {
            Self::Constant(rate) => *rate,
            Self::Trace(trace) => trace.max(),
            Self::Varying(varying) => varying.max(),
            Self::Opportunities(trace) => trace.max(),
            Self::Access(access) => BitRate::PerSec(access.peak),
        }
    }

    /// Whether capacity is asked for.
    #[must_use]
    pub fn is_on_demand(&self) -> bool {
        matches!(self, Self::Access(_))
    }
}

impl From<BitRate> for RatePlan {
    fn from(rate: BitRate) -> Self {
        Self::Constant(rate)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Idle,
    /// The frame in service leaves at `at` + `fraction` / rate nanoseconds.
    Busy {
        at: Instant,
        fraction: u64,
    },
    /// The link is down with this much work left, in bit-nanoseconds.
    Halted {
        work: u64,
    },
}

/// The origins of a rate that changes over time.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Start of a rate trace.
    pub trace: Instant,
    /// Start of periods that count since a start.
    pub start: Instant,
    /// Key of the random processes.
    pub key: StreamKey,
}

/// A rate that changes over time.
#[derive(Clone, Debug)]
enum Course {
    Trace(Running),
    Varying(Box<Varying>),
    Opportunities(Link),
    Access(Box<Terminal>),
}

impl Course {
    /// The step at `t`; at a boundary, the one that begins.
    fn step_at(&mut self, t: Instant) -> Step {
        match self {
            Self::Trace(trace) => trace.step_at(t),
            Self::Varying(varying) => varying.step_at(t),
            Self::Opportunities(link) => Step { rate: link.mean(), until: Instant::MAX },
            Self::Access(terminal) => {
                Step { rate: BitRate::PerSec(terminal.plan().peak), until: Instant::MAX }
            }
        }
    }

    fn link(&mut self) -> Option<&mut Link> {
        match self {
            Self::Opportunities(link) => Some(link),
            Self::Trace(_) | Self::Varying(_) | Self::Access(_) => None,
        }
    }

    /// The finish of `work` that begins at `at`, where frames leave at certain instants only.
    fn start(&mut self, at: Instant, work: u64) -> Option<Instant> {
        let bytes = work.div_ceil(WORK_OF_BYTE);
        match self {
            Self::Opportunities(link) => Some(link.start(at, bytes)),
            Self::Access(terminal) => Some(terminal.start(at, bytes)),
            Self::Trace(_) | Self::Varying(_) => None,
        }
    }
}

/// The shaper of one pipe. Serves one frame at a time.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Shaper {
    course: Option<Box<Course>>,
    framing: Framing,
    // What each frame needs, in one line of a pipe.
    service: Service,
    /// The time of a frame, as computed last.
    span: Span,
    /// Step in which the frame in service ends, or the last one ended.
    step: Step,
}

/// The time of a frame at a constant rate: `nanos` + `fraction` / rate nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Span {
    fraction: u64,
    len: u32,
    nanos: u32,
}

impl Span {
    /// Of no frame.
    const NONE: Self = Self { fraction: 0, len: u32::MAX, nanos: 0 };
}

impl Shaper {
    /// An idle shaper that counts frames as `framing` says. Its processes start at `at`.
    #[must_use]
    pub fn new(plan: &RatePlan, framing: Framing, at: Instant, origin: &Origin) -> Self {
        let (step, course) = run(plan, None, at, origin);
        Self { step, course, framing, service: Service::Idle, span: Span::NONE }
    }

    /// An idle shaper with a constant rate.
    #[must_use]
    pub fn constant(rate: BitRate, framing: Framing) -> Self {
        let step = Step { rate, until: Instant::MAX };
        Self { step, course: None, framing, service: Service::Idle, span: Span::NONE }
    }

    /// Whether no frame is in service.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.service, Service::Idle)
    }

    /// Whether the rate changes by a new plan only.
    #[inline]
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.course.is_none()
    }

    /// Whether everything leaves at once.
    #[inline]
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        matches!(self.step.rate, BitRate::Unlimited)
    }

    /// The rate at which the frame in service ends, or, without one, the rate at `at`; none
    /// where there is no limit, or the link is down. With opportunities, their mean rate; with capacity
    /// on demand, the most that is assigned.
    #[must_use]
    pub fn rate(&mut self, at: Instant) -> Option<NonZeroU64> {
        if self.is_idle() {
            self.keep_up(at);
        }
        match self.step.rate {
            BitRate::PerSec(rate) => Some(rate),
            BitRate::Unlimited | BitRate::Down => None,
        }
    }

    /// When `bytes` more have left after the frame in service, at the rate at which that
    /// one ends; at the next step of a trace if that is earlier. `None` when idle or down.
    #[must_use]
    pub fn ahead(&self, bytes: u32) -> Option<Instant> {
        let finish = self.finish()?;
        if let Some(Course::Opportunities(link)) = self.course.as_deref() {
            return Some(link.ahead(bytes.into()));
        }
        if self.is_on_demand() {
            return Some(finish);
        }
        let BitRate::PerSec(rate) = self.step.rate else { return Some(finish) };
        let span = u64::from(bytes) * 8 * NANOS_PER_SEC / rate.get();
        Some((finish + Nanos(span)).min(self.step.until.max(finish)))
    }

    /// When the frame in service has left, as things stand; `None` when idle or down.
    #[inline]
    #[must_use]
    pub fn finish(&self) -> Option<Instant> {
        match self.service {
            Service::Busy { at, fraction } => {
                Some(Instant(at.0.saturating_add(u64::from(fraction > 0))))
            }
            Service::Idle | Service::Halted { .. } => None,
        }
    }

    /// Takes a frame of `len` bytes into an idle shaper at `at`.
    #[inline]
    pub fn start(&mut self, at: Instant, len: u32) {
        debug_assert!(self.is_idle());
        self.keep_up(at);
        self.serve(at, 0, len);
    }

    /// Advances an idle shaper to `at`.
    #[inline]
    pub fn keep_up(&mut self, at: Instant) {
        if at >= self.step.until
            && let Some(course) = &mut self.course
        {
            if let Course::Varying(varying) = &mut **course {
                varying.forget(at);
            }
            self.step = course.step_at(at);
        }
    }

    /// Takes the next frame, which arrived at `arrived`, at the exact instant at which the
    /// one in service leaves; called after that instant. One that arrived later, while
    /// a queue without a limit was on its way out, begins when it arrived.
    #[inline(always)]
    pub fn follow(&mut self, len: u32, arrived: Instant) {
        if let Service::Busy { at, fraction } = self.service {
            if arrived > at {
                self.serve(arrived, 0, len);
            } else if arrived < at
                && let Some(link) = self.course.as_mut().and_then(|course| course.link())
            {
                let at = link.follow(self.framing.bytes(len));
                self.service = Service::Busy { at, fraction: 0 };
            } else {
                self.serve(at, fraction, len);
            }
        }
    }

    /// Whether capacity is asked for.
    #[must_use]
    pub fn is_on_demand(&self) -> bool {
        matches!(self.course.as_deref(), Some(Course::Access(_)))
    }

    /// The terminal, with capacity on demand.
    #[inline]
    pub(crate) fn terminal(&mut self) -> Option<&mut Terminal> {
        match self.course.as_deref_mut() {
            Some(Course::Access(terminal)) => Some(terminal),
            _ => None,
        }
    }

    /// With capacity on demand: takes the superframes of a carrier at `at`, of which the first one starts at
    /// `phase`. All requests and grants end.
    pub fn align(&mut self, phase: Instant, at: Instant) {
        self.exchange(at, |it| {
            if let Some(terminal) = it.terminal() {
                terminal.align(phase);
            }
        });
    }

    /// What was asked for and granted.
    #[must_use]
    pub fn access(&self) -> AccessStats {
        match self.course.as_deref() {
            Some(Course::Access(terminal)) => terminal.stats(),
            _ => AccessStats::default(),
        }
    }

    /// As [`Shaper::access`]; the accounts begin again.
    pub fn take_access(&mut self) -> AccessStats {
        self.terminal().map_or_else(AccessStats::default, Terminal::take_stats)
    }

    /// With capacity on demand: whether the frame in service leaves at its finish, which is moved to
    /// the next superframe if it does not. `bytes` in `frames` are in the queue.
    #[inline]
    pub fn leaves(&mut self, bytes: u64, frames: u32) -> bool {
        let framing = self.framing;
        let Some(terminal) = self.terminal() else { return true };
        if terminal.send() {
            return true;
        }
        let mean = bytes / u64::from(frames.max(1));
        let at = terminal.wait(frames, framing.bytes(u32::try_from(mean).unwrap_or(u32::MAX)));
        self.service = Service::Busy { at, fraction: 0 };
        false
    }

    /// With capacity on demand: all frames have left.
    pub fn rest_on_demand(&mut self) {
        if let Some(terminal) = self.terminal() {
            terminal.rest();
        }
        self.rest();
    }

    /// With capacity on demand: takes the next frame in the superframe in which the one before left.
    #[inline]
    pub fn follow_at_once(&mut self, len: u32) {
        let bytes = self.framing.bytes(len);
        if let Some(terminal) = self.terminal() {
            terminal.follow(bytes);
        }
    }

    /// Ends service: the frame has left and none follows.
    #[inline]
    pub fn rest(&mut self) {
        self.service = Service::Idle;
    }

    /// Lets nothing leave from `at` on, as if the link were down: it is not idle either. Returns the
    /// rest of the frame in service in bit-nanoseconds.
    pub fn halt(&mut self, at: Instant) -> u64 {
        let work = self.work_left(at).unwrap_or(0);
        self.service = Service::Halted { work: 0 };
        work
    }

    /// Continues at `at` with a frame of which so much is left; called when idle.
    pub fn resume(&mut self, at: Instant, work: u64) {
        self.keep_up(at);
        self.spend(at, work);
    }

    /// Takes a new rate and framing at `at`. The framing counts from the next
    /// frame on, the rate from this instant. An unchanged process continues.
    pub fn replan(&mut self, plan: &RatePlan, framing: Framing, at: Instant, origin: &Origin) {
        self.exchange(at, |s| {
            (s.framing, s.span) = (framing, Span::NONE);
            (s.step, s.course) = run(plan, s.course.take(), at, origin);
        });
    }

    /// Restarts the processes at `at`, with a new rate and framing.
    pub fn restart(&mut self, plan: &RatePlan, framing: Framing, at: Instant, origin: &Origin) {
        self.exchange(at, |s| *s = Self::new(plan, framing, at, origin));
    }

    /// Takes a constant rate and a framing at `at`, as [`Shaper::replan`].
    pub fn set_constant(&mut self, rate: BitRate, framing: Framing, at: Instant) {
        self.exchange(at, |s| *s = Self::constant(rate, framing));
    }

    /// Makes a change at `at`, and serves the rest of the frame in service under it.
    fn exchange(&mut self, at: Instant, change: impl FnOnce(&mut Self)) {
        let work = self.work_left(at);
        change(self);
        if let Some(work) = work {
            self.spend(at, work);
        }
    }

    /// The rest of the frame in service at `at`, in bit-nanoseconds.
    fn work_left(&mut self, at: Instant) -> Option<u64> {
        let (end, fraction) = match self.service {
            Service::Idle => return None,
            Service::Halted { work } => return Some(work),
            Service::Busy { at, fraction } => (at, fraction),
        };
        let work = match (self.course.as_deref_mut(), self.step.rate) {
            (Some(Course::Trace(trace)), _) => {
                let left = trace.work(end).saturating_sub(trace.work(at));
                u64::try_from(left).unwrap_or(u64::MAX)
            }
            (Some(Course::Varying(varying)), _) => varying.work(at, end),
            (Some(Course::Opportunities(link)), _) => link.left(at).saturating_mul(WORK_OF_BYTE),
            (Some(Course::Access(terminal)), _) => terminal.left().saturating_mul(WORK_OF_BYTE),
            (None, BitRate::PerSec(r)) => end.since(at).0.saturating_mul(r.get()),
            (None, _) => 0,
        };
        Some(work.saturating_add(fraction))
    }

    /// Begins a frame of `len` bytes at `at` + `fraction` / rate nanoseconds.
    #[inline]
    fn serve(&mut self, at: Instant, fraction: u64, len: u32) {
        match self.step.rate {
            BitRate::PerSec(rate) if self.span.len == len => {
                let carried = self.span.fraction + fraction;
                let whole = carried >= rate.get();
                let nanos = u64::from(self.span.nanos) + u64::from(whole);
                let at = Instant(at.0.saturating_add(nanos));
                let fraction = if whole { carried - rate.get() } else { carried };
                self.service = Service::Busy { at, fraction };
            }
            _ => self.serve_another(at, fraction, len),
        }
    }

    /// As [`Shaper::serve`], for a frame of another length than the one before.
    #[inline(never)]
    fn serve_another(&mut self, at: Instant, fraction: u64, len: u32) {
        let work = self.framing.bytes(len).saturating_mul(WORK_OF_BYTE);
        if let (None, BitRate::PerSec(rate)) = (&self.course, self.step.rate)
            && let Ok(nanos) = u32::try_from(work / rate.get())
        {
            self.span = Span { fraction: work % rate.get(), len, nanos };
        }
        self.spend(at, work.saturating_add(fraction));
    }

    /// Begins `work` at `at`, which is in the step that the shaper is in.
    #[inline]
    fn spend(&mut self, at: Instant, work: u64) {
        if let Some(at) = self.course.as_mut().and_then(|course| course.start(at, work)) {
            self.service = Service::Busy { at, fraction: 0 };
            return;
        }
        self.service = match self.step.rate {
            BitRate::Unlimited => Service::Busy { at, fraction: 0 },
            BitRate::Down => Service::Halted { work },
            BitRate::PerSec(r) => Service::Busy {
                at: Instant(at.0.saturating_add(work / r.get())),
                fraction: work % r.get(),
            },
        };
        if self.course.is_some() && !self.ends_in_step() {
            self.cross(at, work);
        }
    }

    /// Begins `work` that does not end in the step that the shaper is in.
    #[cold]
    fn cross(&mut self, at: Instant, work: u64) {
        let Some(course) = &mut self.course else { return };
        let reached = match &mut **course {
            Course::Trace(trace) => trace.reach(trace.work(at) + u128::from(work)),
            Course::Varying(varying) => {
                varying.forget(at);
                varying.reach(at, work)
            }
            // Such work ends in the step, which has no end.
            Course::Opportunities(_) | Course::Access(_) => return,
        };
        self.service = match reached {
            Some((at, fraction, step)) => {
                self.step = step;
                Service::Busy { at, fraction }
            }
            // The link stays down.
            None => Service::Halted { work },
        };
    }

    #[inline]
    fn ends_in_step(&self) -> bool {
        match self.service {
            Service::Busy { at, fraction } => (at, fraction) <= (self.step.until, 0),
            Service::Idle | Service::Halted { .. } => false,
        }
    }
}

/// The step at `at`, and the course that it belongs to. Unchanged processes of `before`
/// continue.
fn run(
    plan: &RatePlan,
    before: Option<Box<Course>>,
    at: Instant,
    origin: &Origin,
) -> (Step, Option<Box<Course>>) {
    let mut course = match plan {
        RatePlan::Constant(rate) => return (Step { rate: *rate, until: Instant::MAX }, None),
        RatePlan::Trace(trace) => {
            Course::Trace(Running { trace: trace.clone(), since: origin.trace })
        }
        RatePlan::Varying(plan) => {
            let before = before.and_then(|before| match *before {
                Course::Varying(varying) => Some(*varying),
                Course::Trace(_) | Course::Opportunities(_) | Course::Access(_) => None,
            });
            Course::Varying(Box::new(Varying::new(plan, before, at, origin)))
        }
        RatePlan::Opportunities(trace) => match Link::new(trace, origin.trace) {
            Some(link) => Course::Opportunities(link),
            // There is never an opportunity.
            None => return (Step { rate: BitRate::Down, until: Instant::MAX }, None),
        },
        RatePlan::Access(plan) => {
            let terminal = match before.map(|before| *before) {
                Some(Course::Access(terminal)) => terminal.replan(*plan, origin.key, at),
                _ => Terminal::new(*plan, origin.key, at),
            };
            Course::Access(Box::new(terminal))
        }
    };
    (course.step_at(at), Some(Box::new(course)))
}

#[cfg(test)]
mod tests;
