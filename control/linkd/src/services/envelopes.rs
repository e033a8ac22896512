// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Envelopes`: the load that is possible without loss.

use crate::control::Control;
use crate::links::Links;
use crate::{given, refusal};
use emu::envelope::MAX_CLIENTS;
use emu::plan::{Plan, Room};
use emu::store::MAX_FRAME;
use envelope::{Instead, compile_message};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::envelopes_server;
use proto::linkemu::v1::get_envelope_request::Profile as Given;
use std::ops::RangeInclusive;
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};

/// Lengths of frames: from an Ethernet header to the longest frame of a dataplane.
const FRAMES: RangeInclusive<u32> = 14..=MAX_FRAME;
const WORKERS: RangeInclusive<u32> = 1..=1024;

pub(crate) struct EnvelopeService(pub Links);

#[tonic::async_trait]
impl envelopes_server::Envelopes for EnvelopeService {
    async fn get_envelope(
        &self,
        request: Request<pb::GetEnvelopeRequest>,
    ) -> Result<Response<pb::Envelope>, Status> {
        let request = request.into_inner();
        let control = self.0.control(&request.link)?;
        let instead = instead(&request)?;
        let alone = instead.alone();
        let room = match alone {
            Some(room) => room,
            None => instead.of(&control.dataplane().room().await?),
        };
        let profile = profile(&control, request.profile, alone.is_some()).await?;
        // The limits of each parameter are searched for.
        let answer = spawn_blocking(move || answer(room, profile)).await;
        let answer = answer.map_err(|_| Status::unavailable("linkd is shutting down"))?;
        answer.map(Response::new)
    }
}

fn instead(request: &pb::GetEnvelopeRequest) -> Result<Instead, Status> {
    let within = |field: &str, value: Option<u32>, range: RangeInclusive<u32>| match value {
        Some(value) if !range.contains(&value) => {
            let (least, most) = range.into_inner();
            let message = format!("{value} is not within {least} and {most}");
            Err(refusal::field(field, message))
        }
        _ => Ok(()),
    };
    within("clients", request.clients, 1..=MAX_CLIENTS)?;
    within("workers", request.workers, WORKERS)?;
    within("frame_bytes", request.frame_bytes, FRAMES)?;
    if request.port_bps == Some(0) {
        return Err(refusal::field("port_bps", "0 is no rate of a port"));
    }
    Ok(Instead {
        clients: request.clients,
        memory: request.memory_bytes,
        workers: request.workers,
        port_bps: request.port_bps,
        frame: request.frame_bytes,
    })
}

/// The profile of a request, or the current link, if the room is that of the dataplane.
async fn profile(
    control: &Control,
    given: Option<Given>,
    alone: bool,
) -> Result<Option<pb::Profile>, Status> {
    let checked = match given {
        Some(Given::Name(name)) => return Ok(Some(control.named(&name).await?.into_proto())),
        Some(Given::Inline(inline)) => given::profile(Some(inline), String::new()).await?,
        Some(Given::Toml(toml)) => given::text(toml).await?,
        None if alone => return Ok(None),
        None => {
            let in_force = control.dataplane().plan().await?;
            return Ok(in_force.plan.and_then(|plan| plan.profile));
        }
    };
    let profile = checked.map_err(|found| refusal::invalid("the profile", &found))?;
    Ok(Some(profile.into_proto()))
}

fn answer(room: Room, profile: Option<pb::Profile>) -> Result<pb::Envelope, Status> {
    let named = |profile: pb::Profile| -> Result<(String, Plan), Status> {
        let name = profile.name.clone();
        let plan = compile_message(profile);
        Ok((name, plan.map_err(|found| refusal::invalid("the profile", &found))?))
    };
    let profile = profile.map(named).transpose()?;
    let profile = profile.as_ref().map(|(name, plan)| (name.as_str(), plan));
    Ok(envelope::message(room, profile))
}
