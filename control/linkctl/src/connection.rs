// SPDX-License-Identifier: Apache-2.0
//! The way to linkd: one call at a time, each with a deadline.

use crate::context::{Context, Place};
use crate::denied::DENIED;
use crate::failure::Failure;
use crate::tls;
use ::tls::client::Fault;
use hyper_util::rt::TokioIo;
use proto::LEASE_METADATA;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::boxes_client::BoxesClient;
use proto::linkemu::v1::captures_client::CapturesClient;
use proto::linkemu::v1::certificates_client::CertificatesClient;
use proto::linkemu::v1::doctor_client::DoctorClient;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::leases_client::LeasesClient;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use proto::linkemu::v1::links_client::LinksClient;
use proto::linkemu::v1::scenarios_client::ScenariosClient;
use proto::linkemu::v1::switch_client::SwitchClient;
use proto::linkemu::v1::web_client::WebClient;
use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status};
use tower::Service;

/// Longer than linkd's own deadlines towards the dataplane.
const DEADLINE: Duration = Duration::from_secs(20);
/// To connect over the network, the handshake included.
const CONNECT: Duration = Duration::from_secs(10);
/// Largest answer: the statistics of many thousand clients.
const ANSWER_BYTES: usize = 64 << 20;

/// Sends the token of a lease with each request.
#[derive(Clone)]
pub struct Leased(Option<MetadataValue<Ascii>>);

impl Interceptor for Leased {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert(LEASE_METADATA, token.clone());
        }
        Ok(request)
    }
}

/// The way that requests take.
pub type Way = InterceptedService<Channel, Leased>;

#[derive(Clone)]
pub struct Connection {
    place: Place,
    fault: Fault,
    way: Way,
}

impl Connection {
    pub async fn open(context: &Context) -> Result<Self, Failure> {
        let token = context.token().map(str::parse).transpose();
        let token = token.map_err(|_| Failure::usage("--lease: that is no token of a lease"))?;
        Self::to(&context.linkd, token).await
    }

    /// Connects, to look only.
    pub async fn viewing(place: &Place) -> Result<Self, Failure> {
        Self::to(place, None).await
    }

    async fn to(place: &Place, token: Option<MetadataValue<Ascii>>) -> Result<Self, Failure> {
        let (place, fault) = (place.clone(), tls::fault());
        // The name is sent as authority and otherwise unused.
        let endpoint = Endpoint::from_static("http://linkd");
        let connected = match &place.server {
            None => endpoint.connect_with_connector(unix(&place.socket)).await,
            Some(server) => {
                let given = [("--ca", &place.ca), ("--cert", &place.cert), ("--key", &place.key)];
                let [Some(ca), Some(cert), Some(key)] = given.map(|(_, file)| file.as_ref()) else {
                    let missing = given.iter().filter(|(_, file)| file.is_none());
                    let missing: Vec<_> = missing.map(|(option, _)| *option).collect();
                    let missing = missing.join(", ");
                    return Err(Failure::usage(format!(
                        "--server {server} needs {missing} too: the certificates that linkd knows \
                         you by (linkctl pki)"
                    )));
                };
                let connector = tls::connector(ca, cert, key)?;
                let (server, fault) = (server.clone(), fault.clone());
                let connect = tower::service_fn(move |_: Uri| {
                    let connecting = tls::connect(connector.clone(), server.clone(), fault.clone());
                    async move {
                        let late = || io::Error::from(io::ErrorKind::TimedOut);
                        let connected = tokio::time::timeout(CONNECT, connecting).await;
                        connected.map_err(|_| late())?.map(TokioIo::new)
                    }
                });
                endpoint.connect_with_connector(connect).await
            }
        };
        let channel = connected.map_err(|error| unreachable(&place, &fault, &cause(&error)))?;
        let way = InterceptedService::new(channel, Leased(token));
        Ok(Self { place, fault, way })
    }

    /// Resource name of the link that requests are about; empty: `main`.
    pub fn link(&self) -> String {
        self.place.link_name()
    }

    /// The link that requests are about.
    pub async fn get_link(&self) -> Result<pb::Link, Failure> {
        let request = pb::GetLinkRequest { name: self.link() };
        self.call(|mut c| async move { c.get_link(request).await }).await
    }

    /// The scenario of the link that runs or ran last.
    pub async fn scenario(&self) -> Result<pb::ScenarioState, Failure> {
        let request = pb::GetScenarioStateRequest { link: self.link() };
        self.answer(self.scenarios().get_scenario_state(request)).await
    }

    /// For calls with another deadline.
    pub fn client(&self) -> LinkemuClient<Way> {
        LinkemuClient::new(self.way.clone()).max_decoding_message_size(ANSWER_BYTES)
    }

    pub async fn call<T, F>(&self, call: impl FnOnce(LinkemuClient<Way>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.answer(call(self.client())).await
    }

    pub fn leases(&self) -> LeasesClient<Way> {
        LeasesClient::new(self.way.clone())
    }

    pub fn web(&self) -> WebClient<Way> {
        WebClient::new(self.way.clone())
    }

    pub fn links(&self) -> LinksClient<Way> {
        LinksClient::new(self.way.clone())
    }

    pub fn certificates(&self) -> CertificatesClient<Way> {
        CertificatesClient::new(self.way.clone())
    }

    pub fn doctor(&self) -> DoctorClient<Way> {
        DoctorClient::new(self.way.clone())
    }

    pub fn captures(&self) -> CapturesClient<Way> {
        CapturesClient::new(self.way.clone())
    }

    pub fn events(&self) -> EventsClient<Way> {
        EventsClient::new(self.way.clone())
    }

    pub fn scenarios(&self) -> ScenariosClient<Way> {
        ScenariosClient::new(self.way.clone())
    }

    pub fn boxes(&self) -> BoxesClient<Way> {
        BoxesClient::new(self.way.clone())
    }

    pub fn switch(&self) -> SwitchClient<Way> {
        SwitchClient::new(self.way.clone())
    }

    /// Waits for the answer to a call.
    pub async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.failure(&status)),
            Err(_) => {
                let why = format!("it did not answer within {DEADLINE:?}");
                Err(unreachable(&self.place, &self.fault, &why))
            }
        }
    }

    /// The answer of an optional part of a box, or of a call that an older linkd lacks.
    pub async fn optional<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<Option<T>, Failure> {
        let call = async {
            match call.await {
                Err(status)
                    if status.source().is_none()
                        && matches!(
                            status.code(),
                            Code::FailedPrecondition | Code::Unimplemented
                        ) =>
                {
                    Ok(Response::new(None))
                }
                answer => answer.map(|answer| answer.map(Some)),
            }
        };
        self.answer(call).await
    }

    /// Converts the status of a call or a stream.
    pub fn failure(&self, status: &Status) -> Failure {
        match status.source() {
            Some(error) => unreachable(&self.place, &self.fault, &cause(error)),
            None => Failure::status(status),
        }
    }
}

/// Makes the streams of a channel over a unix socket.
fn unix(
    socket: &Path,
) -> impl Service<
    Uri,
    Response = TokioIo<UnixStream>,
    Error = io::Error,
    Future = impl Future<Output = io::Result<TokioIo<UnixStream>>> + Send,
> + Send
+ 'static {
    let path = socket.to_owned();
    tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    })
}

/// Connects to a unix socket; the error in words.
pub async fn channel(socket: &Path) -> Result<Channel, String> {
    // The name is sent as authority and otherwise unused.
    let endpoint = Endpoint::from_static("http://linkemu");
    endpoint.connect_with_connector(unix(socket)).await.map_err(|error| cause(&error))
}

/// The TLS error takes precedence over its consequence.
fn unreachable(place: &Place, fault: &Fault, why: &str) -> Failure {
    match (&place.server, fault.words()) {
        (None, _) => Failure::unreachable(&place.socket, why),
        (Some(server), Some(words)) => Failure::unreachable_over(&server.to_string(), &words),
        (Some(server), None) => Failure::unreachable_over(&server.to_string(), why)
            .hint("is linkd running with --listen there, and does a firewall let you through?"),
    }
}

/// The root of an error, in words.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    match root.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::NotFound) => "there is no such socket".into(),
        Some(io::ErrorKind::ConnectionRefused) => "nobody listens there".into(),
        Some(io::ErrorKind::TimedOut) => format!("it did not answer within {CONNECT:?}"),
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
            "it closed the connection: there may be too many from this address".into()
        }
        Some(io::ErrorKind::PermissionDenied) => DENIED.into(),
        _ => root.to_string(),
    }
}
