// SPDX-License-Identifier: Apache-2.0
//! A worker's share of the ports.
//!
//! A pair has two ports: frames of [`Direction::Forward`] come in on `wan` and leave on `client`,
//! those of [`Direction::Return`] the other way. Pairs are numbered from 0.

use std::time::Duration;

use emu::engine::Departure;
use emu::frame::{Buffer, Label};
use emu::links::Links;
use emu::place::Place;
use emu::units::{Direction, Instant};

use crate::clock::Clock;

/// Counters of a worker's egress ports, per direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCounters {
    /// Handed to the port's transmit buffer and not yet taken by its driver.
    pub staged: u64,
    /// Given up: the driver took nothing for too long, or would lose the frame for its length.
    pub dropped: u64,
}

/// When frames were received, and for which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    pub at: Instant,
    pub direction: Direction,
    /// Where the frames belong, if another worker has received them.
    pub place: Option<Place>,
}

impl Reception {
    /// At a port of this worker.
    #[must_use]
    pub fn new(at: Instant, direction: Direction) -> Self {
        Self { at, direction, place: None }
    }
}

/// Takes in the frames that a port received.
pub trait Arrivals<B> {
    /// Where a frame that came in by a port pair belongs, on one of `workers`.
    fn place(&self, of: Reception, frame: &[u8], pair: u8, workers: usize) -> Place;

    /// Where a frame belongs that names a client of a worker, if clients are believed in this epoch.
    fn placed(&self, of: Reception, worker: u16, epoch: u16) -> Option<Place>;

    /// A frame to be copied.
    fn frame(&mut self, of: Reception, frame: &[u8], label: Label<'_>);

    /// A burst of frames, each in one piece. The buffers that are kept are taken out.
    fn burst(&mut self, of: Reception, burst: &mut [Option<B>]);
}

impl<B: Buffer> Arrivals<B> for Links<B> {
    #[inline]
    fn place(&self, of: Reception, frame: &[u8], pair: u8, workers: usize) -> Place {
        Links::place(self, of.at, of.direction, (frame, pair), workers)
    }

    #[inline]
    fn placed(&self, of: Reception, worker: u16, epoch: u16) -> Option<Place> {
        Links::placed(self, of.at, worker, epoch)
    }

    #[inline]
    fn frame(&mut self, of: Reception, frame: &[u8], label: Label<'_>) {
        self.arrive(of.at, of.direction, of.place, frame, label);
    }

    #[inline]
    fn burst(&mut self, of: Reception, burst: &mut [Option<B>]) {
        match of.place {
            None => self.arrive_burst(of.at, of.direction, burst),
            Some(place) => self.arrive_burst_placed(of.at, of.direction, place, burst),
        }
    }
}

/// Frames that are wrapped at a time.
pub(crate) const WRAPPED: usize = 64;

/// Hands a burst to `take` with each buffer wrapped, by way of `wrapped`, which is empty. Buffers that
/// were not kept go back to their places.
pub(crate) fn wrap_burst<B, W>(
    burst: &mut [Option<B>],
    wrapped: &mut Vec<Option<W>>,
    (wrap, unwrap): (impl Fn(B) -> W, impl Fn(W) -> B),
    mut take: impl FnMut(&mut [Option<W>]),
) {
    for part in burst.chunks_mut(WRAPPED) {
        wrapped.extend(part.iter_mut().map(|buffer| buffer.take().map(&wrap)));
        take(wrapped);
        for (place, left) in part.iter_mut().zip(wrapped.drain(..)) {
            *place = left.map(&unwrap);
        }
    }
}

/// Receives and transmits frames. One worker polls it; nothing here may block, but
/// [`PacketIo::wait`].
pub trait PacketIo {
    /// Bytes at the end of each frame's tag that are these ports'.
    const TAG: usize = 0;
    /// The buffer of a received frame.
    type Buffer: Buffer + Send + 'static;

    /// Discards the frames that wait at the ingress ports, before the first turn: they came before
    /// the worker was ready, and would be passed as if they had just arrived.
    fn discard(&mut self) {}

    /// Hands up to `most` frames, from 4 to a burst, of each ingress port to `arrivals`, each with its
    /// direction and its time of arrival. Where the port does not know better that is read
    /// from `clock` once the burst is here: a time from before would make frames early if
    /// the thread was held up in between. Returns how many.
    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Self::Buffer>,
        most: usize,
    ) -> usize;

    /// Takes a frame to send, or refuses it with `false`; a refused one is offered
    /// again.
    fn transmit(&mut self, departure: Departure<'_, Self::Buffer>) -> bool;

    /// Passes accepted frames on to the ports.
    fn flush(&mut self, now: Instant);

    /// After a refusal: whether all frames of the direction will be refused until the next flush.
    fn is_full(&self, _direction: Direction) -> bool {
        true
    }

    /// The counters of a pair's egress port of `direction`. Where there is one pair, its number is
    /// not looked at.
    fn egress(&self, pair: usize, direction: Direction) -> EgressCounters;

    /// Sleeps until a frame arrives or `timeout` has passed, or for a part of it. Whether a frame
    /// ended it.
    fn wait(&mut self, timeout: Duration) -> bool;
}
