// SPDX-License-Identifier: Apache-2.0
//! One request of a browser: what it is for, and whether it may be answered.

use super::call::Calls;
use super::guard::{Guard, check_path};
use super::sessions::Sessions;
use super::{assets, headers, json, openapi};
use crate::audit::{Audit, Line};
use crate::authorisation::Authorisation;
use crate::caller::Caller;
use crate::connection::Peer;
use crate::refusal::clip;
use crate::shares::{Holder, Over};
use crate::slots::Slot;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, SET_COOKIE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};

pub(super) const JSON: &str = "application/json";
const GRPC_WEB: &str = "application/grpc-web";
const OPENAPI: &str = "/openapi.json";
/// Largest body of a login.
const LOGIN_BYTES: usize = 1 << 10;
/// For the body of a login.
const LOGIN_DEADLINE: Duration = Duration::from_secs(5);

/// The site; one for all connections.
#[derive(Debug)]
pub(super) struct Site {
    guard: Guard,
    sessions: Sessions,
    calls: Calls,
    audit: Audit,
    /// The description of the API, once it was asked for.
    openapi: OnceLock<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

impl Site {
    pub fn new(guard: Guard, sessions: Sessions, routes: Routes, gate: Authorisation) -> Self {
        let audit = gate.audit().clone();
        let calls = Calls::new(routes, gate);
        Self { guard, sessions, calls, audit, openapi: OnceLock::new() }
    }

    /// Answers a request of a peer that reached us at an address.
    pub async fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        slot: &Slot,
        local: Option<SocketAddr>,
    ) -> Response<Body> {
        let path = clip(request.uri().path());
        let mut response = match self.route(request, peer, slot, local).await {
            Ok(response) => response,
            Err(status) => {
                let from = peer.from();
                let line = Line { event: "refused", from, method: &path, ..Line::default() };
                self.calls.gate.note_refusal(line, &status);
                json::refusal(&status)
            }
        };
        headers::add(response.headers_mut(), self.guard.is_secure());
        response
    }

    /// # Errors
    /// A refusal that is not audited yet.
    async fn route(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        slot: &Slot,
        local: Option<SocketAddr>,
    ) -> Result<Response<Body>, Status> {
        let host = self.guard.host_of(&request, local)?;
        check_path(request.uri().path())?;
        let path = request.uri().path();
        match *request.method() {
            Method::GET | Method::HEAD if Calls::serves(path) => Ok(only("POST")),
            Method::GET | Method::HEAD if path == OPENAPI => Ok(self.openapi()),
            Method::GET | Method::HEAD => Ok(assets::answer(path, request.headers())),
            Method::POST => {
                let is_certified = !peer.chain().is_empty();
                self.guard.check_origin(request.headers(), &host, is_certified)?;
                self.post(request, peer, slot).await
            }
            _ => Ok(only("GET, HEAD, POST")),
        }
    }

    fn openapi(&self) -> Response<Body> {
        let document = self.openapi.get_or_init(|| openapi::document().unwrap_or_default().into());
        let mut response = said(StatusCode::OK, Body::new(Full::new(document.clone())));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        response
    }

    async fn post(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        slot: &Slot,
    ) -> Result<Response<Body>, Status> {
        let kind = content_type(request.headers());
        match request.uri().path() {
            "/login" if kind == JSON => self.login(request, peer).await,
            "/logout" if kind == JSON => Ok(self.logout(request.headers(), peer)),
            "/login" | "/logout" => Ok(unsupported(&[JSON])),
            path if !Calls::serves(path) => {
                let message = "there is no such method: see docs/web.md\n";
                Ok(text(StatusCode::NOT_FOUND, message))
            }
            _ => {
                let peer = self.identify(request.headers(), peer);
                if let Ok(caller) = peer.caller(SystemTime::now()) {
                    let full = |over: Over| Status::resource_exhausted(over.told("connections"));
                    slot.identify(Holder::from(&caller)).map_err(full)?;
                }
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer);
                match kind {
                    kind if kind == GRPC_WEB || kind == "application/grpc-web+proto" => {
                        Ok(self.calls.grpc_web(request).await)
                    }
                    kind if kind == JSON => Ok(self.calls.json(request).await),
                    _ => Ok(unsupported(&[JSON, "application/grpc-web+proto"])),
                }
            }
        }
    }

    /// The peer with the session of its cookie, if there is one.
    fn identify(&self, headers: &HeaderMap, peer: &Peer) -> Peer {
        let mut ids = self.guard.session_ids(headers);
        match ids.find_map(|id| self.sessions.find(id)) {
            Some(session) => peer.with_session(session),
            None => peer.clone(),
        }
    }

    /// Exchanges the token of a link for the cookie of a session. Its id is always a new one: a
    /// cookie that the request brings starts nothing, and its session ends.
    async fn login(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> Result<Response<Body>, Status> {
        let (head, body) = request.into_parts();
        let body = timeout(LOGIN_DEADLINE, Limited::new(body, LOGIN_BYTES).collect()).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                let message = format!("the body of a login is longer than {LOGIN_BYTES} bytes");
                return Err(Status::out_of_range(message));
            }
            Err(_) => return Err(Status::deadline_exceeded("the body of the login is missing")),
        };
        let Login { token } = serde_json::from_slice(&body).map_err(|_| {
            Status::invalid_argument("the body of a login is {\"token\": \"...\"}, as JSON")
        })?;
        let (id, session) = self.sessions.start(&token)?;
        for old in self.guard.session_ids(&head.headers) {
            self.sessions.end(old, "you logged in again");
        }
        let peer = peer.with_session(session);
        self.note("login", &peer);
        let mut response = said(StatusCode::NO_CONTENT, Body::empty());
        let cookie = self.guard.cookie(&id, self.sessions.lifetime.as_secs());
        set_cookie(&mut response, &cookie);
        Ok(response)
    }

    fn logout(&self, headers: &HeaderMap, peer: &Peer) -> Response<Body> {
        for id in self.guard.session_ids(headers) {
            if let Some(session) = self.sessions.find(id) {
                self.note("logout", &peer.with_session(session));
                self.sessions.end(id, "you logged out");
            }
        }
        let mut response = said(StatusCode::NO_CONTENT, Body::empty());
        set_cookie(&mut response, &self.guard.cookie("", 0));
        response
    }

    /// Writes the start or the end of a session into the audit log.
    fn note(&self, event: &'static str, peer: &Peer) {
        if let Ok(caller) = peer.caller(SystemTime::now()) {
            let Caller { name, role, from, .. } = &caller;
            tracing::info!(who = name, %role, from, "{event}");
            // It is logged if it fails, and refuses the next change.
            let _ = self.audit.write(&Line::of(event, &caller, ""));
        }
    }
}

/// The content type, without parameters, in lower case.
fn content_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn set_cookie(response: &mut Response<Body>, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}

pub(super) fn said(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

pub(super) fn text(status: StatusCode, text: &str) -> Response<Body> {
    let body = Body::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    let mut response = said(status, body);
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn only(methods: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "the path has other methods\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn unsupported(kinds: &[&str]) -> Response<Body> {
    let kinds = kinds.join(" or ");
    text(StatusCode::UNSUPPORTED_MEDIA_TYPE, &format!("the content type has to be {kinds}\n"))
}

/// The HTTP status of a code, by the Connect protocol.
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
