// SPDX-License-Identifier: Apache-2.0
//! A capture at all boxes, as one stream.
//!
//! Every box captures, because a client may move meanwhile, and its former owner may still have packets.
//! Times are on the group's clock, with one offset for each box during the capture, so that differences
//! between times of a box are those of its clock. The bound of their error grows with the drift of the
//! clocks and is in each chunk.
//!
//! A chunk has packets of one box. Its time is the least of those that the boxes have reached: no earlier
//! packet can follow, within the time that a dataplane needs to report a packet's fate. A box that stops
//! answering is in a chunk with the reason, and no longer delays the others.

use std::collections::BTreeSet;
use std::error::Error;

use proto::linkemu::v1 as pb;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

use crate::clock::Offset;
use crate::connect::Client;
use crate::group::Group;
use crate::member::{Member, SILENT};

/// Chunks that wait for the caller, and for their merge.
const WAITING: usize = 2;

pub type Chunks = ReceiverStream<Result<pb::CaptureChunk, Status>>;

/// A box that captures.
struct Part {
    place: usize,
    /// As at the start of the capture.
    offset: Offset,
    /// Time of its last chunk that was sent, on the group's clock.
    last_ns: u64,
    /// Time of its latest packet, or of the start.
    packet_ns: u64,
    is_over: bool,
}

/// The next of a box: a chunk, or why it has no more; none at the end of its capture.
struct Next {
    place: usize,
    chunk: Result<Option<pb::CaptureChunk>, String>,
}

/// State of a running capture.
struct Merge {
    parts: Vec<Part>,
    /// The start of all, for the first chunk.
    start: Option<pb::CaptureStart>,
    /// Copies that are still to be sent.
    left: u64,
    boxes: u64,
    sent_ns: u64,
}

impl Group {
    /// Captures at all boxes that are up. The others are in the first chunks as lost.
    ///
    /// # Errors
    /// If all owners of the clients are down, another capture runs, or a box refuses.
    pub async fn capture(&self, request: pb::CaptureRequest) -> Result<Chunks, Status> {
        let generation = self.applied()?.generation;
        self.check_owners(&request.clients)?;
        let permit = self.0.capturing.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(
                "another capture runs, and one capture runs at a time: wait for its end, or end it",
            )
        })?;
        let mut starting = JoinSet::new();
        for place in self.up() {
            let (group, request) = (self.clone(), request.clone());
            starting.spawn(async move { begin(&group.0.members[place], request).await });
        }
        let mut began = Vec::new();
        while let Some(part) = starting.join_next().await {
            began.push(part.map_err(|_| Status::internal("no result"))??);
        }
        began.sort_by_key(|(place, ..)| *place);
        let merge = Merge::new(self, &began, request.count, generation);
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(self.clone().merge(merge, began, sender, permit));
        Ok(ReceiverStream::new(receiver))
    }

    /// Refuses clients if all their owners are down: the capture would be empty.
    fn check_owners(&self, clients: &[String]) -> Result<(), Status> {
        let members = &self.0.members;
        let places: BTreeSet<usize> = match clients.is_empty() {
            true => (0..members.len()).collect(),
            false => {
                let owners = self.owners();
                clients.iter().map(|client| owners.of(client)).collect()
            }
        };
        if places.iter().any(|place| members[*place].is_up()) {
            return Ok(());
        }
        let down = |place: &usize| {
            let member = &members[*place];
            format!("box {} is down: {}", member.name, member.state().message)
        };
        let down: Vec<_> = places.iter().map(down).collect();
        Err(Status::unavailable(format!(
            "no box that has these clients is up: {}",
            down.join("; ")
        )))
    }

    /// Sends chunks until all boxes have ended, the count is reached, or the caller is gone.
    async fn merge(
        self,
        mut merge: Merge,
        began: Vec<Began>,
        sender: mpsc::Sender<Result<pb::CaptureChunk, Status>>,
        _permit: OwnedSemaphorePermit,
    ) {
        // Ends with this function, and with it the captures of the boxes.
        let mut reading = JoinSet::new();
        let (next, mut chunks) = mpsc::channel(WAITING);
        for (place, first, stream) in began {
            reading.spawn(read(self.clone(), place, first, stream, next.clone()));
        }
        drop(next);
        let up: BTreeSet<_> = merge.parts.iter().map(|part| part.place).collect();
        for (place, member) in self.0.members.iter().enumerate().filter(|(it, _)| !up.contains(it))
        {
            let why = format!("it was down at the start: {}", member.state().message);
            if sender.send(Ok(merge.lost(place, why))).await.is_err() {
                return;
            }
        }
        while merge.left > 0 {
            let Next { place, chunk } = tokio::select! {
                next = chunks.recv() => match next {
                    Some(next) => next,
                    None => break,
                },
                () = sender.closed() => break,
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => merge.chunk(&self.0.members[place], chunk),
                Ok(None) => merge.ended(place),
                Err(why) if merge.boxes == 1 => {
                    let why = format!("box {}: {why}", self.0.members[place].name);
                    let _ = sender.send(Err(Status::unavailable(why))).await;
                    return;
                }
                Err(why) => {
                    tracing::warn!(box_ = self.0.members[place].name, why, "capture without a box");
                    merge.lost(place, why)
                }
            };
            if sender.send(Ok(chunk)).await.is_err() {
                break;
            }
        }
    }
}

/// A box that has begun to capture, with its first chunk.
type Began = (usize, pb::CaptureChunk, Streaming<pb::CaptureChunk>);

/// Begins the capture of a box, and waits for its first chunk, which has the start.
async fn begin(member: &Member, request: pb::CaptureRequest) -> Result<Began, Status> {
    let call = |mut c: Client, request: Request<pb::CaptureRequest>| async move {
        c.capture(request).await
    };
    let told = |status: Status| {
        let code = match status.source() {
            None => status.code(),
            Some(_) => Code::Unavailable,
        };
        Status::new(code, format!("box {}: {}", member.name, member.words(&status)))
    };
    let mut chunks = member.call(SILENT, request, call).await.map_err(told)?;
    let first = timeout(SILENT, chunks.message()).await;
    let first = first.unwrap_or_else(|_| Err(Status::deadline_exceeded(""))).map_err(told)?;
    let first = first.filter(|chunk| chunk.start.is_some()).ok_or_else(|| {
        Status::unavailable(format!("box {}: its capture ended before it began", member.name))
    })?;
    Ok((member.place, first, chunks))
}

/// Passes the chunks of a box on, until its capture ends or the box is down.
async fn read(
    group: Group,
    place: usize,
    first: pb::CaptureChunk,
    mut chunks: Streaming<pb::CaptureChunk>,
    next: mpsc::Sender<Next>,
) {
    let member = &group.0.members[place];
    let mut ups = member.ups();
    let mut chunk = Ok(Some(first));
    loop {
        let is_last = !matches!(chunk, Ok(Some(_)));
        if next.send(Next { place, chunk }).await.is_err() || is_last {
            return;
        }
        // A box that does not answer may keep its connection for minutes.
        chunk = tokio::select! {
            next = chunks.message() => next.map_err(|status| member.words(&status)),
            _ = ups.wait_for(|is_up| !is_up) => Err(member.state().message.clone()),
        };
    }
}

impl Merge {
    fn new(group: &Group, began: &[Began], count: u64, generation: u64) -> Self {
        let members = &group.0.members;
        let parts: Vec<_> = began
            .iter()
            .map(|(place, first, _)| {
                let offset = members[*place].offset();
                // Its first chunk is not sent yet.
                let start_ns = first.start.as_ref().map_or(0, |start| start.time_ns);
                let last_ns = offset.of_group(start_ns);
                Part { place: *place, offset, last_ns, packet_ns: last_ns, is_over: false }
            })
            .collect();
        let starts = parts.iter().zip(began).filter_map(|(part, (_, first, _))| {
            let start = first.start.clone()?;
            Some(pb::CaptureStart { time_ns: part.offset.of_group(start.time_ns), ..start })
        });
        // From the last one on all of them capture.
        let start = starts.max_by_key(|start| start.time_ns).map(|start| pb::CaptureStart {
            utc: Some(group.0.clock.utc(start.time_ns).into()),
            generation,
            boxes: match members.len() {
                1 => Vec::new(),
                _ => members.iter().map(|it| it.name.clone()).collect(),
            },
            ..start
        });
        let left = if count == 0 { u64::MAX } else { count };
        let sent_ns = start.as_ref().map_or(0, |start| start.time_ns);
        Self { parts, start, left, boxes: members.len() as u64, sent_ns }
    }

    /// A chunk of a box on the group's clock.
    fn chunk(&mut self, member: &Member, mut chunk: pb::CaptureChunk) -> pb::CaptureChunk {
        let (boxes, place) = (self.boxes, member.place);
        let Some(part) = self.parts.iter_mut().find(|part| part.place == place) else {
            return pb::CaptureChunk::default();
        };
        let offset = part.offset;
        part.last_ns = part.last_ns.max(offset.of_group(chunk.time_ns));
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut packets = std::mem::take(&mut chunk.packets);
        packets.truncate(most);
        self.left -= packets.len() as u64;
        let mut first_ns = part.last_ns;
        for packet in &mut packets {
            packet.time_ns = offset.of_group(packet.time_ns);
            first_ns = first_ns.min(packet.time_ns);
            part.packet_ns = part.packet_ns.max(packet.time_ns);
            // Each box numbers its packets from 1.
            if packet.number > 0 {
                packet.number = (packet.number - 1) * boxes + place as u64 + 1;
            }
        }
        let error_ns = |at_ns| {
            let then = member.offset_at(at_ns);
            then.error_ns.saturating_add(then.ns.abs_diff(offset.ns))
        };
        let clock_error_ns = match boxes {
            1 => 0,
            _ => error_ns(first_ns).max(error_ns(part.last_ns)),
        };
        pb::CaptureChunk { packets, clock_error_ns, ..self.said(place, chunk) }
    }

    /// The capture of a box reached its end.
    fn ended(&mut self, place: usize) -> pb::CaptureChunk {
        self.over(place);
        self.said(place, pb::CaptureChunk::default())
    }

    /// The end of a box that stopped answering: its later packets are missing.
    fn lost(&mut self, place: usize, message: String) -> pb::CaptureChunk {
        // A chunk's time may be later than packets that the box still had to send.
        let time_ns = self.over(place).unwrap_or(self.sent_ns);
        let lost = Some(pb::CaptureLost { time_ns, message });
        pb::CaptureChunk { lost, ..self.said(place, pb::CaptureChunk::default()) }
    }

    fn over(&mut self, place: usize) -> Option<u64> {
        let part = self.parts.iter_mut().find(|part| part.place == place)?;
        part.is_over = true;
        Some(part.packet_ns)
    }

    /// Adds the box and the time, and the start to the first chunk.
    fn said(&mut self, place: usize, chunk: pb::CaptureChunk) -> pb::CaptureChunk {
        let going = self.parts.iter().filter(|part| !part.is_over).map(|part| part.last_ns).min();
        let last = self.parts.iter().map(|part| part.last_ns).max();
        self.sent_ns = self.sent_ns.max(going.or(last).unwrap_or(0));
        let box_index = if self.boxes == 1 { 0 } else { u32::try_from(place).unwrap_or(u32::MAX) };
        pb::CaptureChunk { start: self.start.take(), time_ns: self.sent_ns, box_index, ..chunk }
    }
}
