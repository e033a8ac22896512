// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` over a [`Group`]: the services `Dataplane` and `Group`.

use owner::{Held, Request as Keyed, Scenarios};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use proto::dataplane::v1::group_server::GroupServer;
use proto::linkemu::v1 as pb;
use proto::{LINK_METADATA, MAIN_LINK, link_id, link_name};
use tokio::net::UnixListener;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

use crate::capture::Chunks;
use crate::group::Group;
use crate::group::changes::{Current, Made, Source, Terms};

/// Largest request: a profile and clients.
const REQUEST_BYTES: usize = 64 << 20;

/// The remedy for what a group does not have.
const ON_A_BOX: &str = "a group of boxes has the link `main` alone: use further links on a box, with \
                        its own linkd and without a group";

#[derive(Clone)]
pub struct Service {
    group: Group,
    scenarios: Scenarios<Group>,
}

/// Serves until the listener fails.
///
/// # Errors
/// Of the transport.
pub async fn serve(group: Group, listener: UnixListener) -> Result<(), tonic::transport::Error> {
    let service = Service::new(group);
    tonic::transport::Server::builder()
        .add_service(DataplaneServer::new(service.clone()).max_decoding_message_size(REQUEST_BYTES))
        .add_service(GroupServer::new(service))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
}

impl Service {
    /// Without a controller yet.
    #[must_use]
    pub fn new(group: Group) -> Self {
        let scenarios = Scenarios::new(group.clone(), group.0.journal.clone());
        Self { group, scenarios }
    }

    /// Checks that a request is about the only link.
    fn main<T>(request: &Request<T>) -> Result<(), Status> {
        let name = request.metadata().get(LINK_METADATA).and_then(|name| name.to_str().ok());
        named(name.unwrap_or(MAIN_LINK))
    }

    /// Checks that a request may change the only link.
    fn change<T>(&self, request: &Request<T>) -> Result<(), Status> {
        self.group.0.controllers.check(request)?;
        Self::main(request)
    }

    fn check_instance(&self, expected: u64) -> Result<(), Status> {
        let instance = self.group.0.instance;
        if expected == 0 || expected == instance {
            return Ok(());
        }
        Err(Status::aborted(format!(
            "this group is instance {instance:#018x} and {expected:#018x} was expected: linkd-group \
             was restarted; look at the link again, then decide"
        )))
    }

    async fn applied(&self, request: dp::ApplyRequest) -> Result<dp::ApplyResponse, Status> {
        self.check_instance(request.expected_instance)?;
        let change = request.change.ok_or_else(|| Status::invalid_argument("change: missing"))?;
        let terms = Terms {
            source: Source::Controller(request.cause.unwrap_or_default()),
            expected: request.expected_generation,
            lossy: request.lossy,
            request: Keyed { key: request.key, fingerprint: request.fingerprint },
        };
        let Made { applied, remarks, repeated, plan, sequence } =
            self.group.apply(change, request.at_ns, terms).await?;
        tracing::info!(generation = applied.generation, at_ns = applied.effective_ns, "applied");
        for remark in &remarks {
            tracing::warn!(lossy = applied.lossy, "{remark}");
        }
        let (applied, plan) = (Some(applied), plan.as_deref().cloned());
        Ok(dp::ApplyResponse { applied, remarks, repeated, plan, sequence })
    }
}

fn named(name: &str) -> Result<(), Status> {
    match link_id(name) {
        MAIN_LINK => Ok(()),
        name => {
            Err(Status::not_found(format!("there is no link `{}`: {ON_A_BOX}", owner::clip(name))))
        }
    }
}

fn one_link() -> Status {
    Status::failed_precondition(ON_A_BOX)
}

#[tonic::async_trait]
impl dp::dataplane_server::Dataplane for Service {
    type ControlStream = Held;

    async fn control(
        &self,
        request: Request<dp::ControlRequest>,
    ) -> Result<Response<Held>, Status> {
        Ok(Response::new(self.group.0.controllers.take(&request.get_ref().name)?))
    }

    async fn describe(
        &self,
        request: Request<dp::DescribeRequest>,
    ) -> Result<Response<dp::DescribeResponse>, Status> {
        Self::main(&request)?;
        self.group.describe().map(Response::new)
    }

    async fn apply(
        &self,
        request: Request<dp::ApplyRequest>,
    ) -> Result<Response<dp::ApplyResponse>, Status> {
        self.change(&request)?;
        self.applied(request.into_inner()).await.map(Response::new)
    }

    async fn apply_links(
        &self,
        request: Request<dp::ApplyLinksRequest>,
    ) -> Result<Response<dp::ApplyLinksResponse>, Status> {
        self.group.0.controllers.check(&request)?;
        let mut changes = request.into_inner().links;
        for change in &changes {
            named(&change.link)?;
        }
        let (Some(dp::LinkApply { link, request }), true) = (changes.pop(), changes.is_empty())
        else {
            return Err(Status::invalid_argument("links: give one change of the link `main`"));
        };
        let made = self.applied(request.unwrap_or_default()).await;
        let made = made.map_err(|status| owner::of_link(&link, &status))?;
        Ok(Response::new(dp::ApplyLinksResponse { links: vec![made] }))
    }

    async fn set_offload(
        &self,
        request: Request<dp::SetOffloadRequest>,
    ) -> Result<Response<dp::SetOffloadResponse>, Status> {
        self.change(&request)?;
        let dp::SetOffloadRequest { offload, expected_generation, expected_instance } =
            request.into_inner();
        self.check_instance(expected_instance)?;
        self.group.set_offload(offload, expected_generation).await?;
        tracing::info!(?offload, "offload set");
        Ok(Response::new(dp::SetOffloadResponse {}))
    }

    async fn get_plan(
        &self,
        request: Request<dp::GetPlanRequest>,
    ) -> Result<Response<dp::GetPlanResponse>, Status> {
        Self::main(&request)?;
        let group = &self.group;
        let Current { plan, applied, remarks } = group.current()?;
        // Its reader is told here that no box is up.
        group.describe()?;
        let time_ns = group.0.clock.now_ns();
        Ok(Response::new(dp::GetPlanResponse {
            plan: Some(plan),
            applied: Some(applied),
            remarks,
            instance: group.0.instance,
            time_ns: Some(time_ns),
            utc: Some(group.0.clock.utc(time_ns).into()),
            ports: group.ports(),
            unplaced: group.unplaced(),
            owners: Some(group.owners().to_proto()),
        }))
    }

    async fn get_stats(
        &self,
        request: Request<dp::GetStatsRequest>,
    ) -> Result<Response<pb::Stats>, Status> {
        Self::main(&request)?;
        let mark = request.get_ref().mark;
        if mark {
            self.group.0.controllers.check(&request)?;
        }
        let group = self.group.clone();
        // To its end, so that all boxes and the span have the mark.
        let stats = tokio::spawn(async move { group.stats(mark).await }).await;
        let stats = stats.unwrap_or_else(|_| Err(Status::internal("no result")))?;
        Ok(Response::new(stats))
    }

    type CaptureStream = Chunks;

    async fn capture(
        &self,
        request: Request<pb::CaptureRequest>,
    ) -> Result<Response<Chunks>, Status> {
        Self::main(&request)?;
        self.group.capture(request.into_inner()).await.map(Response::new)
    }

    async fn run_scenario(
        &self,
        request: Request<dp::RunScenarioRequest>,
    ) -> Result<Response<dp::RunScenarioResponse>, Status> {
        self.change(&request)?;
        let request = request.into_inner();
        self.check_instance(request.expected_instance)?;
        for name in &request.links {
            named(name)?;
        }
        self.scenarios.run(request).await.map(Response::new)
    }

    async fn extend_scenario(
        &self,
        request: Request<dp::ExtendScenarioRequest>,
    ) -> Result<Response<dp::ExtendScenarioResponse>, Status> {
        self.change(&request)?;
        self.scenarios.extend(request.into_inner()).await.map(Response::new)
    }

    async fn pause_scenario(
        &self,
        request: Request<dp::PauseScenarioRequest>,
    ) -> Result<Response<dp::PauseScenarioResponse>, Status> {
        self.change(&request)?;
        let state = Some(self.scenarios.pause(request.into_inner().who).await?);
        Ok(Response::new(dp::PauseScenarioResponse { state }))
    }

    async fn resume_scenario(
        &self,
        request: Request<dp::ResumeScenarioRequest>,
    ) -> Result<Response<dp::ResumeScenarioResponse>, Status> {
        self.change(&request)?;
        let state = Some(self.scenarios.resume(request.into_inner().who).await?);
        Ok(Response::new(dp::ResumeScenarioResponse { state }))
    }

    async fn stop_scenario(
        &self,
        request: Request<dp::StopScenarioRequest>,
    ) -> Result<Response<dp::StopScenarioResponse>, Status> {
        self.change(&request)?;
        let dp::StopScenarioRequest { reason, restore } = request.into_inner();
        let state = Some(self.scenarios.stop(reason, restore).await?);
        Ok(Response::new(dp::StopScenarioResponse { state }))
    }

    async fn notify_scenario(
        &self,
        request: Request<dp::NotifyScenarioRequest>,
    ) -> Result<Response<dp::NotifyScenarioResponse>, Status> {
        self.change(&request)?;
        let dp::NotifyScenarioRequest { run, index, time_ns } = request.into_inner();
        self.scenarios.notify(run, index, time_ns).await;
        Ok(Response::new(dp::NotifyScenarioResponse {}))
    }

    async fn get_scenario(
        &self,
        request: Request<dp::GetScenarioRequest>,
    ) -> Result<Response<dp::GetScenarioResponse>, Status> {
        Self::main(&request)?;
        Ok(Response::new(self.scenarios.get(&request.get_ref().key).await))
    }

    type WatchStream = ReceiverStream<Result<dp::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<dp::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Self::main(&request)?;
        let journal = self.group.0.journal.clone();
        let stream = owner::watch(journal, self.scenarios.clone(), request.get_ref().after);
        Ok(Response::new(stream))
    }

    async fn list_links(
        &self,
        _: Request<dp::ListLinksRequest>,
    ) -> Result<Response<dp::ListLinksResponse>, Status> {
        self.group.applied()?;
        let main = pb::NamedLink { name: link_name(MAIN_LINK), ..Default::default() };
        let (links, rules) = (vec![main], Some(pb::LinkRules::default()));
        let instance = self.group.0.instance;
        Ok(Response::new(dp::ListLinksResponse { links, rules, instance }))
    }

    async fn add_link(
        &self,
        _: Request<dp::AddLinkRequest>,
    ) -> Result<Response<dp::AddLinkResponse>, Status> {
        Err(one_link())
    }

    async fn remove_link(
        &self,
        _: Request<dp::RemoveLinkRequest>,
    ) -> Result<Response<dp::RemoveLinkResponse>, Status> {
        Err(one_link())
    }

    async fn set_link_rules(
        &self,
        _: Request<dp::SetLinkRulesRequest>,
    ) -> Result<Response<dp::SetLinkRulesResponse>, Status> {
        Err(one_link())
    }

    async fn withdraw(
        &self,
        request: Request<dp::WithdrawRequest>,
    ) -> Result<Response<dp::WithdrawResponse>, Status> {
        self.change(&request)?;
        self.group.withdraw().await;
        Ok(Response::new(dp::WithdrawResponse::default()))
    }

    async fn hold_clients(
        &self,
        _: Request<dp::HoldClientsRequest>,
    ) -> Result<Response<dp::HoldClientsResponse>, Status> {
        Err(Status::failed_precondition("a group holds clients while it moves them: BeginMove"))
    }

    async fn look_at_clients(
        &self,
        _: Request<dp::LookAtClientsRequest>,
    ) -> Result<Response<dp::LookAtClientsResponse>, Status> {
        Err(Status::failed_precondition("look at the box that owns the clients: ListBoxes"))
    }
}

#[tonic::async_trait]
impl dp::group_server::Group for Service {
    async fn list_boxes(
        &self,
        _: Request<dp::ListBoxesRequest>,
    ) -> Result<Response<dp::ListBoxesResponse>, Status> {
        let boxes = self.group.boxes().await;
        let owners = Some(self.group.owners().to_proto());
        Ok(Response::new(dp::ListBoxesResponse { boxes, owners }))
    }

    async fn begin_move(
        &self,
        request: Request<dp::BeginMoveRequest>,
    ) -> Result<Response<dp::BeginMoveResponse>, Status> {
        self.change(&request)?;
        self.group.begin_move(request.into_inner()).await.map(Response::new)
    }

    async fn finish_move(
        &self,
        request: Request<dp::FinishMoveRequest>,
    ) -> Result<Response<dp::FinishMoveResponse>, Status> {
        self.change(&request)?;
        self.group.finish_move(request.into_inner().r#move).await.map(Response::new)
    }
}
