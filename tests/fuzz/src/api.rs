// SPDX-License-Identifier: Apache-2.0
//! Calls of `linkemu.v1` as browsers send them, in gRPC-Web and JSON, through the gate to the
//! services of linkd, with a fake dataplane.

use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message as _;
use prost_reflect::MethodDescriptor;
use proto::linkemu::v1 as pb;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::timeout;

use crate::entropy::Entropy;
use crate::lab::{Failed, Lab, watched};
use proto::POOL;

const GRPC_WEB: &str = "application/grpc-web+proto";
const GRPC_WEB_TEXT: &str = "application/grpc-web-text+proto";
const JSON: &str = "application/json";
/// For the first message of a stream, which may have none.
const STREAM: Duration = Duration::from_millis(2);

/// The methods that browsers may call, but those that read the machine for long.
static METHODS: LazyLock<Vec<MethodDescriptor>> = LazyLock::new(|| {
    let services = POOL.services().filter(|service| service.package_name() == "linkemu.v1");
    let methods: Vec<_> =
        services.flat_map(|service| service.methods().collect::<Vec<_>>()).collect();
    methods
        .into_iter()
        .filter(|method| !method.is_client_streaming() && method.name() != "Diagnose")
        .collect()
});

/// A call of a method with a message that is drawn from the bytes.
///
/// # Panics
/// If linkd does, or does not answer.
pub fn call(data: &[u8]) {
    let mut entropy = Entropy::new(data);
    let method = &METHODS[entropy.below(METHODS.len())];
    let as_json = entropy.byte().is_multiple_of(2);
    let message = entropy.message(&method.input());
    let (kind, body) = if as_json {
        // JSON has no such number as infinity.
        (JSON, serde_json::to_vec(&message).unwrap_or_default())
    } else {
        (GRPC_WEB, framed(&message.encode_to_vec()))
    };
    send(method, kind, body);
}

/// A call with any body: a line with the kind and the method, such as `json UpdateLinks`, and the body.
///
/// # Panics
/// If linkd does, or does not answer.
pub fn json(data: &[u8]) {
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (line, body) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let line = String::from_utf8_lossy(line);
    let (kind, name) = line.split_once(' ').unwrap_or_default();
    let kind = match kind {
        "web" => GRPC_WEB,
        "text" => GRPC_WEB_TEXT,
        _ => JSON,
    };
    let method = METHODS.iter().find(|method| method.name() == name).unwrap_or(&METHODS[0]);
    send(method, kind, body.to_vec());
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], message].concat()
}

fn send(method: &MethodDescriptor, kind: &'static str, body: Vec<u8>) {
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let lab = Lab::get();
    let answered = async {
        let answer = lab.post(&path, kind, body).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            return Err("the session has ended".into());
        }
        let streams = method.is_server_streaming();
        let body = read(answer.into_body(), streams).await?;
        if method.name() == "AcquireLease"
            && let Some(token) = token(&body)
        {
            lab.release(token).await;
        }
        Ok::<_, Failed>(())
    };
    if let Err(error) = watched(&lab.runtime, &path, answered) {
        panic!("{path} is not answered: {error}");
    }
}

/// The answer, or the begin of that of a stream.
async fn read(mut body: Incoming, streams: bool) -> Result<Vec<u8>, Failed> {
    if streams {
        let _ = timeout(STREAM, body.frame()).await;
        return Ok(Vec::new());
    }
    Ok(body.collect().await?.to_bytes().into())
}

/// The token in the answer to an acquired lease.
fn token(body: &[u8]) -> Option<String> {
    if let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) {
        return Some(json.get("token")?.as_str()?.to_owned());
    }
    let length = u32::from_be_bytes(body.get(1..5)?.try_into().ok()?) as usize;
    let message = pb::AcquireLeaseResponse::decode(body.get(5..5 + length)?).ok()?;
    Some(message.token)
}
