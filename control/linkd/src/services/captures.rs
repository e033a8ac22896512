// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Captures`: forwards the dataplane's capture. There is one at a time.
//!
//! The transport's windows bound the data in linkd: the dataplane sends no faster than the caller
//! reads, and skips copies rather than delay the link.

use crate::links::Links;
use crate::watching::{Messages, Watching};
use futures_util::TryStreamExt;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::captures_server::Captures;
use tonic::{Request, Response, Status};

pub(crate) struct CaptureService {
    pub links: Links,
    pub watching: Watching,
}

#[tonic::async_trait]
impl Captures for CaptureService {
    type CaptureStream = Messages<pb::CaptureChunk>;

    async fn capture(
        &self,
        request: Request<pb::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let watch = self.watching.begin(&request)?;
        let dataplane = self.links.control(&request.get_ref().link)?.dataplane().clone();
        // The dataplane has it from the metadata.
        let request = pb::CaptureRequest { link: String::new(), ..request.into_inner() };
        let chunks = dataplane.capture(request).await?;
        let chunks = chunks.map_err(move |status| dataplane.translate(status));
        Ok(watch.answer(chunks))
    }
}
