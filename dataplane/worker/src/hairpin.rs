// SPDX-License-Identifier: Apache-2.0
//! A hairpin pair: one port with two VLANs, one of which is `wan` and the other `client`.
//!
//! A received frame with the 802.1Q tag of one side came in there. Its tag is taken off, so links,
//! rules and captures see the frame without it, and the tag of the other side is put on when the
//! frame leaves, with priority 0. Frames with another outer tag or none are of neither side: they
//! are counted and dropped.
//!
//! The driver counts the frames of both sides together. [`Sides`] tells them apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dpdk::{Mbuf, MbufBurst, Mempool, Waiter};
use emu::engine::Departure;
use emu::frame::Label;
use emu::stats::Count;
use emu::store::MAX_FRAME;
use emu::units::{ByDirection, Direction, Instant};

use crate::clock::Clock;
use crate::dpdk_io::{Buffers, PortQueues, Source, Stage, is_whole, make_whole};
use crate::io::{Arrivals, EgressCounters, PacketIo, Reception};

/// Bytes of a tag.
pub const VLAN_TAG: u32 = 4;
/// Bits of a tag that are the VLAN's id.
const ID: u16 = 0xfff;
/// Frames of a burst.
const BURST: usize = MbufBurst::CAPACITY;

/// Packets and bytes, without the tag; written by one thread.
#[derive(Debug, Default)]
struct Tally {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    fn add(&self, packets: usize, bytes: usize) {
        let more = |sum: &AtomicU64, n: usize| {
            sum.store(sum.load(Ordering::Relaxed) + n as u64, Ordering::Relaxed);
        };
        more(&self.packets, packets);
        more(&self.bytes, bytes);
    }

    fn count(&self) -> Count {
        let [packets, bytes] = [&self.packets, &self.bytes].map(|sum| sum.load(Ordering::Relaxed));
        Count { packets, bytes }
    }
}

/// Frames of the two sides of a hairpin pair on one worker, which alone writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Sides {
    received: ByDirection<Tally>,
    sent: ByDirection<Tally>,
    foreign: Tally,
}

impl Sides {
    /// Frames that came in for a direction.
    #[must_use]
    pub fn received(&self, direction: Direction) -> Count {
        self.received[direction].count()
    }

    /// Frames of a direction that the driver took.
    #[must_use]
    pub fn sent(&self, direction: Direction) -> Count {
        self.sent[direction].count()
    }

    /// Frames of neither side, which were dropped.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign.count().packets
    }
}

/// A worker's share of the port of a hairpin pair.
pub struct HairpinIo<S> {
    port: PortQueues<S>,
    /// Ids of the sides, by the direction that comes in there.
    vlans: ByDirection<u16>,
    /// By the direction that leaves.
    stages: ByDirection<Stage>,
    buffers: Buffers,
    received: MbufBurst,
    /// Received frames by direction.
    bursts: ByDirection<Vec<Option<Mbuf>>>,
    /// For frames that came in pieces; one byte more than any frame that passes, so that a longer
    /// one is still seen as too long.
    scratch: Vec<u8>,
    waiter: Waiter,
    sides: Arc<Sides>,
    /// As of the last flush.
    now: Instant,
}

impl<S> std::fmt::Debug for HairpinIo<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HairpinIo").field("vlans", &self.vlans).finish_non_exhaustive()
    }
}

impl<S: Source> HairpinIo<S> {
    /// The port with the ids of the VLANs of `wan` and `client`; `pool` has the buffers to send
    /// from, `waiter` wakes on frames that the port receives.
    #[must_use]
    pub fn new(port: PortQueues<S>, vlans: [u16; 2], pool: Mempool, waiter: Waiter) -> Self {
        let burst = || Vec::with_capacity(BURST);
        Self {
            port,
            vlans: ByDirection(vlans),
            stages: ByDirection(<[Stage; 2]>::default()),
            buffers: Buffers::new(pool),
            received: MbufBurst::new(),
            bursts: ByDirection([burst(), burst()]),
            scratch: vec![0; MAX_FRAME as usize + 1],
            waiter,
            sides: Arc::default(),
            now: Instant::ZERO,
        }
    }

    /// The frames of its sides.
    #[must_use]
    pub fn sides(&self) -> Arc<Sides> {
        self.sides.clone()
    }

    /// Takes the tag off; the direction that the frame came in for, if it is one of this pair.
    fn untag(&self, mbuf: &mut Mbuf) -> Option<Direction> {
        let id = mbuf.take_vlan()? & ID;
        Direction::BOTH.into_iter().find(|direction| self.vlans[*direction] == id)
    }

    fn flush_stage(&mut self, direction: Direction) {
        let stage = &mut self.stages[direction];
        let (packets, bytes, dropped) = state(stage);
        stage.flush(&mut self.port.tx, self.now);
        let (left, left_bytes, now_dropped) = state(stage);
        // A frame that was given up is not sent.
        if now_dropped == dropped && left < packets {
            self.sides.sent[direction].add(packets - left, bytes - left_bytes);
        }
    }
}

/// Frames in a stage, their bytes without the tags, and dropped frames.
fn state(stage: &Stage) -> (usize, usize, u64) {
    let frames = stage.frames();
    let bytes: usize = frames.iter().map(Mbuf::len).sum();
    (frames.len(), bytes - frames.len() * VLAN_TAG as usize, stage.counters().dropped)
}

/// Hands on the frames of a direction that were received. Buffers that were copied are for leaving
/// frames.
fn hand_on(
    of: Reception,
    arrivals: &mut impl Arrivals<Mbuf>,
    bursts: &mut ByDirection<Vec<Option<Mbuf>>>,
    buffers: &mut Buffers,
) {
    let burst = &mut bursts[of.direction];
    if !burst.is_empty() {
        arrivals.burst(of, burst);
    }
    for mbuf in burst.drain(..).flatten() {
        let _ = buffers.spare.push(mbuf);
    }
}

impl<S: Source> PacketIo for HairpinIo<S> {
    type Buffer = Mbuf;

    fn discard(&mut self) {
        self.port.rx.discard();
    }

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Mbuf>,
        most: usize,
    ) -> usize {
        let n = self.port.rx.burst(&mut self.received, most);
        if n == 0 {
            return 0;
        }
        let now = clock.now();
        let mut received = std::mem::take(&mut self.received);
        let mut foreign = 0;
        for mut mbuf in received.drain() {
            let Some(direction) = self.untag(&mut mbuf) else {
                foreign += 1;
                continue;
            };
            self.sides.received[direction].add(1, mbuf.len());
            if is_whole(&mbuf) {
                self.bursts[direction].push(Some(mbuf));
                continue;
            }
            let Some(frame) = make_whole(&mut mbuf, &mut self.scratch) else { continue };
            // In one buffer, so that it can be passed on or kept.
            match self.buffers.pool.alloc(frame).filter(is_whole) {
                Some(whole) => self.bursts[direction].push(Some(whole)),
                None => {
                    // Behind those that came before it.
                    let of = Reception::new(now, direction);
                    hand_on(of, arrivals, &mut self.bursts, &mut self.buffers);
                    arrivals.frame(of, frame, Label::NONE);
                }
            }
        }
        self.received = received;
        if foreign > 0 {
            self.sides.foreign.add(foreign, 0);
        }
        for direction in Direction::BOTH {
            let of = Reception::new(now, direction);
            hand_on(of, arrivals, &mut self.bursts, &mut self.buffers);
        }
        n
    }

    fn transmit(&mut self, departure: Departure<'_, Mbuf>) -> bool {
        let Departure { direction, frame, .. } = departure;
        if self.stages[direction].is_full() {
            self.flush_stage(direction);
            if self.stages[direction].is_full() {
                return false;
            }
        }
        let Some(mut mbuf) = self.buffers.hold(frame) else { return false };
        // Buffers have headroom for more than one tag.
        let has_tag = mbuf.push_vlan(self.vlans[direction.opposite()]);
        let stage = &mut self.stages[direction];
        if has_tag { stage.take(mbuf, &self.port.tx) } else { stage.lose() }
    }

    fn flush(&mut self, now: Instant) {
        self.now = now;
        Direction::BOTH.into_iter().for_each(|direction| self.flush_stage(direction));
    }

    fn egress(&self, _pair: usize, direction: Direction) -> EgressCounters {
        self.stages[direction].counters()
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.waiter.wait(timeout)
    }
}

/// A pair with two ports, or with one.
#[derive(Debug)]
pub enum PairIo<S> {
    Two(crate::dpdk_io::DpdkIo<S>),
    Hairpin(HairpinIo<S>),
}

impl<S: Source> PairIo<S> {
    pub fn into_two(self) -> Option<crate::dpdk_io::DpdkIo<S>> {
        match self {
            Self::Two(io) => Some(io),
            Self::Hairpin(_) => None,
        }
    }

    /// The frames of the sides of a hairpin pair.
    #[must_use]
    pub fn sides(&self) -> Option<Arc<Sides>> {
        match self {
            Self::Two(_) => None,
            Self::Hairpin(io) => Some(io.sides()),
        }
    }
}

impl<S: Source> PacketIo for PairIo<S> {
    type Buffer = Mbuf;

    fn discard(&mut self) {
        match self {
            Self::Two(io) => io.discard(),
            Self::Hairpin(io) => io.discard(),
        }
    }

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Mbuf>,
        most: usize,
    ) -> usize {
        match self {
            Self::Two(io) => io.receive(clock, arrivals, most),
            Self::Hairpin(io) => io.receive(clock, arrivals, most),
        }
    }

    fn transmit(&mut self, departure: Departure<'_, Mbuf>) -> bool {
        match self {
            Self::Two(io) => io.transmit(departure),
            Self::Hairpin(io) => io.transmit(departure),
        }
    }

    fn flush(&mut self, now: Instant) {
        match self {
            Self::Two(io) => io.flush(now),
            Self::Hairpin(io) => io.flush(now),
        }
    }

    fn egress(&self, pair: usize, direction: Direction) -> EgressCounters {
        match self {
            Self::Two(io) => io.egress(pair, direction),
            Self::Hairpin(io) => io.egress(pair, direction),
        }
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        match self {
            Self::Two(io) => io.wait(timeout),
            Self::Hairpin(io) => io.wait(timeout),
        }
    }
}
