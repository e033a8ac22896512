// SPDX-License-Identifier: Apache-2.0
use std::num::NonZeroU64;
use std::sync::Arc;

use super::*;
use crate::access::{AccessPlan, OthersPlan};
use crate::beam::{BeamPlan, Share};
use crate::check::PlanError;
use crate::delay::ExcursionPlan;
use crate::episode::fade::FadePlan;
use crate::episode::{DurationLaw, EpisodePlan};
use crate::held::HeldPlan;
use crate::si;
use proptest::prelude::*;

const ROOM: Room = Room {
    clients: 16,
    port_bps: 10_000_000_000,
    frame: 1_514,
    capacity: 4_000_000_000,
    workers: 1,
    tag: 0,
    unanswered: false,
};

/// The same in both directions: limited with a queue, or not limited.
fn plan(rate: Option<u64>, queue: u64, delay: Nanos) -> Plan {
    let mut plan = Plan::transparent();
    for p in &mut plan.pipes.0 {
        p.rate = rate.map_or(BitRate::Unlimited, BitRate::bps).into();
        p.queue.limit = queue;
        p.delay.base = delay;
    }
    plan
}

fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

#[test]
fn refusal_has_numbers_and_possible_remedies() {
    let refused = plan(None, 1 << 20, ms(5_000)).check(ROOM).unwrap_err();
    assert!(refused.is_lossy());
    let PlanError::Memory(short) = &refused else { panic!("{refused}") };
    // 2 × 10 Gbit/s × 5 s, and the bookkeeping of the shortest frames.
    assert!((12_500_000_000..20_000_000_000).contains(&short.needed), "{short:?}");
    let text = refused.to_string();
    for part in
        ["needs 1", " GB, 4 GB reserved: at most 1.", "s at 10 Gbit/s each way", "with --memory"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Someone who starts a dataplane reads this too, and has no such option.
    assert!(!text.contains("--lossy"), "{text}");
    // Only a shorter delay helps here, and none is offered.
    assert!(!text.contains("clients") && !text.contains("queues"), "{text}");
    // The memory that is asked for is enough.
    let enough = Room { capacity: short.needed, ..ROOM };
    assert_eq!(plan(None, 1 << 20, ms(5_000)).check(enough), Ok(()));

    let mut different = plan(Some(144_000_000), 360_000_000, ms(300));
    different.pipes.0[1].rate = BitRate::bps(12_000_000).into();
    different.pipes.0[1].delay.base = ms(100);
    let text = different.check(ROOM).unwrap_err().to_string();
    for part in ["of 16 clients, or queues of", "MB each way", "fewer --max-clients"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn memory_is_split_among_workers() {
    let two = Room { capacity: 2_000_000_000, workers: 2, ..ROOM };
    let refused = plan(None, 1 << 20, ms(1_000)).check(two).unwrap_err();
    let PlanError::Memory(short) = &refused else { panic!("{refused}") };
    let text = refused.to_string();
    assert!(text.contains("each of 2 workers has 2 GB reserved"), "{text}");
    let asked = si::bytes(2 * short.needed, si::Round::Up);
    assert!(text.contains(&format!("--memory {asked:?}")), "{text}");
}

#[test]
fn impossible_plan_is_refused_without_remedy() {
    let text = plan(Some(1_000_000), 1 << 30, ms(1)).check(Room { capacity: 0, ..ROOM });
    let text = text.unwrap_err().to_string();
    assert!(text.contains("no delay, queue, rate or number of clients alone"), "{text}");
}

#[test]
fn processes_above_core_share_are_refused_with_numbers() {
    let body = |correlation| {
        let mut p = plan(None, 1 << 20, ms(0));
        p.pipes.0[1].delay.body = Some(HeldPlan::renewal(correlation, [Nanos(0), Nanos(1)]));
        p
    };
    let room = Room { clients: 10_000, capacity: u64::MAX, ..ROOM };
    // 10 001 clients × 1000 a second × 120 ns.
    let refused = body(ms(1)).check(room).unwrap_err();
    assert!(refused.is_lossy());
    let PlanError::Work(busy) = &refused else { panic!("{refused}") };
    assert_eq!((busy.events, busy.work), (10_001_000, Nanos(1_200_120_000)));
    let text = refused.to_string();
    for part in ["10000 clients", "10.1 M a second, 121 %", "at most 10 %: at most 832 of 10000"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(body(ms(1)).check(Room { clients: 832, ..room }), Ok(()));
    assert!(body(ms(1)).check(Room { clients: 833, ..room }).is_err());
    assert_eq!(body(ms(20)).check(room), Ok(()));
}

#[test]
fn every_process_counts_and_a_fade_makes_outages_more_frequent() {
    let (interval, duration) = (ms(900), ms(100));
    let outage = EpisodePlan { interval, duration, law: DurationLaw::Fixed };
    let mut p = plan(None, 1 << 20, ms(0));
    p.pipes.0[0].outages = vec![outage, outage];
    let one = Room { clients: 0, ..ROOM };
    assert_eq!(events(&p, one), 2);
    p.pipes.0[1].delay.excursions = vec![ExcursionPlan {
        interval,
        duration,
        location: Nanos(0),
        scale: Nanos(0),
        shape: 0.0,
        max: Nanos(0),
        regime: None,
    }];
    assert_eq!(events(&p, one), 3);
    // Each of the outages 5 a second, and 2 ends of a fade for the three cursors.
    let factor = 9.0;
    p.pipes.0[0].fade = Some(FadePlan { interval, duration, factor });
    assert_eq!(events(&p, one), 10 + 1 + 6);
}

#[test]
fn rate_above_port_and_queue_below_frame_are_remarked() {
    assert_eq!(remarks(&plan(Some(10_000_000_000), 1_514, ms(1)), ROOM), []);
    let mut p = plan(Some(25_000_000_000), 1_513, ms(1));
    p.pipes.0[1] = PipePlan::transparent();
    let said: Vec<_> = remarks(&p, ROOM).iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("forward: 25 Gbit/s is more than the port's 10 Gbit/s"), "{said:?}");
    assert!(said[1].contains("forward: a queue of 1513 B never takes"), "{said:?}");
}

#[test]
fn the_table_is_the_store_over_the_wire_s_rate() {
    // 14.88 million frames a second of 12 + 60 bytes, and some for the rests of segments.
    let delay = longest_delay(ROOM, 10_000_000_000, Traffic::Frames(64));
    let simple = 4e18 / (10e9 / 8.0 / 84.0 * f64::from(crate::store::record_size(60)));
    let off = delay.0 as f64 / simple;
    assert!((0.98..1.0).contains(&off), "{delay:?} {simple}");
    // Twice the rate, half the delay.
    let half = longest_delay(ROOM, 20_000_000_000, Traffic::Frames(64));
    assert!(delay.0.abs_diff(2 * half.0) <= 2);
    let large = longest_delay(ROOM, 10_000_000_000, Traffic::Frames(1_518));
    let imix = longest_delay(ROOM, 10_000_000_000, Traffic::Mix(&IMIX));
    let worst = longest_delay(ROOM, 10_000_000_000, Traffic::Worst);
    // On the wire small frames take more beside their own bytes than in the store.
    for delay in [delay, large, imix] {
        assert!(worst < delay && delay.0 < 4_000_000_000, "{delay:?} {worst:?}");
    }
    // A plan is held to the worst case of the table.
    let (whole, over) = (Nanos(worst.0), Nanos(worst.0 + 1_000_000));
    let one_way = |delay| {
        let mut p = plan(None, 1 << 20, ms(0));
        p.pipes.0[0].delay.base = delay;
        p.check(ROOM)
    };
    assert_eq!(one_way(whole), Ok(()));
    assert!(one_way(over).is_err());
    for nothing in [Room { capacity: 0, ..ROOM }, Room { clients: u32::MAX, ..ROOM }] {
        assert_eq!(longest_delay(nothing, 1, Traffic::Worst), Nanos(0));
        assert_eq!(longest_delay(nothing, 0, Traffic::Mix(&[])), Nanos(0));
    }
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let pipe = || {
        (
            prop_oneof![Just(None), Just(Some(0)), (1_000..400_000_000_000_u64).prop_map(Some)],
            1_518..1_u64 << 36,
            0..60_000_000_000_u64,
            -64..256_i32,
        )
    };
    (pipe(), pipe()).prop_map(|(forward, back)| {
        let mut plan = Plan::transparent();
        for (p, (rate, queue, delay, overhead)) in plan.pipes.0.iter_mut().zip([forward, back]) {
            p.rate = rate.map_or(BitRate::Unlimited, BitRate::bps).into();
            p.queue.limit = queue;
            p.delay.base = Nanos(delay);
            p.framing = overhead.into();
        }
        plan
    })
}

proptest! {
    /// The largest value of each parameter fits, and a little more does not.
    #[test]
    fn offered_value_fits_and_larger_does_not(
        plan in any_plan(), capacity in 0_u64..1 << 38, clients in 0_u32..20_000,
    ) {
        let room = Room { clients, capacity, ..ROOM };
        let fits = Fits::of(&plan, room);
        if let Some(n) = fits.clients.value() {
            prop_assert_eq!(plan.check(Room { clients: n, ..room }), Ok(()));
            let more = plan.check(Room { clients: n + 1, ..room });
            prop_assert!(more.is_err());
        }
        type Set = fn(&mut PipePlan, u64);
        let sets: [(Option<Largest<Pair>>, Set); 3] = [
            (fits.delay, |p, v| p.delay.base = Nanos(v)),
            (fits.queue, |p, v| p.queue.limit = v),
            (fits.rate, |p, v| p.rate = BitRate::bps(v).into()),
        ];
        for (largest, set) in sets {
            let Some(values) = largest.and_then(Largest::value) else { continue };
            let mut changed = plan.clone();
            for (p, value) in changed.pipes.0.iter_mut().zip(values.0) {
                if let Some(value) = value {
                    set(p, value);
                }
            }
            prop_assert_eq!(changed.check(room), Ok(()));
        }
    }

    /// Nothing overflows or panics, and a larger value never needs less.
    #[test]
    fn memory_need_is_monotone(
        plan in any_plan(), clients in any::<u32>(), port in any::<u64>(), frame in any::<u32>(),
    ) {
        let room = Room { clients, port_bps: port, frame, capacity: 0, workers: 1, tag: 0, unanswered: false };
        let need = memory(&plan, room);
        let more = Room { clients: clients.saturating_add(1), ..room };
        prop_assert!(memory(&plan, more) >= need);
        let tagged = Room { tag: 32, ..room };
        prop_assert!(memory(&plan, tagged) >= need);
        let mut longer = plan.clone();
        longer.pipes.0[0].delay.base = Nanos(u64::MAX);
        prop_assert!(memory(&longer, room) >= need);
        let _ = (Shortage::of(&longer, more).map(|s| s.to_string()), work(&plan, room));
        for rate in [0, 1, u64::MAX] {
            let _ = longest_delay(room, rate, Traffic::Worst);
        }
    }
}

#[test]
fn superframes_of_all_terminals_count_as_work() {
    let access = AccessPlan::constant(ms(1));
    let mut on_demand = plan(None, 1 << 20, Nanos::ZERO);
    on_demand.pipes[Direction::Return].rate = RatePlan::Access(access);
    // 17 clients with 1000 superframes a second.
    assert_eq!(work(&on_demand, ROOM), Nanos(17_000 * EVENT.0));
    let many = Room { clients: 1_000, ..ROOM };
    assert!(matches!(on_demand.check(many), Err(PlanError::Work(_))));
    // 19 terminals outside the lab are as much again for each client, and for each carrier.
    let rate = NonZeroU64::new(1_000).unwrap();
    let others = OthersPlan { terminals: 19, rate, on: ms(1), off: ms(1) };
    let access = AccessPlan { others: Some(others), ..access };
    on_demand.pipes[Direction::Return].rate = RatePlan::Access(access);
    assert_eq!(work(&on_demand, ROOM), Nanos(34_000 * EVENT.0));
    let rate = ByDirection([BitRate::Unlimited, BitRate::bps(10_000_000)]);
    let beam = BeamPlan { name: String::new(), rate, framing: Framing::default() };
    let automatic = Some(Share { beam: 0, weight: 1 });
    on_demand.beams = Arc::new(BeamsPlan { beams: vec![beam], automatic, ..BeamsPlan::default() });
    assert_eq!(work(&on_demand, ROOM), Nanos(18_000 * EVENT.0));
}
