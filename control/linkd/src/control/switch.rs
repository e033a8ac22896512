// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Switch`: shows the switch, and moves its gates.

use super::{Control, to_its_end};
use crate::caller::Caller;
use crate::refusal;
use crate::switch::{none_there, state};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::switch_server;
use tonic::{Request, Response, Status};

pub(crate) struct SwitchService(pub Control);

impl Control {
    async fn switch_state(&self) -> Result<pb::SwitchState, Status> {
        let switches = self.dataplane().switches();
        let look = switches.look().await.ok_or_else(none_there)?;
        // If the dataplane does not answer, the rest is still reported.
        let plan = self.dataplane().plan().await.ok().and_then(|answer| answer.plan);
        let dp::Plan { profile, offload, clients, .. } = plan.unwrap_or_default();
        let split = profile.and_then(|profile| switches.split(&profile, clients.as_ref()));
        let split = split.as_ref().map(|split| (split, offload.as_ref()));
        Ok(state::state(&look, split, switches.gates()))
    }

    async fn set_gate(
        &self,
        caller: &Caller,
        request: pb::SetGateRequest,
    ) -> Result<pb::SetGateResponse, Status> {
        let gate = request.gate.ok_or_else(|| {
            refusal::field("gate", "missing: send an empty one for all clients both ways")
        })?;
        let direction = pb::Direction::try_from(gate.direction).map_err(|_| {
            refusal::field("gate.direction", "unknown: give forward or return, or none for both")
        })?;
        // A silent switch must delay no change of the link, so the lock is not held meanwhile.
        self.changing().await.leases.check(caller)?;
        let switches = self.dataplane().switches();
        switches.set_gate(&gate.client, direction, request.closed).await?;
        let done = if request.closed { "closed" } else { "opened" };
        let client = match &*gate.client {
            "" => "all clients",
            name => name,
        };
        let which = match direction {
            pb::Direction::Unspecified => "in both directions",
            pb::Direction::Forward => "forward",
            pb::Direction::Return => "return",
        };
        let message = format!("the gate of {client} is {done} {which}");
        self.tell(pb::EventKind::SwitchGate, &caller.name, &gate.client, message);
        Ok(pb::SetGateResponse {})
    }
}

#[tonic::async_trait]
impl switch_server::Switch for SwitchService {
    async fn get_switch(
        &self,
        _: Request<pb::GetSwitchRequest>,
    ) -> Result<Response<pb::SwitchState>, Status> {
        self.0.switch_state().await.map(Response::new)
    }

    async fn set_gate(
        &self,
        request: Request<pb::SetGateRequest>,
    ) -> Result<Response<pb::SetGateResponse>, Status> {
        let (caller, control) = (Caller::of(&request), self.0.clone());
        let request = request.into_inner();
        to_its_end(async move { control.set_gate(&caller, request).await }).await
    }
}
