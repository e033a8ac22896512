// SPDX-License-Identifier: Apache-2.0
//! The way to linkd: one call at a time, each with a deadline.

use crate::cli::Cli;
use crate::failure::Failure;
use hyper_util::rt::TokioIo;
use proto::LEASE_METADATA;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::leases_client::LeasesClient;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status};

/// Longer than linkd's own deadlines towards the dataplane.
const DEADLINE: Duration = Duration::from_secs(20);
/// Of an answer: the statistics of many thousand clients.
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

/// A client of linkd.
pub struct Connection {
    socket: PathBuf,
    way: Way,
}

impl Connection {
    /// Connects.
    pub async fn open(cli: &Cli) -> Result<Self, Failure> {
        let token = cli.token().map(str::parse).transpose();
        let token = token.map_err(|_| Failure::usage("--lease: that is no token of a lease"))?;
        Self::at(&cli.socket, token).await
    }

    /// Connects, to look only.
    pub async fn viewing(socket: &Path) -> Result<Self, Failure> {
        Self::at(socket, None).await
    }

    async fn at(socket: &Path, token: Option<MetadataValue<Ascii>>) -> Result<Self, Failure> {
        let failed = |why: String| Failure::unreachable(socket, &why);
        let channel = channel(socket).await.map_err(failed)?;
        let way = InterceptedService::new(channel, Leased(token));
        Ok(Self { socket: socket.into(), way })
    }

    /// For calls with a deadline of one's own.
    pub fn client(&self) -> LinkemuClient<Way> {
        LinkemuClient::new(self.way.clone()).max_decoding_message_size(ANSWER_BYTES)
    }

    /// Calls `linkemu.v1.Linkemu`.
    pub async fn call<T, F>(&self, call: impl FnOnce(LinkemuClient<Way>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.answer(call(self.client())).await
    }

    /// The leases.
    pub fn leases(&self) -> LeasesClient<Way> {
        LeasesClient::new(self.way.clone())
    }

    /// The events.
    pub fn events(&self) -> EventsClient<Way> {
        EventsClient::new(self.way.clone())
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
                Err(Failure::unreachable(&self.socket, &why))
            }
        }
    }

    /// What a status of a call or a stream means.
    pub fn failure(&self, status: &Status) -> Failure {
        match status.source() {
            Some(error) => Failure::unreachable(&self.socket, &cause(error)),
            None => Failure::status(status),
        }
    }
}

/// Connects to a unix socket; the error in words.
pub async fn channel(socket: &Path) -> Result<Channel, String> {
    let path = socket.to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The name is sent as authority and otherwise unused.
    let channel = Endpoint::from_static("http://linkemu").connect_with_connector(connect).await;
    channel.map_err(|error| cause(&error))
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
        Some(io::ErrorKind::PermissionDenied) => {
            "permission denied; the socket's owner and group may connect".into()
        }
        _ => root.to_string(),
    }
}
