// SPDX-License-Identifier: Apache-2.0
//! Brings every frame to the worker that has its client.
//!
//! The worker that receives a frame decides where it belongs ([`Arrivals::place`]). A frame that is
//! not its own goes through a bounded ring, one for each pair of workers, with its time of arrival
//! and the decision. So rules that change meanwhile do not matter. A link has one worker, or its
//! clients are spread over all of them: then the frames of the fixed clients (bypass, default,
//! damaged headers) are the first worker's, so that each of them is one. Only a client that its
//! worker has no more room for, or an address that is not a client yet, shares that worker's own
//! default; and a reply that resolves an address goes to the worker which will own that client.
//!
//! Invariants: all frames of a client and direction are one worker's, and those that
//! came in by one receive queue reach it in their order. A frame that finds the ring to
//! its owner full is dropped and counted in [`Overflow`] at the port that it came in by. A
//! burst is one update of each ring that it goes into; else a worker writes nothing that
//! another one reads. A time of arrival that is before the owner's last turn counts as
//! that turn: a frame is late by as much, never early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emu::engine::Departure;
use emu::frame::{Buffer, Label};
use emu::place::Place;
use emu::units::{ByDirection, Direction, Instant};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::clock::Clock;
use crate::io::{Arrivals, EgressCounters, PacketIo, Reception};

/// Frames that wait between one worker and another at most.
pub const DEPTH: usize = 1024;
/// Frames that a turn takes from each ring, of which it takes twice as many as of a port.
const BURST: usize = 64;
/// A ring cannot wake its owner: it sleeps no longer than this.
const BLIND_SLEEP: Duration = Duration::from_micros(50);

/// Frames that a worker could not pass on, by the direction that they came in for.
/// Written by that worker alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Overflow(ByDirection<AtomicU64>);

impl Overflow {
    #[must_use]
    pub fn missed(&self, direction: Direction) -> u64 {
        self.0[direction].load(Ordering::Relaxed)
    }

    fn add(&self, direction: Direction, frames: usize) {
        if frames > 0 {
            let sum = self.missed(direction) + frames as u64;
            self.0[direction].store(sum, Ordering::Relaxed);
        }
    }
}

/// A frame on its way to its owner.
#[derive(Debug)]
struct Passed<B> {
    of: Reception,
    buffer: B,
}

/// The way to another worker.
#[derive(Debug)]
struct Lane<B> {
    ring: Producer<Passed<B>>,
    staged: Vec<Passed<B>>,
}

impl<B> Lane<B> {
    /// Moves staged frames into the ring; returns the number that found no room.
    #[inline]
    fn flush(&mut self) -> usize {
        let staged = self.staged.len();
        if staged == 0 {
            return 0;
        }
        // A worker that has ended takes no frames.
        let room = if self.ring.is_abandoned() { 0 } else { self.ring.slots() };
        let n = staged.min(room);
        if let Ok(chunk) = self.ring.write_chunk_uninit(n) {
            chunk.fill_from_iter(self.staged.drain(..n));
        }
        let left = self.staged.len();
        self.staged.clear();
        left
    }
}

/// A worker's ports, with the rings from and to the other workers.
#[derive(Debug)]
pub struct Distributed<I: PacketIo> {
    inner: I,
    ways: Ways<I::Buffer>,
    from: Vec<Consumer<Passed<I::Buffer>>>,
    lends: bool,
    /// Frames of one ring that arrived at one time for one direction and place.
    run: Vec<Option<I::Buffer>>,
}

#[derive(Debug)]
struct Ways<B> {
    me: usize,
    longest: usize,
    /// By worker; none to itself.
    to: Vec<Option<Lane<B>>>,
    overflow: Arc<Overflow>,
}

/// How buffers of frames are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lending {
    /// The owner may keep them. Else it copies each frame, so that no worker's buffers are
    /// all with others: a pool need then not be as large as all that is kept.
    pub lends: bool,
    /// Longer frames stay where they come in: the link rejects them, whosever they are.
    pub longest: u32,
}

/// Connects the ports of several workers.
#[must_use]
pub fn connect<I: PacketIo>(ports: Vec<I>, lending: Lending) -> Vec<Distributed<I>> {
    let workers = ports.len();
    let mut all: Vec<Distributed<I>> = ports
        .into_iter()
        .enumerate()
        .map(|(me, inner)| Distributed {
            inner,
            ways: Ways {
                me,
                longest: lending.longest as usize,
                to: Vec::with_capacity(workers),
                overflow: Arc::default(),
            },
            from: Vec::with_capacity(workers),
            lends: lending.lends,
            run: Vec::with_capacity(BURST),
        })
        .collect();
    for from in 0..workers {
        for to in 0..workers {
            if from == to {
                all[from].ways.to.push(None);
                continue;
            }
            let (ring, end) = RingBuffer::new(DEPTH);
            let lane = Lane { ring, staged: Vec::with_capacity(BURST) };
            all[from].ways.to.push(Some(lane));
            all[to].from.push(end);
        }
    }
    all
}

impl<B> Ways<B> {
    /// Where a frame belongs, if not here. Too long ones stay.
    #[inline]
    fn elsewhere(
        &self,
        arrivals: &impl Arrivals<B>,
        of: Reception,
        (frame, pair): (&[u8], u8),
    ) -> Option<Place> {
        if frame.len() > self.longest {
            return None;
        }
        let place = arrivals.place(of, frame, pair, self.to.len());
        (usize::from(place.worker) != self.me).then_some(place)
    }
}

/// Separates the frames of other workers from those of this one.
struct Sorted<'a, A, B> {
    mine: &'a mut A,
    ways: &'a mut Ways<B>,
}

impl<A: Arrivals<B>, B: Buffer> Arrivals<B> for Sorted<'_, A, B> {
    fn place(&self, of: Reception, frame: &[u8], pair: u8, workers: usize) -> Place {
        self.mine.place(of, frame, pair, workers)
    }

    fn placed(&self, of: Reception, worker: u16, epoch: u16) -> Option<Place> {
        self.mine.placed(of, worker, epoch)
    }

    fn frame(&mut self, of: Reception, frame: &[u8], label: Label<'_>) {
        if self.ways.elsewhere(self.mine, of, (frame, label.pair)).is_none() {
            self.mine.frame(of, frame, label);
        } else {
            // The port had no buffer left to bring it in.
            self.ways.overflow.add(of.direction, 1);
        }
    }

    fn burst(&mut self, of: Reception, burst: &mut [Option<B>]) {
        let Self { mine, ways } = self;
        for slot in &mut *burst {
            let Some(buffer) = slot.as_ref() else { continue };
            let frame = (buffer.bytes(), buffer.label().pair);
            if let Some(place) = ways.elsewhere(*mine, of, frame)
                && let Some(Some(lane)) = ways.to.get_mut(usize::from(place.worker))
                && let Some(buffer) = slot.take()
            {
                if lane.staged.len() == BURST {
                    let lost = lane.flush();
                    ways.overflow.add(of.direction, lost);
                }
                lane.staged.push(Passed { of: Reception { place: Some(place), ..of }, buffer });
            }
        }
        mine.burst(of, burst);
        let lost = ways.to.iter_mut().flatten().map(Lane::flush).sum();
        ways.overflow.add(of.direction, lost);
    }
}

impl<I: PacketIo> Distributed<I> {
    pub fn inner(&self) -> &I {
        &self.inner
    }

    pub fn into_inner(self) -> I {
        self.inner
    }

    /// Frames that it could not pass on.
    #[must_use]
    pub fn overflow(&self) -> Arc<Overflow> {
        self.ways.overflow.clone()
    }

    /// Takes frames that other workers have received for this one.
    fn take_passed(&mut self, arrivals: &mut impl Arrivals<I::Buffer>, most: usize) -> usize {
        let mut taken = 0;
        let run = &mut self.run;
        for ring in &mut self.from {
            let n = ring.slots().min(BURST).min(2 * most);
            let Ok(chunk) = ring.read_chunk(n) else { continue };
            taken += n;
            if !self.lends {
                for Passed { of, buffer } in chunk {
                    arrivals.frame(of, buffer.bytes(), buffer.label());
                }
                continue;
            }
            let mut last = None;
            for Passed { of, buffer } in chunk {
                if let Some(last) = last.filter(|last| *last != of) {
                    arrivals.burst(last, run);
                    run.clear();
                }
                last = Some(of);
                run.push(Some(buffer));
            }
            if let Some(last) = last {
                arrivals.burst(last, run);
                run.clear();
            }
        }
        taken
    }
}

impl<I: PacketIo> PacketIo for Distributed<I> {
    const TAG: usize = I::TAG;
    type Buffer = I::Buffer;

    fn discard(&mut self) {
        self.inner.discard();
    }

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<I::Buffer>,
        most: usize,
    ) -> usize {
        // Frames that were passed on are older than those of the ports.
        let passed = self.take_passed(arrivals, most);
        let mut sorted = Sorted { mine: arrivals, ways: &mut self.ways };
        passed + self.inner.receive(clock, &mut sorted, most)
    }

    fn transmit(&mut self, departure: Departure<'_, I::Buffer>) -> bool {
        self.inner.transmit(departure)
    }

    fn flush(&mut self, now: Instant) {
        self.inner.flush(now);
    }

    fn egress(&self, pair: usize, direction: Direction) -> EgressCounters {
        self.inner.egress(pair, direction)
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        if !self.from.iter().all(Consumer::is_empty) {
            return true;
        }
        let blind = !self.from.is_empty();
        self.inner.wait(if blind { timeout.min(BLIND_SLEEP) } else { timeout })
    }
}
