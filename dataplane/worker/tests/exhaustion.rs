// SPDX-License-Identifier: Apache-2.0
//! Real queues and buffers, without hugepages: empty pools, a driver with a ring that is
//! full, and two workers that pass frames on.

use crate::eal::eal;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant as Wall};

use dpdk::{
    Eal, Mbuf, MbufBurst, Mempool, Port, PortConfig, RxQueue, StartedPort, TscClock, TxQueue,
    Waiter,
};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::links::MAIN;
use emu::place::worker_of;
use emu::plan::Plan;
use emu::units::{Direction, Instant, Nanos};
use worker::clock::VirtualClock;
use worker::command::{Report, channel};
use worker::distribute::{Distributed, Lending, connect};
use worker::dpdk_io::{DpdkIo, GIVE_UP_AFTER, PortQueues, Source};
use worker::io::{Arrivals, EgressCounters, PacketIo};
use worker::run::{Idle, Worker};
use worker::sim;

const FORWARD: Direction = Direction::Forward;

fn open(
    eal: &Eal,
    name: &str,
    spec: &str,
    pool: &Mempool,
    queues: u16,
) -> (StartedPort, Vec<RxQueue>, Vec<TxQueue>) {
    let port = Port::attach(eal, name, &spec.parse().unwrap()).unwrap();
    port.start(&PortConfig::new(pool).with_queues(queues)).unwrap()
}

fn frame(client: u8, number: u32) -> Vec<u8> {
    let mut f = vec![0; 600];
    f[12..15].copy_from_slice(&[8, 0, 0x45]);
    f[16..18].copy_from_slice(&586_u16.to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, client]);
    f[38..42].copy_from_slice(&number.to_be_bytes());
    f
}

/// A device that fills its buffers from a list; without a buffer it misses a frame.
struct Script {
    pool: Mempool,
    frames: VecDeque<Vec<u8>>,
    missed: u64,
}

impl Script {
    fn new(pool: &Mempool, frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { pool: pool.clone(), frames: frames.into_iter().collect(), missed: 0 }
    }
}

impl Source for Script {
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        let mut n = 0;
        for frame in self.frames.drain(..self.frames.len().min(most)) {
            match self.pool.alloc(&frame) {
                Some(mbuf) => {
                    into.push(mbuf).unwrap();
                    n += 1;
                }
                None => self.missed += 1,
            }
        }
        n
    }
}

/// Remembers what it was given to send.
struct Recorder<I> {
    inner: I,
    sent: Vec<(ClientKey, u32)>,
}

impl<I: PacketIo> PacketIo for Recorder<I> {
    type Buffer = I::Buffer;

    fn receive(
        &mut self,
        clock: &mut impl worker::clock::Clock,
        arrivals: &mut impl Arrivals<Self::Buffer>,
        most: usize,
    ) -> usize {
        self.inner.receive(clock, arrivals, most)
    }

    fn transmit(&mut self, departure: Departure<'_, Self::Buffer>) -> bool {
        let number = u32::from_be_bytes(departure.bytes()[38..42].try_into().unwrap());
        let client = departure.client;
        let taken = self.inner.transmit(departure);
        if taken {
            self.sent.push((*client, number));
        }
        taken
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

fn delayed() -> Plan {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].delay.base = Nanos::from_millis(10);
    plan
}

fn worker<I: PacketIo>(io: I, clock: &VirtualClock, limits: Limits) -> Worker<I, VirtualClock> {
    let engine = Engine::new(limits, delayed(), Instant::ZERO).unwrap();
    Worker::new(engine, io, clock.clone(), channel(4).1, Idle::Busy)
}

fn report<I: PacketIo>(worker: &mut Worker<I, VirtualClock>) -> Report {
    let mut report = Report::default();
    worker.report(MAIN, Instant::ZERO, false, &mut report);
    assert!(report.snapshot.is_conserved());
    report
}

fn run_until<I: PacketIo>(
    worker: &mut Worker<I, VirtualClock>,
    clock: &VirtualClock,
    from: Nanos,
    end: Nanos,
) {
    for t in (from.0..end.0).step_by(100_000) {
        clock.set(Instant(t));
        worker.turn();
    }
}

#[test]
fn empty_pool_misses_frames_and_loses_no_held_frame() {
    const FRAMES: u32 = 10_000;
    let eal = eal();
    let pool = Mempool::new(&eal, "dry", 255, 2048).unwrap();
    let (wan, _, mut wan_tx) = open(&eal, "dry-wan", "net_null,no-rx=1", &pool, 1);
    let (client, _, mut client_tx) = open(&eal, "dry-client", "net_null,no-rx=1", &pool, 1);
    let guard = eal.register_thread().unwrap();
    let source = Script::new(&pool, (0..FRAMES).map(|n| frame(1, n)));
    let io = DpdkIo::new(
        PortQueues { rx: source, tx: wan_tx.remove(0) },
        PortQueues { rx: Script::new(&pool, []), tx: client_tx.remove(0) },
        pool.clone(),
        Waiter::new(),
    );
    // The link may keep more than the pool has.
    let limits = Limits {
        memory: 8 << 20,
        clients: 4,
        frame: 1514,
        copy_break: 0,
        buffers: 1000,
        idle: Nanos::ZERO,
        offloaded: 0,
    };
    let clock = VirtualClock::default();
    let mut worker = worker(Recorder { inner: io, sent: Vec::new() }, &clock, limits);
    run_until(&mut worker, &clock, Nanos::ZERO, Nanos::from_millis(5));
    // No frame is due yet, and all buffers are held.
    let held = report(&mut worker).snapshot;
    assert!((200..=255).contains(&held.total().held.packets), "{:?}", held.total());
    run_until(&mut worker, &clock, Nanos::from_millis(5), Nanos::from_millis(200));
    let total = report(&mut worker).snapshot.total();
    assert_eq!(total.held.packets + total.dropped_total().packets, 0);
    assert_eq!(total.sent, total.received);
    let sent = worker.io().sent.len() as u64;
    assert!(sent > 200 && sent < u64::from(FRAMES), "{sent} frames");
    assert!(worker.io().sent.is_sorted(), "out of order");
    drop(worker);
    drop((wan, client));
    assert_eq!(pool.in_use(), 0);
    drop(guard);
}

#[test]
fn frames_without_free_buffer_wait() {
    let eal = eal();
    let pool = Mempool::new(&eal, "stolen-pool", 255, 2048).unwrap();
    let (wan, _, mut wan_tx) = open(&eal, "stolen-wan", "net_null,no-rx=1", &pool, 1);
    // Sent frames stay there.
    let (client, mut reader, mut client_tx) = open(&eal, "stolen", "net_ring", &pool, 1);
    let guard = eal.register_thread().unwrap();
    let source = Script::new(&pool, (0..100).map(|n| frame(1, n)));
    let io = DpdkIo::new(
        PortQueues { rx: source, tx: wan_tx.remove(0) },
        PortQueues { rx: Script::new(&pool, []), tx: client_tx.remove(0) },
        pool.clone(),
        Waiter::new(),
    );
    let clock = VirtualClock::default();
    let mut worker =
        worker(Recorder { inner: io, sent: Vec::new() }, &clock, Limits::copying(8 << 20, 4, 1514));
    run_until(&mut worker, &clock, Nanos::ZERO, Nanos::from_millis(5));
    let stolen: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc(&[0; 60])).collect();
    run_until(&mut worker, &clock, Nanos::from_millis(5), Nanos::from_millis(50));
    let total = report(&mut worker).snapshot.total();
    // The ports keep some buffers to themselves.
    assert_eq!(total.received.packets, 100);
    assert!(total.held.packets >= 30, "{total:?}");
    assert_eq!(total.held.packets + total.sent.packets, 100);
    drop(stolen);
    run_until(&mut worker, &clock, Nanos::from_millis(50), Nanos::from_millis(60));
    let total = report(&mut worker).snapshot.total();
    assert_eq!((total.sent.packets, total.dropped_total().packets), (100, 0));
    assert!(worker.io().sent.is_sorted(), "out of order");
    drop((worker, reader.pop()));
    drop((wan, client));
    assert_eq!(pool.in_use(), 0);
    drop(guard);
}

#[test]
fn full_driver_ring_loses_one_frame_per_give_up() {
    const FRAMES: u32 = 3000;
    let eal = eal();
    let pool = Mempool::new(&eal, "full-pool", 4095, 2048).unwrap();
    let (wan, _, mut wan_tx) = open(&eal, "full-wan", "net_null,no-rx=1", &pool, 1);
    // No one receives these frames.
    let (client, mut reader, mut client_tx) = open(&eal, "full", "net_ring", &pool, 1);
    let guard = eal.register_thread().unwrap();
    let back = |n: u32| {
        let mut f = frame(0, n);
        f.copy_within(30..34, 26);
        f[29] = 1;
        f
    };
    let io = DpdkIo::new(
        PortQueues {
            rx: Script::new(&pool, (0..FRAMES).map(|n| frame(1, n))),
            tx: wan_tx.remove(0),
        },
        PortQueues { rx: Script::new(&pool, (0..FRAMES).map(back)), tx: client_tx.remove(0) },
        pool.clone(),
        Waiter::new(),
    );
    let clock = VirtualClock::default();
    let mut worker = worker(io, &clock, Limits::copying(8 << 20, 4, 1514));
    run_until(&mut worker, &clock, Nanos::ZERO, Nanos::from_secs(1));
    let stuck = report(&mut worker);
    let egress = stuck.egress[0][FORWARD];
    let port = client.counters().unwrap();
    // The last one is given up 100 ms after the one before it.
    let most = 1_000_000_000 / GIVE_UP_AFTER.0;
    assert!((most - 2..=most).contains(&egress.dropped), "{egress:?}");
    let forward: u64 = stuck.snapshot.clients.iter().map(|c| c.pipes[FORWARD].sent.packets).sum();
    assert_eq!(forward, port.tx_packets + egress.staged + egress.dropped);
    assert_eq!(stuck.snapshot.total().dropped_total().packets, 0);
    // The other direction does not notice.
    let back: u64 =
        stuck.snapshot.clients.iter().map(|c| c.pipes[Direction::Return].sent.packets).sum();
    assert_eq!(back, u64::from(FRAMES));
    // When the frames are received, all others get through.
    let mut taken = 0;
    for t in (1_000_000_000..1_200_000_000_u64).step_by(100_000) {
        clock.set(Instant(t));
        worker.turn();
        let mut burst = MbufBurst::new();
        taken += reader[0].burst(&mut burst) as u64;
    }
    let well = report(&mut worker);
    let egress = well.egress[0][FORWARD];
    assert_eq!((egress.staged, well.snapshot.total().held.packets), (0, 0));
    assert_eq!(taken + egress.dropped, u64::from(FRAMES));
    drop((worker, reader));
    drop((wan, client));
    assert_eq!(pool.in_use(), 0);
    drop(guard);
}

#[test]
fn two_workers_on_two_threads_pass_frames_on_in_order() {
    const FRAMES: u32 = 20_000;
    const HOSTS: u8 = 16;
    let eal = eal();
    let pools = [0, 1].map(|n| Mempool::new(&eal, &format!("pair-{n}"), 4095, 2048).unwrap());
    let (wan, _, wan_tx) = open(&eal, "pair-wan", "net_null,no-rx=1", &pools[0], 2);
    let (client, _, client_tx) = open(&eal, "pair-client", "net_null,no-rx=1", &pools[0], 2);
    // Each receives for eight clients, of both owners.
    let sources = [0, 1].map(|w: u8| {
        let frames = (0..FRAMES).map(|n| frame(1 + w * 8 + (n % 8) as u8, n));
        Script::new(&pools[usize::from(w)], frames)
    });
    let ports = sources.into_iter().zip(wan_tx).zip(client_tx).zip(pools.clone());
    let ports: Vec<_> = ports
        .map(|(((source, wan), client), pool)| {
            let nothing = Script::new(&pool, []);
            let io = DpdkIo::new(
                PortQueues { rx: source, tx: wan },
                PortQueues { rx: nothing, tx: client },
                pool,
                Waiter::new(),
            );
            Recorder { inner: io, sent: Vec::new() }
        })
        .collect();
    let lending = Lending { lends: false, longest: 1514 };
    let ports = connect(ports, lending);
    let overflow: Vec<_> = ports.iter().map(Distributed::overflow).collect();
    let clock = TscClock::calibrate(Duration::from_millis(20));
    let (begin, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let eal = &*eal;
    let released = &AtomicU64::new(0);
    let missed = &|| overflow.iter().map(|o| o.missed(FORWARD)).sum::<u64>();
    let done: Vec<_> = thread::scope(|s| {
        let workers: Vec<_> = ports
            .into_iter()
            .enumerate()
            .map(|(me, io)| {
                let (begin, end) = (begin.clone(), end.clone());
                s.spawn(move || {
                    let _guard = eal.register_thread().unwrap();
                    let limits = Limits {
                        memory: 64 << 20,
                        clients: 32,
                        frame: 1514,
                        copy_break: 0,
                        buffers: 1000,
                        idle: Nanos::ZERO,
                        offloaded: 0,
                    };
                    let mut engine = Engine::new(limits, delayed(), Instant::ZERO).unwrap();
                    let hosts = (1..=HOSTS).map(|host| [10, 0, 0, host].into());
                    sim::resolve(&mut engine, Instant::ZERO, hosts);
                    let mut worker = Worker::new(engine, io, clock, channel(32).1, Idle::Busy);
                    begin.wait();
                    let deadline = Wall::now() + Duration::from_secs(60);
                    // Until each frame has left a worker or found a full ring between them.
                    while released.load(Ordering::Relaxed) + missed() < u64::from(2 * FRAMES) {
                        let turn = worker.turn();
                        released.fetch_add(turn.released as u64, Ordering::Relaxed);
                        if Wall::now() > deadline {
                            break;
                        }
                    }
                    end.wait();
                    let mut report = Report::default();
                    worker.report(MAIN, Instant::MAX, false, &mut report);
                    (me, report, worker.into_io().into_inner().sent)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let mut received = 0;
    for (me, report, sent) in &done {
        assert!(report.snapshot.is_conserved());
        let total = report.snapshot.total();
        assert_eq!(total.sent, total.received);
        // Each worker has resolved all hosts.
        assert_eq!(total.sent.packets, u64::from(HOSTS) + sent.len() as u64);
        received += sent.len() as u64;
        let mut last = std::collections::BTreeMap::new();
        for (key, number) in sent {
            assert_eq!(worker_of(*key, 2), *me);
            assert!(last.insert(*key, *number) < Some(*number), "{key} is out of order");
        }
    }
    // Buffers that were not there are the script's to count; there were enough.
    assert_eq!(received + missed(), u64::from(2 * FRAMES));
    assert!(done.iter().all(|(_, _, sent)| !sent.is_empty()));
    drop((wan, client));
    assert_eq!(pools.map(|p| p.in_use()), [0, 0]);
}
