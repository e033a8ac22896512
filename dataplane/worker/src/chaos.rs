// SPDX-License-Identifier: Apache-2.0
//! Faults: ports that refuse, starve and stall, and a clock that jumps.
//!
//! The faults come from a seed, so that a failure repeats.

use std::time::Duration;

use emu::client::ClientKey;
use emu::engine::Departure;
use emu::rng::{Stage, Stream, StreamKey};
use emu::units::{Direction, Instant, Nanos, Probability};

use crate::clock::Clock;
use crate::io::{EgressCounters, PacketIo};

/// How often what goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A frame is refused by its egress port.
    pub refuse: Probability,
    /// A poll brings nothing although frames are there.
    pub starve: Probability,
    /// A reading of the clock is off, by up to `jump` either way.
    pub clock: Probability,
    /// How far the clock jumps.
    pub jump: Nanos,
}

/// A seeded source of faults; class 255 is not a stream that an engine uses.
fn stream(seed: u64) -> Stream {
    let key =
        StreamKey { seed, client: ClientKey::Bypass, direction: Direction::Forward, epoch: 0 };
    Stream::new(key, Stage::Aqm, u8::MAX)
}

/// Ports with faults.
#[derive(Debug)]
pub struct ChaosIo<I> {
    /// The ports that faults are put around.
    pub inner: I,
    faults: Faults,
    stream: Stream,
}

impl<I> ChaosIo<I> {
    /// Puts faults around `inner`.
    pub fn new(inner: I, faults: Faults, seed: u64) -> Self {
        Self { inner, faults, stream: stream(seed) }
    }
}

impl<I: PacketIo> PacketIo for ChaosIo<I> {
    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrive: impl FnMut(Direction, Instant, &[u8]),
    ) -> usize {
        if self.stream.chance(self.faults.starve) {
            return 0;
        }
        self.inner.receive(clock, arrive)
    }

    fn transmit(&mut self, departure: Departure<'_>) -> bool {
        !self.stream.chance(self.faults.refuse) && self.inner.transmit(departure)
    }

    fn flush(&mut self, now: Instant) {
        self.inner.flush(now);
    }

    fn egress(&self, direction: Direction) -> EgressCounters {
        self.inner.egress(direction)
    }

    fn wait(&mut self, timeout: Duration) {
        self.inner.wait(timeout);
    }
}

/// A clock that jumps, forwards and back.
#[derive(Debug)]
pub struct ChaosClock<C> {
    inner: C,
    faults: Faults,
    stream: Stream,
}

impl<C> ChaosClock<C> {
    /// Puts faults around `inner`.
    pub fn new(inner: C, faults: Faults, seed: u64) -> Self {
        Self { inner, faults, stream: stream(seed ^ u64::MAX) }
    }
}

impl<C: Clock> Clock for ChaosClock<C> {
    fn now(&mut self) -> Instant {
        let now = self.inner.now();
        if !self.stream.chance(self.faults.clock) {
            return now;
        }
        let off = self.stream.below(self.faults.jump);
        if self.stream.chance(Probability::new(0.5)) { now + off } else { now - off }
    }
}
