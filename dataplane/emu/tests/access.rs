// SPDX-License-Identifier: Apache-2.0
//! Capacity on demand: when frames of a terminal leave, against arithmetic.

use std::num::NonZeroU64;

use emu::access::{AccessPlan, Contention, LogOn, RateRequests};
use emu::engine::{Departure, Engine, Limits};
use emu::plan::Plan;
use emu::shaper::RatePlan;
use emu::stats::{PipeStats, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;

use crate::arbitrary::cases;
use crate::numbered::frame;

const RETURN: Direction = Direction::Return;
pub const SUPERFRAME: Nanos = Nanos::from_millis(40);

/// A terminal that asks for volume, 10 superframes from request to grant.
pub fn terminal() -> AccessPlan {
    AccessPlan {
        peak: NonZeroU64::new(20_000_000).unwrap(),
        superframe: SUPERFRAME,
        burst: 100,
        packs: true,
        constant: 0,
        free: 0,
        rate: None,
        volume: NonZeroU64::new(1 << 40),
        interval: Nanos::ZERO,
        request_delay: Nanos::from_millis(200),
        plan_delay: Nanos::from_millis(190),
        log_on: None,
        contention: None,
        others: None,
    }
}

fn plan(access: AccessPlan, seed: u64) -> Plan {
    let mut plan = Plan { seed, ..Plan::transparent() };
    plan.pipes[RETURN].rate = RatePlan::Access(access);
    plan.pipes[RETURN].queue.limit = 64 << 20;
    plan
}

fn engine(access: AccessPlan, seed: u64) -> Engine {
    let plan = plan(access, seed);
    let engine = Engine::new(Limits::copying(128 << 20, 2, 1_514), plan, Instant::ZERO);
    engine.unwrap()
}

pub fn millis(n: u64) -> Instant {
    Instant::ZERO + Nanos::from_millis(n)
}

/// Releases frames at each deadline until `end`. Returns the due times of the released frames.
fn released(engine: &mut Engine, end: Instant) -> Vec<Instant> {
    let mut times = Vec::new();
    while let Some(at) = engine.next_deadline().filter(|at| *at <= end) {
        engine.release(at, usize::MAX, &mut |d: Departure<'_>| {
            times.push(d.due);
            true
        });
    }
    times
}

fn accounts(engine: &mut Engine, at: Instant) -> PipeStats {
    let mut snapshot = Snapshot::default();
    engine.snapshot(at, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    snapshot.total()
}

/// Frames that arrive at instants in milliseconds, and when each left.
fn sent(engine: &mut Engine, arrivals: &[(u64, u16)], end: Instant) -> Vec<Instant> {
    let mut times = Vec::new();
    for (n, (at, len)) in arrivals.iter().enumerate() {
        times.extend(released(engine, millis(*at)));
        engine.arrive(millis(*at), RETURN, &frame(*len, n as u32));
    }
    times.extend(released(engine, end));
    times
}

#[test]
fn frame_of_idle_terminal_waits_for_constant_burst_of_next_superframe() {
    let access = AccessPlan { constant: 1, ..terminal() };
    for seed in 0..20 {
        let mut engine = engine(access, seed);
        let arrivals: Vec<_> = (0..50).map(|n| (100 + 203 * n, 100)).collect();
        let times = sent(&mut engine, &arrivals, millis(20_000));
        assert_eq!(times.len(), arrivals.len());
        let phase = times[0].0 % SUPERFRAME.0;
        for (at, (arrived, _)) in times.iter().zip(&arrivals) {
            assert!(at.since(millis(*arrived)) <= SUPERFRAME && *at > millis(*arrived));
            assert_eq!(at.0 % SUPERFRAME.0, phase, "at the start of a superframe");
        }
        let access = accounts(&mut engine, millis(20_000)).access;
        assert_eq!((access.asked, access.granted, access.used), (0, 5_000, 5_000));
    }
}

#[test]
fn frame_without_constant_burst_leaves_one_round_trip_after_its_request() {
    for seed in 0..20 {
        let mut engine = engine(terminal(), seed);
        let arrivals: Vec<_> = (0..10).map(|n| (100 + 1_007 * n, 1_000)).collect();
        let times = sent(&mut engine, &arrivals, millis(20_000));
        assert_eq!(times.len(), arrivals.len());
        for (at, (arrived, _)) in times.iter().zip(&arrivals) {
            // The request leaves with the next superframe, and 390 ms are 10 superframes.
            let waited = at.since(millis(*arrived));
            let round_trip = Nanos(10 * SUPERFRAME.0);
            assert!(waited > round_trip && waited <= round_trip + SUPERFRAME, "{waited:?}");
        }
    }
}

#[test]
fn frames_are_segmented_over_bursts() {
    // Two bursts of 100 bytes each superframe: frames of 150 bytes.
    let access = AccessPlan { constant: 2, volume: None, free: 0, ..terminal() };
    let departures = |packs| {
        let mut engine = engine(AccessPlan { packs, ..access }, 1);
        let times = sent(&mut engine, &[(10, 150); 8], millis(2_000));
        let first = times[0].0;
        times.iter().map(|at| (at.0 - first) / SUPERFRAME.0).collect::<Vec<_>>()
    };
    // Bytes 150, 300, 450, 600 and so on of 200 per superframe.
    assert_eq!(departures(true), [0, 1, 2, 2, 3, 4, 5, 5]);
    assert_eq!(departures(false), [0, 1, 2, 3, 4, 5, 6, 7], "the rest of a burst is padding");
}

#[test]
fn rate_is_granted_until_its_timeout() {
    let rate = RateRequests {
        max: NonZeroU64::new(1_000_000).unwrap(),
        timeout: Nanos::from_millis(2_000),
        gain: 0,
        drain: Nanos::from_millis(400),
        decay: Nanos::ZERO,
    };
    let access = AccessPlan {
        constant: 1,
        volume: None,
        rate: Some(rate),
        interval: Nanos::from_millis(10_000),
        ..terminal()
    };
    let mut engine = engine(access, 1);
    // 101 frames of 100 bytes. The first one leaves at once. The requested rate serves the other 100 in 10
    // superframes: 10 bursts in each, 9 of them beside the constant one. It is granted for 50 superframes.
    let mut arrivals = vec![(10, 100); 101];
    // The terminal stays busy, and may not ask again.
    arrivals.extend((0..1_000).map(|n| (60 + n, 100)));
    let times = sent(&mut engine, &arrivals, millis(8_000));
    let first = times[0].0;
    let mut per_superframe = vec![0_u32; 200];
    for at in &times {
        per_superframe[((at.0 - first) / SUPERFRAME.0) as usize] += 1;
    }
    assert_eq!(per_superframe[..10], [1; 10]);
    assert_eq!(per_superframe[10..60], [10; 50]);
    assert_eq!(per_superframe[60..150], [1; 90]);
}

#[test]
fn rate_below_a_burst_per_superframe_has_its_bursts() {
    // Two frames of 98 bytes in each superframe, with one constant burst of 150 bytes. Each request is for
    // 144 bytes per superframe, which is less than a burst.
    let rate = RateRequests {
        max: NonZeroU64::new(2_000_000).unwrap(),
        timeout: Nanos::from_millis(1_000),
        gain: 3 << 15,
        drain: Nanos::ZERO,
        decay: Nanos::ZERO,
    };
    let access = AccessPlan { burst: 150, constant: 1, rate: Some(rate), ..terminal() };
    let mut engine = engine(access, 3);
    let arrivals: Vec<_> = (0..1_000).map(|n| (1 + 20 * n, 98)).collect();
    let times = sent(&mut engine, &arrivals, millis(30_000));
    let waited = times.iter().zip(&arrivals).map(|(at, (arrived, _))| at.since(millis(*arrived)));
    assert!(waited.skip(500).all(|it| it <= Nanos(2 * SUPERFRAME.0)));
}

#[test]
fn requested_rate_falls_slowly_while_frames_arrive() {
    // 10 frames of 100 bytes in each superframe for 6 s, then one. A rate is requested each second.
    let arrivals: Vec<_> =
        (0..6_000).step_by(4).chain((6_000..12_000).step_by(40)).map(|ms| (10 + ms, 100)).collect();
    let requested = |decay| {
        let rate =
            RateRequests { drain: Nanos::ZERO, decay, ..rate_only(4_000_000, 0).rate.unwrap() };
        let rate = RateRequests { timeout: Nanos::from_millis(5_000), ..rate };
        let interval = Nanos::from_millis(1_000);
        let access = AccessPlan { interval, rate: Some(rate), ..rate_only(1, 0) };
        let mut engine = engine(access, 1);
        let mut before = 0;
        let mut bytes_of_second = |second: u64| {
            let range = second * 1_000..(second + 1) * 1_000;
            let these: Vec<_> =
                arrivals.iter().copied().filter(|(ms, _)| range.contains(ms)).collect();
            sent(&mut engine, &these, millis(range.end));
            let asked = accounts(&mut engine, millis(range.end)).access.asked;
            asked - std::mem::replace(&mut before, asked)
        };
        (0..12).map(&mut bytes_of_second).collect::<Vec<_>>()
    };
    let share = |all: &[u64], second: usize| all[second] as f64 / all[second - 1] as f64;
    let slowly = requested(Nanos::from_millis(10_000));
    // The second in which the arrivals change is measured as a mean of both.
    for second in 8..12 {
        assert!((share(&slowly, second) - 0.9).abs() < 0.01, "{slowly:?}");
    }
    let at_once = requested(Nanos::ZERO);
    assert!(at_once[8] < slowly[5] / 5, "{at_once:?}");
    assert_eq!(at_once[..6], slowly[..6]);
}

/// Requests for a rate and nothing else, of what arrives.
fn rate_only(max: u64, constant: u32) -> AccessPlan {
    let rate = RateRequests {
        max: NonZeroU64::new(max).unwrap(),
        timeout: Nanos::from_millis(1_000),
        gain: 1 << 16,
        drain: Nanos::from_millis(400),
        decay: Nanos::ZERO,
    };
    AccessPlan { constant, volume: None, rate: Some(rate), ..terminal() }
}

#[test]
fn rate_is_measured_without_the_pause_before() {
    let rate = RateRequests { drain: Nanos::ZERO, ..rate_only(4_000_000, 1).rate.unwrap() };
    let access = AccessPlan { rate: Some(rate), ..rate_only(1, 1) };
    for pause in [0, 3_600_000] {
        let mut engine = engine(access, 1);
        // 2 Mbit/s after a ping and a pause.
        let mut arrivals = vec![(5, 100)];
        arrivals.extend((0..1_000).map(|n| (100 + pause + 4 * n, 1_000)));
        let times = sent(&mut engine, &arrivals, millis(pause + 60_000));
        let (first, fast) = (millis(100 + pause), times[900]);
        let seconds = fast.since(first).0 as f64 / 1e9;
        assert!(seconds < 6.0, "the 900th of 250 frames a second left after {seconds} s");
    }
}

#[test]
fn no_more_than_the_largest_rate_is_asked_for() {
    // 16 kbit/s: 80 bytes a superframe, less than a burst.
    let mut engine = engine(rate_only(16_000, 0), 1);
    let times = sent(&mut engine, &[(5, 100); 50], millis(60_000));
    assert_eq!(times.len(), 50);
    let lasted = times[49].since(times[0]).0 as f64 / 1e9;
    let bps = 49.0 * 800.0 / lasted;
    assert!((bps / 16_000.0 - 1.0).abs() < 0.03, "{bps} bit/s");
}

#[test]
fn padding_is_asked_for() {
    let mut engine = engine(AccessPlan { packs: false, ..terminal() }, 1);
    // Ten frames of 60 bytes take ten bursts of 100.
    let times = sent(&mut engine, &[(5, 60); 10], millis(5_000));
    assert!(times.iter().all(|at| *at == times[0]), "all leave with the first grant");
    let access = accounts(&mut engine, millis(5_000)).access;
    assert_eq!((access.asked, access.granted, access.used), (1_000, 1_000, 1_000));
}

#[test]
fn upload_reaches_full_rate_after_one_round_trip_and_keeps_it() {
    let mut engine = engine(terminal(), 1);
    // 10 MB at once.
    let arrivals = vec![(5, 1_000); 10_000];
    let times = sent(&mut engine, &arrivals, millis(30_000));
    assert_eq!(times.len(), arrivals.len());
    let begins = times[0];
    let waited = begins.since(millis(5));
    let round_trip = Nanos(10 * SUPERFRAME.0);
    assert!(waited > round_trip && waited <= round_trip + SUPERFRAME);
    // 20 Mbit/s are 100,000 bytes a superframe, all from the first one on.
    let lasted = times[9_999].since(begins);
    assert_eq!(lasted, Nanos(99 * SUPERFRAME.0));
    let access = accounts(&mut engine, millis(30_000)).access;
    assert_eq!((access.asked, access.granted, access.used), (10_000_000, 10_000_000, 10_000_000));
}

#[test]
fn stream_from_idle_terminal_waits_for_a_round_trip_with_volume_and_for_none_with_rate() {
    // 2 Mbit/s: a frame of 1000 bytes each 4 ms, 10 per superframe.
    let arrivals: Vec<_> = (0..2_500).map(|n| (1 + 4 * n, 1_000)).collect();
    let waits = |access| {
        let mut engine = engine(access, 3);
        let times = sent(&mut engine, &arrivals, millis(20_000));
        let arrived = arrivals.iter().map(|(at, _)| millis(*at));
        times.iter().zip(arrived).map(|(at, arrived)| at.since(arrived)).collect::<Vec<_>>()
    };
    let round_trip = Nanos(10 * SUPERFRAME.0);
    let volume = waits(terminal());
    assert!(volume.iter().all(|it| *it > round_trip && *it <= round_trip + SUPERFRAME));
    let rate = RateRequests {
        max: NonZeroU64::new(10_000_000).unwrap(),
        timeout: Nanos::from_millis(1_000),
        gain: 1 << 16,
        drain: Nanos::from_millis(400),
        decay: Nanos::ZERO,
    };
    let with_rate = waits(AccessPlan { rate: Some(rate), ..terminal() });
    assert!(with_rate[0] > round_trip && with_rate[0] <= round_trip + SUPERFRAME);
    // What waits at first is asked for twice, as volume and as rate; then the rate is enough.
    assert!(with_rate[1_500..].iter().all(|it| *it <= SUPERFRAME), "{:?}", with_rate[2_000]);
}

#[test]
fn logged_off_terminal_logs_on_before_its_first_request() {
    let log_on = LogOn { after: Nanos::from_millis(1_000), delay: Nanos::from_millis(1_200) };
    let mut engine = engine(AccessPlan { log_on: Some(log_on), ..terminal() }, 1);
    let times = sent(&mut engine, &[(10, 500), (2_000, 500), (4_000, 500)], millis(9_000));
    let waited = |n: usize, arrived| times[n].since(millis(arrived)).0 / SUPERFRAME.0;
    assert_eq!([waited(0, 10), waited(1, 2_000), waited(2, 4_000)], [40, 10, 40]);
}

#[test]
fn requests_collide_as_often_as_aloha_says() {
    // At a load of one burst per slot one in e comes through.
    let success = Probability::new((-1.0_f64).exp());
    let contention = Contention { success, backoff: 0 };
    let log_on = LogOn { after: Nanos::ZERO, delay: Nanos::ZERO };
    let access = AccessPlan { contention: Some(contention), log_on: Some(log_on), ..terminal() };
    let mut engine = engine(access, 1);
    let arrivals: Vec<_> = (0..1_000).map(|n| (10 + 20_000 * n, 500)).collect();
    let times = sent(&mut engine, &arrivals, millis(20_000_000));
    let attempts = times.iter().zip(&arrivals).map(|(at, (arrived, _))| {
        let superframes = at.since(millis(*arrived)).0 / SUPERFRAME.0;
        assert_eq!(superframes % 10, 0, "whole round trips");
        superframes / 10
    });
    let attempts: u64 = attempts.sum();
    // Geometric with mean e and standard deviation 2.16; of 1000 means, 4 standard errors.
    let mean = attempts as f64 / 1_000.0;
    assert!((mean - 1.0_f64.exp()).abs() < 4.0 * 2.16 / 1_000_f64.sqrt(), "{mean}");
    let access = accounts(&mut engine, millis(20_000_000)).access;
    assert_eq!((access.requests, access.requests - access.collisions), (attempts, 1_000));
}

#[test]
fn change_of_peak_keeps_requests_and_change_of_access_loses_no_frame() {
    let mut engine = engine(terminal(), 1);
    for n in 0..100 {
        engine.arrive(millis(10), RETURN, &frame(1_000, n));
    }
    // After the request, before its grant.
    assert_eq!(released(&mut engine, millis(200)), []);
    let peak = NonZeroU64::new(2_000_000).unwrap();
    engine.apply(millis(200), plan(AccessPlan { peak, ..terminal() }, 1), 1, false);
    let times = released(&mut engine, millis(600));
    let first = times[0].since(millis(10)).0 / SUPERFRAME.0;
    // 10,000 bytes a superframe.
    assert_eq!((first, times.len() % 10), (10, 0));
    assert!(times.len() < 100);
    let constant = AccessPlan { constant: 5, volume: None, ..terminal() };
    engine.apply(millis(600), plan(constant, 1), 2, false);
    assert_eq!(released(&mut engine, millis(639)).len(), 0);
    // Without requests, two superframes a frame.
    let left = 100 - times.len();
    assert_eq!(released(&mut engine, millis(20_000)).len(), left);
    let mut rest = plan(constant, 1);
    rest.pipes[RETURN].rate = BitRate::Unlimited.into();
    engine.apply(millis(20_000), rest, 3, false);
    let stats = accounts(&mut engine, millis(20_000));
    assert_eq!((stats.sent.packets, stats.held.packets), (100, 0));
    // The accounts are of all plans.
    assert!(stats.access.used >= 100_000);
}

proptest! {
    #![proptest_config(cases(200))]

    /// The bytes of each superframe do not exceed the peak rate, and those of all superframes do not exceed
    /// the granted ones. Without constant and free bursts the first frame waits for its grant.
    #[test]
    fn frames_take_no_more_than_was_granted_and_not_before(
        access in crate::arbitrary::access(),
        arrivals in prop::collection::vec((0_u64..300, 60_u16..1_500), 1..60),
        seed in 0_u64..4,
    ) {
        prop_assume!(access.check().is_ok());
        let mut engine = engine(access, seed);
        let mut at = 0;
        let arrivals: Vec<_> = arrivals
            .into_iter()
            .map(|(gap, len)| { at += gap; (at, len) })
            .collect();
        let end = millis(at + 600_000);
        let times = sent(&mut engine, &arrivals, end);
        prop_assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        let mut left = 0_u64;
        for (i, at) in times.iter().enumerate() {
            left = if i > 0 && times[i - 1] == *at { left } else { 0 };
            left += u64::from(arrivals[i].1);
            // A frame may have begun in an earlier superframe.
            let bits = u128::from(access.peak.get()) * u128::from(access.superframe.0);
            let most = bits / 8_000_000_000 + u128::from(access.burst) + 1_500;
            prop_assert!(u128::from(left) <= most, "{left} of {most}");
            if access.constant + access.free == 0 {
                let waited = at.since(millis(arrivals[0].0));
                let round_trip = access.request_delay.0 + access.plan_delay.0;
                prop_assert!(i > 0 || waited.0 > round_trip);
            }
        }
        let stats = accounts(&mut engine, end);
        prop_assert!(stats.access.used <= stats.access.granted);
        prop_assert!(stats.access.collisions <= stats.access.requests);
        if access.packs {
            let served: u64 = arrivals[..times.len()].iter().map(|(_, len)| u64::from(*len)).sum();
            let queue = stats.queue.bytes;
            prop_assert!((served..=served + queue).contains(&stats.access.used));
        }
    }
}
