// SPDX-License-Identifier: Apache-2.0
//! Accepts connections of the listeners.
//!
//! Each handshake is a task with a slot and a deadline, so that one that hangs delays no other.
//! Refused ones go into the audit log.

use crate::audit::Audit;
use crate::connection::Connection;
use crate::limits::{Limits, Peer, Slot, Slots};
use crate::tls::{self, Keys};
use nix::unistd::Uid;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

/// After a connection could not be accepted, which happens without free file
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Limits of time and bytes for reading from a refused peer, so that the reason reaches it: closing
/// a socket with unread bytes discards sent data.
const LINGER: (Duration, u64) = (Duration::from_secs(1), 64 << 10);

/// Refusals that are sent at a time to connections over the unix socket beyond the limit.
const REFUSALS: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub keys: Arc<Keys>,
    pub limits: Limits,
    pub slots: Slots,
    pub audit: Audit,
}

/// Accepted connections, until the stream is dropped.
pub(crate) type Incoming = ReceiverStream<Result<Connection, Infallible>>;
type Sender = mpsc::Sender<Result<Connection, Infallible>>;

/// Accepts on the unix socket, and on TCP behind a door.
pub(crate) fn accept(
    unix: UnixListener,
    limits: &Limits,
    tcp: Option<(TcpListener, Door)>,
) -> Incoming {
    let (sender, receiver) = mpsc::channel(1);
    let slots = Slots::new(limits.connections, limits.per_user, limits.connections.div_ceil(8));
    tokio::spawn(accept_unix(unix, slots, limits.handshake, sender.clone()));
    if let Some((listener, door)) = tcp {
        tokio::spawn(door.accept(listener, sender));
    }
    ReceiverStream::new(receiver)
}

/// The accepted connection. After a failure none, with a delay.
pub(crate) async fn settled<T>(accepted: io::Result<T>) -> Option<T> {
    match accepted {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn accept_unix(listener: UnixListener, slots: Slots, handshake: Duration, sender: Sender) {
    let refusals = Slots::new(REFUSALS, REFUSALS, 0);
    let owners = [0, Uid::effective().as_raw()];
    loop {
        let accepted = tokio::select! {
            () = sender.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let Some((io, _)) = settled(accepted).await else { continue };
        let peer = match io.peer_cred() {
            Ok(user) if !owners.contains(&user.uid()) => Peer::User(user.uid()),
            Ok(_) => Peer::Owner,
            // It is gone already.
            Err(_) => continue,
        };
        let deadline = Instant::now() + handshake;
        let connection = match slots.take(peer) {
            Ok(slot) => Connection::unix(io, slot, deadline),
            Err(why) => {
                tracing::warn!(why, "a connection to the unix socket is refused");
                let Ok(slot) = refusals.take(Peer::Owner) else { continue };
                Connection::refusal(io, why, slot, deadline)
            }
        };
        let _ = sender.send(Ok(connection)).await;
    }
}

impl Door {
    async fn accept(self, listener: TcpListener, sender: Sender) {
        loop {
            let accepted = tokio::select! {
                () = sender.closed() => return,
                accepted = listener.accept() => accepted,
            };
            let Some((io, from)) = settled(accepted).await else { continue };
            // IPv4 is written as such on a socket that takes both.
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            match self.slots.take(Peer::Address(from.ip())) {
                Ok(slot) => {
                    let (door, sender) = (self.clone(), sender.clone());
                    tokio::spawn(async move { door.shake(io, from, slot, sender).await });
                }
                Err(why) => self.audit.handshake_refused(from, &why),
            }
        }
    }

    /// A handshake, and the first byte after it.
    async fn shake(self, io: TcpStream, from: SocketAddr, slot: Slot, sender: Sender) {
        let limit = self.limits.handshake;
        let deadline = Instant::now() + limit;
        let greet = async {
            io.set_nodelay(true).map_err(|error| (error, None))?;
            let accept = TlsAcceptor::from(self.keys.config()).accept(io).into_fallible();
            let mut stream = accept.await.map_err(|(error, io)| (error, Some(io)))?;
            // A client that sends nothing after it holds no slot either.
            match stream.fill_buf().await {
                Ok([]) => Err((io::ErrorKind::UnexpectedEof.into(), None)),
                Ok(_) => Ok(stream),
                Err(error) => Err((error, None)),
            }
        };
        match timeout(limit, greet).await {
            Ok(Ok(stream)) => {
                let _ = sender
                    .send(Ok(Connection::tls(
                        stream,
                        from.to_string(),
                        self.keys.clone(),
                        slot,
                        deadline,
                    )))
                    .await;
            }
            Ok(Err((error, io))) => {
                self.audit.handshake_refused(from, &reason(&error));
                if let Some(io) = io {
                    linger(io).await;
                }
            }
            Err(_) => {
                let why = format!("handshake and first byte were not there within {limit:?}");
                self.audit.handshake_refused(from, &why);
            }
        }
    }
}

/// Closes a connection in a way that lets the peer read the alert.
pub(crate) async fn linger(mut io: TcpStream) {
    let (duration, bytes) = LINGER;
    let drain = async {
        io.shutdown().await?;
        tokio::io::copy(&mut io.take(bytes), &mut tokio::io::sink()).await
    };
    // Either way it is closed after it.
    let _ = timeout(duration, drain).await;
}

/// Why a handshake failed, in words.
pub(crate) fn reason(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(tls) => tls::reason(tls),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the caller closed the connection before it said anything".into()
        }
        None => error.to_string(),
    }
}
