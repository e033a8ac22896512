// SPDX-License-Identifier: Apache-2.0
//! Which addresses become clients, and what is left of those that expire.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::plan::Plan;
use emu::rules::Rules;
use emu::stats::{ClientStats, DropReason, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;

use crate::numbered::{arp_reply, resolve};

const IDLE: Nanos = Nanos::from_secs(10);
const CLIENTS: u32 = 4;

fn limits() -> Limits {
    Limits { idle: IDLE, ..Limits::copying(16 << 20, CLIENTS, 1514) }
}

/// A queue, losses and a delay of three seconds.
fn lossy() -> Plan {
    let mut plan = Plan::transparent();
    for pipe in &mut plan.pipes.0 {
        pipe.rate = BitRate::bps(2_000_000).into();
        pipe.packet_loss = Probability::new(0.3).into();
        pipe.delay.base = Nanos::from_secs(3);
    }
    plan
}

fn engine(plan: Plan) -> Engine {
    Engine::new(limits(), plan, Instant::ZERO).unwrap()
}

fn host(last: u8) -> Ipv4Addr {
    [10, 0, 0, last].into()
}

/// From and to a host.
fn frame(last: u8) -> Vec<u8> {
    let mut f = vec![0; 200];
    f[12..15].copy_from_slice(&[8, 0, 0x45]);
    f[16..18].copy_from_slice(&186_u16.to_be_bytes());
    f[26..30].copy_from_slice(&host(last).octets());
    f[30..34].copy_from_slice(&host(last).octets());
    f
}

fn second(s: u64) -> Instant {
    Instant::ZERO + Nanos::from_secs(s)
}

/// Lets time pass up to `until` second by second, as a run loop without traffic does.
fn rest(engine: &mut Engine, seconds: std::ops::RangeInclusive<u64>) {
    for now in seconds.map(second) {
        engine.release(now, usize::MAX, &mut |_: Departure<'_>| true);
        for _ in 0..engine.clients() {
            engine.keep_up(now);
        }
    }
}

fn accounts(engine: &mut Engine, at: Instant) -> Snapshot {
    let mut snapshot = Snapshot::default();
    engine.snapshot(at, false, &mut snapshot);
    assert!(snapshot.is_conserved(), "{snapshot:?}");
    snapshot
}

fn of(snapshot: &Snapshot, key: impl Into<Key>) -> Option<ClientStats> {
    let Key(key) = key.into();
    snapshot.clients.iter().find(|client| client.key == key).copied()
}

struct Key(ClientKey);

impl From<u8> for Key {
    fn from(last: u8) -> Self {
        Self(ClientKey::Ip(host(last).into()))
    }
}

impl From<ClientKey> for Key {
    fn from(key: ClientKey) -> Self {
        Self(key)
    }
}

#[test]
fn scan_from_wan_creates_no_clients() {
    let mut engine = engine(Plan::transparent());
    for last in 1..=40 {
        engine.arrive(second(1), Direction::Forward, &frame(last));
    }
    let snapshot = accounts(&mut engine, second(1));
    assert_eq!(snapshot.clients.len(), 2);
    assert_eq!(of(&snapshot, ClientKey::Default).unwrap().pipes.0[0].received.packets, 40);
    engine.arrive(second(2), Direction::Return, &frame(7));
    engine.arrive(second(2), Direction::Forward, &frame(7));
    let snapshot = accounts(&mut engine, second(2));
    let pipes = of(&snapshot, 7).unwrap().pipes;
    assert_eq!(pipes.0.map(|pipe| pipe.received.packets), [1, 1]);
    assert_eq!(snapshot.unplaced.0, [0, 0]);
}

#[test]
fn resolved_address_is_client_before_it_sends() {
    let mut engine = engine(Plan::transparent());
    resolve(&mut engine, second(1), [host(1)]);
    // From the other side it says nothing about clients.
    engine.arrive(second(1), Direction::Forward, &arp_reply(host(2)));
    for last in [1, 2] {
        engine.arrive(second(2), Direction::Forward, &frame(last));
    }
    let snapshot = accounts(&mut engine, second(2));
    assert_eq!(of(&snapshot, 1).unwrap().pipes.0[0].received.packets, 1);
    assert_eq!(of(&snapshot, 2), None);
}

#[test]
fn packets_of_clients_without_a_slot_are_counted_and_those_past_a_chosen_limit_are_not() {
    let play = |plan: Plan| {
        let mut engine = engine(plan);
        for last in 1..=6 {
            resolve(&mut engine, second(1), [host(last)]);
            engine.arrive(second(1), Direction::Return, &frame(last));
        }
        let snapshot = accounts(&mut engine, second(1));
        let shared = of(&snapshot, ClientKey::Default).unwrap().pipes.0[1].received.packets;
        (snapshot.clients.len() - 2, shared, snapshot.unplaced.0)
    };
    assert_eq!(play(Plan::transparent()), (4, 2, [0, 2]));
    let rules = |automatic, reserved| {
        let mut rules = Rules::default();
        (rules.automatic, rules.reserved) = (automatic, reserved);
        Plan { rules: Arc::new(rules), ..Plan::transparent() }
    };
    assert_eq!(play(rules(Some(1), 0)), (1, 5, [0, 0]));
    assert_eq!(play(rules(None, 3)), (1, 5, [0, 5]));
    assert_eq!(play(rules(Some(2), 3)), (1, 5, [0, 5]));
}

#[test]
fn idle_client_expires_and_accounts_are_kept() {
    let mut engine = engine(lossy());
    for _ in 0..100 {
        engine.arrive(second(1), Direction::Return, &frame(1));
        engine.arrive(second(1), Direction::Forward, &frame(1));
    }
    rest(&mut engine, 2..=10);
    let before = accounts(&mut engine, second(10));
    assert_eq!(of(&before, ClientKey::Expired), None);
    rest(&mut engine, 11..=13);
    let after = accounts(&mut engine, second(13));
    assert_eq!(of(&after, 1), None);
    let expired = of(&after, ClientKey::Expired).unwrap();
    assert_eq!(expired.pipes, of(&before, 1).unwrap().pipes);
    assert!(expired.pipes.0.iter().all(|p| p.dropped[DropReason::Loss as usize].packets > 0));
    assert_eq!(after.total(), before.total());
    assert_eq!(after.clients.last().unwrap().key, ClientKey::Expired);
    // The slot is another's: all four are there again, and then no more.
    for last in 11..=14 {
        engine.arrive(second(14), Direction::Return, &frame(last));
    }
    let full = accounts(&mut engine, second(14));
    assert!((11..=14).all(|last| of(&full, last).is_some()));
    assert_eq!(full.unplaced.0, [0, 0]);
    assert_eq!(full.total().received.packets, 204);
}

#[test]
fn client_with_frames_or_traffic_does_not_expire() {
    let mut plan = Plan::transparent();
    plan.pipes[Direction::Forward].delay.base = Nanos::from_secs(30);
    let mut engine = engine(plan);
    engine.arrive(second(1), Direction::Return, &frame(1));
    engine.arrive(second(1), Direction::Forward, &frame(1));
    rest(&mut engine, 2..=30);
    assert!(of(&accounts(&mut engine, second(30)), 1).is_some());
    rest(&mut engine, 31..=31);
    assert!(of(&accounts(&mut engine, second(31)), 1).is_none());
    engine.arrive(second(31), Direction::Return, &frame(2));
    for s in (35..=65).step_by(5) {
        engine.arrive(second(s), Direction::Forward, &frame(2));
        rest(&mut engine, s..=s + 4);
    }
    assert!(of(&accounts(&mut engine, second(69)), 2).is_some());
}

#[test]
fn no_client_expires_during_report_or_if_disabled() {
    let mut engine = engine(Plan::transparent());
    for last in 1..=3 {
        engine.arrive(second(1), Direction::Return, &frame(last));
    }
    let mut report = Snapshot::default();
    assert!(!engine.snapshot_some(second(2), 3, false, &mut report));
    rest(&mut engine, 3..=30);
    assert!(engine.snapshot_some(second(30), 3, false, &mut report));
    assert_eq!(report.clients.len(), 5);
    assert_eq!(report.total().received.packets, 3);
    rest(&mut engine, 31..=31);
    assert_eq!(accounts(&mut engine, second(31)).clients.len(), 3);
    let never = Limits { idle: Nanos::ZERO, ..limits() };
    let mut engine = Engine::new(never, Plan::transparent(), Instant::ZERO).unwrap();
    engine.arrive(second(1), Direction::Return, &frame(1));
    rest(&mut engine, 2..=1_000);
    assert!(of(&accounts(&mut engine, second(1_000)), 1).is_some());
}

#[test]
fn returning_client_has_new_losses_unless_restarted() {
    let fates = |first: u64, restart: bool| {
        let mut plan = Plan::transparent();
        plan.pipes[Direction::Return].packet_loss = Probability::new(0.5).into();
        let mut engine = engine(plan.clone());
        let mut fates = Vec::new();
        for begins in [first, first + 20] {
            let mut left = Vec::new();
            for i in 0..64 {
                engine.arrive(second(begins), Direction::Return, &frame(1));
                engine.release(second(begins), usize::MAX, &mut |_: Departure<'_>| {
                    left.push(i);
                    true
                });
            }
            fates.push(left);
            rest(&mut engine, begins..=begins + 19);
            assert_eq!(of(&accounts(&mut engine, second(begins + 19)), 1), None);
            if restart {
                engine.apply(second(begins + 19), plan.clone(), begins, true);
            }
        }
        fates
    };
    let on = fates(1, false);
    assert_ne!(on[0], on[1]);
    // Both are as the seed has them.
    assert_eq!(on, fates(1, false));
    let anew = fates(1, true);
    assert_eq!(anew[0], anew[1]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(Direction, u8),
    Resolve(u8),
    Rest(u64),
    Replan(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let direction = prop::sample::select(&Direction::BOTH[..]);
    prop_oneof![
        6 => (direction, 1_u8..9).prop_map(|(d, last)| Step::Arrive(d, last)),
        1 => (1_u8..9).prop_map(Step::Resolve),
        3 => (1_u64..15).prop_map(Step::Rest),
        1 => any::<bool>().prop_map(Step::Replan),
    ]
}

proptest! {
    #[test]
    fn accounts_balance_and_clients_are_bounded(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut engine = engine(lossy());
        let (mut now, mut arrived) = (1, 0);
        for (step, generation) in steps.into_iter().zip(1..) {
            match step {
                Step::Arrive(direction, last) => {
                    engine.arrive(second(now), direction, &frame(last));
                    arrived += 1;
                }
                Step::Resolve(last) => {
                    engine.arrive(second(now), Direction::Return, &arp_reply(host(last)));
                    arrived += 1;
                }
                Step::Rest(seconds) => {
                    for _ in 0..seconds {
                        now += 1;
                        engine.release(second(now), usize::MAX, &mut |_: Departure<'_>| true);
                        (0..engine.clients()).for_each(|_| engine.keep_up(second(now)));
                    }
                }
                Step::Replan(restart) => {
                    engine.apply(second(now), lossy(), generation, restart);
                }
            }
            let snapshot = accounts(&mut engine, second(now));
            let total = snapshot.total();
            prop_assert_eq!(total.received.packets, arrived);
            let keys: BTreeSet<_> = snapshot.clients.iter().map(|client| client.key).collect();
            prop_assert_eq!(keys.len(), snapshot.clients.len());
            let hosts = keys.iter().filter(|key| matches!(key, ClientKey::Ip(_))).count();
            prop_assert!(hosts <= CLIENTS as usize);
        }
        // When all have gone nothing is left of them but their accounts.
        rest(&mut engine, now + 1..=now + 40);
        let snapshot = accounts(&mut engine, second(now + 40));
        prop_assert!(snapshot.clients.iter().all(|c| !matches!(c.key, ClientKey::Ip(_))));
        prop_assert_eq!(snapshot.total().received.packets, arrived);
        prop_assert_eq!((snapshot.store_used, snapshot.total().held.packets), (0, 0));
    }
}

#[test]
fn client_with_traffic_stays_while_empty() {
    let mut engine = engine(Plan::transparent());
    for s in 1..=60 {
        // A frame each six seconds, of ten that it may be idle.
        if s % 6 == 1 {
            engine.arrive(second(s), Direction::Return, &frame(1));
        }
        rest(&mut engine, s..=s);
    }
    let stays = of(&accounts(&mut engine, second(60)), 1).unwrap();
    assert_eq!(stays.pipes[Direction::Return].received.packets, 10);
    rest(&mut engine, 61..=75);
    assert_eq!(of(&accounts(&mut engine, second(75)), 1), None);
}
