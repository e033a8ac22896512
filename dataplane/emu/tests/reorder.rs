// SPDX-License-Identifier: Apache-2.0
//! Reordering through a whole engine, by the counts of RFC 4737.

use crate::numbered::frame;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::plan::Plan;
use emu::reorder::ReorderPlan;
use emu::stats::Snapshot;
use emu::units::{BitRate, Direction, Instant, Nanos, Probability};
use proptest::prelude::*;

const FORWARD: Direction = Direction::Forward;
const GAP: Nanos = Nanos::from_micros(100);
const BASE: Nanos = Nanos::from_millis(20);

fn plan(probability: f64, by: Nanos) -> Plan {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].delay.base = BASE;
    plan.pipes[FORWARD].reorder =
        Some(ReorderPlan { probability: Probability::new(probability), by });
    plan
}

/// An engine that keeps frames of more than 1000 bytes in their buffers.
fn engine(plan: Plan) -> Engine<Vec<u8>> {
    let copying = Limits::copying(16 << 20, 1, 1_514);
    let limits = Limits { copy_break: 1_000, buffers: 4_096, ..copying };
    Engine::new(limits, plan, Instant::ZERO).unwrap()
}

/// What left, and when it was due.
type Left = Vec<(Instant, Vec<u8>)>;

fn release(engine: &mut Engine<Vec<u8>>, now: Instant, left: &mut Left) {
    engine.release(now, 256, &mut |d: Departure<'_, Vec<u8>>| {
        assert!(d.due <= now, "never early");
        left.push((d.due, d.bytes().to_vec()));
        if let Frame::Buffer(buffer) = d.frame {
            assert!(buffer.take().is_some());
        }
        true
    });
}

fn drain(engine: &mut Engine<Vec<u8>>, mut now: Instant, left: &mut Left) {
    while let Some(next) = engine.next_deadline() {
        now = now.max(next);
        release(engine, now, left);
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(now, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    assert_eq!(snapshot.total().held.packets, 0);
    assert_eq!((snapshot.store_used, snapshot.buffers), (0, 0));
}

fn len_of(number: u32) -> u16 {
    if number.is_multiple_of(3) { 1_200 } else { 60 + number as u16 % 900 }
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[34..38].try_into().unwrap())
}

#[test]
fn held_back_frames_are_overtaken_by_later_ones() {
    const N: u32 = 100_000;
    let (p, by) = (0.1, Nanos(3 * GAP.0 + GAP.0 / 2));
    let mut engine = engine(plan(p, by));
    let (mut left, mut now) = (Left::new(), Instant::ZERO);
    for number in 0..N {
        now = now + GAP;
        engine.arrive_burst(now, FORWARD, &mut [Some(frame(len_of(number), number))]);
        release(&mut engine, now, &mut left);
    }
    drain(&mut engine, now, &mut left);
    assert_eq!(left.len(), N as usize);
    let (mut held_back, mut reordered, mut overtaken, mut seen) = (0_u32, 0_u32, 0_u64, 0);
    for (i, (due, bytes)) in left.iter().enumerate() {
        let number = number(bytes);
        assert!(*bytes == frame(len_of(number), number), "frame {number} is as it was");
        let on_time = Instant::ZERO + Nanos((u64::from(number) + 1) * GAP.0) + BASE;
        assert!(*due == on_time || *due == on_time + by, "frame {number} at {due}");
        held_back += u32::from(*due != on_time);
        // RFC 4737, 3.3: earlier than one that was seen.
        if number < seen {
            assert!(*due != on_time, "who is not held back is not late");
            reordered += 1;
            // Those three, and between them others that are held back.
            overtaken += left[i.saturating_sub(6)..i]
                .iter()
                .filter(|(_, other)| self::number(other) > number)
                .count() as u64;
        }
        seen = seen.max(number);
    }
    let n = f64::from(N);
    let likely = |hits: f64, p: f64| (hits - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt();
    assert!(likely(held_back.into(), p), "{held_back}");
    // Three others come in that time; if all of those are held back too, none overtakes.
    assert!(likely(reordered.into(), p * (1.0 - p.powi(3))), "{reordered}");
    // Each of the three overtakes unless it is held back itself.
    let mean = overtaken as f64 / f64::from(held_back);
    let sd = (3.0 * p * (1.0 - p) / f64::from(held_back)).sqrt();
    assert!((mean - 3.0 * (1.0 - p)).abs() < 5.0 * sd, "{mean}");
}

#[test]
fn held_back_frames_keep_order() {
    let mut engine = engine(plan(1.0, Nanos::from_millis(5)));
    let (mut left, mut now) = (Left::new(), Instant::ZERO);
    for number in 0..1_000 {
        now = now + GAP;
        engine.arrive_burst(now, FORWARD, &mut [Some(frame(len_of(number), number))]);
        release(&mut engine, now, &mut left);
        if number == 500 {
            // By less: together with those before.
            engine.apply(now, plan(1.0, Nanos::from_millis(1)), 1, false);
        }
    }
    drain(&mut engine, now, &mut left);
    assert!(left.iter().map(|(_, bytes)| number(bytes)).eq(0..1_000));
    assert!(left.windows(2).all(|w| w[0].0 <= w[1].0));
}

proptest! {
    #![proptest_config(crate::cases(60))]

    /// Behind a queue that drops, a channel that loses, and over changes.
    #[test]
    fn every_frame_is_counted_and_others_are_unaffected(
        steps in prop::collection::vec((60_u16..1_500, 0_u64..2_000_000), 20..400),
        p in 0.0..=1.0,
        by in 0_u64..100_000_000,
        off_at in 0_usize..400,
    ) {
        let lossy = |mut plan: Plan| {
            let pipe = &mut plan.pipes[FORWARD];
            pipe.rate = BitRate::bps(8_000_000).into();
            pipe.queue.limit = 20_000;
            pipe.packet_loss = Probability::new(0.2).into();
            plan
        };
        let mut without = plan(p, Nanos(by));
        without.pipes[FORWARD].reorder = None;
        let (with, without) = (lossy(plan(p, Nanos(by))), lossy(without));
        let mut engines = [engine(with), engine(without.clone())];
        let (mut left, mut now) = ([Left::new(), Left::new()], Instant::ZERO);
        let mut snapshot = Snapshot::default();
        for (i, (len, gap)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            for (engine, left) in engines.iter_mut().zip(&mut left) {
                if i == off_at {
                    engine.apply(now, without.clone(), 1, false);
                }
                engine.arrive_burst(now, FORWARD, &mut [Some(frame(len, i as u32))]);
                release(engine, now, left);
                engine.snapshot(now, false, &mut snapshot);
                prop_assert!(snapshot.is_conserved());
            }
        }
        for (engine, left) in engines.iter_mut().zip(&mut left) {
            drain(engine, now, left);
        }
        // The same ones arrive; each when it would have, or by so much later.
        let [mut with, plain] = left;
        with.sort_by_key(|(_, bytes)| number(bytes));
        prop_assert_eq!(with.len(), plain.len());
        for ((due, bytes), (on_time, expected)) in with.iter().zip(&plain) {
            prop_assert!(bytes == expected);
            prop_assert!(due == on_time || *due == *on_time + Nanos(by), "{} {}", due, on_time);
        }
    }
}
