// SPDX-License-Identifier: Apache-2.0
//! Who asks, and what they may.

use nix::unistd::{Uid, User};
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
}

impl Caller {
    /// Who sent a request. On the unix socket whoever may open it may do all.
    pub fn of<T>(request: &Request<T>) -> Self {
        let extensions = request.extensions();
        if let Some(known) = extensions.get::<Self>() {
            return known.clone();
        }
        let credentials = extensions.get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        match credentials {
            Some(peer) => {
                let uid = Uid::from_raw(peer.uid());
                let user = User::from_uid(uid).ok().flatten();
                let name = user.map_or_else(|| format!("uid {uid}"), |user| user.name);
                Self { name, role: Role::Admin, from: "unix".into() }
            }
            None => Self { name: "unknown".into(), role: Role::Viewer, from: "unknown".into() },
        }
    }
}
