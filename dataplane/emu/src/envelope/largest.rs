// SPDX-License-Identifier: Apache-2.0
//! How far each parameter can go, all others as they are.
//!
//! The need grows with each of them, so the largest is found by bisection. Both
//! directions go together, in the proportion that they have.

use crate::plan::{Plan, Room};
use crate::units::{ByDirection, Nanos};

use super::{Demand, Demands, busy_clients, demands, needed};

/// Beyond this, clients are not counted.
pub const MAX_CLIENTS: u32 = 100_000;
/// Beyond this, a delay is as good as any.
pub const MAX_DELAY: Nanos = Nanos::from_secs(3_600);
const MAX_QUEUE: u64 = 1 << 40;
const MAX_RATE: u64 = 1_000_000_000_000;
/// The smallest rate and delay that make sense.
const MIN_RATE: u64 = 1_000;

/// The largest value with which a plan fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Largest<T> {
    /// None fits: something else is too large.
    Nothing,
    /// This one, and no larger.
    UpTo(T),
    Any,
}

impl<T> Largest<T> {
    /// The value, if there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Self::UpTo(value) => Some(value),
            Self::Nothing | Self::Any => None,
        }
    }

    fn map<U>(self, f: impl FnOnce(T) -> U) -> Largest<U> {
        match self {
            Self::Nothing => Largest::Nothing,
            Self::UpTo(value) => Largest::UpTo(f(value)),
            Self::Any => Largest::Any,
        }
    }
}

/// A value for each direction that has it.
pub type Pair = ByDirection<Option<u64>>;

/// How far each parameter of a plan can go. `None`: the plan has no such parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fits {
    pub clients: Largest<u32>,
    /// The longest delay of each direction, all parts of it together, in nanoseconds.
    pub delay: Option<Largest<Pair>>,
    /// Each queue's limit, in bytes.
    pub queue: Option<Largest<Pair>>,
    /// Each client's rate, in bit/s.
    pub rate: Option<Largest<Pair>>,
}

impl Fits {
    /// How far the parameters of `plan` can go in `room`.
    #[must_use]
    pub fn of(plan: &Plan, room: Room) -> Self {
        let demands = demands(plan);
        let busy = u64::from(busy_clients(plan).unwrap_or(0));
        let clients = largest(1, u64::from(MAX_CLIENTS), |n| {
            let room = Room { clients: u32::try_from(n).unwrap_or(u32::MAX), ..room };
            n <= busy && needed(&demands, room) <= room.capacity
        });
        // The rate of opportunities is no parameter.
        let limited = |d: &Demand| d.rate.filter(|r| *r > 0 && d.burst == 0);
        Self {
            clients: clients.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            delay: in_proportion(
                &demands,
                room,
                (0, MAX_DELAY.0),
                |d| Some(d.delay.0).filter(|delay| *delay > 0),
                |d, value| d.delay = Nanos(value),
            ),
            queue: in_proportion(
                &demands,
                room,
                (u64::from(room.frame), MAX_QUEUE),
                |d| d.has_queue().then_some(d.queue),
                |d, value| d.queue = value,
            ),
            rate: in_proportion(&demands, room, (MIN_RATE, MAX_RATE), limited, |d, value| {
                d.rate = Some(value);
            }),
        }
    }
}

/// Scales the value that `get` finds by one factor in both directions, so that the larger is as
/// large as it can be within `range`.
fn in_proportion(
    demands: &Demands,
    room: Room,
    (low, high): (u64, u64),
    get: impl Fn(&Demand) -> Option<u64>,
    set: impl Fn(&mut Demand, u64),
) -> Option<Largest<Pair>> {
    let own = ByDirection(demands.0.each_ref().map(get));
    let reference = own.0.into_iter().flatten().max().filter(|r| *r > 0)?;
    let scaled = |to: u64| {
        let scale = |v: u64| u128::from(v) * u128::from(to) / u128::from(reference);
        ByDirection(own.0.map(|v| v.map(|v| u64::try_from(scale(v)).unwrap_or(u64::MAX))))
    };
    let fits = |to| {
        let mut demands = *demands;
        for (demand, value) in demands.0.iter_mut().zip(scaled(to).0) {
            if let Some(value) = value {
                set(demand, value);
            }
        }
        needed(&demands, room) <= room.capacity
    };
    Some(largest(low, high.max(low), fits).map(scaled))
}

fn largest(low: u64, high: u64, fits: impl Fn(u64) -> bool) -> Largest<u64> {
    if !fits(low) {
        return Largest::Nothing;
    }
    if fits(high) {
        return Largest::Any;
    }
    let (mut fit, mut too_large) = (low, high);
    while too_large - fit > 1 {
        let middle = fit + (too_large - fit) / 2;
        if fits(middle) { fit = middle } else { too_large = middle }
    }
    Largest::UpTo(fit)
}
