// SPDX-License-Identifier: Apache-2.0
//! Frames behind the shims of a P4 switch, through a whole engine: their clients, and where
//! their losses are drawn and their marks set.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use crate::numbered::{arp_reply, frame};
use emu::aqm::AqmPlan;
use emu::aqm::codel::CoDelPlan;
use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::framing::Framing;
use emu::plan::{OffloadPlan, PipePlan, Plan};
use emu::reorder::ReorderPlan;
use emu::stats::{DropReason, Snapshot};
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};
use shim::{Numbers, Shim, Tick};
use worker::capture::{Capture, Point, Selection, Sighting, Sink};
use worker::edge::{Edge, Tail};

use crate::shimmed::Bed;

const FORWARD: Direction = Direction::Forward;
const EPOCH: u16 = 5;
const BASE: Nanos = Nanos::from_millis(20);

fn wrap(client: u16, epoch: u16, inner: &[u8]) -> Vec<u8> {
    wrap_to(FORWARD, client, epoch, inner)
}

fn wrap_to(direction: Direction, client: u16, epoch: u16, inner: &[u8]) -> Vec<u8> {
    let shim = Shim { direction, mark: false, client, epoch, loss: 0, stamp: 9, planned: 0 };
    [&shim.to_bytes()[..], inner].concat()
}

fn engine(plan: Plan) -> Bed {
    let copying = Limits::copying(64 << 20, 8, 1_514);
    let limits = Limits { copy_break: 1_000, buffers: 64, ..copying };
    let mut engine = Bed::new(limits, plan, Tick::Microsecond);
    resolve(&mut engine, [10, 0, 0, 1].into());
    engine
}

/// An ARP reply behind a shim.
fn resolve(engine: &mut Bed, host: Ipv4Addr) {
    let reply = wrap_to(Direction::Return, 0, EPOCH, &arp_reply(host));
    engine.arrive(Instant::ZERO, Direction::Return, &reply);
    engine.release(Instant::ZERO, 1, 1);
}

/// A frame that left: its client, due time, shim, and the frame behind it.
type Left = (ClientKey, Instant, Shim, Vec<u8>);

fn release(engine: &mut Bed, now: Instant, left: &mut Vec<Left>) {
    for (_, client, due, bytes) in engine.release(now, usize::MAX, usize::MAX) {
        let (shim, inner) = Shim::read(&bytes).unwrap();
        left.push((client, due, shim, inner.to_vec()));
    }
}

fn drain(engine: &mut Bed, left: &mut Vec<Left>) -> Snapshot {
    let mut end = Instant::ZERO;
    while let Some(t) = engine.next_deadline() {
        end = end.max(t);
        release(engine, end, left);
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(end, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    assert_eq!((snapshot.total().held.packets, snapshot.buffers), (0, 0));
    snapshot
}

#[test]
fn client_number_is_believed_in_current_epoch_only() {
    let mut engine = engine(Plan { epoch: EPOCH, ..Plan::transparent() });
    let mut left = Vec::new();
    let mut whose = |engine: &mut Bed, client, epoch| {
        left.clear();
        engine.arrive(Instant::ZERO, FORWARD, &wrap(client, epoch, &frame(60, 1)));
        release(engine, Instant::ZERO, &mut left);
        (left[0].0, left[0].2.client)
    };
    let own = ClientKey::Ip([10, 0, 0, 1].into());
    // The address's client, which is the third.
    assert_eq!(whose(&mut engine, 0, EPOCH), (own, 3));
    assert_eq!(whose(&mut engine, 1, EPOCH), (ClientKey::Bypass, 1));
    assert_eq!(whose(&mut engine, 2, EPOCH), (ClientKey::Default, 2));
    assert_eq!(whose(&mut engine, 3, EPOCH), (own, 3));
    for (client, epoch) in [(1, 0), (1, EPOCH + 1), (4, EPOCH), (4_096, EPOCH), (u16::MAX, EPOCH)] {
        assert_eq!(whose(&mut engine, client, epoch), (own, 3), "{client} of {epoch}");
    }
    // Another epoch from a change on, and none.
    engine.apply(Instant::ZERO, Plan { epoch: 6, ..Plan::transparent() }, 1, false);
    assert_eq!(whose(&mut engine, 2, EPOCH), (own, 3));
    assert_eq!(whose(&mut engine, 2, 6), (ClientKey::Default, 2));
    engine.apply(Instant::ZERO, Plan::transparent(), 2, false);
    assert_eq!(whose(&mut engine, 2, 6), (own, 3));
    assert_eq!(whose(&mut engine, 2, 0), (own, 3));
}

#[test]
fn frame_of_shim_ethertype_bypasses_without_switch() {
    let limits = Limits::copying(1 << 20, 4, 1_514);
    let offload = OffloadPlan { loss: 9, marks: true };
    let mut plan = Plan { epoch: EPOCH, ..Plan::transparent() };
    plan.pipes[FORWARD] =
        PipePlan { offload, packet_loss: Probability::ONE.into(), ..PipePlan::transparent() };
    let mut engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
    let shimmed = wrap(3, EPOCH, &frame(60, 1));
    engine.arrive(Instant::ZERO, FORWARD, &shimmed);
    engine.arrive(Instant::ZERO, FORWARD, &frame(60, 1));
    let mut left = Vec::new();
    engine.release(Instant::ZERO, 9, &mut |d: Departure<'_>| {
        left.push((*d.client, d.bytes().to_vec()));
        true
    });
    // The engine draws the loss, since there is no switch to do it.
    assert_eq!(left, [(ClientKey::Bypass, shimmed)]);
}

/// How the frames of a test get from the shaper to the channel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Plain,
    Beam,
    Reordered,
}

/// A plan that loses every packet, by the switch's `slot` or in the channel if that is zero.
fn losing(slot: u16, way: Way) -> Plan {
    let mut plan = Plan { epoch: EPOCH, ..Plan::transparent() };
    let pipe = &mut plan.pipes[FORWARD];
    // A frame of 1,000 bytes takes 1 ms.
    pipe.rate = BitRate::bps(8_000_000).into();
    pipe.queue.limit = 1 << 20;
    pipe.delay.base = BASE;
    pipe.packet_loss = Probability::ONE.into();
    pipe.offload = OffloadPlan { loss: slot, marks: false };
    match way {
        Way::Plain => {}
        Way::Beam => {
            pipe.rate = BitRate::bps(800_000_000).into();
            let rate = ByDirection([BitRate::bps(8_000_000), BitRate::Unlimited]);
            let beam = BeamPlan { name: "spot".into(), rate, framing: Framing::default() };
            let automatic = Some(Share { beam: 0, weight: 1 });
            let beams = BeamsPlan { beams: vec![beam], automatic, ..BeamsPlan::default() };
            plan.beams = Arc::new(beams);
        }
        Way::Reordered => {
            // All by the same time, so that the instant at which each left the queue is known.
            let by = Nanos::from_millis(3);
            pipe.reorder = Some(ReorderPlan { probability: Probability::ONE, by });
        }
    }
    plan
}

#[test]
fn each_frame_is_drawn_in_one_place_by_the_plan_under_which_it_leaves_the_queue() {
    for way in [Way::Plain, Way::Beam, Way::Reordered] {
        let slots = [0, 7, 8, 0, 7, 65_535, 0, 9];
        let mut engine = engine(losing(slots[0], way));
        let (mut left, mut changes) = (Vec::new(), vec![(Instant::ZERO, slots[0])]);
        // Frames come at twice the rate for 400 ms: queue, line and beam are never empty at a
        // change, each 37.3 ms.
        let mut next = 1;
        for number in 0..800_u32 {
            let now = Instant(u64::from(number) * 500_000);
            if let Some(slot) = slots.get(next)
                && now.0 >= next as u64 * 37_300_000
            {
                engine.apply(now, losing(*slot, way), next as u64, false);
                changes.push((now, *slot));
                next += 1;
            }
            // Some are kept in their buffers.
            let len = if number % 3 == 0 { 1_000 } else { 999 };
            engine.arrive_burst(now, FORWARD, &[wrap(3, EPOCH, &frame(len, number))]);
            release(&mut engine, now, &mut left);
        }
        let snapshot = drain(&mut engine, &mut left);
        assert_eq!(changes.len(), slots.len());
        let aside = if way == Way::Reordered { Nanos::from_millis(3) } else { Nanos(0) };
        let in_force = |t: Instant| changes.iter().rfind(|(at, _)| *at < t).unwrap().1;
        let mut by_slot = BTreeMap::<u16, u64>::new();
        for (_, due, shim, _) in &left {
            assert_eq!(shim.loss, in_force(*due - (BASE + aside)), "{way:?} at {due}");
            *by_slot.entry(shim.loss).or_default() += 1;
        }
        // Where the switch draws the channel loses nothing, and the other way round.
        assert!(by_slot.keys().eq([&7, &8, &9, &65_535]), "{by_slot:?}");
        let lost = snapshot.total().dropped[DropReason::Loss as usize].packets;
        assert_eq!(left.len() as u64 + lost, 800);
        // 37 ms of each plan, and the rest for the last one, at 1 ms a frame.
        assert!((110..=113).contains(&lost), "{lost}");
        assert!((73..=76).contains(&by_slot[&7]), "{by_slot:?}");
    }
}

#[test]
fn planned_is_time_to_due_and_copies_have_own_shims() {
    let mut plan = losing(3, Way::Plain);
    plan.pipes[FORWARD].duplicate = Probability::ONE;
    let mut engine = engine(plan);
    let mut left = Vec::new();
    for number in 0..4 {
        engine.arrive(Instant(1_000_700), FORWARD, &wrap(0, 1, &frame(1_000, number)));
    }
    drain(&mut engine, &mut left);
    let planned: Vec<_> = left.iter().map(|(_, _, shim, _)| shim.planned).collect();
    // Each one and its copy, 1 ms apart, with the delay, in µs.
    assert_eq!(planned, (1..=8).map(|n| n * 1_000 + 20_000).collect::<Vec<u32>>());
    assert!(left.iter().all(|(_, _, s, _)| (s.loss, s.client, s.epoch, s.stamp) == (3, 3, 1, 9)));
    assert!(left.iter().zip(0..).all(|(l, i)| l.3 == frame(1_000, i / 2)));
}

/// The number, the point, the length and the bytes of a copy.
type Sight = (Option<u64>, Point, u32, Vec<u8>);

#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<Sight>>>);

impl Sink for Seen {
    fn take(&mut self, sighting: &Sighting, bytes: &[u8]) {
        self.0.lock().unwrap().push((
            sighting.number,
            sighting.point,
            sighting.len,
            bytes.to_vec(),
        ));
    }
}

#[test]
fn capture_shows_frames_without_shims() {
    let mut plan = losing(3, Way::Plain);
    plan.pipes[FORWARD].queue.limit = 2_500;
    let mut engine = engine(plan);
    let seen = Seen::default();
    let selection = Selection::new(Vec::new(), ByDirection([true; 2]));
    let capture = Capture::new(selection, Instant::ZERO, 4_000, Box::new(seen.clone()));
    let tail = Tail::Shim(Numbers::of_first(Tick::Microsecond, 1));
    engine.set_observer(Edge::observer(tail, Some(capture)));
    // One is kept in its buffer, one is copied, one finds the queue full, and one is no shim's.
    let frames = [1_001, 999, 1_000].map(|len| frame(len, 7));
    let bare = frame(900, 7);
    let burst: Vec<_> = frames.iter().map(|f| wrap(0, EPOCH, f)).chain([bare.clone()]).collect();
    engine.arrive_burst(Instant::ZERO, FORWARD, &burst);
    drain(&mut engine, &mut Vec::new());
    let of =
        |number, point, bytes: &Vec<u8>| (Some(number), point, bytes.len() as u32, bytes.clone());
    let [kept, copied, full] = &frames;
    let expected = [
        of(1, Point::Ingress, kept),
        of(2, Point::Ingress, copied),
        of(3, Point::Ingress, full),
        of(3, Point::Dropped(DropReason::Limit), full),
        of(4, Point::Ingress, &bare),
        of(4, Point::Dropped(DropReason::Rejected), &bare),
        of(1, Point::Egress, kept),
        of(2, Point::Egress, copied),
    ];
    assert_eq!(*seen.0.lock().unwrap(), expected);
}

#[test]
fn drop_run_applies_with_offloaded_loss() {
    let mut plan = losing(3, Way::Plain);
    plan.pipes[FORWARD].drop_run =
        Some(emu::drop_run::DropRunPlan { pass: 3, drop: 1, once: false, arm: false });
    let mut engine = engine(plan);
    let mut left = Vec::new();
    for number in 0..40 {
        engine.arrive(Instant::ZERO, FORWARD, &wrap(0, EPOCH, &frame(1_000, number)));
    }
    let total = drain(&mut engine, &mut left).total();
    assert_eq!((left.len(), total.dropped[DropReason::Scheduled as usize].packets), (30, 10));
}

#[test]
fn offloaded_mark_leaves_packet_and_counts_as_marked() {
    let marking = |marks| {
        let mut plan = losing(3, Way::Plain);
        let pipe = &mut plan.pipes[FORWARD];
        let (target, interval) = (Nanos::from_millis(5), Nanos::from_millis(20));
        pipe.queue.aqm = AqmPlan::CoDel(CoDelPlan { target, interval });
        pipe.queue.ecn = true;
        pipe.offload.marks = marks;
        let mut engine = engine(plan);
        let mut left = Vec::new();
        for number in 0..200_u32 {
            let mut inner = frame(1_000, number);
            // One in two can be marked.
            inner[15] = if number % 2 == 0 { 0b10 } else { 0 };
            inner[24..26].fill(0);
            let sum: u32 =
                inner[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            inner[24..26].copy_from_slice(&sum.to_be_bytes());
            let at = Instant(u64::from(number) * 500_000);
            engine.arrive(at, FORWARD, &wrap(0, EPOCH, &inner));
        }
        let total = drain(&mut engine, &mut left).total();
        (left, total)
    };
    let ((by_switch, counts), (here, same)) = (marking(true), marking(false));
    assert_eq!(counts, same);
    let marks = by_switch.iter().filter(|l| l.2.mark).count() as u64;
    assert!(marks > 0 && counts.marked.packets == marks, "{marks} {:?}", counts.marked);
    assert!(counts.dropped[DropReason::Aqm as usize].packets > 0);
    for (switch, here) in by_switch.iter().zip(&here) {
        assert!(!here.2.mark);
        assert_eq!((switch.3[15], here.3[15] == 0b11), (switch.3[15] & 0b10, switch.2.mark));
    }
}

#[test]
fn client_without_number_has_losses_in_dataplane() {
    let clients = Tick::Nanosecond.numbers() + 3;
    let mut plan = losing(3, Way::Plain);
    plan.pipes[FORWARD].rate = BitRate::Unlimited.into();
    let limits = Limits::copying(64 << 20, clients, 1_514);
    let mut engine = Bed::new(limits, plan.clone(), Tick::Nanosecond);
    for client in 0..clients {
        resolve(&mut engine, (0x0a00_0001 + client).into());
    }
    let mut left = Vec::new();
    let each = |engine: &mut Bed, now| {
        for client in 0..clients {
            let mut inner = frame(100, client);
            inner[30..34].copy_from_slice(&(0x0a00_0001 + client).to_be_bytes());
            engine.arrive(now, FORWARD, &wrap(0, EPOCH, &inner));
        }
    };
    each(&mut engine, Instant::ZERO);
    // Also under a plan that restarts its processes.
    let later = Instant(1_000);
    engine.apply(later, plan, 2, true);
    each(&mut engine, later);
    let snapshot = drain(&mut engine, &mut left);
    // Two clients are always there, and zero is no number.
    let numbered = Tick::Nanosecond.numbers() - 3;
    assert!(left.iter().all(|(_, _, shim, _)| shim.client > 0 && shim.loss == 3));
    assert_eq!(left.len() as u32, 2 * numbered);
    let lost = snapshot.total().dropped[DropReason::Loss as usize].packets;
    assert_eq!(lost, u64::from(2 * (clients - numbered)));
}

#[test]
fn packet_behind_three_tags_is_marked_in_dataplane() {
    let mut plan = losing(3, Way::Plain);
    let pipe = &mut plan.pipes[FORWARD];
    let target = Nanos::from_millis(1);
    pipe.queue.aqm = AqmPlan::CoDel(CoDelPlan { target, interval: target });
    (pipe.queue.ecn, pipe.offload.marks) = (true, true);
    let mut engine = engine(plan);
    let mut left = Vec::new();
    for number in 0..50 {
        let mut inner = frame(1_000, number);
        inner[15] = 0b10;
        inner[24..26].fill(0);
        let sum: u32 =
            inner[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        inner[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        let tags = [0x81, 0, 0, 7].repeat(2 + number as usize % 2);
        inner.splice(12..12, tags);
        engine.arrive(Instant::ZERO, FORWARD, &wrap(0, EPOCH, &inner));
    }
    let total = drain(&mut engine, &mut left).total();
    let (mut by_switch, mut here) = (0, 0);
    for (_, _, shim, inner) in &left {
        let behind_three = inner[20..22] == [0x81, 0];
        let at = if behind_three { 27 } else { 23 };
        let is_marked = inner[at] & 0b11 == 0b11;
        assert!(!shim.mark || !behind_three);
        assert!(!is_marked || behind_three);
        by_switch += u64::from(shim.mark);
        here += u64::from(is_marked);
    }
    assert!(by_switch > 0 && here > 0);
    assert_eq!(by_switch + here, total.marked.packets);
}
