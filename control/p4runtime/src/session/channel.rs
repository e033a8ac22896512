// SPDX-License-Identifier: Apache-2.0
//! The connection of a session: over a unix socket, or TCP with or without TLS.

use super::{CONNECT, Error, HEADERS, Target, within};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::path::PathBuf;
use tls::client::{self, Fault, Names};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Before the path of a unix socket.
const UNIX: &str = "unix:";
/// Default port of `https`.
const HTTPS: u16 = 443;

/// TLS 1.3 to a switch. The files, in PEM, are read for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that sign the switch's certificate.
    pub ca: PathBuf,
    /// Our certificate and its key, if the switch asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name in the switch's certificate, if it is not the host of the address.
    pub server_name: Option<String>,
}

impl Tls {
    fn names(&self) -> Names {
        Names {
            ca: format!("{}, `ca` of [switch] in the box file", self.ca.display()).into(),
            server: "`server_name` of [switch] in the box file".into(),
            own: "`cert` and `key` of [switch] in the box file".into(),
            plain: "is that the port of its P4Runtime server, and does it serve TLS?".into(),
        }
    }
}

/// Connects. The fault explains errors of TLS, also later ones.
///
/// # Errors
/// If a file is not valid, nothing answers, or the switch's certificate is refused.
pub(super) async fn open(target: &Target) -> Result<(Channel, Option<Fault>), Error> {
    let address = &target.address;
    let wrong = |e: tonic::transport::Error| Error::unreachable(address, &e);
    if let Some(path) = address.strip_prefix(UNIX) {
        let path = PathBuf::from(path);
        let connect = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://switch").connect_timeout(CONNECT);
        let endpoint = endpoint.http2_max_header_list_size(HEADERS);
        let connected = async { endpoint.connect_with_connector(connect).await.map_err(wrong) };
        return Ok((within("a connection", CONNECT, connected).await?, None));
    }
    let endpoint = Endpoint::from_shared(address.clone()).map_err(wrong)?;
    let endpoint = endpoint.connect_timeout(CONNECT).http2_max_header_list_size(HEADERS);
    let Some(tls) = &target.tls else {
        let connected = async { endpoint.connect().await.map_err(wrong) };
        return Ok((within("a connection", CONNECT, connected).await?, None));
    };
    let refused = |why: String| Error::Tls { address: address.clone(), why };
    let own = tls.own.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
    let connector = client::connector(&tls.ca, own).map_err(|error| refused(error.to_string()))?;
    let fault = Fault::new(tls.names());
    let noted = fault.clone();
    let name = tls.server_name.clone();
    let connect = tower::service_fn(move |uri: Uri| {
        let (connector, fault, name) = (connector.clone(), noted.clone(), name.clone());
        async move {
            let host = uri.host().unwrap_or_default();
            let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
            let name = ServerName::try_from(name.unwrap_or_else(|| host.to_owned()));
            let name = name.map_err(std::io::Error::other)?;
            let place = (host, uri.port_u16().unwrap_or(HTTPS));
            client::connect(connector, place, name, fault).await.map(TokioIo::new)
        }
    });
    let connected = async { endpoint.connect_with_connector(connect).await.map_err(wrong) };
    let connected = within("a connection", CONNECT, connected).await;
    let connected = connected.map_err(|error| fault.words().map_or(error, refused));
    Ok((connected?, Some(fault)))
}
