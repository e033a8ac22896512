// SPDX-License-Identifier: Apache-2.0
//! A capture on all workers, and one stream of its copies.
//!
//! There is one at a time. A task of the control thread reads the workers' rings as fast as
//! the caller reads, and no faster: it holds one chunk, and up to
//! [`WAITING`] more wait for the caller. When the caller disconnects, or the requested number is
//! reached, it ends the workers' captures and only then allows another capture.

use std::collections::HashMap;
use std::time::Duration;

use emu::client::ClientKey;
use emu::stats::DropReason;
use emu::store::MAX_FRAME;
use emu::units::{ByDirection, Direction, Instant, Nanos};
use owner::Changes;
use proto::linkemu::v1 as model;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;
use worker::capture::copies::{Copies, rings};
use worker::capture::{Capture as Tap, Point, Selection, Sighting};

use super::{Dataplane, DataplaneError, utc};

/// Clients that a capture names.
const CLIENTS: usize = 64;
/// Bytes of a packet, unless others are asked for.
const SNAPLEN: u32 = 128;
/// Copies in a worker's rings, and their bytes at most.
const COPIES: usize = 1 << 16;
const BYTES: usize = 16 << 20;
/// Copies in a chunk, and their bytes, about.
const CHUNK_COPIES: usize = 4096;
const CHUNK_BYTES: usize = 512 << 10;
/// Chunks that wait for the caller.
const WAITING: usize = 2;
/// How often the rings are looked into when there is little in them,
const EVERY: Duration = Duration::from_millis(5);
/// and how often a chunk goes out although it is empty.
const ALIVE: Nanos = Nanos::from_millis(500);
/// A reader that takes nothing for this long is disconnected.
const PATIENCE: Duration = Duration::from_secs(10);

/// A worker finds out the fate of a packet this late at most: it visits each client
/// twice a second.
const LATE: Nanos = Nanos::from_millis(600);

pub type Chunks = mpsc::Receiver<Result<model::CaptureChunk, tonic::Status>>;

#[derive(Debug)]
struct Wanted {
    selection: Selection,
    snaplen: u32,
    count: u64,
    duration: Option<Nanos>,
}

impl Wanted {
    fn of(request: &model::CaptureRequest) -> Result<Self, DataplaneError> {
        let invalid = DataplaneError::Capture;
        if request.clients.len() > CLIENTS {
            let n = request.clients.len();
            return Err(invalid(format!(
                "clients: {n} are more than {CLIENTS}: name none for all"
            )));
        }
        let clients = request.clients.iter().map(|name| key(name)).collect::<Result<_, _>>()?;
        let directions = match model::Direction::try_from(request.direction) {
            Ok(model::Direction::Unspecified) => [true, true],
            Ok(model::Direction::Forward) => [true, false],
            Ok(model::Direction::Return) => [false, true],
            Err(_) => {
                let message = format!("direction: {} is none of them", request.direction);
                return Err(invalid(message));
            }
        };
        let snaplen = match request.snaplen {
            0 => SNAPLEN,
            n if n <= MAX_FRAME => n,
            n => {
                let message = format!("snaplen: {n} bytes are more than a frame has, {MAX_FRAME}");
                return Err(invalid(message));
            }
        };
        Ok(Self {
            selection: Selection::new(clients, ByDirection(directions)),
            snaplen,
            count: if request.count == 0 { u64::MAX } else { request.count },
            duration: Some(request.duration_ns).filter(|ns| *ns > 0).map(Nanos),
        })
    }
}

/// A client by its name in the statistics.
pub(super) fn key(name: &str) -> Result<ClientKey, DataplaneError> {
    name.parse().map_err(|error| {
        let shown: String = name.chars().take(64).collect();
        DataplaneError::Capture(format!(
            "clients: {shown:?} is no IP address, nor bypass or default, and {error}"
        ))
    })
}

impl Dataplane {
    /// Captures packets from now on, until the receiver is dropped or there are as many as
    /// the request says.
    ///
    /// # Errors
    /// If the request is not valid, there is another capture, or a worker does not answer.
    pub async fn capture(&self, request: &model::CaptureRequest) -> Result<Chunks, DataplaneError> {
        let wanted = Wanted::of(request)?;
        self.check_names(request).await?;
        let permit = self.0.capturing.clone().try_acquire_owned();
        let permit = permit.map_err(|_| DataplaneError::Capturing)?;
        let (sender, chunks) = mpsc::channel(WAITING);
        let (started, starting) = oneshot::channel();
        // Continues when the caller disconnects, so that it ends the workers' captures.
        tokio::spawn(self.clone().run(wanted, permit, sender, started));
        self.done(|_| async { starting.await.map_err(|_| DataplaneError::Panicked)? }).await?;
        Ok(chunks)
    }

    /// A name that no client ever had is a typing error, perhaps in an address.
    async fn check_names(&self, request: &model::CaptureRequest) -> Result<(), DataplaneError> {
        let names = request.clients.clone();
        self.done(|this| async move {
            let _plans = this.settled().await;
            for name in &names {
                if matches!(name.parse(), Ok(ClientKey::Named(_))) && !this.names().has(name) {
                    return Err(DataplaneError::Capture(format!(
                        "clients: {name:?} is no IP address, nor bypass, default or a client that \
                         rules have named: see `linkctl clients list`"
                    )));
                }
            }
            Ok(())
        })
        .await
    }

    async fn run(
        self,
        wanted: Wanted,
        permit: OwnedSemaphorePermit,
        sender: mpsc::Sender<Result<model::CaptureChunk, tonic::Status>>,
        started: oneshot::Sender<Result<(), DataplaneError>>,
    ) {
        match self.tap_on(&wanted).await {
            Ok((copies, start)) => {
                let _ = started.send(Ok(()));
                let mut capture = Capture::new(wanted, copies, start);
                capture.stream(&self, &sender).await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
        self.tap_off().await;
        drop(permit);
    }

    async fn tap_on(
        &self,
        wanted: &Wanted,
    ) -> Result<(Vec<Copies>, model::CaptureStart), DataplaneError> {
        let plans = self.settled().await;
        let since = Instant(self.0.machine.clock.now());
        let bytes = (COPIES * wanted.snaplen as usize).min(BYTES);
        let (taps, copies): (Vec<_>, Vec<_>) = self
            .0
            .workers
            .iter()
            .map(|_| {
                let (sink, copies) = rings(COPIES, bytes);
                let (selection, snaplen) = (wanted.selection.clone(), wanted.snaplen as usize);
                (Tap::new(selection, since, snaplen, Box::new(sink)), copies)
            })
            .unzip();
        let mut taps = taps.into_iter();
        self.answers(|worker| worker.capture(taps.next())).await?;
        // From now on all of them capture.
        let since = Instant(self.0.machine.clock.now());
        let profile = plans.current.plan.profile.as_ref();
        let start = model::CaptureStart {
            time_ns: since.0,
            utc: Some(utc(&self.0.machine.clock, since)),
            snaplen: wanted.snaplen,
            profile: profile.map(|p| p.name.clone()).unwrap_or_default(),
            generation: plans.current.applied.generation,
            boxes: Vec::new(),
        };
        Ok((copies, start))
    }

    /// Frees here what the workers return.
    async fn tap_off(&self) {
        let _plans = self.0.history.plans().await;
        if let Err(error) = self.answers(|worker| worker.capture(None)).await {
            tracing::warn!(%error, "a tap is left on");
        }
    }
}

struct Capture {
    copies: Vec<Copies>,
    start: Option<model::CaptureStart>,
    until: Instant,
    /// Copies that are yet to come.
    left: u64,
}

impl Capture {
    fn new(wanted: Wanted, copies: Vec<Copies>, start: model::CaptureStart) -> Self {
        let until = wanted.duration.map_or(Instant::MAX, |d| Instant(start.time_ns) + d);
        Self { copies, start: Some(start), until, left: wanted.count }
    }

    async fn stream(
        &mut self,
        dataplane: &Dataplane,
        sender: &mpsc::Sender<Result<model::CaptureChunk, tonic::Status>>,
    ) {
        let mut sent = Instant::ZERO;
        loop {
            let now = Instant(dataplane.0.machine.clock.now());
            let over = now >= self.until + LATE || self.copies.iter().all(Copies::is_over);
            let (chunk, full) = self.chunk(now);
            let ends = self.left == 0 || over && !full;
            let says = chunk.start.is_some() || !chunk.packets.is_empty();
            if ends || says || now.since(sent) >= ALIVE {
                sent = now;
                // Else who stops reading would keep the capture from all others.
                if !matches!(timeout(PATIENCE, sender.send(Ok(chunk))).await, Ok(Ok(()))) {
                    return;
                }
            }
            if ends {
                return;
            }
            if !full {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = sender.closed() => return,
                }
            }
        }
    }

    /// The next chunk from the rings, and whether there may be more.
    fn chunk(&mut self, now: Instant) -> (model::CaptureChunk, bool) {
        let mut chunk = model::CaptureChunk {
            start: self.start.take(),
            time_ns: now.0,
            ..model::CaptureChunk::default()
        };
        let mut clients = HashMap::new();
        let (workers, mut bytes, mut full) = (self.copies.len() as u64, 0, false);
        for (worker, copies) in self.copies.iter_mut().enumerate() {
            // The same share for each.
            let room = chunk.packets.len() + CHUNK_COPIES / workers as usize;
            let most = bytes + CHUNK_BYTES / workers as usize;
            while self.left > 0 {
                if chunk.packets.len() >= room || bytes >= most {
                    full = true;
                    break;
                }
                let mut data = Vec::new();
                let Some(seen) = copies.next(&mut data) else { break };
                if seen.at >= self.until {
                    continue;
                }
                self.left -= 1;
                bytes += data.len();
                let next = clients.len() as u32;
                let client = *clients.entry(seen.client).or_insert_with(|| {
                    chunk.clients.push(seen.client.to_string());
                    next
                });
                // Each worker numbers its frames from 1.
                let number = seen.number.map_or(0, |n| (n - 1) * workers + worker as u64 + 1);
                chunk.packets.push(packet(&seen, client, number, data));
            }
        }
        chunk.missed = missed(&self.copies);
        (chunk, full)
    }
}

fn packet(seen: &Sighting, client: u32, number: u64, data: Vec<u8>) -> model::CapturedPacket {
    let reason = match seen.point {
        Point::Dropped(reason) => crate::accounts::reason(reason),
        _ => model::DropReason::Unspecified,
    };
    model::CapturedPacket {
        time_ns: seen.at.0,
        number,
        client,
        direction: direction(seen.direction).into(),
        point: point(seen.point).into(),
        reason: reason.into(),
        length: seen.len,
        data,
    }
}

fn direction(direction: Direction) -> model::Direction {
    match direction {
        Direction::Forward => model::Direction::Forward,
        Direction::Return => model::Direction::Return,
    }
}

fn point(point: Point) -> model::CapturePoint {
    match point {
        Point::Ingress => model::CapturePoint::Ingress,
        Point::Egress => model::CapturePoint::Egress,
        Point::Marked => model::CapturePoint::Marked,
        Point::Dropped(_) => model::CapturePoint::Dropped,
    }
}

fn missed(copies: &[Copies]) -> Vec<model::CaptureMissed> {
    // There is one count of drops for all reasons.
    let points =
        [Point::Ingress, Point::Egress, Point::Marked, Point::Dropped(DropReason::Overload)];
    let mut all = Vec::new();
    for way in Direction::BOTH {
        for at in points {
            let copies: u64 = copies.iter().map(|c| c.missed().copies(way, at)).sum();
            if copies > 0 {
                let (direction, point) = (direction(way).into(), point(at).into());
                all.push(model::CaptureMissed { direction, point, copies });
            }
        }
    }
    all
}
