// SPDX-License-Identifier: Apache-2.0
//! The load that is possible without loss, with the figures by which the dataplane accepts and refuses
//! plans ([`emu::envelope`]): as messages and as text. `linkctl envelope` and linkd show them.

mod message;
mod show;

pub use message::message;

use emu::plan::{Plan, Room};
use profile::{Profile, Violations};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;

/// The longest frame of ports that are not told about, in bytes: of an MTU of 1500 bytes.
pub const FRAME: u32 = 1_514;
const SEED: u64 = 1;

/// The plan of a profile.
///
/// # Errors
/// If the profile is not valid.
pub fn compile(profile: &Profile) -> Result<Plan, Violations> {
    compile_message(profile.as_proto().clone())
}

/// The plan of a link, which may be a profile that was patched.
///
/// # Errors
/// If it is not valid.
pub fn compile_message(profile: pb::Profile) -> Result<Plan, Violations> {
    let plan = dp::Plan { profile: Some(profile), seed: SEED, ..Default::default() };
    ::compile::compile(&plan)
}

/// Values that replace those of a dataplane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instead {
    pub clients: Option<u32>,
    /// Memory of all workers, in bytes.
    pub memory: Option<u64>,
    pub workers: Option<u32>,
    pub port_bps: Option<u64>,
    /// Longest frame, in bytes without FCS.
    pub frame: Option<u32>,
}

impl Instead {
    /// A room without a dataplane, if enough of it is known.
    #[must_use]
    pub fn alone(self) -> Option<Room> {
        let workers = self.workers.unwrap_or(1).max(1);
        Some(Room {
            clients: self.clients?,
            port_bps: self.port_bps?,
            frame: self.frame.unwrap_or(FRAME),
            capacity: self.memory? / u64::from(workers),
            workers,
            tag: 0,
            unanswered: false,
        })
    }

    /// The room of a dataplane with these values.
    #[must_use]
    pub fn of(self, room: &pb::Room) -> Room {
        let workers = self.workers.unwrap_or(room.workers).max(1);
        let memory = room.memory_bytes.saturating_mul(room.workers.max(1).into());
        Room {
            clients: self.clients.unwrap_or(room.clients),
            port_bps: self.port_bps.unwrap_or(room.port_bps),
            frame: self.frame.unwrap_or(room.frame_bytes),
            capacity: self.memory.unwrap_or(memory) / u64::from(workers),
            workers,
            tag: room.shim_bytes + room.pair_bytes,
            unanswered: room.shim_bytes > 0,
        }
    }
}
