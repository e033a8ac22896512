// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime calls.

use crate::connection::{Listener, Number};
use crate::device::{Device, Faults, WAITING, Wrong};
use crate::target::Target;
use p4::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use p4::stream_message_request::Update as Request;
use p4runtime::proto::google::rpc;
use p4runtime::proto::p4::v1 as p4;
use prost::Message;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status, Streaming};

/// Interval between checks for the end of a hang.
const LOOK: Duration = Duration::from_millis(5);
/// Largest request: a program, bytes.
const LARGEST: usize = 64 << 20;
/// Entities per message of an endless answer.
const CHUNK: usize = 10_000;

/// Serves a device to its controllers. Clones serve the same one.
#[derive(Debug)]
pub struct Server<T> {
    device: Arc<Mutex<Device<T>>>,
}

impl<T> Clone for Server<T> {
    fn clone(&self) -> Self {
        Self { device: Arc::clone(&self.device) }
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl<T: Target> Server<T> {
    #[must_use]
    pub fn new(device: Device<T>) -> Self {
        Self { device: Arc::new(Mutex::new(device)) }
    }

    /// The device, while no call is handled.
    pub fn device(&self) -> MutexGuard<'_, Device<T>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves on a listener until it fails.
    ///
    /// # Errors
    /// From the transport.
    pub async fn serve(self, listener: Listener) -> Result<(), tonic::transport::Error> {
        let service = P4RuntimeServer::new(self).max_decoding_message_size(LARGEST);
        let router = tonic::transport::Server::builder().add_service(service);
        router.serve_with_incoming(listener.connections()).await
    }

    /// Waits while the switch hangs.
    async fn speak(&self) -> MutexGuard<'_, Device<T>> {
        self.speak_unless(|faults| faults.hangs).await
    }

    async fn speak_unless(&self, hangs: impl Fn(&Faults) -> bool) -> MutexGuard<'_, Device<T>> {
        loop {
            {
                let device = self.device();
                if !hangs(&device.faults) {
                    return device;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The connection of a call.
fn connection<T>(request: &tonic::Request<T>) -> Result<Number, Status> {
    let number = request.extensions().get::<Number>().copied();
    number.ok_or_else(|| Status::internal("a call without a connection"))
}

#[tonic::async_trait]
impl<T: Target> P4Runtime for Server<T> {
    async fn write(
        &self,
        request: tonic::Request<p4::WriteRequest>,
    ) -> Result<Response<p4::WriteResponse>, Status> {
        let connection = connection(&request)?;
        let request = request.into_inner();
        let done = self.speak().await.at(request.device_id)?.write(connection, request)?;
        if done.iter().all(|one| one.canonical_code == i32::from(Code::Ok)) {
            return Ok(Response::new(p4::WriteResponse {}));
        }
        let any = |one: p4::Error| prost_types::Any {
            type_url: "type.googleapis.com/p4.v1.Error".into(),
            value: one.encode_to_vec(),
        };
        let details = done.into_iter().map(any).collect();
        let (code, message) = (Code::Unknown, "some were not made".to_owned());
        let details = rpc::Status { code: code.into(), message: message.clone(), details };
        Err(Status::with_details(code, message, details.encode_to_vec().into()))
    }

    type ReadStream = Answers<p4::ReadResponse>;

    async fn read(
        &self,
        request: tonic::Request<p4::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let (entities, endless) = {
            let mut device = self.speak_unless(|faults| faults.hangs || faults.reads_hang).await;
            let device = device.at(request.device_id)?;
            (device.read(&request)?, device.faults.answers == Some(Wrong::Endless))
        };
        if endless {
            let entities = vec![p4::Entity::default(); CHUNK];
            let filled = entities.into_iter().map(|_| p4::Entity {
                entity: Some(p4::entity::Entity::CounterEntry(p4::CounterEntry::default())),
            });
            let message = p4::ReadResponse { entities: filled.collect() };
            let stream = tokio_stream::iter(std::iter::repeat_with(move || Ok(message.clone())));
            return Ok(Response::new(Box::pin(stream)));
        }
        let answer = Ok(p4::ReadResponse { entities });
        Ok(Response::new(Box::pin(tokio_stream::once(answer))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: tonic::Request<p4::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::SetForwardingPipelineConfigResponse>, Status> {
        let connection = connection(&request)?;
        let request = request.into_inner();
        self.speak().await.at(request.device_id)?.push(connection, request)?;
        Ok(Response::new(p4::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: tonic::Request<p4::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::GetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        let config = Some(self.speak().await.at(request.device_id)?.config()?);
        Ok(Response::new(p4::GetForwardingPipelineConfigResponse { config }))
    }

    type StreamChannelStream = Answers<p4::StreamMessageResponse>;

    async fn stream_channel(
        &self,
        request: tonic::Request<Streaming<p4::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let connection = connection(&request)?;
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|message| message.update);
        let Some(Request::Arbitration(first)) = first else {
            return Err(Status::invalid_argument("the first message is no arbitration"));
        };
        let (sender, answers) = mpsc::channel(WAITING);
        let mut device = self.speak().await;
        let stream = device.at(first.device_id)?.join(connection, &first, sender.clone())?;
        drop(device);
        // Only the device's sender keeps the stream open, so a restart ends it.
        let open = sender.downgrade();
        drop(sender);
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = requests.message().await {
                if let Some(Request::DigestAck(_)) = message.update {
                    server.device().acknowledged += 1;
                }
            }
            if open.upgrade().is_some() {
                server.device().leave(stream);
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
