// SPDX-License-Identifier: Apache-2.0
use super::*;

use crate::client::ClientKey;
use crate::held::{Clock, Grid, HeldPlan, Hold, Values};
use crate::units::{Direction, Probability};
use proptest::prelude::*;

const PLAIN: Framing = Framing::plain(0);

/// A trace runs since `trace`.
fn origin(trace: Instant) -> Origin {
    let client = ClientKey::Default;
    let key = StreamKey { seed: 6, client, direction: Direction::Forward, epoch: 0 };
    Origin { trace, start: Instant::ZERO, key }
}

fn start(plan: &RatePlan) -> Shaper {
    Shaper::new(plan, PLAIN, Instant::ZERO, &origin(Instant::ZERO))
}

#[test]
fn busy_shaper_does_not_drift_over_hours() {
    // 1514 bytes at 144 Mbit/s take 84,111.1̅ ns; nine take 757,000 ns exactly.
    let mut s = start(&BitRate::bps(144_000_000).into());
    s.start(Instant::ZERO, 1514);
    let n = 9 * 5_000_000_u64;
    for _ in 1..n {
        s.follow(1514, Instant::ZERO);
    }
    assert_eq!(s.finish(), Some(Instant(n / 9 * 757_000)));
}

#[test]
fn rate_change_applies_pro_rata() {
    // 1250 bytes at 1 Mbit/s take 10 ms. After 4 ms the rate is halved: 6 ms
    // of work take 12.
    let mut s = start(&BitRate::bps(1_000_000).into());
    s.start(Instant::ZERO, 1250);
    s.replan(&BitRate::bps(500_000).into(), PLAIN, Instant(4_000_000), &origin(Instant::ZERO));
    assert_eq!(s.finish(), Some(Instant(16_000_000)));
    // Down for a second at 10 ms: the rest waits.
    s.replan(&BitRate::Down.into(), PLAIN, Instant(10_000_000), &origin(Instant::ZERO));
    assert_eq!(s.finish(), None);
    s.replan(&BitRate::bps(500_000).into(), PLAIN, Instant(1_010_000_000), &origin(Instant::ZERO));
    assert_eq!(s.finish(), Some(Instant(1_016_000_000)));
    s.replan(&BitRate::Unlimited.into(), PLAIN, Instant(1_011_000_000), &origin(Instant::ZERO));
    assert_eq!(s.finish(), Some(Instant(1_011_000_000)));
}

proptest! {
    #[test]
    fn rate_changes_conserve_work(
        len in 60_u32..9000,
        changes in prop::collection::vec((1_u64..2_000_000, 1_000_u64..100_000_000_000), 0..50),
        first in 1_000_u64..1_000_000_000,
    ) {
        // Sum the work done in each span by exact arithmetic and compare.
        let mut s = start(&BitRate::bps(first).into());
        s.start(Instant::ZERO, len);
        let mut left = i128::from(len) * 8 * 1_000_000_000;
        let (mut t, mut rate) = (0_u64, first);
        for (step, next) in changes {
            if s.finish().is_some_and(|f| f.0 <= t + step) {
                break;
            }
            t += step;
            left -= i128::from(step) * i128::from(rate);
            s.replan(&BitRate::bps(next).into(), PLAIN, Instant(t), &origin(Instant::ZERO));
            rate = next;
        }
        let exact = i128::from(t) + (left + i128::from(rate) - 1) / i128::from(rate);
        prop_assert_eq!(i128::from(s.finish().unwrap().0), exact);
    }
}

/// An event of a test.
#[derive(Clone, Debug)]
enum Event {
    Change(RatePlan, Instant),
    Arrive(u32),
}

/// When frames leave, up to `horizon`.
fn departures(first: &RatePlan, events: &[(u64, Event)], horizon: u64) -> Vec<u64> {
    let mut s = start(first);
    let mut queue = std::collections::VecDeque::new();
    let mut left = Vec::new();
    let mut serve = |s: &mut Shaper, queue: &mut std::collections::VecDeque<u32>, t: u64| {
        while let Some(finish) = s.finish().filter(|f| f.0 <= t) {
            left.push(finish.0);
            queue.pop_front();
            match queue.front() {
                Some(len) => s.follow(*len, Instant::ZERO),
                None => s.rest(),
            }
        }
    };
    for (t, event) in events {
        serve(&mut s, &mut queue, *t);
        match event {
            Event::Change(plan, since) => s.replan(plan, PLAIN, Instant(*t), &origin(*since)),
            Event::Arrive(len) => {
                queue.push_back(*len);
                if s.is_idle() {
                    s.start(Instant(*t), *len);
                }
            }
        }
    }
    serve(&mut s, &mut queue, horizon);
    left
}

/// How long two series of changes are compared.
const HORIZON: u64 = 5_000_000;

/// Checks that frames, by gap and length, leave at the same times under two series of changes.
fn same_departures(
    mut subject: Vec<(u64, Event)>,
    mut reference: Vec<(u64, Event)>,
    arrivals: Vec<(u64, u32)>,
) -> Result<(), TestCaseError> {
    let mut t = 0;
    for (gap, len) in arrivals {
        t += gap;
        subject.push((t, Event::Arrive(len)));
        reference.push((t, Event::Arrive(len)));
    }
    subject.sort_by_key(|e| e.0);
    reference.sort_by_key(|e| e.0);
    let first = RatePlan::Constant(BitRate::Down);
    prop_assert_eq!(departures(&first, &subject, HORIZON), departures(&first, &reference, HORIZON));
    Ok(())
}

fn course() -> impl Strategy<Value = (u64, Vec<u64>)> {
    let rate = prop_oneof![
        2 => Just(0),
        1 => 1_u64..1_000_000,
        4 => 1_000_000_u64..10_000_000_000,
        1 => Just(12_112_000_000_000),
    ];
    (1_u64..100_000, prop::collection::vec(rate, 1..8))
}

proptest! {
    /// A trace equals the changes of rate that it describes, each at its boundary, also
    /// where the trace itself is changed in mid-step.
    #[test]
    fn trace_equals_rate_change_at_each_boundary(
        courses in prop::collection::vec((0_u64..1_000_000, any::<bool>(), course()), 1..5),
        arrivals in prop::collection::vec((0_u64..40_000, 60_u32..9_000), 1..100),
    ) {
        let mut at = 0;
        let mut traces = Vec::new();
        for (i, (lasts, goes_on, (step, rates))) in courses.into_iter().enumerate() {
            // A trace that has just started, or one that has run for long.
            let since = if goes_on && i > 0 { at / 2 } else { at };
            traces.push((at, since, step, rates));
            at += lasts;
        }
        let (mut subject, mut reference) = (Vec::new(), Vec::new());
        for (i, (at, since, step, rates)) in traces.iter().enumerate() {
            let trace = RatePlan::Trace(RateTrace::new(Nanos(*step), rates));
            subject.push((*at, Event::Change(trace, Instant(*since))));
            let until = traces.get(i + 1).map_or(HORIZON, |t| t.0);
            let mut t = *at;
            while t < until {
                let k = (t - since) / step;
                let rate = BitRate::bps(rates[k as usize % rates.len()]);
                reference.push((t, Event::Change(rate.into(), Instant::ZERO)));
                t = since + (k + 1) * step;
            }
        }
        same_departures(subject, reference, arrivals)?;
    }
}

#[test]
fn link_down_for_a_step_serves_in_next_step() {
    // 1250 bytes at 1 Mbit/s take 10 ms, of a link that is up in 2 ms of 5.
    let ms = Nanos::from_millis;
    let trace = RatePlan::Trace(RateTrace::new(ms(1), &[1_000_000, 1_000_000, 0, 0, 0]));
    let mut s = start(&trace);
    s.start(Instant::ZERO, 1250);
    assert_eq!(s.finish(), Some(Instant::ZERO + ms(4 * 5 + 2)));
    let mut down = vec![0; 65_536];
    s.replan(
        &RatePlan::Trace(RateTrace::new(ms(1), &down)),
        PLAIN,
        Instant(1),
        &origin(Instant(1)),
    );
    assert_eq!(s.finish(), None);
    down[65_535] = 1_000_000_000;
    let trace = RatePlan::Trace(RateTrace::new(ms(1), &down));
    s.replan(&trace, PLAIN, Instant(2), &origin(Instant::ZERO));
    // The rest when the link went down, a nanosecond after the start.
    let left = (10_000_000 - 1) * 1_000_000_u64;
    assert_eq!(s.finish(), Some(Instant::ZERO + ms(65_535) + Nanos(left.div_ceil(1_000_000_000))));
}

#[test]
fn boundary_under_a_nanosecond_before_end_of_frame_counts() {
    // 12,112 bits take 12,112.00001 ns, and after 12,112 the link is down for as long.
    let trace = RateTrace::new(Nanos(12_112), &[999_999_999, 0]);
    let mut s = start(&RatePlan::Trace(trace));
    s.start(Instant::ZERO, 1514);
    assert_eq!(s.finish(), Some(Instant(2 * 12_112 + 1)));
}

#[test]
fn idle_shaper_skips_trace_in_constant_time() {
    // A bit a second in steps of a millisecond: a frame takes 12 million steps.
    let slow = RatePlan::Trace(RateTrace::new(Nanos::from_millis(1), &[1, 0]));
    let mut s = start(&slow);
    let year = 365 * 24 * 3600 * NANOS_PER_SEC;
    s.start(Instant(100 * year), 1514);
    let service = 2 * 12_112 * NANOS_PER_SEC - 1_000_000;
    assert_eq!(s.finish(), Some(Instant(100 * year + service)));
    s.rest();
    s.start(Instant(u64::MAX - 1), 1514);
    assert_eq!(s.finish(), Some(Instant::MAX));
}

fn shaper(bps: u64, overhead: i32) -> Shaper {
    Shaper::constant(BitRate::bps(bps), overhead.into())
}

#[test]
fn rate_of_an_idle_shaper_is_the_rate_of_the_step_then() {
    let ms = Nanos::from_millis;
    let trace = RatePlan::Trace(RateTrace::new(ms(1), &[1_000_000, 2_000_000, 0]));
    let mut s = start(&trace);
    let rate = |s: &mut Shaper, at| s.rate(Instant(at)).map(NonZeroU64::get);
    assert_eq!(rate(&mut s, 999_999), Some(1_000_000));
    assert_eq!(rate(&mut s, 1_000_000), Some(2_000_000));
    assert_eq!(rate(&mut s, 2_000_000), None);
    // 125 bytes take 1 ms, and end with the first step: a busy shaper has that rate.
    let mut s = start(&trace);
    s.start(Instant::ZERO, 125);
    assert_eq!(s.finish(), Some(Instant(1_000_000)));
    assert_eq!(rate(&mut s, 1_500_000), Some(1_000_000));
    assert_eq!(rate(&mut shaper(5_000, 0), 7), Some(5_000));
    assert_eq!(shaper_of(BitRate::Unlimited).rate(Instant::ZERO), None);
    assert_eq!(shaper_of(BitRate::Down).rate(Instant::ZERO), None);
}

fn shaper_of(rate: BitRate) -> Shaper {
    start(&rate.into())
}

#[test]
fn largest_rate_of_a_trace_is_that_of_its_fastest_step() {
    let trace = RateTrace::new(Nanos(5), &[1_000, 7_000, 0, 3_000]);
    assert_eq!(RatePlan::Trace(trace).max(), BitRate::bps(7_000));
    assert_eq!(RatePlan::Constant(BitRate::bps(9)).max(), BitRate::bps(9));
}

#[test]
fn only_a_shaper_without_a_limit_is_unlimited_and_serves_at_once() {
    assert!(!shaper(1, 0).is_unlimited());
    assert!(!shaper_of(BitRate::Down).is_unlimited());
    let mut s = shaper_of(BitRate::Unlimited);
    assert!(s.is_unlimited() && s.is_idle());
    s.start(Instant(3), 1514);
    assert!(!s.is_idle());
    assert_eq!((s.finish(), s.ahead(1514)), (Some(Instant(3)), Some(Instant(3))));
}

#[test]
fn frames_ahead_leave_at_the_rate_until_the_next_step() {
    // 1250 bytes at 1 Mbit/s take 10 ms.
    let mut s = shaper(1_000_000, 0);
    assert_eq!(s.ahead(1250), None);
    s.start(Instant::ZERO, 1250);
    assert_eq!(s.ahead(0), Some(Instant(10_000_000)));
    assert_eq!(s.ahead(2500), Some(Instant(30_000_000)));
    s.replan(&BitRate::Down.into(), PLAIN, Instant(1), &origin(Instant::ZERO));
    assert_eq!(s.ahead(1250), None);
    // In the steps of a trace nothing is known beyond the next boundary.
    let ms = Nanos::from_millis;
    let trace = RatePlan::Trace(RateTrace::new(ms(15), &[1_000_000, 500_000]));
    let mut s = start(&trace);
    s.start(Instant::ZERO, 1250);
    assert_eq!(s.ahead(125), Some(Instant(11_000_000)));
    assert_eq!(s.ahead(2500), Some(Instant(15_000_000)));
}

#[test]
fn overhead_is_charged_from_the_next_frame_on_and_leaves_at_least_a_byte() {
    // A byte takes 8 us.
    let mut s = shaper(1_000_000, 20);
    s.start(Instant::ZERO, 100);
    assert_eq!(s.finish(), Some(Instant(960_000)));
    s.replan(
        &BitRate::bps(1_000_000).into(),
        Framing::plain(-200),
        Instant(10),
        &origin(Instant::ZERO),
    );
    assert_eq!(s.finish(), Some(Instant(960_000)));
    s.follow(100, Instant::ZERO);
    assert_eq!(s.finish(), Some(Instant(968_000)));
    s.follow(300, Instant::ZERO);
    assert_eq!(s.finish(), Some(Instant(1_768_000)));
}

#[test]
fn frame_that_arrives_as_the_one_before_leaves_keeps_the_remainder() {
    // 1514 bytes at 144 Mbit/s take 84,111.1̅ ns.
    let mut s = shaper(144_000_000, 0);
    s.start(Instant::ZERO, 1514);
    s.follow(1514, Instant(84_111));
    for _ in 2..10 {
        s.follow(1514, Instant::ZERO);
    }
    assert_eq!(s.finish(), Some(Instant(841_112)));
    // One that arrives later begins at its arrival.
    s.follow(1514, Instant(900_000));
    assert_eq!(s.finish(), Some(Instant(984_112)));
    for _ in 1..9 {
        s.follow(1514, Instant::ZERO);
    }
    assert_eq!(s.finish(), Some(Instant(1_657_000)));
}

#[test]
fn idle_shaper_stays_idle_over_changes_and_follows_nothing() {
    let mut s = shaper(1_000_000, 0);
    s.replan(&BitRate::bps(2_000_000).into(), PLAIN, Instant(5), &origin(Instant::ZERO));
    s.follow(1514, Instant(6));
    assert!(s.is_idle());
    assert_eq!(s.finish(), None);
}

/// A process that goes through these shares, each for `step`.
fn listed(step: u64, shares: &[f64]) -> HeldPlan {
    let grid = Grid { period: Nanos(step), phase: Nanos::ZERO, clock: Clock::Start };
    let shares = shares.iter().map(|s| Probability::new(*s).raw()).collect();
    HeldPlan { hold: Hold::Period(grid), values: Values::Listed(shares) }
}

fn varying(peak: u64, shares: [Option<HeldPlan>; 3]) -> RatePlan {
    RatePlan::Varying(VaryingPlan { peak: NonZeroU64::new(peak).unwrap(), shares })
}

#[test]
fn rate_is_product_of_peak_and_shares() {
    let shares =
        [Some(listed(3_000_000, &[1.0, 0.5])), None, Some(listed(2_000_000, &[0.5, 0.25]))];
    let plan = varying(8_000_000, shares);
    assert_eq!(plan.max(), BitRate::bps(4_000_000));
    let mut s = start(&plan);
    let mut rate = |ms: u64| s.rate(Instant(ms * 1_000_000)).map(NonZeroU64::get);
    let found: Vec<_> = (0..6).map(&mut rate).collect();
    // Shares: 1, 1, 1, 1/2, 1/2, 1/2, and 1/2, 1/2, 1/4, 1/4, 1/2, 1/2.
    let mbps = |n: u64| Some(n * 1_000_000);
    assert_eq!(found, [mbps(4), mbps(4), mbps(2), mbps(1), mbps(2), mbps(2)]);
}

#[test]
fn zero_share_is_down_and_small_share_is_not() {
    let mut s = start(&varying(1_000_000, [Some(listed(5_000_000, &[0.0, 1.0])), None, None]));
    s.start(Instant::ZERO, 125);
    // Down for 5 ms, then 1 ms.
    assert_eq!(s.finish(), Some(Instant(6_000_000)));
    let mut s = start(&varying(1_000_000, [Some(listed(5_000_000, &[1e-9])), None, None]));
    assert_eq!(s.rate(Instant::ZERO).map(NonZeroU64::get), Some(1_000));
    let mut s = start(&varying(1_000_000, [Some(listed(5_000_000, &[0.0])), None, None]));
    s.start(Instant::ZERO, 125);
    assert_eq!(s.finish(), None);
}

#[test]
fn drawn_shares_do_not_depend_on_traffic() {
    let quantiles = [0.2, 0.6, 1.0].map(|s| Probability::new(s).raw());
    let values = Values::Quantiles(quantiles.into());
    let share = HeldPlan { hold: Hold::Exponential(Nanos::from_millis(5)), values };
    let plan = varying(10_000_000, [Some(share), None, None]);
    let (mut busy, mut idle) = (start(&plan), start(&plan));
    let mut rates = std::collections::BTreeSet::new();
    busy.start(Instant::ZERO, 1514);
    for i in 1..5_000 {
        busy.follow(1514, Instant::ZERO);
        let finish = busy.finish().unwrap();
        if i % 7 == 0 {
            // At the end of a frame a busy shaper is in the step before a boundary.
            let rate = idle.rate(finish - Nanos(1));
            assert_eq!(busy.rate(finish), rate, "at {finish}");
            rates.insert(rate);
        }
    }
    assert!(rates.len() > 100, "{} rates", rates.len());
}

proptest! {
    /// Shares equal the changes of rate that they describe, each at its boundary, also where
    /// the peak is changed.
    #[test]
    fn shares_equal_rate_change_at_each_boundary(
        peaks in prop::collection::vec((0_u64..1_000_000, 1_000_000_u64..1_000_000_000), 1..5),
        step in 1_000_u64..200_000,
        shares in prop::collection::vec(prop_oneof![Just(0.0), 0.01..=1.0], 1..6),
        arrivals in prop::collection::vec((0_u64..40_000, 60_u32..9_000), 1..100),
    ) {
        let raw: Vec<u128> = shares.iter().map(|s| Probability::new(*s).raw().into()).collect();
        let (mut subject, mut reference) = (Vec::new(), Vec::new());
        let mut at = 0;
        for (i, (lasts, peak)) in peaks.iter().enumerate() {
            let plan = varying(*peak, [None, Some(listed(step, &shares)), None]);
            subject.push((at, Event::Change(plan, Instant::ZERO)));
            let until = peaks.get(i + 1).map_or(HORIZON, |_| at + lasts);
            let mut t = at;
            while t < until {
                let share = raw[(t / step) as usize % raw.len()];
                let rate = ((u128::from(*peak) * share) >> 32) as u64;
                reference.push((t, Event::Change(BitRate::bps(rate).into(), Instant::ZERO)));
                t = (t / step + 1) * step;
            }
            at = until;
        }
        same_departures(subject, reference, arrivals)?;
    }
}
