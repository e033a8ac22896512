// SPDX-License-Identifier: Apache-2.0
//! Connections with TLS.

use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

/// Time limit for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at the same time. Further callers wait to be accepted.
const HANDSHAKES: usize = 32;
/// Pause after a connection could not be accepted, which happens without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The configuration of the next handshake.
pub type Keys = watch::Receiver<Arc<ServerConfig>>;

/// Accepts connections until the stream is dropped. Refused handshakes are logged.
pub(crate) fn accept(
    listener: TcpListener,
    keys: Keys,
) -> ReceiverStream<io::Result<TlsStream<TcpStream>>> {
    let (sender, receiver) = mpsc::channel(1);
    let slots = Arc::new(Semaphore::new(HANDSHAKES));
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = sender.closed() => return,
                accepted = next(&listener, &slots) => accepted,
            };
            let (io, from, slot) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (config, sender) = (keys.borrow().clone(), sender.clone());
            tokio::spawn(async move {
                match shake(io, config).await {
                    Ok(stream) => {
                        // Without a receiver the server has ended.
                        let _ended = sender.send(Ok(stream)).await;
                    }
                    Err(why) => tracing::warn!(%from, "a connection is refused: {why}"),
                }
                drop(slot);
            });
        }
    });
    ReceiverStream::new(receiver)
}

async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (io, from) = listener.accept().await?;
    Ok((io, from, slot))
}

async fn shake(io: TcpStream, config: Arc<ServerConfig>) -> Result<TlsStream<TcpStream>, String> {
    let shaken = async {
        io.set_nodelay(true)?;
        TlsAcceptor::from(config).accept(io).await
    };
    match tokio::time::timeout(HANDSHAKE, shaken).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            Err(tls.map_or_else(|| error.to_string(), tls::server::reason))
        }
        Err(_) => Err(format!("the handshake was not done within {} s", HANDSHAKE.as_secs())),
    }
}
