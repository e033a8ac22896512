// SPDX-License-Identifier: Apache-2.0
//! The server: its sockets, their limits, and how it ends.

use crate::accept::{Door, accept};
use crate::audit::{Audit, AuditError};
use crate::authorisation::Authorisation;
use crate::control::{BoxService, Control, SwitchService};
use crate::dataplane::Dataplane;
use crate::events::{self, Events};
use crate::history::History;
use crate::intake::{CONNECTION_WINDOW, STREAM_WINDOW};
use crate::jobs::Jobs;
use crate::keeper;
use crate::limits::Limits;
use crate::links::Links;
use crate::member::Passage;
use crate::metrics::Metrics;
use crate::scenarios::{Scenarios, follow};
use crate::service::Service;
use crate::services::{
    CaptureService, CertificateService, DoctorService, EnvelopeService, HistoryService, JobService,
    LeaseService, ScenarioService,
};
use crate::slots::Slots;
use crate::stalls::Clocks;
use crate::state::{Directory, Kept, Saver, StateError};
use crate::switch::Switches;
use crate::tls::{Keys, TlsError, TlsFiles};
use crate::watching::Watching;
use crate::web::{LoginService, Web, WebError, WebListen};
use endpoint::{Claim, Permissions, SocketError};
use profile::Catalog;
use proto::linkd::v1::State;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::boxes_server::BoxesServer;
use proto::linkemu::v1::captures_server::CapturesServer;
use proto::linkemu::v1::certificates_server::CertificatesServer;
use proto::linkemu::v1::doctor_server::DoctorServer;
use proto::linkemu::v1::envelopes_server::EnvelopesServer;
use proto::linkemu::v1::events_server::EventsServer;
use proto::linkemu::v1::history_server::HistoryServer;
use proto::linkemu::v1::jobs_server::JobsServer;
use proto::linkemu::v1::leases_server::LeasesServer;
use proto::linkemu::v1::linkemu_server::LinkemuServer;
use proto::linkemu::v1::links_server::LinksServer;
use proto::linkemu::v1::scenarios_server::ScenariosServer;
use proto::linkemu::v1::switch_server::SwitchServer;
use proto::linkemu::v1::web_server::WebServer;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tonic::service::Routes;

/// Largest request: a profile.
const REQUEST_BYTES: usize = profile::MESSAGE_BYTES;
/// Requests in work, and streams open, per connection.
const CONCURRENT: usize = 64;
/// Deadline of a request, longer than those of its requests to the dataplane.
const DEADLINE: Duration = Duration::from_secs(30);
/// For requests in progress when the server stops.
const GRACE: Duration = Duration::from_secs(3);
/// Largest headers of a request.
const HEADER_BYTES: u32 = 16 << 10;

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
    pub security: Security,
}

/// Access, transport and audit log. Default: every user who may open the unix socket, and no log.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Users that may open the unix socket.
    pub socket: Permissions,
    /// Where to serve TCP.
    pub listen: Option<Listen>,
    /// Where to serve the web page.
    pub web: Option<WebListen>,
    /// The file for the audit log.
    pub audit: Option<PathBuf>,
    /// On connections.
    pub limits: Limits,
    /// Let admins call the dataplane through linkd, which then changes nothing itself.
    pub member: bool,
}

/// Where to serve TCP, which needs certificates.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address; with port 0, any free one.
    pub address: SocketAddr,
    pub tls: TlsFiles,
}

/// Reads the certificates and reopens the audit log.
#[derive(Clone, Debug)]
pub struct Reload {
    keys: Vec<Arc<Keys>>,
    audit: Audit,
}

impl Reload {
    /// Does both. Connections with certificates that are still valid stay. If a file cannot be read
    /// or opened, the old one stays.
    ///
    /// # Errors
    /// Of the audit log first, then of the certificates; both are tried.
    pub fn reload(&self) -> Result<(), ServerError> {
        let audit = self.audit.reopen();
        // All of them, even if one fails.
        let keys: Vec<_> = self.keys.iter().map(|keys| keys.reload()).collect();
        audit?;
        Ok(keys.into_iter().collect::<Result<(), _>>()?)
    }
}

/// Why the server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The directory of the state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The descriptors of the API.
    #[error("cannot describe the API: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(
        "cannot listen on {address}: {source}; give --listen an address of this machine and a port that is free"
    )]
    Address { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Web(#[from] WebError),
    /// The runtime does not take the socket.
    #[error("cannot serve the socket: {0}")]
    Listen(#[from] std::io::Error),
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// A server that has bound its sockets.
#[derive(Debug)]
pub struct Server {
    dataplane: PathBuf,
    catalog: Catalog,
    profiles: BTreeMap<String, PathBuf>,
    /// The state of other links than `main`.
    links: BTreeMap<String, State>,
    saver: Saver,
    damage: Vec<String>,
    limits: Limits,
    member: bool,
    // Dropped first, then the claim.
    listener: UnixListener,
    tcp: Option<(TcpListener, Arc<Keys>)>,
    web: Option<Web>,
    audit: Audit,
    claim: Claim,
    metrics: Option<Metrics>,
    clocks: Clocks,
}

impl Server {
    /// Reads the state, claims the socket and listens on it, and on TCP if the settings say
    /// so; call within a tokio runtime.
    ///
    /// # Errors
    /// If a socket or the state is taken or cannot be made, the certificates are no good, or
    /// the audit log cannot be written.
    pub fn bind(settings: Settings) -> Result<Self, ServerError> {
        let Settings { socket, dataplane, catalog, state, security } = settings;
        let Security { socket: permissions, listen, web, audit, limits, member } = security;
        let keys = listen.as_ref().map(|listen| Keys::read(listen.tls.clone())).transpose()?;
        let (directory, kept) = match state {
            None => (None, Kept::default()),
            Some(path) => {
                let (directory, kept) = Directory::open(&path)?;
                (Some(directory), kept)
            }
        };
        let Kept { state, profiles, links, damage } = kept;
        let saver = Saver::new(directory, state);
        let (claim, listener) = Claim::with(&socket, "linkd", &permissions)?;
        let listener = UnixListener::from_std(listener)?;
        let audit = audit.as_ref().map_or(Ok(Audit::default()), |path| Audit::open(path))?;
        let tcp = match (listen, keys) {
            (Some(Listen { address, .. }), Some(keys)) => {
                let failed = |source| ServerError::Address { address, source };
                let listener = std::net::TcpListener::bind(address).map_err(failed)?;
                listener.set_nonblocking(true)?;
                Some((TcpListener::from_std(listener)?, Arc::new(keys)))
            }
            _ => None,
        };
        let keys = tcp.as_ref().map(|(_, keys)| keys);
        let web = web.map(|web| Web::bind(web, keys, &limits)).transpose()?;
        let metrics = None;
        Ok(Self {
            dataplane,
            catalog,
            profiles,
            links,
            saver,
            damage,
            limits,
            member,
            listener,
            tcp,
            web,
            audit,
            claim,
            metrics,
            clocks: Clocks::default(),
        })
    }

    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// The same with other clocks for leases, such as those of a simulation.
    #[must_use]
    pub fn with_clocks(self, clocks: Clocks) -> Self {
        Self { clocks, ..self }
    }

    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// The address of the web page.
    pub fn web_address(&self) -> Option<SocketAddr> {
        self.web.as_ref().and_then(Web::address)
    }

    /// A handle to reload certificates and audit log while it serves.
    pub fn reloader(&self) -> Reload {
        let tcp = self.tcp.as_ref().map(|(_, keys)| keys);
        let web = self.web.as_ref().and_then(Web::keys);
        let keys = tcp.into_iter().chain(web).cloned().collect();
        Reload { keys, audit: self.audit.clone() }
    }

    /// Serves until `shutdown` resolves, then completes requests in progress and removes the
    /// socket.
    ///
    /// # Errors
    /// If the transport fails.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { dataplane, catalog, profiles, links, saver, damage, limits, .. } = self;
        let Self { listener, tcp, web, audit, claim, metrics, member, clocks, .. } = self;
        let at = listener.local_addr().ok();
        let at = at.as_ref().and_then(|at| at.as_pathname()).unwrap_or(Path::new("no path"));
        let name = format!("linkd at {}, process {}", at.display(), std::process::id());
        let (stop, stopping) = watch::channel(false);
        let mut stopped = stopping.clone();
        let events = Events::new();
        let dataplane_socket = dataplane.clone();
        let dataplane = Dataplane::new(dataplane, Switches::new(events.clone()));
        let dataplane = if member { dataplane.of_member() } else { dataplane };
        let passage = member.then(|| Passage::new(dataplane_socket.clone(), dataplane.channel()));
        let watching = Watching::new(stopping.clone());
        let control = Control::new(
            catalog,
            profiles,
            dataplane,
            events.clone(),
            saver.clone(),
            audit.clone(),
            clocks,
        );
        let what = [vec![format!("linkd {} serves", env!("CARGO_PKG_VERSION"))], damage].concat();
        control.tell(pb::EventKind::Started, "", "", what.join("; "));
        let scenarios = Scenarios::new(control.clone(), watching.clone());
        let links =
            Links::new(control.clone(), scenarios.clone(), events.clone(), watching.clone(), links);
        if let Some(metrics) = metrics {
            tokio::spawn(metrics.serve(links.clone(), stopping.clone()));
        }
        let service = Service { links: links.clone(), watching: watching.clone() };
        let captures = CaptureService { links: links.clone(), watching: watching.clone() };
        let certificates = CertificateService(links.clone());
        let history = History::new(web.is_some());
        let histories = HistoryService {
            links: links.clone(),
            history: history.clone(),
            watching: watching.clone(),
        };
        let jobs = Jobs::new(saver.directory());
        let job_service =
            JobService { jobs: jobs.clone(), links: links.clone(), watching: watching.clone() };
        let leases = LeaseService { links: links.clone(), watching: watching.clone() };
        let switch = SwitchService(control.clone());
        let (reporter, health) = tonic_health::server::health_reporter();
        let unknown = tonic_health::ServingStatus::NotServing;
        reporter.set_service_status(pb::linkemu_server::SERVICE_NAME, unknown).await;
        let (followed, published) = (scenarios.clone(), events.clone());
        // On the heap: they hold profiles, of which each has kilobytes without its lists.
        let keeping = async {
            tokio::join!(
                Box::pin(keeper::watch_dataplane(&links, &reporter)),
                control.watch_stalls(),
                Box::pin(control.watch_lease()),
                keeper::watch_clients(&control),
                keeper::watch_state(&control),
                control.read_all(),
                control.dataplane().control(&name),
                Box::pin(follow(&followed, &published)),
                saver.run(),
                history.run(&links),
                jobs.sweep(),
            )
        };
        let tcp = tcp.map(|(listener, keys)| {
            let slots = Slots::new(&limits);
            (listener, Door { keys, limits, slots, audit: audit.clone() })
        });
        // The kernel says when a local peer is gone, and a stopped one may come back.
        let quiet = tcp.is_some().then_some(limits.quiet);
        let incoming = accept(listener, &limits, tcp);
        let login = web.as_ref().map_or_else(LoginService::none, Web::login);
        let mut routes = Routes::builder();
        routes
            .add_service(LinkemuServer::new(service).max_decoding_message_size(REQUEST_BYTES))
            .add_service(BoxesServer::new(BoxService(control.clone())))
            .add_service(CapturesServer::new(captures))
            .add_service(CertificatesServer::new(certificates))
            .add_service(DoctorServer::new(DoctorService::new(links.clone(), dataplane_socket)))
            .add_service(
                EnvelopesServer::new(EnvelopeService(links.clone()))
                    .max_decoding_message_size(REQUEST_BYTES),
            )
            .add_service(EventsServer::new(events::Service { events, watching }))
            .add_service(HistoryServer::new(histories))
            .add_service(JobsServer::new(job_service).max_decoding_message_size(REQUEST_BYTES))
            .add_service(LeasesServer::new(leases))
            .add_service(LinksServer::new(links.clone()).max_decoding_message_size(REQUEST_BYTES))
            .add_service(
                ScenariosServer::new(ScenarioService(links.clone()))
                    .max_decoding_message_size(REQUEST_BYTES),
            )
            .add_service(SwitchServer::new(switch))
            .add_service(health)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .add_service(WebServer::new(login));
        let routes = routes.routes();
        let gate = Authorisation::new(audit, REQUEST_BYTES);
        let serving = tonic::transport::Server::builder()
            .concurrency_limit_per_connection(CONCURRENT)
            .max_concurrent_streams(CONCURRENT as u32)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEADER_BYTES)
            .http2_keepalive_interval(quiet)
            .http2_keepalive_timeout(Some(limits.dead))
            .timeout(DEADLINE)
            .layer(gate.clone())
            .add_routes(match passage {
                Some(passage) => routes.clone().add_service(passage),
                None => routes.clone(),
            })
            .serve_with_incoming_shutdown(incoming, async {
                shutdown.await;
                let _ = stop.send(true);
            });
        let serving = async {
            let web = async {
                if let Some(web) = web {
                    web.serve(routes, gate, stopping).await;
                }
            };
            tokio::join!(serving, web).0
        };
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
        jobs.stop();
        if let Err(error) = saver.save().await {
            tracing::error!(%error, "cannot write the state");
        }
        drop(claim);
        result
    }
}

/// Descriptors of the services, for generic clients.
fn reflection<'a>() -> tonic_reflection::server::Builder<'a> {
    let served = [
        pb::linkemu_server::SERVICE_NAME,
        pb::boxes_server::SERVICE_NAME,
        pb::captures_server::SERVICE_NAME,
        pb::certificates_server::SERVICE_NAME,
        pb::doctor_server::SERVICE_NAME,
        pb::envelopes_server::SERVICE_NAME,
        pb::events_server::SERVICE_NAME,
        pb::history_server::SERVICE_NAME,
        pb::jobs_server::SERVICE_NAME,
        pb::leases_server::SERVICE_NAME,
        pb::links_server::SERVICE_NAME,
        pb::scenarios_server::SERVICE_NAME,
        pb::switch_server::SERVICE_NAME,
        pb::web_server::SERVICE_NAME,
    ];
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let builder = served.into_iter().fold(builder, |builder, name| builder.with_service_name(name));
    builder.with_service_name("grpc.health.v1.Health")
}
