// SPDX-License-Identifier: Apache-2.0
//! Real ports, polled through DPDK.
//!
//! Small frames are copied into the packet store, and their buffers carry the next ones
//! that leave; large ones may stay in theirs (docs/adr/0002). Leaving frames are staged until
//! the driver takes them. So the pool has to hold the buffers in the drivers' rings and in the
//! two stages, and all that the link may keep.
//!
//! A driver that takes nothing for [`GIVE_UP_AFTER`] loses the frame at the head of
//! its stage, counted as dropped: some drivers refuse a frame that they cannot send
//! forever, and the others behind it must get through. A frame that is too long for the
//! interface below a port is counted so at once, since the driver would not tell.

use std::time::Duration;

use dpdk::{Mbuf, MbufBurst, Mempool, RxQueue, TxQueue, Waiter};
use emu::engine::Departure;
use emu::frame::{Frame, Label};
use emu::store::MAX_FRAME;
use emu::units::{ByDirection, Direction, Instant, Nanos};

use crate::clock::Clock;
use crate::io::{Arrivals, EgressCounters, PacketIo, Reception};

/// A driver that refuses for this long loses a frame.
pub const GIVE_UP_AFTER: Nanos = Nanos::from_millis(100);

/// Bytes of the two MAC addresses, after which a VLAN tag stands.
const ADDRESSES: usize = 12;

/// Frames on their way into a port's driver.
#[derive(Default)]
pub(crate) struct Stage {
    frames: MbufBurst,
    dropped: u64,
    /// Since when the driver has refused the staged frames.
    refused: Option<Instant>,
}

impl Stage {
    pub(crate) fn flush(&mut self, queue: &mut TxQueue, now: Instant) {
        if self.frames.is_empty() {
            return;
        }
        if queue.burst(&mut self.frames) > 0 || self.frames.is_empty() {
            self.refused = None;
        } else if now.since(*self.refused.get_or_insert(now)) >= GIVE_UP_AFTER {
            self.refused = None;
            self.dropped += 1;
            let mut rest = MbufBurst::new();
            for frame in self.frames.drain().skip(1) {
                // As many as there were fit again.
                let _ = rest.push(frame);
            }
            self.frames = rest;
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.frames.is_full()
    }

    /// Stages a frame, or drops it if it is too long for the interface. False without room.
    #[inline(always)]
    pub(crate) fn take(&mut self, mbuf: Mbuf, queue: &TxQueue) -> bool {
        if !queue.takes(&mbuf) {
            return self.lose();
        }
        self.frames.push(mbuf).is_ok()
    }

    /// Drops a frame that is not staged, which counts as taken.
    pub(crate) fn lose(&mut self) -> bool {
        self.dropped += 1;
        true
    }

    pub(crate) fn frames(&self) -> &[Mbuf] {
        self.frames.as_slice()
    }

    pub(crate) fn counters(&self) -> EgressCounters {
        EgressCounters { staged: self.frames.len() as u64, dropped: self.dropped }
    }
}

/// A worker's buffers to send from.
pub(crate) struct Buffers {
    pub(crate) pool: Mempool,
    /// Buffers of frames that were copied; leaving frames are copied into
    /// them, which saves the way through the pool.
    pub(crate) spare: MbufBurst,
}

impl Buffers {
    pub(crate) fn new(pool: Mempool) -> Self {
        Self { pool, spare: MbufBurst::new() }
    }

    /// A leaving frame in a buffer; none if there is no buffer.
    #[inline]
    pub(crate) fn hold(&mut self, frame: Frame<'_, Mbuf>) -> Option<Mbuf> {
        match frame {
            Frame::Bytes(bytes) => {
                let spare = self.spare.pop().and_then(|mut m| m.refill(bytes).then_some(m));
                spare.or_else(|| self.pool.alloc(bytes))
            }
            Frame::Buffer(buffer) => buffer.take(),
        }
    }
}

/// A source of received frames.
pub trait Source {
    /// Appends up to `most` frames, from 4 to a burst, to `into`; returns how many.
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize;

    /// As [`PacketIo::discard`].
    fn discard(&mut self) {}
}

impl Source for RxQueue {
    #[inline]
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        self.burst_of(into, most)
    }

    fn discard(&mut self) {
        Self::discard(self);
    }
}

/// A port that another worker polls brings nothing.
impl<S: Source> Source for Option<S> {
    #[inline]
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        self.as_mut().map_or(0, |source| source.burst(into, most))
    }

    fn discard(&mut self) {
        self.iter_mut().for_each(Source::discard);
    }
}

#[derive(Debug)]
pub struct PortQueues<S = RxQueue> {
    pub rx: S,
    pub tx: TxQueue,
}

/// A worker's queues of both ports.
pub struct DpdkIo<S = RxQueue> {
    /// By the direction that comes in there.
    ingress: ByDirection<S>,
    /// By the direction that leaves there.
    egress: ByDirection<(TxQueue, Stage)>,
    buffers: Buffers,
    received: MbufBurst,
    /// For frames that came in pieces; one byte more than any frame that passes, so
    /// that a longer one is still seen as too long.
    scratch: Vec<u8>,
    waiter: Waiter,
    /// As of the last flush.
    now: Instant,
}

impl<S> std::fmt::Debug for DpdkIo<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DpdkIo").finish_non_exhaustive()
    }
}

impl<S: Source> DpdkIo<S> {
    /// A worker's ports; `pool` has the buffers to send from, `waiter` wakes on frames that both
    /// ports receive.
    #[must_use]
    pub fn new(wan: PortQueues<S>, client: PortQueues<S>, pool: Mempool, waiter: Waiter) -> Self {
        Self {
            ingress: ByDirection([wan.rx, client.rx]),
            egress: ByDirection([(client.tx, Stage::default()), (wan.tx, Stage::default())]),
            buffers: Buffers::new(pool),
            received: MbufBurst::new(),
            scratch: vec![0; MAX_FRAME as usize + 1],
            waiter,
            now: Instant::ZERO,
        }
    }
}

/// Whether a frame is in one piece and has its VLAN tag in it.
pub(crate) fn is_whole(mbuf: &Mbuf) -> bool {
    mbuf.segments() == 1 && mbuf.stripped_vlan().is_none()
}

/// Brings a frame into one piece, with its VLAN tag: in place if that goes, else in
/// `scratch`.
pub(crate) fn make_whole<'a>(mbuf: &mut Mbuf, scratch: &'a mut [u8]) -> Option<&'a [u8]> {
    let tag = mbuf.stripped_vlan();
    let whole = mbuf.restore_vlan();
    if whole && mbuf.segments() == 1 {
        return None;
    }
    let mut n = mbuf.copy_into(scratch);
    if let Some(tci) = tag.filter(|_| !whole && n >= ADDRESSES) {
        // No room before the frame: the tag goes in here.
        n = (n + 4).min(scratch.len());
        scratch.copy_within(ADDRESSES..n - 4, ADDRESSES + 4);
        scratch[ADDRESSES..ADDRESSES + 2].copy_from_slice(&[0x81, 0x00]);
        scratch[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tci.to_be_bytes());
    }
    Some(&scratch[..n])
}

impl<S: Source> PacketIo for DpdkIo<S> {
    type Buffer = Mbuf;

    fn discard(&mut self) {
        self.ingress.0.iter_mut().for_each(Source::discard);
    }

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Mbuf>,
        most: usize,
    ) -> usize {
        let mut n = 0;
        for direction in Direction::BOTH {
            let came = self.ingress[direction].burst(&mut self.received, most);
            if came == 0 {
                continue;
            }
            n += came;
            let of = Reception::new(clock.now(), direction);
            let (scratch, Buffers { pool, spare }) = (&mut self.scratch, &mut self.buffers);
            self.received.lend(spare, |mut burst| {
                // Runs of whole frames, and between them those that are not.
                while !burst.is_empty() {
                    let whole = |b: &Option<Mbuf>| b.as_ref().is_none_or(is_whole);
                    let run = burst.iter().position(|b| !whole(b)).unwrap_or(burst.len());
                    let (run, rest) = burst.split_at_mut(run);
                    if !run.is_empty() {
                        arrivals.burst(of, run);
                    }
                    let Some((odd, rest)) = rest.split_first_mut() else { break };
                    match odd.as_mut().map(|mbuf| make_whole(mbuf, scratch)) {
                        // In one buffer, so that it can be passed on or kept.
                        Some(Some(frame)) => match pool.alloc(frame).filter(is_whole) {
                            Some(whole) => arrivals.burst(of, &mut [Some(whole)]),
                            None => arrivals.frame(of, frame, Label::NONE),
                        },
                        _ => arrivals.burst(of, std::slice::from_mut(odd)),
                    }
                    burst = rest;
                }
            });
        }
        n
    }

    #[inline(always)]
    fn transmit(&mut self, departure: Departure<'_, Mbuf>) -> bool {
        let (queue, stage) = &mut self.egress[departure.direction];
        if stage.is_full() {
            stage.flush(queue, self.now);
            if stage.is_full() {
                return false;
            }
        }
        let Some(mbuf) = self.buffers.hold(departure.frame) else { return false };
        stage.take(mbuf, queue)
    }

    fn flush(&mut self, now: Instant) {
        self.now = now;
        for (queue, stage) in &mut self.egress.0 {
            stage.flush(queue, now);
        }
    }

    fn egress(&self, _pair: usize, direction: Direction) -> EgressCounters {
        self.egress[direction].1.counters()
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.waiter.wait(timeout)
    }
}
