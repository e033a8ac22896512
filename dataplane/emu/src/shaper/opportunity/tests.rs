// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::client::ClientKey;
use crate::framing::Framing;
use crate::rng::StreamKey;
use crate::shaper::{Origin, RatePlan, Shaper};
use crate::units::Direction;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn origin(trace: Instant) -> Origin {
    let client = ClientKey::Default;
    let key = StreamKey { seed: 6, client, direction: Direction::Forward, epoch: 0 };
    Origin { trace, start: Instant::ZERO, key }
}

fn trace(bytes: u32, runs: &[(u32, u32)]) -> Opportunities {
    Opportunities::new(Nanos(MS), bytes, runs.iter().copied())
}

fn shaper(bytes: u32, runs: &[(u32, u32)], since: u64) -> Shaper {
    let plan = RatePlan::Opportunities(trace(bytes, runs));
    Shaper::new(&plan, Framing::plain(0), Instant(since), &origin(Instant(since)))
}

/// The link of mahimahi, millisecond by millisecond: the instants at which packets leave. A packet
/// is its arrival in ns and its bytes.
fn reference(bytes: u64, runs: &[(u32, u32)], packets: &[(u64, u64)], until: u64) -> Vec<u64> {
    let mut at = 0_u64;
    let mut lines = Vec::new();
    for (steps, count) in runs {
        at += u64::from(*steps);
        lines.extend(std::iter::repeat_n(at, *count as usize));
    }
    let period = at;
    let mut arrivals = packets.iter().copied().peekable();
    let mut queue = std::collections::VecDeque::new();
    let (mut left, mut base, mut line) = (Vec::new(), 0, 0);
    loop {
        let now = base + lines[line];
        if now > until {
            return left;
        }
        line += 1;
        if line == lines.len() {
            (line, base) = (0, base + period);
        }
        while let Some(packet) = arrivals.next_if(|packet| packet.0 < now * MS) {
            queue.push_back(packet.1);
        }
        let mut room = bytes;
        while room > 0
            && let Some(packet) = queue.front_mut()
        {
            let sent = room.min(*packet);
            (room, *packet) = (room - sent, *packet - sent);
            if *packet == 0 {
                queue.pop_front();
                left.push(now * MS);
            }
        }
    }
}

/// The same with the shaper, which is visited at arrivals only.
fn departures(bytes: u32, runs: &[(u32, u32)], packets: &[(u64, u64)], until: u64) -> Vec<u64> {
    let mut shaper = shaper(bytes, runs, 0);
    let mut queue = std::collections::VecDeque::new();
    let mut left = Vec::new();
    for (at, len) in packets.iter().copied().chain([(until * MS, 0)]) {
        while let Some(finish) = shaper.finish().filter(|finish| finish.0 <= at) {
            left.push(finish.0);
            queue.pop_front();
            match queue.front() {
                Some((arrived, len)) => shaper.follow(*len, Instant(*arrived)),
                None => shaper.rest(),
            }
        }
        if len > 0 {
            queue.push_back((at, len as u32));
            if shaper.is_idle() {
                shaper.start(Instant(at), len as u32);
            }
        }
    }
    left
}

fn runs() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let gap = prop_oneof![6 => 0_u32..4, 2 => 4_u32..40, 1 => Just(300)];
    let count = prop_oneof![6 => 0_u32..4, 1 => 4_u32..50];
    prop::collection::vec((gap, count), 1..60).prop_map(|mut runs| {
        runs.push((1, 1));
        runs
    })
}

proptest! {
    #[test]
    fn frames_leave_as_in_mahimahi(
        runs in runs(),
        bytes in prop_oneof![Just(1504), 1_u32..3000],
        packets in prop::collection::vec(
            // Also in whole milliseconds, and back to back.
            (prop_oneof![0_u64..30 * MS, (0_u64..9).prop_map(|ms| ms * MS), Just(0)], 1_u64..9000),
            0..200,
        ),
    ) {
        let mut at = 0;
        let packets: Vec<_> = packets.iter().map(|(gap, len)| {
            at += gap;
            (at, *len)
        }).collect();
        prop_assert_eq!(
            departures(bytes, &runs, &packets, 20_000),
            reference(bytes.into(), &runs, &packets, 20_000)
        );
    }

    /// A change to the same trace at any time changes nothing.
    #[test]
    fn change_to_same_trace_keeps_finish(
        runs in runs(),
        start in 0_u64..100 * MS,
        waits in 0_u64..100 * MS,
        len in 1_u32..9000,
    ) {
        let mut s = shaper(1504, &runs, 7);
        s.start(Instant(start), len);
        let (finish, behind) = (s.finish(), s.ahead(2000));
        let at = Instant(start + waits);
        if finish.is_some_and(|finish| finish > at) {
            let plan = RatePlan::Opportunities(trace(1504, &runs));
            s.replan(&plan, Framing::plain(0), at, &origin(Instant(7)));
            prop_assert_eq!((s.finish(), s.ahead(2000)), (finish, behind));
        }
    }

    #[test]
    fn bound_holds_in_every_window(runs in runs(), ms in 1_u64..500) {
        let trace = trace(1504, &runs);
        let (mut at, mut lines) = (0, Vec::new());
        for _ in 0..3 {
            for (steps, count) in &runs {
                at += u64::from(*steps);
                lines.push((at, u128::from(*count)));
            }
        }
        let bits = |bound: Bound, ms: u64| {
            u128::from(bound.rate) * u128::from(ms * MS) + u128::from(bound.burst) * 8_000_000_000
        };
        let bound = trace.bound(Nanos::from_millis(ms));
        for (i, from) in lines.iter().enumerate() {
            let mut count = 0;
            for to in &lines[i..] {
                count += to.1;
                let window = bits(bound, to.0 - from.0);
                prop_assert!(window >= count * 1504 * 8_000_000_000, "{:?}", bound);
            }
        }
    }
}

#[test]
fn frame_uses_several_opportunities_and_leaves_the_rest_to_the_next() {
    let mut s = shaper(1504, &[(1, 1), (2, 2)], 0);
    // 3000 bytes: 1504 at 1 ms, 1496 at 3 ms; 8 bytes are left of that opportunity.
    s.start(Instant::ZERO, 3000);
    assert_eq!(s.finish(), Some(Instant(3 * MS)));
    s.follow(8, Instant::ZERO);
    assert_eq!(s.finish(), Some(Instant(3 * MS)));
    // The second one of 3 ms, all of it, and then the first of the next turn.
    s.follow(1504, Instant::ZERO);
    assert_eq!(s.finish(), Some(Instant(3 * MS)));
    s.follow(1, Instant::ZERO);
    assert_eq!(s.finish(), Some(Instant(4 * MS)));
    // One that arrives with the opportunity, or after it, is too late for it.
    s.follow(1, Instant(4 * MS));
    assert_eq!(s.finish(), Some(Instant(6 * MS)));
}

#[test]
fn rate_change_applies_pro_rata_in_bytes() {
    let mut s = shaper(1000, &[(1, 1)], 0);
    s.start(Instant::ZERO, 2500);
    // After 1 ms 1500 bytes are left: 12,000 bits.
    let rate = |bps| RatePlan::Constant(BitRate::bps(bps));
    s.replan(&rate(12_000_000), Framing::plain(0), Instant(MS), &origin(Instant::ZERO));
    assert_eq!(s.finish(), Some(Instant(2 * MS)));
    // Half of that is left: 750 bytes, in two opportunities of 500.
    let plan = RatePlan::Opportunities(trace(500, &[(4, 1)]));
    s.replan(&plan, Framing::plain(0), Instant(MS + MS / 2), &origin(Instant(MS)));
    assert_eq!(s.finish(), Some(Instant(9 * MS)));
    s.replan(&rate(0), Framing::plain(0), Instant(6 * MS), &origin(Instant::ZERO));
    assert_eq!(s.finish(), None);
    s.replan(&plan, Framing::plain(0), Instant(6 * MS), &origin(Instant(2 * MS)));
    assert_eq!(s.finish(), Some(Instant(10 * MS)));
}

#[test]
fn largest_rate_is_that_of_a_step_and_mean_that_of_a_turn() {
    let of = |runs: &[(u32, u32)]| (trace(1250, runs).max(), trace(1250, runs).mean());
    let bps = BitRate::bps;
    assert_eq!(of(&[(1, 3), (4, 2)]), (bps(30_000_000), bps(10_000_000)));
    // The end of a turn is the start of the next one.
    assert_eq!(of(&[(0, 2), (5, 3)]), (bps(50_000_000), bps(10_000_000)));
    let mut s = shaper(1250, &[(1, 3), (4, 2)], 0);
    assert_eq!(s.rate(Instant::ZERO).map(NonZeroU64::get), Some(10_000_000));
    assert!(!s.is_unlimited());
}

#[test]
fn trace_without_opportunities_is_down() {
    for runs in [&[][..], &[(5, 0)], &[(0, 5)]] {
        let mut s = shaper(1504, runs, 0);
        s.start(Instant(MS), 100);
        assert_eq!((s.finish(), s.rate(Instant(MS))), (None, None));
        s.replan(
            &BitRate::Unlimited.into(),
            Framing::plain(0),
            Instant(2 * MS),
            &origin(Instant::ZERO),
        );
        assert_eq!(s.finish(), Some(Instant(2 * MS)));
    }
}

#[test]
fn end_of_time_and_largest_runs_do_not_panic() {
    let runs = [(u32::MAX, u32::MAX), (u32::MAX, u32::MAX)];
    let huge = Opportunities::new(Nanos(u64::MAX), u32::MAX, runs);
    let plan = RatePlan::Opportunities(huge.clone());
    let mut s = Shaper::new(&plan, Framing::plain(0), Instant(5), &origin(Instant(5)));
    s.start(Instant(u64::MAX - 1), 9000);
    assert_eq!(s.finish(), Some(Instant::MAX));
    assert_eq!(s.ahead(u32::MAX), Some(Instant::MAX));
    s.replan(&plan, Framing::plain(0), Instant::MAX, &origin(Instant(5)));
    let _ = (huge.max(), huge.mean(), huge.bound(Nanos(u64::MAX)));
    let mut s = shaper(1, &[(0, 7), (1, 1)], 0);
    s.start(Instant(u64::MAX - 1), 9000);
    s.follow(9000, Instant::ZERO);
    assert_eq!(s.finish(), Some(Instant::MAX));
}
