// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Certificates`: judges a run from one reading of the statistics.

use crate::caller::Caller;
use crate::links::Links;
use crate::refusal;
use certificate::{Bound, Certificate, Criterion, Limits, Verdict};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::certificates_server;
use tonic::{Request, Response, Status};
use view::Snapshot;

pub(crate) struct Service(pub Links);

#[tonic::async_trait]
impl certificates_server::Certificates for Service {
    async fn get_certificate(
        &self,
        request: Request<pb::GetCertificateRequest>,
    ) -> Result<Response<pb::Certificate>, Status> {
        let (caller, control) = (Caller::of(&request), self.0.control(&request)?);
        let request = request.into_inner();
        let limits = limits(&request)?;
        let stats = control.stats(&caller, request.mark).await?;
        let certificate = Certificate::new(&Snapshot::from(stats), &limits)
            .map_err(|error| Status::failed_precondition(error.to_string()))?;
        message(&certificate).map(Response::new)
    }
}

fn limits(request: &pb::GetCertificateRequest) -> Result<Limits, Status> {
    let usual = Limits::default();
    let percent = request.memory_percent.unwrap_or(usual.memory_percent.into());
    let memory_percent =
        u8::try_from(percent).ok().filter(|percent| *percent <= 100).ok_or_else(|| {
            refusal::field("memory_percent", format!("{percent} is more than 100 percent"))
        })?;
    Ok(Limits {
        packets: request.packets.unwrap_or(usual.packets),
        emulator_drops: request.emulator_drops.unwrap_or(usual.emulator_drops),
        lateness_p99_ns: request.lateness_p99_ns.unwrap_or(usual.lateness_p99_ns),
        stall_ns: request.stall_ns.unwrap_or(usual.stall_ns),
        memory_percent,
        changes: request.changes.or(usual.changes),
    })
}

fn message(certificate: &Certificate) -> Result<pb::Certificate, Status> {
    let json = serde_json::to_string(certificate)
        .map_err(|error| Status::internal(format!("cannot write the certificate: {error}")))?;
    Ok(pb::Certificate {
        holds: certificate.verdict == Verdict::Pass,
        criteria: certificate.criteria.iter().map(criterion).collect(),
        remarks: certificate.remarks.iter().map(|&remark| remark.into()).collect(),
        json,
    })
}

fn criterion(c: &Criterion) -> pb::Criterion {
    pb::Criterion {
        name: c.name.into(),
        value: c.value,
        limit: c.limit,
        at_least: c.bound == Bound::AtLeast,
        unit: c.unit.as_str().into(),
        holds: c.holds,
        text: c.to_string(),
    }
}
