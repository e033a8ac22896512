// SPDX-License-Identifier: Apache-2.0
//! Access to the capacity of a return link: a terminal sends in the bursts that it was assigned, and
//! asks for more while frames wait (demand assignment, DVB-RCS2: ETSI EN 301 545-2 §9).
//!
//! Time is divided into superframes. At the start of each, the terminal sends what its bursts of this
//! superframe carry, and the frames that are complete leave. Its bursts are the sum of
//!
//! - the *constant assignment* (CRA), which needs no request;
//! - the *rate* that was granted last (RBDC): it holds until the next grant, or its time-out;
//! - *volume* that was granted and is not used up (VBDC);
//! - *free capacity* (FCA), which comes without a request while frames wait;
//!
//! and never more than the rate of the pipe. What a burst carries beyond the waiting frames is lost.
//!
//! While frames wait after a superframe, the terminal sends a request, at most one per interval. The
//! request travels to the scheduler, and the burst plan with the grant back: it applies to the first
//! superframe after both delays. The rate asked for is that of arrivals since the last request times a
//! gain, and what serves the waiting bytes within a time, and falls slowly while frames arrive; the volume asked for is what waits and neither
//! was asked for already nor will be served without. OpenSAND's and sns3's terminals ask in similar ways.
//!
//! An idle terminal loses its place after a time: then log-on takes a while before the first request.
//! Where requests have no slots of their own, the first one is sent in contention (slotted ALOHA, N.
//! Abramson 1970): it collides with probability 1 − e^−G at a load of G bursts per slot, which the
//! terminal learns when the plan comes without it; then it waits for a random number of superframes.
//!
//! Everything happens at starts of superframes, and depends on seed and arrivals only. Frames that arrive
//! at the start of a superframe wait for the next one. An idle terminal has no events. Capacity that was
//! granted for a time without frames is lost; the next frame finds out how much.
//!
//! Differs from the standard in that requests and plans are not frames and are never lost but in
//! contention, and in that a terminal's bursts leave together at the start of the superframe. Where
//! clients share no beam, the scheduler grants up to the rate of the pipe, less what terminals outside
//! the lab get; in a beam they compete ([`crate::beam`]).
//!
//! Units: bytes as the framing of the pipe counts them.

mod division;
mod others;
mod terminal;

pub(crate) use division::{Claim, Credit, divide};
pub(crate) use others::Others;
pub(crate) use terminal::Terminal;

use std::num::NonZeroU64;

use thiserror::Error;

use crate::units::{NANOS_PER_SEC, Nanos, Probability};

/// Most requests that may be under way.
pub const MAX_REQUESTS: u64 = 256;
/// A shorter superframe would be an event too often.
pub const MIN_SUPERFRAME: Nanos = Nanos::from_millis(1);
pub const MAX_SUPERFRAME: Nanos = Nanos::from_secs(1);
/// Longest delay of a request or a plan, and longest interval and time-out.
pub const MAX_DELAY: Nanos = Nanos::from_secs(60);
pub const MAX_BURST: u32 = 65_535;
/// Most terminals outside the lab: each is a draw per superframe.
pub const MAX_OTHERS: u32 = 1_000;

/// The parameters of a terminal's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessPlan {
    /// The most that the terminal is assigned, in bit/s; no rate is unlimited here.
    pub peak: NonZeroU64,
    pub superframe: Nanos,
    /// Payload of a burst in bytes.
    pub burst: u32,
    /// True: a frame begins in the burst in which the previous frame ends (RLE with packing). False: each
    /// frame begins in a new burst.
    pub packs: bool,
    /// Bursts of each superframe without a request.
    pub constant: u32,
    /// Bursts of each superframe without a request while frames wait.
    pub free: u32,
    pub rate: Option<RateRequests>,
    /// Most bytes that may be asked for and not yet used; none: volume is not asked for.
    pub volume: Option<NonZeroU64>,
    /// Least time between two requests.
    pub interval: Nanos,
    /// From the terminal to the scheduler.
    pub request_delay: Nanos,
    /// From the scheduler to the terminal, with the time to compute the plan.
    pub plan_delay: Nanos,
    pub log_on: Option<LogOn>,
    pub contention: Option<Contention>,
    pub others: Option<OthersPlan>,
}

/// Requests for a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRequests {
    /// The most that is asked for, in bit/s.
    pub max: NonZeroU64,
    /// A rate that was granted ends after this time without another grant.
    pub timeout: Nanos,
    /// Of the rate of arrivals, in multiples of 2⁻¹⁶.
    pub gain: u32,
    /// The requested rate serves the waiting bytes within this time. Zero: it ignores them.
    pub drain: Nanos,
    /// While frames arrive, the requested rate falls at most with this time constant. Zero: at once.
    pub decay: Nanos,
}

/// Log-on of a terminal that was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOn {
    /// Time without frames after which a terminal is logged off.
    pub after: Nanos,
    /// From its first frame to its first request.
    pub delay: Nanos,
}

/// Contention for the slot of the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// Probability that a request collides with none of others.
    pub success: Probability,
    /// Superframes to wait at most after a collision.
    pub backoff: u32,
}

/// Terminals outside the lab that compete for the carrier; without one, for the rate of the pipe. Each asks
/// for a rate in periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OthersPlan {
    /// 1 to [`MAX_OTHERS`].
    pub terminals: u32,
    /// That each asks for in a period, in bit/s.
    pub rate: NonZeroU64,
    /// Mean duration of a period, and of the pause after it. Without pauses all ask at any time.
    pub on: Nanos,
    /// See `on`.
    pub off: Nanos,
}

#[cfg(test)]
impl AccessPlan {
    /// One constant burst of 100 bytes per superframe, and no requests.
    pub(crate) fn constant(superframe: Nanos) -> Self {
        Self {
            peak: NonZeroU64::MIN.saturating_add(9_999_999),
            superframe,
            burst: 100,
            packs: true,
            constant: 1,
            free: 0,
            rate: None,
            volume: None,
            interval: Nanos::ZERO,
            request_delay: Nanos::ZERO,
            plan_delay: Nanos::ZERO,
            log_on: None,
            contention: None,
            others: None,
        }
    }
}

impl OthersPlan {
    /// What a superframe costs: twenty draws are as an event.
    pub(crate) fn work(&self) -> u128 {
        u128::from(self.terminals.div_ceil(20))
    }
}

/// Why the core refuses parameters of access.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AccessError {
    #[error(
        "a superframe of {} ns: choose {} to {} ns", .0.0, MIN_SUPERFRAME.0, MAX_SUPERFRAME.0
    )]
    Superframe(Nanos),
    #[error("bursts of {0} B: choose 1 to {MAX_BURST} B")]
    Burst(u32),
    #[error("a delay, an interval or a time-out of {} ns: choose at most {} ns", .0.0, MAX_DELAY.0)]
    Delay(Nanos),
    #[error("{0} requests under way, at most {MAX_REQUESTS}: choose a longer interval of requests")]
    Requests(u64),
    #[error(
        "a rate of {0} bit/s is less than a burst per superframe: choose a higher rate, or shorter \
         bursts"
    )]
    Peak(u64),
    /// Nothing would ever leave.
    #[error("neither constant or free bursts nor requests for rate or volume: give one of them")]
    Nothing,
    #[error("a request never succeeds in contention: choose a lower load")]
    Hopeless,
    #[error("{0} terminals outside the lab: choose 1 to {MAX_OTHERS}")]
    Others(u32),
    #[error("terminals outside the lab ask for 0 ns: choose at least 1 ns")]
    NoPeriod,
}

/// Bursts of a superframe: constant ones, for a rate, for a volume, and free ones. This is the order in
/// which they are assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bursts(pub [u64; 4]);

impl Bursts {
    /// Number of ways in which bursts are assigned.
    pub const WAYS: usize = 4;

    pub fn total(self) -> u64 {
        self.0.into_iter().fold(0, u64::saturating_add)
    }

    fn volume(self) -> u64 {
        self.0[2]
    }
}

impl AccessPlan {
    /// Whether it differs from `other` in the peak at most.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        Self { peak: other.peak, ..*self } == *other
    }

    /// Superframes from a request to its grant.
    pub(crate) fn round_trip(&self) -> u64 {
        self.superframes(Nanos(self.request_delay.0.saturating_add(self.plan_delay.0))).max(1)
    }

    /// The least number of superframes that lasts for `time`.
    pub(crate) fn superframes(&self, time: Nanos) -> u64 {
        time.0.div_ceil(self.superframe.0.max(1))
    }

    /// Superframes between two requests, at least.
    pub(crate) fn request_interval(&self) -> u64 {
        self.superframes(self.interval).max(1)
    }

    /// Requests that may be under way at once.
    pub(crate) fn under_way(&self) -> u64 {
        self.round_trip() / self.request_interval() + 1
    }

    /// The payload of a burst in bits × 10⁹, the unit of a rate in bit/s times a duration in ns.
    fn burst_bit_nanos(&self) -> u128 {
        u128::from(self.burst.max(1)) * 8 * u128::from(NANOS_PER_SEC)
    }

    /// Whole bursts of superframe `n` at a rate in bit/s since superframe 0: sums over any number of
    /// superframes are exact except for the burst that is not complete.
    pub(crate) fn bursts_of(&self, rate: u64, n: u64) -> u64 {
        let one = self.burst_bit_nanos();
        let until = |n: u64| {
            u128::from(n).saturating_mul(self.superframe.0.into()).saturating_mul(rate.into()) / one
        };
        let bursts = until(n.saturating_add(1)) - until(n);
        u64::try_from(bursts).unwrap_or(u64::MAX)
    }

    /// As [`AccessPlan::bursts_of`], in bytes.
    pub(crate) fn bytes_of(&self, rate: u64, n: u64) -> u64 {
        self.bursts_of(rate, n).saturating_mul(self.burst.into())
    }

    /// Whole bursts of one superframe at a rate in bit/s that changes. The incomplete burst is carried to
    /// the next superframe, in bit-nanoseconds.
    fn next_bursts(&self, rate: u128, carried: &mut u64) -> u64 {
        let one = self.burst_bit_nanos();
        let work = rate * u128::from(self.superframe.0) + u128::from(*carried);
        *carried = u64::try_from(work % one).unwrap_or(0);
        u64::try_from(work / one).unwrap_or(u64::MAX)
    }

    /// The most bytes that leave at one instant.
    pub(crate) fn at_once(&self) -> u64 {
        self.bytes_of(self.peak.get(), 0).saturating_add(self.burst.into())
    }

    /// Checks the limits of all parameters.
    ///
    /// # Errors
    /// The first limit that is broken.
    pub fn check(&self) -> Result<(), AccessError> {
        if !(MIN_SUPERFRAME..=MAX_SUPERFRAME).contains(&self.superframe) {
            return Err(AccessError::Superframe(self.superframe));
        }
        if !(1..=MAX_BURST).contains(&self.burst) {
            return Err(AccessError::Burst(self.burst));
        }
        let log_on = self.log_on.map(|it| [it.after, it.delay]);
        let rate = self.rate.map(|it| [it.timeout, it.drain, it.decay]);
        let times = [self.interval, self.request_delay, self.plan_delay];
        for time in
            times.into_iter().chain(log_on.into_iter().flatten()).chain(rate.into_iter().flatten())
        {
            if time > MAX_DELAY {
                return Err(AccessError::Delay(time));
            }
        }
        if self.under_way() > MAX_REQUESTS {
            return Err(AccessError::Requests(self.under_way()));
        }
        if u128::from(self.peak.get()) * u128::from(self.superframe.0) < self.burst_bit_nanos() {
            return Err(AccessError::Peak(self.peak.get()));
        }
        if self.constant == 0 && self.free == 0 && self.rate.is_none() && self.volume.is_none() {
            return Err(AccessError::Nothing);
        }
        if self.contention.is_some_and(|it| it.success == Probability::ZERO) {
            return Err(AccessError::Hopeless);
        }
        if let Some(others) = self.others {
            if !(1..=MAX_OTHERS).contains(&others.terminals) {
                return Err(AccessError::Others(others.terminals));
            }
            if others.on == Nanos::ZERO {
                return Err(AccessError::NoPeriod);
            }
        }
        Ok(())
    }
}

/// What a terminal asked for and was granted, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessStats {
    /// Volume, and rate over the interval of requests.
    pub asked: u64,
    /// In superframes in which frames waited.
    pub granted: u64,
    /// Of those, what frames took, with their padding.
    pub used: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that collided in contention.
    pub collisions: u64,
}

impl AccessStats {
    #[must_use]
    pub fn plus(self, o: Self) -> Self {
        Self {
            asked: self.asked + o.asked,
            granted: self.granted + o.granted,
            used: self.used + o.used,
            requests: self.requests + o.requests,
            collisions: self.collisions + o.collisions,
        }
    }
}
