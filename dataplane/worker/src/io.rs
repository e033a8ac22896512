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

/// Takes in the frames that a port received. A frame that another worker has received comes with
/// its place.
pub trait Arrivals<B> {
    /// Where a frame that arrived at `at` by a port pair belongs, on one of `workers`.
    fn place(&self, at: Instant, direction: Direction, frame: (&[u8], u8), workers: usize)
    -> Place;

    /// A frame that arrived at `at`, to be copied.
    fn frame(
        &mut self,
        at: Instant,
        direction: Direction,
        place: Option<Place>,
        frame: &[u8],
        label: Label<'_>,
    );

    /// A burst of frames that arrived at `at`, each in one piece. The buffers that are
    /// kept are taken out.
    fn burst(
        &mut self,
        at: Instant,
        direction: Direction,
        place: Option<Place>,
        burst: &mut [Option<B>],
    );
}

impl<B: Buffer> Arrivals<B> for Links<B> {
    #[inline]
    fn place(
        &self,
        at: Instant,
        direction: Direction,
        frame: (&[u8], u8),
        workers: usize,
    ) -> Place {
        Links::place(self, at, direction, frame, workers)
    }

    #[inline]
    fn frame(
        &mut self,
        at: Instant,
        direction: Direction,
        place: Option<Place>,
        frame: &[u8],
        label: Label<'_>,
    ) {
        self.arrive(at, direction, place, frame, label);
    }

    #[inline]
    fn burst(
        &mut self,
        at: Instant,
        direction: Direction,
        place: Option<Place>,
        burst: &mut [Option<B>],
    ) {
        match place {
            None => self.arrive_burst(at, direction, burst),
            Some(place) => self.arrive_burst_placed(at, direction, place, burst),
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

    /// Hands a burst of frames from each ingress port to `arrivals`, each with its
    /// direction and its time of arrival. Where the port does not know better that is read
    /// from `clock` once the burst is here: a time from before would make frames early if
    /// the thread was held up in between. Returns how many.
    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Self::Buffer>,
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

    /// Sleeps until a frame arrives or `timeout` has passed, or for a part of it.
    fn wait(&mut self, timeout: Duration);
}
