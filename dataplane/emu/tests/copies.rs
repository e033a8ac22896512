// SPDX-License-Identifier: Apache-2.0
//! Duplicates and wrong bits through a whole engine, against what chance alone makes of them.

use std::collections::BTreeMap;

use crate::numbered::frame;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::plan::{PipePlan, Plan};
use emu::stats::{DropReason, PipeStats, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos, Probability};

const FORWARD: Direction = Direction::Forward;
const N: u32 = 40_000;
const GAP: Nanos = Nanos::from_micros(100);
const BASE: Nanos = Nanos::from_millis(20);

fn len_of(number: u32) -> u16 {
    if number.is_multiple_of(2) { 60 } else { 1_200 }
}

/// What left, and when it was due, of [`N`] frames, one each [`GAP`]; every other one is kept
/// in its buffer.
fn play(change: impl Fn(&mut PipePlan)) -> (Vec<(Instant, Vec<u8>)>, PipeStats) {
    let mut plan = Plan::transparent();
    plan.pipes[FORWARD].delay.base = BASE;
    change(&mut plan.pipes[FORWARD]);
    let copying = Limits::copying(16 << 20, 1, 1_514);
    let limits = Limits { copy_break: 1_000, buffers: 4_096, ..copying };
    let mut engine = Engine::<Vec<u8>>::new(limits, plan, Instant::ZERO).unwrap();
    let (mut left, mut now) = (Vec::new(), Instant::ZERO);
    let mut snapshot = Snapshot::default();
    for number in 0..N {
        now = now + GAP;
        engine.arrive_burst(now, FORWARD, &mut [Some(frame(len_of(number), number))]);
        engine.release(now, 64, &mut |d: Departure<'_, Vec<u8>>| {
            left.push((d.due, d.bytes().to_vec()));
            if let Frame::Buffer(buffer) = d.frame {
                assert!(buffer.take().is_some());
            }
            true
        });
        if number % 1_000 == 0 {
            engine.snapshot(now, false, &mut snapshot);
            assert!(snapshot.is_conserved(), "{:?}", snapshot.total());
        }
    }
    engine.snapshot(now, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    (left, snapshot.total())
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[34..38].try_into().unwrap())
}

/// Whether `hits` of `n` may be of probability `p`: five deviations.
fn likely(hits: u64, n: u64, p: f64) -> bool {
    let n = n as f64;
    (hits as f64 - n * p).abs() <= 5.0 * (n * p * (1.0 - p)).sqrt()
}

#[test]
fn duplicates_match_probability_and_accounts() {
    let (left, stats) = play(|p| p.duplicate = Probability::new(0.1));
    assert_eq!(stats.received.packets, N.into());
    assert!(likely(stats.duplicated.packets, N.into(), 0.1), "{:?}", stats.duplicated);
    let mut copies = BTreeMap::<u32, Vec<Instant>>::new();
    for (due, bytes) in &left {
        let number = number(bytes);
        assert!(*bytes == frame(len_of(number), number), "a copy is the same frame");
        copies.entry(number).or_default().push(*due);
    }
    // Without a queue both leave at once; never more than two.
    assert!(copies.values().all(|due| due.len() == 1 || due.len() == 2 && due[0] == due[1]));
    let twice = copies.values().filter(|due| due.len() == 2).count() as u64;
    // Some are still on their way.
    assert!((twice..twice + 100).contains(&stats.duplicated.packets));
}

#[test]
fn duplicate_has_its_own_place_and_fate() {
    // 50 Mbit/s come: the link carries them once, and not twice.
    let (_, stats) = play(|p| {
        p.rate = BitRate::bps(80_000_000).into();
        p.queue.limit = 30_000;
        p.duplicate = Probability::ONE;
    });
    assert_eq!(stats.duplicated, stats.received);
    assert!(stats.dropped[DropReason::Limit as usize].packets > 0);
    // Of two that are lost with one half each, both arrive in a quarter of the cases.
    let (left, stats) = play(|p| {
        p.duplicate = Probability::ONE;
        p.packet_loss = Probability::new(0.5).into();
    });
    let mut copies = BTreeMap::<u32, u32>::new();
    left.iter().for_each(|(_, bytes)| *copies.entry(number(bytes)).or_default() += 1);
    let two = copies.values().filter(|n| **n == 2).count() as u64;
    let one = copies.values().filter(|n| **n == 1).count() as u64;
    let gone = u64::from(N) - BASE.0 / GAP.0;
    assert!(likely(two, gone, 0.25) && likely(one, gone, 0.5), "{two} and {one} of {gone}");
    assert!(likely(stats.dropped[DropReason::Loss as usize].packets, 2 * u64::from(N), 0.5));
}

#[test]
fn corruption_flips_one_payload_bit_of_a_share() {
    let (left, stats) = play(|p| {
        p.corrupt = Probability::new(0.2);
        p.packet_loss = Probability::new(0.5).into();
    });
    let lost = stats.dropped[DropReason::Loss as usize].packets;
    assert!(likely(stats.corrupted.packets, u64::from(N) - lost, 0.2), "{:?}", stats.corrupted);
    let (mut wrong, mut wrong_bytes, mut of_large) = (0, 0, 0);
    for (due, bytes) in &left {
        // Its number may be what is wrong.
        let number = ((due.0 - BASE.0) / GAP.0 - 1) as u32;
        let clean = frame(len_of(number), number);
        assert_eq!((bytes.len(), &bytes[..14]), (clean.len(), &clean[..14]));
        let bits: u32 = bytes.iter().zip(&clean).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert!(bits <= 1);
        wrong += u64::from(bits);
        wrong_bytes += u64::from(bits) * bytes.len() as u64;
        of_large += u64::from(bits) * u64::from(bytes.len() == 1_200);
    }
    // Some are still on their way.
    assert!((wrong..wrong + 100).contains(&stats.corrupted.packets));
    assert!((wrong_bytes..wrong_bytes + 100_000).contains(&stats.corrupted.bytes));
    assert!(likely(of_large, wrong, 0.5), "kept and copied ones alike");
}

#[test]
fn duplicates_and_corruption_change_no_other_fate() {
    let lossy = |p: &mut PipePlan| p.packet_loss = Probability::new(0.1).into();
    let (plain, _) = play(lossy);
    let (corrupted, stats) = play(|p| {
        lossy(p);
        p.corrupt = Probability::new(0.5);
    });
    assert!(stats.corrupted.packets > 0);
    let dues = |left: &[(Instant, Vec<u8>)]| left.iter().map(|(due, _)| *due).collect::<Vec<_>>();
    assert_eq!(dues(&plain), dues(&corrupted));
}
