// SPDX-License-Identifier: Apache-2.0
//! The stack of quinn-rs/quinn.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::task::JoinSet;

use super::{Congestion, Connection, Path, SEND_BUFFER, STREAMS, Server, Settings, WINDOW};
use crate::report::PathSample;
use crate::secret::{PROTOCOL, SERVER_NAME, Secret};

/// Time for a close to leave.
const CLOSING: Duration = Duration::from_millis(50);

pub struct QuinnServer {
    endpoint: Endpoint,
    /// Handshakes of several clients go on at once.
    handshakes: JoinSet<Result<quinn::Connection, quinn::ConnectionError>>,
}

#[derive(Clone)]
pub struct QuinnConnection {
    connection: quinn::Connection,
    endpoint: Endpoint,
}

impl QuinnServer {
    pub fn bind(
        socket: UdpSocket,
        secret: &Secret,
        congestion: Congestion,
        settings: Settings,
    ) -> Result<Self> {
        let key = PrivatePkcs8KeyDer::from(secret.key.clone());
        let chain = vec![CertificateDer::from(secret.x509.clone())];
        let mut tls = rustls::ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key.into())?;
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
        config.transport_config(Arc::new(transport(congestion, settings)));
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
        Ok(Self { endpoint, handshakes: JoinSet::new() })
    }
}

impl Server for QuinnServer {
    type Connection = QuinnConnection;

    async fn accept(&mut self) -> Option<QuinnConnection> {
        loop {
            tokio::select! {
                incoming = self.endpoint.accept() => {
                    self.handshakes.spawn(incoming?.into_future());
                }
                Some(ended) = self.handshakes.join_next() => {
                    // A handshake that fails is not a connection.
                    if let Ok(Ok(connection)) = ended {
                        return Some(QuinnConnection { connection, endpoint: self.endpoint.clone() });
                    }
                }
            }
        }
    }

    fn local_address(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.local_addr()?)
    }
}

/// Connects to a server and trusts its X.509 certificate.
pub async fn connect(
    socket: UdpSocket,
    server: SocketAddr,
    x509: &[u8],
    settings: Settings,
) -> Result<QuinnConnection> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(x509))?;
    let mut tls = rustls::ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    // The client sends requests and acknowledgements only.
    config.transport_config(Arc::new(transport(Congestion::Cubic, settings)));
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)?;
    let connecting = endpoint.connect_with(config, server, SERVER_NAME)?;
    let connection = connecting.await.context("handshake")?;
    Ok(QuinnConnection { connection, endpoint })
}

fn transport(congestion: Congestion, settings: Settings) -> TransportConfig {
    let window = u64::from(settings.initial_window_bytes());
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        Congestion::Cubic => {
            let mut config = CubicConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
        Congestion::Bbr => {
            let mut config = BbrConfig::default();
            config.initial_window(window);
            Arc::new(config)
        }
    };
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(factory)
        .initial_mtu(settings.payload)
        .mtu_discovery_config(None)
        .receive_window(WINDOW.into())
        .stream_receive_window(WINDOW.into())
        .send_window(SEND_BUFFER.into())
        .max_concurrent_bidi_streams(STREAMS.into());
    transport
}

impl Connection for QuinnConnection {
    type Send = quinn::SendStream;
    type Receive = quinn::RecvStream;
    type Path = quinn::Connection;

    fn peer(&self) -> Result<SocketAddr> {
        Ok(self.connection.remote_address())
    }

    async fn open(&mut self) -> Result<(Self::Send, Self::Receive)> {
        Ok(self.connection.open_bi().await?)
    }

    async fn accept(&mut self) -> Option<(Self::Send, Self::Receive)> {
        self.connection.accept_bi().await.ok()
    }

    fn path(&self) -> Self::Path {
        self.connection.clone()
    }

    async fn close(self) {
        self.connection.close(0u32.into(), b"");
        // The endpoint is idle only after three probe timeouts, which is seconds on a long link.
        let _ = tokio::time::timeout(CLOSING, self.endpoint.wait_idle()).await;
    }
}

impl Path for quinn::Connection {
    fn sample(&self) -> PathSample {
        let stats = self.stats();
        let path = stats.path;
        PathSample {
            at_s: 0.0,
            window_bytes: path.cwnd,
            rtt_ms: path.rtt.as_secs_f64() * 1e3,
            sent: path.sent_packets,
            lost: path.lost_packets,
            received_bytes: stats.udp_rx.bytes,
        }
    }
}
