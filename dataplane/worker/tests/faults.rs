// SPDX-License-Identifier: Apache-2.0
//! Faults and overload in virtual time: accounts stay exact, drops are counted where they
//! happen, shaped clients get their rate, and operation resumes after a fault.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::key_of;
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::links::MAIN;
use emu::place::worker_of;
use emu::plan::Plan;
use emu::stats::{PipeStats, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos};
use worker::chaos::{ChaosClock, ChaosIo, Faults};
use worker::clock::{Clock, VirtualClock};
use worker::command::{Change, Handle, Report, channel};
use worker::distribute::{DEPTH, Distributed, Lending, connect};
use worker::io::{Arrivals, EgressCounters, PacketIo, Reception};
use worker::run::{Idle, Worker};
use worker::sim::{self, Arrival, Sent, SimIo};

const LEN: u16 = 1000;
/// Hosts that have been resolved when a test begins.
const HOSTS: u8 = 16;
const LIMITS: Limits = Limits::copying(64 << 20, 16, 1514);
const FORWARD: Direction = Direction::Forward;

fn frame(client: u8, number: u32) -> Vec<u8> {
    let mut f = vec![0; LEN.into()];
    f[12..15].copy_from_slice(&[8, 0, 0x45]);
    f[16..18].copy_from_slice(&(LEN - 14).to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, client]);
    f[38..42].copy_from_slice(&number.to_be_bytes());
    f
}

/// `count` frames to a client, one each `gap`.
fn stream(client: u8, count: u32, gap: Nanos) -> Vec<Arrival> {
    let at = |n: u32| Instant(u64::from(n) * gap.0);
    (0..count).map(|n| Arrival { at: at(n), direction: FORWARD, frame: frame(client, n) }).collect()
}

/// 10 Mbit/s, so 800 us for a frame, and a queue of 1 MB.
fn shaped() -> Plan {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = BitRate::bps(10_000_000).into();
    plan.pipes[FORWARD].queue.limit = 1_000_000;
    plan.pipes[FORWARD].delay.base = Nanos::from_millis(20);
    plan
}

fn worker<I: PacketIo, C: Clock>(io: I, clock: C) -> (Worker<I, C>, Handle) {
    let mut engine = Engine::new(LIMITS, shaped(), Instant::ZERO).unwrap();
    sim::resolve(&mut engine, Instant::ZERO, (1..=HOSTS).map(|host| [10, 0, 0, host].into()));
    let (handle, inbox) = channel(16);
    (Worker::new(engine, io, clock, inbox, Idle::Busy), handle)
}

fn snapshot<I: PacketIo, C: Clock>(worker: &mut Worker<I, C>) -> Snapshot {
    let mut report = Report::default();
    worker.report(MAIN, Instant::ZERO, false, &mut report);
    assert!(report.snapshot.is_conserved());
    report.snapshot
}

fn forward_of(snapshot: &Snapshot, client: u8) -> PipeStats {
    let key = ClientKey::Ip([10, 0, 0, client].into());
    snapshot.clients.iter().find(|c| c.key == key).unwrap().pipes[FORWARD]
}

/// No frame overtook another one of its client.
fn in_order<'a>(sent: impl IntoIterator<Item = &'a Sent>) {
    let mut last = BTreeMap::new();
    for s in sent {
        let number = u32::from_be_bytes(s.frame[38..42].try_into().unwrap());
        assert!(last.insert(s.client, number) < Some(number), "out of order");
    }
}

/// Steps of 50 us until `end`.
fn run_until<I: PacketIo, C: Clock>(
    worker: &mut Worker<I, C>,
    clock: &VirtualClock,
    from: Nanos,
    end: Nanos,
) {
    for t in (from.0..end.0).step_by(50_000) {
        clock.set(Instant(t));
        worker.turn();
    }
}

#[test]
fn stopped_transmitter_delays_frames_and_loses_none() {
    let faults = Faults { blocked: Instant(100_000_000)..Instant(400_000_000), ..Faults::NONE };
    let clock = VirtualClock::default();
    let io = ChaosIo::new(SimIo::new(stream(1, 400, Nanos::from_millis(1)), 8), faults, 1);
    let (mut worker, _handle) = worker(io, clock.clone());
    run_until(&mut worker, &clock, Nanos::ZERO, Nanos::from_millis(350));
    let held = forward_of(&snapshot(&mut worker), 1);
    // All that is due waits for the port.
    assert!(held.held.packets > 250, "{held:?}");
    run_until(&mut worker, &clock, Nanos::from_millis(350), Nanos::from_millis(500));
    let after = snapshot(&mut worker);
    let client = forward_of(&after, 1);
    assert_eq!((client.sent.packets, client.dropped_total().packets), (400, 0));
    assert!(after.lateness.max >= Nanos::from_millis(290), "{:?}", after.lateness);
    in_order(&worker.io().inner.sent);
}

#[test]
fn starved_ports_lose_only_missed_frames() {
    let faults = Faults { dry: Instant(50_000_000)..Instant(150_000_000), ..Faults::NONE };
    let clock = VirtualClock::default();
    let io = ChaosIo::new(SimIo::new(stream(1, 300, Nanos::from_millis(1)), 8), faults, 1);
    let (mut worker, _handle) = worker(io, clock.clone());
    run_until(&mut worker, &clock, Nanos::ZERO, Nanos::from_millis(500));
    let client = forward_of(&snapshot(&mut worker), 1);
    assert_eq!((client.sent.packets, client.dropped_total().packets), (300, 0));
    in_order(&worker.io().inner.sent);
}

#[test]
fn clock_jump_loses_no_frame_and_counts_as_stall() {
    let jump = (Instant(100_000_000), Nanos::from_millis(250));
    for (ahead, behind) in [(Some(jump), None), (None, Some(jump))] {
        let faults = Faults { ahead, behind, ..Faults::NONE };
        let clock = VirtualClock::default();
        let io = SimIo::new(stream(1, 300, Nanos::from_millis(1)), 8);
        let chaos = ChaosClock::new(clock.clone(), faults, 1);
        let (mut worker, _handle) = worker(io, chaos);
        run_until(&mut worker, &clock, Nanos::ZERO, Nanos::from_millis(900));
        let client = forward_of(&snapshot(&mut worker), 1);
        assert_eq!((client.sent.packets, client.dropped_total().packets), (300, 0));
        assert_eq!(client.held.packets, 0);
        in_order(&worker.io().sent);
        let mut report = Report::default();
        worker.report(MAIN, Instant::ZERO, false, &mut report);
        if ahead.is_some() {
            assert!(report.stall_max >= Nanos::from_millis(250), "{:?}", report.stall_max);
        }
        // Never early by the clock that they were sent by.
        assert!(worker.io().sent.iter().all(|s| s.at >= s.due));
    }
}

/// A port with a ring of descriptors that a source fills and the worker's polls
/// polls: what finds it full is missed.
struct Port {
    ring: VecDeque<(Instant, Vec<u8>)>,
    source: Vec<Arrival>,
    next: usize,
    missed: u64,
    sent: Vec<(ClientKey, Instant)>,
    now: Instant,
}

impl PacketIo for Port {
    type Buffer = Vec<u8>;

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Vec<u8>>,
        most: usize,
    ) -> usize {
        self.now = clock.now();
        while let Some(a) = self.source.get_mut(self.next)
            && a.at <= self.now
        {
            if self.ring.len() < 256 {
                self.ring.push_back((a.at, std::mem::take(&mut a.frame)));
            } else {
                self.missed += 1;
            }
            self.next += 1;
        }
        let n = self.ring.len().min(most);
        for (_, frame) in self.ring.drain(..n) {
            arrivals.burst(Reception::new(self.now, FORWARD), &mut [Some(frame)]);
        }
        n
    }

    fn transmit(&mut self, d: Departure<'_, Vec<u8>>) -> bool {
        self.sent.push((*d.client, self.now));
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

/// A frame of each client at once, again and again.
#[test]
fn turns_receive_fewer_frames_while_clients_take_a_change() {
    let arrival = |n: u32| Arrival {
        at: Instant::ZERO,
        direction: FORWARD,
        frame: frame(1 + (n % u32::from(HOSTS)) as u8, n),
    };
    let io = Port {
        ring: VecDeque::new(),
        source: (0..256).map(arrival).collect(),
        next: 0,
        missed: 0,
        sent: Vec::new(),
        now: Instant::ZERO,
    };
    let (mut worker, handle) = worker(io, VirtualClock::default());
    assert_eq!(worker.turn().received, 32);
    let change = Change { at: Instant::ZERO, plan: shaped(), generation: 1, restart: false };
    let mut answer = handle.apply(change).unwrap();
    let mut received = Vec::new();
    while answer.try_recv().is_err() {
        received.push(worker.turn().received);
    }
    // Two pipes of each host, and of the two clients that always exist.
    assert!(received.len() > 2 && received.iter().all(|n| *n == 8), "{received:?}");
    assert_eq!(worker.turn().received, 32);
}

/// A worker with turns of 100 us takes 320 frames a millisecond; 1000 arrive.
#[test]
fn excess_load_is_missed_and_shaped_clients_get_their_rate() {
    // Every eighth frame is the shaped client's: a hundred times what it can have.
    let source: Vec<Arrival> = (0..1_000_000_u32)
        .map(|n| Arrival {
            at: Instant(u64::from(n) * 1_000),
            direction: FORWARD,
            frame: frame(1 + (n % 8) as u8, n),
        })
        .collect();
    let offered = source.len() as u64;
    let io = Port {
        ring: VecDeque::new(),
        source,
        next: 0,
        missed: 0,
        sent: Vec::new(),
        now: Instant::ZERO,
    };
    let clock = VirtualClock::default();
    let (mut worker, handle) = worker(io, clock.clone());
    let mut answer = None;
    for turn in 0..10_000_u64 {
        clock.set(Instant(turn * 100_000));
        worker.turn();
        if turn == 5_000 {
            answer = Some(handle.report(false).unwrap());
        }
        if turn == 5_002 {
            // Within two turns, overloaded or not.
            let report = answer.take().unwrap().try_recv().unwrap();
            assert!(report.snapshot.is_conserved());
        }
    }
    let snapshot = snapshot(&mut worker);
    let total = snapshot.total();
    let port = worker.io();
    let waiting = port.ring.len() as u64 + offered - port.next as u64;
    assert!(port.missed > offered / 2, "{} missed", port.missed);
    let received = total.received.packets - u64::from(HOSTS);
    assert_eq!(received + port.missed + waiting, offered);
    for client in 1..=8 {
        let key = ClientKey::Ip([10, 0, 0, client].into());
        let of = |from: u64, to: u64| {
            let within = |at: &Instant| (from..to).contains(&(at.0 / 1_000_000));
            port.sent.iter().filter(|(k, at)| *k == key && within(at)).count()
        };
        // 1250 frames a second, and one for where the window begins.
        let sent = of(100, 900);
        assert!((999..=1001).contains(&sent), "client {client}: {sent} frames in 0.8 s");
    }
}

#[test]
fn full_ring_between_workers_is_counted() {
    let [mine, theirs] = [0, 1]
        .map(|w| (1..=20_u8).find(|c| worker_of(key_of(&frame(*c, 0), FORWARD), 2) == w).unwrap());
    const FRAMES: u32 = 3000;
    let mut both = stream(mine, FRAMES, Nanos::from_micros(100));
    both.extend(stream(theirs, FRAMES, Nanos::from_micros(100)));
    both.sort_by_key(|a| a.at);
    let ports = vec![SimIo::new(both, 32), SimIo::new(Vec::new(), 32)];
    let ports = connect(ports, Lending { lends: true, longest: 1514 });
    let overflow: Vec<_> = ports.iter().map(Distributed::overflow).collect();
    let clock = VirtualClock::default();
    let mut workers: Vec<_> = ports.into_iter().map(|io| worker(io, clock.clone()).0).collect();
    let (first, second) = workers.split_at_mut(1);
    let (first, second) = (&mut first[0], &mut second[0]);
    // The second worker is away until 200 ms: 2000 frames come for it.
    run_until(first, &clock, Nanos::ZERO, Nanos::from_millis(200));
    let missed = overflow[0].missed(FORWARD);
    let passed = 2000 - DEPTH as u64;
    // A burst may not be complete yet.
    assert!(missed.abs_diff(passed) <= 32, "{missed} missed");
    let own = forward_of(&snapshot(first), mine);
    assert!(own.received.packets.abs_diff(2000) <= 32, "{own:?}");
    // 180 ms after the delay at 1.25 frames a millisecond.
    assert!(own.sent.packets.abs_diff(225) <= 2, "{own:?}");
    for t in (200_000_000..4_000_000_000_u64).step_by(50_000) {
        clock.set(Instant(t));
        second.turn();
        first.turn();
    }
    assert_eq!(overflow[0].missed(FORWARD), missed, "missed after the fault ended");
    let (a, b) = (snapshot(first), snapshot(second));
    let (a, b) = (forward_of(&a, mine), forward_of(&b, theirs));
    assert_eq!(a.received.packets, u64::from(FRAMES));
    assert_eq!(b.received.packets + missed, u64::from(FRAMES));
    for p in [a, b] {
        assert_eq!(p.held.packets, 0);
        assert_eq!(p.sent.packets + p.dropped_total().packets, p.received.packets);
    }
    in_order(first.io().inner().sent.iter().chain(&second.io().inner().sent));
    assert_eq!(overflow[1].missed(FORWARD), 0);
}
