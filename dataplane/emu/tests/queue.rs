// SPDX-License-Identifier: Apache-2.0
//! What the accounts say of a queue, and what finds room in it.

use emu::aqm::codel::CoDelPlan;
use emu::aqm::{AqmPlan, QueuePlan};
use emu::engine::{Departure, Engine, Limits};
use emu::plan::Plan;
use emu::stats::{Count, DropReason, PipeStats, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos};

use crate::numbered::frame;

const FORWARD: Direction = Direction::Forward;
/// Of each frame; one takes a millisecond at [`engine`]'s rate.
const LEN: u16 = 1_000;

/// One client behind a queue, at a rate of one byte each microsecond.
fn engine(queue: QueuePlan) -> Engine {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = BitRate::bps(8_000_000).into();
    plan.pipes[FORWARD].queue = queue;
    Engine::new(Limits::copying(16 << 20, 1, 1_514), plan, Instant::ZERO).unwrap()
}

fn micros(n: u64) -> Instant {
    Instant::ZERO + Nanos::from_micros(n)
}

fn arrive(engine: &mut Engine, at: Instant, frames: u32) {
    for n in 0..frames {
        engine.arrive(at, FORWARD, &frame(LEN, n));
    }
}

fn accounts(engine: &mut Engine, at: Instant, mark: bool) -> PipeStats {
    let mut snapshot = Snapshot::default();
    engine.snapshot(at, mark, &mut snapshot);
    assert!(snapshot.is_conserved());
    snapshot.total()
}

fn frames(packets: u64) -> Count {
    Count { packets, bytes: packets * u64::from(LEN) }
}

#[test]
fn queue_and_high_water_mark_are_exact_at_snapshot() {
    let mut engine = engine(QueuePlan::tail_drop(100_000));
    arrive(&mut engine, Instant::ZERO, 5);
    let stats = accounts(&mut engine, Instant::ZERO, false);
    assert_eq!((stats.queue, stats.queue_max_bytes), (frames(5), 5_000));
    // Two have left, and the third is in service.
    let stats = accounts(&mut engine, micros(2_500), true);
    assert_eq!((stats.queue, stats.queue_max_bytes), (frames(3), 5_000));
    // From the mark on it is that of what is still there.
    let stats = accounts(&mut engine, micros(2_500), false);
    assert_eq!(stats.queue_max_bytes, 3_000);
    arrive(&mut engine, micros(2_500), 1);
    let stats = accounts(&mut engine, micros(9_000), false);
    assert_eq!((stats.queue, stats.queue_max_bytes), (frames(0), 4_000));
    // The mark of an empty queue.
    accounts(&mut engine, micros(9_000), true);
    assert_eq!(accounts(&mut engine, micros(9_000), false).queue_max_bytes, 0);
}

#[test]
fn queue_accepts_frames_up_to_its_limit_in_bytes() {
    let mut exact = engine(QueuePlan::tail_drop(10_000));
    arrive(&mut exact, Instant::ZERO, 11);
    let stats = accounts(&mut exact, Instant::ZERO, false);
    assert_eq!((stats.queue, stats.queue_max_bytes), (frames(10), 10_000));
    assert_eq!(stats.dropped[DropReason::Limit as usize], frames(1));
    // What has left makes room at once, also where nobody has looked since.
    arrive(&mut exact, micros(3_000), 4);
    let stats = accounts(&mut exact, micros(3_000), false);
    assert_eq!(stats.queue, frames(10));
    assert_eq!(stats.dropped[DropReason::Limit as usize], frames(2));

    let mut short = engine(QueuePlan::tail_drop(9_999));
    arrive(&mut short, Instant::ZERO, 10);
    assert_eq!(accounts(&mut short, Instant::ZERO, false).queue, frames(9));
}

#[test]
fn link_without_rate_limit_drops_frames_above_queue_limit() {
    for (limit, sent) in [(1_000, 1), (999, 0)] {
        let mut plan = Plan::transparent();
        plan.pipes[FORWARD].queue = QueuePlan::tail_drop(limit);
        let mut engine =
            Engine::new(Limits::copying(16 << 20, 1, 1_514), plan, Instant::ZERO).unwrap();
        arrive(&mut engine, Instant::ZERO, 1);
        engine.release(micros(1), usize::MAX, &mut |_: Departure<'_>| true);
        let stats = accounts(&mut engine, micros(1), false);
        assert_eq!(stats.sent, frames(sent));
        assert_eq!(stats.dropped[DropReason::Limit as usize], frames(1 - sent));
    }
}

/// CoDel drops when a frame leaves, so that its queue is behind where nobody has looked.
#[test]
fn lagging_queue_is_served_before_a_drop() {
    let codel = CoDelPlan { target: Nanos::from_millis(5), interval: Nanos::from_millis(100) };
    let queue = QueuePlan { limit: 400_000, aqm: AqmPlan::CoDel(codel), ecn: false };
    // The same frames, with a look at each millisecond and without.
    let play = |looks: bool| {
        let mut engine = engine(queue);
        let mut marks = Vec::new();
        for burst in 0..8_u64 {
            let at = micros(burst * 300_000);
            if looks {
                for ms in burst.saturating_sub(1) * 300..burst * 300 {
                    accounts(&mut engine, micros(ms * 1_000), false);
                }
            }
            arrive(&mut engine, at, 395);
            marks.push(accounts(&mut engine, at, true).queue_max_bytes);
        }
        let stats = accounts(&mut engine, micros(10_000_000), false);
        assert!(stats.dropped[DropReason::Aqm as usize].packets > 10, "{stats:?}");
        assert!(stats.dropped[DropReason::Limit as usize].packets > 10, "{stats:?}");
        (marks, stats.dropped)
    };
    assert_eq!(play(false), play(true));
}
