// SPDX-License-Identifier: Apache-2.0
//! gRPC services: parts of links, such as their history, leases and scenarios; the machine; and jobs.

mod captures;
mod certificates;
mod doctor;
mod envelopes;
mod history;
mod jobs;
mod leases;
mod scenarios;

pub(crate) use captures::CaptureService;
pub(crate) use certificates::CertificateService;
pub(crate) use doctor::DoctorService;
pub(crate) use envelopes::EnvelopeService;
pub(crate) use history::HistoryService;
pub(crate) use jobs::JobService;
pub(crate) use leases::LeaseService;
pub(crate) use scenarios::ScenarioService;
