// SPDX-License-Identifier: Apache-2.0
//! Connections with TLS.
//!
//! Callers without a certificate must not keep others out. A connection costs a handshake only once it has
//! sent something; of silent ones the oldest of the address with the most is closed if there are too many.
//! Handshakes have turns, in the order of the least served address.

use crate::fair::Fair;
use rustls::ServerConfig;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

/// Time limit for a handshake, and for the first byte before it.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at the same time.
const HANDSHAKES: usize = 32;
/// Connections that have sent nothing, and those that wait for their turn: each far fewer than a process may
/// have open.
const WAITING: usize = 256;
/// Pause after a connection could not be accepted, which happens without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The configuration of the next handshake.
pub type Keys = watch::Receiver<Arc<ServerConfig>>;

/// Who waits before a handshake.
struct Door {
    waiting: Mutex<Waiting>,
    /// Somebody waits for a turn.
    news: Notify,
}

struct Waiting {
    /// Connections that have sent nothing. One whose sender is dropped is closed.
    silent: Fair<oneshot::Sender<()>>,
    /// Connections that wait for the permission for a handshake.
    turns: Fair<oneshot::Sender<OwnedSemaphorePermit>>,
}

impl Door {
    fn new() -> Self {
        let (silent, turns) = (Fair::new(WAITING), Fair::new(WAITING));
        Self { waiting: Mutex::new(Waiting { silent, turns }), news: Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives turns, while polled.
    async fn serve(&self) {
        let slots = Arc::new(Semaphore::new(HANDSHAKES));
        while let Ok(slot) = slots.clone().acquire_owned().await {
            let next = loop {
                let next = self.waiting().turns.pop();
                match next {
                    Some(next) => break next,
                    None => self.news.notified().await,
                }
            };
            // Without a receiver it has gone, and the slot is free again.
            let _gone = next.send(slot);
        }
    }

    /// Waits until the caller has sent something.
    async fn greeting(&self, io: &TcpStream, from: IpAddr) -> Result<(), String> {
        let (stays, leaves) = oneshot::channel::<()>();
        let (number, gone) = self.waiting().silent.push(from, stays);
        drop(gone);
        let mut first = [0];
        let greeting = async {
            tokio::select! {
                // Bytes that are there already count before a place that was lost.
                biased;
                read = io.peek(&mut first) => read.map(|_| ()).map_err(|error| error.to_string()),
                _ = leaves => Err("it sent nothing, and too many others wait".to_owned()),
            }
        };
        let greeted = timeout(HANDSHAKE, greeting).await;
        self.waiting().silent.remove(from, number);
        greeted.unwrap_or_else(|_| Err(format!("it sent nothing within {} s", HANDSHAKE.as_secs())))
    }

    async fn turn(&self, from: IpAddr) -> Result<OwnedSemaphorePermit, String> {
        let (give, given) = oneshot::channel();
        let (_, gone) = self.waiting().turns.push(from, give);
        drop(gone);
        self.news.notify_one();
        given.await.map_err(|_| "too many others wait for a handshake".to_owned())
    }
}

/// Accepts connections until the stream is dropped. Refused handshakes are logged.
pub(crate) fn accept(
    listener: TcpListener,
    keys: Keys,
) -> ReceiverStream<io::Result<TlsStream<TcpStream>>> {
    let (sender, receiver) = mpsc::channel(1);
    let door = Arc::new(Door::new());
    tokio::spawn(async move {
        let serving = door.serve();
        tokio::pin!(serving);
        loop {
            let accepted = tokio::select! {
                () = sender.closed() => return,
                () = &mut serving => return,
                accepted = listener.accept() => accepted,
            };
            let (io, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (door, keys, sender) = (door.clone(), keys.clone(), sender.clone());
            tokio::spawn(async move {
                match admit(&door, io, from, &keys).await {
                    Ok(stream) => {
                        // Without a receiver the server has ended.
                        let _ended = sender.send(Ok(stream)).await;
                    }
                    Err(why) => tracing::warn!(%from, "a connection is refused: {why}"),
                }
            });
        }
    });
    ReceiverStream::new(receiver)
}

async fn admit(
    door: &Door,
    io: TcpStream,
    from: SocketAddr,
    keys: &Keys,
) -> Result<TlsStream<TcpStream>, String> {
    let from = from.ip().to_canonical();
    door.greeting(&io, from).await?;
    let _turn = door.turn(from).await?;
    let config = keys.borrow().clone();
    shake(io, config).await
}

async fn shake(io: TcpStream, config: Arc<ServerConfig>) -> Result<TlsStream<TcpStream>, String> {
    let shaken = async {
        io.set_nodelay(true)?;
        TlsAcceptor::from(config).accept(io).await
    };
    match timeout(HANDSHAKE, shaken).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            Err(tls.map_or_else(|| error.to_string(), tls::server::reason))
        }
        Err(_) => Err(format!("the handshake was not done within {} s", HANDSHAKE.as_secs())),
    }
}
