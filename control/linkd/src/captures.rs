// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Captures`: forwards the dataplane's capture. There is one at a time.
//!
//! The transport's windows bound the data in linkd: the dataplane sends no faster than the caller
//! reads, and skips copies rather than delay the link.

use crate::caller::Caller;
use crate::links::Links;
use crate::watching::Watching;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::captures_server::Captures;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

pub(crate) struct Service {
    pub links: Links,
    pub watching: Watching,
}

#[tonic::async_trait]
impl Captures for Service {
    type CaptureStream = ReceiverStream<Result<pb::CaptureChunk, Status>>;

    async fn capture(
        &self,
        request: Request<pb::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let permit = self.watching.permit(&Caller::of(&request))?;
        let mut stopping = self.watching.ending(&request);
        let dataplane = self.links.control(&request)?.dataplane().clone();
        let mut chunks = dataplane.capture(request.into_inner()).await?;
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let _permit = permit;
            loop {
                let chunk = tokio::select! {
                    chunk = chunks.message() => chunk,
                    () = sender.closed() => return,
                    () = stopping.stopped() => {
                        let _ = sender.try_send(Err(stopping.status()));
                        return;
                    }
                };
                let (chunk, last) = match chunk {
                    Ok(Some(chunk)) => (Ok(chunk), false),
                    Ok(None) => return,
                    Err(status) => (Err(dataplane.translate(status)), true),
                };
                let sent = tokio::select! {
                    sent = sender.send(chunk) => sent,
                    () = stopping.stopped() => return,
                };
                if sent.is_err() || last {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
