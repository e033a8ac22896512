// SPDX-License-Identifier: Apache-2.0
//! What the control plane puts in force: the parameters of every stage, compiled
//! and in integers.
//!
//! The control plane checks a plan; the core only relies on what it must to stay
//! within memory and time ([`Plan::check`]).

use thiserror::Error;

use crate::aqm::QueuePlan;
use crate::delay::DelayPlan;
use crate::episode::EpisodePlan;
use crate::store::{MAX_FRAME, SEGMENT, record_size};
use crate::units::{BitRate, ByDirection, NANOS_PER_SEC, Nanos};

/// The shortest mean interval of a process: it bounds the work of catching up
/// with a pipe that was idle for long.
pub const MIN_INTERVAL: Nanos = Nanos::from_millis(10);
/// The most classes of outages, and of excursions, in a pipe.
pub const MAX_CLASSES: usize = 8;
/// The shortest frame of a client, Ethernet and IPv4 headers alone: it has the most
/// bookkeeping per byte. Real wires pad to 60 bytes, virtual ones do not.
const MIN_FRAME: u32 = 34;

/// What a dataplane has to hold a plan with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Clients that are made for addresses, at most.
    pub clients: u32,
    /// Bit/s that each port brings at most.
    pub port_bps: u64,
    /// The longest frame.
    pub frame: u32,
    /// Size of the packet store in bytes.
    pub capacity: u64,
}

/// The parameters of one pipe.
#[derive(Clone, Debug, PartialEq)]
pub struct PipePlan {
    /// What the shaper lets through.
    pub rate: BitRate,
    /// Bytes added to each frame when its time on the link is computed.
    pub overhead: i32,
    /// Queue and admission.
    pub queue: QueuePlan,
    /// Classes of outages.
    pub outages: Vec<EpisodePlan>,
    /// The delay.
    pub delay: DelayPlan,
}

impl PipePlan {
    /// A pipe that passes everything at once; its queue never fills.
    #[must_use]
    pub fn transparent() -> Self {
        Self {
            rate: BitRate::Unlimited,
            overhead: 0,
            queue: QueuePlan { limit: 1 << 20, random_drop: None },
            outages: Vec::new(),
            delay: DelayPlan::default(),
        }
    }
}

/// The parameters of every client's two pipes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seed of all random streams.
    pub seed: u64,
    /// One pipe per direction.
    pub pipes: ByDirection<PipePlan>,
}

/// A plan that the core does not take.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// Too many classes.
    #[error("{0} classes of episodes, at most {MAX_CLASSES}: merge some")]
    Classes(usize),
    /// A process with too many events.
    #[error("mean interval of {} ns between episodes, at least {} ns", .0.0, MIN_INTERVAL.0)]
    Interval(Nanos),
    /// What the plan can hold does not fit into memory.
    #[error(
        "too little memory: {clients} clients with this plan can hold {}, bookkeeping included, and \
         the packet store has {}: start the dataplane with --memory {} or fewer --max-clients, or \
         choose a smaller queue, rate or delay",
        megabytes(*needed), megabytes(*capacity), megabytes(*needed)
    )]
    Memory {
        /// The limit on clients.
        clients: u32,
        /// Bytes that they can come to hold.
        needed: u64,
        /// Bytes there are.
        capacity: u64,
    },
}

/// Rounded up, in a form that a command line takes back.
fn megabytes(bytes: u64) -> String {
    format!("\"{} MB\"", bytes.div_ceil(1_000_000))
}

impl Plan {
    /// A plan that passes everything at once.
    #[must_use]
    pub fn transparent() -> Self {
        Self { seed: 1, pipes: ByDirection([PipePlan::transparent(), PipePlan::transparent()]) }
    }

    /// Checks what the core relies on, and that the plan fits into `room` whatever the
    /// frames.
    ///
    /// # Errors
    /// The first limit that the plan breaks.
    pub fn check(&self, room: Room) -> Result<(), PlanError> {
        for p in &self.pipes.0 {
            for n in [p.outages.len(), p.delay.excursions.len()] {
                if n > MAX_CLASSES {
                    return Err(PlanError::Classes(n));
                }
            }
            let intervals = p.outages.iter().map(|o| o.interval);
            for i in intervals.chain(p.delay.excursions.iter().map(|e| e.interval)) {
                if i < MIN_INTERVAL {
                    return Err(PlanError::Interval(i));
                }
            }
        }
        let needed = self.memory(room);
        if needed > room.capacity {
            let Room { clients, capacity, .. } = room;
            return Err(PlanError::Memory { clients, needed, capacity });
        }
        Ok(())
    }

    /// The most memory that this plan can come to use by itself, with the worst lengths
    /// of frames. Queues fill whatever the port's rate, delay lines do not. What an
    /// earlier plan let in and is still held comes on top for as long.
    #[must_use]
    pub fn memory(&self, room: Room) -> u64 {
        // The default client is one more.
        let clients = u128::from(room.clients) + 1;
        let min = i64::from(MIN_FRAME);
        let mut bytes = 0;
        for p in &self.pipes.0 {
            let rate = match p.rate {
                BitRate::PerSec(r) => {
                    // A negative overhead lets more bytes of frame through than the rate.
                    let charged = (min + i64::from(p.overhead.min(0))).max(1).unsigned_abs();
                    u128::from(r.get()) * clients * u128::from(MIN_FRAME) / u128::from(charged)
                }
                BitRate::Unlimited => u128::MAX,
                BitRate::Down => 0,
            };
            let rate = rate.min(u128::from(room.port_bps));
            let line = rate * u128::from(p.delay.max().0) / u128::from(8 * NANOS_PER_SEC);
            let queue = match p.rate {
                BitRate::Unlimited => 0,
                _ => u128::from(p.queue.limit) * clients,
            };
            bytes += line + queue;
        }
        let packed = bytes * u128::from(record_size(MIN_FRAME)) / u128::from(MIN_FRAME);
        // What is left of each segment is less than the longest record; and each pipe has
        // begun one at its tail and not yet given back one at its head. The bypass has
        // pipes too.
        let left = record_size(room.frame.min(MAX_FRAME));
        let segments = packed * u128::from(SEGMENT) / u128::from(SEGMENT - left);
        let begun = (clients + 1) * 4 * u128::from(SEGMENT);
        u64::try_from(segments + begun).unwrap_or(u64::MAX)
    }
}

const _: () = assert!(record_size(MAX_FRAME) * 3 <= SEGMENT);

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { clients: 1, port_bps: 10_000_000_000, frame: 1514, capacity: 0 };

    #[test]
    fn a_plan_that_does_not_fit_is_refused_with_the_numbers() {
        let mut plan = Plan::transparent();
        for p in &mut plan.pipes.0 {
            p.rate = BitRate::bps(144_000_000);
            p.queue.limit = 36_000_000;
            p.delay.base = Nanos::from_millis(300);
        }
        let need = plan.memory(ROOM);
        // Two clients × 2 pipes × (36 MB + 5.4 MB) × 48/34, and 5 % for what is left.
        assert!((233_000_000..247_000_000).contains(&need), "{need}");
        assert!(plan.check(Room { capacity: need, ..ROOM }).is_ok());
        let e = plan.check(Room { clients: 2, capacity: need, ..ROOM }).unwrap_err();
        assert!(e.to_string().contains("2 clients"), "{e}");
    }

    #[test]
    fn an_unlimited_rate_holds_what_the_port_brings() {
        let mut plan = Plan::transparent();
        plan.pipes.0[0].delay.base = Nanos::from_millis(300);
        let one = plan.memory(ROOM);
        assert!((529_000_000..560_000_000).contains(&one), "{one}");
        let many = plan.memory(Room { clients: 101, ..ROOM });
        assert_eq!(many - one, 100 * 4 * u64::from(SEGMENT));
    }
}
