// SPDX-License-Identifier: Apache-2.0
//! Frames behind the shims of a P4 switch ([`crate::shim`]): whose they are.

use crate::classify::ETHERNET;
use crate::frame::Buffer;
use crate::plan::Plan;
use crate::shim::{OffloadPlan, Shim, Tick};
use crate::units::Direction;

use super::{Engine, UNKNOWN, pipe_id};

impl<B: Buffer> Engine<B> {
    /// The pipe of the client that the switch says, if that is to be believed.
    #[inline(never)]
    pub(super) fn route_by_shim(&self, direction: Direction, frame: &[u8]) -> u32 {
        let Some((shim, inner)) = shim_of(direction, frame) else { return UNKNOWN };
        // Without a switch nothing comes here.
        let tick = self.limits.shim.unwrap_or(Tick::Nanosecond);
        let may_be = (ETHERNET..=self.limits.frame as usize).contains(&inner.len());
        let believed = shim.believed(self.epoch, tick);
        match believed.filter(|client| (*client as usize) < self.clients()) {
            Some(client) if may_be => pipe_id(client, direction),
            _ => self.route_by_headers(direction, inner),
        }
    }
}

/// A frame's shim and the frame behind it, if it has one that goes its way.
#[inline]
pub(super) fn shim_of(direction: Direction, frame: &[u8]) -> Option<(Shim, &[u8])> {
    Shim::read(frame).filter(|(shim, _)| shim.direction == direction)
}

/// The plan with all of it done here: what a switch was to do, nobody else would.
pub(super) fn without_switch(mut plan: Plan) -> Plan {
    for pipe in &mut plan.pipes.0 {
        pipe.offload = OffloadPlan::default();
    }
    plan
}
