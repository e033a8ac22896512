// SPDX-License-Identifier: Apache-2.0
//! AQMs and marks through a whole engine: what the algorithms' own tests do not see.

use emu::aqm::codel::CoDelPlan;
use emu::aqm::pie::PiePlan;
use emu::aqm::red::RedPlan;
use emu::aqm::{AqmPlan, QueuePlan};
use emu::ecn;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::plan::Plan;
use emu::stats::{DropReason, PipeStats, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos, Probability};

const FORWARD: Direction = Direction::Forward;
/// A frame of 1250 bytes takes 1 ms at 10 Mbit/s.
const BPS: u64 = 10_000_000;
const LEN: u16 = 1_250;

const CODEL: AqmPlan =
    AqmPlan::CoDel(CoDelPlan { target: Nanos::from_millis(5), interval: Nanos::from_millis(100) });
const PIE: AqmPlan = AqmPlan::Pie(PiePlan {
    target: Nanos::from_millis(15),
    update: Nanos::from_millis(15),
    alpha: 0.125,
    beta: 1.25,
    max_burst: Nanos::from_millis(150),
});

fn red() -> AqmPlan {
    AqmPlan::Red(RedPlan {
        min: 30_000,
        max: 90_000,
        at_max: Probability::new(0.1),
        weight: Probability::new(0.002),
        packet: 1_250,
        gentle: true,
    })
}

/// What a sender says of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// It does not understand them.
    Deaf,
    Ect,
    /// It does, but its header's checksum is wrong: no host takes its packets.
    Spoilt,
}
use Sender::{Deaf, Ect, Spoilt};

fn frame(sender: Sender, number: u32) -> Vec<u8> {
    let mut f = vec![0; usize::from(LEN)];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[15] = if sender == Deaf { 0 } else { 0b10 };
    f[16..18].copy_from_slice(&(LEN - 14).to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, 1]);
    f[34..38].copy_from_slice(&number.to_be_bytes());
    let words = f[14..34].as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|w| u32::from(u16::from_be_bytes(*w))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16 ^ u16::from(sender == Spoilt);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f
}

/// What left, with its number, when it was due, and whether it is CE.
type Left = Vec<(u32, Instant, bool)>;

/// Offers `seconds` of frames of which one comes each `gap`, `keep` in the drivers' buffers.
fn play(
    queue: QueuePlan,
    gap: Nanos,
    seconds: u64,
    sender: Sender,
    keep: bool,
) -> (Left, PipeStats) {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = BitRate::bps(BPS).into();
    plan.pipes[FORWARD].queue = queue;
    plan.pipes[FORWARD].delay.base = Nanos::from_millis(20);
    let copying = Limits::copying(16 << 20, 1, 1_514);
    let limits = if keep { Limits { copy_break: 100, buffers: 8_192, ..copying } } else { copying };
    let mut engine = Engine::<Vec<u8>>::new(limits, plan, Instant::ZERO).unwrap();
    let (mut left, mut n) = (Vec::new(), 0);
    let mut now = Instant::ZERO;
    while now < Instant(seconds * 1_000_000_000) {
        n += 1;
        engine.arrive_burst(now, FORWARD, &mut [Some(frame(sender, n))]);
        engine.release(now, 64, &mut |d: Departure<'_, Vec<u8>>| {
            let mut clean =
                frame(sender, u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap()));
            let number = u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap());
            let ce = d.bytes() != clean;
            assert!(!ce || ecn::mark(&mut clean) && d.bytes() == clean, "more than a mark");
            left.push((number, d.due, ce));
            if let Frame::Buffer(buffer) = d.frame {
                assert!(buffer.take().is_some());
            }
            true
        });
        now = now + gap;
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(now, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    (left, snapshot.total())
}

fn queue(aqm: AqmPlan, ecn: bool) -> QueuePlan {
    QueuePlan { limit: 1_000_000, aqm, ecn }
}

/// How long frames waited, in milliseconds, from the `from`-th on: the time of service and
/// the constant delay apart.
fn waits(left: &Left, gap: Nanos, from: usize) -> Vec<f64> {
    let arrived = |n: u32| u64::from(n - 1) * gap.0;
    left[from..].iter().map(|(n, due, _)| (due.0 - 21_000_000 - arrived(*n)) as f64 / 1e6).collect()
}

#[test]
fn codel_drops_take_no_link_time() {
    // A tenth too much: CoDel's rhythm needs some seconds to drop that.
    let gap = Nanos::from_micros(900);
    let (left, stats) = play(queue(CODEL, false), gap, 60, Deaf, false);
    // One leaves each millisecond, whatever was dropped between.
    assert!(left.windows(2).skip(1_000).all(|w| w[1].1.since(w[0].1) == Nanos::from_millis(1)));
    let dropped = stats.dropped[DropReason::Aqm as usize].packets;
    assert_eq!(dropped, stats.dropped_total().packets);
    assert!((5_000..7_000).contains(&dropped), "{dropped}");
    // What tail drop would let wait for 800 ms waits for tens.
    let late = waits(&left, gap, left.len() - 10_000);
    assert!(late.iter().all(|ms| *ms < 100.0), "{:?}", late.iter().copied().fold(0.0, f64::max));
}

#[test]
fn codel_drops_nothing_without_overload() {
    let (left, stats) = play(queue(CODEL, false), Nanos::from_micros(1_000), 20, Deaf, false);
    assert_eq!(stats.dropped_total().packets, 0);
    assert!(left.len() > 19_000);
}

#[test]
fn pie_holds_overload_at_reference() {
    // At 1.1 times the rate the probability must come to 1/11 for the delay to stay at the
    // reference: the integral part lets it rest nowhere else.
    let gap = Nanos(909_091);
    let (left, stats) = play(queue(PIE, false), gap, 120, Deaf, false);
    let late = waits(&left, gap, left.len() / 2);
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((mean - 15.0).abs() < 1.5, "{mean} ms");
    let share =
        stats.dropped[DropReason::Aqm as usize].packets as f64 / stats.received.packets as f64;
    assert!((share - 1.0 / 11.0).abs() < 0.01, "{share}");
}

#[test]
fn red_holds_an_overload_where_its_law_drops_the_excess() {
    // Spread drops of p are one packet of (1 + 1/p) / 2: one of eleven at p = 1/21, which
    // the law has at 30 kB + 60 kB × 10/21.
    let gap = Nanos(909_091);
    let (left, _) = play(queue(red(), false), gap, 120, Deaf, false);
    let late = waits(&left, gap, left.len() / 2);
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    // Of the queue the frame in service, half done, does not wait.
    let expected = (30_000.0 + 60_000.0 * 10.0 / 21.0) / 1_250.0 - 0.5;
    assert!((mean - expected).abs() < 2.0, "{mean} and {expected} ms");
}

#[test]
fn ecn_marks_instead_of_drops() {
    // So little too much, for so short, that PIE's probability stays below a tenth.
    let gap = Nanos(990_000);
    for (aqm, seconds) in [(CODEL, 4), (PIE, 3), (red(), 4)] {
        for keep in [false, true] {
            let (left, stats) = play(queue(aqm, true), gap, seconds, Ect, keep);
            let ce = left.iter().filter(|(_, _, ce)| *ce).count() as u64;
            assert!(ce > 0, "{aqm:?}");
            // Some are still on their way.
            assert!((ce..ce + 60).contains(&stats.marked.packets), "{ce} {:?}", stats.marked);
            assert_eq!(stats.marked.bytes, stats.marked.packets * u64::from(LEN));
            assert_eq!(stats.dropped_total().packets, 0, "{aqm:?}");
            // Whose sender does not understand marks loses them, and so does who sends what
            // no host would take, where the mark would be lost.
            let without = play(queue(aqm, false), gap, seconds, Deaf, keep).1;
            assert!(without.dropped[DropReason::Aqm as usize].packets > 0, "{aqm:?}");
            for sender in [Deaf, Spoilt] {
                let (left, stats) = play(queue(aqm, true), gap, seconds, sender, keep);
                assert!(left.iter().all(|(_, _, ce)| !ce));
                assert_eq!((stats.marked.packets, stats.dropped), (0, without.dropped));
            }
        }
    }
}

#[test]
fn aqm_continues_over_change_and_pauses_without_limit() {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = BitRate::bps(BPS).into();
    plan.pipes[FORWARD].queue = queue(PIE, false);
    let mut engine =
        Engine::<Vec<u8>>::new(Limits::copying(16 << 20, 1, 1_514), plan.clone(), Instant::ZERO)
            .unwrap();
    let mut snapshot = Snapshot::default();
    let mut dropped = |engine: &mut Engine<Vec<u8>>, from_ms: u64, to_ms: u64| {
        for half in from_ms * 2..to_ms * 2 {
            let now = Instant(half * 500_000);
            engine.arrive(now, FORWARD, &frame(Deaf, half as u32));
            engine.release(now, 64, &mut |_: Departure<'_, Vec<u8>>| true);
        }
        engine.snapshot(Instant(to_ms * 1_000_000), false, &mut snapshot);
        assert!(snapshot.is_conserved());
        snapshot.total().dropped[DropReason::Aqm as usize].packets
    };
    // Twice the rate, for long enough to drop a lot.
    let first = dropped(&mut engine, 0, 10_000);
    assert!(first > 2_000, "{first}");
    let mut open = plan.clone();
    open.pipes[FORWARD].rate = BitRate::Unlimited.into();
    engine.apply(Instant(10_000_000_000), open, 1, false);
    let second = dropped(&mut engine, 10_000, 3_600_000);
    assert_eq!(first, second, "without a limit nothing waits");
    // Its probability has decayed meanwhile, and the next burst is let through.
    engine.apply(Instant(3_600_000_000_000), plan, 2, false);
    assert_eq!(second, dropped(&mut engine, 3_600_000, 3_600_100));
    assert!(dropped(&mut engine, 3_600_100, 3_610_000) > second);
}

#[test]
fn codel_choice_is_forgotten_without_limit() {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = BitRate::bps(1_000_000).into();
    plan.pipes[FORWARD].queue = queue(CODEL, false);
    let limits = Limits::copying(16 << 20, 1, 1_514);
    let mut engine = Engine::<Vec<u8>>::new(limits, plan.clone(), Instant::ZERO).unwrap();
    let mut snapshot = Snapshot::default();
    let mut dropped = |engine: &mut Engine<Vec<u8>>, at_ms: u64| {
        engine.snapshot(Instant(at_ms * 1_000_000), false, &mut snapshot);
        assert!(snapshot.is_conserved());
        snapshot.total().dropped[DropReason::Aqm as usize].packets
    };
    let burst = |engine: &mut Engine<Vec<u8>>, from_ms: u64, to_ms: u64, every: usize| {
        for ms in from_ms..to_ms {
            let now = Instant(ms * 1_000_000);
            for n in 0..every {
                engine.arrive(now, FORWARD, &frame(Deaf, n as u32));
            }
            engine.release(now, 64, &mut |_: Departure<'_, Vec<u8>>| true);
        }
    };
    burst(&mut engine, 0, 10_000, 1);
    let first = dropped(&mut engine, 10_000);
    assert!(first > 100, "{first}");
    let mut open = plan.clone();
    open.pipes[FORWARD].rate = BitRate::Unlimited.into();
    engine.apply(Instant(10_000_000_000), open, 1, false);
    burst(&mut engine, 10_000, 70_000, 1);
    engine.apply(Instant(70_000_000_000), plan, 2, false);
    let before = dropped(&mut engine, 70_000);
    // Fifty at once; for an interval of 100 ms all are let through.
    burst(&mut engine, 70_000, 70_001, 50);
    burst(&mut engine, 70_001, 70_090, 0);
    assert_eq!(dropped(&mut engine, 70_090), before);
}
