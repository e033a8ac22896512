// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` over a [`Dataplane`].

use emu::units::Instant;
use owner::{Controllers, Held, Request as Keyed};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::current::Current;
use crate::dataplane::{Dataplane, Fixed, LinkChange, Made, Source, Terms, apply_links};
use crate::links::{Entry, Links};

#[derive(Clone)]
pub struct Service {
    links: Links,
    controllers: Controllers,
}

impl Service {
    /// The service of these links, without a controller yet.
    #[must_use]
    pub fn new(links: Links) -> Self {
        Self { links, controllers: Controllers::default() }
    }

    fn check_instance(&self, expected: u64) -> Result<(), Status> {
        let instance = self.links.main().dataplane.fixed().description.instance;
        if expected == 0 || expected == instance {
            return Ok(());
        }
        Err(Status::aborted(format!(
            "this dataplane is instance {instance:#018x} and {expected:#018x} was expected: it was \
             restarted; look at the link again, then decide"
        )))
    }

    /// The change of a link that a request asks for.
    fn change(&self, link: Dataplane, request: pb::ApplyRequest) -> Result<LinkChange, Status> {
        self.check_instance(request.expected_instance)?;
        let change = request.change.ok_or_else(|| Status::invalid_argument("change: missing"))?;
        let terms = Terms {
            source: Source::Controller(request.cause.unwrap_or_default()),
            expected: request.expected_generation,
            lossy: request.lossy,
            request: Keyed { key: request.key, fingerprint: request.fingerprint },
        };
        Ok(LinkChange { link, change, terms })
    }

    /// A command to the scenario. It may have to wait for a worker.
    async fn commanded(
        dataplane: &Dataplane,
        command: impl Future<Output = Result<model::ScenarioState, Status>>,
    ) -> Result<Option<model::ScenarioState>, Status> {
        dataplane.patiently(command).await.map_err(Status::from)?.map(Some)
    }
}

/// Logs and answers a change of a link.
fn applied(link: &Dataplane, made: Made) -> pb::ApplyResponse {
    let Made { applied, remarks, repeated, plan, sequence } = made;
    tracing::info!(
        link = link.name(),
        generation = applied.generation,
        at_ns = applied.effective_ns,
        repeated,
        "applied"
    );
    for remark in &remarks {
        tracing::warn!(link = link.name(), lossy = applied.lossy, "{remark}");
    }
    let (applied, plan) = (Some(applied), plan.as_deref().cloned());
    pb::ApplyResponse { applied, remarks, repeated, plan, sequence }
}

#[tonic::async_trait]
impl pb::dataplane_server::Dataplane for Service {
    async fn describe(
        &self,
        request: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        let Entry { dataplane, .. } = self.links.of(&request)?;
        dataplane.health().map_err(Status::from)?;
        let (room, Fixed { description, .. }) = (dataplane.room(), dataplane.fixed());
        let room = model::Room {
            clients: room.clients,
            port_bps: room.port_bps,
            frame_bytes: room.frame,
            memory_bytes: room.capacity,
            workers: room.workers,
            shim_bytes: if room.unanswered { room.tag } else { 0 },
            pair_bytes: if room.unanswered { 0 } else { room.tag },
        };
        Ok(Response::new(pb::DescribeResponse { room: Some(room), ..description.clone() }))
    }

    type ControlStream = Held;

    async fn control(
        &self,
        request: Request<pb::ControlRequest>,
    ) -> Result<Response<Held>, Status> {
        Ok(Response::new(self.controllers.take(&request.get_ref().name)?))
    }

    async fn apply(
        &self,
        request: Request<pb::ApplyRequest>,
    ) -> Result<Response<pb::ApplyResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let request = request.into_inner();
        let at = request.at_ns.map(Instant);
        let LinkChange { link, change, terms } = self.change(dataplane, request)?;
        let made = match at {
            None => link.apply(change, terms).await,
            Some(at) => link.apply_at(at, change, terms).await,
        };
        let made = made.map_err(Status::from)?;
        Ok(Response::new(applied(&link, made)))
    }

    async fn apply_links(
        &self,
        request: Request<pb::ApplyLinksRequest>,
    ) -> Result<Response<pb::ApplyLinksResponse>, Status> {
        self.controllers.check(&request)?;
        let mut changes = Vec::new();
        for pb::LinkApply { link, request } in request.into_inner().links {
            let Entry { dataplane, .. } = self.links.get(&link)?;
            let request = request.unwrap_or_default();
            if request.at_ns.is_some() {
                let message = "at_ns: changes of several links are made as soon as possible";
                return Err(owner::of_link(&link, &Status::invalid_argument(message)));
            }
            let change = self.change(dataplane, request);
            changes.push(change.map_err(|status| owner::of_link(&link, &status))?);
        }
        let made = apply_links(changes.clone(), None).await?;
        let links = changes.iter().zip(made).map(|(change, made)| applied(&change.link, made));
        Ok(Response::new(pb::ApplyLinksResponse { links: links.collect() }))
    }

    async fn withdraw(
        &self,
        request: Request<pb::WithdrawRequest>,
    ) -> Result<Response<pb::WithdrawResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, .. } = self.links.of(&request)?;
        dataplane.withdraw().await.map_err(Status::from)?;
        Ok(Response::new(pb::WithdrawResponse { on_hold: dataplane.on_hold() }))
    }

    async fn hold_clients(
        &self,
        request: Request<pb::HoldClientsRequest>,
    ) -> Result<Response<pb::HoldClientsResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let clients = request.into_inner().clients;
        dataplane.hold_clients(&clients).await.map_err(Status::from)?;
        Ok(Response::new(pb::HoldClientsResponse {}))
    }

    async fn look_at_clients(
        &self,
        request: Request<pb::LookAtClientsRequest>,
    ) -> Result<Response<pb::LookAtClientsResponse>, Status> {
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let clients = request.into_inner().clients;
        let clients = dataplane.look_at_clients(&clients).await.map_err(Status::from)?;
        Ok(Response::new(pb::LookAtClientsResponse { clients }))
    }

    async fn set_offload(
        &self,
        request: Request<pb::SetOffloadRequest>,
    ) -> Result<Response<pb::SetOffloadResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let pb::SetOffloadRequest { offload, expected_generation, expected_instance } =
            request.into_inner();
        self.check_instance(expected_instance)?;
        dataplane.set_offload(offload, expected_generation).await.map_err(Status::from)?;
        tracing::info!(?offload, "offload set");
        Ok(Response::new(pb::SetOffloadResponse {}))
    }

    async fn get_plan(
        &self,
        request: Request<pb::GetPlanRequest>,
    ) -> Result<Response<pb::GetPlanResponse>, Status> {
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let Current { plan, applied, remarks } = dataplane.current().await.map_err(Status::from)?;
        let (plan, applied) = (Some(plan), Some(applied));
        let instance = dataplane.fixed().description.instance;
        let (time_ns, utc) = dataplane.time();
        let (time_ns, utc) = (Some(time_ns), Some(utc));
        Ok(Response::new(pb::GetPlanResponse {
            plan,
            applied,
            remarks,
            instance,
            time_ns,
            utc,
            ports: dataplane.ports(),
            unplaced: dataplane.unplaced(),
            owners: None,
        }))
    }

    async fn run_scenario(
        &self,
        request: Request<pb::RunScenarioRequest>,
    ) -> Result<Response<pb::RunScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, scenarios } = self.links.of(&request)?;
        let request = request.into_inner();
        self.check_instance(request.expected_instance)?;
        let named = self.links.for_scenario(&dataplane, &request.links).await?;
        let run = scenarios.run_on(request, named);
        dataplane.patiently(run).await.map_err(Status::from)?.map(Response::new)
    }

    async fn extend_scenario(
        &self,
        request: Request<pb::ExtendScenarioRequest>,
    ) -> Result<Response<pb::ExtendScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { scenarios, .. } = self.links.of(&request)?;
        scenarios.extend(request.into_inner()).await.map(Response::new)
    }

    async fn pause_scenario(
        &self,
        request: Request<pb::PauseScenarioRequest>,
    ) -> Result<Response<pb::PauseScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, scenarios } = self.links.of(&request)?;
        let state = Self::commanded(&dataplane, scenarios.pause(request.into_inner().who)).await?;
        Ok(Response::new(pb::PauseScenarioResponse { state }))
    }

    async fn resume_scenario(
        &self,
        request: Request<pb::ResumeScenarioRequest>,
    ) -> Result<Response<pb::ResumeScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, scenarios } = self.links.of(&request)?;
        let state = Self::commanded(&dataplane, scenarios.resume(request.into_inner().who)).await?;
        Ok(Response::new(pb::ResumeScenarioResponse { state }))
    }

    async fn stop_scenario(
        &self,
        request: Request<pb::StopScenarioRequest>,
    ) -> Result<Response<pb::StopScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, scenarios } = self.links.of(&request)?;
        let pb::StopScenarioRequest { reason, restore } = request.into_inner();
        let state = Self::commanded(&dataplane, scenarios.stop(reason, restore)).await?;
        Ok(Response::new(pb::StopScenarioResponse { state }))
    }

    async fn notify_scenario(
        &self,
        request: Request<pb::NotifyScenarioRequest>,
    ) -> Result<Response<pb::NotifyScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { scenarios, .. } = self.links.of(&request)?;
        let pb::NotifyScenarioRequest { run, index, time_ns } = request.into_inner();
        scenarios.notify(run, index, time_ns).await;
        Ok(Response::new(pb::NotifyScenarioResponse {}))
    }

    async fn get_scenario(
        &self,
        request: Request<pb::GetScenarioRequest>,
    ) -> Result<Response<pb::GetScenarioResponse>, Status> {
        let Entry { scenarios, .. } = self.links.of(&request)?;
        Ok(Response::new(scenarios.get(&request.get_ref().key).await))
    }

    type WatchStream = ReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let Entry { dataplane, scenarios } = self.links.of(&request)?;
        let journal = dataplane.journal().clone();
        Ok(Response::new(owner::watch(journal, scenarios, request.get_ref().after)))
    }

    async fn get_stats(
        &self,
        request: Request<pb::GetStatsRequest>,
    ) -> Result<Response<model::Stats>, Status> {
        if request.get_ref().mark {
            self.controllers.check(&request)?;
        }
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let stats = dataplane.stats(request.into_inner().mark).await.map_err(Status::from)?;
        Ok(Response::new(stats))
    }

    type CaptureStream = ReceiverStream<Result<model::CaptureChunk, Status>>;

    async fn capture(
        &self,
        request: Request<model::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let chunks = dataplane.capture(request.get_ref()).await.map_err(Status::from)?;
        let model::CaptureRequest { clients, direction, .. } = request.into_inner();
        tracing::info!(?clients, direction, "captures");
        Ok(Response::new(ReceiverStream::new(chunks)))
    }

    async fn list_links(
        &self,
        _: Request<pb::ListLinksRequest>,
    ) -> Result<Response<pb::ListLinksResponse>, Status> {
        let (links, rules) = self.links.list().await?;
        let instance = self.links.main().dataplane.fixed().description.instance;
        Ok(Response::new(pb::ListLinksResponse { links, rules: Some(rules), instance }))
    }

    async fn add_link(
        &self,
        request: Request<pb::AddLinkRequest>,
    ) -> Result<Response<pb::AddLinkResponse>, Status> {
        self.controllers.check(&request)?;
        let pb::AddLinkRequest { link, expected_instance } = request.into_inner();
        self.check_instance(expected_instance)?;
        let link = link.ok_or_else(|| Status::invalid_argument("link: missing"))?;
        let link = self.links.add(&link).await?;
        tracing::info!(name = link.name, memory = link.memory_bytes, "link added");
        Ok(Response::new(pb::AddLinkResponse { link: Some(link) }))
    }

    async fn remove_link(
        &self,
        request: Request<pb::RemoveLinkRequest>,
    ) -> Result<Response<pb::RemoveLinkResponse>, Status> {
        self.controllers.check(&request)?;
        let pb::RemoveLinkRequest { name, expected_instance } = request.into_inner();
        self.check_instance(expected_instance)?;
        self.links.remove(&name).await?;
        tracing::info!(name, "link removed");
        Ok(Response::new(pb::RemoveLinkResponse {}))
    }

    async fn set_link_rules(
        &self,
        request: Request<pb::SetLinkRulesRequest>,
    ) -> Result<Response<pb::SetLinkRulesResponse>, Status> {
        self.controllers.check(&request)?;
        let Entry { dataplane, .. } = self.links.of(&request)?;
        let pb::SetLinkRulesRequest { rules, expected_generation, expected_instance } =
            request.into_inner();
        self.check_instance(expected_instance)?;
        let rules = self.links.set_rules(&dataplane, rules, expected_generation).await?;
        tracing::info!(rules = rules.rules.len(), generation = rules.generation, "rules set");
        Ok(Response::new(pb::SetLinkRulesResponse { rules: Some(rules) }))
    }
}
