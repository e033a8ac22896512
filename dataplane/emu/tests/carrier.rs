// SPDX-License-Identifier: Apache-2.0
//! Terminals that share a carrier: what each is assigned, against arithmetic.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::sync::Arc;

use emu::access::{AccessPlan, OthersPlan, RateRequests};
use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::framing::Framing;
use emu::plan::Plan;
use emu::shaper::RatePlan;
use emu::stats::Snapshot;
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos};
use proptest::prelude::*;

use crate::access::{SUPERFRAME, millis, terminal};
use crate::arbitrary::cases;
use crate::numbered::{frame as frame_of_host, resolve};

const RETURN: Direction = Direction::Return;
/// Of [`terminal`], in bytes.
const BURST: u64 = 100;

/// Asks for a rate of its arrivals and for what waits within a second.
fn with_rate(access: AccessPlan) -> AccessPlan {
    let rate = RateRequests {
        max: access.peak,
        timeout: Nanos::from_millis(1_000),
        gain: 1 << 16,
        drain: Nanos::from_millis(1_000),
        decay: Nanos::ZERO,
    };
    AccessPlan { volume: None, rate: Some(rate), ..access }
}

fn key(client: u16) -> ClientKey {
    let [high, low] = client.to_be_bytes();
    ClientKey::Ip([10, 0, high, low].into())
}

/// A frame from a client that carries a number.
fn frame(client: u16, len: u16, number: u32) -> Vec<u8> {
    let mut f = frame_of_host(len, number);
    f[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    f[28..30].copy_from_slice(&client.to_be_bytes());
    f
}

/// All clients share a carrier of so many bursts per superframe, with equal weights.
fn plan(access: AccessPlan, bursts: u64) -> Plan {
    let mut plan = Plan::transparent();
    plan.pipes[RETURN].rate = RatePlan::Access(access);
    plan.pipes[RETURN].queue.limit = 200_000;
    let bps = bursts * BURST * 8 * 1_000_000_000 / SUPERFRAME.0;
    let rate = ByDirection([BitRate::Unlimited, BitRate::bps(bps)]);
    let beam = BeamPlan { name: String::new(), rate, framing: Framing::default() };
    let automatic = Some(Share { beam: 0, weight: 1 });
    plan.beams = Arc::new(BeamsPlan { beams: vec![beam], automatic, ..BeamsPlan::default() });
    plan
}

fn engine(plan: Plan, clients: u16) -> Engine {
    let limits = Limits::copying(256 << 20, clients.into(), 1_514);
    let mut engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
    let hosts = (1..=clients).map(|client| Ipv4Addr::from_bits(0x0a00_0000 + u32::from(client)));
    resolve(&mut engine, Instant::ZERO, hosts);
    engine
}

/// Releases frames at each deadline until `end`. Returns the client, the due time and the bytes of each.
fn released(engine: &mut Engine, end: Instant) -> Vec<(ClientKey, Instant, u64)> {
    let mut left = Vec::new();
    while let Some(at) = engine.next_deadline().filter(|at| *at <= end) {
        engine.release(at, usize::MAX, &mut |d: Departure<'_>| {
            left.push((*d.client, d.due, d.bytes().len() as u64));
            true
        });
    }
    left
}

fn granted(engine: &mut Engine, at: Instant) -> u64 {
    let mut snapshot = Snapshot::default();
    engine.snapshot(at, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    snapshot.total().access.granted
}

/// Bytes of each client that left between two instants, in milliseconds. Each has a frame of 1000 bytes
/// each `gap` ms.
fn load(
    engine: &mut Engine,
    clients: u16,
    gap: u64,
    (from, until): (u64, u64),
) -> BTreeMap<ClientKey, u64> {
    let mut sums = BTreeMap::new();
    for now in 0..until {
        for client in 1..=clients {
            if (now + u64::from(client)).is_multiple_of(gap) {
                engine.arrive(millis(now), RETURN, &frame(client, 1_000, 0));
            }
        }
        for (client, due, len) in released(engine, millis(now)) {
            if due >= millis(from) {
                *sums.entry(client).or_default() += len;
            }
        }
    }
    sums
}

/// Jain's index of fairness.
fn fairness(sums: &BTreeMap<ClientKey, u64>) -> f64 {
    let sum: f64 = sums.values().map(|it| *it as f64).sum();
    let squares: f64 = sums.values().map(|it| (*it as f64).powi(2)).sum();
    sum * sum / (sums.len() as f64 * squares)
}

#[test]
fn overloaded_carrier_is_full_and_shared_alike() {
    // 200 terminals offer 150 % of 500 bursts per superframe, by a frame each 106 ms or so.
    let (clients, bursts) = (200_u16, 500);
    let gap = u64::from(clients) * 1_000 * 40 / (bursts * BURST * 3 / 2);
    for access in [terminal(), with_rate(terminal())] {
        let mut engine = engine(plan(access, bursts), clients);
        let sums = load(&mut engine, clients, gap, (10_000, 70_000));
        assert_eq!(sums.len(), usize::from(clients));
        let index = fairness(&sums);
        assert!(index > 0.99, "{index}");
        let capacity = (bursts * BURST * 60_000 / 40) as f64;
        let sum: u64 = sums.values().sum();
        assert!((sum as f64 / capacity - 1.0).abs() < 0.01, "{sum} of {capacity}");
    }
}

#[test]
fn shares_follow_weights() {
    let weights = [(1, 1), (2, 2), (3, 4)];
    let mut plan = plan(terminal(), 70);
    for (client, weight) in weights {
        let share = Share { beam: 0, weight };
        Arc::make_mut(&mut plan.beams).shares.insert(key(client), share);
    }
    let mut engine = engine(plan, 3);
    let sums = load(&mut engine, 3, 5, (10_000, 70_000));
    for (client, weight) in weights {
        let share = f64::from(weight) / 7.0 * (70 * BURST * 60_000 / 40) as f64;
        let got = sums[&key(client)] as f64;
        assert!((got / share - 1.0).abs() < 0.01, "{client}: {got} of {share}");
    }
}

#[test]
fn terminal_with_less_than_its_share_has_it_and_others_have_the_rest() {
    // One frame a second is 25 bursts of 2500; the other wants all.
    let mut engine = engine(plan(terminal(), 100), 2);
    let mut waits = Vec::new();
    for now in 0..20_000 {
        engine.arrive(millis(now), RETURN, &frame(1, 1_000, 0));
        if now % 1_000 == 0 {
            engine.arrive(millis(now), RETURN, &frame(2, 1_000, 0));
        }
        let own = released(&mut engine, millis(now));
        waits.extend(own.iter().filter(|it| it.0 == key(2)).map(|it| it.1.0 / 1_000_000 % 1_000));
    }
    // A round trip and two superframes.
    assert_eq!(waits.len(), 20);
    assert!(waits.iter().all(|it| (400..480).contains(it)), "{waits:?}");
}

/// `terminals` that ask for `bursts` per superframe each, all the time.
fn others(terminals: u32, bursts: u64) -> Option<OthersPlan> {
    let rate = NonZeroU64::new(bursts * BURST * 8 * 1_000_000_000 / SUPERFRAME.0).unwrap();
    Some(OthersPlan { terminals, rate, on: Nanos::from_millis(1), off: Nanos::ZERO })
}

#[test]
fn terminals_outside_the_lab_take_what_they_ask_for_up_to_their_share() {
    // Bursts of all, the others, and what a terminal that wants all gets.
    let cases = [
        (110, others(10, 3), 80.0),
        (110, others(10, 10), 10.0),
        (110, others(10, 40), 10.0),
        (500, others(99, 40), 5.0),
    ];
    for (capacity, others, expected) in cases {
        let access = AccessPlan { others, ..with_rate(terminal()) };
        let in_carrier = plan(access, capacity);
        let peak = capacity * BURST * 8 * 1_000_000_000 / SUPERFRAME.0;
        let mut alone = plan(AccessPlan { peak: NonZeroU64::new(peak).unwrap(), ..access }, 1);
        alone.beams = Arc::default();
        for plan in [in_carrier, alone] {
            let mut engine = engine(plan, 1);
            let bytes = load(&mut engine, 1, 3, (10_000, 70_000))[&key(1)] as f64;
            let expected = expected * (BURST * 60_000 / 40) as f64;
            assert!((bytes / expected - 1.0).abs() < 0.03, "{bytes} of {expected}");
        }
    }
}

#[test]
fn volume_gets_what_terminals_outside_the_lab_leave() {
    let access = AccessPlan { constant: 1, others: others(10, 40), ..terminal() };
    let mut engine = engine(plan(access, 110), 1);
    let bytes = load(&mut engine, 1, 3, (10_000, 70_000))[&key(1)];
    // The constant burst, but for a frame.
    assert!(bytes.abs_diff(BURST * 60_000 / 40) <= 1_000, "{bytes}");
}

#[test]
fn terminals_outside_the_lab_leave_the_rest_of_their_mean_load() {
    // 40 terminals ask for 2 of 110 bursts a quarter of the time: 20 on average, and never all.
    let pauses = OthersPlan {
        on: Nanos::from_millis(200),
        off: Nanos::from_millis(600),
        ..others(40, 2).unwrap()
    };
    let access = AccessPlan { others: Some(pauses), ..terminal() };
    let mut engine = engine(plan(access, 110), 1);
    let bytes = load(&mut engine, 1, 2, (10_000, 130_000))[&key(1)] as f64;
    let rest = 90.0 * (BURST * 120_000 / 40) as f64;
    assert!((bytes / rest - 1.0).abs() < 0.02, "{bytes} of {rest}");
}

#[test]
fn idle_terminals_have_no_events() {
    let mut engine = engine(plan(with_rate(terminal()), 100), 1_000);
    for client in 1..=1_000 {
        engine.arrive(millis(1), RETURN, &frame(client, 500, 0));
    }
    assert_eq!(released(&mut engine, millis(60_000)).len(), 1_000);
    assert_eq!(engine.next_deadline(), None);
}

#[test]
fn carrier_that_is_down_holds_frames_and_resumes() {
    let mut engine = engine(plan(terminal(), 100), 2);
    engine.arrive(millis(1), RETURN, &frame(1, 1_000, 0));
    engine.apply(millis(2), plan(terminal(), 0), 1, false);
    assert_eq!(released(&mut engine, millis(10_000)), []);
    engine.apply(millis(10_000), plan(terminal(), 100), 2, false);
    // Its request has been at the scheduler since.
    let left = released(&mut engine, millis(20_000));
    assert_eq!(left.len(), 1);
    assert!(left[0].1.since(millis(10_000)) <= SUPERFRAME);
}

#[test]
fn frames_leave_in_their_order_through_changes_of_carrier() {
    let mut engine = engine(plan(terminal(), 10), 1);
    let mut left = 0;
    let changes = [
        plan(AccessPlan { superframe: Nanos::from_millis(10), ..terminal() }, 10),
        Plan { beams: Arc::default(), ..plan(terminal(), 10) },
        plan(terminal(), 20),
        {
            // A beam of a client without capacity on demand.
            let mut plan = plan(terminal(), 20);
            plan.pipes[RETURN].rate = BitRate::bps(1_000_000).into();
            plan
        },
        plan(terminal(), 10),
    ];
    let mut now = 0;
    let mut last = Instant::ZERO;
    for (generation, change) in (1..).zip(changes) {
        for n in 0..10 {
            engine.arrive(millis(now), RETURN, &frame(1, 1_000, n));
        }
        now += 700;
        let before = released(&mut engine, millis(now));
        // These wait for their request when the change comes.
        for n in 10..20 {
            engine.arrive(millis(now), RETURN, &frame(1, 1_000, n));
        }
        engine.apply(millis(now), change, generation, false);
        now += 200;
        let after = released(&mut engine, millis(now));
        for (_, due, _) in before.iter().chain(&after) {
            assert!(*due >= last);
            last = *due;
        }
        left += before.len() + after.len();
    }
    left += released(&mut engine, millis(now + 60_000)).len();
    assert_eq!(left, 100);
}

proptest! {
    #![proptest_config(cases(60))]

    /// In each superframe all terminals together are assigned the capacity at most, and over all superframes
    /// that of their time.
    #[test]
    fn assigned_bursts_never_exceed_capacity(
        access in crate::arbitrary::access(),
        bps in 20_000_u64..20_000_000,
        arrivals in prop::collection::vec((0_u64..100, 1_u16..6, 60_u16..1_500), 1..100),
    ) {
        prop_assume!(access.check().is_ok());
        let mut plan = plan(access, 1);
        let beams = Arc::make_mut(&mut plan.beams);
        beams.beams[0].rate[RETURN] = BitRate::bps(bps);
        beams.shares.insert(key(1), Share { beam: 0, weight: 5 });
        let mut engine = engine(plan, 5);
        let (mut now, mut before) = (0, 0);
        let mut starts = Vec::<(Instant, u64)>::new();
        let bits = |superframes: u64| {
            u128::from(bps) * u128::from(superframes) * u128::from(access.superframe.0)
        };
        let burst = u128::from(access.burst) * 8_000_000_000;
        for (i, (gap, client, len)) in arrivals.into_iter().enumerate() {
            now += gap;
            let end = millis(now);
            while let Some(at) = engine.next_deadline().filter(|at| *at <= end) {
                engine.release(at, usize::MAX, &mut |_: Departure<'_>| true);
                let after = granted(&mut engine, at);
                if after > before {
                    starts.push((at, after - before));
                }
                before = after;
            }
            engine.arrive(end, RETURN, &frame(client, len, i as u32));
        }
        for (first, (from, _)) in starts.iter().enumerate() {
            let mut sum = 0;
            for (at, bytes) in &starts[first..] {
                sum += u128::from(*bytes) * 8_000_000_000;
                let span = at.since(*from).0;
                prop_assert_eq!(span % access.superframe.0, 0, "one grid");
                prop_assert!(sum <= bits(span / access.superframe.0 + 1) + burst);
            }
        }
    }

    /// No terminal is assigned volume sooner than a round trip after it asked for it, whatever the others
    /// do.
    #[test]
    fn volume_is_assigned_a_round_trip_after_its_request(
        bursts in 1_u64..100,
        weights in prop::collection::vec(1_u16..20, 4),
        outside in prop::option::of((1_u32..5, 1_u64..20)),
        arrivals in prop::collection::vec((0_u64..200, 1_u16..=4), 1..100),
    ) {
        let others = outside.and_then(|(terminals, bursts)| others(terminals, bursts));
        let access = AccessPlan { others, ..terminal() };
        let mut plan = plan(access, bursts);
        for (client, weight) in (1..).zip(weights) {
            let share = Share { beam: 0, weight };
            Arc::make_mut(&mut plan.beams).shares.insert(key(client), share);
        }
        let round_trip = access.request_delay + access.plan_delay;
        let mut engine = engine(plan, 4);
        // When each had asked for how much in all.
        let mut asked = BTreeMap::<ClientKey, Vec<(Instant, u64)>>::new();
        let mut snapshot = Snapshot::default();
        let mut check = |engine: &mut Engine, until: Instant| -> Result<(), TestCaseError> {
            while let Some(at) = engine.next_deadline().filter(|at| *at <= until) {
                engine.release(at, usize::MAX, &mut |_: Departure<'_>| true);
                engine.snapshot(at, false, &mut snapshot);
                for client in &snapshot.clients {
                    let access = client.pipes[RETURN].access;
                    let asked = asked.entry(client.key).or_default();
                    let before = asked.iter().rev().find(|(then, _)| at.since(*then) >= round_trip);
                    let most = before.map_or(0, |(_, bytes)| *bytes);
                    prop_assert!(access.granted <= most, "{access:?} of {most}");
                    asked.push((at, access.asked));
                }
            }
            Ok(())
        };
        let mut now = 0;
        for (n, (gap, client)) in (0..).zip(&arrivals) {
            now += gap;
            check(&mut engine, millis(now))?;
            // Whole bursts.
            engine.arrive(millis(now), RETURN, &frame(*client, 1_000, n));
        }
        check(&mut engine, millis(now + 600_000))?;
        prop_assert_eq!(asked.values().map(|it| it.last().map_or(0, |it| it.1)).sum::<u64>(), 1_000 * arrivals.len() as u64);
    }

    /// A terminal alone on a carrier of its peak sends as it does without a carrier.
    #[test]
    fn terminal_alone_is_as_without_carrier(
        packs in any::<bool>(),
        delays in (0_u64..300, 0_u64..300),
        interval in 0_u64..200,
        by_rate in any::<bool>(),
        arrivals in prop::collection::vec((0_u64..500, 60_u16..1_500), 1..100),
    ) {
        let access = AccessPlan {
            packs,
            interval: Nanos::from_millis(interval),
            request_delay: Nanos::from_millis(delays.0),
            plan_delay: Nanos::from_millis(delays.1),
            peak: NonZeroU64::new(200_000).unwrap(),
            ..terminal()
        };
        // With rate, the part of a burst that a pause adds is unknown without a carrier: no pauses.
        let (access, most) = if by_rate { (with_rate(access), 20) } else { (access, u64::MAX) };
        let shared = plan(access, 10);
        let alone = Plan { beams: Arc::default(), ..shared.clone() };
        // The client of frames without a slot has the phase of the first carrier.
        let run = |plan: Plan| {
            let limits = Limits::copying(64 << 20, 0, 1_514);
            let mut engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
            let (mut now, mut left) = (0, Vec::new());
            for (n, (gap, len)) in (0..).zip(&arrivals) {
                now += gap % most;
                left.extend(released(&mut engine, millis(now)));
                engine.arrive(millis(now), RETURN, &frame(1, *len, n));
            }
            left.extend(released(&mut engine, millis(now + 600_000)));
            left
        };
        let left = run(shared);
        prop_assert_eq!(left.len(), arrivals.len());
        prop_assert_eq!(left, run(alone));
    }
}
