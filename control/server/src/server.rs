// SPDX-License-Identifier: Apache-2.0
//! The server: the socket, its limits, and how it ends.

use crate::control::Control;
use crate::dataplane::Dataplane;
use crate::events::{self, Events};
use crate::metrics::Metrics;
use crate::service::Service;
use crate::state::{Directory, Kept, Saver, StateError};
use crate::watching::Watching;
use crate::{keeper, leases};
use endpoint::{Claim, SocketError};
use profile::Catalog;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_server::EventsServer;
use proto::linkemu::v1::leases_server::LeasesServer;
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
    /// The profiles that can be set by name, beside the stored ones.
    pub catalog: Catalog,
    /// Where the state is kept; without it, it ends with linkd.
    pub state: Option<PathBuf>,
}

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The directory of the state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The descriptors of the API.
    #[error("cannot describe the API: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
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
    dataplane: PathBuf,
    catalog: Catalog,
    saver: Saver,
    damage: Vec<String>,
    // Dropped first, then the claim.
    listener: UnixListener,
    claim: Claim,
    metrics: Option<Metrics>,
}

impl Server {
    /// Reads the state, claims the socket and listens on it; call within a tokio runtime.
    ///
    /// # Errors
    /// If the socket or the state is taken or cannot be made.
    pub fn bind(settings: Settings) -> Result<Self, ServerError> {
        let Settings { socket, dataplane, mut catalog, state } = settings;
        let (directory, kept) = match state {
            None => (None, Kept::default()),
            Some(path) => {
                let (directory, kept) = Directory::open(&path)?;
                (Some(directory), kept)
            }
        };
        let Kept { state, profiles, mut damage } = kept;
        for profile in profiles {
            if let Err(error) = catalog.put(profile, false) {
                damage.push(format!("a stored profile is left out: {error}"));
            }
        }
        let saver = Saver::new(directory, state);
        let (claim, listener) = Claim::new(&socket, "linkd")?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { dataplane, catalog, saver, damage, listener, claim, metrics: None })
    }

    /// Serves metrics too.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Serves until `shutdown` is done, then finishes what is in work and removes
    /// the socket.
    ///
    /// # Errors
    /// If the transport fails.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { dataplane, catalog, saver, damage, listener, claim, metrics } = self;
        let (stop, stopping) = watch::channel(false);
        let mut stopped = stopping.clone();
        let dataplane = Dataplane::new(dataplane);
        if let Some(metrics) = metrics {
            tokio::spawn(metrics.serve(dataplane.clone(), stopping.clone()));
        }
        let (watching, events) = (Watching::new(stopping), Events::new());
        let control = Control::new(catalog, dataplane, events.clone(), saver.clone());
        let what = [vec![format!("linkd {} serves", env!("CARGO_PKG_VERSION"))], damage].concat();
        control.tell(pb::EventKind::Started, "", "", what.join("; "));
        let service = Service { control: control.clone(), watching: watching.clone() };
        let leases = leases::Service(control.clone());
        let (reporter, health) = tonic_health::server::health_reporter();
        let unknown = tonic_health::ServingStatus::NotServing;
        reporter.set_service_status(pb::linkemu_server::SERVICE_NAME, unknown).await;
        let keeping = async {
            tokio::join!(
                keeper::watch_dataplane(&control, &reporter),
                keeper::watch_lease(&control),
                saver.run(),
            )
        };
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
            .add_service(LeasesServer::new(leases))
            .add_service(health)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .serve_with_incoming_shutdown(incoming, async {
                shutdown.await;
                let _ = stop.send(true);
            });
        let impatience = async {
            let _ = stopped.wait_for(|stopped| *stopped).await;
            tokio::time::sleep(GRACE).await;
        };
        let result = tokio::select! {
            _ = keeping => Ok(()),
            result = serving => result.map_err(ServerError::from),
            () = impatience => {
                tracing::warn!("some requests did not end within {GRACE:?}: leaving them");
                Ok(())
            }
        };
        if let Err(error) = saver.save().await {
            tracing::error!(%error, "cannot write the state");
        }
        drop(claim);
        result
    }
}

/// Descriptors of what is served here, for clients that know nothing of it.
fn reflection<'a>() -> tonic_reflection::server::Builder<'a> {
    let served = [
        pb::linkemu_server::SERVICE_NAME,
        pb::events_server::SERVICE_NAME,
        pb::leases_server::SERVICE_NAME,
    ];
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let builder = served.into_iter().fold(builder, |builder, name| builder.with_service_name(name));
    builder.with_service_name("grpc.health.v1.Health")
}
