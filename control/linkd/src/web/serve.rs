// SPDX-License-Identifier: Apache-2.0
//! Connections of browsers.
//!
//! Bounded are their number, the handshake of TLS, the head of each request, and the time for which a
//! browser may leave an answer unread.

use super::site::Site;
use crate::accept::{CROWDED, linger, reason, settled};
use crate::audit::Audit;
use crate::connection::Connection;
use crate::intake::{CONNECTION_WINDOW, STREAM_WINDOW};
use crate::limits::Limits;
use crate::slots::{Slot, Slots};
use crate::tls::Keys;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;

/// Largest head of a request.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_FIELDS: usize = 64;
/// Streams of HTTP/2 at once.
const STREAMS: u32 = 64;

/// The listener of browsers.
pub(super) struct Entrance {
    pub listener: TcpListener,
    pub keys: Option<Arc<Keys>>,
    pub slots: Slots,
    pub limits: Limits,
    pub audit: Audit,
    pub site: Arc<Site>,
}

/// What a task of one connection needs.
#[derive(Clone)]
struct Open {
    keys: Option<Arc<Keys>>,
    limits: Limits,
    audit: Audit,
    site: Arc<Site>,
    stopping: watch::Receiver<bool>,
    /// Dropped with the last connection.
    _open: mpsc::Sender<Infallible>,
}

/// Serves until `stopping` is true and the requests in progress have ended.
pub(super) async fn serve(entrance: Entrance, mut stopping: watch::Receiver<bool>) {
    let Entrance { listener, keys, slots, limits, audit, site } = entrance;
    let (_open, mut closed) = mpsc::channel(1);
    let open = Open { keys, limits, audit, site, stopping: stopping.clone(), _open };
    loop {
        let accepted = tokio::select! {
            () = stopped(&mut stopping) => break,
            accepted = listener.accept() => accepted,
        };
        let Some((io, from)) = settled(accepted).await else { continue };
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let slot = Arc::new(slots.enter(from.ip()));
        let (open, audit) = (open.clone(), open.audit.clone());
        tokio::spawn(async move {
            let closed = slot.closed();
            tokio::select! {
                () = open.connection(io, from, slot) => {}
                () = closed => audit.handshake_refused(from, CROWDED),
            }
        });
    }
    drop(open);
    let _ = closed.recv().await;
}

impl Open {
    async fn connection(self, io: TcpStream, from: SocketAddr, slot: Arc<Slot>) {
        let deadline = Instant::now() + self.limits.handshake;
        // Otherwise each answer waits for a delayed acknowledgement.
        if io.set_nodelay(true).is_err() {
            return;
        }
        let name = format!("web {from}");
        let room = slot.clone();
        let connection = match &self.keys {
            None => Connection::web_tcp(io, name, slot),
            Some(keys) => {
                let accept = TlsAcceptor::from(keys.web_config()).accept(io).into_fallible();
                match timeout(self.limits.handshake, accept).await {
                    Ok(Ok(io)) => Connection::web_tls(io, name, keys.clone(), slot, deadline),
                    Ok(Err((error, io))) => {
                        self.audit.handshake_refused(from, &reason(&error));
                        linger(io).await;
                        return;
                    }
                    Err(_) => {
                        let limit = self.limits.handshake;
                        let why = format!("handshake was not there within {limit:?}");
                        self.audit.handshake_refused(from, &why);
                        return;
                    }
                }
            }
        };
        let connection = connection.with_unread(self.limits.web_unread);
        self.serve(connection, room).await;
    }

    async fn serve(mut self, connection: Connection, slot: Arc<Slot>) {
        let (peer, local) = (connection.peer().clone(), connection.local_address());
        let (is_http2, site) = (connection.is_http2(), self.site.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (site, peer, slot) = (site.clone(), peer.clone(), slot.clone());
            async move {
                let answer = site.answer(request, &peer, &slot, local).await;
                Ok::<Response<Body>, Infallible>(answer)
            }
        });
        let io = TokioIo::new(connection);
        let Limits { quiet, dead, web_head, .. } = self.limits;
        // The caller sees its own errors.
        macro_rules! serve {
            ($serving:expr) => {{
                let mut serving = pin!($serving);
                tokio::select! {
                    ended = &mut serving => ended,
                    () = stopped(&mut self.stopping) => {
                        serving.as_mut().graceful_shutdown();
                        serving.await
                    }
                }
            }};
        }
        let ended = if is_http2 {
            serve!(
                http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .max_concurrent_streams(STREAMS)
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_header_list_size(HEAD_BYTES as u32)
                    .keep_alive_interval(quiet)
                    .keep_alive_timeout(dead)
                    .serve_connection(io, service)
            )
        } else {
            serve!(
                http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(web_head)
                    .max_buf_size(HEAD_BYTES)
                    .max_headers(HEAD_FIELDS)
                    .serve_connection(io, service)
            )
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection of a browser");
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error is the end as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
