// SPDX-License-Identifier: Apache-2.0
//! The answer of `linkemu.v1.Captures/Capture` as a pcapng file, for downloads: a request in JSON with
//! `Accept: application/x-pcapng`.

use super::json::messages;
use capture::Writer;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use proto::linkemu::v1 as pb;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_stream::{StreamExt, once};
use tonic::Status;
use tonic::body::Body;
use tonic_prost::ProstDecoder;

pub(super) const PCAPNG: &str = "application/x-pcapng";
pub(super) const METHOD: &str = "linkemu.v1.Captures/Capture";

/// What was written and is not sent.
#[derive(Clone, Default)]
struct Out(Arc<Mutex<Vec<u8>>>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Out {
    fn take(&self) -> Bytes {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into()
    }
}

/// The answer of a capture of a direction (unspecified: of both) as the bytes of a file. It breaks off
/// where the capture fails.
pub(super) fn file(body: Body, direction: pb::Direction) -> Body {
    let out = Out::default();
    let application = concat!("linkd ", env!("CARGO_PKG_VERSION"));
    let mut writer = Writer::new(out.clone(), application, direction);
    let chunks = messages(body, ProstDecoder::default()).map(Some).chain(once(None));
    let written = chunks.map(move |chunk| {
        let written = match chunk {
            Some(chunk) => writer.chunk(chunk?),
            None => writer.end(),
        };
        written.map_err(|error| Status::internal(error.to_string()))?;
        Ok::<_, Status>(Frame::data(out.take()))
    });
    Body::new(StreamBody::new(written))
}
