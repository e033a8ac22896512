// SPDX-License-Identifier: Apache-2.0
//! Clients on hold, and their move from one engine to another.

use std::net::Ipv4Addr;

use emu::aqm::codel::CoDelPlan;
use emu::aqm::{AqmPlan, QueuePlan};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Hold, HoldError, Limits};
use emu::plan::Plan;
use emu::stats::Snapshot;
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos};
use proptest::prelude::*;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const KEY: ClientKey = ClientKey::Ip(std::net::IpAddr::V4(CLIENT));
const FORWARD: Direction = Direction::Forward;
const NONE: ByDirection<Instant> = ByDirection([Instant::ZERO; 2]);

fn ms(n: u64) -> Instant {
    Instant(n * 1_000_000)
}

fn engine(plan: Plan) -> Engine {
    Engine::new(Limits::copying(16 << 20, 4, 1514), plan, Instant::ZERO).unwrap()
}

fn plan(rate: BitRate) -> Plan {
    let mut plan = Plan::transparent();
    for pipe in &mut plan.pipes.0 {
        pipe.rate = rate.into();
        pipe.delay.base = Nanos::from_millis(30);
    }
    plan
}

/// A frame of the client with a number, of 1000 bytes.
fn frame(number: u32) -> Vec<u8> {
    let mut f = vec![0; 1000];
    f[12..15].copy_from_slice(&[8, 0, 0x45]);
    f[16..18].copy_from_slice(&986_u16.to_be_bytes());
    f[26..30].copy_from_slice(&CLIENT.octets());
    f[30..34].copy_from_slice(&CLIENT.octets());
    f[34..38].copy_from_slice(&number.to_be_bytes());
    f
}

/// Number and due time of each frame that left.
type Left = Vec<(u32, Instant)>;

fn release(engine: &mut Engine, now: Instant, left: &mut Left) {
    engine.release(now, usize::MAX, &mut |d: Departure<'_>| {
        left.push((u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap()), d.due));
        true
    });
}

fn total(engine: &mut Engine, at: Instant) -> Snapshot {
    let mut snapshot = Snapshot::default();
    engine.snapshot(at, false, &mut snapshot);
    assert!(snapshot.is_conserved(), "{snapshot:?}");
    snapshot
}

fn look(engine: &mut Engine, now: Instant) -> emu::pipe::Look {
    engine.visit(now, KEY, Hold::Keep).unwrap()[FORWARD]
}

#[test]
fn held_frames_wait_and_then_leave_at_the_rate() {
    // A frame takes 8 ms.
    for rate in [BitRate::bps(1_000_000), BitRate::Unlimited] {
        let (mut engine, mut left) = (engine(plan(rate)), Left::new());
        engine.visit(ms(1), KEY, Hold::Begin(Nanos::from_secs(5))).unwrap();
        for number in 0..3 {
            engine.arrive(ms(10 + u64::from(number)), FORWARD, &frame(number));
        }
        release(&mut engine, ms(900), &mut left);
        let now = look(&mut engine, ms(900));
        assert_eq!((left.len(), now.received, now.queued, now.held), (0, 3, 3, 3));
        // A change of plan does not end it.
        engine.apply(ms(900), plan(rate), 2, true);
        engine.apply(ms(901), plan(BitRate::Unlimited), 3, false);
        engine.apply(ms(902), plan(rate), 4, false);
        release(&mut engine, ms(950), &mut left);
        assert!(left.is_empty());
        let due = ByDirection([ms(1_042), Instant::ZERO]);
        engine.visit(ms(1_000), KEY, Hold::End(due)).unwrap();
        release(&mut engine, ms(2_000), &mut left);
        let expected = match rate {
            BitRate::Unlimited => [1_042, 1_042, 1_042],
            _ => [1_042, 1_046, 1_054],
        };
        let expected: Left = (0..).zip(expected.map(ms)).collect();
        assert_eq!(left, expected);
        assert_eq!(total(&mut engine, ms(2_000)).total().sent.packets, 3);
        // The pipe goes on as always.
        engine.arrive(ms(3_000), FORWARD, &frame(3));
        release(&mut engine, ms(4_000), &mut left);
        let last = if rate == BitRate::Unlimited { 3_030 } else { 3_038 };
        assert_eq!(left.last(), Some(&(3, ms(last))));
    }
}

#[test]
fn hold_ends_by_itself() {
    let (mut engine, mut left) = (engine(plan(BitRate::bps(1_000_000))), Left::new());
    engine.visit(ms(1), KEY, Hold::Begin(Nanos::from_millis(500))).unwrap();
    engine.arrive(ms(10), FORWARD, &frame(0));
    for now in [400, 600] {
        for _ in 0..engine.clients() {
            engine.keep_up(ms(now));
        }
        release(&mut engine, ms(now + 100), &mut left);
        assert_eq!(left.len(), usize::from(now > 500), "at {now} ms");
    }
    assert_eq!(left, [(0, ms(638))]);
}

#[test]
fn frame_in_service_is_continued() {
    let (mut engine, mut left) = (engine(plan(BitRate::bps(1_000_000))), Left::new());
    engine.visit(ms(0), KEY, Hold::Begin(Nanos::from_millis(1))).unwrap();
    engine.visit(ms(0), KEY, Hold::End(NONE)).unwrap();
    engine.arrive(ms(10), FORWARD, &frame(0));
    // Three of its eight milliseconds are over.
    engine.visit(ms(13), KEY, Hold::Begin(Nanos::from_secs(5))).unwrap();
    engine.visit(ms(100), KEY, Hold::End(NONE)).unwrap();
    release(&mut engine, ms(1_000), &mut left);
    assert_eq!(left, [(0, ms(135))]);
}

#[test]
fn only_clients_with_a_slot_can_be_on_hold() {
    let mut engine = engine(plan(BitRate::Unlimited));
    let begin = Hold::Begin(Nanos::from_secs(1));
    for key in [ClientKey::Bypass, ClientKey::Default] {
        assert_eq!(engine.visit(ms(1), key, begin), Err(HoldError::Fixed(key)));
    }
    let key = |last: u8| ClientKey::Ip([10, 0, 1, last].into());
    for last in 0..4 {
        engine.visit(ms(1), key(last), begin).unwrap();
    }
    assert_eq!(engine.visit(ms(1), key(4), begin), Err(HoldError::NoSlot(key(4))));
    let none = engine.visit(ms(1), key(4), Hold::Keep).unwrap();
    assert_eq!(none, engine.visit(ms(1), key(5), Hold::End(NONE)).unwrap());
    assert_eq!(none[FORWARD], emu::pipe::Look::default());
}

/// A link with a tenth of a second of queue, and an AQM or none.
fn queued(codel: bool, unlimited: bool) -> Plan {
    let mut plan = plan(if unlimited { BitRate::Unlimited } else { BitRate::bps(8_000_000) });
    let aqm = if codel {
        AqmPlan::CoDel(CoDelPlan {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
        })
    } else {
        AqmPlan::TailDrop
    };
    for pipe in &mut plan.pipes.0 {
        pipe.queue = QueuePlan { limit: 1 << 20, aqm, ecn: false };
    }
    plan
}

proptest! {
    /// The client moves to another engine while its queue is long. Polled at any distance, no frame
    /// is lost or overtakes another, and each is late by the distance at most.
    #[test]
    fn client_moves_without_loss_or_reordering(
        unlimited: bool,
        gaps in prop::collection::vec(0..2_000_000_u64, 200),
        moves in 20..180_usize,
        poll in 1..20_u64,
    ) {
        let plan = || queued(false, unlimited);
        let (mut one, mut from, mut to) = (engine(plan()), engine(plan()), engine(plan()));
        // The first frame of the client side makes it a client.
        for engine in [&mut one, &mut from] {
            engine.arrive(Instant::ZERO, Direction::Return, &frame(1_000));
        }
        let (mut single, mut moved) = (Left::new(), Left::new());
        let mut arrivals = Vec::new();
        let mut at = ms(1);
        for (number, gap) in (0..).zip(&gaps) {
            at = at + Nanos(*gap);
            arrivals.push((number, at));
        }
        let flip = arrivals[moves].1;
        for (number, at) in &arrivals {
            one.arrive(*at, FORWARD, &frame(*number));
        }
        let begin = Hold::Begin(Nanos::from_secs(20));
        for (number, at) in &arrivals[..moves] {
            from.arrive(*at, FORWARD, &frame(*number));
        }
        to.visit(flip, KEY, begin).unwrap();
        let mut rest = arrivals[moves..].iter().peekable();
        let mut ended = None;
        let mut now = flip;
        while ended.is_none() || now < ms(2_000) {
            now = now + Nanos::from_millis(poll);
            while let Some((number, at)) = rest.next_if(|(_, at)| *at <= now) {
                to.arrive(*at, FORWARD, &frame(*number));
            }
            let looks = from.visit(now, KEY, Hold::Keep).unwrap();
            if ended.is_none() && looks.0.iter().all(|look| look.queued == 0) {
                let due = ByDirection(looks.0.map(|look| look.last_due));
                to.visit(now, KEY, Hold::End(due)).unwrap();
                ended = Some(now);
            }
        }
        release(&mut one, ms(4_000), &mut single);
        release(&mut from, ms(4_000), &mut moved);
        prop_assert_eq!(total(&mut from, ms(4_000)).total().held.packets, 0);
        release(&mut to, ms(4_000), &mut moved);
        prop_assert_eq!(total(&mut to, ms(4_000)).total().held.packets, 0);
        prop_assert_eq!(single.len(), moved.len());
        let mut last = Instant::ZERO;
        for ((number, due), (same, other)) in single.iter().zip(&moved) {
            prop_assert_eq!(number, same);
            prop_assert!(due <= other && last <= *other, "{number}: {due:?} {other:?}");
            prop_assert!(other.since(*due) <= Nanos::from_millis(poll), "{due:?} {other:?}");
            last = *other;
        }
    }
}

#[test]
fn aqm_that_drops_from_the_head_acts_after_a_hold() {
    let (mut engine, mut left) = (engine(queued(true, false)), Left::new());
    engine.visit(ms(1), KEY, Hold::Begin(Nanos::from_secs(5))).unwrap();
    for number in 0..500 {
        engine.arrive(ms(10), FORWARD, &frame(number));
    }
    release(&mut engine, ms(400), &mut left);
    assert_eq!(total(&mut engine, ms(400)).total().held.packets, 500);
    engine.visit(ms(400), KEY, Hold::End(NONE)).unwrap();
    release(&mut engine, ms(9_000), &mut left);
    let total = total(&mut engine, ms(9_000)).total();
    let dropped = total.dropped_total().packets;
    assert!(dropped > 0 && total.held.packets == 0, "{total:?}");
    assert_eq!(left.len() as u64 + dropped, 500);
    assert!(left.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
}
