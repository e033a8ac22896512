// SPDX-License-Identifier: Apache-2.0
//! Calls with JSON in place of protobuf: `POST /linkemu.v1.Service/Method`.
//!
//! Messages have the canonical JSON form of protobuf. A unary call is that of the Connect protocol; its
//! error is `{"code", "message", "details"}` with an HTTP status. The answer of a stream is a line
//! `{"result": …}` for each message, and `{"error": …}` as the last line if it fails
//! (`application/x-ndjson`, as of grpc-gateway). This module only converts: a request then passes the
//! same authorisation and services as one of gRPC.

use super::call::{Calls, Metered, account};
use super::pcapng::{self, METHOD, PCAPNG};
use super::site::{JSON, http_status, said};
use crate::audit::Line;
use crate::authorisation::{method_of, name};
use crate::caller::Caller;
use crate::intake::Received;
use crate::refusal::clip;
use crate::{methods, shape};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TE,
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use serde::de::DeserializeSeed;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::body::Body;
use tonic::codec::{DecodeBuf, Decoder};
use tonic::{Code, Status, Streaming};
use tonic_types::pb as rpc;

/// Largest body of a request.
const BYTES: usize = profile::MESSAGE_BYTES;
/// Bytes of a refused body that are read and dropped.
const DISCARDED: usize = 16 << 20;
/// For these bytes.
const DEADLINE: Duration = Duration::from_secs(10);
/// Length above which the conversion of an answer needs a turn.
const LONG_ANSWER: usize = 256 << 10;
/// Length of the prefix of a message of gRPC: a flag, and the length of the message.
const PREFIX: usize = 5;
pub(super) const LINES: &str = "application/x-ndjson";

impl Calls {
    /// Answers a request with JSON.
    pub async fn json(&self, request: Request<Body>) -> Response<Body> {
        // Before its body is read.
        let caller = match self.gate.admit(&request) {
            Ok(caller) => caller,
            Err(refusal) => return from_grpc(&refusal),
        };
        let path = method_of(&request).to_owned();
        let refused = |status: Status| {
            let line = Line::of("refused", &caller, &path);
            from_grpc(&self.gate.refuse(line, status))
        };
        let Some(method) = methods::find(&path).map(|it| &it.descriptor) else {
            return refused(Status::unimplemented(format!("there is no method {}", clip(&path))));
        };
        let account = account(&self.gate, &request);
        let (mut head, mut body) = request.into_parts();
        let received = self.gate.intake().read(&caller, &mut body, BYTES).await;
        let received = match received {
            Ok(received) => received,
            Err(status) => {
                let code = status.code();
                let refusal = refused(status);
                if matches!(code, Code::OutOfRange | Code::ResourceExhausted) {
                    discard(&mut body).await;
                }
                return refusal;
            }
        };
        let message = self.parse(&caller, &path, method.input(), received).await;
        let Parsed { framed, direction } = match message {
            Ok(parsed) => parsed,
            Err(status) => return refused(status),
        };
        let accepted = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_file = path == METHOD && accepted == Some(PCAPNG);
        head.headers.remove(CONTENT_LENGTH);
        head.headers.remove(ACCEPT_ENCODING);
        head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
        let body = Body::new(Full::new(framed));
        let answer = self.call(Request::from_parts(head, body)).await;
        if Status::from_header_map(answer.headers()).is_some() {
            return from_grpc(&answer);
        }
        let output = method.output();
        let answer = if is_file {
            let direction = pb::Direction::try_from(direction).unwrap_or_default();
            let body = pcapng::file(answer.into_body(), direction);
            let name = HeaderValue::from_static("attachment; filename=\"linkemu.pcapng\"");
            let mut file = with_type(said(StatusCode::OK, body), PCAPNG);
            file.headers_mut().insert(CONTENT_DISPOSITION, name);
            file
        } else if method.is_server_streaming() {
            with_type(said(StatusCode::OK, lines(answer.into_body(), output)), LINES)
        } else {
            let (body, bytes) = sized(answer.into_body());
            let answered = match self.gate.turns().turn(&caller, "", bytes).await {
                Ok(turn) => turn.call(Box::pin(unary(body, output))).await.and_then(|text| text),
                Err(status) => Err(status),
            };
            match answered {
                Ok(text) => with_type(said(StatusCode::OK, Body::new(Full::new(text))), JSON),
                Err(status) => refusal(&status),
            }
        };
        match account {
            Some(account) => answer.map(|body| Body::new(Metered { body, account })),
            None => answer,
        }
    }
}

/// A request as gRPC sends it.
struct Parsed {
    framed: Bytes,
    /// Number of the field `direction`, or 0.
    direction: i32,
}

impl Calls {
    /// Converts a request in its turn.
    async fn parse(
        &self,
        caller: &Caller,
        method: &str,
        kind: MessageDescriptor,
        Received { bytes, share }: Received,
    ) -> Result<Parsed, Status> {
        let turn = self.gate.turns().turn(caller, method, bytes.len()).await?;
        let parse = move || {
            let _share = share;
            shape::check_json(&bytes)?;
            let message = parse(&kind, &bytes)?;
            let direction = message.get_field_by_name("direction");
            let direction = direction.and_then(|value| value.as_enum_number()).unwrap_or_default();
            Ok(Parsed { framed: framed(message), direction })
        };
        turn.run(parse).await?
    }
}

/// Drops the rest of a body that is refused. A client that is still sending it when the connection ends
/// does not read the refusal.
async fn discard(body: &mut Body) {
    let mut left = DISCARDED;
    let rest = async {
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            if bytes > left {
                break;
            }
            left -= bytes;
        }
    };
    let _ = timeout(DEADLINE, rest).await;
}

/// A message from its JSON. An empty body is an empty message.
fn parse(kind: &MessageDescriptor, body: &[u8]) -> Result<DynamicMessage, Status> {
    if body.is_empty() {
        return Ok(DynamicMessage::new(kind.clone()));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let message = kind.clone().deserialize(&mut reader);
    message.and_then(|message| reader.end().map(|()| message)).map_err(|error| {
        let error = clip(&error.to_string());
        Status::invalid_argument(format!("the request is no {} as JSON: {error}", kind.name()))
    })
}

/// A message as gRPC sends it. It is dropped here: it can be many times as long.
fn framed(message: DynamicMessage) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.push(0);
    // The limit of the request keeps it far below.
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(message.encode_to_vec());
    bytes.into()
}

/// Writes messages of a kind as JSON.
struct Texts(MessageDescriptor);

impl Decoder for Texts {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let failed = |error: &dyn std::fmt::Display| {
            Status::internal(format!("cannot write the answer as JSON: {error}"))
        };
        let message = DynamicMessage::decode(self.0.clone(), message);
        let message = message.map_err(|error| failed(&error))?;
        serde_json::to_string(&message).map(Some).map_err(|error| failed(&error))
    }
}

/// The messages of an answer of gRPC. An error is the last one.
pub(super) fn messages<T>(
    body: Body,
    decoder: impl Decoder<Item = T, Error = Status> + Send + 'static,
) -> Streaming<T> {
    // A service has answered: its status is in the trailers.
    Streaming::new_response(decoder, body, StatusCode::OK, None, Some(usize::MAX))
}

/// A body, and its length if it takes long to convert.
fn sized(body: Body) -> (Body, usize) {
    let bytes = hyper::body::Body::size_hint(&body).lower();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    (body, if bytes > LONG_ANSWER { bytes } else { 0 })
}

/// The only message of an answer, as JSON.
async fn unary(body: Body, kind: MessageDescriptor) -> Result<Bytes, Status> {
    let mut texts = messages(body, Texts(kind));
    let text = texts.message().await?;
    texts.trailers().await?;
    Ok(text.ok_or_else(|| Status::internal("the answer is missing"))?.into())
}

/// The messages of an answer as lines of JSON.
fn lines(body: Body, kind: MessageDescriptor) -> Body {
    let lines = messages(body, Texts(kind)).map(|text| {
        let line = match text {
            Ok(text) => format!("{{\"result\":{text}}}\n"),
            Err(status) => format!("{}\n", json!({ "error": error(&status) })),
        };
        Ok::<_, Status>(Frame::data(line.into()))
    });
    Body::new(StreamBody::new(lines))
}

/// An error of the Connect protocol.
#[derive(Serialize)]
pub(super) struct Error<'a> {
    code: String,
    message: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Value>,
}

pub(super) fn error(status: &Status) -> Error<'_> {
    let details = rpc::Status::decode(status.details()).map(|status| status.details);
    let details = details.unwrap_or_default().into_iter().map(|detail| {
        let kind = detail.type_url.rsplit('/').next().unwrap_or_default();
        json!({ "type": kind, "value": STANDARD_NO_PAD.encode(&detail.value) })
    });
    let code = name(status.code()).to_ascii_lowercase();
    Error { code, message: status.message(), details: details.collect() }
}

/// A refusal as JSON.
pub(super) fn refusal(status: &Status) -> Response<Body> {
    let json = serde_json::to_vec(&error(status)).unwrap_or_default();
    with_type(said(http_status(status.code()), Body::new(Full::new(json.into()))), JSON)
}

/// A refusal of gRPC as JSON.
fn from_grpc(response: &Response<Body>) -> Response<Body> {
    let status = Status::from_header_map(response.headers());
    refusal(&status.unwrap_or_else(|| Status::internal("the answer has no status")))
}

fn with_type(mut response: Response<Body>, kind: &'static str) -> Response<Body> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::POOL;

    #[tokio::test]
    async fn messages_that_arrive_in_pieces_become_lines() {
        let kind = POOL.get_message_by_name("linkemu.v1.GetVersionResponse").unwrap();
        let message = DynamicMessage::decode(kind.clone(), &b"\x0a\x01x"[..]).unwrap();
        let two = [framed(message.clone()), framed(message)].concat();
        let pieces: Vec<_> = two
            .chunks(3)
            .map(|piece| Ok::<_, Status>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let mut trailers = http::HeaderMap::new();
        Status::aborted("no more").add_header(&mut trailers).unwrap();
        let end = [Ok(Frame::trailers(trailers))];
        let frames = tokio_stream::iter(pieces.into_iter().chain(end));
        let body = Body::new(StreamBody::new(frames));
        let lines = lines(body, kind).collect().await.unwrap().to_bytes();
        let expected = "{\"result\":{\"version\":\"x\"}}\n{\"result\":{\"version\":\"x\"}}\n\
            {\"error\":{\"code\":\"aborted\",\"message\":\"no more\"}}\n";
        assert_eq!(lines, expected);
    }
}
