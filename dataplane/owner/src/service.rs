// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` of all that executes plans.

use crate::{
    Changes, Controllers, Current, Held, Link, LinkChange, Made, Request as Keyed, Scenarios,
    Source, Terms, among, watch,
};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::{LINK_METADATA, MAIN_LINK};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Most links of one change.
pub const MOST_LINKS: usize = 64;
/// Most parts of the change of one link: each costs time while the plans are locked.
pub const MOST_PARTS: usize = 16;

/// What has links and makes their changes. Callers wait for its answers for a limited time, and what
/// they asked for is completed also when they have gone.
pub trait Executor: Clone + Send + Sync + 'static {
    /// For messages, such as "dataplane".
    const NAME: &'static str;

    type Link: Link;

    /// The chunks of a capture.
    type Chunks: Stream<Item = Result<pb::CaptureChunk, Status>> + Send + 'static;

    /// Drawn at its start: another number means a restart.
    fn instance(&self) -> u64;

    /// The link with a name, with or without "links/".
    ///
    /// # Errors
    /// NOT_FOUND.
    fn link(&self, name: &str) -> Result<Owned<Self::Link>, Status>;

    fn describe(&self, link: &Self::Link) -> Result<dp::DescribeResponse, Status>;

    /// Clients on hold.
    fn on_hold(&self, _: &Self::Link) -> Vec<dp::HeldClient> {
        Vec::new()
    }

    fn hold_clients(
        &self,
        link: &Self::Link,
        clients: Vec<dp::HoldClient>,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    fn look_at_clients(
        &self,
        link: &Self::Link,
        clients: Vec<String>,
    ) -> impl Future<Output = Result<Vec<dp::ClientLook>, Status>> + Send;

    fn set_offload(
        &self,
        link: &Self::Link,
        request: dp::SetOffloadRequest,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// The current plan.
    fn current(&self, link: &Self::Link) -> impl Future<Output = Result<Current, Status>> + Send;

    /// State of the ports, and frames of clients without a slot.
    fn ports(&self, link: &Self::Link) -> (Vec<pb::PortState>, u64);

    /// Who owns which client, of a group.
    fn owners(&self) -> Option<dp::Owners> {
        None
    }

    /// The statistics; with `mark`, the next span begins after them.
    fn stats(
        &self,
        link: &Self::Link,
        mark: bool,
    ) -> impl Future<Output = Result<pb::Stats, Status>> + Send;

    fn capture(
        &self,
        link: &Self::Link,
        request: pb::CaptureRequest,
    ) -> impl Future<Output = Result<Self::Chunks, Status>> + Send;

    /// The other links that a scenario on `own` changes, by name.
    fn links_of_scenario(
        &self,
        own: &Self::Link,
        names: &[String],
    ) -> impl Future<Output = Result<BTreeMap<String, Self::Link>, Status>> + Send;

    /// Waits for the answer of a scenario as long as callers do.
    fn patiently<T: Send>(
        &self,
        _: &Self::Link,
        answer: impl Future<Output = Result<T, Status>> + Send,
    ) -> impl Future<Output = Result<T, Status>> + Send {
        answer
    }

    fn list_links(
        &self,
    ) -> impl Future<Output = Result<(Vec<pb::NamedLink>, pb::LinkRules), Status>> + Send;

    fn add_link(
        &self,
        link: pb::NamedLink,
    ) -> impl Future<Output = Result<pb::NamedLink, Status>> + Send;

    fn remove_link(&self, name: &str) -> impl Future<Output = Result<(), Status>> + Send;

    /// Replaces the rules of a link. Returns those of all links.
    fn set_link_rules(
        &self,
        link: &Self::Link,
        rules: Vec<pb::LinkRule>,
        expected: Option<u64>,
    ) -> impl Future<Output = Result<pb::LinkRules, Status>> + Send;
}

/// A link with its scenario and its events.
#[derive(Clone)]
pub struct Owned<L: Link> {
    pub link: L,
    pub scenarios: Scenarios<L>,
}

impl<L: Link> Owned<L> {
    /// No scenario has run.
    #[must_use]
    pub fn new(link: L) -> Self {
        let scenarios = Scenarios::new(link.clone());
        Self { link, scenarios }
    }
}

/// Serves `dataplane.v1` of an executor. Clones serve the same one.
#[derive(Clone)]
pub struct Service<E> {
    executor: E,
    controllers: Controllers,
}

impl<E: Executor> Service<E> {
    /// Without a controller yet.
    #[must_use]
    pub fn new(executor: E) -> Self {
        Self::controlled(executor, Controllers::default())
    }

    /// The same for controllers that the caller knows too.
    #[must_use]
    pub fn controlled(executor: E, controllers: Controllers) -> Self {
        Self { executor, controllers }
    }

    #[must_use]
    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// The link that a request is about.
    fn link<T>(&self, request: &Request<T>) -> Result<Owned<E::Link>, Status> {
        let name = match request.metadata().get(LINK_METADATA) {
            None => MAIN_LINK,
            Some(name) => name
                .to_str()
                .map_err(|_| Status::invalid_argument("the name of the link is not ASCII"))?,
        };
        self.executor.link(name)
    }

    /// The link that a request may change.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if another caller controls the dataplane, NOT_FOUND.
    pub fn change<T>(&self, request: &Request<T>) -> Result<Owned<E::Link>, Status> {
        self.controllers.check(request)?;
        self.link(request)
    }

    fn check_instance(&self, expected: u64) -> Result<(), Status> {
        let (instance, name) = (self.executor.instance(), E::NAME);
        if expected == 0 || expected == instance {
            return Ok(());
        }
        Err(Status::aborted(format!(
            "this {name} is instance {instance:#018x} and {expected:#018x} was expected: it was \
             restarted; look at the link again, then decide"
        )))
    }

    /// One of `n` changes that a request asks for.
    fn asked(
        &self,
        link: E::Link,
        asked: dp::LinkChange,
        n: usize,
    ) -> Result<LinkChange<E::Link>, Status> {
        self.check_instance(asked.expected_instance)?;
        if asked.at_ns.is_some() && n > 1 {
            let message = "at_ns: changes of several links are made as soon as possible";
            return Err(Status::invalid_argument(message));
        }
        let change = asked.change.ok_or_else(|| Status::invalid_argument("change: missing"))?;
        let parts = change.parts.len();
        if parts > MOST_PARTS {
            let message = format!("change.parts: {parts} are more than {MOST_PARTS}");
            return Err(Status::invalid_argument(message));
        }
        let terms = Terms {
            source: Source::Controller(asked.cause.unwrap_or_default()),
            at_ns: asked.at_ns,
            expected: asked.expected_generation,
            lossy: asked.lossy,
            request: Keyed { key: asked.key, fingerprint: asked.fingerprint },
            ..Terms::default()
        };
        terms.request.check()?;
        Ok(LinkChange { link, change, terms })
    }
}

/// Logs a change of a link.
fn log(link: &str, made: &Made) {
    let Made { applied, remarks, repeated, .. } = made;
    let pb::Applied { generation, effective_ns: at_ns, lossy, .. } = applied;
    tracing::info!(link, generation, at_ns, repeated, "applied");
    for remark in remarks {
        tracing::warn!(link, lossy, "{remark}");
    }
}

#[tonic::async_trait]
impl<E: Executor> dp::dataplane_server::Dataplane for Service<E> {
    async fn describe(
        &self,
        request: Request<dp::DescribeRequest>,
    ) -> Result<Response<dp::DescribeResponse>, Status> {
        let Owned { link, .. } = self.link(&request)?;
        self.executor.describe(&link).map(Response::new)
    }

    type ControlStream = Held;

    async fn control(
        &self,
        request: Request<dp::ControlRequest>,
    ) -> Result<Response<Held>, Status> {
        Ok(Response::new(self.controllers.take(&request.get_ref().name)?))
    }

    async fn apply(
        &self,
        request: Request<dp::ApplyRequest>,
    ) -> Result<Response<dp::ApplyResponse>, Status> {
        self.controllers.check(&request)?;
        let asked = &request.get_ref().changes;
        let n = asked.len();
        if !(1..=MOST_LINKS).contains(&n) {
            return Err(Status::invalid_argument(format!(
                "{n} changes are not 1 to {MOST_LINKS}: change other links in another request"
            )));
        }
        let mut names = BTreeSet::new();
        let mut changes = Vec::with_capacity(n);
        for change in asked {
            let Owned { link, .. } = match &*change.link {
                "" => self.link(&request)?,
                name => self.executor.link(name)?,
            };
            let name = link.name().to_owned();
            let change = self.asked(link, change.clone(), n);
            let change = change.map_err(|status| among(n, &name, status))?;
            if !names.insert(name) {
                return Err(Status::invalid_argument(format!(
                    "link `{}` is named twice: give one change of each link",
                    change.link.name()
                )));
            }
            changes.push(change);
        }
        let order: Vec<_> = changes.iter().map(|it| it.link.clone()).collect();
        let made = E::Link::apply_links(changes).await?;
        order.iter().zip(&made).for_each(|(link, made)| log(link.name(), made));
        let changes = made.into_iter().map(Into::into).collect();
        Ok(Response::new(dp::ApplyResponse { changes }))
    }

    async fn withdraw(
        &self,
        request: Request<dp::WithdrawRequest>,
    ) -> Result<Response<dp::WithdrawResponse>, Status> {
        let Owned { link, .. } = self.change(&request)?;
        link.withdraw().await?;
        let on_hold = self.executor.on_hold(&link);
        Ok(Response::new(dp::WithdrawResponse { on_hold }))
    }

    async fn hold_clients(
        &self,
        request: Request<dp::HoldClientsRequest>,
    ) -> Result<Response<dp::HoldClientsResponse>, Status> {
        let Owned { link, .. } = self.change(&request)?;
        self.executor.hold_clients(&link, request.into_inner().clients).await?;
        Ok(Response::new(dp::HoldClientsResponse {}))
    }

    async fn look_at_clients(
        &self,
        request: Request<dp::LookAtClientsRequest>,
    ) -> Result<Response<dp::LookAtClientsResponse>, Status> {
        let Owned { link, .. } = self.link(&request)?;
        let clients = self.executor.look_at_clients(&link, request.into_inner().clients).await?;
        Ok(Response::new(dp::LookAtClientsResponse { clients }))
    }

    async fn set_offload(
        &self,
        request: Request<dp::SetOffloadRequest>,
    ) -> Result<Response<dp::SetOffloadResponse>, Status> {
        let Owned { link, .. } = self.change(&request)?;
        let request = request.into_inner();
        self.check_instance(request.expected_instance)?;
        let offload = request.offload;
        self.executor.set_offload(&link, request).await?;
        tracing::info!(?offload, "offload set");
        Ok(Response::new(dp::SetOffloadResponse {}))
    }

    async fn get_plan(
        &self,
        request: Request<dp::GetPlanRequest>,
    ) -> Result<Response<dp::GetPlanResponse>, Status> {
        let Owned { link, .. } = self.link(&request)?;
        let Current { plan, applied, remarks } = self.executor.current(&link).await?;
        let (ports, unplaced) = self.executor.ports(&link);
        let time_ns = link.now_ns();
        Ok(Response::new(dp::GetPlanResponse {
            plan: Some(plan),
            applied: Some(applied),
            remarks,
            instance: self.executor.instance(),
            time_ns: Some(time_ns),
            utc: Some(link.utc(time_ns).into()),
            ports,
            unplaced,
            owners: self.executor.owners(),
        }))
    }

    async fn run_scenario(
        &self,
        request: Request<dp::RunScenarioRequest>,
    ) -> Result<Response<dp::RunScenarioResponse>, Status> {
        let Owned { link, scenarios, .. } = self.change(&request)?;
        let request = request.into_inner();
        self.check_instance(request.expected_instance)?;
        let named = self.executor.links_of_scenario(&link, &request.links).await?;
        let run = scenarios.run(request, named);
        self.executor.patiently(&link, run).await.map(Response::new)
    }

    async fn extend_scenario(
        &self,
        request: Request<dp::ExtendScenarioRequest>,
    ) -> Result<Response<dp::ExtendScenarioResponse>, Status> {
        let Owned { scenarios, .. } = self.change(&request)?;
        scenarios.extend(request.into_inner()).await.map(Response::new)
    }

    async fn control_scenario(
        &self,
        request: Request<dp::ControlScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let Owned { link, scenarios, .. } = self.change(&request)?;
        let request = request.into_inner();
        let controlled = async move {
            match request.action() {
                pb::ScenarioAction::Pause => scenarios.pause(request.who).await,
                pb::ScenarioAction::Resume => scenarios.resume(request.who).await,
                pb::ScenarioAction::Stop => scenarios.stop(request.reason, request.restore).await,
                pb::ScenarioAction::Unspecified => Err(Status::invalid_argument("no action")),
            }
        };
        self.executor.patiently(&link, controlled).await.map(Response::new)
    }

    async fn notify_scenario(
        &self,
        request: Request<dp::NotifyScenarioRequest>,
    ) -> Result<Response<dp::NotifyScenarioResponse>, Status> {
        let Owned { scenarios, .. } = self.change(&request)?;
        let dp::NotifyScenarioRequest { run, index, time_ns } = request.into_inner();
        scenarios.notify(run, index, time_ns).await;
        Ok(Response::new(dp::NotifyScenarioResponse {}))
    }

    async fn get_scenario(
        &self,
        request: Request<dp::GetScenarioRequest>,
    ) -> Result<Response<dp::GetScenarioResponse>, Status> {
        let Owned { scenarios, .. } = self.link(&request)?;
        Ok(Response::new(scenarios.get(&request.get_ref().key).await))
    }

    type WatchStream = ReceiverStream<Result<dp::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<dp::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let Owned { link, scenarios } = self.link(&request)?;
        Ok(Response::new(watch(
            link.history().journal().clone(),
            scenarios,
            request.get_ref().after,
        )))
    }

    async fn get_stats(
        &self,
        request: Request<dp::GetStatsRequest>,
    ) -> Result<Response<pb::Stats>, Status> {
        let mark = request.get_ref().mark;
        let Owned { link, .. } = if mark { self.change(&request) } else { self.link(&request) }?;
        self.executor.stats(&link, mark).await.map(Response::new)
    }

    type CaptureStream = E::Chunks;

    async fn capture(
        &self,
        request: Request<pb::CaptureRequest>,
    ) -> Result<Response<E::Chunks>, Status> {
        let Owned { link, .. } = self.link(&request)?;
        let request = request.into_inner();
        let (clients, direction) = (request.clients.clone(), request.direction);
        let chunks = self.executor.capture(&link, request).await?;
        tracing::info!(?clients, direction, "captures");
        Ok(Response::new(chunks))
    }

    async fn list_links(
        &self,
        _: Request<dp::ListLinksRequest>,
    ) -> Result<Response<dp::ListLinksResponse>, Status> {
        let (links, rules) = self.executor.list_links().await?;
        let instance = self.executor.instance();
        Ok(Response::new(dp::ListLinksResponse { links, rules: Some(rules), instance }))
    }

    async fn add_link(
        &self,
        request: Request<dp::AddLinkRequest>,
    ) -> Result<Response<dp::AddLinkResponse>, Status> {
        self.controllers.check(&request)?;
        let dp::AddLinkRequest { link, expected_instance } = request.into_inner();
        self.check_instance(expected_instance)?;
        let link = link.ok_or_else(|| Status::invalid_argument("link: missing"))?;
        let link = self.executor.add_link(link).await?;
        tracing::info!(name = link.name, memory = link.memory_bytes, "link added");
        Ok(Response::new(dp::AddLinkResponse { link: Some(link) }))
    }

    async fn remove_link(
        &self,
        request: Request<dp::RemoveLinkRequest>,
    ) -> Result<Response<dp::RemoveLinkResponse>, Status> {
        self.controllers.check(&request)?;
        let dp::RemoveLinkRequest { name, expected_instance } = request.into_inner();
        self.check_instance(expected_instance)?;
        self.executor.remove_link(&name).await?;
        tracing::info!(name, "link removed");
        Ok(Response::new(dp::RemoveLinkResponse {}))
    }

    async fn set_link_rules(
        &self,
        request: Request<dp::SetLinkRulesRequest>,
    ) -> Result<Response<dp::SetLinkRulesResponse>, Status> {
        let Owned { link, .. } = self.change(&request)?;
        let dp::SetLinkRulesRequest { rules, expected_generation, expected_instance } =
            request.into_inner();
        self.check_instance(expected_instance)?;
        let rules = self.executor.set_link_rules(&link, rules, expected_generation).await?;
        tracing::info!(rules = rules.rules.len(), generation = rules.generation, "rules set");
        Ok(Response::new(dp::SetLinkRulesResponse { rules: Some(rules) }))
    }
}
