// SPDX-License-Identifier: Apache-2.0
//! Many links on several workers: packets are conserved, and their fates depend on neither the
//! number of workers nor on what happens to other links. The clients of `main` are spread over all
//! workers, those of each other link are on one.

use std::collections::BTreeMap;
use std::sync::Arc;

use emu::aqm::QueuePlan;
use emu::client::ClientKey;
use emu::engine::{Engine, Limits};
use emu::links::{Board, MAIN};
use emu::plan::Plan;
use emu::rng::{Stage, Stream, StreamKey};
use emu::rules::{Rule, Rules};
use emu::units::{BitRate, Direction, Instant, Nanos, Probability};
use worker::clock::VirtualClock;
use worker::command::{Change, Handle, Report, channel};
use worker::distribute::{Distributed, Lending, connect};
use worker::run::{Idle, Worker};
use worker::sim::{Arrival, Recorded, SimIo};

const LINKS: usize = 64;
const CLIENTS: u32 = 16;
/// A link that is added later. Its traffic starts and stops.
const GUEST: usize = LINKS;
const MEMORY: usize = 1 << 20;
/// Room for the clients of other links, too: clients without a slot share a pipe of each worker.
const SLOTS: u32 = 3 * CLIENTS;
const LIMITS: Limits = Limits::copying(MEMORY, SLOTS, 1_514);
/// Named clients of `main`.
const NAMES: u64 = 4;
const CHANGES: u64 = 200;
const BETWEEN: Nanos = Nanos::from_millis(2);
/// How long before its instant the workers get a change.
const LEAD: Nanos = Nanos::from_millis(1);

type Sim = Worker<Distributed<SimIo>, VirtualClock>;
/// By number of the frame: the client, the direction and the due time.
type Fates = BTreeMap<u32, (ClientKey, Direction, Instant)>;

/// Another plan for each link and variant.
fn plan(link: usize, variant: u64) -> Plan {
    let mut plan = Plan { seed: 7 + link as u64, ..Plan::transparent() };
    for (n, pipe) in (0..).zip(&mut plan.pipes.0) {
        pipe.rate = BitRate::bps(100_000 + 7_000 * link as u64 + 1_000 * variant).into();
        pipe.queue = QueuePlan::tail_drop(8_000 + 200 * link as u64);
        pipe.packet_loss = Probability::new(0.01 + 0.001 * (variant % 10) as f64).into();
        pipe.delay.base = Nanos::from_millis(5 + link as u64 % 20 + n);
    }
    if link == MAIN {
        // Some of the clients have names, and each variant names others.
        let mut rules = Rules::default();
        rules.reserved = NAMES as u32;
        for name in 0..NAMES {
            let address = [10, 0, 0, ((name + variant) * 2 % u64::from(CLIENTS)) as u8];
            let rule = Rule::Prefix(address.into(), 31);
            rules.insert(rule, format!("host{name}").parse().unwrap()).unwrap();
        }
        plan.rules = Arc::new(rules);
    }
    plan
}

/// The worker of a link; none for `main`, whose clients are spread.
fn home(link: usize, workers: usize) -> Option<usize> {
    (link != MAIN).then_some(link % workers)
}

/// 10.0.k.0/24 is of link k. Half of the second link's clients move to the third one, or not.
fn board(moved: bool, guest: bool, workers: usize) -> Board {
    let mut board = Board::default();
    for link in 1..=GUEST {
        board.set_home(link, link % workers);
    }
    let mut rule = |address: [u8; 4], length, link: usize| {
        let name = format!("link{link}").parse().unwrap();
        board.insert(Rule::Prefix(address.into(), length), name, link).unwrap();
    };
    for link in 1..LINKS + usize::from(guest) {
        rule([10, 0, link as u8, 0], 24, link);
    }
    if moved {
        rule([10, 0, 1, 8], 29, 2);
    }
    board
}

/// Frames of all clients of all links, and of the guest's. First of all each client sends one:
/// frames to an address that has sent nothing share a pipe of each worker. So where clients
/// change their links, all frames come from them.
fn arrivals() -> Vec<Arrival> {
    let key =
        StreamKey { seed: 3, client: ClientKey::Bypass, direction: Direction::Return, epoch: 0 };
    let mut random = Stream::new(key, Stage::Aqm, 9);
    let mut below = |n: u64| random.below(Nanos(n)).0;
    let mut all = Vec::new();
    let mut push = |at: u64, direction, (link, client): (u64, u64), len: usize| {
        let mut frame = vec![0; len];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        for address in [26, 30] {
            frame[address..address + 4].copy_from_slice(&[10, 0, link as u8, client as u8]);
        }
        frame[38..42].copy_from_slice(&(all.len() as u32).to_be_bytes());
        all.push(Arrival { at: Instant(at), direction, frame });
    };
    for link in 0..=GUEST as u64 {
        for client in 0..CLIENTS.into() {
            push(link, Direction::Return, (link, client), 60);
        }
    }
    let mut at = LEAD.0;
    while at < CHANGES * BETWEEN.0 {
        at += below(20_000);
        let of = (below(LINKS as u64 + 1), below(CLIENTS.into()));
        let stays = (3..LINKS as u64).contains(&of.0);
        let direction = Direction::BOTH[usize::from(below(3) > 0 || !stays)];
        push(at, direction, of, [60, 590, 1514][below(3) as usize]);
    }
    all
}

/// Runs all workers turn by turn up to an instant.
fn run_until(workers: &mut [Sim], clock: &VirtualClock, until: Instant) {
    loop {
        let moved: usize =
            workers.iter_mut().map(Worker::turn).map(|t| t.received + t.released).sum();
        if moved > 0 {
            continue;
        }
        let next = workers.iter().flat_map(|w| [w.io().next_burst(), w.links().next_deadline()]);
        match next.flatten().min() {
            Some(next) if next <= until => clock.set(next),
            _ => break,
        }
    }
    clock.set(until);
    workers.iter_mut().for_each(|worker| _ = worker.turn());
}

struct Played {
    fates: Fates,
    /// Packets that each link received and dropped.
    counts: BTreeMap<usize, (u64, u64)>,
}

/// Plays the arrivals to a number of workers, during changes of links and rules.
fn play(count: usize, receiver: impl Fn(&Arrival) -> usize) -> Played {
    let arrivals = arrivals();
    let total = arrivals.len() as u64;
    let io = |w| SimIo::new(arrivals.iter().filter(|a| receiver(a) == w).cloned().collect(), 1);
    let lending = Lending { lends: false, longest: LIMITS.frame };
    let ports = connect((0..count).map(io).collect(), lending);
    let clock = VirtualClock::default();
    let (mut workers, mut handles): (Vec<Sim>, Vec<Handle>) = (Vec::new(), Vec::new());
    for io in ports {
        let whole = Limits { memory: MEMORY * (LINKS + 1), ..LIMITS };
        let mut main = Engine::new(whole, plan(MAIN, 0), Instant::ZERO).unwrap();
        main.set_memory(MEMORY);
        let (handle, inbox) = channel(SLOTS as usize);
        workers.push(Worker::new(main, io, clock.clone(), inbox, Idle::Busy));
        handles.push(handle);
    }
    let add = |workers: &mut [Sim], link: usize, at: Instant| {
        let home = home(link, count).unwrap();
        let handle = handles[home].of_link(link, SLOTS as usize);
        let engine = handle.make(LIMITS, plan(link, 0), at).unwrap();
        drop(handle.add_link(engine, None).unwrap());
        workers.iter_mut().for_each(|worker| _ = worker.turn());
    };
    for link in 1..LINKS {
        add(&mut workers, link, Instant::ZERO);
    }
    let first = Arc::new(board(false, false, count));
    for handle in &handles {
        drop(handle.set_board(Instant::ZERO, first.clone()).unwrap());
    }
    let mut guest = false;
    for change in 0..CHANGES {
        let at = Instant(change * BETWEEN.0 + LEAD.0);
        run_until(&mut workers, &clock, Instant(at.0 - LEAD.0));
        match change % 4 {
            0 => {
                if change == 40 {
                    add(&mut workers, GUEST, Instant(at.0 - LEAD.0));
                }
                guest = change >= 40 && change % 8 == 0;
            }
            _ => {
                let link = if change % 3 == 0 { MAIN } else { (change as usize * 7) % LINKS };
                let home = home(link, count);
                let its = handles.iter().enumerate().filter(|(n, _)| home.is_none_or(|h| h == *n));
                for handle in its.map(|(_, handle)| handle.of_link(link, 0)) {
                    let (plan, generation) = (plan(link, change), change);
                    let restart = change % 5 == 0;
                    drop(handle.apply(Change { at, plan, generation, restart }).unwrap());
                }
            }
        }
        if change % 2 == 0 {
            let board = Arc::new(board(change % 6 == 0, guest, count));
            for handle in &handles {
                drop(handle.set_board(at, board.clone()).unwrap());
            }
        }
    }
    run_until(&mut workers, &clock, Instant(u64::MAX >> 1));
    let mut counts = BTreeMap::new();
    for link in 0..=GUEST {
        let sums: &mut (u64, u64) = counts.entry(link).or_default();
        for worker in &mut workers {
            let mut report = Report::default();
            worker.report(link, Instant::MAX, false, &mut report);
            assert!(report.snapshot.is_conserved(), "link {link}");
            let all = report.snapshot.total();
            assert_eq!(all.held.packets, 0, "link {link}");
            sums.0 += all.received.packets;
            sums.1 += all.dropped.iter().map(|count| count.packets).sum::<u64>();
        }
    }
    assert_eq!(counts.values().map(|(received, _)| received).sum::<u64>(), total);
    let mut fates = Fates::new();
    for worker in workers {
        for s in worker.into_io().into_inner().sent {
            let number = u32::from_be_bytes(s.frame[38..42].try_into().unwrap());
            assert_eq!(fates.insert(number, (s.client, s.direction, s.due)), None);
        }
    }
    let dropped: u64 = counts.values().map(|(_, dropped)| dropped).sum();
    assert_eq!(fates.len() as u64 + dropped, total);
    Played { fates, counts }
}

#[test]
fn fates_of_many_links_do_not_depend_on_workers_during_changes() {
    let one = play(1, |_| 0);
    let dropped: u64 = one.counts.values().map(|(_, dropped)| dropped).sum();
    let least = one.counts.values().map(|(received, _)| *received).min().unwrap();
    println!("{} frames left, {dropped} dropped; each link received {least}", one.fates.len());
    assert!(one.fates.len() > 5_000 && dropped > 1_000 && least > 50);
    for count in [2, 4] {
        let other = play(count, |_| 0);
        assert_eq!(other.counts, one.counts, "{count} workers");
        assert!(other.fates == one.fates, "{count} workers");
        let spread = play(count, |arrival| usize::from(arrival.frame[29]) % count);
        assert!(spread.fates == one.fates, "each of {count} workers receives");
    }
}
