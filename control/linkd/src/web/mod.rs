// SPDX-License-Identifier: Apache-2.0
//! The web page and the API for browsers: HTTP/1.1, and over TLS also HTTP/2.
//!
//! ```text
//! serve        connections: limits, TLS
//!   site       what a request is for; the headers of its answer
//!     guard    Host, Origin and paths; the session of the cookie
//!     assets   files, embedded in linkd
//!     login    starts and ends sessions
//!     call     gRPC-Web, through the authorisation of native gRPC
//!       json   the same calls in JSON
//!       pcapng captures as files
//!     openapi  the description of these
//! ```

mod assets;
mod call;
mod guard;
mod headers;
mod json;
mod login;
mod openapi;
mod pcapng;
mod serve;
mod sessions;
mod site;

use crate::authorisation::Authorisation;
use crate::limits::Limits;
use crate::slots::Slots;
use crate::tls::{Keys, TlsError, TlsFiles};
use guard::Guard;
use login::Address;
use sessions::Sessions;
use site::Site;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::service::Routes;

pub(crate) use login::LoginService;

/// Where to serve the web page.
#[derive(Clone, Debug)]
pub struct WebListen {
    /// The address; with port 0, any free one. Without TLS it has to be a loopback address, unless
    /// `insecure`.
    pub address: SocketAddr,
    /// Names and addresses under which browsers reach it, besides those of loopback, its own
    /// address and those in its certificate.
    pub hosts: Vec<String>,
    pub tls: Option<TlsFiles>,
    /// Serve other than loopback addresses without TLS.
    pub insecure: bool,
}

/// Why there can be no web page.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    #[error(
        "cannot listen on {address}: {source}; give --web an address of this machine and a port that is free"
    )]
    Address { address: SocketAddr, source: std::io::Error },
    #[error(
        "--web {0} is not a loopback address, and without TLS everyone on the network could read sessions and change the link: give --tls-cert, --tls-key and --tls-client-ca; or --web-insecure in a container or behind a proxy with TLS"
    )]
    Plain(SocketAddr),
    #[error(
        "--web-host {0:?} is no name or address of a host: write one such as linkemu.lab, without a port"
    )]
    Host(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The web page, with its bound socket.
#[derive(Debug)]
pub(crate) struct Web {
    listener: TcpListener,
    keys: Option<Arc<Keys>>,
    sessions: Sessions,
    guard: Guard,
    limits: Limits,
}

impl Web {
    /// `others` are the keys of the other listener: a caller there may create a login link, and its
    /// certificate is checked for as long as the session lasts.
    pub fn bind(
        listen: WebListen,
        others: Option<&Arc<Keys>>,
        limits: &Limits,
    ) -> Result<Self, WebError> {
        let WebListen { address, hosts, tls, insecure } = listen;
        if tls.is_none() && !insecure && !address.ip().to_canonical().is_loopback() {
            return Err(WebError::Plain(address));
        }
        let keys = tls.map(Keys::read).transpose()?.map(Arc::new);
        let failed = |source| WebError::Address { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let guard = Guard::new(address, hosts, keys.clone())?;
        let sessions = Sessions::new(keys.as_ref().or(others).cloned(), limits);
        Ok(Self { listener, keys, sessions, guard, limits: *limits })
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    pub fn keys(&self) -> Option<&Arc<Keys>> {
        self.keys.as_ref()
    }

    /// The service that creates login links.
    pub fn login(&self) -> LoginService {
        LoginService::new(self.sessions.clone(), Address::of(&self.guard))
    }

    /// Serves until `stopping` is true, and then completes requests in progress.
    pub async fn serve(self, routes: Routes, gate: Authorisation, stopping: watch::Receiver<bool>) {
        let Self { listener, keys, sessions, guard, limits } = self;
        let slots = Slots::new(&limits);
        let audit = gate.audit().clone();
        let site = Arc::new(Site::new(guard, sessions, routes, gate));
        serve::serve(serve::Entrance { listener, keys, slots, limits, audit, site }, stopping)
            .await;
    }
}
