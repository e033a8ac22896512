// SPDX-License-Identifier: Apache-2.0
//! The dataplane of this box for the linkd-group of its group (`--member`): each call passes to the
//! dataplane's socket and back as it is, as a stream of bytes.

use http::{Request, Response};
use proto::dataplane::v1::dataplane_server::SERVICE_NAME;
use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

/// `dataplane.v1.Dataplane`, served by the dataplane behind the channel. Authorisation is before it.
#[derive(Clone)]
pub(crate) struct Passage {
    path: PathBuf,
    channel: Channel,
}

impl Passage {
    pub fn new(path: PathBuf, channel: Channel) -> Self {
        Self { path, channel }
    }
}

impl NamedService for Passage {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<Request<Body>> for Passage {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { path, channel } = self.clone();
        Box::pin(async move {
            let answer = channel.oneshot(request).await;
            Ok(answer.unwrap_or_else(|error| {
                let path = path.display();
                let why = format!("no dataplane at {path} ({error}): start linkd-dataplane");
                Status::unavailable(why).into_http()
            }))
        })
    }
}
