// SPDX-License-Identifier: Apache-2.0
//! An MTU in a whole engine: drops, answers on their way back, accounts.

use std::collections::BTreeMap;

use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Label;
use emu::mtu::{AnswerPlan, MtuPlan};
use emu::plan::Plan;
use emu::stats::{Count, DropReason, PipeStats, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos};
use etherparse::PacketBuilder;

const LIMITS: Limits = Limits::copying(8 << 20, 8, 9_500);
const LIMIT: u16 = 1_400;
const RATE: u32 = 100;

/// Both directions have an MTU, a rate and a delay.
fn plan(answers: Option<AnswerPlan>) -> Plan {
    let mut plan = Plan::transparent();
    for pipe in &mut plan.pipes.0 {
        pipe.rate = BitRate::bps(100_000_000).into();
        pipe.delay.base = Nanos::from_millis(50);
        pipe.mtu = Some(MtuPlan { limit: LIMIT, answers });
    }
    plan
}

const ANSWERS: AnswerPlan = AnswerPlan { v4: None, v6: None, rate: RATE };

/// A packet of `len` bytes of a client and a host, in a direction.
fn packet(direction: Direction, client: u8, len: usize) -> Vec<u8> {
    let (client, host) = ([10, 0, 0, client], [10, 9, 0, 1]);
    let (from, to) = match direction {
        Direction::Forward => (host, client),
        Direction::Return => (client, host),
    };
    let mut f = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64).udp(1, 2);
    builder.write(&mut f, &vec![7; len - 28]).unwrap();
    f
}

type Left = Vec<(Direction, ClientKey, Instant, Vec<u8>)>;

fn release(engine: &mut Engine, now: Instant, left: &mut Left) {
    engine.release(now, usize::MAX, &mut |d: Departure<'_>| {
        left.push((d.direction, *d.client, d.due, d.bytes().to_vec()));
        true
    });
}

fn pipe(snapshot: &Snapshot, key: ClientKey, direction: Direction) -> PipeStats {
    snapshot.clients.iter().find(|c| c.key == key).map(|c| c.pipes[direction]).unwrap()
}

fn key(client: u8) -> ClientKey {
    ClientKey::Ip([10, 0, 0, client].into())
}

#[test]
fn answer_leaves_at_once_by_port_of_packet() {
    for direction in Direction::BOTH {
        let mut engine = Engine::new(LIMITS, plan(Some(ANSWERS)), Instant::ZERO).unwrap();
        let now = Instant::ZERO + Nanos::from_millis(3);
        // Makes the client.
        engine.arrive(now, Direction::Return, &packet(Direction::Return, 1, 100));
        engine.arrive(now, direction, &packet(direction, 1, LIMIT.into()));
        let long = packet(direction, 1, usize::from(LIMIT) + 1);
        engine.arrive(now, direction, &long);
        let mut left = Left::new();
        release(&mut engine, now, &mut left);
        let [(way, client, due, answer)] = &left[..] else { panic!("{left:?}") };
        let back = direction.opposite();
        assert_eq!((*way, *client, *due), (back, ClientKey::Bypass, now));
        assert_eq!(answer[34..36], [3, 4]);
        let mut snapshot = Snapshot::default();
        engine.snapshot(now, false, &mut snapshot);
        assert!(snapshot.is_conserved());
        let bytes = |frame: &[u8]| Count { packets: 1, bytes: frame.len() as u64 };
        let at_client = pipe(&snapshot, key(1), direction);
        assert_eq!(at_client.dropped[DropReason::Mtu as usize], bytes(&long));
        assert_eq!(at_client.generated, Count::default());
        let at_bypass = pipe(&snapshot, ClientKey::Bypass, back);
        assert_eq!((at_bypass.generated, at_bypass.sent), (bytes(answer), bytes(answer)));
        assert_eq!(at_bypass.received, Count::default());
        // The packet of the MTU's length leaves in its time.
        release(&mut engine, now + Nanos::from_secs(1), &mut left);
        let (.., frame) = left.last().unwrap();
        assert_eq!(frame.len(), 14 + usize::from(LIMIT));
    }
}

#[test]
fn silent_mtu_drops_without_answer() {
    let mut engine = Engine::new(LIMITS, plan(None), Instant::ZERO).unwrap();
    engine.arrive(Instant::ZERO, Direction::Return, &packet(Direction::Return, 1, 1_500));
    let mut left = Left::new();
    release(&mut engine, Instant::ZERO + Nanos::from_secs(1), &mut left);
    assert!(left.is_empty(), "{left:?}");
    let mut snapshot = Snapshot::default();
    engine.snapshot(Instant::ZERO, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    assert_eq!(snapshot.total().dropped[DropReason::Mtu as usize].packets, 1);
    assert_eq!(snapshot.total().generated, Count::default());
}

/// A tag is of a switch, which would need another one on the answer.
#[test]
fn frame_with_tag_is_dropped_without_answer() {
    let mut engine = Engine::<Vec<u8>>::new(LIMITS, plan(Some(ANSWERS)), Instant::ZERO).unwrap();
    let (direction, frame) = (Direction::Return, packet(Direction::Return, 1, 1_500));
    let label = Label { tag: &[7; 32], ..Label::NONE };
    engine.arrive_labelled(Instant::ZERO, direction, &frame, label);
    let mut snapshot = Snapshot::default();
    engine.snapshot(Instant::ZERO, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    assert_eq!(snapshot.total().dropped[DropReason::Mtu as usize].packets, 1);
    assert_eq!(snapshot.total().generated, Count::default());
}

#[test]
fn change_of_plan_sets_and_removes_mtu() {
    let mut engine = Engine::<Vec<u8>>::new(LIMITS, Plan::transparent(), Instant::ZERO).unwrap();
    let mut dropped = |at: u64, plan: Option<Plan>| {
        let now = Instant::ZERO + Nanos::from_millis(at);
        if let Some(plan) = plan {
            engine.apply(now, plan, at, false);
        }
        engine.arrive(now, Direction::Return, &packet(Direction::Return, 1, 1_500));
        let mut snapshot = Snapshot::default();
        engine.snapshot(now, false, &mut snapshot);
        assert!(snapshot.is_conserved());
        let total = snapshot.total();
        (total.dropped[DropReason::Mtu as usize].packets, total.generated.packets)
    };
    assert_eq!(dropped(1, None), (0, 0));
    assert_eq!(dropped(2, Some(plan(Some(ANSWERS)))), (1, 1));
    assert_eq!(dropped(3, Some(plan(None))), (2, 1));
    assert_eq!(dropped(4, Some(Plan::transparent())), (2, 1));
}

/// A duplicating pipe drops and answers a packet above the MTU once.
#[test]
fn packet_above_mtu_is_not_duplicated() {
    let mut plan = plan(Some(ANSWERS));
    plan.pipes[Direction::Return].duplicate = emu::units::Probability::ONE;
    let mut engine = Engine::<Vec<u8>>::new(LIMITS, plan, Instant::ZERO).unwrap();
    engine.arrive(Instant::ZERO, Direction::Return, &packet(Direction::Return, 1, 1_500));
    let mut snapshot = Snapshot::default();
    engine.snapshot(Instant::ZERO, false, &mut snapshot);
    let total = snapshot.total();
    assert_eq!((total.duplicated.packets, total.generated.packets), (0, 1));
}

/// Answers by client, with their times.
fn answers(only: impl Fn(u8) -> bool) -> BTreeMap<[u8; 4], Vec<Instant>> {
    let mut engine = Engine::new(LIMITS, plan(Some(ANSWERS)), Instant::ZERO).unwrap();
    let mut left = Left::new();
    for n in 0..4_000_u64 {
        // At twice the rate limit per client, of which some packets fit.
        let now = Instant::ZERO + Nanos::from_micros(n * 1_250);
        let client = (n % 4) as u8;
        let len = if n % 3 == 0 { 600 } else { 1_500 };
        if only(client) {
            engine.arrive(now, Direction::Return, &packet(Direction::Return, client, len));
        }
        release(&mut engine, now, &mut left);
    }
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for (_, _, due, frame) in left.into_iter().filter(|(_, key, ..)| *key == ClientKey::Bypass) {
        let to: [u8; 4] = frame[30..34].try_into().unwrap();
        all.entry(to).or_default().push(due);
    }
    all
}

/// So the answers are the same on any number of workers.
#[test]
fn answers_do_not_depend_on_other_clients() {
    let together = answers(|_| true);
    assert_eq!(together.len(), 4);
    // 50 at once, then 100/s for 5 s.
    for answers in together.values() {
        assert!((540..=551).contains(&answers.len()), "{}", answers.len());
    }
    let mut apart = BTreeMap::new();
    for client in 0..4 {
        apart.extend(answers(|c| c == client));
    }
    assert_eq!(together, apart);
}
