// SPDX-License-Identifier: Apache-2.0
//! Other limits of a link: no reason to refuse it, but perhaps unexpected.

use std::fmt;

use crate::plan::{Plan, Room};
use crate::si::{self, Round};
use crate::units::Direction;

use super::largest_rate;

/// Something that a plan says and the link will not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark {
    /// A rate above the ports'.
    Rate {
        direction: Direction,
        /// Rate of the plan, in bit/s.
        rate: u64,
        /// Rate of the ports, in bit/s.
        port: u64,
    },
    /// Cross traffic that leaves nothing of the rate.
    Cross {
        direction: Direction,
        /// Mean rate of the cross traffic, in bit/s.
        cross: u64,
        /// Highest rate of the link, in bit/s.
        rate: u64,
    },
    /// A queue that is shorter than the longest frame.
    Queue {
        direction: Direction,
        /// The queue's limit in bytes.
        limit: u64,
        /// The longest frame in bytes.
        frame: u32,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rate { direction, rate, port } => write!(
                f,
                "{}: {} is more than the port's {}: the port limits the link",
                name(direction),
                si::rate(rate, Round::Down),
                si::rate(port, Round::Down)
            ),
            Self::Cross { direction, cross, rate } => write!(
                f,
                "{}: cross traffic of {} takes all of {}: packets get a place only where it is \
                 dropped",
                name(direction),
                si::rate(cross, Round::Down),
                si::rate(rate, Round::Down)
            ),
            Self::Queue { direction, limit, frame } => write!(
                f,
                "{}: a queue of {limit} B never takes a frame of more than that, and the \
                 ports carry {frame} B: choose a larger queue if there are such frames",
                name(direction)
            ),
        }
    }
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Return => "return",
    }
}

/// All that is worth a remark.
#[must_use]
pub fn remarks(plan: &Plan, room: Room) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for direction in Direction::BOTH {
        let pipe = &plan.pipes[direction];
        if let Some(rate) = largest_rate(&pipe.rate).filter(|r| *r > room.port_bps) {
            remarks.push(Remark::Rate { direction, rate, port: room.port_bps });
        }
        if let Some((cross, rate)) = pipe.cross().zip(largest_rate(&pipe.rate))
            && cross.rate >= rate
        {
            remarks.push(Remark::Cross { direction, cross: cross.rate, rate });
        }
        let (limit, frame) = (pipe.queue.limit, room.frame);
        if limit < u64::from(frame) {
            remarks.push(Remark::Queue { direction, limit, frame });
        }
    }
    remarks
}
