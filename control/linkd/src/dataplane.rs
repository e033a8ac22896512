// SPDX-License-Identifier: Apache-2.0
//! The gRPC client of the dataplane, over a unix socket.
//!
//! The channel connects on use, also after a restart of the dataplane. Every call has a deadline.
//! Transport errors become UNAVAILABLE with the path and the remedy; refusals of the dataplane pass
//! unchanged.

use crate::events::Events;
use crate::switch::{Switches, Taken};
use hyper_util::rt::TokioIo;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use proto::dataplane::v1::group_client::GroupClient;
use proto::linkemu::v1 as pb;
use proto::{LINK_METADATA, TOKEN_METADATA};
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, ConnectError, Request, Response, Status, Streaming};

/// For calls that only read.
const READ_DEADLINE: Duration = Duration::from_secs(5);
/// For changes; the dataplane waits for its workers.
const APPLY_DEADLINE: Duration = Duration::from_secs(10);
/// For the end of a move of clients.
const MOVE_DEADLINE: Duration = Duration::from_secs(60);
/// Before linkd asks again to be the controller.
const CONTROL_AGAIN: Duration = Duration::from_millis(50);
/// Time limit for becoming the controller.
const CONTROL_WITHIN: Duration = Duration::from_secs(1);
/// Largest answer: the statistics of many thousand clients.
const ANSWER_BYTES: usize = 64 << 20;

/// Answers of the dataplane with another meaning for callers.
const REUSED: &str = "another request had this name: give each request a name of its own, and send \
                      only the same one again under it";

/// Names the link that requests are about; none: `main`.
#[derive(Clone, Debug)]
pub(crate) struct Linked(Option<MetadataValue<Ascii>>);

impl Interceptor for Linked {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(link) = &self.0 {
            request.metadata_mut().insert(LINK_METADATA, link.clone());
        }
        Ok(request)
    }
}

type Client = DataplaneClient<InterceptedService<Channel, Linked>>;

/// A client of the dataplane at one path, for one of its links.
#[derive(Clone)]
pub(crate) struct Dataplane {
    path: PathBuf,
    channel: Channel,
    client: Client,
    switches: Switches,
    /// The controller's token; zero while linkd is not the controller.
    token: Arc<watch::Sender<u64>>,
    /// Another process controls it: this linkd shows it and changes nothing.
    is_member: bool,
}

impl Dataplane {
    /// Connects when used; call within a runtime.
    pub fn new(path: PathBuf, switches: Switches) -> Self {
        let socket = path.clone();
        let connect = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        // The name is sent as authority and otherwise unused.
        let channel =
            Endpoint::from_static("http://dataplane").connect_with_connector_lazy(connect);
        let client = client(channel.clone(), Linked(None));
        let token = Arc::new(watch::Sender::new(0));
        Self { path, channel, client, switches, token, is_member: false }
    }

    /// The dataplane of a box of a group.
    pub fn of_member(self) -> Self {
        Self { is_member: true, ..self }
    }

    pub fn is_member(&self) -> bool {
        self.is_member
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The same dataplane, for another of its links, which no switch is before.
    pub fn of_link(&self, name: &str, events: Events) -> Self {
        let Self { path, channel, token, is_member, .. } = self.clone();
        // Names of links are ASCII.
        let client = client(channel.clone(), Linked(name.parse().ok()));
        Self { path, channel, client, switches: Switches::new(events), token, is_member }
    }

    /// All links and their rules.
    pub async fn list_links(&self) -> Result<dp::ListLinksResponse, Status> {
        self.read(|mut c| async move { c.list_links(dp::ListLinksRequest {}).await }).await
    }

    pub async fn add_link(&self, request: dp::AddLinkRequest) -> Result<pb::NamedLink, Status> {
        let call = |mut c: Client, request| async move { c.add_link(request).await };
        let answer = self.within(self.controlling(request, call)).await;
        let answer = answer.map_err(|status| match status.code() {
            // No request had its key: the name is taken.
            Code::AlreadyExists => Status::already_exists(status.message()),
            _ => self.translate(status),
        })?;
        Ok(answer.into_inner().link.unwrap_or_default())
    }

    pub async fn remove_link(&self, request: dp::RemoveLinkRequest) -> Result<(), Status> {
        let call = |mut c: Client, request| async move { c.remove_link(request).await };
        let answer = self.within(self.controlling(request, call)).await;
        answer.map(drop).map_err(|status| self.translate(status))
    }

    /// Replaces the rules of this link. Returns those of all links.
    pub async fn set_link_rules(
        &self,
        request: dp::SetLinkRulesRequest,
    ) -> Result<pb::LinkRules, Status> {
        let call = |mut c: Client, request| async move { c.set_link_rules(request).await };
        let answer = self.within(self.controlling(request, call)).await;
        let answer = answer.map_err(|status| self.translate(status))?;
        Ok(answer.into_inner().rules.unwrap_or_default())
    }

    /// Holds control of the dataplane under a name whenever it is reachable, while this future is
    /// polled.
    pub async fn control(&self, name: &str) {
        if self.is_member {
            std::future::pending().await
        }
        loop {
            let request = dp::ControlRequest { name: name.to_owned() };
            if let Ok(response) = self.client.clone().control(request).await {
                let mut tokens = response.into_inner();
                while let Ok(Some(told)) = tokens.message().await {
                    self.token.send_replace(told.token);
                }
                self.token.send_replace(0);
            }
            tokio::time::sleep(CONTROL_AGAIN).await;
        }
    }

    /// Waits, for a limited time, until linkd is the controller. If another linkd is, the next
    /// request is refused with its name.
    pub async fn controlled(&self) {
        if self.is_member {
            return;
        }
        let mut token = self.token.subscribe();
        // The sender lives as long as `self`.
        let waiting = token.wait_for(|token| *token != 0);
        let _ = tokio::time::timeout(CONTROL_WITHIN, waiting).await;
    }

    /// A request to change something, with the controller's token.
    fn tokened<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let token = *self.token.borrow();
        // Nobody has the token zero: the dataplane refuses, with its controller's name.
        if (token != 0 || self.is_member)
            && let Ok(token) = token.to_string().parse()
        {
            request.metadata_mut().insert(TOKEN_METADATA, token);
        }
        request
    }

    /// Sends a request that needs control. One that was refused because linkd was not the controller
    /// yet, or again, is sent once more: it had no effect.
    async fn controlling<M, T, F>(
        &self,
        message: M,
        call: impl Fn(Client, Request<M>) -> F,
    ) -> Result<Response<T>, Status>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let sent = *self.token.borrow();
        let answer = call(self.client.clone(), self.tokened(message.clone())).await;
        let refused = |status: &Status| status.code() == Code::FailedPrecondition;
        if !answer.as_ref().is_err_and(refused) {
            return answer;
        }
        if self.is_member {
            return answer.map_err(|status| {
                Status::failed_precondition(format!(
                    "this linkd shows a box of a group (--member), which the group's linkd changes: {}",
                    status.message()
                ))
            });
        }
        if sent == 0 {
            self.controlled().await;
        }
        let now = *self.token.borrow();
        if now == sent {
            return answer;
        }
        call(self.client.clone(), self.tokened(message)).await
    }

    /// The answer to a request that changes something, within its deadline.
    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::time::timeout(APPLY_DEADLINE, answer).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!(
                "the dataplane at {} did not answer within {APPLY_DEADLINE:?}",
                self.path.display()
            )))
        })
    }

    /// The switch before it, if there is one.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    pub async fn plan(&self) -> Result<dp::GetPlanResponse, Status> {
        let get = |mut c: Client| async move { c.get_plan(dp::GetPlanRequest {}).await };
        self.read(get).await
    }

    /// A snapshot, of the dataplane and the switch before it.
    pub async fn stats(&self, mark: bool) -> Result<pb::Stats, Status> {
        Ok(self.taken_stats(mark).await?.0)
    }

    /// A snapshot of a run. With a switch it takes longer: frames lost between switch and box are known
    /// when none is in flight.
    pub async fn run_stats(&self, mark: bool) -> Result<pb::Stats, Status> {
        let (mut stats, taken) = self.taken_stats(mark).await?;
        match taken {
            Some(taken) => taken.add_witness(&mut stats, mark).await,
            None if self.switches.is_declared() => {
                // Nobody has counted outside of the box.
                if let Some(span) = &mut stats.span {
                    span.switch = Some(pb::SwitchSpan::default());
                }
            }
            None => {}
        }
        Ok(stats)
    }

    /// A snapshot, and the counters of the switch from just before it, if they are of this dataplane.
    async fn taken_stats(&self, mark: bool) -> Result<(pb::Stats, Option<Taken>), Status> {
        // First, so that it never shows more lost than the dataplane shows sent.
        let taken = self.switches.read(mark).await;
        let mut stats = self.own_stats(mark).await?;
        // Both of one dataplane: it is the same one after it as the switch counted for before.
        let instance = taken.as_ref().and_then(Taken::instance);
        let is_same = instance.is_some()
            && self.describe().await.ok().map(|described| described.instance) == instance;
        let taken = taken.filter(|_| is_same);
        if let Some(taken) = &taken {
            taken.merge(&mut stats, mark);
        }
        stats.conservation = Some(stats.sums());
        Ok((stats, taken))
    }

    /// A snapshot of the dataplane alone, without the counters of the switch.
    pub async fn own_stats(&self, mark: bool) -> Result<pb::Stats, Status> {
        let request = dp::GetStatsRequest { mark };
        let call = |mut c: Client, request| async move { c.get_stats(request).await };
        self.read(|_| self.controlling(request, call)).await
    }

    /// Asks a dataplane that has not been asked yet what switch is before it.
    pub async fn meet(&self, instance: u64) -> Result<(), Status> {
        // The switch is that of the group.
        if !self.is_member && self.switches.must_ask(instance) {
            self.switches.described(&self.describe().await?);
        }
        Ok(())
    }

    /// Tells the switch, if it is ready, the clients and their owners.
    pub async fn meet_clients(&self) -> Result<(), Status> {
        if !self.switches.is_ready() {
            return Ok(());
        }
        let before = self.describe().await?.instance;
        let stats = self.own_stats(false).await?;
        let in_force = self.plan().await?;
        // Another one would have given other numbers.
        if before == in_force.instance {
            let said = in_force.plan.unwrap_or_default().clients.unwrap_or_default();
            let owners = in_force.owners.unwrap_or_default();
            self.switches.meet(before, &said, &stats, &owners).await;
        }
        Ok(())
    }

    pub async fn describe(&self) -> Result<dp::DescribeResponse, Status> {
        let describe = |mut c: Client| async move { c.describe(dp::DescribeRequest {}).await };
        self.read(describe).await
    }

    /// The resources for a link.
    pub async fn room(&self) -> Result<pb::Room, Status> {
        self.describe().await?.room.ok_or_else(|| {
            Status::unimplemented("the dataplane does not say what it can hold: it is an older one")
        })
    }

    /// The boxes of a group.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the dataplane is one box.
    pub async fn list_boxes(&self) -> Result<dp::ListBoxesResponse, Status> {
        let list = dp::ListBoxesRequest {};
        let listed = self.read(|_| async { self.group().list_boxes(list).await }).await;
        listed.map_err(one_box)
    }

    /// Begins a move. Its end is a request of its own, which may take as long as a queue lasts.
    pub async fn begin_move(
        &self,
        request: dp::BeginMoveRequest,
    ) -> Result<dp::BeginMoveResponse, Status> {
        let call = |_, request| async move { self.group().begin_move(request).await };
        let answer = self.within(self.controlling(request, call)).await;
        answer.map(Response::into_inner).map_err(|status| one_box(self.translate(status)))
    }

    pub async fn finish_move(
        &self,
        request: dp::FinishMoveRequest,
    ) -> Result<dp::FinishMoveResponse, Status> {
        let call = |_, request| async move { self.group().finish_move(request).await };
        let answer = tokio::time::timeout(MOVE_DEADLINE, self.controlling(request, call)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!(
                "the former owner still serves what it holds after {MOVE_DEADLINE:?}; the move is \
                 finished without linkd: see `linkctl group show`"
            )))
        });
        answer.map(Response::into_inner).map_err(|status| self.translate(status))
    }

    fn group(&self) -> GroupClient<Channel> {
        GroupClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES)
    }

    /// Makes changes of links, or none. Not tried again, because the dataplane may have made them.
    pub async fn apply(
        &self,
        changes: Vec<dp::LinkChange>,
    ) -> Result<Vec<dp::LinkChanged>, Status> {
        let call = |mut c: Client, request| async move { c.apply(request).await };
        let request = dp::ApplyRequest { changes };
        Ok(self.change(Box::pin(self.controlling(request, call))).await?.changes)
    }

    /// The answer to a change, within its deadline.
    async fn change<T>(
        &self,
        change: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        let answer = tokio::time::timeout(APPLY_DEADLINE, change).await;
        let unknown = "the change may have been made or not: see `linkctl show`";
        match answer {
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the dataplane at {} did not answer within {APPLY_DEADLINE:?}; {unknown}",
                self.path.display()
            ))),
            Ok(Err(status)) if broke(&status) => Err(Status::unavailable(format!(
                "the dataplane at {} went away in mid-change; {unknown}",
                self.path.display()
            ))),
            Ok(Err(status)) => Err(self.translate(status)),
            Ok(Ok(response)) => Ok(response.into_inner()),
        }
    }

    /// Lets the switch do its part of the current plan.
    pub async fn set_offload(&self, request: dp::SetOffloadRequest) -> Result<(), Status> {
        let call = |mut c: Client, request| async move { c.set_offload(request).await };
        let answer = self.within(self.controlling(request, call)).await;
        answer.map_err(|status| self.translate(status))?;
        self.switches.in_use(request.offload.as_ref());
        Ok(())
    }

    /// Starts a scenario. Not tried again, unless the request has a key.
    pub async fn run_scenario(
        &self,
        request: dp::RunScenarioRequest,
    ) -> Result<dp::RunScenarioResponse, Status> {
        let call = |mut c: Client, request| async move { c.run_scenario(request).await };
        let answer = self.within(self.controlling(request, call)).await;
        answer.map(Response::into_inner).map_err(|status| self.translate(status))
    }

    pub async fn extend_scenario(
        &self,
        request: dp::ExtendScenarioRequest,
    ) -> Result<dp::ExtendScenarioResponse, Status> {
        let call = |mut c: Client, request| async move { c.extend_scenario(request).await };
        let answer = self.within(self.controlling(request, call)).await;
        answer.map(Response::into_inner).map_err(|status| self.translate(status))
    }

    /// Stops the scenario. The link of its last step stays.
    pub async fn stop_scenario(&self, reason: String) -> Result<pb::ScenarioState, Status> {
        let action = pb::ScenarioAction::Stop as i32;
        let request = dp::ControlScenarioRequest { action, reason, ..Default::default() };
        self.control_scenario(request).await
    }

    /// Pauses, resumes or stops the scenario.
    pub async fn control_scenario(
        &self,
        request: dp::ControlScenarioRequest,
    ) -> Result<pb::ScenarioState, Status> {
        let control = |_: Client| {
            self.controlling(request.clone(), |mut c, request| async move {
                c.control_scenario(request).await
            })
        };
        self.read(control).await
    }

    /// Reports an event that the scenario waits for.
    pub async fn notify_scenario(&self, request: dp::NotifyScenarioRequest) -> Result<(), Status> {
        let notify = |_: Client| {
            self.controlling(
                request,
                |mut c, request| async move { c.notify_scenario(request).await },
            )
        };
        self.read(notify).await.map(drop)
    }

    /// The scenario that runs or ran last, and the answer to the request with `key`.
    pub async fn scenario(&self, key: &str) -> Result<dp::GetScenarioResponse, Status> {
        let get = |mut c: Client| async move {
            c.get_scenario(dp::GetScenarioRequest { key: key.to_owned() }).await
        };
        self.read(get).await
    }

    /// Events after a sequence, and the status of the scenario.
    pub async fn watch(&self, after: Option<u64>) -> Result<Streaming<dp::WatchResponse>, Status> {
        let watch = |mut c: Client| async move { c.watch(dp::WatchRequest { after }).await };
        self.read(watch).await
    }

    /// Calls; once more if the transport failed: the dataplane was replaced since the last call,
    /// or the attempt to connect was begun for another caller before the dataplane was there.
    async fn read<T, F>(&self, call: impl Fn(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let calls = async {
            match call(self.client.clone()).await {
                Err(status) if status.source().is_some() => call(self.client.clone()).await,
                answer => answer,
            }
        };
        match tokio::time::timeout(READ_DEADLINE, calls).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.translate(status)),
            Err(_) => Err(Status::unavailable(format!(
                "the dataplane at {} did not answer within {READ_DEADLINE:?}: is it stopped or \
                 overloaded?",
                self.path.display()
            ))),
        }
    }

    /// Captures packets; once more if the connection broke before it began.
    pub async fn capture(
        &self,
        request: pb::CaptureRequest,
    ) -> Result<Streaming<pb::CaptureChunk>, Status> {
        self.read(|mut client| {
            let request = request.clone();
            async move { client.capture(request).await }
        })
        .await
    }

    /// The dataplane's status as it is reported to a caller.
    pub fn translate(&self, status: Status) -> Status {
        if status.source().is_none() {
            if status.code() == Code::AlreadyExists {
                return crate::refusal::field("request_id", REUSED);
            }
            if status.code() == Code::Unimplemented {
                return Status::failed_precondition(format!(
                    "the dataplane at {} is of another version than linkd: restart linkd-dataplane",
                    self.path.display()
                ));
            }
            // The dataplane's own answer; its transport metadata stays here.
            let details = status.details().to_vec().into();
            return Status::with_details(status.code(), status.message(), details);
        }
        if status.code() == Code::OutOfRange || status.code() == Code::ResourceExhausted {
            return Status::internal(format!("the dataplane's answer: {}", status.message()));
        }
        let path = self.path.display();
        let why = match cause::<io::Error>(&status) {
            Some(error) if plain(error.kind()) => String::new(),
            Some(error) => format!(" ({error})"),
            None => String::new(),
        };
        Status::unavailable(format!(
            "no dataplane at {path}{why}: start linkd-dataplane, or give --dataplane"
        ))
    }
}

fn client(channel: Channel, link: Linked) -> Client {
    DataplaneClient::with_interceptor(channel, link).max_decoding_message_size(ANSWER_BYTES)
}

/// The message "no dataplane at PATH" suffices for these.
fn plain(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Whether a connection that stood broke during the call.
fn broke(status: &Status) -> bool {
    status.source().is_some() && cause::<ConnectError>(status).is_none()
}

fn cause<E: Error + 'static>(status: &Status) -> Option<&E> {
    let mut error = status.source();
    while let Some(e) = error {
        if let Some(found) = e.downcast_ref::<E>() {
            return Some(found);
        }
        error = e.source();
    }
    None
}

/// A dataplane that is one box has no service of groups.
fn one_box(status: Status) -> Status {
    match status.code() {
        Code::Unimplemented => Status::failed_precondition(
            "this linkd represents one box: for several ones, start linkd-group with them and linkd \
             with --dataplane on its socket (docs/group.md)",
        ),
        _ => status,
    }
}
