// SPDX-License-Identifier: Apache-2.0
//! Who asks, and what they may.

use nix::unistd::{Uid, User};
use proto::LEASE_METADATA;
use tonic::Request;
use tonic::transport::server::UdsConnectInfo;

/// What a caller may do; each may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Viewer,
    /// Change the link and run scenarios.
    Operator,
    /// Take a lease from its holder; see who did what.
    Admin,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// A user's name, or that of a certificate.
    pub name: String,
    /// What they may.
    pub role: Role,
    /// From where: "unix", or an address with its port.
    pub from: String,
    /// The token of a lease that came with the request, as metadata
    /// [`proto::LEASE_METADATA`].
    pub lease: Option<String>,
}

impl Caller {
    /// Who sent a request. On the unix socket whoever may open it may do all.
    pub fn of<T>(request: &Request<T>) -> Self {
        let lease = request.metadata().get(LEASE_METADATA).and_then(|token| token.to_str().ok());
        // An empty variable is no lease.
        let lease = lease.filter(|token| !token.is_empty()).map(str::to_owned);
        let extensions = request.extensions();
        if let Some(known) = extensions.get::<Self>() {
            return Self { lease, ..known.clone() };
        }
        let credentials = extensions.get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let (name, role, from) = match credentials {
            Some(peer) => {
                let uid = Uid::from_raw(peer.uid());
                let user = User::from_uid(uid).ok().flatten();
                let name = user.map_or_else(|| format!("uid {uid}"), |user| user.name);
                (name, Role::Admin, "unix")
            }
            None => ("unknown".to_owned(), Role::Viewer, "unknown"),
        };
        Self { name, role, from: from.into(), lease }
    }

    /// linkd itself.
    pub(crate) fn linkd() -> Self {
        Self { name: String::new(), role: Role::Admin, from: "linkd".into(), lease: None }
    }
}
