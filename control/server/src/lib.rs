// SPDX-License-Identifier: Apache-2.0
//! The control plane of linkemu as a library: the binary `linkd` and the tests
//! run the same [`Server`].
//!
//! It serves `linkemu.v1` on a unix socket and drives the dataplane over another
//! (`dataplane.v1`). It keeps no state of the link: every request reads what is in
//! force from the dataplane, so that either process may end and return at any
//! time.

mod caller;
mod control;
mod dataplane;
mod events;
#[cfg(feature = "fake")]
pub mod fake;
mod patch;
mod refusal;
mod server;
mod service;
mod watching;

pub use caller::{Caller, Role};
pub use endpoint::SocketError;
pub use server::{Server, ServerError, Settings};
