// SPDX-License-Identifier: Apache-2.0
//! Beams: who shares them, in which order, and when each frame leaves; against a model that
//! is as plain as can be.

mod model;

use std::net::Ipv4Addr;
use std::sync::Arc;

use self::model::{Model, Rate, Terms};
use crate::numbered::resolve;
use emu::aqm::AqmPlan;
use emu::aqm::codel::CoDelPlan;
use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::framing::Framing;
use emu::plan::Plan;
use emu::stats::{Count, DropReason, Snapshot};
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos};
use proptest::prelude::*;

const FORWARD: Direction = Direction::Forward;
const DELAY: Nanos = Nanos::from_millis(3);
const LONGEST: u32 = 1_514;

/// A frame for `client` that carries its number.
fn frame(client: u16, len: u32, number: u32) -> Vec<u8> {
    let mut f = vec![0; len as usize];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    let [high, low] = client.to_be_bytes();
    f[30..34].copy_from_slice(&[10, 0, high, low]);
    f[34..38].copy_from_slice(&number.to_be_bytes());
    f
}

fn key(client: u16) -> ClientKey {
    let [high, low] = client.to_be_bytes();
    ClientKey::Ip([10, 0, high, low].into())
}

fn bit_rate(rate: Rate) -> BitRate {
    rate.map_or(BitRate::Unlimited, BitRate::bps)
}

/// A beam of so much forward and no limit in return.
fn beam(rate: Rate) -> BeamPlan {
    let rate = ByDirection([bit_rate(rate), BitRate::Unlimited]);
    BeamPlan { name: "spot".into(), rate, framing: Framing::default() }
}

/// All clients share one beam of `rate` alike, each with `own` besides.
fn shared(own: Rate, rate: Rate) -> Plan {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = bit_rate(own).into();
    plan.pipes[FORWARD].queue.limit = 1 << 30;
    let automatic = Some(Share { beam: 0, weight: 1 });
    plan.beams = Arc::new(BeamsPlan { beams: vec![beam(rate)], automatic, ..BeamsPlan::default() });
    plan
}

/// Gives a client a weight of its own in the first beam.
fn weigh(plan: &mut Plan, client: u16, weight: u16) {
    Arc::make_mut(&mut plan.beams).shares.insert(key(client), Share { beam: 0, weight });
}

fn engine(plan: Plan, clients: u32) -> Engine {
    let limits = Limits::copying(256 << 20, clients, LONGEST);
    let mut engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
    let hosts = (0..clients).map(|client| Ipv4Addr::from_bits(0x0a00_0000 + client));
    resolve(&mut engine, Instant::ZERO, hosts);
    engine
}

/// What left: whose, its number, when it was due, and its length.
type Left = Vec<(ClientKey, u32, u64, usize)>;

fn release(engine: &mut Engine, now: Instant, budget: usize, left: &mut Left) -> usize {
    engine.release(now, budget, &mut |d: Departure<'_>| {
        assert!(d.due <= now, "early");
        let number = u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap());
        left.push((*d.client, number, d.due.0, d.bytes().len()));
        true
    })
}

fn drain(engine: &mut Engine, mut now: Instant, left: &mut Left) -> Instant {
    while let Some(next) = engine.next_deadline() {
        now = now.max(next);
        release(engine, now, 256, left);
    }
    now
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { client: u8, lens: Vec<u32> },
    Change { terms: Terms, restart: bool },
    Look(u8),
}

fn rate() -> impl Strategy<Value = Rate> {
    // Few rates, so that finishes of different clients often fall together.
    let usual = prop_oneof![Just(12_112_000_u64), Just(8_000_000), 100_000_u64..100_000_000];
    prop_oneof![1 => Just(None), 1 => Just(Some(0)), 8 => usual.prop_map(Some)]
}

/// Six clients by name; that of name 0 and 1 have no share of their own, but that of all.
fn terms() -> impl Strategy<Value = Terms> {
    let weight = || prop_oneof![Just(1_u64), Just(2), Just(3), Just(10), 1_u64..1_000];
    let share = move |beams: usize| prop::option::weighted(0.9, (0..beams, weight()));
    (rate(), prop::collection::vec(rate(), 1..4)).prop_flat_map(move |(rate, beams)| {
        let n = beams.len();
        (share(n), prop::collection::vec(share(n), 4)).prop_map(move |(automatic, own)| {
            let mut shares = vec![automatic; 2];
            shares.extend(own.iter().map(|s| s.or(automatic)));
            let least = |i| {
                let weights = shares.iter().flatten().filter(|(b, _)| *b == i).map(|(_, w)| *w);
                weights.min().unwrap_or(1)
            };
            Terms { rate, lightest: (0..n).map(least).collect(), beams: beams.clone(), shares }
        })
    })
}

fn plan_of(terms: &Terms, limit: u64) -> Plan {
    let mut plan = Plan::transparent();
    let p = &mut plan.pipes[FORWARD];
    p.rate = bit_rate(terms.rate).into();
    p.queue.limit = limit;
    p.delay.base = DELAY;
    let to_share =
        |(beam, weight): (usize, u64)| Share { beam: beam as u16, weight: weight as u16 };
    let automatic = terms.shares[0].map(to_share);
    let own = (2..6).filter_map(|i| Some((key(i), to_share(terms.shares[usize::from(i)]?))));
    let beams = terms.beams.iter().map(|r| beam(*r)).collect();
    plan.beams = Arc::new(BeamsPlan { beams, shares: own.collect(), automatic });
    assert_eq!(plan.beams.check(), Ok(()));
    plan
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let len = prop_oneof![Just(60_u32), Just(LONGEST), 60_u32..=LONGEST];
    let arrive = (0_u8..6, prop::collection::vec(len, 1..12))
        .prop_map(|(client, lens)| Step::Arrive { client, lens });
    let change =
        (terms(), any::<bool>()).prop_map(|(terms, restart)| Step::Change { terms, restart });
    let gap = prop_oneof![2 => Just(0), 2 => Just(1_000_000), 3 => 0_u64..100_000, 1 => 0_u64..30_000_000];
    let step = prop_oneof![12 => arrive, 1 => change, 4 => (0_u8..3).prop_map(Step::Look)];
    prop::collection::vec((gap, step), 1..150)
}

proptest! {
    #![proptest_config(crate::cases(400))]

    /// Every frame leaves when the model says, however the engine is looked at.
    #[test]
    fn departures_equal_model(
        first in terms(),
        steps in steps(),
        limit in prop_oneof![Just(1_u64 << 20), 3_000_u64..50_000],
        only_rates in any::<bool>(),
    ) {
        let mut model = Model::new(first.clone(), limit, u64::from(LONGEST));
        let mut engines = [(); 2].map(|()| engine(plan_of(&first, limit), 6));
        let mut left = [Left::new(), Left::new()];
        let mut snapshot = Snapshot::default();
        let (mut now, mut number, mut dropped) = (0, 0, 0);
        for (gap, step) in steps {
            now += gap;
            let at = Instant(now);
            match step {
                Step::Arrive { client, lens } => {
                    for len in lens {
                        number += 1;
                        dropped += u64::from(!model.arrive(now, client, number, len));
                        for e in &mut engines {
                            e.arrive(at, FORWARD, &frame(client.into(), len, number));
                        }
                    }
                }
                Step::Change { mut terms, restart } => {
                    if only_rates {
                        // Beams that have a limit keep one.
                        let n = first.beams.len();
                        terms.beams.resize(n, Some(1_000_000));
                        for (rate, before) in terms.beams.iter_mut().zip(&first.beams) {
                            *rate = before.and(Some(rate.unwrap_or(2_000_000)));
                        }
                        (terms.shares, terms.lightest) = (first.shares.clone(), first.lightest.clone());
                    }
                    for e in &mut engines {
                        e.apply(at, plan_of(&terms, limit), 1, restart);
                    }
                    model.change(now, terms);
                }
                Step::Look(0) => _ = release(&mut engines[1], at, 20, &mut left[1]),
                Step::Look(1) => engines[1].keep_up(at),
                Step::Look(_) => {
                    engines[1].snapshot(at, false, &mut snapshot);
                    prop_assert!(snapshot.is_conserved());
                }
            }
        }
        // Everything is let out.
        let open = Terms { rate: None, beams: vec![], shares: vec![None; 6], lightest: vec![] };
        for e in &mut engines {
            e.apply(Instant(now), plan_of(&open, limit), 2, false);
        }
        model.change(now, open);
        model.run(now);
        let mut expected: Vec<_> =
            model.left.iter().map(|(c, n, at)| (key((*c).into()), *n, *at + DELAY.0)).collect();
        expected.sort_by_key(|(client, ..)| *client);
        for (e, left) in engines.iter_mut().zip(&mut left) {
            let end = drain(e, Instant(now), left);
            left.sort_by_key(|(client, ..)| *client);
            let left: Vec<_> = left.iter().map(|(c, n, due, _)| (*c, *n, *due)).collect();
            prop_assert_eq!(&left, &expected);
            e.snapshot(end, false, &mut snapshot);
            prop_assert!(snapshot.is_conserved());
            let total = snapshot.total();
            prop_assert_eq!(total.dropped[DropReason::Limit as usize].packets, dropped);
            prop_assert_eq!(total.dropped_total().packets, dropped);
            prop_assert_eq!((total.held, snapshot.store_used), (Count::default(), 0));
        }
    }

    /// While all of them have frames waiting, what clients got by weight differs by at most
    /// the quantum of weight one and the longest frame of each (the bound of `emu::beam`).
    #[test]
    fn shares_follow_weights_to_a_quantum(
        clients in prop::collection::vec((1_u16..=1_000, 60_u32..=LONGEST), 2..8),
        bps in 1_000_000_u64..1_000_000_000,
    ) {
        let mut plan = shared(None, Some(bps));
        for (i, (weight, _)) in clients.iter().enumerate() {
            weigh(&mut plan, i as u16, *weight);
        }
        // The client of weight one is among the plan's, though it sends nothing.
        let quantum = f64::from(LONGEST);
        let mut engine = engine(plan, 8);
        // Each has frames for as long as the heaviest gets three quanta.
        let heaviest = clients.iter().map(|c| c.0).max().unwrap();
        for (i, (weight, len)) in clients.iter().enumerate() {
            let bytes = 4 * LONGEST * u32::from(*weight);
            for n in 0..=bytes / len {
                engine.arrive(Instant::ZERO, FORWARD, &frame(i as u16, *len, n));
            }
        }
        let (mut left, _) = (Left::new(), heaviest);
        drain(&mut engine, Instant::ZERO, &mut left);
        left.sort_by_key(|(.., due, _)| *due);
        let mut got = vec![0.0_f64; clients.len()];
        let mut rest: Vec<u32> =
            clients.iter().map(|(w, len)| 4 * LONGEST * u32::from(*w) / len + 1).collect();
        for (client, _, _, len) in left {
            let i = (0..clients.len()).find(|i| key(*i as u16) == client).unwrap();
            got[i] += len as f64;
            rest[i] -= 1;
            if rest[i] == 0 {
                break;
            }
            for (a, (wa, la)) in got.iter().zip(&clients) {
                for (b, (wb, lb)) in got.iter().zip(&clients) {
                    let (wa, wb) = (f64::from(*wa), f64::from(*wb));
                    let bound = quantum + f64::from(*la) / wa + f64::from(*lb) / wb;
                    prop_assert!(a / wa - b / wb <= bound + 1e-6, "{a} {wa} {b} {wb}");
                }
            }
        }
        // Somebody got something.
        prop_assert!(got.iter().any(|b| *b > quantum));
    }
}

/// A frame's time at a rate, rounded up.
fn service(len: u32, bps: u64) -> u64 {
    (u64::from(len) * 8 * 1_000_000_000).div_ceil(bps)
}

#[test]
fn beam_with_spare_capacity_adds_only_serialization_time() {
    let (own, rate) = (1_000_000, 100_000_000);
    let plan = shared(Some(own), Some(rate));
    let mut alone = plan.clone();
    alone.beams = Arc::default();
    let mut engines = [engine(plan, 4), engine(alone, 4)];
    let mut left = [Left::new(), Left::new()];
    for (e, left) in engines.iter_mut().zip(&mut left) {
        // A client of 1 Mbit/s has a frame of 60 bytes each 480 µs; two of them, so far apart
        // that they do not meet, fill 1/50 of the beam.
        for n in 0..200_u32 {
            e.arrive(Instant(0), FORWARD, &frame(1, 60, n));
        }
        for n in 0..200_u32 {
            e.arrive(Instant(200_000), FORWARD, &frame(2, 60, n));
        }
        drain(e, Instant(200_000), left);
    }
    let [with, without] = left;
    assert_eq!(with.len(), 400);
    for (a, b) in with.iter().zip(&without) {
        assert_eq!((a.0, a.1, a.2), (b.0, b.1, b.2 + service(60, rate)));
    }
}

#[test]
fn beam_that_is_down_holds_frames_and_resumes() {
    let mut plan = shared(None, Some(0));
    plan.pipes[FORWARD].queue.limit = 10_000;
    let mut e = engine(plan.clone(), 4);
    for n in 0..20_u32 {
        for client in 0..2 {
            e.arrive(Instant(u64::from(n)), FORWARD, &frame(client, 1_000, n));
        }
    }
    let mut snapshot = Snapshot::default();
    e.snapshot(Instant(1_000), false, &mut snapshot);
    let total = snapshot.total();
    // A client without a limit of its own has a queue.
    assert_eq!((total.queue.packets, total.queue.bytes), (20, 20_000));
    assert_eq!(total.dropped[DropReason::Limit as usize].packets, 20);
    let mut left = Left::new();
    drain(&mut e, Instant(1_000), &mut left);
    assert_eq!(left, []);
    // Up for half a frame, down, and up again.
    let at = |us: u64| Instant(us * 1_000);
    for (us, bps) in [(10, 8_000_000), (510, 0), (9_000, 8_000_000)] {
        Arc::make_mut(&mut plan.beams).beams[0] = beam(Some(bps));
        e.apply(at(us), plan.clone(), 1, false);
    }
    drain(&mut e, at(9_000), &mut left);
    let dues: Vec<u64> = left.iter().map(|l| l.2).collect();
    let expected: Vec<u64> = (0..20).map(|n| 9_500_000 + n * 1_000_000).collect();
    assert_eq!(dues, expected);
}

#[test]
fn ten_thousand_clients_share_a_beam_equally() {
    let n = 10_000_u16;
    let bps = 1_000_000_000;
    let mut e = engine(shared(Some(10_000_000), Some(bps)), n.into());
    for round in 0..3 {
        for client in 0..n {
            e.arrive(Instant(u64::from(client)), FORWARD, &frame(client, 1_000, round));
        }
    }
    let mut left = Left::new();
    drain(&mut e, Instant(10_000), &mut left);
    assert_eq!(left.len(), 3 * usize::from(n));
    left.sort_by_key(|l| l.2);
    // The first comes after its own shaper, and from then on the beam is never idle.
    for (i, l) in left.iter().enumerate() {
        assert_eq!(l.2, 800_000 + service(1_000, bps) * (i as u64 + 1));
    }
    // With equal frames and a quantum of less than two, nobody is ahead by more than two.
    let mut got = vec![0_u32; usize::from(n)];
    for (i, l) in left.iter().enumerate() {
        let ClientKey::Ip(std::net::IpAddr::V4(a)) = l.0 else { panic!() };
        let client = a.to_bits() as u16;
        got[usize::from(client)] += 1;
        let round = i / usize::from(n);
        assert!(got[usize::from(client)] as usize <= round + 2, "{client} at {i}");
    }
    assert!(got.iter().all(|g| *g == 3));
}

#[test]
fn lagging_beam_continues_in_next_turn() {
    let bps = 10_000_000_000;
    let mut e = engine(shared(None, Some(bps)), 100);
    let n = 20_000_u32;
    for i in 0..n {
        e.arrive(Instant(0), FORWARD, &frame((i % 100) as u16, 60, i));
    }
    // All of it is over by now, and a turn does not do all of it.
    let now = Instant(service(60, bps) * u64::from(n));
    let mut left = Left::new();
    let mut turns = 0;
    while e.next_deadline().is_some() {
        let before = left.len();
        release(&mut e, now, usize::MAX, &mut left);
        assert!(left.len() - before <= 2_048, "{}", left.len() - before);
        turns += 1;
    }
    assert!(turns >= n / 2_048, "{turns}");
    left.sort_by_key(|l| l.2);
    for (i, l) in left.iter().enumerate() {
        assert_eq!(l.2, service(60, bps) * (i as u64 + 1));
    }
}

/// The median wait of a client that sends twice what the link takes, with CoDel, over the
/// second half of ten seconds; and what share of the link's rate it got.
fn with_codel(own: Rate, rate: Rate, bottleneck: u64) -> (Nanos, f64) {
    let mut plan = shared(own, rate);
    let (target, interval) = (Nanos::from_millis(5), Nanos::from_millis(100));
    plan.pipes[FORWARD].queue.aqm = AqmPlan::CoDel(CoDelPlan { target, interval });
    plan.pipes[FORWARD].queue.limit = 10_000_000;
    let mut e = engine(plan, 4);
    let gap = service(1_000, 2 * bottleneck);
    let mut arrivals = Vec::new();
    let (mut left, mut now) = (Left::new(), 0);
    while now < 20_000_000_000 {
        now += gap;
        e.arrive(Instant(now), FORWARD, &frame(1, 1_000, arrivals.len() as u32));
        arrivals.push(now);
        release(&mut e, Instant(now), 256, &mut left);
    }
    let second = &left[left.len() / 2..];
    let mut waits: Vec<u64> = second.iter().map(|l| l.2 - arrivals[l.1 as usize]).collect();
    waits.sort_unstable();
    let took = second.last().unwrap().2 - second[0].2;
    let got = second.len() as f64 * 8_000.0 / (took as f64 / 1e9) / bottleneck as f64;
    (Nanos(waits[waits.len() / 2]), got)
}

/// CoDel stands where its client's queue is. Before the beam it must, or the wait would grow
/// to the queue's limit; before the shaper it must, or what it drops would have had its time
/// there.
#[test]
fn codel_works_before_the_shaper_and_before_the_beam() {
    let (slow, fast) = (8_000_000, 100_000_000);
    let (alone, got) = with_codel(Some(slow), None, slow);
    assert!(got > 0.99, "{got}");
    let limit = Nanos(service(10_000_000, slow));
    assert!(alone.0 < limit.0 / 2, "{alone:?}");
    for (own, rate) in [(Some(slow), Some(fast)), (None, Some(slow)), (Some(fast), Some(slow))] {
        let (wait, got) = with_codel(own, rate, slow);
        assert!(got > 0.95, "{own:?} {rate:?}: {got}");
        assert!(wait.0 <= 2 * alone.0, "{own:?} {rate:?}: {wait:?}, alone {alone:?}");
    }
}
