// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` over a [`Group`]: the boxes as an executor of plans, and the service `Group`.

use std::collections::BTreeMap;

use owner::{Current, Executor, Owned, Service, to_its_end};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use proto::dataplane::v1::group_server::GroupServer;
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, link_id, link_name};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::capture::Chunks;
use crate::group::Group;

/// Largest request: a profile and clients.
const REQUEST_BYTES: usize = 64 << 20;

/// The remedy for what a group does not have.
const ON_A_BOX: &str = "a group of boxes has the link `main` alone: use further links on a box, with \
                        its own linkd and without a group";

/// The boxes of a group, with their only link.
#[derive(Clone)]
struct Boxes(Owned<Group>);

/// Moves of clients between boxes.
struct Moves(Service<Boxes>);

/// Serves until the listener fails.
///
/// # Errors
/// Of the transport.
pub async fn serve(group: Group, listener: UnixListener) -> Result<(), tonic::transport::Error> {
    let service = Service::new(Boxes(Owned::new(group)));
    tonic::transport::Server::builder()
        .add_service(DataplaneServer::new(service.clone()).max_decoding_message_size(REQUEST_BYTES))
        .add_service(GroupServer::new(Moves(service)))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
}

fn one_link() -> Status {
    Status::failed_precondition(ON_A_BOX)
}

impl Executor for Boxes {
    const NAME: &'static str = "group";

    type Link = Group;
    type Chunks = Chunks;

    fn instance(&self) -> u64 {
        self.0.link.0.instance
    }

    fn link(&self, name: &str) -> Result<Owned<Group>, Status> {
        match link_id(name) {
            MAIN_LINK => Ok(self.0.clone()),
            name => Err(Status::not_found(format!(
                "there is no link `{}`: {ON_A_BOX}",
                owner::clip(name)
            ))),
        }
    }

    fn describe(&self, group: &Group) -> Result<dp::DescribeResponse, Status> {
        group.describe()
    }

    async fn hold_clients(&self, _: &Group, _: Vec<dp::HoldClient>) -> Result<(), Status> {
        Err(Status::failed_precondition("a group holds clients while it moves them: BeginMove"))
    }

    async fn look_at_clients(
        &self,
        _: &Group,
        _: Vec<String>,
    ) -> Result<Vec<dp::ClientLook>, Status> {
        Err(Status::failed_precondition("look at the box that owns the clients: ListBoxes"))
    }

    async fn set_offload(
        &self,
        group: &Group,
        request: dp::SetOffloadRequest,
    ) -> Result<(), Status> {
        group.set_offload(request.offload, request.expected_generation).await
    }

    async fn current(&self, group: &Group) -> Result<Current, Status> {
        // Its reader is told here that no box is up.
        let current = group.shown()?;
        group.describe()?;
        Ok(current)
    }

    fn ports(&self, group: &Group) -> (Vec<pb::PortState>, u64) {
        (group.ports(), group.unplaced())
    }

    fn owners(&self) -> Option<dp::Owners> {
        Some(self.0.link.owners().to_proto())
    }

    async fn stats(&self, group: &Group, mark: bool) -> Result<pb::Stats, Status> {
        let group = group.clone();
        // All boxes and the span have the mark.
        to_its_end(async move { group.stats(mark).await }).await
    }

    async fn capture(&self, group: &Group, request: pb::CaptureRequest) -> Result<Chunks, Status> {
        group.capture(request).await
    }

    async fn links_of_scenario(
        &self,
        _: &Group,
        names: &[String],
    ) -> Result<BTreeMap<String, Group>, Status> {
        self.0.link.applied()?;
        for name in names {
            self.link(name)?;
        }
        match names.is_empty() {
            true => Ok(BTreeMap::new()),
            false => Err(one_link()),
        }
    }

    async fn list_links(&self) -> Result<(Vec<pb::NamedLink>, pb::LinkRules), Status> {
        self.0.link.applied()?;
        let main = pb::NamedLink { name: link_name(MAIN_LINK), ..Default::default() };
        Ok((vec![main], pb::LinkRules::default()))
    }

    async fn add_link(&self, _: pb::NamedLink) -> Result<pb::NamedLink, Status> {
        Err(one_link())
    }

    async fn remove_link(&self, _: &str) -> Result<(), Status> {
        Err(one_link())
    }

    async fn set_link_rules(
        &self,
        _: &Group,
        _: Vec<pb::LinkRule>,
        _: Option<u64>,
    ) -> Result<pb::LinkRules, Status> {
        Err(one_link())
    }
}

#[tonic::async_trait]
impl dp::group_server::Group for Moves {
    async fn list_boxes(
        &self,
        _: Request<dp::ListBoxesRequest>,
    ) -> Result<Response<dp::ListBoxesResponse>, Status> {
        let Boxes(Owned { link: group, .. }) = self.0.executor();
        let boxes = group.boxes();
        let owners = Some(group.owners().to_proto());
        Ok(Response::new(dp::ListBoxesResponse { boxes, owners }))
    }

    async fn begin_move(
        &self,
        request: Request<dp::BeginMoveRequest>,
    ) -> Result<Response<dp::BeginMoveResponse>, Status> {
        let Owned { link: group, .. } = self.0.change(&request)?;
        group.begin_move(request.into_inner()).await.map(Response::new)
    }

    async fn finish_move(
        &self,
        request: Request<dp::FinishMoveRequest>,
    ) -> Result<Response<dp::FinishMoveResponse>, Status> {
        let Owned { link: group, .. } = self.0.change(&request)?;
        group.finish_move(request.into_inner().r#move).await.map(Response::new)
    }
}
