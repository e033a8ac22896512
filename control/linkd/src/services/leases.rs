// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Leases`: each about the lease of a link.

use crate::caller::Caller;
use crate::control::to_its_end;
use crate::links::Links;
use crate::watching::{Messages, Watching};
use futures_util::stream::unfold;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::leases_server;
use tonic::{Request, Response, Status};

pub(crate) struct LeaseService {
    pub links: Links,
    pub watching: Watching,
}

#[tonic::async_trait]
impl leases_server::Leases for LeaseService {
    async fn acquire_lease(
        &self,
        request: Request<pb::AcquireLeaseRequest>,
    ) -> Result<Response<pb::AcquireLeaseResponse>, Status> {
        let (caller, request) = (Caller::of(&request), request.into_inner());
        let control = self.links.control(&request.link)?;
        to_its_end(async move { control.acquire_lease(&caller, request).await }).await
    }

    async fn renew_lease(
        &self,
        request: Request<pb::RenewLeaseRequest>,
    ) -> Result<Response<pb::Lease>, Status> {
        let pb::RenewLeaseRequest { token, link } = request.into_inner();
        let control = self.links.control(&link)?;
        to_its_end(async move { control.renew_lease(&token).await }).await
    }

    async fn release_lease(
        &self,
        request: Request<pb::ReleaseLeaseRequest>,
    ) -> Result<Response<pb::ReleaseLeaseResponse>, Status> {
        let caller = Caller::of(&request);
        let pb::ReleaseLeaseRequest { token, link } = request.into_inner();
        let control = self.links.control(&link)?;
        to_its_end(async move { control.release_lease(&caller, &token).await }).await
    }

    async fn get_lease(
        &self,
        request: Request<pb::GetLeaseRequest>,
    ) -> Result<Response<pb::Lease>, Status> {
        let lease = self.links.control(&request.get_ref().link)?.lease().await;
        let none = || Status::not_found("no lease runs: whoever may change the link can");
        lease.map(Response::new).ok_or_else(none)
    }

    type WatchLeaseStream = Messages<pb::LeaseState>;

    async fn watch_lease(
        &self,
        request: Request<pb::WatchLeaseRequest>,
    ) -> Result<Response<Self::WatchLeaseStream>, Status> {
        let control = self.links.control(&request.get_ref().link)?;
        let watch = self.watching.begin(&request)?;
        let changes = control.lease_changes();
        let states = unfold((control, changes, None), |(control, mut changes, sent)| async move {
            loop {
                changes.mark_unchanged();
                let state = pb::LeaseState { lease: control.lease().await };
                if sent.as_ref() != Some(&state) {
                    return Some((Ok(state.clone()), (control, changes, Some(state))));
                }
                changes.changed().await.ok()?;
            }
        });
        Ok(watch.answer(states))
    }
}
