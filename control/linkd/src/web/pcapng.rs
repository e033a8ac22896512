// SPDX-License-Identifier: Apache-2.0
//! The answer of `linkemu.v1.Captures/Capture` as a pcapng file, for downloads: a request in JSON with
//! `Accept: application/x-pcapng`.

use super::json::unframe;
use capture::{CaptureError, Writer};
use hyper::body::{Bytes, Frame};
use prost::Message;
use proto::linkemu::v1 as pb;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tonic::body::Body;
use tonic::{Code, Status};

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

/// The chunks of a capture as the bytes of a file. It breaks off where the capture fails.
pub(super) struct File {
    body: Body,
    rest: Bytes,
    out: Out,
    writer: Writer<Out>,
    is_over: bool,
}

impl File {
    /// Of a capture of a direction; unspecified: of both.
    pub fn new(body: Body, direction: pb::Direction) -> Self {
        let out = Out::default();
        let application = concat!("linkd ", env!("CARGO_PKG_VERSION"));
        let writer = Writer::new(out.clone(), application, direction);
        Self { body, rest: Bytes::new(), out, writer, is_over: false }
    }

    fn take(&mut self, bytes: Bytes) -> Result<(), Status> {
        self.rest =
            if self.rest.is_empty() { bytes } else { [&self.rest[..], &bytes].concat().into() };
        while let Some(message) = unframe(&mut self.rest) {
            let chunk = pb::CaptureChunk::decode(message)
                .map_err(|error| Status::internal(format!("a chunk of the capture: {error}")))?;
            self.writer.chunk(chunk).map_err(failed)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), CaptureError> {
        self.is_over = true;
        self.writer.end()
    }
}

fn failed(error: CaptureError) -> Status {
    Status::internal(error.to_string())
}

impl hyper::body::Body for File {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            let written = self.out.take();
            if !written.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(written))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let done = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => self.end().map_err(failed),
                Some(Err(status)) => Err(status),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.take(bytes),
                    Err(frame) => match frame.trailers_ref().and_then(Status::from_header_map) {
                        Some(status) if status.code() != Code::Ok => Err(status),
                        _ => self.end().map_err(failed),
                    },
                },
            };
            if let Err(status) = done {
                self.is_over = true;
                return Poll::Ready(Some(Err(status)));
            }
        }
    }
}
