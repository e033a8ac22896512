// SPDX-License-Identifier: Apache-2.0
//! The channel to the dataplane of a box: a unix socket, or TLS 1.3 with certificates of both sides to
//! its linkd.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use rustls::pki_types::ServerName;
use tls::client::{Fault, Names, Watched};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::file::{Address, TlsFiles};

/// Largest answer: the statistics of many thousand clients.
const ANSWER_BYTES: usize = 64 << 20;
/// To connect, with the handshake.
const CONNECT: Duration = Duration::from_secs(2);

pub type Client = DataplaneClient<Channel>;

type Connect = dyn Fn(&Address, &Fault) -> Client + Send + Sync;

/// How the dataplane of a box is reached.
#[derive(Clone)]
pub struct Dial(Arc<Connect>);

impl Dial {
    /// Reaches dataplanes by a function instead of by sockets.
    #[must_use]
    pub fn by(dial: impl Fn(&Address) -> Client + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |address, _| dial(address)))
    }

    /// Connects when used, also after a restart of the box; call within a runtime. The fault explains the
    /// last attempt.
    #[must_use]
    pub fn client(&self, address: &Address, fault: &Fault) -> Client {
        (self.0)(address, fault)
    }
}

/// By sockets.
impl Default for Dial {
    fn default() -> Self {
        Self(Arc::new(client))
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").finish_non_exhaustive()
    }
}

/// To explain why an attempt with TLS failed. It stays empty with a unix socket.
#[must_use]
pub fn fault() -> Fault {
    Fault::new(Names {
        ca: "ca in the group file".into(),
        server: "host of dataplane in the group file".into(),
        own: "cert and key in the group file".into(),
        plain: "is it the linkd of a box with --listen and --member?".into(),
    })
}

fn client(address: &Address, fault: &Fault) -> Client {
    // The name is sent as authority and otherwise unused.
    let endpoint = Endpoint::from_static("http://dataplane");
    let channel = match address.clone() {
        Address::Unix(path) => endpoint
            .connect_with_connector_lazy(tower::service_fn(move |_: Uri| unix(path.clone()))),
        Address::Tls { host, port, files } => {
            let fault = fault.clone();
            endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                let connecting = tls(host.clone(), port, files.clone(), fault.clone());
                async move {
                    let connected = tokio::time::timeout(CONNECT, connecting).await;
                    connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
                }
            }))
        }
    };
    DataplaneClient::new(channel).max_decoding_message_size(ANSWER_BYTES)
}

async fn unix(path: PathBuf) -> io::Result<TokioIo<UnixStream>> {
    UnixStream::connect(path).await.map(TokioIo::new)
}

/// Reads the files at each attempt, so that renewed certificates are used.
async fn tls(
    host: String,
    port: u16,
    files: TlsFiles,
    fault: Fault,
) -> io::Result<TokioIo<Watched>> {
    fault.set(None);
    let connector = connector(&files).inspect_err(|error| fault.set(Some(error.to_string())))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
    tls::client::connect(connector, (bare, port), name, fault).await.map(TokioIo::new)
}

/// Reads certificates and key.
///
/// # Errors
/// With the file, and why it cannot be used.
pub fn connector(files: &TlsFiles) -> io::Result<TlsConnector> {
    let TlsFiles { ca, cert, key } = files;
    tls::client::connector(ca, Some((cert, key))).map_err(io::Error::other)
}
