// SPDX-License-Identifier: Apache-2.0
//! What a client's histograms say, against what can be computed by hand.

use crate::numbered::resolve;
use emu::engine::{Departure, Engine, Limits};
use emu::histogram::{LatenessTally, QueueDelayTally};
use emu::plan::Plan;
use emu::stats::{PipeStats, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos};

const FORWARD: Direction = Direction::Forward;
const FRAMES: u64 = 1_000;
/// 1514 bytes at 12.112 Mbit/s.
const SERVICE: Nanos = Nanos::from_millis(1);
const BASE: Nanos = Nanos::from_millis(300);

fn frame(client: u8) -> Vec<u8> {
    let mut f = vec![0; 1514];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&1500_u16.to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, client]);
    f
}

fn engine() -> Engine {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].rate = BitRate::bps(12_112_000).into();
    plan.pipes[FORWARD].queue.limit = 1 << 30;
    plan.pipes[FORWARD].delay.base = BASE;
    let mut engine = Engine::new(Limits::copying(64 << 20, 4, 1514), plan, Instant::ZERO).unwrap();
    resolve(&mut engine, Instant::ZERO, [[10, 0, 0, 1].into()]);
    engine
}

/// The forward accounts of the third client, the first after the fixed ones.
fn pipe(engine: &mut Engine, now: Instant) -> PipeStats {
    let mut snapshot = Snapshot::default();
    engine.snapshot(now, true, &mut snapshot);
    snapshot.clients[2].pipes[FORWARD]
}

#[test]
fn burst_waits_for_earlier_frames() {
    let mut engine = engine();
    for _ in 0..FRAMES {
        engine.arrive(Instant::ZERO, FORWARD, &frame(1));
    }
    let (mut queue_delay, mut lateness) = (QueueDelayTally::default(), LatenessTally::default());
    (1..=FRAMES).for_each(|k| queue_delay.count(Nanos(k * SERVICE.0)));
    // Half of it is not served yet.
    let half = Instant::ZERO + Nanos(FRAMES / 2 * SERVICE.0);
    let served: u64 = pipe(&mut engine, half).queue_delay.counts().iter().sum();
    assert_eq!(served, FRAMES / 2);
    // Everything leaves at once, the first one latest.
    let end = Instant::ZERO + Nanos(FRAMES * SERVICE.0) + BASE + Nanos(777);
    while engine.next_deadline().is_some_and(|next| next <= end) {
        engine.release(end, usize::MAX, &mut |_: Departure<'_>| true);
    }
    (1..=FRAMES).for_each(|k| lateness.count(Nanos((FRAMES - k) * SERVICE.0 + 777)));
    let stats = pipe(&mut engine, end);
    assert_eq!(stats.sent.packets, FRAMES);
    assert_eq!(stats.queue_delay, queue_delay.histogram());
    assert_eq!(stats.lateness, lateness.histogram());
    // A mark does not touch them, and other pipes have none of it.
    assert_eq!(pipe(&mut engine, end).lateness, lateness.histogram());
    let mut snapshot = Snapshot::default();
    engine.snapshot(end, false, &mut snapshot);
    let all = snapshot.clients.iter().map(|client| &client.pipes[FORWARD]);
    let all = all.fold(PipeStats::default(), PipeStats::plus);
    assert_eq!(all.queue_delay, queue_delay.histogram());
    assert_eq!(snapshot.clients[2].pipes[Direction::Return], PipeStats::default());
}

#[test]
fn without_queue_nothing_waits_and_refused_frame_is_late_once() {
    let plan = Plan::transparent();
    let mut engine =
        Engine::<emu::frame::NoBuffer>::new(Limits::copying(1 << 20, 4, 1514), plan, Instant::ZERO)
            .unwrap();
    resolve(&mut engine, Instant::ZERO, [[10, 0, 0, 1].into()]);
    engine.arrive(Instant(5), FORWARD, &frame(1));
    for now in [5, 6, 7] {
        engine.release(Instant(now), usize::MAX, &mut |_: Departure<'_>| false);
    }
    engine.release(Instant(5_005), usize::MAX, &mut |_: Departure<'_>| true);
    let stats = pipe(&mut engine, Instant(5_005));
    fn one<const N: usize>(bucket: usize) -> [u64; N] {
        std::array::from_fn(|b| u64::from(b == bucket))
    }
    assert_eq!((*stats.queue_delay.counts(), stats.queue_delay.sum()), (one(0), Nanos::ZERO));
    // 4.1 µs < 5 µs ≤ 8.2 µs.
    assert_eq!((*stats.lateness.counts(), stats.lateness.sum()), (one(3), Nanos(5_000)));
}
