// SPDX-License-Identifier: Apache-2.0
//! Beams: a rate in each direction that several clients share.
//!
//! The two stages are in tandem. A client's own shaper works as it does without a beam; frames
//! that have left it wait, in order, for the beam, which serves one frame at a time at its own
//! rate. The channel and the delay are asked when the beam has served a frame. Until
//! then the frame counts as in the client's queue.
//!
//! Which client's frame is next is decided by deficit round robin (M. Shreedhar, G. Varghese,
//! "Efficient Fair Queueing Using Deficit Round-Robin", IEEE/ACM Trans. Networking 4(3),
//! 1996; SIGCOMM 1995) with weights. A client that has something waiting when a frame leaves
//! is in the round; at its turn it may send a number of bytes more, its quantum, which is the
//! longest frame for the client of the least weight and more in proportion for the others. So
//! a turn always sends a frame, and a decision costs the same for any number of clients. What
//! a client did not use is kept for its next turn as long as it has frames waiting.
//!
//! While clients `i` and `j` have frames waiting, the bytes sent for them, by weight,
//! differ by at most one quantum and the unused remainders:
//! `|Sᵢ/wᵢ − Sⱼ/wⱼ| ≤ Q + m/wᵢ + m/wⱼ`, with `m` the longest frame and `Q` the quantum of
//! weight one.
//!
//! Differs from the paper in that the frame in service counts as waiting until it has left:
//! a client whose next frame arrives meanwhile stays in the round.
//!
//! Fates depend on arrivals and finishes only ([`crate::pipe`]). At one instant, first
//! clients join the round, in the order of their numbers (in which they were first seen), then
//! a frame leaves, and then the beam takes the next one; arrivals at that instant come
//! after all of that.
//!
//! The beam of clients with capacity on demand is a carrier ([`carrier`]): it has no queue, and its rate
//! is divided by superframes.
//!
//! Units: bytes as the beam counts them, with its framing. Runs on the worker's thread;
//! all clients of a beam belong to one worker.

mod carrier;
mod plan;
mod server;
mod stage;

pub use plan::{BeamPlan, BeamsError, BeamsPlan, MAX_BEAMS, MAX_WEIGHT, Share};
pub use server::Standing;
pub(crate) use server::{Member, Queues};
pub(crate) use stage::{Beamed, Beams, regroups};

use crate::units::Direction;

/// Number of a beam of a plan in a direction, among all beams of an engine.
#[inline]
pub(crate) fn number(beam: u16, direction: Direction) -> u32 {
    u32::from(beam) * 2 + direction as u32
}
