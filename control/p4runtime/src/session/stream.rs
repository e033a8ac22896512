// SPDX-License-Identifier: Apache-2.0
//! The stream between controller and switch: election results and digests.

use super::error::words;
use super::{Error, Target, election, within};
use crate::bits;
use crate::proto::p4::v1::{self as p4, p4_runtime_client::P4RuntimeClient};
use p4::p4_data::Data;
use p4::stream_message_request::Update as Request;
use p4::stream_message_response::Update as Response;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

/// Maximum number of queued requests. Further acknowledgements are dropped.
const WAITING: usize = 64;
/// Maximum size of a message, bytes. Lists of digests are small.
const MESSAGE: usize = 4 << 20;

/// An event that a switch reports on the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// We are the primary.
    Primary,
    Backup {
        /// Election id of the primary, if there is one.
        primary: Option<u128>,
        message: String,
    },
    /// A list of digests. Until [`Stream::acknowledge`], the switch does not repeat them.
    Digests {
        digest: u32,
        list: u64,
        /// One row per digest, with its members in the program's order.
        rows: Vec<Vec<u128>>,
    },
    /// The switch rejected one of our requests.
    Complaint(String),
}

/// The controller's end of the stream. Dropping it ends the session.
#[derive(Debug)]
pub struct Stream {
    requests: mpsc::Sender<p4::StreamMessageRequest>,
    responses: Streaming<p4::StreamMessageResponse>,
    device: u64,
}

impl Stream {
    pub(super) async fn open(
        client: P4RuntimeClient<Channel>,
        target: &Target,
        limit: Duration,
    ) -> Result<Self, Error> {
        let (requests, waiting) = mpsc::channel(WAITING);
        let arbitration = p4::MasterArbitrationUpdate {
            device_id: target.device,
            election_id: Some(election(target.election)),
            status: None,
        };
        // A server may send headers only together with its first message, so it must have our
        // request first.
        let update = Some(Request::Arbitration(arbitration));
        requests.try_send(p4::StreamMessageRequest { update }).map_err(|_| Error::Ended)?;
        let mut client = client.max_decoding_message_size(MESSAGE);
        let opened = async move { Ok(client.stream_channel(ReceiverStream::new(waiting)).await?) };
        let opened = within("the election of a primary", limit, opened).await;
        let responses = opened.map_err(|error: Error| error.of_device(target.device))?.into_inner();
        Ok(Self { requests, responses, device: target.device })
    }

    /// The next event. Cancel safe.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn next(&mut self) -> Result<StreamEvent, Error> {
        loop {
            let message = self.responses.message().await;
            let message = message.map_err(|status| Error::from(status).of_device(self.device))?;
            let message = message.ok_or(Error::Ended)?;
            match message.update {
                Some(Response::Arbitration(update)) => return Ok(arbitration(update)),
                Some(Response::Digest(list)) => {
                    let rows = list.data.into_iter().map(row).collect::<Result<_, _>>()?;
                    let (digest, list) = (list.digest_id, list.list_id);
                    return Ok(StreamEvent::Digests { digest, list, rows });
                }
                Some(Response::Error(error)) => {
                    return Ok(StreamEvent::Complaint(words(&error.message)));
                }
                // Packets and timeouts, which we do not request.
                None => {}
            }
        }
    }

    /// Acknowledges a list of digests.
    pub fn acknowledge(&self, digest: u32, list: u64) {
        let ack = p4::DigestListAck { digest_id: digest, list_id: list };
        let update = Some(Request::DigestAck(ack));
        // A dropped acknowledgement only delays the next message by the repeat time.
        let _left_out = self.requests.try_send(p4::StreamMessageRequest { update });
    }
}

fn arbitration(update: p4::MasterArbitrationUpdate) -> StreamEvent {
    let status = update.status.unwrap_or_default();
    if Code::from(status.code) == Code::Ok {
        return StreamEvent::Primary;
    }
    let number = |id: p4::Uint128| (u128::from(id.high) << 64) | u128::from(id.low);
    StreamEvent::Backup { primary: update.election_id.map(number), message: words(&status.message) }
}

fn row(data: p4::P4Data) -> Result<Vec<u128>, Error> {
    let strange = || Error::strange("a digest that is not made of numbers");
    let number = |data: &p4::P4Data| match &data.data {
        Some(Data::Bitstring(bytes)) => bits::decode(bytes, 128).ok_or_else(strange),
        _ => Err(strange()),
    };
    match &data.data {
        Some(Data::Bitstring(_)) => Ok(vec![number(&data)?]),
        Some(Data::Tuple(members) | Data::Struct(members)) => {
            members.members.iter().map(number).collect()
        }
        None => Err(strange()),
    }
}
