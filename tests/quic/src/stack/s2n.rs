// SPDX-License-Identifier: Apache-2.0
//! The stack of aws/s2n-quic.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use s2n_quic::client::Connect;
use s2n_quic::provider::congestion_controller::{bbr, cubic};
use s2n_quic::provider::event::events::{
    DatagramReceived, PacketLost, PacketSent, RecoveryMetrics,
};
use s2n_quic::provider::event::{self, ConnectionInfo, ConnectionMeta};
use s2n_quic::provider::io::tokio as io;
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::rustls as tls;
use s2n_quic::stream::{ReceiveStream, SendStream};

use super::{Congestion, Connection, Path, SEND_BUFFER, STREAMS, Server, Settings, WINDOW};
use crate::report::PathSample;
use crate::secret::{PROTOCOL, SERVER_NAME, Secret};

/// IPv4 and UDP headers, which this stack counts in its MTU.
const HEADERS: u16 = 28;
/// Time for a close to leave.
const CLOSING: Duration = Duration::from_millis(50);

pub struct S2nServer(s2n_quic::Server);

pub struct S2nConnection {
    connection: s2n_quic::Connection,
    /// Dropping it would end the client's connections.
    _client: Option<s2n_quic::Client>,
}

/// Latest state of a connection's path, kept by [`Watch`].
#[derive(Clone, Default)]
pub struct Latest(Arc<Mutex<PathSample>>);

/// Event subscriber that keeps the latest state.
struct Watch;

impl S2nServer {
    pub fn bind(
        socket: UdpSocket,
        secret: &Secret,
        congestion: Congestion,
        settings: Settings,
    ) -> Result<Self> {
        let tls = tls::Server::builder()
            .with_certificate(vec![secret.x509.clone()], secret.key.clone())
            .map_err(refused)?
            .with_application_protocols([PROTOCOL].iter())
            .map_err(refused)?
            .build()
            .map_err(refused)?;
        let builder = s2n_quic::Server::builder()
            .with_tls(tls)?
            .with_io(packets(socket, settings)?)?
            .with_limits(limits()?)?
            .with_event(Watch)?;
        let window = settings.initial_window_bytes();
        let server = match congestion {
            Congestion::Cubic => {
                let cubic = cubic::Builder::default().with_initial_congestion_window(window);
                builder.with_congestion_controller(cubic.build())?.start()
            }
            Congestion::Bbr => {
                let bbr = bbr::Builder::default().with_initial_congestion_window(window);
                builder.with_congestion_controller(bbr.build())?.start()
            }
        };
        Ok(Self(server.map_err(refused)?))
    }
}

impl Server for S2nServer {
    type Connection = S2nConnection;

    async fn accept(&mut self) -> Option<S2nConnection> {
        let connection = self.0.accept().await?;
        Some(S2nConnection { connection, _client: None })
    }

    fn local_address(&self) -> Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }
}

/// Connects to a server and trusts its X.509 certificate.
pub async fn connect(
    socket: UdpSocket,
    server: SocketAddr,
    x509: &[u8],
    settings: Settings,
) -> Result<S2nConnection> {
    let tls = tls::Client::builder()
        .with_certificate(vec![x509.to_vec()])
        .map_err(refused)?
        .with_application_protocols([PROTOCOL].iter())
        .map_err(refused)?
        .build()
        .map_err(refused)?;
    let client = s2n_quic::Client::builder()
        .with_tls(tls)?
        .with_io(packets(socket, settings)?)?
        .with_limits(limits()?)?
        .with_event(Watch)?
        .start()
        .map_err(refused)?;
    let connect = Connect::new(server).with_server_name(SERVER_NAME);
    let connection = client.connect(connect).await.context("handshake")?;
    Ok(S2nConnection { connection, _client: Some(client) })
}

fn refused(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("s2n-quic: {error}")
}

fn packets(socket: UdpSocket, settings: Settings) -> Result<io::Provider> {
    let mtu = settings.payload + HEADERS;
    let packets = io::Provider::builder()
        .with_rx_socket(socket)?
        .with_base_mtu(mtu)?
        .with_initial_mtu(mtu)?
        .with_max_mtu(mtu)?
        .build()?;
    Ok(packets)
}

fn limits() -> Result<Limits> {
    let limits = Limits::new()
        .with_data_window(WINDOW.into())?
        .with_bidirectional_local_data_window(WINDOW.into())?
        .with_bidirectional_remote_data_window(WINDOW.into())?
        .with_max_send_buffer_size(SEND_BUFFER)?
        .with_max_open_local_bidirectional_streams(STREAMS.into())?
        .with_max_open_remote_bidirectional_streams(STREAMS.into())?;
    Ok(limits)
}

impl Connection for S2nConnection {
    type Send = SendStream;
    type Receive = ReceiveStream;
    type Path = Latest;

    fn peer(&self) -> Result<SocketAddr> {
        Ok(self.connection.remote_addr()?)
    }

    async fn open(&mut self) -> Result<(SendStream, ReceiveStream)> {
        let stream = self.connection.open_bidirectional_stream().await?;
        let (receive, send) = stream.split();
        Ok((send, receive))
    }

    async fn accept(&mut self) -> Option<(SendStream, ReceiveStream)> {
        let stream = self.connection.accept_bidirectional_stream().await.ok()??;
        let (receive, send) = stream.split();
        Some((send, receive))
    }

    fn path(&self) -> Latest {
        self.connection.query_event_context(|latest: &Latest| latest.clone()).unwrap_or_default()
    }

    async fn close(self) {
        self.connection.close(0u32.into());
        tokio::time::sleep(CLOSING).await;
    }
}

impl Latest {
    fn change(&self, change: impl FnOnce(&mut PathSample)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Path for Latest {
    fn sample(&self) -> PathSample {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl event::Subscriber for Watch {
    type ConnectionContext = Latest;

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) -> Latest {
        Latest::default()
    }

    fn on_recovery_metrics(&mut self, path: &mut Latest, _: &ConnectionMeta, e: &RecoveryMetrics) {
        path.change(|p| {
            p.window_bytes = e.congestion_window.into();
            p.rtt_ms = e.smoothed_rtt.as_secs_f64() * 1e3;
        });
    }

    fn on_packet_sent(&mut self, path: &mut Latest, _: &ConnectionMeta, _: &PacketSent) {
        path.change(|p| p.sent += 1);
    }

    fn on_datagram_received(
        &mut self,
        path: &mut Latest,
        _: &ConnectionMeta,
        e: &DatagramReceived,
    ) {
        path.change(|p| p.received_bytes += u64::from(e.len));
    }

    fn on_packet_lost(&mut self, path: &mut Latest, _: &ConnectionMeta, _: &PacketLost) {
        path.change(|p| p.lost += 1);
    }
}
