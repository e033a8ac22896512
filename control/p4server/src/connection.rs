// SPDX-License-Identifier: Apache-2.0
//! Connections with a number, so that a call can be told from one of another connection.

use crate::encrypted::{self, Keys};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::Connected;

/// Where controllers connect.
#[derive(Debug)]
pub enum Listener {
    /// Whoever may write to the socket's file controls the switch.
    Unix(UnixListener),
    /// Whoever reaches the address controls the switch, unless there are keys.
    Tcp(TcpListener, Option<Keys>),
}

/// The number of a connection, ascending from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub u64);

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection, with TLS after its handshake.
pub(crate) struct Connection {
    io: Box<dyn Io>,
    number: Number,
}

impl Listener {
    /// All connections, until it fails.
    pub(crate) fn connections(self) -> impl Stream<Item = io::Result<Connection>> + Send {
        fn boxed<T: Io + 'static>(io: io::Result<T>) -> io::Result<Box<dyn Io>> {
            io.map(|io| Box::new(io) as Box<dyn Io>)
        }
        type Ios = Pin<Box<dyn Stream<Item = io::Result<Box<dyn Io>>> + Send>>;
        let ios: Ios = match self {
            Self::Unix(listener) => Box::pin(UnixListenerStream::new(listener).map(boxed)),
            Self::Tcp(listener, None) => Box::pin(TcpListenerStream::new(listener).map(boxed)),
            Self::Tcp(listener, Some(keys)) => {
                Box::pin(encrypted::accept(listener, keys).map(boxed))
            }
        };
        let mut last = 0;
        ios.map(move |io| {
            last += 1;
            io.map(|io| Connection { io, number: Number(last) })
        })
    }
}

impl Connected for Connection {
    type ConnectInfo = Number;

    fn connect_info(&self) -> Number {
        self.number
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
