// SPDX-License-Identifier: Apache-2.0
//! Services whose calls are about the parts of a link.

mod leases;
mod scenarios;

pub(crate) use leases::LeaseService;
pub(crate) use scenarios::ScenarioService;
