// SPDX-License-Identifier: Apache-2.0
//! The server: the socket, its limits, and how it ends.

use crate::control::Control;
use crate::dataplane::Dataplane;
use crate::events::{self, Events};
use crate::service::Service;
use crate::watching::Watching;
use endpoint::{Claim, SocketError};
use profile::Catalog;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_server::EventsServer;
use proto::linkemu::v1::linkemu_server::LinkemuServer;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;

/// Of a request: a profile.
const REQUEST_BYTES: usize = profile::MESSAGE_BYTES;
/// Requests in work, and streams open, per connection.
const CONCURRENT: usize = 64;
/// Of a request; longer than the deadlines of what it asks of the dataplane.
const DEADLINE: Duration = Duration::from_secs(30);
/// For requests in work when the server is told to stop.
const GRACE: Duration = Duration::from_secs(3);
/// After a connection could not be accepted, which happens without free file
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where to serve, and what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The socket to serve on.
    pub socket: PathBuf,
    /// The dataplane's socket; nothing need be there yet.
    pub dataplane: PathBuf,
    /// The profiles that can be set by name.
    pub catalog: Catalog,
}

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The runtime does not take the socket.
    #[error("cannot serve the socket: {0}")]
    Listen(#[from] std::io::Error),
    /// The transport.
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// A server whose socket stands and is its own.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    // Dropped first, then the claim.
    listener: UnixListener,
    claim: Claim,
}

impl Server {
    /// Claims the socket and listens on it; call within a tokio runtime.
    ///
    /// # Errors
    /// If the socket is taken or cannot be made.
    pub fn bind(settings: Settings) -> Result<Self, ServerError> {
        let (claim, listener) = Claim::new(&settings.socket, "linkd")?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { settings, listener, claim })
    }

    /// Serves until `shutdown` is done, then finishes what is in work and removes
    /// the socket.
    ///
    /// # Errors
    /// If the transport fails.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { settings: Settings { dataplane, catalog, .. }, listener, claim } = self;
        let (stop, stopping) = watch::channel(false);
        let mut stopped = stopping.clone();
        let (watching, events) = (Watching::new(stopping), Events::new());
        let control = Control::new(catalog, Dataplane::new(dataplane), events.clone());
        let service = Service { control, watching: watching.clone() };
        events.publish(pb::Event {
            kind: pb::EventKind::Started as i32,
            message: format!("linkd {} serves", env!("CARGO_PKG_VERSION")),
            ..Default::default()
        });
        let incoming = UnixListenerStream::new(listener)
            .then(|connection| async {
                if let Err(error) = &connection {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                connection
            })
            .filter(Result::is_ok);
        let serving = tonic::transport::Server::builder()
            .concurrency_limit_per_connection(CONCURRENT)
            .max_concurrent_streams(CONCURRENT as u32)
            .timeout(DEADLINE)
            .add_service(LinkemuServer::new(service).max_decoding_message_size(REQUEST_BYTES))
            .add_service(EventsServer::new(events::Service { events, watching }))
            .serve_with_incoming_shutdown(incoming, async {
                shutdown.await;
                let _ = stop.send(true);
            });
        let impatience = async {
            let _ = stopped.wait_for(|stopped| *stopped).await;
            tokio::time::sleep(GRACE).await;
        };
        let result = tokio::select! {
            result = serving => result.map_err(ServerError::from),
            () = impatience => {
                tracing::warn!("some requests did not end within {GRACE:?}: leaving them");
                Ok(())
            }
        };
        drop(claim);
        result
    }
}
