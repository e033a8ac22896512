// SPDX-License-Identifier: Apache-2.0
//! gRPC services for parts of one link: its leases and its scenario.

mod leases;
mod scenarios;

pub(crate) use leases::LeaseService;
pub(crate) use scenarios::ScenarioService;
