// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Leases`: each about the lease of a link.

use crate::caller::Caller;
use crate::control::to_its_end;
use crate::links::Links;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::leases_server;
use tonic::{Request, Response, Status};

pub(crate) struct LeaseService(pub Links);

#[tonic::async_trait]
impl leases_server::Leases for LeaseService {
    async fn acquire_lease(
        &self,
        request: Request<pb::AcquireLeaseRequest>,
    ) -> Result<Response<pb::AcquireLeaseResponse>, Status> {
        let (caller, control) = (Caller::of(&request), self.0.control(&request)?);
        let request = request.into_inner();
        to_its_end(async move { control.acquire_lease(&caller, request).await }).await
    }

    async fn renew_lease(
        &self,
        request: Request<pb::RenewLeaseRequest>,
    ) -> Result<Response<pb::Lease>, Status> {
        let (control, token) = (self.0.control(&request)?, request.into_inner().token);
        to_its_end(async move { control.renew_lease(&token).await }).await
    }

    async fn release_lease(
        &self,
        request: Request<pb::ReleaseLeaseRequest>,
    ) -> Result<Response<pb::ReleaseLeaseResponse>, Status> {
        let (caller, control) = (Caller::of(&request), self.0.control(&request)?);
        let token = request.into_inner().token;
        to_its_end(async move { control.release_lease(&caller, &token).await }).await
    }

    async fn get_lease(
        &self,
        request: Request<pb::GetLeaseRequest>,
    ) -> Result<Response<pb::Lease>, Status> {
        match &self.0.control(&request)?.changing().await.leases.0 {
            Some(held) => Ok(Response::new(held.lease.clone())),
            None => Err(Status::not_found("no lease runs: whoever may change the link can")),
        }
    }
}
