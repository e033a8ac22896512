// SPDX-License-Identifier: Apache-2.0
//! Faults: ports that refuse, starve and stall, ports that are polled late, and
//! a clock that jumps.
//!
//! The faults come from a seed or from a time, so that a failure repeats.

use std::ops::Range;
use std::time::Duration;

use emu::client::ClientKey;
use emu::engine::Departure;
use emu::rng::{Stage, Stream, StreamKey};
use emu::units::{Direction, Instant, Nanos, Probability};

use crate::clock::Clock;
use crate::io::{Arrivals, EgressCounters, PacketIo};

/// Probabilities and times of faults.
#[derive(Clone, Debug)]
pub struct Faults {
    /// An egress port refuses a frame.
    pub refuse: Probability,
    /// A poll returns nothing although frames are there.
    pub starve: Probability,
    /// A reading of the clock is wrong by up to `jump` in either direction.
    pub clock: Probability,
    pub jump: Nanos,
    /// When the egress ports refuse all frames.
    pub blocked: Range<Instant>,
    /// When the ingress ports return nothing.
    pub dry: Range<Instant>,
    /// From when on the clock is ahead, and by how much.
    pub ahead: Option<(Instant, Nanos)>,
    /// From when on the clock is behind, and by how much.
    pub behind: Option<(Instant, Nanos)>,
}

impl Faults {
    pub const NONE: Self = Self {
        refuse: Probability::ZERO,
        starve: Probability::ZERO,
        clock: Probability::ZERO,
        jump: Nanos::ZERO,
        blocked: Instant::ZERO..Instant::ZERO,
        dry: Instant::ZERO..Instant::ZERO,
        ahead: None,
        behind: None,
    };
}

/// A seeded source of faults; class 255 is not a stream that an engine uses.
fn stream(seed: u64) -> Stream {
    let key =
        StreamKey { seed, client: ClientKey::Bypass, direction: Direction::Forward, epoch: 0 };
    Stream::new(key, Stage::Aqm, u8::MAX)
}

#[derive(Debug)]
pub struct ChaosIo<I> {
    /// The ports behind the faults.
    pub inner: I,
    faults: Faults,
    stream: Stream,
    now: Instant,
}

impl<I> ChaosIo<I> {
    pub fn new(inner: I, faults: Faults, seed: u64) -> Self {
        Self { inner, faults, stream: stream(seed), now: Instant::ZERO }
    }
}

impl<I: PacketIo> PacketIo for ChaosIo<I> {
    type Buffer = I::Buffer;

    fn discard(&mut self) {
        self.inner.discard();
    }

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Self::Buffer>,
        most: usize,
    ) -> usize {
        self.now = clock.now();
        if self.faults.dry.contains(&self.now) || self.stream.chance(self.faults.starve) {
            return 0;
        }
        self.inner.receive(clock, arrivals, most)
    }

    fn transmit(&mut self, departure: Departure<'_, Self::Buffer>) -> bool {
        !self.faults.blocked.contains(&self.now)
            && !self.stream.chance(self.faults.refuse)
            && self.inner.transmit(departure)
    }

    fn flush(&mut self, now: Instant) {
        self.inner.flush(now);
    }

    fn egress(&self, pair: usize, direction: Direction) -> EgressCounters {
        self.inner.egress(pair, direction)
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.inner.wait(timeout)
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
    pub fn new(inner: C, faults: Faults, seed: u64) -> Self {
        Self { inner, faults, stream: stream(seed ^ u64::MAX) }
    }
}

impl<C: Clock> Clock for ChaosClock<C> {
    fn now(&mut self) -> Instant {
        let mut now = self.inner.now();
        let real = now;
        let by = |jump: Option<(Instant, Nanos)>| jump.filter(|(at, _)| real >= *at);
        if let Some((_, by)) = by(self.faults.ahead) {
            now = now + by;
        }
        if let Some((_, by)) = by(self.faults.behind) {
            now = now - by;
        }
        if !self.stream.chance(self.faults.clock) {
            return now;
        }
        let off = self.stream.below(self.faults.jump);
        if self.stream.chance(Probability::new(0.5)) { now + off } else { now - off }
    }
}
