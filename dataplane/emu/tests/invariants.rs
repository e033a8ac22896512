// SPDX-License-Identifier: Apache-2.0
//! The invariants of the design, as properties of an engine in virtual time under
//! random traffic, random plans and random changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use emu::aqm::codel::CoDelPlan;
use emu::aqm::{AqmPlan, QueuePlan};
use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Label;
use emu::framing::{Framing, LinkLayer};
use emu::plan::{Plan, Room};
use emu::reorder::ReorderPlan;
use emu::stats::{Count, DropReason, Snapshot};
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;

use crate::arbitrary::*;

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn conservation_order_time_and_content_hold_whatever_happens(
        first in plan_with_beams(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut engine = Engine::new(LIMITS, faithful(first), Instant::ZERO).unwrap();
        let mut snapshot = Snapshot::with_room_for(8);
        let mut sent = BTreeMap::<(Direction, ClientKey), (u32, Instant)>::new();
        let mut arrived = BTreeMap::<(Direction, u32), (Instant, Vec<u8>)>::new();
        let (mut now, mut generation) = (Instant::ZERO, 0);
        for (i, (gap, step)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            match step {
                Step::Arrive { direction, client, len } => {
                    let f = frame(direction, client, len, i as u32);
                    engine.arrive(now, direction, &f);
                    arrived.insert((direction, i as u32), (now, f));
                }
                Step::Release { budget, port_takes } => {
                    let mut taken = 0;
                    let mut wrong = None;
                    engine.release(now, budget, &mut |d: Departure<'_>| {
                        if taken >= port_takes {
                            return false;
                        }
                        taken += 1;
                        if d.due > now {
                            wrong = Some("early");
                        }
                        // Frames too short to carry a number are not followed.
                        if let Some(n) = number(d.bytes()).filter(|_| d.bytes().len() >= 42) {
                            match arrived.remove(&(d.direction, n)) {
                                Some((at, f)) if is_same(&f, d.bytes()) && d.due >= at => {}
                                _ => wrong = Some("not what arrived, or twice"),
                            }
                            let last = sent.insert((d.direction, *d.client), (n, d.due));
                            if last.is_some_and(|(m, due)| m > n || due > d.due) {
                                wrong = Some("out of order");
                            }
                        }
                        true
                    });
                    prop_assert_eq!(wrong, None);
                    prop_assert!(taken <= budget);
                }
                Step::Apply { plan, restart } => {
                    generation += 1;
                    engine.apply(now, faithful(*plan), generation, restart);
                }
                Step::KeepUp => engine.keep_up(now),
            }
            // Seldom: a snapshot brings every pipe up to now, and what is not looked at must
            // be right as well.
            if i % 20 == 19 {
                engine.snapshot(now, i % 100 == 99, &mut snapshot);
                prop_assert!(snapshot.is_conserved());
                prop_assert_eq!(snapshot.generation, generation);
            }
        }
        // With the link open all that is held comes out, and the memory with it.
        let mut open = Plan::transparent();
        open.seed = 1;
        engine.apply(now, open, generation + 1, false);
        let mut end = now;
        while let Some(t) = engine.next_deadline() {
            end = end.max(t);
            engine.release(end, usize::MAX, &mut |_: Departure<'_>| true);
        }
        engine.snapshot(end, false, &mut snapshot);
        prop_assert!(snapshot.is_conserved());
        prop_assert_eq!(snapshot.total().held, Count::default());
        prop_assert_eq!(snapshot.store_used, 0);
    }

    /// An engine that is left alone until the end, and one that is looked at in every way.
    #[test]
    fn fates_do_not_depend_on_visits(
        first in plan_with_beams(),
        steps in prop::collection::vec((step(), 0_u8..20), 1..300),
    ) {
        let limits = Limits::copying(64 << 20, 4, 9_500);
        let mut engines: [Engine; 2] = [(); 2].map(|()| Engine::new(limits, first.clone(), Instant::ZERO).unwrap());
        let mut left = [Vec::new(), Vec::new()];
        let mut snapshot = Snapshot::with_room_for(8);
        let mut now = Instant::ZERO;
        for (i, ((gap, step), look)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            match step {
                Step::Arrive { direction, client, len } => {
                    for k in 0..i % 7 {
                        let f = frame(direction, client, len, (i * 10 + k) as u32);
                        engines.iter_mut().for_each(|e| e.arrive(now, direction, &f));
                    }
                }
                Step::Release { budget, port_takes } => {
                    release(&mut engines[1], now, budget, port_takes, &mut left[1]);
                }
                Step::Apply { plan, restart } => {
                    engines.iter_mut().for_each(|e| _ = e.apply(now, (*plan).clone(), 1, restart));
                }
                Step::KeepUp => engines[1].keep_up(now),
            }
            if look == 0 {
                engines[1].snapshot(now, false, &mut snapshot);
            }
        }
        let mut accounts = Vec::new();
        for (engine, left) in engines.iter_mut().zip(&mut left) {
            let mut end = now + Nanos(1);
            engine.apply(end, Plan { seed: 1, ..Plan::transparent() }, 2, false);
            while let Some(t) = engine.next_deadline() {
                end = end.max(t);
                release(engine, end, 64, usize::MAX, left);
            }
            sort_by_pipe(left);
            engine.snapshot(end, false, &mut snapshot);
            prop_assert!(snapshot.is_conserved());
            prop_assert_eq!(snapshot.total().held, Count::default());
            prop_assert_eq!(snapshot.store_used, 0);
            forget_lateness(&mut snapshot);
            accounts.push(std::mem::take(&mut snapshot.clients));
        }
        prop_assert_eq!(&accounts[0], &accounts[1]);
        prop_assert!(left[0] == left[1]);
    }

    /// Bytes released in any interval ≤ rate × interval + one frame, and a busy
    /// link gives no less either.
    #[test]
    fn busy_link_sends_exactly_its_rate(
        bps in 1_000_000_u64..1_000_000_000,
        lens in prop::collection::vec(60_u16..9_000, 50..300),
        overhead in 0_i32..40,
        cells in any::<bool>(),
    ) {
        let mut plan = Plan::transparent();
        plan.pipes[Direction::Forward].rate = BitRate::bps(bps).into();
        let link_layer = if cells { LinkLayer::Atm } else { LinkLayer::Plain };
        plan.pipes[Direction::Forward].framing =
            Framing { overhead, link_layer, ..Framing::default() };
        plan.pipes[Direction::Forward].queue.limit = 1 << 30;
        let mut engine = Engine::new(LIMITS, plan, Instant::ZERO).unwrap();
        for (i, len) in lens.iter().enumerate() {
            engine.arrive(Instant::ZERO, Direction::Forward, &frame(Direction::Forward, 1, *len, i as u32));
        }
        let mut out = Vec::new();
        while let Some(t) = engine.next_deadline() {
            engine.release(t, usize::MAX, &mut |d: Departure<'_>| {
                out.push((d.due.0, d.bytes().len() as u128));
                true
            });
        }
        prop_assert_eq!(out.len(), lens.len());
        // The exact finish of the k-th frame is the ceiling of the exact sum.
        let mut bits = 0_u128;
        for (due, len) in out {
            let bytes = len + overhead as u128;
            bits += if cells { bytes.div_ceil(48) * 53 } else { bytes } * 8;
            prop_assert_eq!(u128::from(due), (bits * 1_000_000_000).div_ceil(u128::from(bps)));
        }
    }

    /// A client's frames meet the same fates whatever other clients do, and
    /// whenever the engine is looked at.
    #[test]
    fn fates_do_not_depend_on_other_clients_or_visits(
        plan in plan(),
        arrivals in prop::collection::vec((0_u64..3_000_000, any::<bool>(), 0_u8..4, 60_u16..1515), 1..300),
        looks in prop::collection::vec(any::<bool>(), 300),
    ) {
        // Limits on automatic clients are about others.
        let plan = Plan { rules: Default::default(), ..plan };
        let run = |only: Option<u8>, looks: &[bool]| {
            let mut engine = Engine::new(LIMITS, plan.clone(), Instant::ZERO).unwrap();
            let mut fates = Vec::new();
            let mut note = |d: Departure<'_>| {
                if *d.client == ClientKey::Ip([10, 0, 0, 1].into()) {
                    fates.push((d.direction, number(d.bytes()), d.due));
                }
                true
            };
            let mut now = Instant::ZERO;
            for (i, (gap, forward, client, len)) in arrivals.iter().enumerate() {
                now = now + Nanos(*gap);
                let d = Direction::BOTH[usize::from(*forward)];
                if only.is_none_or(|c| c == *client) {
                    engine.arrive(now, d, &frame(d, *client, *len, i as u32));
                }
                if looks[i] {
                    engine.release(now, usize::MAX, &mut note);
                    engine.keep_up(now);
                }
            }
            let mut end = now;
            engine.apply(end, Plan { seed: plan.seed, ..Plan::transparent() }, 1, false);
            while let Some(t) = engine.next_deadline() {
                end = end.max(t);
                engine.release(end, usize::MAX, &mut note);
            }
            fates.sort();
            fates
        };
        let together = run(None, &looks);
        prop_assert_eq!(&together, &run(Some(1), &looks));
        prop_assert_eq!(&together, &run(None, &[false; 300]));
    }
}

proptest! {
    #![proptest_config(crate::cases(60))]

    /// A plan that was checked against a store never overloads it, whatever the lengths of
    /// the frames: every client's queues full and the line full behind them.
    #[test]
    fn fitting_plan_never_overloads_store(
        lens in prop::collection::vec(prop_oneof![Just(34_u16), Just(42), Just(65), Just(1514), Just(9_216), 34_u16..9_217], 1..6),
        overhead in prop_oneof![Just(0), -40_i32..0],
        link_layer in link_layer(),
        limit in 20_000_u64..600_000,
        delay_ms in 0_u64..40,
        codel in any::<bool>(),
        by_ms in prop::option::of(0_u64..20),
        duplicate in any::<bool>(),
        limited in any::<bool>(),
        tagged in any::<bool>(),
        beam in prop::option::of((1_000_000_u64..400_000_000, any::<bool>())),
    ) {
        let framing = Framing { overhead, link_layer, ..Framing::default() };
        let mut plan = Plan::transparent();
        if let Some((bps, all)) = beam {
            let rate = ByDirection([BitRate::bps(bps); 2]);
            let beam = BeamPlan { name: String::new(), rate, framing };
            let share = Share { beam: 0, weight: 1 };
            let shares = BTreeMap::from([(ClientKey::Ip([10, 0, 0, 1].into()), share)]);
            let automatic = all.then_some(share);
            plan.beams = Arc::new(BeamsPlan { beams: vec![beam], shares, automatic });
        }
        for p in &mut plan.pipes.0 {
            if limited || beam.is_none() {
                p.rate = BitRate::bps(80_000_000).into();
            }
            p.framing = framing;
            p.queue = QueuePlan::tail_drop(limit);
            if codel {
                let (target, interval) = (Nanos::from_micros(10), Nanos::from_micros(500));
                p.queue.aqm = AqmPlan::CoDel(CoDelPlan { target, interval });
            }
            p.delay.base = Nanos::from_millis(delay_ms);
            p.reorder = by_ms.map(|by| ReorderPlan {
                probability: Probability::new(0.9),
                by: Nanos::from_millis(by),
            });
            p.duplicate = if duplicate { Probability::ONE } else { Probability::ZERO };
        }
        let clients = 2;
        let frame_max = 9_216;
        let tag = if tagged { &[7; 32][..] } else { &[] };
        let port_bps = 10_000_000_000;
        let room = Room { clients, port_bps, frame: frame_max, capacity: 0, workers: 1, tag: tag.len() as u32, unanswered: true };
        let memory = plan.memory(room) as usize;
        let limits = Limits::copying(memory, clients, frame_max);
        let mut engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
        let mut snapshot = Snapshot::default();
        // Three senders, the last of which is one too many and gets the default client,
        // each at three times the rate.
        let (mut n, mut now) = (0, Instant::ZERO);
        for step in 0..400_u64 {
            now = now.max(Instant(step * 200_000));
            for client in 1..=3 {
                let (mut bytes, mut unreleased) = (0, 0);
                // The queues are filled at the ports' rate, then kept full.
                let burst = if step == 0 { 4 * limit as usize } else { 6_000 };
                while bytes < burst {
                    let len = lens[n % lens.len()];
                    for d in Direction::BOTH {
                        let f = frame(d, client, len, n as u32);
                        engine.arrive_labelled(now, d, &f, Label { tag, ..Label::NONE });
                    }
                    bytes += usize::from(len);
                    n += 1;
                    // Both ports bring frames at their rate at most: the envelope holds what an
                    // unlimited client can have in the delay by that.
                    let bits = (u64::from(len) + tag.len() as u64) * 8;
                    now = now + Nanos((bits * 1_000_000_000).div_ceil(port_bps));
                    // Frames without a limit and without a delay leave before they pile up.
                    unreleased += u32::from(len);
                    if unreleased >= frame_max / 4 {
                        unreleased = 0;
                        engine.release(now, usize::MAX, &mut |_: Departure<'_>| true);
                    }
                }
            }
            engine.release(now, usize::MAX, &mut |_: Departure<'_>| true);
        }
        engine.snapshot(Instant(400 * 200_000), false, &mut snapshot);
        let total = snapshot.total();
        let full = total.dropped[DropReason::Limit as usize].packets > 0;
        prop_assert!(full || !limited && beam.is_some());
        prop_assert_eq!(total.dropped[DropReason::Overload as usize].packets, 0);
    }
}
