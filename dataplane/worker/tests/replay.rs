// SPDX-License-Identifier: Apache-2.0
//! The same seed and the same recorded arrivals give the same fates and due times,
//! however the arrivals come in bursts and on however many workers the clients are.

use std::collections::BTreeMap;

use crate::key_of;
use emu::aqm::{AqmPlan, QueuePlan, RandomDrop};
use emu::client::ClientKey;
use emu::delay::{DelayPlan, ExcursionPlan};
use emu::engine::{Engine, Limits};
use emu::episode::fade::FadePlan;
use emu::episode::{DurationLaw, EpisodePlan};
use emu::framing::Framing;
use emu::held::HeldPlan;
use emu::links::MAIN;
use emu::loss::LossPlan;
use emu::place::worker_of;
use emu::plan::{OffloadPlan, PipePlan, Plan};
use emu::rng::{Stage, Stream, StreamKey};
use emu::shaper::{RatePlan, RateTrace};
use emu::stats::{Count, DropReason, Snapshot};
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};
use shim::{Numbers, SHIM, Shim, Tick};
use worker::chaos::{ChaosClock, ChaosIo, Faults};
use worker::clock::VirtualClock;
use worker::command::{Report, channel};
use worker::distribute::{Distributed, Lending, connect};
use worker::edge::{Edge, Tail};
use worker::io::PacketIo;
use worker::run::{Idle, Worker};
use worker::shim::ShimIo;
use worker::sim::{self, Arrival, Sent, SimIo};

const LIMITS: Limits = Limits::copying(64 << 20, 16, 9_500);
const CLIENTS: u64 = 6;

/// Every stage at work: a queue that fills, random drop, a rate that changes, outages,
/// fades, losses, slots, a delay that varies, excursions.
fn plan() -> Plan {
    let pipe = PipePlan {
        rate: RatePlan::Trace(RateTrace::new(
            Nanos::from_millis(30),
            &[20_000_000, 35_000_000, 0, 12_345_678],
        )),
        framing: Framing::default(),
        mtu: None,
        cross: None,
        queue: QueuePlan {
            limit: 400_000,
            aqm: AqmPlan::RandomDrop(RandomDrop {
                threshold: 200_000,
                at_threshold: Probability::ZERO,
                at_limit: Probability::new(0.5),
                ..RandomDrop::default()
            }),
            ecn: false,
        },
        outages: vec![EpisodePlan {
            interval: Nanos::from_millis(300),
            duration: Nanos::from_millis(20),
            law: DurationLaw::Exponential,
        }],
        boundary: None,
        fade: Some(FadePlan {
            interval: Nanos::from_millis(800),
            duration: Nanos::from_millis(200),
            factor: 4.0,
        }),
        packet_loss: Probability::new(0.01).into(),
        loss_trace: None,
        duplicate: Probability::ZERO,
        corrupt: Probability::ZERO,
        reorder: None,
        drop_run: None,
        delay: DelayPlan {
            base: Nanos::from_millis(300),
            slot: Nanos::from_millis(43),
            trace: None,
            level: None,
            body: Some(HeldPlan::renewal(
                Nanos::from_millis(70),
                [0, 2, 3, 15].map(Nanos::from_millis),
            )),
            excursions: vec![ExcursionPlan {
                interval: Nanos::from_millis(400),
                duration: Nanos::from_millis(50),
                location: Nanos::from_millis(5),
                scale: Nanos::from_millis(30),
                shape: 0.3,
                max: Nanos::from_millis(500),
                regime: None,
            }],
        },
        offload: OffloadPlan::default(),
    };
    Plan { seed: 42, pipes: ByDirection([pipe.clone(), pipe]), ..Plan::transparent() }
}

/// About two seconds of traffic of several clients, ARP and damaged frames among it.
fn arrivals() -> Vec<Arrival> {
    let key =
        StreamKey { seed: 7, client: ClientKey::Bypass, direction: Direction::Return, epoch: 0 };
    let mut random = Stream::new(key, Stage::Aqm, 9);
    let mut below = |n: u64| random.below(Nanos(n)).0;
    let mut at = 1_000_000;
    let data = (CLIENTS as u32..60_000).map(|number| {
        // Bursts at one instant are common.
        at += if below(4) == 0 { below(130_000) } else { 0 };
        let direction = Direction::BOTH[usize::from(below(3) == 0)];
        let len = [60, 590, 1514][below(3) as usize];
        let mut frame = vec![0; len];
        frame[12..14].copy_from_slice(if below(50) == 0 { &[8, 6] } else { &[8, 0] });
        frame[14] = if below(50) == 0 { 0x4f } else { 0x45 };
        frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        let client = [10, 0, 0, 1 + below(CLIENTS) as u8];
        frame[26..30].copy_from_slice(&client);
        frame[30..34].copy_from_slice(&client);
        frame[38..42].copy_from_slice(&number.to_be_bytes());
        Arrival { at: Instant(at), direction, frame }
    });
    // First of all each client sends one.
    let first = (0..CLIENTS).map(|number| Arrival {
        at: Instant(number),
        direction: Direction::Return,
        frame: first_frame(number as u8),
    });
    first.chain(data).collect()
}

/// The fate of each frame that left, by number: the client and the due time.
type Fates = BTreeMap<u32, (ClientKey, Direction, Instant)>;

fn fates(sent: &[Sent]) -> Fates {
    sent.iter()
        .map(|s| {
            let number = u32::from_be_bytes(s.frame[38..42].try_into().unwrap());
            (number, (s.client, s.direction, s.due))
        })
        .collect()
}

/// The first frame of a client, which sets its place.
fn first_frame(number: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
    frame[26..30].copy_from_slice(&[10, 0, 0, 1 + number]);
    frame[38..42].copy_from_slice(&u32::from(number).to_be_bytes());
    frame
}

/// For each client, its drops by reason and the high-water mark of its queue.
type Drops = BTreeMap<ClientKey, [([Count; DropReason::ALL.len()], u64); 2]>;

/// Plays the arrivals; returns the fates of frames that left and the counts of drops.
fn play(burst: usize, workers: usize) -> (Fates, Drops) {
    let mut all = Fates::new();
    let mut drops = BTreeMap::new();
    for w in 0..workers {
        let mine = |a: &Arrival| worker_of(key_of(&a.frame, a.direction), workers) == w;
        let io = SimIo::new(arrivals().into_iter().filter(mine).collect(), burst);
        let engine = Engine::new(LIMITS, plan(), Instant::ZERO).unwrap();
        let clock = VirtualClock::default();
        let (_handle, inbox) = channel(16);
        let mut worker = Worker::new(engine, io, clock.clone(), inbox, Idle::Busy);
        sim::run(&mut worker, &clock);
        account(&mut worker, &mut drops);
        let sent = worker.into_io().sent;
        assert!(sent.iter().all(|s| s.at >= s.due), "early");
        all.extend(fates(&sent));
    }
    (all, drops)
}

fn account<I: PacketIo>(worker: &mut Worker<I, VirtualClock>, drops: &mut Drops) {
    let mut report = Report::default();
    worker.report(MAIN, Instant::MAX, false, &mut report);
    assert!(report.snapshot.is_conserved());
    assert_eq!(report.snapshot.total().held.packets, 0);
    for c in &report.snapshot.clients {
        let seen: u64 = c.pipes.0.iter().map(|p| p.received.packets).sum();
        if seen > 0 {
            let known = drops.insert(c.key, c.pipes.0.map(|p| (p.dropped, p.queue_max_bytes)));
            assert_eq!(known, None, "{} has two owners", c.key);
        }
    }
}

/// Plays the arrivals to several workers that pass frames on to their owners. A frame comes in
/// at the worker that `receiver` says, of its client and direction.
fn play_distributed(
    burst: usize,
    workers: usize,
    lends: bool,
    receiver: impl Fn(&Arrival) -> usize,
) -> (Fates, Drops) {
    let io = |w| {
        let mine = arrivals().into_iter().filter(|a| receiver(a) == w).collect();
        SimIo::new(mine, burst)
    };
    let lending = Lending { lends, longest: LIMITS.frame };
    let ports = connect((0..workers).map(io).collect(), lending);
    let overflow: Vec<_> = ports.iter().map(Distributed::overflow).collect();
    let clock = VirtualClock::default();
    let mut all: Vec<_> = ports
        .into_iter()
        .map(|io| {
            let engine = Engine::new(LIMITS, plan(), Instant::ZERO).unwrap();
            Worker::new(engine, io, clock.clone(), channel(16).1, Idle::Busy)
        })
        .collect();
    sim::run_all(&mut all, &clock);
    let (mut met, mut drops) = (Fates::new(), Drops::new());
    for mut worker in all {
        account(&mut worker, &mut drops);
        met.extend(fates(&worker.into_io().into_inner().sent));
    }
    for direction in Direction::BOTH {
        assert_eq!(overflow.iter().map(|o| o.missed(direction)).sum::<u64>(), 0);
    }
    (met, drops)
}

/// The number of each client in a switch.
type Numbered = BTreeMap<ClientKey, u16>;

/// Plays the arrivals to several workers behind a switch that knows some clients. The first worker
/// receives all frames.
fn play_behind_switch(workers: u16, known: &Numbered) -> (Fates, Drops, Numbered) {
    let numbers = Numbers::of_first(Tick::Microsecond, workers);
    let epoch = 7;
    let wrap = |Arrival { at, direction, frame }: Arrival| {
        let client = known.get(&key_of(&frame, direction)).copied().unwrap_or(0);
        let (loss, planned) = (0, 0);
        let shim = Shim { direction, mark: false, client, epoch, loss, stamp: at.0, planned };
        Arrival { at, direction, frame: [&shim.to_bytes()[..], &frame].concat() }
    };
    let io = |w| SimIo::new(arrivals().into_iter().filter(|_| w == 0).map(wrap).collect(), 7);
    let longest = LIMITS.frame + SHIM;
    let ports = connect((0..workers).map(io).collect(), Lending { lends: true, longest });
    let clock = VirtualClock::default();
    let mut all: Vec<_> = (0..)
        .zip(ports)
        .map(|(worker, io)| {
            let numbers = numbers.of(worker);
            let limits = Limits { offloaded: numbers.clients(), ..LIMITS };
            let mut engine = Engine::new(limits, Plan { epoch, ..plan() }, Instant::ZERO).unwrap();
            engine.set_observer(Edge::observer(Tail::Shim(numbers), None));
            let io = ShimIo::new(io, numbers);
            Worker::new(engine, io, clock.clone(), channel(16).1, Idle::Busy)
        })
        .collect();
    sim::run_all(&mut all, &clock);
    let (mut met, mut drops, mut learned) = (Fates::new(), Drops::new(), Numbered::new());
    for mut worker in all {
        account(&mut worker, &mut drops);
        let mut sent = worker.into_io().into_inner().into_inner().sent;
        for s in &mut sent {
            let (shim, inner) = Shim::read(&s.frame).unwrap();
            // The lateness that the switch sees is that of the worker, within a tick.
            let transit = (s.at.0 - shim.stamp) / 1_000;
            assert_eq!(shim.planned, numbers.tick.between(Instant(shim.stamp), s.due));
            assert!(transit.saturating_sub(shim.planned.into()) <= s.at.since(s.due).0 / 1_000 + 1);
            let number = *learned.entry(s.client).or_insert(shim.client);
            assert_eq!(number, shim.client, "{} has two numbers", s.client);
            s.frame = inner.to_vec();
        }
        met.extend(fates(&sent));
    }
    (met, drops, learned)
}

/// Whoever classifies a frame, and whichever worker has its client.
#[test]
fn fates_do_not_depend_on_the_shims_of_a_switch() {
    let reference = play(1, 1);
    for workers in [1, 3] {
        let (met, drops, numbers) = play_behind_switch(workers, &Numbered::new());
        assert!((met, drops) == reference, "{workers} workers");
        let named = numbers.keys().filter(|key| matches!(key, ClientKey::Ip(_))).count();
        assert_eq!(named as u64, CLIENTS);
        let mut distinct: Vec<_> = numbers.values().collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), numbers.len(), "{numbers:?}");
        let (met, drops, again) = play_behind_switch(workers, &numbers);
        assert!((met, drops) == reference, "{workers} workers, with numbers");
        assert_eq!(again, numbers);
        // A number is believed: frames that name another client of their worker are its.
        let Some((first, number)) = numbers.iter().find(|(_, number)| **number > 2) else { return };
        let same = |n: &u16| *n > *number && (n - number).is_multiple_of(workers);
        let other = numbers.values().copied().find(same).unwrap();
        let mut wrong = numbers.clone();
        wrong.insert(*first, other);
        assert!(play_behind_switch(workers, &wrong).0 != reference.0, "{workers} workers");
    }
}

#[test]
fn fates_depend_on_neither_bursts_nor_workers() {
    let reference = play(1, 1);
    assert!(reference.0.len() > 20_000, "{} frames left", reference.0.len());
    for reason in [DropReason::Aqm, DropReason::Limit, DropReason::Outage, DropReason::Loss] {
        let drops = reference.1.values().flatten().map(|(d, _)| d[reason as usize].packets);
        assert!(drops.sum::<u64>() > 0, "no frame met {reason:?}");
    }
    for (burst, workers) in [(8, 1), (64, 1), (1, 4), (8, 4), (64, 4)] {
        let other = play(burst, workers);
        assert_eq!(other.0.len(), reference.0.len(), "bursts of {burst}, {workers} workers");
        assert!(other == reference, "bursts of {burst}, {workers} workers");
    }
}

/// Also where one worker receives for all, or each one what the device gives it.
#[test]
fn fates_do_not_depend_on_who_receives_a_frame() {
    let reference = play(1, 1);
    for (burst, workers, lends) in [(1, 1, false), (1, 2, true), (16, 4, true), (64, 4, false)] {
        let other = play_distributed(burst, workers, lends, |_| 0);
        assert!(other == reference, "bursts of {burst}, the first of {workers} receives");
    }
    for workers in [2, 4] {
        let other = play_distributed(1, workers, false, |a| usize::from(a.frame[29]) % workers);
        assert!(other == reference, "each of {workers} receives");
    }
}

#[test]
fn another_seed_gives_other_fates() {
    let run = |seed| {
        let io = SimIo::new(arrivals(), 8);
        let engine = Engine::new(LIMITS, Plan { seed, ..plan() }, Instant::ZERO).unwrap();
        let clock = VirtualClock::default();
        let (_handle, inbox) = channel(16);
        let mut worker = Worker::new(engine, io, clock.clone(), inbox, Idle::Busy);
        sim::run(&mut worker, &clock);
        fates(&worker.into_io().sent)
    };
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}

/// Ports that refuse and starve and a clock that jumps cost time, but no frame, no
/// order and no account.
#[test]
fn faults_cost_time_but_no_frame_and_no_order() {
    for seed in 0..5 {
        let faults = Faults {
            refuse: Probability::new(0.3),
            starve: Probability::new(0.3),
            clock: Probability::new(0.1),
            jump: Nanos::from_millis(50),
            ..Faults::NONE
        };
        let mut plan = plan();
        for p in &mut plan.pipes.0 {
            p.outages.clear();
            p.packet_loss = LossPlan::None;
            p.queue = QueuePlan::tail_drop(1 << 30);
        }
        let offered = arrivals();
        let n = offered.len();
        let io = ChaosIo::new(SimIo::new(offered, 32), faults.clone(), seed);
        let clock = VirtualClock::default();
        let chaos = ChaosClock::new(clock.clone(), faults, seed);
        let engine = Engine::new(LIMITS, plan, Instant::ZERO).unwrap();
        let (_handle, inbox) = channel(16);
        let mut worker = Worker::new(engine, io, chaos, inbox, Idle::Busy);
        let (mut now, mut snapshot) = (0, Snapshot::default());
        // 20 s of link time in steps of 100 µs: all has long arrived and left.
        while now < 20_000_000_000_u64 {
            now += 100_000;
            clock.set(Instant(now));
            worker.turn();
            if now % 500_000_000 == 0 {
                let mut report = Report::default();
                worker.report(MAIN, Instant(now), false, &mut report);
                snapshot = report.snapshot;
                assert!(snapshot.is_conserved());
            }
        }
        assert_eq!(snapshot.total().held.packets, 0);
        let sent = worker.into_io().inner.sent;
        assert_eq!(sent.len(), n);
        let mut last = BTreeMap::new();
        for s in &sent {
            let number = u32::from_be_bytes(s.frame[38..42].try_into().unwrap());
            let before = last.insert((s.client, s.direction), number);
            assert!(before < Some(number), "out of order");
        }
    }
}

/// Commands are answered, in order, and a change is made as of its instant.
#[test]
fn change_takes_effect_at_its_instant_in_late_turn() {
    let frame = |number: u32| {
        let mut f = arrivals().swap_remove(0).frame;
        f.resize(1250, 0);
        f[12..14].copy_from_slice(&[8, 0]);
        f[14] = 0x45;
        f[16..18].copy_from_slice(&1236_u16.to_be_bytes());
        f[38..42].copy_from_slice(&number.to_be_bytes());
        f
    };
    let mut slow = Plan::transparent();
    slow.pipes[Direction::Forward].rate = BitRate::bps(1_000_000).into();
    let mut half = slow.clone();
    half.pipes[Direction::Forward].rate = BitRate::bps(500_000).into();
    let direction = Direction::Forward;
    let io = SimIo::new(vec![Arrival { at: Instant(0), direction, frame: frame(1) }], 1);
    let clock = VirtualClock::default();
    let engine = Engine::new(LIMITS, slow, Instant::ZERO).unwrap();
    let (handle, inbox) = channel(16);
    let mut worker = Worker::new(engine, io, clock.clone(), inbox, Idle::Busy);
    worker.turn();
    // 10 ms at 1 Mbit/s; after 4 ms the rate is halved, but the worker is away until
    // 7 ms: the frame is due at 16 ms all the same.
    let change = worker::command::Change {
        at: Instant(4_000_000),
        plan: half,
        generation: 1,
        restart: false,
    };
    let mut answer = handle.apply(change).unwrap();
    // A report in the same turn shows the change before it.
    let mut report = handle.report(false).unwrap();
    assert!(answer.try_recv().is_err());
    clock.set(Instant(7_000_000));
    worker.turn();
    assert_eq!(answer.try_recv().unwrap().at, Instant(4_000_000));
    let report = report.try_recv().unwrap();
    assert_eq!(report.snapshot.generation, 1);
    assert_eq!(report.stall_max, Nanos(7_000_000));
    assert_eq!(worker.links().generation(MAIN), Some(1));
    sim::run(&mut worker, &clock);
    assert_eq!(worker.io().sent[0].due, Instant(16_000_000));
    // One that the worker hears of when its instant has passed says when it was made.
    let late = worker::command::Change {
        at: Instant(15_000_000),
        plan: Plan::transparent(),
        generation: 2,
        restart: false,
    };
    let mut answer = handle.apply(late).unwrap();
    worker.turn();
    assert_eq!(answer.try_recv().unwrap().at, Instant(16_000_000));
    assert_eq!(worker.io().egress(0, direction).dropped, 0);
}

/// The caller of a withdrawn change gets an error, and its plan is returned to be
/// freed; a change that is due is applied, even by a worker that stalled.
#[test]
fn pending_changes_can_be_withdrawn_until_due() {
    let clock = VirtualClock::default();
    let engine = Engine::new(LIMITS, plan(), Instant::ZERO).unwrap();
    let (handle, inbox) = channel(16);
    let io = SimIo::new(Vec::new(), 1);
    let mut worker = Worker::new(engine, io, clock.clone(), inbox, Idle::Busy);
    worker.turn();
    let change = |generation: u64| worker::command::Change {
        at: Instant(generation * 1_000_000),
        plan: plan(),
        generation,
        restart: false,
    };
    let mut answers: Vec<_> = (1..=4).map(|n| handle.apply(change(n)).unwrap()).collect();
    let mut taken = handle.take_back(2).unwrap();
    clock.set(Instant(2_500_000));
    worker.turn();
    let taken = taken.try_recv().unwrap();
    let generations: Vec<_> = taken.iter().map(|(_, change, _)| change.generation).collect();
    assert_eq!(generations, [4, 3]);
    assert_eq!(answers[0].try_recv().unwrap().at, Instant(1_000_000));
    assert_eq!(answers[1].try_recv().unwrap().at, Instant(2_000_000));
    // One goes back to be made after all.
    let mut taken = taken.into_iter();
    drop(taken.next());
    handle.give_back(taken.next().unwrap()).unwrap();
    clock.set(Instant(9_000_000));
    worker.turn();
    assert_eq!(answers[2].try_recv().unwrap().at, Instant(3_000_000));
    assert!(answers[3].try_recv().is_err());
    assert_eq!(worker.links().generation(MAIN), Some(3));
}

/// The final report is exact: no frame moves after it.
#[test]
fn no_frame_moves_after_final_report() {
    let io = SimIo::new(arrivals(), 32);
    let clock = VirtualClock::default();
    let engine = Engine::new(LIMITS, plan(), Instant::ZERO).unwrap();
    let (handle, inbox) = channel(16);
    let mut worker = Worker::new(engine, io, clock.clone(), inbox, Idle::Busy);
    clock.set(Instant(500_000_000));
    while worker.io().sent.is_empty() {
        worker.turn();
    }
    let sent = worker.io().sent.len() as u64;
    let mut answer = handle.stop().unwrap();
    worker.run();
    let report = answer.try_recv().unwrap();
    assert_eq!(report.snapshot.total().sent.packets, sent);
    assert_eq!(worker.io().sent.len() as u64, sent);
}
