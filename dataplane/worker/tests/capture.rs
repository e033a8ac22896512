// SPDX-License-Identifier: Apache-2.0
//! A capture gets what the accounts count, misses copies if no one reads them in time, and
//! never changes what the worker does.

use emu::aqm::{AqmPlan, QueuePlan, RandomDrop};
use emu::client::ClientKey;
use emu::delay::DelayPlan;
use emu::engine::{Engine, Limits};
use emu::links::MAIN;
use emu::plan::{PipePlan, Plan};
use emu::stats::{DropReason, Snapshot};
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};
use worker::capture::copies::{Copies, rings};
use worker::capture::{Capture, Point, Selection, Sighting};
use worker::clock::VirtualClock;
use worker::command::{Handle, Report, channel};
use worker::run::{Idle, Worker};
use worker::sim::{self, Arrival, Sent, SimIo};

const LIMITS: Limits =
    Limits { copy_break: 512, buffers: 64, ..Limits::copying(16 << 20, 8, 1514) };
const CLIENTS: u32 = 3;
const CAPTURED: ClientKey =
    ClientKey::Ip(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

/// A queue that fills and drops, losses, and a delay.
fn plan() -> Plan {
    let pipe = PipePlan {
        rate: BitRate::bps(10_000_000).into(),
        queue: QueuePlan {
            limit: 100_000,
            aqm: AqmPlan::RandomDrop(RandomDrop {
                threshold: 50_000,
                at_threshold: Probability::ZERO,
                at_limit: Probability::new(0.3),
                ..RandomDrop::default()
            }),
            ecn: true,
        },
        packet_loss: Probability::new(0.05).into(),
        delay: DelayPlan { base: Nanos::from_millis(100), ..PipePlan::transparent().delay },
        ..PipePlan::transparent()
    };
    Plan { seed: 3, pipes: ByDirection([pipe.clone(), pipe]), ..Plan::transparent() }
}

/// Twice what the link takes, for three clients in turn, all of them ECN capable.
fn arrivals() -> Vec<Arrival> {
    let arrival = |n: u32| {
        let mut frame = vec![0; if n.is_multiple_of(5) { 1514 } else { 200 }];
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 2]);
        let len = frame.len() as u16 - 14;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        let client = [10, 0, 0, 1 + (n % CLIENTS) as u8];
        frame[26..30].copy_from_slice(&client);
        frame[30..34].copy_from_slice(&client);
        frame[38..42].copy_from_slice(&n.to_be_bytes());
        // A mark in a header with a wrong checksum would be of no use.
        let words = frame[14..34].chunks_exact(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum: u32 = words.sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        let direction = Direction::BOTH[usize::from(n.is_multiple_of(7))];
        Arrival { at: Instant(u64::from(n) * 55_000), direction, frame }
    };
    (0..20_000).map(arrival).collect()
}

struct Played {
    sent: Vec<Sent>,
    snapshot: Snapshot,
    /// Copies from the rings at the end, in order.
    seen: Vec<(Sighting, Vec<u8>)>,
    missed: u64,
}

/// Plays the arrivals to a worker with a capture that has room for this many copies.
fn play(room: Option<usize>) -> Played {
    let engine = Engine::new(LIMITS, plan(), Instant::ZERO).unwrap();
    let clock = VirtualClock::default();
    let (handle, inbox) = channel(8);
    let io = SimIo::new(arrivals(), 4);
    let mut worker = Worker::new(engine, io, clock.clone(), inbox, Idle::Busy);
    let copies = room.map(|room| start(&handle, room));
    sim::run(&mut worker, &clock);
    let mut report = Report::default();
    worker.report(MAIN, Instant::MAX, false, &mut report);
    let mut played =
        Played { sent: Vec::new(), snapshot: report.snapshot, seen: Vec::new(), missed: 0 };
    if let Some(mut copies) = copies {
        let mut bytes = Vec::new();
        while let Some(sighting) = copies.next(&mut bytes) {
            played.seen.push((sighting, std::mem::take(&mut bytes)));
        }
        played.missed = missed(&copies);
        // The caller frees what ended.
        let mut answer = handle.capture(None).unwrap();
        worker.turn();
        assert!(answer.try_recv().unwrap().is_some());
        drop(answer);
        assert!(copies.is_over());
    }
    played.sent = worker.into_io().sent;
    played
}

fn start(handle: &Handle, room: usize) -> Copies {
    let (sink, copies) = rings(room, room * 64);
    let selection = Selection::new(vec![CAPTURED], ByDirection([true; 2]));
    let capture = Capture::new(selection, Instant::ZERO, 64, Box::new(sink));
    drop(handle.capture(Some(capture)).unwrap());
    copies
}

fn points() -> impl Iterator<Item = Point> {
    let drops = DropReason::ALL.into_iter().map(Point::Dropped);
    [Point::Ingress, Point::Egress, Point::Marked].into_iter().chain(drops)
}

fn missed(copies: &Copies) -> u64 {
    // Drops are counted together.
    let kinds = points().take(4).collect::<Vec<_>>();
    let of = |d| kinds.iter().map(|p| copies.missed().copies(d, *p)).sum::<u64>();
    Direction::BOTH.into_iter().map(of).sum()
}

/// The packets of the captured client at a point, by its accounts.
fn counted(snapshot: &Snapshot, direction: Direction, point: Point) -> u64 {
    let client = snapshot.clients.iter().find(|c| c.key == CAPTURED).unwrap();
    let pipe = &client.pipes[direction];
    match point {
        Point::Ingress => pipe.received.packets,
        Point::Egress => pipe.sent.packets,
        Point::Marked => pipe.marked.packets,
        Point::Dropped(reason) => pipe.dropped[reason as usize].packets,
    }
}

#[test]
fn capture_matches_accounts() {
    let played = play(Some(100_000));
    assert_eq!(played.missed, 0);
    for direction in Direction::BOTH {
        for point in points() {
            let is = |s: &Sighting| s.direction == direction && s.point == point;
            let seen = played.seen.iter().filter(|(s, _)| is(s)).count() as u64;
            assert_eq!(
                seen,
                counted(&played.snapshot, direction, point),
                "{direction:?} {point:?}"
            );
        }
    }
    let forward = |point| counted(&played.snapshot, Direction::Forward, point);
    let lost = forward(Point::Dropped(DropReason::Loss));
    assert!(lost > 0 && forward(Point::Marked) > 0, "the plan does nothing");
    // Egress copies equal the frames that left, with their times, of this client only.
    let left = played.sent.iter().filter(|s| s.client == CAPTURED);
    let left: Vec<_> = left.map(|s| (s.at, s.direction, s.frame[..64].to_vec())).collect();
    let seen = played.seen.iter().filter(|(s, _)| s.point == Point::Egress);
    let seen: Vec<_> = seen.map(|(s, bytes)| (s.at, s.direction, bytes.clone())).collect();
    assert_eq!(left, seen);
    assert!(played.seen.iter().all(|(s, _)| s.client == CAPTURED));
}

#[test]
fn unread_copies_are_counted_and_change_no_fate() {
    let (bare, tapped) = (play(None), play(Some(100)));
    assert_eq!(tapped.seen.len(), 100);
    let all: u64 = Direction::BOTH
        .into_iter()
        .flat_map(|d| points().map(move |p| (d, p)))
        .map(|(d, p)| counted(&bare.snapshot, d, p))
        .sum();
    assert_eq!(tapped.missed, all - 100);
    assert_eq!(bare.sent, tapped.sent);
    let store_used_max = bare.snapshot.store_used_max;
    assert_eq!(bare.snapshot, Snapshot { store_used_max, ..tapped.snapshot });
}
