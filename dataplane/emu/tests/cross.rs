// SPDX-License-Identifier: Apache-2.0
//! Cross traffic against real traffic: the rate and the queue that it leaves, its accounts, and that
//! nothing of it comes out.

use emu::aqm::codel::CoDelPlan;
use emu::aqm::{AqmPlan, QueuePlan};
use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::check::PlanError;
use emu::client::ClientKey;
use emu::cross::{Arrivals, CrossPlan, OnOff};
use emu::engine::{Departure, Engine, Limits};
use emu::envelope::{self, Remark, remarks};
use emu::framing::Framing;
use emu::loss::LossPlan;
use emu::plan::{Plan, Room};
use emu::stats::{Count, DropReason, PipeStats, Snapshot};
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;

use crate::arbitrary::cases;
use crate::numbered::{frame, resolve};

const FORWARD: Direction = Direction::Forward;
const LIMITS: Limits = Limits::copying(64 << 20, 4, 1_514);
/// Of each real frame. At 100 Mbit/s it takes 120 µs.
const LEN: u16 = 1_500;
const RATE: u64 = 100_000_000;
const ALL: [Arrivals; 3] = [
    Arrivals::Constant,
    Arrivals::Poisson,
    Arrivals::OnOff(OnOff { on: Nanos(2_000_000), off: Nanos(3_000_000), shape: 3.0 }),
];

/// 100 Mbit/s with 30 Mbit/s of cross traffic in frames as long as the real ones.
fn plan(arrivals: Arrivals, limit: u64) -> Plan {
    let mut plan = Plan::transparent();
    let pipe = &mut plan.pipes[FORWARD];
    pipe.rate = BitRate::bps(RATE).into();
    pipe.queue = QueuePlan::tail_drop(limit);
    pipe.cross = Some(CrossPlan { rate: 30_000_000, frame: LEN.into(), arrivals });
    plan
}

fn engine(plan: &Plan) -> Engine {
    Engine::new(LIMITS, plan.clone(), Instant::ZERO).unwrap()
}

fn micros(n: u64) -> Instant {
    Instant::ZERO + Nanos::from_micros(n)
}

/// The forward pipe of the only client with traffic, the default one.
fn accounts(engine: &mut Engine, at: Instant) -> PipeStats {
    let mut snapshot = Snapshot::default();
    engine.snapshot(at, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    let is_default = |c: &&emu::stats::ClientStats| c.key == ClientKey::Default;
    snapshot.clients.iter().find(is_default).unwrap().pipes[FORWARD]
}

/// Sends frames at a rate for `seconds`. Returns the accounts, bit/s that came out, and the longest delay in the last second.
fn play(plan: &Plan, mbps: u64, seconds: u64) -> (PipeStats, f64, Nanos) {
    let mut engine = engine(plan);
    let comes = |n: u32| Instant(u64::from(n) * u64::from(LEN) * 8_000 / mbps);
    let (mut bytes, mut longest) = (0, Nanos::ZERO);
    let end = Instant(seconds * 1_000_000_000);
    for (now, n) in (0..).map(|n| (comes(n), n)).take_while(|(now, _)| *now < end) {
        engine.arrive(now, FORWARD, &frame(LEN, n));
        engine.release(now, usize::MAX, &mut |d: Departure<'_>| {
            bytes += d.bytes().len();
            let sent = u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap());
            if now.0 > end.0 - 1_000_000_000 {
                longest = longest.max(d.due.since(comes(sent)));
            }
            true
        });
    }
    let stats = accounts(&mut engine, end);
    (stats, bytes as f64 * 8.0 / seconds as f64, longest)
}

/// The share of a rate that Poisson traffic may be off by in `seconds`: 5 standard deviations of
/// the number of frames.
fn chance(arrivals: Arrivals, seconds: u64) -> f64 {
    match arrivals {
        Arrivals::Constant => 0.0,
        _ => 5.0 / (2_500.0 * seconds as f64).sqrt(),
    }
}

#[test]
fn backlogged_sender_gets_remaining_rate() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        // A queue that never drops: the sender has a backlog throughout.
        const SECONDS: u64 = 60;
        let mut engine = engine(&plan(arrivals, 1 << 30));
        let (mut bytes, mut n) = (0_u64, 0_u32);
        // Tops the backlog up by what left.
        for ms in 0..SECONDS * 1_000 {
            while u64::from(n) * u64::from(LEN) < bytes + 100_000 {
                engine.arrive(micros(ms * 1_000), FORWARD, &frame(LEN, n));
                n += 1;
            }
            engine.release(micros(ms * 1_000), usize::MAX, &mut |d: Departure<'_>| {
                bytes += d.bytes().len() as u64;
                true
            });
        }
        let stats = accounts(&mut engine, Instant(SECONDS * 1_000_000_000));
        assert_eq!(stats.dropped_total().plus(stats.cross_dropped), Count::default());
        let rate = bytes as f64 * 8.0 / SECONDS as f64;
        let off = rate / 70e6 - 1.0;
        println!("{arrivals:?}: {:.4} Mbit/s, {:+.3} %", rate / 1e6, off * 100.0);
        assert!(off.abs() < 0.005, "{arrivals:?}: {rate}");
    }
}

#[test]
fn paced_sender_has_short_queue_up_to_remaining_rate() {
    // 70 Mbit/s of 100: with constant arrivals no frame waits for more than one of each kind.
    let (stats, rate, longest) = play(&plan(Arrivals::Constant, 1 << 30), 70, 20);
    assert!((rate / 70e6 - 1.0).abs() < 0.001, "{rate}");
    assert!(longest <= Nanos(240_001), "{longest:?}");
    // With the whole of the frame in service.
    assert!(stats.queue_max_bytes <= 3 * u64::from(LEN), "{stats:?}");
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        // One Mbit/s more than is left: that much is queued, of both in proportion to arrivals.
        let (stats, rate, _) = play(&plan(arrivals, 1 << 30), 71, 60);
        let slack = chance(arrivals, 60) * 30e6;
        assert!((rate - 100e6 * 71.0 / 101.0).abs() < slack + 20_000.0, "{arrivals:?} {rate}");
        let queued = stats.queue.bytes as f64 * 8.0 / 60.0;
        assert!((queued - 1e6).abs() < slack + 100_000.0, "{arrivals:?}: {queued}");
        assert_eq!(stats.dropped_total().plus(stats.cross_dropped), Count::default());
    }
}

#[test]
fn overload_of_short_queue_drops_both() {
    for arrivals in ALL {
        // 140 Mbit/s of real traffic and 30 of phantom frames into 100.
        let (stats, rate, longest) = play(&plan(arrivals, 60_000), 140, 20);
        let dropped = stats.dropped[DropReason::Limit as usize];
        assert!(dropped.packets > 0 && stats.cross_dropped.packets > 0, "{arrivals:?} {stats:?}");
        assert!(longest <= Nanos::from_micros(4_800), "{longest:?}");
        assert_eq!(stats.queue_max_bytes, 60_000);
        // Together they fill the link.
        let crossed = stats.cross_offered.bytes - stats.cross_dropped.bytes;
        let total = rate + crossed as f64 * 8.0 / 20.0;
        assert!((total / 1e8 - 1.0).abs() < 0.001, "{arrivals:?} {total}");
    }
}

#[test]
fn phantom_frames_are_queued_and_counted_apart() {
    // One frame each 400 µs, which takes 120 µs.
    let mut engine = engine(&plan(Arrivals::Constant, 1 << 20));
    let frames = |n| Count { packets: n, bytes: n * u64::from(LEN) };
    let stats = accounts(&mut engine, micros(399));
    assert_eq!((stats.cross_offered, stats.queue), (frames(0), frames(0)));
    let stats = accounts(&mut engine, micros(400));
    assert_eq!((stats.cross_offered, stats.queue, stats.held), (frames(1), frames(1), frames(0)));
    assert_eq!(stats.queue_max_bytes, u64::from(LEN));
    // A frame that comes at the same instant as a phantom one waits for it.
    engine.arrive(micros(800), FORWARD, &frame(LEN, 1));
    let stats = accounts(&mut engine, micros(800));
    assert_eq!((stats.cross_offered, stats.queue, stats.held), (frames(2), frames(2), frames(1)));
    let mut due = None;
    engine.release(micros(2_000), usize::MAX, &mut |d: Departure<'_>| {
        due = Some(d.due);
        true
    });
    assert_eq!(due, Some(micros(1_040)));
    let stats = accounts(&mut engine, micros(100_000));
    assert_eq!((stats.cross_offered, stats.cross_dropped), (frames(250), frames(0)));
    assert_eq!(
        (stats.received, stats.sent, stats.queue_delay.sum().0),
        (frames(1), frames(1), 240_000)
    );
}

#[test]
fn framing_counts_for_phantom_frames() {
    let mut plan = plan(Arrivals::Constant, 1 << 20);
    plan.pipes[FORWARD].framing = Framing::plain(i32::from(LEN));
    let mut engine = engine(&plan);
    engine.arrive(micros(400), FORWARD, &frame(LEN, 1));
    let mut due = None;
    while due.is_none() {
        let at = engine.next_deadline().unwrap();
        engine.release(at, usize::MAX, &mut |d: Departure<'_>| {
            due = Some(d.due);
            true
        });
    }
    assert_eq!(due, Some(micros(880)));
}

#[test]
fn change_starts_and_stops_process_at_its_instant() {
    let with = plan(Arrivals::Constant, 1 << 20);
    let mut without = with.clone();
    without.pipes[FORWARD].cross = None;
    let mut engine = engine(&without);
    assert_eq!(accounts(&mut engine, micros(10_000)).cross_offered.packets, 0);
    engine.apply(micros(10_100), with.clone(), 1, false);
    assert_eq!(accounts(&mut engine, micros(10_499)).cross_offered.packets, 0);
    assert_eq!(accounts(&mut engine, micros(10_500)).cross_offered.packets, 1);
    // A change of other parameters does not restart the process, even if the pipe was not visited
    // since.
    let mut slower = with.clone();
    slower.pipes[FORWARD].rate = BitRate::bps(RATE / 2).into();
    engine.apply(micros(11_000), slower.clone(), 2, false);
    assert_eq!(accounts(&mut engine, micros(11_300)).cross_offered.packets, 3);
    engine.apply(micros(11_400), slower, 3, true);
    assert_eq!(accounts(&mut engine, micros(11_799)).cross_offered.packets, 3);
    assert_eq!(accounts(&mut engine, micros(11_800)).cross_offered.packets, 4);
    engine.apply(micros(20_000), without, 4, false);
    let stats = accounts(&mut engine, micros(100_000));
    assert_eq!((stats.cross_offered.packets, stats.queue.packets), (24, 0));
    // Without a rate limit there is nothing to consume.
    let mut unlimited = with;
    unlimited.pipes[FORWARD].rate = BitRate::Unlimited.into();
    engine.apply(micros(100_000), unlimited, 5, false);
    assert_eq!(accounts(&mut engine, micros(900_000)).cross_offered.packets, 24);
}

#[test]
fn link_that_is_down_fills_queue_with_phantom_frames() {
    let mut plan = plan(Arrivals::Constant, 15_000);
    plan.pipes[FORWARD].rate = BitRate::Down.into();
    let mut engine = engine(&plan);
    let stats = accounts(&mut engine, micros(40_000));
    let (offered, dropped) = (stats.cross_offered.packets, stats.cross_dropped.packets);
    assert_eq!((stats.queue.packets, offered, dropped), (10, 100, 90));
    engine.arrive(micros(40_000), FORWARD, &frame(LEN, 1));
    let stats = accounts(&mut engine, micros(40_000));
    assert_eq!(stats.dropped[DropReason::Limit as usize].packets, 1);
}

#[test]
fn codel_drops_phantom_frames() {
    let mut plan = plan(Arrivals::Poisson, 1 << 20);
    let codel = CoDelPlan { target: Nanos::from_millis(5), interval: Nanos::from_millis(100) };
    plan.pipes[FORWARD].queue.aqm = AqmPlan::CoDel(codel);
    plan.pipes[FORWARD].queue.ecn = true;
    let (stats, ..) = play(&plan, 90, 10);
    assert!(stats.cross_dropped.packets > 10, "{stats:?}");
    assert!(stats.dropped[DropReason::Aqm as usize].packets > 10, "{stats:?}");
}

#[test]
fn draws_of_real_frames_do_not_depend_on_cross_traffic() {
    let lost = |cross: bool| {
        let mut plan = plan(Arrivals::Poisson, 1 << 20);
        let pipe = &mut plan.pipes[FORWARD];
        pipe.cross = pipe.cross.filter(|_| cross);
        pipe.packet_loss = LossPlan::Independent(Probability::new(0.3));
        let mut engine = engine(&plan);
        let mut came = Vec::new();
        for n in 0..2_000_u32 {
            let at = micros(u64::from(n) * 500);
            engine.arrive(at, FORWARD, &frame(LEN, n));
            engine.release(at, usize::MAX, &mut |d: Departure<'_>| {
                came.push(u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap()));
                true
            });
        }
        came.retain(|n| *n < 1_990);
        came
    };
    assert_eq!(lost(true), lost(false));
}

#[test]
fn idle_client_with_cross_traffic_expires() {
    let limits = Limits { idle: Nanos::from_secs(1), ..LIMITS };
    let mut plan = plan(Arrivals::Poisson, 1 << 20);
    plan.pipes[Direction::Return] = plan.pipes[FORWARD].clone();
    let mut engine: Engine = Engine::new(limits, plan.clone(), Instant::ZERO).unwrap();
    let mut snapshot = Snapshot::default();
    for round in 0..20_u64 {
        let at = Instant(round * 5_000_000_000);
        resolve(&mut engine, at, [[10, 0, 0, round as u8].into()]);
        engine.apply(at, plan.clone(), round, round % 2 == 0);
        for ms in 0..4_000 {
            let now = at + Nanos::from_millis(ms);
            engine.keep_up(now);
            engine.release(now, usize::MAX, &mut |_: Departure<'_>| true);
        }
        engine.snapshot(at + Nanos::from_secs(4), false, &mut snapshot);
        assert!(snapshot.clients.iter().all(|c| !matches!(c.key, ClientKey::Ip(_))), "{round}");
    }
    let of_expired = snapshot.clients.last().unwrap();
    assert_eq!(of_expired.key, ClientKey::Expired);
    assert!(of_expired.pipes[FORWARD].cross_offered.packets > 20 * 2_500 / 2);
    // Nothing of those clients is left in the store.
    assert!(engine.retire());
    engine.snapshot(Instant(100_000_000_000), false, &mut snapshot);
    assert_eq!(snapshot.store_used, 0);
}

#[test]
fn turn_of_idle_pipe_does_little() {
    // A million frames a second: a turn after half a second serves a part of them only.
    let mut plan = plan(Arrivals::Constant, 1 << 20);
    plan.pipes[FORWARD].rate = BitRate::bps(10_000_000_000).into();
    plan.pipes[FORWARD].cross =
        Some(CrossPlan { rate: 512_000_000, frame: 64, arrivals: Arrivals::Constant });
    let mut engine = engine(&plan);
    let half = micros(500_000);
    engine.keep_up(half);
    engine.keep_up(half);
    engine.release(half, usize::MAX, &mut |_: Departure<'_>| true);
    assert_eq!(engine.next_deadline(), Some(half));
    let mut turns = 0;
    while engine.next_deadline() == Some(half) {
        engine.release(half, usize::MAX, &mut |_: Departure<'_>| true);
        turns += 1;
    }
    // Each frame arrives and leaves: 256 steps a turn.
    assert!((3_800..4_000).contains(&turns), "{turns}");
    assert_eq!(accounts(&mut engine, half).cross_offered.packets, 500_000);
}

#[test]
fn unsound_cross_traffic_is_refused_with_remedy() {
    let room = Room {
        clients: 1,
        port_bps: 10_000_000_000,
        frame: 1_514,
        capacity: 1 << 34,
        workers: 1,
        tag: 0,
        unanswered: false,
    };
    let check = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan(Arrivals::Constant, 1 << 20);
        change(&mut plan);
        plan.check(room).map_err(|e| e.to_string())
    };
    let set = |cross: CrossPlan| check(&|p| p.pipes[FORWARD].cross = Some(cross));
    let sound = plan(Arrivals::Constant, 1 << 20).pipes[FORWARD].cross.unwrap();
    assert_eq!(set(sound), Ok(()));
    let says = |result: Result<(), String>, part: &str| {
        let text = result.unwrap_err();
        assert!(text.contains(part), "{text}");
    };
    says(set(CrossPlan { frame: 63, ..sound }), "frames of 63 B: choose 64 to 10224 B");
    says(set(CrossPlan { frame: 64, rate: 513_000_000, ..sound }), "a frame each 998 ns");
    for (on, off, shape) in [
        (999_999, 1_000_000, 2.0),
        (1_000_000, 999_999, 2.0),
        (1_000_000, 1_000_000, 1.0),
        (1_000_000, 1_000_000, f64::NAN),
    ] {
        let arrivals = Arrivals::OnOff(OnOff { on: Nanos(on), off: Nanos(off), shape });
        says(set(CrossPlan { arrivals, ..sound }), "choose at least 1000000 ns and a shape");
    }
    says(check(&|p| p.pipes[FORWARD].rate = BitRate::Unlimited.into()), "set a rate");
    let beams = |p: &mut Plan, rate| {
        let beam = BeamPlan { name: String::new(), rate, framing: Framing::default() };
        let automatic = Some(Share { beam: 0, weight: 1 });
        p.beams = BeamsPlan { beams: vec![beam], automatic, ..Default::default() }.into();
    };
    let limited = BitRate::bps(RATE);
    let here = ByDirection([limited, BitRate::Unlimited]);
    let there = ByDirection([BitRate::Unlimited, limited]);
    says(check(&|p| beams(p, here)), "share a beam: leave out one of both");
    assert_eq!(check(&|p| beams(p, there)), Ok(()));
    // More frames than a tenth of a core can catch up with.
    let busy = Plan {
        pipes: ByDirection([FORWARD; 2].map(|_| {
            let mut pipe = plan(Arrivals::Constant, 1 << 20).pipes[FORWARD].clone();
            pipe.cross = Some(CrossPlan { rate: 512_000_000, frame: 64, ..sound });
            pipe
        })),
        ..Plan::transparent()
    };
    assert!(matches!(busy.check(room), Err(PlanError::Work(_))));
    assert_eq!(envelope::events(&busy, room), 4_000_000);
}

#[test]
fn cross_traffic_of_whole_rate_is_remarked() {
    let room = Room { port_bps: 10_000_000_000, frame: 1_514, ..Room::default() };
    let mut plan = plan(Arrivals::Constant, 1 << 20);
    assert_eq!(remarks(&plan, room), []);
    plan.pipes[FORWARD].cross =
        Some(CrossPlan { rate: RATE, frame: 1_500, arrivals: Arrivals::Poisson });
    let [remark @ Remark::Cross { .. }] = remarks(&plan, room)[..] else { panic!() };
    assert!(remark.to_string().contains("forward: cross traffic of 100 Mbit/s"), "{remark}");
}

proptest! {
    #![proptest_config(cases(60))]

    /// A plan that was checked against a store never overloads it, with phantom frames of any
    /// kind beside real ones.
    #[test]
    fn fitting_plan_with_cross_traffic_never_overloads_store(
        arrivals in prop::sample::select(&ALL[..]),
        phantom in prop_oneof![Just(64_u32), 64_u32..1_500],
        mbps in 1_u64..150,
        len in prop_oneof![Just(34_u16), 34_u16..1_500],
        limit in 2_000_u64..100_000,
        delay_ms in 0_u64..40,
        codel in any::<bool>(),
    ) {
        let mut plan = plan(arrivals, limit);
        let pipe = &mut plan.pipes[FORWARD];
        pipe.delay.base = Nanos::from_millis(delay_ms);
        pipe.cross = Some(CrossPlan { rate: mbps * 1_000_000, frame: phantom, arrivals });
        if codel {
            let (target, interval) = (Nanos::from_micros(10), Nanos::from_micros(500));
            pipe.queue.aqm = AqmPlan::CoDel(CoDelPlan { target, interval });
        }
        // The port brings as much as the link carries.
        let room = Room { clients: 0, port_bps: RATE, frame: 1_514, capacity: 0, workers: 1, tag: 0, unanswered: false };
        let memory = plan.memory(room) as usize;
        let limits = Limits { memory, clients: 0, ..LIMITS };
        let mut engine: Engine = Engine::new(limits, plan, Instant::ZERO).unwrap();
        let (mut now, mut n) = (Instant::ZERO, 0);
        let mut bytes = vec![0_u8; usize::from(len)];
        bytes[12] = 8;
        bytes[14] = 0x45;
        bytes[16..18].copy_from_slice(&(len - 14).to_be_bytes());
        while now < micros(150_000) {
            engine.arrive(now, FORWARD, &bytes);
            n += 1;
            if n % 8 == 0 {
                engine.release(now, usize::MAX, &mut |_: Departure<'_>| true);
            }
            now = now + Nanos(u64::from(len) * 80);
        }
        let stats = accounts(&mut engine, now);
        prop_assert_eq!(stats.dropped[DropReason::Overload as usize].packets, 0);
    }
}
