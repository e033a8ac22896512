// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` over a [`Dataplane`].

use emu::units::{ByDirection, Instant};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::controller::{Controllers, Held};
use crate::dataplane::{Dataplane, DataplaneError, Fixed, InForce, Made, Terms};
use crate::refusal;
use crate::schedule::ScheduleError;

/// The service.
#[derive(Clone)]
pub struct Service {
    dataplane: Dataplane,
    controllers: Controllers,
}

impl Service {
    /// The service of this dataplane, without a controller yet.
    #[must_use]
    pub fn new(dataplane: Dataplane) -> Self {
        Self { dataplane, controllers: Controllers::default() }
    }
}

fn status(e: DataplaneError) -> Status {
    match e {
        DataplaneError::Invalid(violations) => {
            let mut details = ErrorDetails::new();
            for v in violations.iter() {
                details.add_bad_request_violation(&v.path, &v.message);
            }
            let message = violations.to_string();
            Status::with_error_details(tonic::Code::InvalidArgument, message, details)
        }
        DataplaneError::Refused(e) => refusal::status(&e),
        DataplaneError::Clients(_) | DataplaneError::NoSwitch => {
            Status::failed_precondition(e.to_string())
        }
        DataplaneError::Key(_) | DataplaneError::Capture(_) => {
            Status::invalid_argument(e.to_string())
        }
        DataplaneError::Capturing => Status::resource_exhausted(e.to_string()),
        DataplaneError::Generation { .. } | DataplaneError::TakenBack => {
            Status::aborted(e.to_string())
        }
        DataplaneError::Schedule(ScheduleError::Full) => Status::resource_exhausted(e.to_string()),
        DataplaneError::Schedule(ScheduleError::Key) => Status::invalid_argument(e.to_string()),
        DataplaneError::Schedule(_) => Status::out_of_range(e.to_string()),
        DataplaneError::Stalled(_) => Status::unavailable(e.to_string()),
        DataplaneError::Worker(_) | DataplaneError::Panicked => Status::internal(e.to_string()),
    }
}

#[tonic::async_trait]
impl pb::dataplane_server::Dataplane for Service {
    async fn describe(
        &self,
        _: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeResponse>, Status> {
        self.dataplane.health().map_err(status)?;
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
        let (expected, instance) =
            (request.expected_instance, self.dataplane.fixed().description.instance);
        if expected != 0 && expected != instance {
            return Err(Status::aborted(format!(
                "this dataplane is instance {instance:#018x} and {expected:#018x} was expected: it \
                 was started anew; look at the link again, then decide"
            )));
        }
        let plan = request.plan.ok_or_else(|| Status::invalid_argument("plan: missing"))?;
        let terms = Terms {
            restart: request.restart,
            expected: request.expected_generation,
            lossy: request.lossy,
            key: request.key,
            at: request.at_ns.map(Instant),
            arm: ByDirection([request.arm_forward, request.arm_return]),
        };
        let Made { applied, remarks, repeated } =
            self.dataplane.apply(plan, terms).await.map_err(status)?;
        tracing::info!(
            generation = applied.generation,
            at_ns = applied.effective_ns,
            repeated,
            "applied"
        );
        for remark in &remarks {
            tracing::warn!(lossy = applied.lossy, "{remark}");
        }
        Ok(Response::new(pb::ApplyResponse { applied: Some(applied), remarks, repeated }))
    }

    async fn get_plan(
        &self,
        request: Request<pb::GetPlanRequest>,
    ) -> Result<Response<pb::GetPlanResponse>, Status> {
        let made = self.dataplane.made(&request.get_ref().key).await.map_err(status)?;
        let InForce { plan, applied, remarks } = self.dataplane.in_force().await.map_err(status)?;
        let (plan, applied) = (Some(plan), Some(applied));
        let instance = self.dataplane.fixed().description.instance;
        let (time_ns, utc) = self.dataplane.time();
        let (time_ns, utc) = (Some(time_ns), Some(utc));
        Ok(Response::new(pb::GetPlanResponse {
            plan,
            applied,
            remarks,
            made,
            instance,
            time_ns,
            utc,
            ports: self.dataplane.ports(),
            unplaced: self.dataplane.unplaced(),
        }))
    }

    async fn take_back(
        &self,
        request: Request<pb::TakeBackRequest>,
    ) -> Result<Response<pb::TakeBackResponse>, Status> {
        self.controllers.check(&request)?;
        let changes = self.dataplane.take_back().await.map_err(status)? as u32;
        Ok(Response::new(pb::TakeBackResponse { changes }))
    }

    async fn get_stats(
        &self,
        request: Request<pb::GetStatsRequest>,
    ) -> Result<Response<model::Stats>, Status> {
        if request.get_ref().mark {
            self.controllers.check(&request)?;
        }
        let stats = self.dataplane.stats(request.into_inner().mark).await.map_err(status)?;
        Ok(Response::new(stats))
    }

    type CaptureStream = ReceiverStream<Result<model::CaptureChunk, Status>>;

    async fn capture(
        &self,
        request: Request<model::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let chunks = self.dataplane.capture(request.get_ref()).await.map_err(status)?;
        let model::CaptureRequest { clients, direction, .. } = request.into_inner();
        tracing::info!(?clients, direction, "captures");
        Ok(Response::new(ReceiverStream::new(chunks)))
    }
}
