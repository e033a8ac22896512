// SPDX-License-Identifier: Apache-2.0
//! Simulated ports: recorded arrivals in virtual time.
//!
//! The link is told each frame's own time of arrival, as a port with hardware
//! timestamps would, but gets the frames in bursts: a burst is handed over when its
//! last frame has arrived, or earlier when the clock has passed some of it.

use std::time::Duration;

use emu::classify::{Class, classify};
use emu::client::ClientKey;
use emu::engine::Departure;
use emu::units::{Direction, Instant};

use crate::clock::{Clock, VirtualClock};
use crate::io::{EgressCounters, PacketIo};
use crate::run::Worker;

/// A frame that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// Which way it goes.
    pub direction: Direction,
    /// The frame.
    pub frame: Vec<u8>,
}

/// A frame that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Whose it was.
    pub client: ClientKey,
    /// Which way it went.
    pub direction: Direction,
    /// When it was due.
    pub due: Instant,
    /// When it left.
    pub at: Instant,
    /// The frame.
    pub frame: Vec<u8>,
}

/// Recorded arrivals in, departures out.
#[derive(Debug)]
pub struct SimIo {
    arrivals: Vec<Arrival>,
    next: usize,
    burst: usize,
    now: Instant,
    /// What left, in order.
    pub sent: Vec<Sent>,
}

impl SimIo {
    /// Ports that bring `arrivals`, in order of time, `burst` at once.
    #[must_use]
    pub fn new(arrivals: Vec<Arrival>, burst: usize) -> Self {
        Self { arrivals, next: 0, burst: burst.max(1), now: Instant::ZERO, sent: Vec::new() }
    }

    /// When the next burst is complete.
    fn burst_at(&self) -> Option<Instant> {
        let last = self.arrivals.len().checked_sub(1)?;
        (self.next <= last).then(|| self.arrivals[(self.next + self.burst - 1).min(last)].at)
    }
}

impl PacketIo for SimIo {
    fn receive(
        &mut self,
        clock: &mut impl Clock,
        mut arrive: impl FnMut(Direction, Instant, &[u8]),
    ) -> usize {
        let now = clock.now();
        self.now = now;
        let mut n = 0;
        while n < self.burst
            && let Some(a) = self.arrivals.get(self.next)
            && a.at <= now
        {
            arrive(a.direction, a.at, &a.frame);
            self.next += 1;
            n += 1;
        }
        n
    }

    fn transmit(&mut self, d: Departure<'_>) -> bool {
        self.sent.push(Sent {
            client: d.client,
            direction: d.direction,
            due: d.due,
            at: self.now,
            frame: d.frame.to_vec(),
        });
        true
    }

    fn flush(&mut self, _now: Instant) {}

    fn egress(&self, _direction: Direction) -> EgressCounters {
        EgressCounters::default()
    }

    fn wait(&mut self, _timeout: Duration) {}
}

/// Lets a worker run in virtual time until everything has arrived and left.
pub fn run(worker: &mut Worker<SimIo, VirtualClock>, clock: &VirtualClock) {
    loop {
        let turn = worker.turn();
        if turn.received + turn.released > 0 {
            continue;
        }
        let next = [worker.io().burst_at(), worker.engine().next_deadline()];
        let Some(next) = next.into_iter().flatten().min() else { return };
        clock.set(next.max(turn.now));
    }
}

/// The worker, of `workers`, that a frame belongs to: all frames of a client go to
/// one. Those of the fixed clients go to the first.
#[must_use]
pub fn worker_of(frame: &[u8], direction: Direction, workers: usize) -> usize {
    match classify(frame, direction) {
        Class::Client(key @ ClientKey::Ip(_)) => {
            let sum: usize = key.to_bytes().iter().map(|b| usize::from(*b)).sum();
            sum % workers.max(1)
        }
        _ => 0,
    }
}
