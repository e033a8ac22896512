// SPDX-License-Identifier: Apache-2.0
//! Captures, of clients of one box. Packets of several boxes have no common numbers, and no order
//! beyond the bounds of the clocks, so those captures are refused.

use std::collections::BTreeSet;

use proto::linkemu::v1 as pb;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use crate::clock::Offset;
use crate::connect::Client;
use crate::group::Group;
use crate::member::SILENT;

/// Chunks that wait for the caller.
const WAITING: usize = 2;

pub type Chunks = ReceiverStream<Result<pb::CaptureChunk, Status>>;

impl Group {
    /// Captures at the box that owns the clients, with times on the group's clock.
    ///
    /// # Errors
    /// If clients of several boxes are asked for, another capture runs, or the box refuses.
    pub async fn capture(&self, request: pb::CaptureRequest) -> Result<Chunks, Status> {
        let generation = self.applied()?.generation;
        let members = &self.0.members;
        let places: BTreeSet<usize> = match request.clients.is_empty() {
            true => (0..members.len()).collect(),
            false => {
                let owners = self.owners();
                request.clients.iter().map(|client| owners.of(client)).collect()
            }
        };
        let mut places = places.into_iter();
        let (Some(place), None) = (places.next(), places.next()) else {
            let names: Vec<_> = members.iter().map(|it| &*it.name).collect();
            return Err(Status::failed_precondition(format!(
                "these clients are on several boxes: name clients of one box (linkctl group show), or \
                 capture on each box ({})",
                names.join(", ")
            )));
        };
        let permit = self.0.capturing.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(
                "somebody captures already, and one capture runs at a time: wait for its end, or \
                 end it",
            )
        })?;
        let member = &members[place];
        let call = |mut c: Client, request: Request<pb::CaptureRequest>| async move {
            c.capture(request).await
        };
        let mut chunks = member.call(SILENT, request, call).await.map_err(|status| {
            let code = match std::error::Error::source(&status) {
                None => status.code(),
                Some(_) => tonic::Code::Unavailable,
            };
            Status::new(code, format!("box {}: {}", member.name, member.words(&status)))
        })?;
        // One offset for all of it, as between its clock and UTC.
        let offset = member.offset();
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let _permit = permit;
            loop {
                let next = tokio::select! {
                    next = chunks.message() => next,
                    () = sender.closed() => return,
                };
                let chunk = match next {
                    Ok(Some(chunk)) => Ok(shift(chunk, offset, generation)),
                    Ok(None) => return,
                    Err(status) => Err(status),
                };
                let ended = chunk.is_err();
                if sender.send(chunk).await.is_err() || ended {
                    return;
                }
            }
        });
        Ok(ReceiverStream::new(receiver))
    }
}

/// The chunk with times of the group's clock, and the group's generation.
fn shift(mut chunk: pb::CaptureChunk, offset: Offset, generation: u64) -> pb::CaptureChunk {
    chunk.time_ns = offset.of_group(chunk.time_ns);
    if let Some(start) = &mut chunk.start {
        start.time_ns = offset.of_group(start.time_ns);
        start.generation = generation;
    }
    for packet in &mut chunk.packets {
        packet.time_ns = offset.of_group(packet.time_ns);
    }
    chunk
}
