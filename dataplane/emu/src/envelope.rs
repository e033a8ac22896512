// SPDX-License-Identifier: Apache-2.0
//! The envelope: what can be held without loss, in the available memory and time.
//!
//! A link holds the frames in its queues and in flight: rate × delay. From a plan,
//! the clients, the ports' rate and the store's size follows whether all of it fits
//! for any lengths of frames ([`memory`]), and which values do ([`Fits`]). It is a
//! bound, not an estimate: a plan within it never drops a frame as overload because of
//! memory, and the traffic exists that needs nearly as much (tests/envelope.rs).
//!
//! Beams limit what lies in the delay lines. But what waited for one, while it was slow or
//! down, can go into the lines at once, while the queues fill again: so the clients' own rates
//! bound the lines only up to another queue each. And the ports bound all that came since the
//! frames that now leave.
//!
//! Time is bounded too: the random processes of all clients have events whether
//! frames arrive or not, and catching up with them ([`work`]) must leave the worker's core
//! to the frames.
//!
//! Not in the bound: what an earlier plan let in and is still held, frames that a port
//! does not take, and damaged frames shorter than [`MIN_FRAME`], which no wire carries.
//!
//! Units: bytes of Ethernet frame without FCS, bit/s of the same unless said otherwise.

mod largest;
mod packing;
mod refusal;
mod remark;
mod traffic;

use crate::access::AccessPlan;
use crate::aqm::AqmPlan;
use crate::beam::BeamsPlan;
use crate::cross::{Arrivals, CrossPlan};
use crate::delay::DelayPlan;
use crate::framing::Framing;
use crate::plan::{PipePlan, Plan, Room};
use crate::shaper::RatePlan;
use crate::units::{BitRate, ByDirection, Direction, NANOS_PER_SEC, Nanos, Probability};

pub use largest::{Fits, Largest, MAX_CLIENTS, MAX_DELAY, Pair};
pub use refusal::{Shortage, TooBusy, excesses};
pub use remark::{Remark, remarks};
pub use traffic::{IMIX, Traffic, WIRE_OVERHEAD, longest_delay};

/// The shortest frame of a client, Ethernet and IPv4 headers alone: it has the most
/// bookkeeping per byte. Real wires pad to 60 bytes, virtual ones do not.
pub const MIN_FRAME: u32 = 34;
/// Cost of an event of the most expensive random process, an excursion. Measured with
/// 10,000 clients on a Zen 4 core, 29 ns a hold of a body, 95 an outage, 122 an excursion.
pub const EVENT: Nanos = Nanos(120);
/// The most that events may take of each second of a core: a tenth.
pub const MAX_WORK: Nanos = Nanos(NANOS_PER_SEC / 10);

/// The parameters that determine the frames held in one direction, for each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Demand {
    /// In bit/s; `None` is not limited.
    rate: Option<u64>,
    /// Bytes beyond the rate that can leave a shaper in any span of time.
    burst: u64,
    framing: Framing,
    queue: u64,
    delay: Nanos,
    /// Whether frames are dropped when they leave the queue: their place is taken until
    /// those before them have left the delay line, and they took none of the rate.
    drops_late: bool,
    /// How often what a port brings can come.
    copies: u64,
    /// Highest rate of cross traffic, in bit/s. Its frames count as if their bytes were held: the
    /// record of one is much smaller than that of a real frame, so that this also covers
    /// arrivals at random.
    cross: u64,
    /// By how much frames are held back, if any are: they lie aside then, and their place in
    /// the line is taken as well.
    aside: Option<Nanos>,
    /// Whether there are clients in beams that have queues: carriers have none.
    shared: bool,
    /// Rate of the beams in bit/s, if all clients are in one.
    beams: Option<u64>,
    /// Bytes of frames that leave all carriers at one instant, at most.
    superframe: u128,
}

impl Demand {
    fn of(p: &PipePlan, beams: &BeamsPlan, direction: Direction) -> Self {
        let drops_late = p.queue.drops_late();
        let (queue, delay) = (p.queue.limit, p.delay.max());
        let access = match &p.rate {
            RatePlan::Access(access) => Some(access),
            _ => None,
        };
        let shared = beams.shares_in(direction) && access.is_none();
        let all = beams.has_all_in(direction);
        let superframe = access.map_or(0, |it| superframe_of(beams, direction, it, p.framing));
        let carried = access.map(|_| p.framing);
        let beams = all.then(|| beams_let_through(beams, direction, carried));
        let aside = p.reorder.map(|r| r.by);
        let (rate, burst) = match &p.rate {
            RatePlan::Opportunities(trace) => {
                let bound = trace.bound(delay + aside.map_or(Nanos(0), |by| delay + by));
                (Some(bound.rate), bound.burst)
            }
            RatePlan::Access(access) => (Some(access.peak.get()), access.at_once()),
            _ => (largest_rate(&p.rate), 0),
        };
        let copies = if p.duplicate == Probability::ZERO { 1 } else { 2 };
        let framing = p.framing;
        let cross = p.cross().map_or(0, |cross| cross.peak());
        Self {
            rate,
            burst,
            framing,
            queue,
            delay,
            drops_late,
            copies,
            cross,
            aside,
            shared,
            beams,
            superframe,
        }
    }

    /// Whether frames wait: for their client's shaper or for its beam.
    fn has_queue(&self) -> bool {
        self.rate.is_some() || self.shared
    }

    /// Upper bound of the rate of arrivals, in bit/s.
    fn brought(&self, room: Room) -> u64 {
        let cross = u64::try_from(u128::from(self.cross) * clients(room)).unwrap_or(u64::MAX);
        room.port_bps.saturating_mul(self.copies).saturating_add(cross)
    }

    /// Upper bound of the rate of all clients' shapers, in bit/s.
    fn shaped(&self, room: Room) -> u64 {
        let Some(rate) = self.rate else { return self.brought(room) };
        let rate = frames_of(u128::from(rate) * clients(room), self.framing);
        u64::try_from(rate).unwrap_or(u64::MAX).min(self.brought(room))
    }

    /// Upper bound of the long-term rate, in bit/s.
    fn through(&self, room: Room) -> u64 {
        self.beams.unwrap_or(u64::MAX).min(self.shaped(room))
    }

    /// The most bytes of frames that are held. Queues fill at any rate of the ports, delay
    /// lines do not.
    fn held(&self, room: Room) -> u128 {
        // Frames that are held back are stored aside, and their places in the line stay taken.
        let aside = self.aside.map_or(0, |by| u128::from(self.delay.0) + u128::from(by.0));
        let span = u128::from(self.delay.0) + aside;
        let in_delay =
            |rate: u64| (u128::from(rate) * span).div_ceil(8 * u128::from(NANOS_PER_SEC));
        // A span of time lets its share through and one frame more.
        let frame = u128::from(room.frame) * if self.aside.is_some() { 2 } else { 1 };
        let queues = if self.has_queue() {
            (u128::from(self.queue) + frame) * clients(room)
        } else {
            frame * u128::from(self.copies)
        };
        let line = match (self.drops_late, self.shared) {
            (false, false) => {
                let burst = frames_of(u128::from(self.burst) * clients(room), self.framing);
                let carriers = self.beams.map_or(u128::MAX, |it| in_delay(it) + self.superframe);
                (in_delay(self.shaped(room)) + burst)
                    .min(carriers)
                    .min(in_delay(self.brought(room)))
            }
            (true, false) => in_delay(self.brought(room)),
            (false, true) => {
                let beams = self.beams.map_or(u128::MAX, in_delay);
                // Including the bytes that the queues held before.
                let shaped = in_delay(self.shaped(room)) + queues;
                in_delay(self.brought(room)).min(shaped).min(beams)
            }
            // A frame dropped before the shaper keeps its place while others wait for the beam.
            (true, true) => in_delay(self.brought(room)) + queues,
        };
        line + queues
    }
}

/// The bytes of frame that a rate with such framing lets through at most: with a negative
/// overhead, more than the rate. Bytes that the link layer adds are ignored.
fn frames_of(rate: u128, framing: Framing) -> u128 {
    let charged = Framing::plain(framing.overhead.min(0)).bytes(MIN_FRAME);
    rate * u128::from(MIN_FRAME) / u128::from(charged)
}

/// Upper bound of the rate of all beams of a direction, in bit/s. If they are carriers, frames are
/// `carried` with the framing of the clients.
fn beams_let_through(beams: &BeamsPlan, direction: Direction, carried: Option<Framing>) -> u64 {
    let rates = beams.beams.iter().map(|b| match b.rate[direction] {
        // It has no clients.
        BitRate::Unlimited | BitRate::Down => 0,
        BitRate::PerSec(rate) => frames_of(rate.get().into(), carried.unwrap_or(b.framing)) + 1,
    });
    u64::try_from(rates.sum::<u128>()).unwrap_or(u64::MAX)
}

/// Upper bound of the bytes of frames in a superframe of all carriers of a direction.
fn superframe_of(
    beams: &BeamsPlan,
    direction: Direction,
    access: &AccessPlan,
    framing: Framing,
) -> u128 {
    let bytes = beams.beams.iter().map(|b| match b.rate[direction] {
        BitRate::Unlimited | BitRate::Down => 0,
        BitRate::PerSec(rate) => {
            u128::from(access.bytes_of(rate.get(), 0)) + u128::from(access.burst)
        }
    });
    frames_of(bytes.sum(), framing)
}

type Demands = ByDirection<Demand>;

fn demands(plan: &Plan) -> Demands {
    ByDirection(Direction::BOTH.map(|d| Demand::of(&plan.pipes[d], &plan.beams, d)))
}

/// With the default client, which is one more.
fn clients(room: Room) -> u128 {
    u128::from(room.clients) + 1
}

/// Both directions of every client and of the bypass.
fn pipes(room: Room) -> u128 {
    2 * (clients(room) + 1)
}

fn needed(demands: &Demands, room: Room) -> u64 {
    let held = demands.0.iter().map(|d| d.held(room)).sum();
    // Frames that are held back have their own segments.
    let lines = if demands.0.iter().any(|d| d.aside.is_some()) { 2 } else { 1 };
    u64::try_from(packing::store_bytes(held, lines * pipes(room), room.tag)).unwrap_or(u64::MAX)
}

/// The most bytes of store that a plan can use by itself, with the worst lengths
/// of frames.
#[must_use]
pub fn memory(plan: &Plan, room: Room) -> u64 {
    needed(&demands(plan), room)
}

/// Upper bound of the rate of each direction of a plan, all clients together, in bit/s.
#[must_use]
pub fn through(plan: &Plan, room: Room) -> ByDirection<u64> {
    ByDirection(demands(plan).0.map(|d| d.through(room)))
}

/// Events of all random processes of a plan in a second, in the long run and in fades
/// that do not end.
#[must_use]
pub fn events(plan: &Plan, room: Room) -> u64 {
    let (each, all) = micro_events_of(plan);
    u64::try_from((each * clients(room) + all) / 1_000_000).unwrap_or(u64::MAX)
}

/// Time on a worker's core that catching up with these takes in a second.
#[must_use]
pub fn work(plan: &Plan, room: Room) -> Nanos {
    Nanos(events(plan, room).saturating_mul(EVENT.0))
}

/// How many clients there can be for [`work`] to stay within [`MAX_WORK`]; none if not
/// even one.
fn busy_clients(plan: &Plan) -> Option<u32> {
    let (each, all) = micro_events_of(plan);
    let left = (u128::from(MAX_WORK.0) * 1_000_000).saturating_sub(all * u128::from(EVENT.0));
    let with_default = left.checked_div(each * u128::from(EVENT.0));
    let clients = with_default.map_or(u128::MAX, |n| n.saturating_sub(1));
    Some(u32::try_from(clients).unwrap_or(u32::MAX)).filter(|n| *n > 0)
}

/// Events in 10⁶ seconds of the processes of one client, and of those that all clients have in common.
fn micro_events_of(plan: &Plan) -> (u128, u128) {
    let (mut each, mut all) = (0, 0);
    for direction in Direction::BOTH {
        let p = &plan.pipes[direction];
        each += micro_events(p);
        let RatePlan::Access(access) = &p.rate else { continue };
        let draws = access.others.map_or(0, |it| it.work()) * every(access.superframe);
        if plan.beams.has_all_in(direction) {
            all += draws * plan.beams.beams.len() as u128;
        } else {
            each += draws;
        }
    }
    (each, all)
}

/// Events in 10⁶ seconds, one in each cycle.
fn every(cycle: Nanos) -> u128 {
    1_000_000 * u128::from(NANOS_PER_SEC) / u128::from(cycle.0.max(1))
}

/// Events of one client's processes in 10⁶ seconds.
fn micro_events(p: &PipePlan) -> u128 {
    let mut events = 0;
    for o in &p.outages {
        let quiet = p.fade.map_or(o.interval, |f| f.shortened(o.interval));
        events += every(quiet + o.duration);
    }
    if let Some(f) = p.fade {
        // Each class has its own cursor, and both ends of a fade are events.
        events += 2 * (p.outages.len() as u128 + 1) * every(f.interval + f.duration);
    }
    let DelayPlan { trace, level, body, excursions, .. } = &p.delay;
    for e in excursions {
        let quiet = e.regime.map_or(e.interval, |r| r.shortened(e.interval));
        events += every(quiet + e.duration);
        events += e.regime.map_or(0, |r| 2 * every(r.interval + r.duration));
    }
    events += p.boundary.map_or(0, |b| every(b.grid.period));
    if let RatePlan::Varying(varying) = &p.rate {
        let shares = varying.shares.iter().flatten();
        events += shares.map(|s| every(s.interval())).sum::<u128>();
    }
    if let RatePlan::Access(access) = &p.rate {
        events += every(access.superframe);
    }
    if let AqmPlan::Pie(pie) = p.queue.aqm {
        events += every(pie.update);
    }
    events += p.cross().map_or(0, cross_events);
    let held = [trace, &p.loss_trace, level, body].into_iter().flatten();
    events + held.map(|h| every(h.interval())).sum::<u128>()
}

/// Phantom frames, and the periods in which they arrive, in 10⁶ seconds.
fn cross_events(cross: CrossPlan) -> u128 {
    let frames = u128::from(cross.rate) * 1_000_000 / (8 * u128::from(cross.frame.max(1)));
    let periods = match cross.arrivals {
        Arrivals::Constant | Arrivals::Poisson => 0,
        Arrivals::OnOff(p) => {
            2 * 1_000_000 * u128::from(NANOS_PER_SEC) / u128::from((p.on + p.off).0.max(1))
        }
    };
    frames + periods
}

/// The largest rate of a pipe in bit/s; `None` is not limited.
fn largest_rate(rate: &RatePlan) -> Option<u64> {
    match rate.max() {
        BitRate::Unlimited => None,
        BitRate::Down => Some(0),
        BitRate::PerSec(r) => Some(r.get()),
    }
}

#[cfg(test)]
mod tests;
