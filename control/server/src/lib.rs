// SPDX-License-Identifier: Apache-2.0
//! The control plane of linkemu as a library: the binary `linkd` and the tests
//! run the same [`Server`].
//!
//! It serves `linkemu.v1` on a unix socket and drives the dataplane over another
//! (`dataplane.v1`). Every request reads what is in force from the dataplane, so that
//! either process may end and return at any time; what linkd keeps on disk serves to bring
//! back a dataplane that was started anew.

mod answers;
mod caller;
mod control;
mod dataplane;
mod disk;
mod events;
#[cfg(feature = "fake")]
pub mod fake;
mod keeper;
mod leases;
mod metrics;
mod patch;
mod refusal;
mod server;
mod service;
mod state;
mod watching;

pub use caller::{Caller, Role};
pub use endpoint::SocketError;
pub use metrics::{Metrics, MetricsError};
pub use server::{Server, ServerError, Settings};
pub use state::StateError;
