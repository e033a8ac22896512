// SPDX-License-Identifier: Apache-2.0
//! Traffic out of the null driver: what a port receives when its wire is full.
//!
//! `net_null` gives buffers of a fixed length without touching them; the generator writes
//! Ethernet, IPv4 and UDP headers into each, chooses its client and moves the clock on by its
//! wire time. A mix of lengths takes one port for each. Whatever this costs is part of both
//! contenders and cancels out. Measuring thread.

use std::net::Ipv4Addr;

use dpdk::{Mbuf, MbufBurst, RX_BURST, RxQueue, TscClock};
use emu::engine::Engine;
use emu::frame::Buffer;
use emu::units::{Direction, Instant};
use worker::dpdk_io::Source;
use worker::sim;

use crate::case::Case;
use crate::pace::{Pacer, wire_ticks};

/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 42;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;
/// The first client; clients have consecutive addresses.
const FIRST_CLIENT: u32 = u32::from_be_bytes([10, 0, 0, 1]);
/// Multiplier and increment of the generator of draws (Knuth, MMIX).
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// Getting a burst of buffers takes less than this, ns.
const AHEAD: u64 = 2_000;

/// The client of the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One client after the other: each one's frames are evenly spaced.
    RoundRobin,
    /// Each frame's client is drawn at random: no locality, and queues build up.
    Shuffled,
}

#[derive(Clone, Debug)]
struct Clients {
    count: u32,
    order: Order,
    state: u64,
}

impl Clients {
    #[inline]
    fn next(&mut self) -> u32 {
        if self.count == 1 {
            return FIRST_CLIENT;
        }
        let index = match self.order {
            Order::RoundRobin => {
                let index = self.state as u32;
                self.state = if index + 1 == self.count { 0 } else { self.state + 1 };
                index
            }
            Order::Shuffled => {
                self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
                // The high half as a fraction of 2³².
                (((self.state >> 32) * u64::from(self.count)) >> 32) as u32
            }
        };
        FIRST_CLIENT + index
    }
}

#[derive(Debug)]
struct Supply {
    queue: RxQueue,
    headers: [u8; HEADERS],
    ticks: u64,
    stash: Vec<Mbuf>,
}

/// Writes the headers of a frame into its buffer, with the address of `client` at `at`.
#[inline]
fn write(mbuf: &mut Mbuf, headers: &[u8; HEADERS], at: usize, client: u32) {
    if let Some(head) = mbuf.contiguous_mut().and_then(|f| f.first_chunk_mut::<HEADERS>()) {
        *head = *headers;
        if let Some(address) = head.get_mut(at..at + 4) {
            address.copy_from_slice(&client.to_be_bytes());
        }
    }
}

/// Where a client's address stands.
fn address(direction: Direction) -> usize {
    match direction {
        Direction::Forward => DESTINATION,
        Direction::Return => SOURCE,
    }
}

/// Has the clients of a case resolved at `at`, so that their frames are theirs.
pub fn resolve<B: Buffer>(engine: &mut Engine<B>, case: &Case, at: Instant) {
    sim::resolve(engine, at, clients(case));
}

/// The addresses of the clients of a case.
pub fn clients(case: &Case) -> impl Iterator<Item = Ipv4Addr> {
    (FIRST_CLIENT..).take(case.clients as usize).map(Ipv4Addr::from_bits)
}

#[derive(Debug)]
pub struct Generator {
    supplies: Vec<Supply>,
    order: &'static [u8],
    /// Place in `order`.
    at: usize,
    clients: Clients,
    address: usize,
    pacer: Pacer,
    fresh: MbufBurst,
}

impl Generator {
    /// Frames of `case` in `direction` from `queues`, one for each length, by `pacer`'s clock.
    #[must_use]
    pub fn new(
        queues: Vec<RxQueue>,
        case: &Case,
        direction: Direction,
        order: Order,
        pacer: Pacer,
    ) -> Self {
        let supply = |(queue, len): (RxQueue, u32)| Supply {
            queue,
            headers: headers(len),
            ticks: wire_ticks(len, case.paced_bps()),
            stash: Vec::with_capacity(RX_BURST),
        };
        Self {
            supplies: queues.into_iter().zip(case.sizes.lengths()).map(supply).collect(),
            order: case.sizes.order(),
            at: 0,
            clients: Clients { count: case.clients, order, state: direction as u64 },
            address: address(direction),
            pacer,
            fresh: MbufBurst::new(),
        }
    }

    /// Receives up to `most` frames; returns how many.
    #[inline]
    pub fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        let before = into.len();
        if let [supply] = &mut self.supplies[..] {
            supply.queue.burst_of(into, most);
            for mbuf in &mut into.as_mut_slice()[before..] {
                write(mbuf, &supply.headers, self.address, self.clients.next());
                self.pacer.step(supply.ticks);
            }
        } else {
            self.mixed(into, most);
        }
        self.pacer.show();
        into.len() - before
    }

    /// Its queue, if all frames have one length.
    #[must_use]
    pub fn into_queue(self) -> Option<RxQueue> {
        let [supply] = <[Supply; 1]>::try_from(self.supplies).ok()?;
        Some(supply.queue)
    }

    fn mixed(&mut self, into: &mut MbufBurst, most: usize) {
        for _ in 0..most {
            let supply = &mut self.supplies[usize::from(self.order[self.at])];
            if supply.stash.is_empty() {
                supply.queue.burst(&mut self.fresh);
                supply.stash.extend(self.fresh.drain());
            }
            let Some(mut mbuf) = supply.stash.pop() else { return };
            write(&mut mbuf, &supply.headers, self.address, self.clients.next());
            if into.push(mbuf).is_err() {
                return;
            }
            self.pacer.step(supply.ticks);
            self.at = if self.at + 1 == self.order.len() { 0 } else { self.at + 1 };
        }
    }
}

/// Frames of one length to the first client, without a time; for any thread.
#[derive(Debug)]
pub struct Repeated {
    queue: RxQueue,
    headers: [u8; HEADERS],
}

impl Repeated {
    /// Frames of `len` bytes without FCS.
    #[must_use]
    pub fn new(queue: RxQueue, len: u32) -> Self {
        Self { queue, headers: headers(len) }
    }

    /// The address of their client.
    #[must_use]
    pub fn client() -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_CLIENT)
    }
}

impl Source for Repeated {
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        let before = into.len();
        let received = self.queue.burst_of(into, most);
        for mbuf in &mut into.as_mut_slice()[before..] {
            write(mbuf, &self.headers, DESTINATION, FIRST_CLIENT);
        }
        received
    }
}

/// Traffic that arrives at a port.
#[derive(Debug)]
pub enum Feed {
    Wire(Box<Generator>),
    /// A wire on which frames come at set times.
    Timed(Box<Timed>),
    /// Nothing: the queue of a port that receives nothing is polled all the same.
    Silent(RxQueue),
}

impl Source for Feed {
    #[inline]
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        match self {
            Self::Wire(generator) => generator.burst(into, most),
            Self::Timed(timed) => timed.burst(into, most),
            Self::Silent(queue) => queue.burst_of(into, most),
        }
    }
}

/// Frames of one length to one client, evenly spaced in real time.
#[derive(Debug)]
pub struct Timed {
    supply: Supply,
    fresh: MbufBurst,
    clock: TscClock,
    /// When the next frame comes, ns.
    next: u64,
    interval: u64,
}

impl Timed {
    /// Frames of `len` bytes without FCS every `interval` ns of `clock`, from its time `start`.
    #[must_use]
    pub fn new(queue: RxQueue, len: u32, clock: TscClock, start: u64, interval: u64) -> Self {
        let stash = Vec::with_capacity(2 * RX_BURST);
        let supply = Supply { queue, headers: headers(len), ticks: 0, stash };
        Self { supply, fresh: MbufBurst::new(), clock, next: start, interval }
    }

    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        let (now, before) = (self.clock.now(), into.len());
        // While nothing is due: what it costs to get buffers is not the emulator's.
        if self.supply.stash.len() < RX_BURST && now + AHEAD < self.next {
            self.supply.queue.burst(&mut self.fresh);
            self.supply.stash.extend(self.fresh.drain());
        }
        while self.next <= now && into.len() < before + most {
            // Empty after a gap: the rest comes when there was time for buffers.
            let Some(mut mbuf) = self.supply.stash.pop() else {
                self.supply.queue.burst(&mut self.fresh);
                self.supply.stash.extend(self.fresh.drain());
                break;
            };
            write(&mut mbuf, &self.supply.headers, DESTINATION, FIRST_CLIENT);
            if into.push(mbuf).is_err() {
                break;
            }
            self.next += self.interval;
        }
        into.len() - before
    }
}

/// Headers of a UDP frame of `len` bytes without FCS, client and direction left open.
fn headers(len: u32) -> [u8; HEADERS] {
    let ip = (len as u16).saturating_sub(14);
    let udp = ip.saturating_sub(20);
    let mut h = [0; HEADERS];
    h[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 2]);
    h[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    h[12..14].copy_from_slice(&[0x08, 0x00]);
    h[14] = 0x45;
    h[16..18].copy_from_slice(&ip.to_be_bytes());
    h[22] = 64;
    h[23] = 17;
    h[26..30].copy_from_slice(&[192, 0, 2, 1]);
    h[30..34].copy_from_slice(&[192, 0, 2, 1]);
    h[34..36].copy_from_slice(&4_000_u16.to_be_bytes());
    h[36..38].copy_from_slice(&4_001_u16.to_be_bytes());
    h[38..40].copy_from_slice(&udp.to_be_bytes());
    h
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu::classify::{Class, classify};
    use emu::client::ClientKey;
    use std::collections::BTreeSet;

    #[test]
    fn the_headers_are_those_of_the_client() {
        for (len, direction) in [60, 590, 1514].into_iter().zip(Direction::BOTH.repeat(2)) {
            let (mut frame, at) = (vec![0; len as usize], address(direction));
            frame[..HEADERS].copy_from_slice(&headers(len));
            frame[at..at + 4].copy_from_slice(&FIRST_CLIENT.to_be_bytes());
            let key = ClientKey::Ip("10.0.0.1".parse().unwrap());
            assert_eq!(classify(&frame, direction), Class::Client(key));
        }
    }

    #[test]
    fn round_robin_visits_each_client_in_turn() {
        let mut clients = Clients { count: 3, order: Order::RoundRobin, state: 0 };
        let seen: Vec<u32> = (0..5).map(|_| clients.next() - FIRST_CLIENT).collect();
        assert_eq!(seen, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn shuffled_visits_every_client_about_equally_and_repeats() {
        let draw = || {
            let mut clients = Clients { count: 100, order: Order::Shuffled, state: 0 };
            (0..100_000).map(|_| clients.next() - FIRST_CLIENT).collect::<Vec<u32>>()
        };
        let seen = draw();
        assert_eq!(seen, draw());
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 100);
        // Binomial with mean 1000 and deviation 31.5: six of them either way.
        let count = seen.iter().filter(|c| **c == 7).count();
        assert!((811..=1189).contains(&count), "{count}");
    }
}
