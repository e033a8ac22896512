// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Certificates`: judges a run from one reading of the statistics, and lists the last
//! verdicts.

use crate::caller::Caller;
use crate::links::Links;
use crate::refusal;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::certificates_server;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tonic::{Request, Response, Status};

/// Certificates that are kept of a link, of 3 kB each.
const KEPT: usize = 100;

/// The last certificates of a link, the latest first.
#[derive(Debug, Default)]
pub(crate) struct Listed(Mutex<VecDeque<pb::ListedCertificate>>);

impl Listed {
    /// Evaluates the run of a snapshot, and keeps the certificate instead of an earlier one of the
    /// same run with the same limits: `linkctl top` reads one every second.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the dataplane does not say since when its figures are.
    pub fn evaluate(
        &self,
        stats: &pb::Stats,
        limits: &pb::GetCertificateRequest,
        caller: &Caller,
        marked: bool,
    ) -> Result<pb::Certificate, Status> {
        let since = stats.span.as_ref().and_then(|span| span.since_utc);
        let until = stats.utc;
        let certificate = certificate::judge(stats, limits)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        let kept = pb::Certificate { workers: Vec::new(), ..certificate.clone() };
        let (who, kept) = (caller.name.clone(), Some(kept));
        self.keep(pb::ListedCertificate { since, until, who, marked, certificate: kept });
        Ok(certificate)
    }

    fn keep(&self, next: pb::ListedCertificate) {
        let mut all = self.all();
        let is_next = |it: &pb::ListedCertificate| {
            !it.marked && it.since == next.since && limits_of(it) == limits_of(&next)
        };
        all.retain(|it| !is_next(it));
        all.truncate(KEPT - 1);
        all.push_front(next);
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<pb::ListedCertificate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn limits_of(listed: &pb::ListedCertificate) -> Vec<(&str, u64)> {
    let criteria = listed.certificate.iter().flat_map(|it| &it.criteria);
    criteria.map(|criterion| (&*criterion.name, criterion.limit)).collect()
}

pub(crate) struct Service(pub Links);

#[tonic::async_trait]
impl certificates_server::Certificates for Service {
    async fn get_certificate(
        &self,
        request: Request<pb::GetCertificateRequest>,
    ) -> Result<Response<pb::Certificate>, Status> {
        let (caller, control) = (Caller::of(&request), self.0.control(&request)?);
        let request = request.into_inner();
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
        let control = self.0.control(&request)?;
        let certificates = control.certificates().all().iter().cloned().collect();
        Ok(Response::new(pb::ListCertificatesResponse { certificates }))
    }
}
