// SPDX-License-Identifier: Apache-2.0
//! The test stand: EAL, and ports of the null driver.
//!
//! `net_null,copy=0` is a fully loaded wire: buffers of a fixed length with bytes that
//! the driver does not touch, as after a NIC's DMA. Frames leave through the same driver, which
//! frees them. Each contender has its own ports and pool, of the same kind. One direction is
//! loaded, as a core serves one direction of a wire at line rate; some cases load both.

use dpdk::{
    Eal, EalOptions, Memory, Mempool, Port, PortConfig, RX_BURST, RxQueue, StartedPort, TxQueue,
};
use emu::engine::Limits;
use emu::units::{Direction, Nanos};
use worker::clock::VirtualClock;

use crate::case::Case;
use crate::error::Error;
use crate::generator::{Feed, Generator, Order};
use crate::pace::Pacer;

/// Buffers in rings, stages and caches, however few are kept.
const SPARE: u32 = 8192;
/// Pools that are open besides the measured one.
const POOLS: u64 = 5;
/// Bytes of frame that fit in a buffer, unless frames are longer.
const ROOM: u32 = 1664;
/// Bytes that a buffer takes besides what fits: headroom (128), `rte_mbuf` (128), the pool's own
/// header (64) and rounding to cache lines and memory channels.
const BESIDES: u64 = 128 + 128 + 64 + 64;
/// Longest frame without FCS, unless those of the case are longer.
const FRAME: u32 = 1514;
/// Buffers and records beyond rate × delay: what queues for a while.
const MARGIN: f64 = 1.25;

/// EAL, and what all cases have in common.
#[derive(Debug)]
pub struct Bench {
    pub eal: Eal,
    pub memory: Memory,
    /// Order of the clients.
    pub order: Order,
    /// Frames longer than this keep their buffer.
    pub copy_break: u32,
}

/// The ports of one contender.
#[derive(Debug)]
pub struct Stand {
    /// Where its traffic to clients comes from.
    pub generator: Generator,
    /// Where its traffic from clients comes from: nothing, unless both directions are loaded.
    pub from_clients: Feed,
    /// Where frames leave to the client.
    pub client: TxQueue,
    /// Where frames leave the other way, if any.
    pub wan: TxQueue,
    /// The pool of sent frames.
    pub pool: Mempool,
    /// The ports, to be kept.
    pub ports: Vec<StartedPort>,
    /// The time, which the traffic moves.
    pub clock: VirtualClock,
}

impl Bench {
    /// Starts EAL with memory for the largest of `cases`, each with its copy-break, in hugepages where there are enough
    /// and `huge` says so.
    ///
    /// # Errors
    /// As [`Eal::init`].
    pub fn start(
        cases: &[(Case, u32)],
        huge: bool,
        order: Order,
        copy_break: u32,
    ) -> Result<Self, Error> {
        let pools = |(case, copy_break): &(Case, u32)| {
            (u64::from(kept(case, *copy_break)) + POOLS * u64::from(SPARE)) * buffer(case)
        };
        let bytes = cases.iter().map(pools).max().unwrap_or(0) * 11 / 10;
        let megabytes = u32::try_from(bytes >> 20).unwrap_or(u32::MAX) + 64;
        let memory = if huge { Memory::available(megabytes) } else { Memory::NoHuge { megabytes } };
        let eal = Eal::init(&EalOptions::new(memory))?;
        Ok(Self { eal, memory, order, copy_break })
    }

    /// Opens the ports of contender `name` for `case`, with `kept` buffers to keep.
    ///
    /// # Errors
    /// If DPDK refuses.
    pub fn open(&self, name: &str, case: &Case, kept: u32) -> Result<Stand, Error> {
        let eal = &self.eal;
        let pool = Mempool::new(eal, &format!("{name}-pool"), SPARE + kept, room(case))?;
        let mut ports = Vec::new();
        let mut open = |port: String, spec: String| -> Result<(RxQueue, TxQueue), Error> {
            let attached = Port::attach(eal, &port, &spec.parse()?)?;
            let (started, mut rx, mut tx) = attached.start(&PortConfig::new(&pool))?;
            ports.push(started);
            rx.pop().zip(tx.pop()).ok_or(Error::NoQueue { port })
        };
        let mut wire = |side: &str| -> Result<Vec<RxQueue>, Error> {
            let lengths = case.sizes.lengths().into_iter();
            let spec = |len| (format!("{name}-{side}{len}"), format!("net_null,size={len},copy=0"));
            lengths.map(|len| open(spec(len).0, spec(len).1).map(|(rx, _)| rx)).collect()
        };
        let receive = wire("in")?;
        let receive_from_clients = if case.both { wire("from")? } else { Vec::new() };
        let mut silent = |side| open(format!("{name}-{side}"), "net_null,no-rx=1".to_owned());
        let ((idle, client), (_, wan)) = (silent("client")?, silent("wan")?);
        let pacer = Pacer::new();
        let clock = pacer.clock();
        let wire =
            |queues, direction| Generator::new(queues, case, direction, self.order, pacer.clone());
        let generator = wire(receive, Direction::Forward);
        let from_clients = if case.both {
            Feed::Wire(Box::new(wire(receive_from_clients, Direction::Return)))
        } else {
            Feed::Silent(idle)
        };
        Ok(Stand { generator, from_clients, client, wan, pool, ports, clock })
    }

    /// Limits with room for the frames of the case.
    #[must_use]
    pub fn limits(&self, case: &Case) -> Limits {
        self.limits_above(case, self.copy_break)
    }

    /// As [`Bench::limits`], with another copy-break.
    #[must_use]
    pub fn limits_above(&self, case: &Case, copy_break: u32) -> Limits {
        // Twice the frames and their bookkeeping, and some segments for each client.
        let frames = case.held() * (2.0 * case.sizes.mean(f64::from) + 64.0);
        let memory = frames + f64::from(case.clients) * 65_536.0;
        Limits {
            memory: memory as usize + (64 << 20),
            clients: case.clients,
            frame: FRAME.max(longest(case)),
            copy_break,
            buffers: kept(case, copy_break),
            idle: Nanos::ZERO,
            offloaded: 0,
        }
    }
}

fn longest(case: &Case) -> u32 {
    case.sizes.lengths().into_iter().max().unwrap_or(0)
}

/// Bytes of frame that fit in a buffer of the case.
fn room(case: &Case) -> u16 {
    let room = longest(case).next_multiple_of(64).max(ROOM);
    u16::try_from(room).unwrap_or(u16::MAX)
}

/// Bytes that a buffer of the case takes.
#[must_use]
pub fn buffer(case: &Case) -> u64 {
    u64::from(room(case)) + BESIDES
}

/// Buffers that the case keeps.
fn kept(case: &Case, copy_break: u32) -> u32 {
    let share = case.sizes.mean(|len| if len > copy_break { 1.0 } else { 0.0 });
    if share == 0.0 {
        return 0;
    }
    (case.held() * share * MARGIN) as u32 + 64 * RX_BURST as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Profile;
    use crate::sizes::Sizes;

    #[test]
    fn only_frames_above_the_copy_break_need_buffers() {
        let case = |sizes| Case::new(sizes, Profile::Full, 300, 1);
        assert_eq!(kept(&case(Sizes::Fixed(64)), 256), 0);
        // 243,823 frames in 300 ms, and a quarter more.
        assert_eq!(kept(&case(Sizes::Fixed(1518)), 256), 304_778 + 2048);
        // 5 of 12, or 1 of 12.
        let (some, one) = (kept(&case(Sizes::Imix), 256), kept(&case(Sizes::Imix), 1000));
        assert!((some - 2048).abs_diff(5 * (one - 2048)) <= 5, "{some} {one}");
    }
}
