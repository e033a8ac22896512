// SPDX-License-Identifier: Apache-2.0
//! Why a plan is outside of the envelope, with the numbers and every remedy that there is.

use std::fmt;

use crate::plan::{Plan, Room};
use crate::si::{self, Round};
use crate::units::{ByDirection, NANOS_PER_SEC, Nanos};

use super::{EVENT, Fits, Largest, MAX_WORK, Pair, busy_clients, events, memory, through, work};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes that the plan can hold, including bookkeeping.
    pub needed: u64,
    /// Size of the store in bytes.
    pub room: Room,
    /// Upper bound of each direction's rate, in bit/s.
    pub through: ByDirection<u64>,
    /// How far each parameter can go.
    pub fits: Fits,
}

/// Random processes with too many events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooBusy {
    /// Events of all clients in a second.
    pub events: u64,
    /// Time that they take per second of a core.
    pub work: Nanos,
    pub clients: u32,
    /// How many clients can be caught up with; none if not even one.
    pub fits: Option<u32>,
}

impl Shortage {
    /// The shortage of `plan`, if there is one.
    #[must_use]
    pub fn of(plan: &Plan, room: Room) -> Option<Self> {
        let needed = memory(plan, room);
        (needed > room.capacity).then(|| Self {
            needed,
            room,
            through: through(plan, room),
            fits: Fits::of(plan, room),
        })
    }
}

impl TooBusy {
    /// Whether the processes of `plan` take too much.
    #[must_use]
    pub fn of(plan: &Plan, room: Room) -> Option<Self> {
        let work = work(plan, room);
        (work > MAX_WORK).then(|| Self {
            events: events(plan, room),
            work,
            clients: room.clients,
            fits: busy_clients(plan),
        })
    }
}

impl Shortage {
    /// The shortage and the possible values, without the remedies.
    #[must_use]
    pub fn summary(&self) -> String {
        let needed = si::bytes(self.needed, Round::Up);
        let reserved = si::bytes(self.room.capacity, Round::Down);
        let reserved = match self.room.workers {
            0 | 1 => format!("{reserved} reserved"),
            n => format!("each of {n} workers has {reserved} reserved"),
        };
        let possible = self.possible();
        let possible = match possible.as_slice() {
            [] => "no delay, queue, rate or number of clients alone makes it fit".to_owned(),
            some => format!("at most {}", some.join(", or ")),
        };
        format!("too little memory: needs {needed}, {reserved}: {possible}")
    }

    /// How far each parameter can go that can make the plan fit.
    fn possible(&self) -> Vec<String> {
        let Fits { clients, delay, queue, rate } = self.fits;
        let delay = delay.and_then(Largest::value).map(|delay| {
            let at = |(delay, through): (Option<u64>, u64)| {
                let delay = si::time(Nanos(delay?), Round::Down);
                Some(format!("{delay} at {}", si::rate(through, Round::Up)))
            };
            let [forward, back] = self.through.0;
            ways([at((delay.0[0], forward)), at((delay.0[1], back))])
        });
        let pair = |p: Option<Largest<Pair>>, show: fn(u64, Round) -> String| {
            let pair = p.and_then(Largest::value)?;
            Some(ways(pair.0.map(|v| v.map(|v| show(v, Round::Down)))))
        };
        let all = [
            delay.map(|d| format!("{d} with frames of any length")),
            clients.value().map(|n| format!("{n} of {} clients", self.room.clients)),
            pair(queue, si::bytes).map(|q| format!("queues of {q}")),
            pair(rate, si::rate).map(|r| format!("{r} for each client")),
        ];
        all.into_iter().flatten().collect()
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_all = self.needed.saturating_mul(self.room.workers.max(1).into());
        let memory = si::bytes(of_all, Round::Up);
        let fewer = match self.fits.clients {
            Largest::UpTo(_) => " or fewer --max-clients",
            Largest::Nothing | Largest::Any => "",
        };
        write!(
            f,
            "{}. Choose less, or start the dataplane with --memory {memory:?}{fewer}",
            self.summary()
        )
    }
}

impl TooBusy {
    /// The excess and the possible values, without the remedies.
    #[must_use]
    pub fn summary(&self) -> String {
        let percent = |n: Nanos| n.0.div_ceil(NANOS_PER_SEC / 100);
        let clients =
            self.fits.map_or(String::new(), |n| format!(": at most {n} of {}", self.clients));
        format!(
            "too many random events: {} clients have {} a second, {} % of a core at {} ns each, at \
             most {} %{clients}",
            self.clients,
            si::count(self.events, Round::Up),
            percent(self.work),
            EVENT.0,
            percent(MAX_WORK),
        )
    }
}

impl fmt::Display for TooBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}. Choose longer intervals or correlations, or start the dataplane with fewer \
             --max-clients",
            self.summary()
        )
    }
}

/// Why a plan is outside of the envelope: nothing, if it is within.
#[must_use]
pub fn excesses(plan: &Plan, room: Room) -> Vec<String> {
    let busy = TooBusy::of(plan, room).map(|b| b.summary());
    busy.into_iter().chain(Shortage::of(plan, room).map(|s| s.summary())).collect()
}

/// A value for each way that has one, or one for both.
fn ways(values: [Option<String>; 2]) -> String {
    match values {
        [Some(a), Some(b)] if a == b => format!("{a} each way"),
        [Some(a), Some(b)] => format!("{a} forward and {b} return"),
        [Some(a), None] => format!("{a} forward"),
        [None, Some(b)] => format!("{b} return"),
        [None, None] => String::new(),
    }
}
