// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime calls of the simulated switch.

use super::device::{Device, WAITING, Wrong};
use p4::p4_runtime_server::P4Runtime;
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
/// Entities per message of an endless answer.
const CHUNK: usize = 10_000;

#[derive(Debug)]
pub struct Service {
    device: Arc<Mutex<Device>>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    pub fn new(device: Arc<Mutex<Device>>) -> Self {
        Self { device }
    }

    /// Waits while the switch hangs.
    async fn speak(&self) -> MutexGuard<'_, Device> {
        loop {
            {
                let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
                if !device.hang {
                    return device;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn write(
        &self,
        request: tonic::Request<p4::WriteRequest>,
    ) -> Result<Response<p4::WriteResponse>, Status> {
        let request = request.into_inner();
        let done = self.speak().await.at(request.device_id)?.write(request)?;
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
            let mut device = self.speak().await;
            let device = device.at(request.device_id)?;
            (device.read(&request)?, device.wrong == Some(Wrong::Endless))
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
        let request = request.into_inner();
        self.speak().await.at(request.device_id)?.push(request)?;
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
        let mut requests = request.into_inner();
        let first = requests.message().await?.and_then(|message| message.update);
        let Some(Request::Arbitration(first)) = first else {
            return Err(Status::invalid_argument("the first message is no arbitration"));
        };
        let (sender, answers) = mpsc::channel(WAITING);
        let connection = self.speak().await.at(first.device_id)?.join(&first, sender.clone())?;
        // Only the device's sender keeps the stream open, so a restart ends it.
        let open = sender.downgrade();
        drop(sender);
        let device = Arc::clone(&self.device);
        tokio::spawn(async move {
            while let Ok(Some(message)) = requests.message().await {
                if let Some(Request::DigestAck(_)) = message.update {
                    device.lock().unwrap_or_else(PoisonError::into_inner).acknowledged += 1;
                }
            }
            if open.upgrade().is_some() {
                device.lock().unwrap_or_else(PoisonError::into_inner).leave(connection);
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
