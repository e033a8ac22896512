// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Certificates`: the verdicts on the runs of a link.

use crate::caller::Caller;
use crate::links::Links;
use crate::refusal;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::certificates_server;
use tonic::{Request, Response, Status};

pub(crate) struct CertificateService(pub Links);

#[tonic::async_trait]
impl certificates_server::Certificates for CertificateService {
    async fn get_certificate(
        &self,
        request: Request<pb::GetCertificateRequest>,
    ) -> Result<Response<pb::Certificate>, Status> {
        let (caller, request) = (Caller::of(&request), request.into_inner());
        let control = self.0.control(&request.link)?;
        if let Some(percent) = request.memory_percent.filter(|percent| *percent > 100) {
            let message = format!("{percent} is more than 100 percent");
            return Err(refusal::field("memory_percent", message));
        }
        let stats = control.stats(&caller, request.mark).await?;
        let kept = control.certificates();
        kept.evaluate(&stats, &request, &caller, request.mark).map(Response::new)
    }

    async fn list_certificates(
        &self,
        request: Request<pb::ListCertificatesRequest>,
    ) -> Result<Response<pb::ListCertificatesResponse>, Status> {
        let control = self.0.control(&request.get_ref().link)?;
        let certificates = control.certificates().all().iter().cloned().collect();
        Ok(Response::new(pb::ListCertificatesResponse { certificates }))
    }
}
