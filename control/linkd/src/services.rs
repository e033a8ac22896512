// SPDX-License-Identifier: Apache-2.0
//! gRPC services for parts of links: their history, leases and scenarios.

mod history;
mod leases;
mod scenarios;

pub(crate) use history::HistoryService;
pub(crate) use leases::LeaseService;
pub(crate) use scenarios::ScenarioService;
