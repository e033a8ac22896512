// SPDX-License-Identifier: Apache-2.0
//! Why probing failed.

use crate::log::LogError;
use crate::plan::PlanError;
use crate::target::ResolveError;
use std::io;
use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The name of the target has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The local address cannot be had.
    #[error("cannot bind {address}: {source}; give a --bind that is this host's and is free")]
    Bind { address: SocketAddr, source: io::Error },
    /// The system has no way to the target.
    #[error("cannot reach {target}: {source}; check the address and the routes")]
    Connect { target: SocketAddr, source: io::Error },
    /// The system refuses something else.
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl Error {
    /// For `map_err`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
