// SPDX-License-Identifier: Apache-2.0
//! A rate that changes with time, through a whole engine in virtual time: what each step
//! lets through, where the trace is for whom, and when a change begins it anew.

use emu::engine::{Departure, Engine, Limits};
use emu::plan::Plan;
use emu::shaper::{RatePlan, RateTrace};
use emu::units::{BitRate, Direction, Instant, NANOS_PER_SEC, Nanos};
use proptest::prelude::*;

const LIMITS: Limits = Limits::copying(64 << 20, 4, 1514);
const FORWARD: Direction = Direction::Forward;

fn plan(rate: impl Into<RatePlan>) -> Plan {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = rate.into();
    plan.pipes[FORWARD].queue.limit = 1 << 30;
    plan
}

fn trace(step: Nanos, rates: &[u64]) -> RatePlan {
    RatePlan::Trace(RateTrace::new(step, rates))
}

fn frame(client: u8, len: usize) -> Vec<u8> {
    let mut f = vec![0; len];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, client]);
    f
}

/// Releases what is due, whenever something is, up to `until`: the due times.
fn due(engine: &mut Engine, until: Instant) -> Vec<Instant> {
    let mut due = Vec::new();
    while let Some(t) = engine.next_deadline().filter(|t| *t <= until) {
        engine.release(t, usize::MAX, &mut |d: Departure<'_>| {
            due.push(d.due);
            true
        });
    }
    due
}

#[test]
fn each_step_serves_rate_times_length() {
    let step = Nanos::from_millis(20);
    let rates = [10_000_000, 0, 144_000_000, 3_000_000, 0, 0, 77_777_777];
    let start = Instant(123_456_789);
    let mut engine = Engine::new(LIMITS, plan(trace(step, &rates)), start).unwrap();
    let (len, turns) = (1514_usize, 40);
    let all = step.0 * rates.len() as u64 * turns;
    let most = rates.iter().sum::<u64>() * turns * step.0 / NANOS_PER_SEC / 8 / len as u64;
    for _ in 0..=most {
        engine.arrive(start, FORWARD, &frame(1, len));
    }
    let due = due(&mut engine, start + Nanos(all));
    // All of it, less one that has begun.
    assert!(due.len() as u64 == most || due.len() as u64 == most + 1, "{}", due.len());
    for i in 0..rates.len() as u64 * turns {
        let rate = rates[i as usize % rates.len()];
        let (from, to) = (start.0 + i * step.0, start.0 + (i + 1) * step.0);
        let bytes = due.iter().filter(|d| d.0 > from && d.0 <= to).count() * len;
        let stated = (rate * step.0 / NANOS_PER_SEC / 8) as usize;
        assert!(bytes.abs_diff(stated) <= len, "{bytes} of {stated} in step {i}");
        assert!(rate > 0 || bytes == 0);
    }
}

#[test]
fn late_client_is_at_same_step_as_others() {
    // Up for a millisecond in ten.
    let mut rates = [0; 10];
    rates[7] = 12_112_000_000;
    let step = Nanos::from_millis(1);
    let mut engine = Engine::new(LIMITS, plan(trace(step, &rates)), Instant(5)).unwrap();
    for (client, at) in [(1, 5_u64), (2, 333_000_000), (3, 777_702_000_000)] {
        engine.arrive(Instant(at), FORWARD, &frame(client, 1514));
        // 1 µs into the next step that is up.
        let up = (at - 5) / 10_000_000 * 10_000_000 + 5 + 7_000_000;
        assert_eq!(due(&mut engine, Instant::MAX), [Instant(up + 1_000)]);
    }
}

#[test]
fn unchanged_trace_continues_over_change_and_restarts_with_restart() {
    let step = Nanos::from_millis(1);
    // 1514 bytes take 1 ms at the first step's rate, and are down for nine.
    let mut rates = [0; 10];
    rates[0] = 12_112_000;
    let first = plan(trace(step, &rates));
    let mut later = plan(trace(step, &rates));
    later.seed = 7;
    later.pipes[FORWARD].delay.base = Nanos::from_millis(100);
    let ms = |n: u64| Instant(n * 1_000_000);
    let change = |plan: &Plan, restart: bool| {
        let mut engine = Engine::new(LIMITS, first.clone(), Instant::ZERO).unwrap();
        engine.arrive(Instant(400_000), FORWARD, &frame(1, 1514));
        engine.arrive(Instant(400_000), FORWARD, &frame(1, 1514));
        engine.apply(ms(5), plan.clone(), 1, restart);
        due(&mut engine, Instant::MAX)
    };
    // 0.6 ms of the first frame in the first turn, the rest in the second.
    let goes_on = [Instant(10_400_000), Instant(20_400_000)];
    assert_eq!(change(&first, false), goes_on);
    assert_eq!(change(&later, false), goes_on.map(|t| t + Nanos::from_millis(100)));
    let anew = [Instant(5_400_000), Instant(15_400_000)];
    assert_eq!(change(&first, true), anew);
    // Another trace begins at its change.
    assert_eq!(change(&plan(trace(step, &rates[..9])), false), [anew[0], Instant(14_400_000)]);
}

#[test]
fn change_within_step_applies_pro_rata() {
    // 1250 bytes, 10 ms at 1 Mbit/s: 3 ms at 1 Mbit/s, 2 at 2, then at 0.5 the other 3 ms.
    let step = Nanos::from_millis(3);
    let varying = plan(trace(step, &[1_000_000, 2_000_000]));
    let mut engine = Engine::new(LIMITS, varying.clone(), Instant::ZERO).unwrap();
    engine.arrive(Instant::ZERO, FORWARD, &frame(1, 1250));
    engine.apply(Instant(5_000_000), plan(BitRate::bps(500_000)), 1, false);
    // Of which 1 ms is left after 4 ms, for a trace that begins there.
    engine.apply(Instant(9_000_000), varying, 2, false);
    assert_eq!(due(&mut engine, Instant::MAX), [Instant(10_000_000)]);
}

#[test]
fn trace_of_link_down_holds_frames_until_change() {
    let mut engine =
        Engine::new(LIMITS, plan(trace(Nanos::from_millis(1), &[0; 65_536])), Instant::ZERO)
            .unwrap();
    engine.arrive(Instant::ZERO, FORWARD, &frame(1, 1514));
    engine.arrive(Instant(7_000_000), FORWARD, &frame(1, 1514));
    assert_eq!(engine.next_deadline(), None);
    engine.keep_up(Instant(1 << 62));
    engine.apply(Instant(1 << 62), plan(BitRate::Unlimited), 1, false);
    assert_eq!(due(&mut engine, Instant::MAX), [Instant(1 << 62); 2]);
}

proptest! {
    /// Frames leave at the same instants whether a pipe is looked at at every turn of a
    /// run loop or only when it says so, over changes in mid-step.
    #[test]
    fn due_times_do_not_depend_on_number_of_visits(
        rates in prop::collection::vec(prop_oneof![Just(0), 1_000_000_u64..1_000_000_000], 1..6),
        step in 1_000_000_u64..5_000_000,
        arrivals in prop::collection::vec((0_u64..1_000_000, 60_usize..1514), 1..200),
        changes in prop::collection::vec((0_usize..200, any::<bool>(), 0_usize..3), 0..4),
    ) {
        let other: Vec<u64> = rates.iter().rev().copied().collect();
        let plans = [
            plan(trace(Nanos(step), &rates)),
            plan(trace(Nanos(step), &other)),
            plan(BitRate::bps(50_000_000)),
        ];
        let run = |every: u64| {
            let mut engine = Engine::new(LIMITS, plans[0].clone(), Instant::ZERO).unwrap();
            let mut due = Vec::new();
            let mut note = |d: Departure<'_>| {
                due.push(d.due);
                true
            };
            let mut now = Instant::ZERO;
            for (i, (gap, len)) in arrivals.iter().enumerate() {
                let at = now + Nanos(*gap);
                while now + Nanos(every) < at {
                    now = now + Nanos(every);
                    engine.release(now, usize::MAX, &mut note);
                    engine.keep_up(now);
                }
                now = at;
                for (_, restart, which) in changes.iter().filter(|c| c.0 == i) {
                    engine.apply(now, plans[*which].clone(), i as u64, *restart);
                }
                engine.arrive(now, FORWARD, &frame(1, *len));
            }
            engine.apply(now, plans[2].clone(), 200, false);
            while let Some(t) = engine.next_deadline() {
                engine.release(t, usize::MAX, &mut note);
            }
            due
        };
        let seldom = run(u64::MAX);
        prop_assert_eq!(seldom.len(), arrivals.len());
        prop_assert_eq!(run(100_000), seldom);
    }
}
