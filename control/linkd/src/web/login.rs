// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Web`: creates the links that start sessions, and says who calls.

use super::guard::Guard;
use super::sessions::Sessions;
use crate::caller::{Caller, Role};
use crate::connection::Peer;
use crate::refusal;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::web_server;
use std::net::Ipv6Addr;
use tonic::{Request, Response, Status};

/// Where browsers reach the page.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// With scheme and port.
    url: String,
}

impl Address {
    pub fn of(guard: &Guard) -> Self {
        let scheme = if guard.is_secure() { "https" } else { "http" };
        let host = match guard.host() {
            host if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]"),
            host => host,
        };
        Self { url: format!("{scheme}://{host}:{}", guard.address.port()) }
    }
}

/// The calls. Without a web page there are no links.
pub(crate) struct LoginService(Option<(Sessions, Address)>);

impl LoginService {
    pub(super) fn new(sessions: Sessions, address: Address) -> Self {
        Self(Some((sessions, address)))
    }

    pub fn none() -> Self {
        Self(None)
    }
}

#[tonic::async_trait]
impl web_server::Web for LoginService {
    async fn create_web_login(
        &self,
        request: Request<pb::CreateWebLoginRequest>,
    ) -> Result<Response<pb::CreateWebLoginResponse>, Status> {
        let Some((sessions, address)) = &self.0 else {
            return Err(Status::failed_precondition(
                "linkd serves no web page: start it with --web 127.0.0.1:8480",
            ));
        };
        let caller = Caller::of(&request);
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("linkd does not know who calls"))?;
        if caller.session.is_some() {
            // Otherwise a session would never have to end.
            return Err(Status::failed_precondition(
                "a browser session cannot create login links: use linkctl web",
            ));
        }
        let role = match &*request.get_ref().role {
            "" => caller.role,
            role => role.parse().map_err(|error: identity::UnknownRole| {
                refusal::field("role", error.to_string())
            })?,
        };
        if role > caller.role {
            return Err(refusal::denied(&caller, "a session with that role", role));
        }
        let created = sessions.create(&caller, &peer, role)?;
        let path = format!("/login#{}", created.token);
        Ok(Response::new(pb::CreateWebLoginResponse {
            url: format!("{}{path}", address.url),
            path,
            expires: Some(created.expires.into()),
            session_ns: u64::try_from(sessions.lifetime.as_nanos()).unwrap_or(u64::MAX),
            role: Role::as_str(role).to_owned(),
        }))
    }

    async fn get_caller(
        &self,
        request: Request<pb::GetCallerRequest>,
    ) -> Result<Response<pb::GetCallerResponse>, Status> {
        let Caller { name, role, .. } = Caller::of(&request);
        let session = request.extensions().get::<Peer>().and_then(Peer::session).cloned();
        Ok(Response::new(pb::GetCallerResponse {
            name,
            role: role.as_str().to_owned(),
            session_expires: session.map(|session| session.expires().into()),
        }))
    }
}
