// SPDX-License-Identifier: Apache-2.0
//! The run loop over DPDK's own virtual ports, without hugepages: net_ring as `wan`,
//! which gives back what it is sent, and net_null as `client`, which takes everything.

use std::collections::VecDeque;
use std::time::{Duration, Instant as Wall};

use crate::eal::eal;
use dpdk::{Eal, MbufBurst, Mempool, Port, PortConfig, StartedPort, TscClock, Waiter};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::links::MAIN;
use emu::plan::Plan;
use emu::stats::Count;
use emu::tag::Tagged;
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos};
use worker::clock::Clock;
use worker::command::{Report, channel};
use worker::dpdk_io::{DpdkIo, PortQueues, Source};
use worker::hairpin::{HairpinIo, PairIo};
use worker::io::{EgressCounters, PacketIo};
use worker::paired::PairedIo;
use worker::run::{Idle, Worker};

const FRAMES: u32 = 500;

fn open(eal: &Eal, name: &str, spec: &str, pool: &Mempool) -> (StartedPort, PortQueues) {
    let port = Port::attach(eal, name, &spec.parse().unwrap()).unwrap();
    let (port, mut rx, mut tx) = port.start(&PortConfig::new(pool)).unwrap();
    (port, PortQueues { rx: rx.remove(0), tx: tx.remove(0) })
}

/// A frame to a client; its length varies with its number.
fn frame(number: u32) -> Vec<u8> {
    let len = 60 + (number * 37 % 1455) as u16;
    let mut f = vec![0; usize::from(len)];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, 1]);
    f[42..46].copy_from_slice(&number.to_be_bytes());
    f
}

/// Sends a frame on `wan`, where it is received again.
fn send(io: &mut impl PacketIo, frame: &[u8]) {
    let departure = || Departure {
        client: &ClientKey::Default,
        direction: Direction::Return,
        due: Instant::ZERO,
        frame: Frame::Bytes(frame),
        tagged: Tagged::default(),
    };
    while !io.transmit(departure()) {
        io.flush(Instant::ZERO);
    }
}

#[test]
fn frames_go_through_real_queues_shaped_and_accounted_for() {
    let eal = eal();
    let pool = Mempool::new(&eal, "worker", 2047, 2048).unwrap();
    let (wan, wan_queues) = open(&eal, "wan", "net_ring", &pool);
    let (client, client_queues) = open(&eal, "client", "net_null,no-rx=1", &pool);
    let guard = eal.register_thread().unwrap();
    let mut io = DpdkIo::new(wan_queues, client_queues, pool.clone(), Waiter::new());

    // Frames sent on `wan` are received there again.
    for n in 0..FRAMES {
        send(&mut io, &frame(n));
    }
    io.flush(Instant::ZERO);
    assert_eq!(io.egress(0, Direction::Return).staged, 0);

    let mut plan = Plan::transparent();
    plan.pipes[Direction::Forward].rate = BitRate::bps(100_000_000).into();
    plan.pipes[Direction::Forward].delay.base = Nanos::from_millis(5);
    let mut clock = TscClock::calibrate(Duration::from_millis(20));
    let limits = Limits::copying(4 << 20, 4, 1514);
    let engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
    let (_handle, inbox) = channel(4);
    let mut worker = Worker::new(engine, io, clock, inbox, Idle::Busy);
    let deadline = Wall::now() + Duration::from_secs(60);
    let (mut released, mut started, mut ended) = (0, None, Instant::ZERO);
    while released < FRAMES as usize {
        let turn = worker.turn();
        if turn.received > 0 {
            started.get_or_insert(turn.now);
        }
        if turn.released > 0 {
            ended = turn.now;
        }
        released += turn.released;
        assert!(Wall::now() < deadline, "{released} frames released");
    }
    // Never early: all bits at the rate, and the delay.
    let bytes: u64 = (0..FRAMES).map(|n| frame(n).len() as u64).sum();
    let least = Nanos(bytes * 8 * 10 + 5_000_000);
    assert!(ended.since(started.unwrap()) >= least);

    let mut report = Report::default();
    worker.report(MAIN, Clock::now(&mut clock), false, &mut report);
    let total = report.snapshot.total();
    assert!(report.snapshot.is_conserved());
    assert_eq!((total.received.packets, total.received.bytes), (u64::from(FRAMES), bytes));
    assert_eq!(total.sent, total.received);
    assert_eq!(report.egress[0][Direction::Forward].dropped, 0);
    assert_eq!(report.egress[0][Direction::Forward].staged, 0);
    assert_eq!(client.counters().unwrap().tx_packets, u64::from(FRAMES));
    assert_eq!(wan.counters().unwrap().rx_packets, u64::from(FRAMES));

    drop(worker);
    drop((wan, client));
    // All buffers have been freed.
    assert_eq!(pool.in_use(), 0);
    drop(guard);
}

#[test]
fn two_pairs_of_real_queues_are_kept_apart() {
    let eal = eal();
    let pool = Mempool::new(&eal, "pairs", 4095, 2048).unwrap();
    let mut ports = Vec::new();
    let mut pair = |name: &str| {
        let (wan, wan_queues) = open(&eal, &format!("wan.{name}"), "net_ring", &pool);
        let (client, client_queues) =
            open(&eal, &format!("client.{name}"), "net_null,no-rx=1", &pool);
        ports.push((wan, client));
        DpdkIo::new(wan_queues, client_queues, pool.clone(), Waiter::new())
    };
    let mut pairs = vec![pair("a"), pair("b")];
    let guard = eal.register_thread().unwrap();
    // Two of three frames are pair b's. Those of more than 1,000 bytes stay in their buffers.
    let numbers = |b: usize| (0..FRAMES).filter(move |n| usize::from(n % 3 > 0) == b);
    for (b, io) in pairs.iter_mut().enumerate() {
        for n in numbers(b) {
            send(io, &frame(n));
        }
        io.flush(Instant::ZERO);
    }
    let mut clock = TscClock::calibrate(Duration::from_millis(20));
    let limits = Limits { copy_break: 1000, buffers: 64, ..Limits::copying(4 << 20, 4, 1514) };
    let mut plan = Plan::transparent();
    plan.pipes[Direction::Forward].delay.base = Nanos::from_millis(5);
    let engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
    let (_handle, inbox) = channel(4);
    let mut worker = Worker::new(engine, PairedIo::new(pairs), clock, inbox, Idle::Busy);
    let deadline = Wall::now() + Duration::from_secs(60);
    let mut released = 0;
    while released < FRAMES as usize {
        released += worker.turn().released;
        assert!(Wall::now() < deadline, "{released} frames released");
    }
    let mut report = Report::default();
    worker.report(MAIN, Clock::now(&mut clock), false, &mut report);
    assert!(report.snapshot.is_conserved());
    for (b, (wan, client)) in ports.iter().enumerate() {
        let frames = numbers(b).count() as u64;
        let (came, left) = (wan.counters().unwrap(), client.counters().unwrap());
        assert_eq!((came.rx_packets, left.tx_packets), (frames, frames));
        assert_eq!(report.egress[b][Direction::Forward], EgressCounters::default());
    }
    drop(worker);
    drop(ports);
    assert_eq!(pool.in_use(), 0);
    drop(guard);
}

/// Received frames that a test provides.
struct Fed {
    pool: Mempool,
    frames: VecDeque<Vec<u8>>,
}

impl Source for Fed {
    fn burst(&mut self, into: &mut MbufBurst, most: usize) -> usize {
        let n = self.frames.len().min(most);
        for frame in self.frames.drain(..n) {
            assert!(into.push(self.pool.alloc(&frame).unwrap()).is_ok());
        }
        n
    }
}

/// A frame behind tags of these types, priorities and VLANs.
fn tagged(tags: &[[u8; 4]], frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

#[test]
fn hairpin_pair_exchanges_its_two_vlans() {
    const WAN: [u8; 4] = [0x81, 0, 0, 100];
    const CLIENT: [u8; 4] = [0x81, 0, 0, 200];
    const INNER: [u8; 4] = [0x81, 0, 0, 7];
    let eal = eal();
    let pool = Mempool::new(&eal, "hairpin", 4095, 2048).unwrap();
    let fed = |frames: Vec<Vec<u8>>| Fed { pool: pool.clone(), frames: frames.into() };
    // Short and long frames, of which some stay in their buffers, and one with an inner tag.
    let mut forward: Vec<Vec<u8>> = (0..100).map(frame).collect();
    forward.push(tagged(&[INNER], &frame(3)));
    let back: Vec<Vec<u8>> = (200..250).map(frame).collect();
    let foreign = [
        frame(1),
        tagged(&[[0x81, 0, 0, 101]], &frame(2)),
        tagged(&[[0x81, 0, 0, 0]], &frame(2)),
        // Of another type, and with the VLAN only as the inner one.
        tagged(&[[0x88, 0xa8, 0, 100]], &frame(3)),
        tagged(&[INNER, WAN], &frame(4)),
        vec![0x81; 17],
        [&[2; 12][..], &WAN[..2]].concat(),
    ];
    // The priority of a frame does not matter.
    let mut came: Vec<Vec<u8>> =
        forward.iter().map(|f| tagged(&[[0x81, 0, 0xa0, 100]], f)).collect();
    came.extend(back.iter().map(|f| tagged(&[CLIENT], f)));
    came.extend(foreign.iter().cloned());
    came.rotate_left(60);

    let (port, queues) = open(&eal, "wan.h", "net_ring", &pool);
    let mut out = queues.rx;
    let port_queues = PortQueues { rx: fed(came), tx: queues.tx };
    let hairpin = HairpinIo::new(port_queues, [100, 200], pool.clone(), Waiter::new());
    let sides = hairpin.sides();
    // A pair of two ports beside it.
    let (wan, wan_queues) = open(&eal, "wan.c", "net_ring", &pool);
    let (client, client_queues) = open(&eal, "client.c", "net_ring", &pool);
    let mut client_out = client_queues.rx;
    let wan_queues = PortQueues { rx: fed(vec![frame(9)]), tx: wan_queues.tx };
    let client_queues = PortQueues { rx: fed(Vec::new()), tx: client_queues.tx };
    let two = DpdkIo::new(wan_queues, client_queues, pool.clone(), Waiter::new());

    let guard = eal.register_thread().unwrap();
    let mut clock = TscClock::calibrate(Duration::from_millis(20));
    let limits = Limits { copy_break: 1000, buffers: 64, ..Limits::copying(4 << 20, 4, 1514) };
    let engine = Engine::new(limits, Plan::transparent(), Instant::ZERO).unwrap();
    let (_handle, inbox) = channel(4);
    let io = PairedIo::new(vec![PairIo::Two(two), PairIo::Hairpin(hairpin)]);
    let mut worker = Worker::new(engine, io, clock, inbox, Idle::Busy);
    let deadline = Wall::now() + Duration::from_secs(60);
    let expected = forward.len() + back.len() + 1;
    let (mut released, mut left) = (0, Vec::new());
    let mut burst = MbufBurst::new();
    while left.len() < expected - 1 {
        released += worker.turn().released;
        out.burst(&mut burst);
        left.extend(burst.drain().map(|mbuf| mbuf.first_segment().to_vec()));
        assert!(Wall::now() < deadline, "{released} frames released");
    }
    assert_eq!(released, expected);
    let (to_client, to_wan): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|frame| frame[12..16] == CLIENT);
    let with = |tag, frames: &[Vec<u8>]| -> Vec<_> {
        frames.iter().map(|frame| tagged(&[tag], frame)).collect()
    };
    // Frames of several clients leave in any order.
    assert_eq!(sorted(to_client), sorted(with(CLIENT, &forward)));
    assert_eq!(sorted(to_wan), sorted(with(WAN, &back)));
    client_out.burst(&mut burst);
    assert_eq!(burst.as_slice()[0].first_segment(), frame(9));
    assert_eq!(burst.len(), 1);
    burst.clear();

    let count = |frames: &[Vec<u8>]| Count {
        packets: frames.len() as u64,
        bytes: frames.iter().map(|f| f.len() as u64).sum(),
    };
    for (direction, frames) in [(Direction::Forward, &forward), (Direction::Return, &back)] {
        assert_eq!(sides.received(direction), count(frames));
        assert_eq!(sides.sent(direction), count(frames));
    }
    assert_eq!(sides.foreign(), foreign.len() as u64);
    assert_eq!(port.counters().unwrap().tx_packets, expected as u64 - 1);
    let mut report = Report::default();
    worker.report(MAIN, Clock::now(&mut clock), false, &mut report);
    assert!(report.snapshot.is_conserved());
    assert_eq!(report.snapshot.total().received.packets, expected as u64);
    assert_eq!(report.egress[1], ByDirection([EgressCounters::default(); 2]));
    drop(worker);
    drop((out, client_out, port, wan, client));
    assert_eq!(pool.in_use(), 0);
    drop(guard);
}

fn sorted(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.sort();
    frames
}
