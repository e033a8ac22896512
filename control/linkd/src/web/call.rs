// SPDX-License-Identifier: Apache-2.0
//! Calls of browsers: gRPC-Web in front of the same authorisation and services as native gRPC.

use crate::audit::Line;
use crate::authorisation::{Authorisation, method_of};
use crate::budget::Account;
use crate::connection::Peer;
use crate::refusal::clip;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame};
use proto::method;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_web::GrpcWebLayer;
use tower::{Layer, ServiceExt};

use super::sessions::{REQUESTS, STREAMS};

/// Methods that browsers may call.
const PACKAGE: &str = "linkemu.v1.";
/// Deadline of a request, from its head to the head of its answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// Streams of all browsers, and their other requests.
const ALL_STREAMS: usize = 64;
const ALL_REQUESTS: usize = 256;

/// The services, behind the authorisation.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    routes: Routes,
    pub(super) gate: Authorisation,
    streams: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

impl Calls {
    pub fn new(routes: Routes, gate: Authorisation) -> Self {
        let semaphore = |all| Arc::new(Semaphore::new(all));
        Self { routes, gate, streams: semaphore(ALL_STREAMS), requests: semaphore(ALL_REQUESTS) }
    }

    /// Whether a path is that of a method that browsers may call.
    pub fn serves(path: &str) -> bool {
        let method = method::find(path.trim_start_matches('/'));
        method.is_some_and(|method| method.name.starts_with(PACKAGE) && !method.client_streaming)
    }

    /// Answers a request of gRPC-Web.
    pub async fn grpc_web(&self, request: Request<Body>) -> Response<Body> {
        let account = account(&self.gate, &request);
        let this = self.clone();
        let service = tower::service_fn(move |request| {
            let this = this.clone();
            async move { Ok::<_, Infallible>(this.call(request).await) }
        });
        let Ok(response) = GrpcWebLayer::new().layer(service).oneshot(request).await;
        match account {
            // tonic-web copies the answer: the bytes that wait for the browser are charged here.
            Some(account) => response.map(|body| Body::new(Metered { body, account })),
            None => response,
        }
    }

    /// A request of gRPC, and its answer.
    pub async fn call(&self, request: Request<Body>) -> Response<Body> {
        let permits = match self.permits(&request) {
            Ok(permits) => permits,
            Err(status) => {
                let caller = match self.gate.admit(&request) {
                    Ok(caller) => caller,
                    Err(refusal) => return *refusal,
                };
                let method = clip(method_of(&request));
                return self.gate.refuse(Line::of("refused", &caller, &method), status);
            }
        };
        let gate = self.gate.clone();
        let call = gate.layer(self.routes.clone()).oneshot(request);
        match timeout(DEADLINE, call).await {
            // It holds the permits until it is dropped.
            Ok(Ok(response)) => response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _permits = &permits;
                    frame
                }))
            }),
            Err(_) => Status::new(
                Code::DeadlineExceeded,
                format!("the request was not answered within {DEADLINE:?}"),
            )
            .into_http(),
        }
    }

    /// Room for one more request of its session, and of all.
    fn permits<B>(&self, request: &Request<B>) -> Result<Vec<OwnedSemaphorePermit>, Status> {
        let method = method::find(method_of(request));
        let session = request.extensions().get::<Peer>().and_then(Peer::session);
        let (all, own, what, all_count, own_count) =
            match method.is_some_and(|method| method.server_streaming) {
                true => {
                    let own = session.map(|session| &session.streams);
                    (&self.streams, own, "streams", ALL_STREAMS, STREAMS)
                }
                false => {
                    let own = session.map(|session| &session.requests);
                    (&self.requests, own, "requests", ALL_REQUESTS, REQUESTS)
                }
            };
        let take = |semaphore: &Arc<Semaphore>, count: usize, whose: &str| {
            semaphore.clone().try_acquire_owned().map_err(|_| {
                Status::resource_exhausted(format!(
                    "{count} {what} of {whose} are open, the most: close some, or try again later"
                ))
            })
        };
        let mut permits = Vec::new();
        if let Some(own) = own {
            permits.push(take(own, own_count, "your session")?);
        }
        permits.push(take(all, all_count, "all browsers")?);
        Ok(permits)
    }
}

/// The account of the caller's answers.
pub(super) fn account<B>(gate: &Authorisation, request: &Request<B>) -> Option<Account> {
    let peer = request.extensions().get::<Peer>()?;
    let caller = peer.caller(SystemTime::now()).ok()?;
    Some(gate.account(&caller))
}

/// A body with its bytes charged until they are sent. It breaks off where they exceed the budget.
pub(super) struct Metered {
    pub body: Body,
    pub account: Account,
}

impl hyper::body::Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            match frame.into_data() {
                Ok(bytes) => {
                    self.account.check(bytes.len())?;
                    Ok(Frame::data(self.account.charge(bytes)))
                }
                Err(frame) => Ok(frame),
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
