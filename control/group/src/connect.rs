// SPDX-License-Identifier: Apache-2.0
//! The channel to the dataplane of a box: a unix socket, or TLS 1.3 with certificates of both sides to
//! its linkd.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use identity::{read_certificates, read_key};
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::file::{Address, TlsFiles};

/// Largest answer: the statistics of many thousand clients.
const ANSWER_BYTES: usize = 64 << 20;
/// To connect, with the handshake.
const CONNECT: Duration = Duration::from_secs(2);

pub type Client = DataplaneClient<Channel>;

/// Connects when used, also after a restart of the box; call within a runtime.
#[must_use]
pub fn client(address: &Address) -> Client {
    // The name is sent as authority and otherwise unused.
    let endpoint = Endpoint::from_static("http://dataplane");
    let channel = match address.clone() {
        Address::Unix(path) => endpoint
            .connect_with_connector_lazy(tower::service_fn(move |_: Uri| unix(path.clone()))),
        Address::Tls { host, port, files } => {
            endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
                let connecting = tls(host.clone(), port, files.clone());
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
) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
    let connector = TlsConnector::from(Arc::new(config(&files)?));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((bare, port)).await?;
    stream.set_nodelay(true)?;
    connector.connect(name, stream).await.map(TokioIo::new)
}

/// Reads certificates and key.
///
/// # Errors
/// With the file, and why it cannot be used.
pub fn config(files: &TlsFiles) -> io::Result<ClientConfig> {
    let TlsFiles { ca, cert, key } = files;
    let unusable = |path: &Path| {
        let path = path.display().to_string();
        move |error: rustls::Error| io::Error::other(format!("cannot use {path} for TLS: {error}"))
    };
    let mut authorities = RootCertStore::empty();
    for authority in read_certificates(ca).map_err(io::Error::other)? {
        authorities.add(authority).map_err(unusable(ca))?;
    }
    let chain = read_certificates(cert).map_err(io::Error::other)?;
    let key = read_key(key).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable(cert))?
        .with_root_certificates(authorities)
        .with_client_auth_cert(chain, key)
        .map_err(unusable(cert))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
