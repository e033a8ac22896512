// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Switch`: shows the switch, moves its gates, and has frames copied.

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
        let which = which(direction);
        let message = format!("the gate of {client} is {done} {which}");
        self.tell(pb::EventKind::SwitchGate, &caller.name, &gate.client, message);
        Ok(pb::SetGateResponse {})
    }

    async fn set_mirror(
        &self,
        caller: &Caller,
        request: pb::SetMirrorRequest,
    ) -> Result<pb::SetMirrorResponse, Status> {
        let mut mirror = request.mirror.unwrap_or_default();
        mirror.clients.sort();
        mirror.clients.dedup();
        let direction = pb::Direction::try_from(mirror.direction).map_err(|_| {
            refusal::field("mirror.direction", "unknown: give forward or return, or none for both")
        })?;
        let at = pb::MirrorPoint::try_from(mirror.at).map_err(|_| {
            refusal::field("mirror.at", "unknown: give box or hosts, or none for both")
        })?;
        if mirror.all && !mirror.clients.is_empty() {
            return Err(refusal::field("mirror.clients", "with `all`: give one of them"));
        }
        // As for a gate.
        self.changing().await.leases.check(caller)?;
        let subject = match &*mirror.clients {
            [one] => one.clone(),
            _ => String::new(),
        };
        let of = match &*mirror.clients {
            [] if mirror.all => "all clients".to_owned(),
            names => names.join(", "),
        };
        let at = match at {
            pb::MirrorPoint::Unspecified => "to the box and to hosts",
            pb::MirrorPoint::Box => "to the box",
            pb::MirrorPoint::Hosts => "to hosts",
        };
        let message = match of.as_str() {
            "" => "no frames are copied".to_owned(),
            of => format!("frames of {of} are copied {}, on their way {at}", which(direction)),
        };
        self.dataplane().switches().set_mirror(mirror).await?;
        self.tell(pb::EventKind::SwitchMirror, &caller.name, &subject, message);
        Ok(pb::SetMirrorResponse {})
    }
}

fn which(direction: pb::Direction) -> &'static str {
    match direction {
        pb::Direction::Unspecified => "in both directions",
        pb::Direction::Forward => "forward",
        pb::Direction::Return => "return",
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

    async fn set_mirror(
        &self,
        request: Request<pb::SetMirrorRequest>,
    ) -> Result<Response<pb::SetMirrorResponse>, Status> {
        let (caller, control) = (Caller::of(&request), self.0.clone());
        let request = request.into_inner();
        to_its_end(async move { control.set_mirror(&caller, request).await }).await
    }
}
