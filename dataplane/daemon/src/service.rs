// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` over a [`Dataplane`].

use owner::{Request as Keyed, Scenarios};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::controller::{Controllers, Held};
use crate::current::Current;
use crate::dataplane::{Dataplane, Fixed, Made, Source, Terms};

#[derive(Clone)]
pub struct Service {
    dataplane: Dataplane,
    controllers: Controllers,
    scenarios: Scenarios<Dataplane>,
}

impl Service {
    /// The service of this dataplane, without a controller yet.
    #[must_use]
    pub fn new(dataplane: Dataplane) -> Self {
        let scenarios = Scenarios::new(dataplane.clone(), dataplane.journal().clone());
        Self { dataplane, controllers: Controllers::default(), scenarios }
    }

    fn check_instance(&self, expected: u64) -> Result<(), Status> {
        let instance = self.dataplane.fixed().description.instance;
        if expected == 0 || expected == instance {
            return Ok(());
        }
        Err(Status::aborted(format!(
            "this dataplane is instance {instance:#018x} and {expected:#018x} was expected: it was \
             restarted; look at the link again, then decide"
        )))
    }

    /// A command to the scenario. It may have to wait for a worker.
    async fn commanded(
        &self,
        command: impl Future<Output = Result<model::ScenarioState, Status>>,
    ) -> Result<Option<model::ScenarioState>, Status> {
        self.dataplane.patiently(command).await.map_err(Status::from)?.map(Some)
    }
}

#[tonic::async_trait]
impl pb::dataplane_server::Dataplane for Service {
    async fn describe(
        &self,
        _: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        self.dataplane.health().map_err(Status::from)?;
        let Fixed { description, room } = self.dataplane.fixed();
        let room = model::Room {
            clients: room.clients,
            port_bps: room.port_bps,
            frame_bytes: room.frame,
            memory_bytes: room.capacity,
            workers: room.workers,
            shim_bytes: room.tag,
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
        let request = request.into_inner();
        self.check_instance(request.expected_instance)?;
        let change = request.change.ok_or_else(|| Status::invalid_argument("change: missing"))?;
        let terms = Terms {
            source: Source::Controller(request.cause.unwrap_or_default()),
            expected: request.expected_generation,
            lossy: request.lossy,
            request: Keyed { key: request.key, fingerprint: request.fingerprint },
        };
        let Made { applied, remarks, repeated, plan, sequence } =
            self.dataplane.apply(change, terms).await.map_err(Status::from)?;
        tracing::info!(
            generation = applied.generation,
            at_ns = applied.effective_ns,
            repeated,
            "applied"
        );
        for remark in &remarks {
            tracing::warn!(lossy = applied.lossy, "{remark}");
        }
        let (applied, plan) = (Some(applied), plan.as_deref().cloned());
        Ok(Response::new(pb::ApplyResponse { applied, remarks, repeated, plan, sequence }))
    }

    async fn set_offload(
        &self,
        request: Request<pb::SetOffloadRequest>,
    ) -> Result<Response<pb::SetOffloadResponse>, Status> {
        self.controllers.check(&request)?;
        let pb::SetOffloadRequest { offload, expected_generation, expected_instance } =
            request.into_inner();
        self.check_instance(expected_instance)?;
        self.dataplane.set_offload(offload, expected_generation).await.map_err(Status::from)?;
        tracing::info!(?offload, "offload set");
        Ok(Response::new(pb::SetOffloadResponse {}))
    }

    async fn get_plan(
        &self,
        _: Request<pb::GetPlanRequest>,
    ) -> Result<Response<pb::GetPlanResponse>, Status> {
        let Current { plan, applied, remarks } =
            self.dataplane.current().await.map_err(Status::from)?;
        let (plan, applied) = (Some(plan), Some(applied));
        let instance = self.dataplane.fixed().description.instance;
        let (time_ns, utc) = self.dataplane.time();
        let (time_ns, utc) = (Some(time_ns), Some(utc));
        Ok(Response::new(pb::GetPlanResponse {
            plan,
            applied,
            remarks,
            instance,
            time_ns,
            utc,
            ports: self.dataplane.ports(),
            unplaced: self.dataplane.unplaced(),
        }))
    }

    async fn run_scenario(
        &self,
        request: Request<pb::RunScenarioRequest>,
    ) -> Result<Response<pb::RunScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let request = request.into_inner();
        self.check_instance(request.expected_instance)?;
        let run = self.scenarios.run(request);
        self.dataplane.patiently(run).await.map_err(Status::from)?.map(Response::new)
    }

    async fn extend_scenario(
        &self,
        request: Request<pb::ExtendScenarioRequest>,
    ) -> Result<Response<pb::ExtendScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        self.scenarios.extend(request.into_inner()).await.map(Response::new)
    }

    async fn pause_scenario(
        &self,
        request: Request<pb::PauseScenarioRequest>,
    ) -> Result<Response<pb::PauseScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let state = self.commanded(self.scenarios.pause(request.into_inner().who)).await?;
        Ok(Response::new(pb::PauseScenarioResponse { state }))
    }

    async fn resume_scenario(
        &self,
        request: Request<pb::ResumeScenarioRequest>,
    ) -> Result<Response<pb::ResumeScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let state = self.commanded(self.scenarios.resume(request.into_inner().who)).await?;
        Ok(Response::new(pb::ResumeScenarioResponse { state }))
    }

    async fn stop_scenario(
        &self,
        request: Request<pb::StopScenarioRequest>,
    ) -> Result<Response<pb::StopScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let pb::StopScenarioRequest { reason, restore } = request.into_inner();
        let state = self.commanded(self.scenarios.stop(reason, restore)).await?;
        Ok(Response::new(pb::StopScenarioResponse { state }))
    }

    async fn notify_scenario(
        &self,
        request: Request<pb::NotifyScenarioRequest>,
    ) -> Result<Response<pb::NotifyScenarioResponse>, Status> {
        self.controllers.check(&request)?;
        let pb::NotifyScenarioRequest { run, index, time_ns } = request.into_inner();
        self.scenarios.notify(run, index, time_ns).await;
        Ok(Response::new(pb::NotifyScenarioResponse {}))
    }

    async fn get_scenario(
        &self,
        request: Request<pb::GetScenarioRequest>,
    ) -> Result<Response<pb::GetScenarioResponse>, Status> {
        Ok(Response::new(self.scenarios.get(&request.get_ref().key).await))
    }

    type WatchStream = ReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (journal, scenarios) = (self.dataplane.journal().clone(), self.scenarios.clone());
        Ok(Response::new(owner::watch(journal, scenarios, request.get_ref().after)))
    }

    async fn get_stats(
        &self,
        request: Request<pb::GetStatsRequest>,
    ) -> Result<Response<model::Stats>, Status> {
        if request.get_ref().mark {
            self.controllers.check(&request)?;
        }
        let stats = self.dataplane.stats(request.into_inner().mark).await.map_err(Status::from)?;
        Ok(Response::new(stats))
    }

    type CaptureStream = ReceiverStream<Result<model::CaptureChunk, Status>>;

    async fn capture(
        &self,
        request: Request<model::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let chunks = self.dataplane.capture(request.get_ref()).await.map_err(Status::from)?;
        let model::CaptureRequest { clients, direction, .. } = request.into_inner();
        tracing::info!(?clients, direction, "captures");
        Ok(Response::new(ReceiverStream::new(chunks)))
    }
}
