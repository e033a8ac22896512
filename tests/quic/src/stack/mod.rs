// SPDX-License-Identifier: Apache-2.0
//! QUIC stacks behind one interface.

use std::future::Future;
use std::net::{SocketAddr, UdpSocket};

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::report::PathSample;

pub mod quinn;
#[cfg(feature = "s2n")]
pub mod s2n;

/// Flow-control window of connections and streams. Far above rate × (delay + queue) of all studies,
/// so that only the congestion window limits a flow.
pub const WINDOW: u32 = 64 << 20;
/// Bytes that the sending application may be ahead of the acknowledgements.
pub const SEND_BUFFER: u32 = 16 << 20;
/// Bytes of a UDP socket's buffers. The kernel limits them (`net.core.rmem_max`, `wmem_max`).
const SOCKET_BUFFER: usize = 4 << 20;
/// Streams that the client may open at once.
pub const STREAMS: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackName {
    /// quinn: Cubic as in RFC 8312 without HyStart, and BBR after Chromium's BBR v1, with
    /// three quarters of a bandwidth-delay product in flight while it probes the round-trip time.
    Quinn,
    /// s2n-quic: Cubic with hybrid slow start, and BBR v2.
    #[cfg(feature = "s2n")]
    S2n,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    Cubic,
    Bbr,
}

/// Settings that all stacks have in common.
#[derive(Clone, Copy, Debug, Args)]
pub struct Settings {
    /// UDP payload of full packets, in bytes; the size is not probed
    #[arg(long, default_value_t = 1350, value_parser = clap::value_parser!(u16).range(1200..=1472))]
    pub payload: u16,
    /// Initial congestion window, in full packets
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub initial_window: u16,
}

impl Settings {
    #[must_use]
    pub fn initial_window_bytes(self) -> u32 {
        u32::from(self.payload) * u32::from(self.initial_window)
    }
}

/// A connection of either side.
pub trait Connection: Send + 'static {
    type Send: AsyncWrite + Send + Unpin + 'static;
    type Receive: AsyncRead + Send + Unpin + 'static;
    type Path: Path;

    fn peer(&self) -> Result<SocketAddr>;

    fn open(&mut self) -> impl Future<Output = Result<(Self::Send, Self::Receive)>> + Send;

    /// The next stream of the peer, or none when the connection has ended.
    fn accept(&mut self) -> impl Future<Output = Option<(Self::Send, Self::Receive)>> + Send;

    fn path(&self) -> Self::Path;

    /// Sends the close and waits until it has left.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Figures of a connection's path.
pub trait Path: Send + 'static {
    /// The current state; `at_s` is left to the caller.
    fn sample(&self) -> PathSample;
}

pub trait Server: Send + 'static {
    type Connection: Connection;

    /// The next connection with a completed handshake, or none when the socket is closed.
    fn accept(&mut self) -> impl Future<Output = Option<Self::Connection>> + Send;

    fn local_address(&self) -> Result<SocketAddr>;
}

/// Gives a socket buffers for the arrivals of a stall of the receiving process.
pub fn deepen(socket: &UdpSocket) -> Result<()> {
    let socket = SockRef::from(socket);
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    Ok(())
}
