// SPDX-License-Identifier: Apache-2.0
//! The links of a dataplane as an executor of plans, which [`owner::Service`] serves.

use std::collections::BTreeMap;

use owner::{Current, Executor};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::dataplane::{Dataplane, Fixed};
use crate::links::{Entry, Links};

pub type Service = owner::Service<Links>;

impl Executor for Links {
    const NAME: &'static str = "dataplane";

    type Link = Dataplane;
    type Chunks = ReceiverStream<Result<model::CaptureChunk, Status>>;

    fn instance(&self) -> u64 {
        self.main().link.fixed().description.instance
    }

    fn link(&self, name: &str) -> Result<Entry, Status> {
        Ok(self.get(name)?)
    }

    fn describe(&self, link: &Dataplane) -> Result<pb::DescribeResponse, Status> {
        link.health()?;
        let (room, Fixed { description, .. }) = (link.room(), link.fixed());
        let room = model::Room {
            clients: room.clients,
            port_bps: room.port_bps,
            frame_bytes: room.frame,
            memory_bytes: room.capacity,
            workers: room.workers,
            shim_bytes: if room.unanswered { room.tag } else { 0 },
            pair_bytes: if room.unanswered { 0 } else { room.tag },
        };
        Ok(pb::DescribeResponse { room: Some(room), ..description.clone() })
    }

    fn on_hold(&self, link: &Dataplane) -> Vec<pb::HeldClient> {
        link.on_hold()
    }

    async fn hold_clients(
        &self,
        link: &Dataplane,
        clients: Vec<pb::HoldClient>,
    ) -> Result<(), Status> {
        Ok(link.hold_clients(&clients).await?)
    }

    async fn look_at_clients(
        &self,
        link: &Dataplane,
        clients: Vec<String>,
    ) -> Result<Vec<pb::ClientLook>, Status> {
        Ok(link.look_at_clients(&clients).await?)
    }

    async fn set_offload(
        &self,
        link: &Dataplane,
        request: pb::SetOffloadRequest,
    ) -> Result<(), Status> {
        link.set_offload(request.offload, request.expected_generation).await
    }

    async fn current(&self, link: &Dataplane) -> Result<Current, Status> {
        Ok(link.plan().await?)
    }

    fn ports(&self, link: &Dataplane) -> (Vec<model::PortState>, u64) {
        (link.ports(), link.unplaced())
    }

    async fn stats(&self, link: &Dataplane, mark: bool) -> Result<model::Stats, Status> {
        Ok(link.stats(mark).await?)
    }

    async fn capture(
        &self,
        link: &Dataplane,
        request: model::CaptureRequest,
    ) -> Result<Self::Chunks, Status> {
        Ok(ReceiverStream::new(link.capture(&request).await?))
    }

    async fn links_of_scenario(
        &self,
        own: &Dataplane,
        names: &[String],
    ) -> Result<BTreeMap<String, Dataplane>, Status> {
        self.for_scenario(own, names).await
    }

    async fn patiently<T: Send>(
        &self,
        link: &Dataplane,
        answer: impl Future<Output = Result<T, Status>> + Send,
    ) -> Result<T, Status> {
        link.patiently(answer).await?
    }

    async fn list_links(&self) -> Result<(Vec<model::NamedLink>, model::LinkRules), Status> {
        Ok(self.list().await?)
    }

    async fn add_link(&self, link: model::NamedLink) -> Result<model::NamedLink, Status> {
        Ok(self.add(&link).await?)
    }

    async fn remove_link(&self, name: &str) -> Result<(), Status> {
        Ok(self.remove(name).await?)
    }

    async fn set_link_rules(
        &self,
        link: &Dataplane,
        rules: Vec<model::LinkRule>,
        expected: Option<u64>,
    ) -> Result<model::LinkRules, Status> {
        Ok(self.set_rules(link, rules, expected).await?)
    }
}
