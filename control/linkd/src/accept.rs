// SPDX-License-Identifier: Apache-2.0
//! Accepts connections of the listeners.
//!
//! Each handshake is a task with a slot and a deadline, so that one that hangs delays no other.
//! Refused ones, and those that made room for others, go into the audit log.

use crate::audit::Audit;
use crate::connection::Connection;
use crate::limits::Limits;
use crate::shares::{Holder, Limit, Shares};
use crate::slots::{Slot, Slots};
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

/// Why a connection is closed for a newer one.
pub(crate) const CROWDED: &str =
    "too many connections show no certificate and no session: this one made room for another";
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
    let Limits { connections: all, per_user: caller, .. } = *limits;
    let shares = Shares::new(Limit { caller, address: all, all });
    tokio::spawn(accept_unix(unix, shares, limits.handshake, sender.clone()));
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

async fn accept_unix(listener: UnixListener, shares: Shares, handshake: Duration, sender: Sender) {
    let refusals = Shares::new(Limit { caller: REFUSALS, address: REFUSALS, all: REFUSALS });
    let owners = [0, Uid::effective().as_raw()];
    loop {
        let accepted = tokio::select! {
            () = sender.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let Some((io, _)) = settled(accepted).await else { continue };
        let peer = match io.peer_cred() {
            Ok(user) if !owners.contains(&user.uid()) => Holder::user(user.uid()),
            Ok(_) => Holder::owner(),
            // It is gone already.
            Err(_) => continue,
        };
        let deadline = Instant::now() + handshake;
        let connection = match shares.take(peer, 1) {
            Ok(share) => Connection::unix(io, share, deadline),
            Err(over) => {
                let why = over.told("connections");
                tracing::warn!(why, "a connection to the unix socket is refused");
                let Ok(share) = refusals.take(Holder::owner(), 1) else { continue };
                Connection::refusal(io, why, share, deadline)
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
            let slot = Arc::new(self.slots.enter(from.ip()));
            let (door, sender) = (self.clone(), sender.clone());
            tokio::spawn(async move { door.shake(io, from, slot, sender).await });
        }
    }

    /// A handshake, and the first byte after it.
    async fn shake(self, io: TcpStream, from: SocketAddr, slot: Arc<Slot>, sender: Sender) {
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
        let greeted = tokio::select! {
            greeted = timeout(limit, greet) => greeted,
            () = slot.closed() => {
                self.audit.handshake_refused(from, CROWDED);
                return;
            }
        };
        match greeted {
            Ok(Ok(stream)) => {
                let (from, keys) = (from.to_string(), self.keys.clone());
                let connection = Connection::tls(stream, from, keys, slot, deadline).identified();
                let _ = sender.send(Ok(connection)).await;
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
