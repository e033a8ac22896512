// SPDX-License-Identifier: Apache-2.0
//! A turn of the run loop does a bounded piece of work, and what is done in which turn is
//! nobody's fate: buffers that are kept, changes that arrive with clients one after the
//! other, queues that are let out a part at a time.

use std::net::Ipv4Addr;

use crate::arbitrary::{self, LIMITS, Step, forget_lateness, plan_with_beams, step};
use crate::numbered::resolve;
use emu::aqm::codel::CoDelPlan;
use emu::aqm::{AqmPlan, QueuePlan};
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::episode::{DurationLaw, EpisodePlan};
use emu::frame::{Buffer, Frame, NoBuffer};
use emu::loss::LossPlan;
use emu::plan::Plan;
use emu::stats::{DropReason, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;

const FORWARD: Direction = Direction::Forward;

/// A frame for `client` that carries its number.
fn frame(client: u16, len: u16, number: u32) -> Vec<u8> {
    let mut f = vec![number as u8; usize::from(len)];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    let [high, low] = client.to_be_bytes();
    f[30..34].copy_from_slice(&[10, 0, high, low]);
    f[34..38].copy_from_slice(&number.to_be_bytes());
    f
}

/// An engine that has resolved as many hosts, from 10.0.0.1, as it has slots.
fn engine<B: Buffer>(limits: Limits, plan: Plan) -> Engine<B> {
    let mut engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
    let hosts = (1..=limits.clients).map(|host| Ipv4Addr::from_bits(0x0a00_0000 + host));
    resolve(&mut engine, Instant::ZERO, hosts);
    engine
}

/// A link that loses, queues and delays.
fn plan() -> Plan {
    let mut plan = Plan::transparent();
    let p = &mut plan.pipes[FORWARD];
    p.rate = BitRate::bps(50_000_000).into();
    p.queue = QueuePlan::tail_drop(200_000);
    p.outages = vec![EpisodePlan {
        interval: Nanos::from_millis(40),
        duration: Nanos::from_millis(10),
        law: DurationLaw::Exponential,
    }];
    p.packet_loss = Probability::new(0.02).into();
    p.delay.base = Nanos::from_millis(20);
    plan
}

/// What left: whose, when it was due, and its bytes; in the order of each client.
type Left = Vec<(ClientKey, Instant, Vec<u8>)>;

fn release<B: emu::frame::Buffer>(engine: &mut Engine<B>, now: Instant, left: &mut Left) -> usize {
    engine.release(now, 256, &mut |d: Departure<'_, B>| {
        left.push((*d.client, d.due, d.bytes().to_vec()));
        if let Frame::Buffer(buffer) = d.frame {
            assert!(buffer.take().is_some());
        }
        true
    })
}

/// Releases until nothing is held.
fn drain<B: emu::frame::Buffer>(engine: &mut Engine<B>, mut now: Instant, left: &mut Left) {
    while let Some(next) = engine.next_deadline() {
        now = now.max(next);
        release(engine, now, left);
    }
    left.sort_by_key(|(client, due, _)| (*client, *due));
}

proptest! {
    #![proptest_config(crate::cases(60))]

    #[test]
    fn fate_does_not_depend_on_copy_or_burst(
        lens in prop::collection::vec((0_u16..5, prop_oneof![Just(60_u16), 60_u16..1515, 5_000_u16..9_500]), 1..600),
        copy_break in prop_oneof![Just(0_u32), Just(64), Just(600), Just(10_000)],
        buffers in prop_oneof![Just(0_u32), Just(3), Just(1000)],
        burst in 1_usize..100,
    ) {
        let limits = Limits { copy_break, buffers, ..Limits::copying(16 << 20, 3, 9_400) };
        let mut copied = engine::<NoBuffer>(Limits::copying(16 << 20, 3, 9_400), plan());
        let mut kept = engine::<Vec<u8>>(limits, plan());
        let (mut a, mut b) = (Left::new(), Left::new());
        let mut now = Instant::ZERO;
        for (i, chunk) in lens.chunks(burst).enumerate() {
            now = now + Nanos(1_000_000);
            let frames = chunk.iter().enumerate().map(|(j, (client, len))| frame(*client, *len, (i * 100 + j) as u32));
            let mut frames: Vec<Option<Vec<u8>>> = frames.map(Some).collect();
            for f in frames.iter().flatten() {
                copied.arrive(now, FORWARD, f);
            }
            kept.arrive_burst(now, FORWARD, &mut frames);
            release(&mut copied, now, &mut a);
            release(&mut kept, now, &mut b);
        }
        let (mut s, mut t) = (Snapshot::default(), Snapshot::default());
        copied.snapshot(now, false, &mut s);
        kept.snapshot(now, false, &mut t);
        prop_assert!(t.buffers <= buffers);
        prop_assert_eq!(&s.clients, &t.clients);
        drain(&mut copied, now, &mut a);
        drain(&mut kept, now, &mut b);
        prop_assert!(a == b);
        kept.snapshot(now, false, &mut t);
        prop_assert_eq!((t.store_used, t.buffers), (0, 0));
    }

    /// A burst has the same fates as its frames one by one, under any plan.
    #[test]
    fn burst_equals_its_frames_one_by_one(
        first in plan_with_beams(),
        bursts in prop::collection::vec((step(), 1_usize..70, 0_u8..4), 1..200),
        copy_break in prop_oneof![Just(0_u32), Just(600), Just(10_000)],
    ) {
        // Enough memory and buffers: a frame of a burst that is lost at once gives them back only after
        // the whole run has been stored.
        let limits = Limits { copy_break, buffers: 14_000, memory: 256 << 20, ..LIMITS };
        let engine = || {
            let mut engine = Engine::<Vec<u8>>::new(limits, first.clone(), Instant::ZERO).unwrap();
            resolve(&mut engine, Instant::ZERO, (0..3).map(|host| [10, 0, 0, host].into()));
            engine
        };
        let (mut whole, mut single) = (engine(), engine());
        let (mut a, mut b) = (arbitrary::Left::new(), arbitrary::Left::new());
        let mut now = Instant::ZERO;
        for (i, ((gap, step), count, mixed)) in bursts.into_iter().enumerate() {
            now = now + Nanos(gap);
            match step {
                Step::Arrive { direction, client, len } => {
                    let frames = (0..count).map(|n| {
                        // Mostly runs of one client, sometimes with others among them.
                        let client = if n % 4 < usize::from(mixed) { client } else { n as u8 % 7 };
                        let client = if mixed == 0 { n as u8 / 20 } else { client };
                        Some(arbitrary::frame(direction, client, len, (i * 100 + n) as u32))
                    });
                    let mut frames: Vec<_> = frames.collect();
                    for f in frames.clone() {
                        single.arrive_burst(now, direction, &mut [f]);
                    }
                    whole.arrive_burst(now, direction, &mut frames);
                }
                Step::Release { .. } => {
                    arbitrary::release(&mut whole, now, usize::MAX, usize::MAX, &mut a);
                    arbitrary::release(&mut single, now, usize::MAX, usize::MAX, &mut b);
                }
                Step::Apply { plan, restart } => {
                    whole.apply(now, (*plan).clone(), i as u64, restart);
                    single.apply(now, *plan, i as u64, restart);
                }
                Step::KeepUp => {
                    whole.keep_up(now);
                    single.keep_up(now);
                }
            }
        }
        let (mut s, mut t) = (Snapshot::default(), Snapshot::default());
        whole.snapshot(now, false, &mut s);
        single.snapshot(now, false, &mut t);
        forget_lateness(&mut s);
        forget_lateness(&mut t);
        prop_assert_eq!(&s, &t);
        for left in [&mut a, &mut b] {
            left.sort();
        }
        prop_assert!(a == b);
    }

    /// Hundreds of clients take a change over several turns; each of them as of its instant.
    #[test]
    fn change_has_same_effect_whenever_client_takes_it(
        steps in prop::collection::vec((0_u16..300, 60_u16..1515, 0_u64..40_000, any::<bool>()), 50..600),
        changes in prop::collection::vec((0_usize..600, 0_usize..3, any::<bool>()), 1..8),
    ) {
        let mut plans = [plan(), plan(), Plan::transparent()];
        plans[1].pipes[FORWARD].rate = BitRate::bps(5_000_000).into();
        plans[1].pipes[FORWARD].delay.base = Nanos::from_millis(3);
        let limits = Limits::copying(32 << 20, 300, 1514);
        let mut lazy = engine::<NoBuffer>(limits, plan());
        let mut eager = engine::<NoBuffer>(limits, plan());
        let (mut a, mut b) = (Left::new(), Left::new());
        let mut all = Snapshot::default();
        let mut now = Instant::ZERO;
        let mut expected = vec![plan()];
        for (i, (client, len, gap, look)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            for (at, which, restart) in &changes {
                if *at == i {
                    for e in [&mut lazy, &mut eager] {
                        prop_assert_eq!(e.apply(now, plans[*which].clone(), i as u64, *restart), now);
                    }
                    expected.push(plans[*which].clone());
                    // Looks at every client, so that they take it at once.
                    eager.snapshot(now, false, &mut all);
                }
            }
            for e in [&mut lazy, &mut eager] {
                e.arrive(now, FORWARD, &frame(client, len, i as u32));
            }
            if look {
                release(&mut lazy, now, &mut a);
            }
            release(&mut eager, now, &mut b);
        }
        drain(&mut lazy, now, &mut a);
        drain(&mut eager, now, &mut b);
        prop_assert!(a == b);
        // Each plan that was replaced comes back once, in order; the last is in force.
        expected.pop();
        let replaced: Vec<Plan> = std::iter::from_fn(|| lazy.replaced()).collect();
        prop_assert!(replaced == expected);
    }
}

#[test]
fn queue_after_removed_limit_leaves_in_parts() {
    let mut plan = plan();
    let p = &mut plan.pipes[FORWARD];
    (p.packet_loss, p.outages) = (LossPlan::None, Vec::new());
    p.rate = BitRate::bps(1_000_000).into();
    p.queue.limit = 4_000_000;
    let mut engine = engine::<NoBuffer>(Limits::copying(64 << 20, 4, 1514), plan.clone());
    let n = 50_000_u32;
    for i in 0..n {
        engine.arrive(Instant(u64::from(i)), FORWARD, &frame(1, 60, i));
    }
    let at = Instant(1_000_000);
    plan.pipes[FORWARD].rate = BitRate::Unlimited.into();
    engine.apply(at, plan.clone(), 1, false);
    // Another client's frame, and one of the same while its queue comes out.
    let later = at + Nanos(10_000);
    engine.arrive(later, FORWARD, &frame(2, 60, n));
    engine.arrive(later, FORWARD, &frame(1, 60, n + 1));
    let mut accounts = Snapshot::default();
    engine.snapshot(later, false, &mut accounts);
    assert!(accounts.is_conserved());
    assert_eq!(accounts.total().dropped_total().packets, 0);
    // At no limit nothing is queued, also while it is on its way out.
    assert_eq!(accounts.total().queue.packets, 0);
    let due = later + Nanos::from_millis(20);
    let mut left = Left::new();
    let (mut turns, mut other) = (0, None);
    while let Some(next) = engine.next_deadline() {
        let before = left.len();
        release(&mut engine, next.max(due), &mut left);
        assert!(left.len() - before <= 256);
        turns += 1;
        if other.is_none() && left.iter().any(|(c, ..)| *c == ClientKey::Ip([10, 0, 0, 2].into())) {
            other = Some(turns);
        }
    }
    // The other client's frame comes in the first turn in which it is due.
    assert_eq!(other, Some(1));
    assert_eq!(left.len(), n as usize + 2);
    let mine = |(c, ..): &&(ClientKey, Instant, Vec<u8>)| *c == ClientKey::Ip([10, 0, 0, 1].into());
    let numbers: Vec<u32> = left
        .iter()
        .filter(mine)
        .map(|(_, _, f)| u32::from_be_bytes(f[34..38].try_into().unwrap()))
        .collect();
    assert!(numbers.is_sorted());
    // Two have left by then; the one in service, and what waited for it, is let out by the
    // change.
    assert!(
        left.iter().filter(mine).filter(|(_, due, _)| *due == at + Nanos::from_millis(20)).count()
            >= n as usize - 2
    );
    assert_eq!(left.iter().rfind(mine).map(|(_, due, _)| *due), Some(due));
}

#[test]
fn snapshot_does_not_change_fates_of_lagging_queue() {
    let fates = |looks: bool, at: Instant| {
        let mut plan = plan();
        plan.pipes[FORWARD].rate = BitRate::bps(1_000_000).into();
        plan.pipes[FORWARD].queue.limit = 4_000_000;
        let limits = Limits::copying(64 << 20, 4, 1514);
        let mut engine = engine::<NoBuffer>(limits, plan.clone());
        for i in 0..5_000_u32 {
            engine.arrive(Instant(u64::from(i)), FORWARD, &frame(1, 60, i));
        }
        plan.pipes[FORWARD].rate = BitRate::Unlimited.into();
        engine.apply(at, plan, 1, false);
        let (mut left, mut now) = (Left::new(), at);
        for _ in 0..100 {
            release(&mut engine, now, &mut left);
            // A frame now and then, while most of the queue has yet to come out.
            now = now + Nanos(3_000_000);
            engine.arrive(now, FORWARD, &frame(1, 60, 9_999));
            if looks {
                (0..3).for_each(|_| engine.keep_up(now));
            }
        }
        drain(&mut engine, now, &mut left);
        let mut accounts = Snapshot::default();
        engine.snapshot(now, false, &mut accounts);
        (left, accounts.total().dropped)
    };
    // Some of these instants fall into an outage.
    for i in 1..20 {
        let at = Instant(i * 7_000_000);
        assert!(fates(true, at) == fates(false, at), "{at}");
    }
}

/// A queue whose CoDel drops almost all of it when the first frame leaves.
fn impatient(limit: u64) -> Plan {
    let mut plan = Plan::transparent();
    let p = &mut plan.pipes[FORWARD];
    p.rate = BitRate::bps(1_000_000).into();
    p.queue = QueuePlan::tail_drop(limit);
    let (target, interval) = (Nanos(1_000), Nanos(100));
    p.queue.aqm = AqmPlan::CoDel(CoDelPlan { target, interval });
    p.delay.base = Nanos::from_millis(20);
    plan
}

#[test]
fn codel_drops_long_queue_in_parts() {
    let limits = Limits::copying(64 << 20, 4, 1514);
    let plan = impatient(4_000_000);
    let mut engine = engine::<NoBuffer>(limits, plan);
    let n = 50_000_u32;
    for i in 0..n {
        engine.arrive(Instant(u64::from(i)), FORWARD, &frame(1, 60, i));
    }
    let mut accounts = Snapshot::default();
    let mut dropped = |engine: &mut Engine<NoBuffer>, now| {
        engine.snapshot(now, false, &mut accounts);
        assert!(accounts.is_conserved());
        accounts.total().dropped[DropReason::Aqm as usize].packets
    };
    // The first frame leaves after 480 µs, the next with one drop after 960, and with the
    // third all that is then behind it is to go.
    let now = Instant(1_500_000);
    engine.arrive(now, FORWARD, &frame(2, 60, n));
    engine.arrive(now, FORWARD, &frame(1, 60, n + 1));
    assert!(dropped(&mut engine, now) < 100, "what arrives does not wait for it");
    let (mut left, mut turns, mut before) = (Left::new(), 0, 0);
    while before < u64::from(n) - 1_000 {
        release(&mut engine, now, &mut left);
        let after = dropped(&mut engine, now);
        // What a release serves, and a little for each look at the accounts.
        assert!((before + 1..before + 1_200).contains(&after), "{before} {after}");
        before = after;
        turns += 1;
    }
    assert!(turns > 40, "{turns}");
    drain(&mut engine, now, &mut left);
    let others =
        |(c, ..): &&(ClientKey, Instant, Vec<u8>)| *c == ClientKey::Ip([10, 0, 0, 2].into());
    assert_eq!(left.iter().filter(others).count(), 1);
}

proptest! {
    #![proptest_config(crate::cases(100))]

    /// Nor does a queue that lags behind because CoDel has much to drop.
    #[test]
    fn codel_drops_are_same_at_once_or_in_parts(
        steps in prop::collection::vec((1_usize..80, prop_oneof![Just(60_u16), 60_u16..1515], 0_u64..3_000_000), 2..60),
        limit in prop_oneof![Just(20_000_u64), 1_600_u64..200_000],
        interval in prop_oneof![Just(1_u64), 1_u64..2_000_000],
    ) {
        let mut plan = impatient(limit);
        plan.pipes[FORWARD].queue.aqm =
            AqmPlan::CoDel(CoDelPlan { target: Nanos(1_000), interval: Nanos(interval) });
        let limits = Limits::copying(32 << 20, 1, 1514);
        let mut lazy = engine::<NoBuffer>(limits, plan.clone());
        let mut eager = engine::<NoBuffer>(limits, plan);
        let (mut a, mut b) = (Left::new(), Left::new());
        let (mut now, mut n) = (Instant::ZERO, 0);
        for (burst, len, gap) in steps {
            now = now + Nanos(gap);
            for _ in 0..burst {
                n += 1;
                // Brings all of it up to what arrives.
                (0..1_000).for_each(|_| eager.keep_up(now));
                for e in [&mut lazy, &mut eager] {
                    e.arrive(now, FORWARD, &frame(1, len, n));
                }
            }
        }
        drain(&mut lazy, now, &mut a);
        drain(&mut eager, now, &mut b);
        prop_assert!(a == b);
        let (mut s, mut t) = (Snapshot::default(), Snapshot::default());
        lazy.snapshot(now, false, &mut s);
        eager.snapshot(now, false, &mut t);
        prop_assert_eq!(s.total().dropped, t.total().dropped);
    }
}

#[test]
fn lost_frames_of_long_outage_are_cleared_in_parts() {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].packet_loss = Probability::ONE.into();
    plan.pipes[FORWARD].delay.base = Nanos::from_millis(20);
    let mut engine = engine::<NoBuffer>(Limits::copying(64 << 20, 4, 1514), plan);
    for i in 0..10_000_u32 {
        engine.arrive(Instant(u64::from(i)), FORWARD, &frame(1, 60, i));
    }
    let mut accounts = Snapshot::default();
    engine.snapshot(Instant(10_000), false, &mut accounts);
    assert_eq!(accounts.total().dropped[DropReason::Loss as usize].packets, 10_000);
    assert!(accounts.store_used > 0);
    let mut turns = 0;
    while engine.next_deadline().is_some() {
        // A frame that is cleared away counts as one that leaves.
        let cleared = engine.release(Instant(10_000), 256, &mut |_: Departure<'_>| panic!("lost"));
        assert!(cleared <= 256);
        turns += 1;
    }
    assert!(turns >= 10_000 / 256);
    engine.snapshot(Instant(10_000), false, &mut accounts);
    assert_eq!(accounts.store_used, 0);
}

#[test]
fn report_in_parts_equals_report_at_once() {
    let mut engine = engine::<NoBuffer>(Limits::copying(64 << 20, 300, 1514), plan());
    for i in 0..5_000_u32 {
        engine.arrive(Instant(u64::from(i) * 1_000), FORWARD, &frame((i % 290) as u16, 600, i));
    }
    let now = Instant(6_000_000);
    let (mut whole, mut parts) = (Snapshot::default(), Snapshot::default());
    engine.snapshot(now, false, &mut whole);
    let mut calls = 1;
    while !engine.snapshot_some(now, 32, false, &mut parts) {
        calls += 1;
    }
    assert_eq!(calls, (whole.clients.len()).div_ceil(32));
    assert_eq!(whole, parts);
}
