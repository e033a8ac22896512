// SPDX-License-Identifier: Apache-2.0
//! Calls of browsers: gRPC-Web in front of the same authorisation and services as native gRPC.

use crate::authorisation::Authorisation;
use crate::budget::Account;
use crate::connection::Peer;
use crate::methods;
use http::{Request, Response};
use hyper::body::{Bytes, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_web::GrpcWebLayer;
use tower::{Layer, ServiceExt};

/// Deadline of a request, from its head to the head of its answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// The services, behind the authorisation.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    routes: Routes,
    pub(super) gate: Authorisation,
}

impl Calls {
    pub fn new(routes: Routes, gate: Authorisation) -> Self {
        Self { routes, gate }
    }

    /// Whether a path is that of a method that browsers may call.
    pub fn serves(path: &str) -> bool {
        let method = methods::find(path.trim_start_matches('/'));
        method.is_some_and(|method| method.is_public() && !method.is_client_streaming())
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
        let gate = self.gate.clone();
        let call = gate.layer(self.routes.clone()).oneshot(request);
        match timeout(DEADLINE, call).await {
            Ok(Ok(response)) => response,
            Err(_) => Status::new(
                Code::DeadlineExceeded,
                format!("the request was not answered within {DEADLINE:?}"),
            )
            .into_http(),
        }
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
