// SPDX-License-Identifier: Apache-2.0
//! A capture sees each frame once where it arrives and once where it ends, and changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use emu::client::ClientKey;
use emu::engine::{Engine, Limits};
use emu::observe::Observer;
use emu::plan::Plan;
use emu::stats::{DropReason, Snapshot};
use emu::units::{ByDirection, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;
use worker::capture::{Capture, Numbers, Point, Selection, Sighting, Sink};
use worker::edge::{Edge, Tail};

use crate::arbitrary::*;

/// Shorter than the shortest frame that carries its number, and than the longest.
const SNAPLEN: usize = 96;

/// A sighting, with the copied bytes.
type Sight = (Sighting, Vec<u8>);

#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<Sight>>>);

impl Sink for Seen {
    fn take(&mut self, sighting: &Sighting, bytes: &[u8]) {
        self.0.lock().unwrap().push((*sighting, bytes.to_vec()));
    }
}

impl Seen {
    fn all(&self) -> Vec<Sight> {
        self.0.lock().unwrap().clone()
    }
}

fn selection() -> impl Strategy<Value = Selection> {
    let client = prop_oneof![
        4 => (0_u8..7).prop_map(|n| ClientKey::Ip([10, 0, 0, n].into())),
        1 => Just(ClientKey::Bypass),
        1 => Just(ClientKey::Default),
    ];
    let directions = prop_oneof![Just([true, true]), Just([true, false]), Just([false, true])];
    (prop::collection::vec(client, 0..4), directions)
        .prop_map(|(clients, directions)| Selection::new(clients, ByDirection(directions)))
}

/// Small frames are copied, larger ones kept, as long as there are places.
fn engine(plan: &Plan) -> Engine<Vec<u8>> {
    let limits = Limits { copy_break: 500, buffers: 8, ..LIMITS };
    Engine::new(limits, plan.clone(), Instant::ZERO).unwrap()
}

fn capture(selection: &Selection, since: Instant, seen: &Seen) -> Capture {
    Capture::new(selection.clone(), since, SNAPLEN, Box::new(seen.clone()))
}

fn edge(capture: Capture) -> Option<Box<dyn Observer>> {
    Edge::observer(Tail::None, Some(capture))
}

/// The accounts of one client and direction, as counts of packets.
type Counts = BTreeMap<(ClientKey, Direction, Point), u64>;

fn accounts(snapshot: &Snapshot, selection: &Selection) -> Counts {
    let mut counts = Counts::new();
    for client in &snapshot.clients {
        for d in Direction::BOTH.into_iter().filter(|d| selection.has(client.key, *d)) {
            let pipe = &client.pipes[d];
            let mut arrived = pipe.received;
            // A duplicate counts as a frame.
            arrived.packets += pipe.duplicated.packets + pipe.generated.packets;
            let dropped = DropReason::ALL.map(|r| (Point::Dropped(r), pipe.dropped[r as usize]));
            let others = [
                (Point::Ingress, arrived),
                (Point::Egress, pipe.sent),
                (Point::Marked, pipe.marked),
            ];
            for (point, count) in dropped.into_iter().chain(others) {
                if count.packets > 0 {
                    counts.insert((client.key, d, point), count.packets);
                }
            }
        }
    }
    counts
}

/// By their bytes frames are known again.
fn without_wrong_bits(mut plan: Plan) -> Plan {
    for p in &mut plan.pipes.0 {
        p.corrupt = Probability::ZERO;
    }
    plan
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn capture_sees_every_frame_arrive_and_end_once_and_changes_no_fate(
        first in plan(),
        steps in prop::collection::vec(step(), 1..300),
        selection in selection(),
        (on, before) in prop_oneof![
            Just((0, false)),
            (0_usize..100, any::<bool>()),
        ],
    ) {
        let first = without_wrong_bits(first);
        let (mut bare, mut captured) = (engine(&first), engine(&first));
        let (mut left, mut left_captured) = (Left::new(), Left::new());
        let (seen, earlier) = (Seen::default(), Seen::default());
        let numbers = Numbers::default();
        if before {
            // An earlier capture; some of its frames may still be held.
            let first = capture(&selection, Instant::ZERO, &earlier).counting(numbers.clone());
            captured.set_observer(edge(first));
        }
        let (mut now, mut generation) = (Instant::ZERO, 0);
        let mut since = Instant::ZERO;
        for (i, (gap, step)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            if i == on {
                since = now;
                let next = capture(&selection, now, &seen).counting(numbers.clone());
                let replaced = captured.set_observer(edge(next));
                prop_assert_eq!(replaced.is_some(), before);
            }
            match step {
                Step::Arrive { direction, client, len } => {
                    let f = frame(direction, client, len, i as u32);
                    bare.arrive_burst(now, direction, &mut [Some(f.clone())]);
                    captured.arrive_burst(now, direction, &mut [Some(f)]);
                }
                Step::Release { budget, port_takes } => {
                    release(&mut bare, now, budget, port_takes, &mut left);
                    release(&mut captured, now, budget, port_takes, &mut left_captured);
                }
                Step::Apply { plan, restart } => {
                    generation += 1;
                    let plan = without_wrong_bits(*plan);
                    bare.apply(now, plan.clone(), generation, restart);
                    captured.apply(now, plan, generation, restart);
                }
                Step::KeepUp => {
                    bare.keep_up(now);
                    captured.keep_up(now);
                }
            }
        }
        let mut end = now;
        for engine in [&mut bare, &mut captured] {
            engine.apply(now, Plan::transparent(), generation + 1, false);
        }
        while let Some(t) = captured.next_deadline() {
            end = end.max(t);
            release(&mut bare, end, usize::MAX, usize::MAX, &mut left);
            release(&mut captured, end, usize::MAX, usize::MAX, &mut left_captured);
        }
        sort_by_pipe(&mut left);
        sort_by_pipe(&mut left_captured);
        prop_assert_eq!(left, left_captured);
        let mut snapshots = [Snapshot::default(), Snapshot::default()];
        bare.snapshot(end, false, &mut snapshots[0]);
        captured.snapshot(end, false, &mut snapshots[1]);
        prop_assert_eq!(snapshots[1].store_used, 0);
        snapshots.iter_mut().for_each(forget_lateness);
        // The numbers take room.
        snapshots[1].store_used_max = snapshots[0].store_used_max;
        prop_assert_eq!(&snapshots[0], &snapshots[1]);

        let seen = seen.all();
        let mut frames = BTreeMap::<u64, Vec<&Sight>>::new();
        let mut counts = Counts::new();
        for one in &seen {
            let (s, bytes) = one;
            prop_assert!(selection.has(s.client, s.direction) && s.at >= since, "{s:?}");
            prop_assert_eq!(bytes.len(), SNAPLEN.min(s.len as usize));
            *counts.entry((s.client, s.direction, s.point)).or_default() += 1;
            if let Some(n) = s.number {
                frames.entry(n).or_default().push(one);
            } else {
                prop_assert!(s.point != Point::Ingress && on > 0, "no number: {s:?}");
            }
        }
        for (n, (number, sightings)) in frames.iter().enumerate() {
            prop_assert_eq!(*number, n as u64 + 1, "numbers have no gaps");
            let [(came, bytes), .., (ended, _)] = &**sightings else {
                return Err(TestCaseError::fail(format!("came or ended unseen: {sightings:?}")));
            };
            prop_assert_eq!(came.point, Point::Ingress);
            let ends = |s: &Sighting| matches!(s.point, Point::Egress | Point::Dropped(_));
            prop_assert!(ends(ended));
            for (s, later) in &sightings[1..sightings.len() - 1] {
                prop_assert_eq!(s.point, Point::Marked);
                prop_assert!(is_same(bytes, later));
            }
            for (s, later) in &sightings[1..] {
                prop_assert!(s.at >= came.at && is_same(bytes, later), "{came:?} {s:?}");
                let of = |s: &Sighting| (s.client, s.direction, s.len);
                prop_assert_eq!(of(s), of(came));
            }
        }
        if on == 0 {
            prop_assert_eq!(counts, accounts(&snapshots[1], &selection));
        }
    }
}

#[test]
fn frame_that_the_port_refuses_is_captured_once_when_it_leaves() {
    let mut link = engine(&Plan::transparent());
    let seen = Seen::default();
    let all = Selection::new(Vec::new(), ByDirection([true; 2]));
    link.set_observer(edge(capture(&all, Instant::ZERO, &seen)));
    let f = frame(Direction::Forward, 1, 1000, 7);
    link.arrive_burst(Instant(5), Direction::Forward, &mut [Some(f)]);
    let mut left = Left::new();
    release(&mut link, Instant(6), 10, 0, &mut left);
    assert_eq!(seen.all().len(), 1);
    release(&mut link, Instant(9), 10, 1, &mut left);
    let points: Vec<_> = seen.all().iter().map(|(s, _)| (s.at, s.point, s.number)).collect();
    let expected = [(Instant(5), Point::Ingress, Some(1)), (Instant(9), Point::Egress, Some(1))];
    assert_eq!(points, expected);
    // Without a capture nothing is seen, nor of the pipes that it was on.
    assert!(link.set_observer(None).is_some());
    let f = frame(Direction::Forward, 1, 60, 8);
    link.arrive_burst(Instant(10), Direction::Forward, &mut [Some(f)]);
    release(&mut link, Instant(11), 10, 1, &mut left);
    assert_eq!((seen.all().len(), left.len()), (2, 2));
}
