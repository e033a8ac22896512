// SPDX-License-Identifier: Apache-2.0
//! Simulated ports: recorded arrivals in virtual time.
//!
//! The link gets each frame's own time of arrival, as a port with hardware
//! timestamps would, but gets the frames in bursts: a burst is handed over when its
//! last frame has arrived, or earlier when the clock has passed some of it. It is handed over as a
//! whole, however few a turn asks for: a later turn would take the rest as later arrivals.

use std::net::Ipv4Addr;
use std::time::Duration;

use emu::client::ClientKey;
use emu::engine::{Departure, Engine};
use emu::frame::{Buffer, Frame};
use emu::units::{Direction, Instant};

use crate::clock::{Clock, VirtualClock};
use crate::distribute::Distributed;
use crate::io::{Arrivals, EgressCounters, PacketIo, Reception};
use crate::paired::PairedIo;
use crate::run::Worker;
use crate::shim::ShimIo;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at: Instant,
    pub direction: Direction,
    pub frame: Vec<u8>,
}

/// Sends an ARP reply of each host from the client side at `at`, which makes it a client. Frames
/// that are due at that time are discarded.
pub fn resolve<B: Buffer>(
    engine: &mut Engine<B>,
    at: Instant,
    hosts: impl IntoIterator<Item = Ipv4Addr>,
) {
    for host in hosts {
        engine.arrive(at, Direction::Return, &resolving(host));
        engine.release(at, usize::MAX, &mut |_: Departure<'_, B>| true);
    }
}

/// An ARP reply of a host.
#[must_use]
pub fn resolving(host: Ipv4Addr) -> Vec<u8> {
    // Of Ethernet and IPv4.
    let head = [8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
    [&[2; 12][..], &head, &[2; 6], &host.octets(), &[4; 10]].concat()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub client: ClientKey,
    pub direction: Direction,
    pub due: Instant,
    pub at: Instant,
    pub frame: Vec<u8>,
}

/// Recorded arrivals in, departures out.
#[derive(Debug)]
pub struct SimIo {
    arrivals: Vec<Arrival>,
    next: usize,
    burst: usize,
    now: Instant,
    /// Frames that left, in order.
    pub sent: Vec<Sent>,
}

impl SimIo {
    /// Ports that bring `arrivals`, in order of time, `burst` at once.
    #[must_use]
    pub fn new(arrivals: Vec<Arrival>, burst: usize) -> Self {
        Self { arrivals, next: 0, burst: burst.max(1), now: Instant::ZERO, sent: Vec::new() }
    }
}

impl PacketIo for SimIo {
    type Buffer = Vec<u8>;

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Vec<u8>>,
        _most: usize,
    ) -> usize {
        let now = clock.now();
        self.now = now;
        let mut n = 0;
        while n < self.burst
            && let Some(a) = self.arrivals.get_mut(self.next)
            && a.at <= now
        {
            let of = Reception::new(a.at, a.direction);
            arrivals.burst(of, &mut [Some(std::mem::take(&mut a.frame))]);
            self.next += 1;
            n += 1;
        }
        n
    }

    fn transmit(&mut self, d: Departure<'_, Vec<u8>>) -> bool {
        self.sent.push(Sent {
            client: *d.client,
            direction: d.direction,
            due: d.due,
            at: self.now,
            frame: d.bytes().to_vec(),
        });
        if let Frame::Buffer(buffer) = d.frame {
            buffer.take();
        }
        true
    }

    fn flush(&mut self, _now: Instant) {}

    fn egress(&self, _pair: usize, _direction: Direction) -> EgressCounters {
        EgressCounters::default()
    }

    fn wait(&mut self, _timeout: Duration) -> bool {
        false
    }
}

/// Ports in virtual time, of which it is known when they bring something.
pub trait Recorded: PacketIo {
    /// When the next burst is complete.
    fn next_burst(&self) -> Option<Instant>;
}

impl Recorded for SimIo {
    fn next_burst(&self) -> Option<Instant> {
        let last = self.arrivals.len().checked_sub(1)?;
        (self.next <= last).then(|| self.arrivals[(self.next + self.burst - 1).min(last)].at)
    }
}

impl<I: Recorded> Recorded for Distributed<I> {
    fn next_burst(&self) -> Option<Instant> {
        self.inner().next_burst()
    }
}

impl<I: Recorded> Recorded for PairedIo<I> {
    fn next_burst(&self) -> Option<Instant> {
        self.pairs().iter().filter_map(I::next_burst).min()
    }
}

impl<I: Recorded> Recorded for ShimIo<I> {
    fn next_burst(&self) -> Option<Instant> {
        self.inner().next_burst()
    }
}

/// Lets a worker run in virtual time until everything has arrived and left.
pub fn run<I: Recorded>(worker: &mut Worker<I, VirtualClock>, clock: &VirtualClock) {
    run_all(std::slice::from_mut(worker), clock);
}

/// Lets workers with one clock run, turn by turn, until everything has arrived and left.
pub fn run_all<I: Recorded>(workers: &mut [Worker<I, VirtualClock>], clock: &VirtualClock) {
    loop {
        let (mut moved, mut now) = (0, Instant::ZERO);
        for worker in &mut *workers {
            let turn = worker.turn();
            moved += turn.received + turn.released;
            now = turn.now;
        }
        if moved > 0 {
            continue;
        }
        let next = workers.iter().flat_map(|w| [w.io().next_burst(), w.links().next_deadline()]);
        let Some(next) = next.flatten().min() else { return };
        clock.set(next.max(now));
    }
}
