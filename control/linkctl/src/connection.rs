// SPDX-License-Identifier: Apache-2.0
//! The way to linkd: one call at a time, each with a deadline.

use crate::failure::Failure;
use hyper_util::rt::TokioIo;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Response, Status};

/// Longer than linkd's own deadlines towards the dataplane.
const DEADLINE: Duration = Duration::from_secs(20);
/// Of an answer: the statistics of many thousand clients.
const ANSWER_BYTES: usize = 64 << 20;

/// A client of linkd.
pub struct Connection {
    socket: PathBuf,
    client: LinkemuClient<Channel>,
}

impl Connection {
    /// Connects.
    pub async fn open(socket: &Path) -> Result<Self, Failure> {
        let path = socket.to_owned();
        let connect = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The name is sent as authority and otherwise unused.
        let channel = Endpoint::from_static("http://linkd")
            .connect_with_connector(connect)
            .await
            .map_err(|error| Failure::unreachable(socket, &cause(&error)))?;
        let client = LinkemuClient::new(channel).max_decoding_message_size(ANSWER_BYTES);
        Ok(Self { socket: socket.into(), client })
    }

    /// Calls.
    pub async fn call<T, F>(
        &self,
        call: impl FnOnce(LinkemuClient<Channel>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        match tokio::time::timeout(DEADLINE, call(self.client.clone())).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.failure(&status)),
            Err(_) => {
                let why = format!("it did not answer within {DEADLINE:?}");
                Err(Failure::unreachable(&self.socket, &why))
            }
        }
    }

    /// What a status of a call or a stream means.
    pub fn failure(&self, status: &Status) -> Failure {
        match status.source() {
            Some(error) => Failure::unreachable(&self.socket, &cause(error)),
            None => Failure::status(status),
        }
    }
}

/// The root of an error, in words.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    match root.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::NotFound) => "there is no such socket".into(),
        Some(io::ErrorKind::ConnectionRefused) => "nobody listens there".into(),
        Some(io::ErrorKind::PermissionDenied) => {
            "permission denied; the socket's owner and group may connect".into()
        }
        _ => root.to_string(),
    }
}
