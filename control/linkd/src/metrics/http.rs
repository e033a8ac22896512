// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 for one resource, `GET /metrics`.
//!
//! Everything is bounded: connections at once, the size of a request, and the time from
//! its connection to its end. A connection serves one request. When all slots are taken, a new
//! connection replaces the oldest one without a complete request head, so that incomplete requests
//! cannot block others.

use super::scrape::Scraper;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;

/// Connections at once. If all of them have sent their request, more wait in the kernel.
const CONNECTIONS: usize = 32;
/// From a connection to its last byte.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(15);
/// For the head of a request.
const HEAD_DEADLINE: Duration = Duration::from_secs(5);
const HEAD_BYTES: usize = 16 << 10;
const HEAD_FIELDS: usize = 64;
/// After a connection could not be accepted, which happens without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const CLASSIC_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// A connection that may have ended.
struct Open {
    task: AbortHandle,
    /// Whether the request head is complete.
    asked: Arc<AtomicBool>,
}

/// Ends the oldest connection without a complete request head, if all slots are taken.
fn make_room(open: &mut Vec<Open>) {
    open.retain(|connection| !connection.task.is_finished());
    if open.len() < CONNECTIONS {
        return;
    }
    if let Some(idle) = open.iter().position(|it| !it.asked.load(Ordering::Relaxed)) {
        open.remove(idle).task.abort();
        tracing::debug!("closed an idle connection for metrics to make room for another one");
    }
}

/// Serves until `stopping` is true; connections in work are left then.
pub(super) async fn serve(
    listener: TcpListener,
    scraper: Arc<Scraper>,
    mut stopping: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let accepting = async {
        let mut open = Vec::new();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    make_room(&mut open);
                    let Ok(slot) = slots.clone().acquire_owned().await else { return };
                    let asked = Arc::<AtomicBool>::default();
                    let serving = connection(stream, scraper.clone(), asked.clone(), slot);
                    open.push(Open { task: tokio::spawn(serving).abort_handle(), asked });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for metrics");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}

async fn connection(
    stream: TcpStream,
    scraper: Arc<Scraper>,
    asked: Arc<AtomicBool>,
    _slot: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        let scraper = scraper.clone();
        async move { Ok::<_, Infallible>(answer(&request, &scraper).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // The caller sees its own errors.
    match tokio::time::timeout(CONNECTION_DEADLINE, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a request for metrics"),
        Err(_) => tracing::debug!("a request for metrics took over {CONNECTION_DEADLINE:?}"),
    }
}

async fn answer(request: &Request<Incoming>, scraper: &Scraper) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return said(StatusCode::NOT_FOUND, PLAIN_TEXT, "metrics are at /metrics\n");
    }
    if *request.method() != Method::GET && *request.method() != Method::HEAD {
        let mut refusal = said(StatusCode::METHOD_NOT_ALLOWED, PLAIN_TEXT, "only GET\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match scraper.scrape().await {
        Ok(text) => said(StatusCode::OK, CLASSIC_TEXT, text),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            said(StatusCode::INTERNAL_SERVER_ERROR, PLAIN_TEXT, "metrics cannot be written\n")
        }
    }
}

fn said(
    status: StatusCode,
    content: &'static str,
    text: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
