// SPDX-License-Identifier: Apache-2.0
//! What it costs to pass a frame on to the worker that has its client (docs/adr/0065).
//!
//! All frames are of one client, which is the other worker's. The receiver places each frame and
//! hands it over; the owner takes it, looks no further, and frees its buffer. Two measurements, each
//! beside a receiver that is alone and keeps the frames: both workers in turns on one thread, with
//! everything in its cache; and each on its own thread, where each frame moves from one core's cache
//! to the other's. There only the calls are timed, by the TSC, and the median of all calls counts, so
//! that preempted ones do not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dpdk::{
    Mbuf, Mempool, Port, PortConfig, RX_BURST, RxQueue, StartedPort, TscClock, TxQueue, Waiter,
};
use emu::client::ClientKey;
use emu::engine::{Engine, Limits};
use emu::frame::Label;
use emu::links::Links;
use emu::place::{Place, worker_of};
use emu::plan::Plan;
use emu::units::{Direction, Instant, Nanos};
use serde::Serialize;
use worker::clock::Clock;
use worker::distribute::{Distributed, Lending, connect};
use worker::dpdk_io::{DpdkIo, PortQueues, Source};
use worker::io::{Arrivals, PacketIo, Reception};

use crate::cost::Effort;
use crate::cpu;
use crate::error::Error;
use crate::generator::Repeated;
use crate::spread::Spread;
use crate::stand::Bench;

/// Bytes of a frame without FCS.
const FRAME: u32 = 60;
const BUFFERS: u32 = 8_192;
/// Frames on their way to the owner at most: half of what fits in the ring.
const AHEAD: u64 = worker::distribute::DEPTH as u64 / 2;

/// ns a frame that is passed on, more than one that is not.
#[derive(Clone, Debug, Serialize)]
pub struct Handover {
    /// Both workers on one thread, ns of processor time.
    pub alone_ns: Spread,
    /// Each on its own core: at the receiver and at the owner. None with one processor.
    pub apart: Option<[Spread; 2]>,
}

/// Time that stands.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }
}

/// Places frames as the dataplane does, and leaves all of them in their buffers.
struct Placing(Links<Mbuf>);

impl Placing {
    fn new() -> Result<Self, Error> {
        let limits = Limits {
            memory: 1 << 20,
            clients: 1,
            frame: FRAME,
            copy_break: FRAME,
            buffers: 0,
            idle: Nanos::ZERO,
            offloaded: 0,
        };
        Ok(Self(Links::new(Engine::new(limits, Plan::transparent(), Instant::ZERO)?)))
    }
}

impl Arrivals<Mbuf> for Placing {
    fn place(&self, of: Reception, frame: &[u8], pair: u8, workers: usize) -> Place {
        Arrivals::place(&self.0, of, frame, pair, workers)
    }

    fn placed(&self, of: Reception, worker: u16, epoch: u16) -> Option<Place> {
        Arrivals::placed(&self.0, of, worker, epoch)
    }

    fn frame(&mut self, _of: Reception, _frame: &[u8], _label: Label<'_>) {}

    fn burst(&mut self, _of: Reception, _burst: &mut [Option<Mbuf>]) {}
}

/// What a worker receives.
enum Wire {
    Traffic(Repeated),
    Silent(RxQueue),
}

impl Source for Wire {
    fn burst(&mut self, into: &mut dpdk::MbufBurst, most: usize) -> usize {
        match self {
            Self::Traffic(traffic) => traffic.burst(into, most),
            Self::Silent(queue) => queue.burst_of(into, most),
        }
    }
}

type Io = DpdkIo<Wire>;

/// Opens ports for worker `name`, which receives frames or nothing.
fn open(bench: &Bench, name: &str, receives: bool) -> Result<(Io, Vec<StartedPort>), Error> {
    let pool = Mempool::new(&bench.eal, &format!("{name}-pool"), BUFFERS, 2_048)?;
    let mut ports = Vec::new();
    let mut start = |side: &str, spec: &str| -> Result<(RxQueue, TxQueue), Error> {
        let port = format!("{name}-{side}");
        let attached = Port::attach(&bench.eal, &port, &spec.parse()?)?;
        let (started, mut rx, mut tx) = attached.start(&PortConfig::new(&pool))?;
        ports.push(started);
        rx.pop().zip(tx.pop()).ok_or(Error::NoQueue { port })
    };
    let loaded = format!("net_null,size={FRAME},copy=0");
    let (rx, wan) = start("wan", if receives { &loaded } else { "net_null,no-rx=1" })?;
    let (silent, client) = start("client", "net_null,no-rx=1")?;
    let rx = if receives { Wire::Traffic(Repeated::new(rx, FRAME)) } else { Wire::Silent(rx) };
    let wan = PortQueues { rx, tx: wan };
    let client = PortQueues { rx: Wire::Silent(silent), tx: client };
    Ok((DpdkIo::new(wan, client, pool, Waiter::new()), ports))
}

/// A receiver, the owner of the client, and a receiver that is alone.
struct Workers {
    receiver: Distributed<Io>,
    owner: Distributed<Io>,
    single: Io,
    placing: [Placing; 3],
    _ports: Vec<StartedPort>,
}

impl Workers {
    fn open(bench: &Bench) -> Result<Self, Error> {
        let address = Repeated::client();
        let owner = worker_of(ClientKey::Ip(address.into()), 2);
        let (mut ios, mut all) = (Vec::new(), Vec::new());
        for worker in 0..2 {
            let (io, ports) = open(bench, &format!("over{worker}"), worker != owner)?;
            ios.push(io);
            all.extend(ports);
        }
        let (single, ports) = open(bench, "over-single", true)?;
        all.extend(ports);
        let mut connected = connect(ios, Lending { lends: false, longest: FRAME });
        let no_queue = || Error::NoQueue { port: "over".to_owned() };
        let second = connected.pop().ok_or_else(no_queue)?;
        let first = connected.pop().ok_or_else(no_queue)?;
        let (receiver, owner) = if owner == 0 { (second, first) } else { (first, second) };
        let placing = [Placing::new()?, Placing::new()?, Placing::new()?];
        Ok(Self { receiver, owner, single, placing, _ports: all })
    }

    fn overflow(&self) -> u64 {
        self.receiver.overflow().missed(Direction::Forward)
    }
}

/// Measures.
///
/// # Errors
/// If ports cannot be opened.
pub fn measure(bench: &Bench, effort: Effort) -> Result<Handover, Error> {
    let mut workers = Workers::open(bench)?;
    let alone_ns = alone(&mut workers, effort);
    let several = thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    let apart = if several { Some(apart(bench, &mut workers, effort)?) } else { None };
    let lost = workers.overflow();
    if lost > 0 { Err(Error::Overflow { lost }) } else { Ok(Handover { alone_ns, apart }) }
}

fn alone(workers: &mut Workers, effort: Effort) -> Spread {
    let Workers { receiver, owner, single, placing: [a, b, c], .. } = workers;
    let over = (0..=effort.repetitions).map(|_| {
        let timed = |turn: &mut dyn FnMut() -> usize| {
            let (start, mut n) = (cpu::thread_ns(), 0);
            while n < effort.frames {
                n += turn() as u64;
            }
            (cpu::thread_ns() - start) as f64 / n as f64
        };
        let without = timed(&mut || single.receive(&mut Still, a, RX_BURST));
        timed(&mut || {
            receiver.receive(&mut Still, b, RX_BURST);
            owner.receive(&mut Still, c, RX_BURST)
        }) - without
    });
    // The first one warms up.
    Spread::of(&over.skip(1).collect::<Vec<_>>())
}

/// The median time of a frame in calls that moved some, ns.
fn median(calls: &mut [f64]) -> f64 {
    calls.sort_by(f64::total_cmp);
    calls.get(calls.len() / 2).copied().unwrap_or_default()
}

/// Times one call; nothing if it moved no frame.
#[inline]
fn timed(clock: &TscClock, turn: impl FnOnce() -> usize) -> Option<(u64, f64)> {
    let start = clock.now();
    let n = turn();
    let ns = (clock.now() - start) as f64;
    (n > 0).then(|| (n as u64, ns / n as f64))
}

fn apart(bench: &Bench, workers: &mut Workers, effort: Effort) -> Result<[Spread; 2], Error> {
    let clock = TscClock::calibrate(Duration::from_millis(200));
    let Workers { receiver, owner, single, placing: [a, b, c], .. } = workers;
    let (taken, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let calls = effort.frames.div_ceil(dpdk::RX_BURST as u64) as usize;
    let (mut at_receiver, mut at_owner) = (Vec::new(), Vec::new());
    thread::scope(|scope| -> Result<(), Error> {
        let ended = &ended;
        let taken = &taken;
        let theirs = clock;
        let taking = scope.spawn(move || -> Result<Vec<(u64, f64)>, Error> {
            let _guard = bench.eal.register_thread()?;
            let mut calls = Vec::new();
            while !ended.load(Ordering::Acquire) {
                let Some((n, ns)) = timed(&theirs, || owner.receive(&mut Still, c, RX_BURST))
                else {
                    dpdk::pause();
                    continue;
                };
                calls.push((n, ns));
                taken.fetch_add(n, Ordering::Release);
            }
            Ok(calls)
        });
        let mut passed = 0;
        for _ in 0..effort.repetitions {
            let (mut over, mut without) = (Vec::new(), Vec::new());
            for _ in 0..calls {
                without
                    .extend(timed(&clock, || single.receive(&mut Still, a, RX_BURST)).map(|c| c.1));
                while passed - taken.load(Ordering::Acquire) > AHEAD && !taking.is_finished() {
                    dpdk::pause();
                }
                if let Some((n, ns)) = timed(&clock, || receiver.receive(&mut Still, b, RX_BURST)) {
                    passed += n;
                    over.push(ns);
                }
            }
            at_receiver.push(median(&mut over) - median(&mut without));
        }
        while passed > taken.load(Ordering::Acquire) && !taking.is_finished() {
            dpdk::pause();
        }
        ended.store(true, Ordering::Release);
        let taken = taking.join().map_err(|_| Error::NoQueue { port: "over".to_owned() })??;
        for part in taken.chunks(taken.len().div_ceil(effort.repetitions).max(1)) {
            // A call takes up to twice as many frames as the receiver has passed on in one.
            let mut each: Vec<f64> = part.iter().map(|c| c.1).collect();
            at_owner.push(median(&mut each));
        }
        Ok(())
    })?;
    Ok([Spread::of(&at_receiver), Spread::of(&at_owner)])
}
