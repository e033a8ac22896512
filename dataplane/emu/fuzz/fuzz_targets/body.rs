// SPDX-License-Identifier: Apache-2.0
//! The fuzz target, and the test that runs its corpus.

use emu::classify::classify;
use emu::engine::{Departure, Engine, Limits};
use emu::plan::Plan;
use emu::stats::Snapshot;
use emu::units::{Direction, Instant};

/// Takes `data` as frames, each after its direction and its length in two bytes. None
/// may panic; all must be accounted for; frames leave unchanged.
pub fn frames(mut data: &[u8]) {
    let limits = Limits::copying(1 << 20, 2, 1514);
    let Ok(mut engine) = Engine::new(limits, Plan::transparent(), Instant::ZERO) else {
        return;
    };
    let mut now = Instant::ZERO;
    let mut offered = 0;
    while let Some((&[way, high, low], rest)) = data.split_first_chunk::<3>() {
        let direction = Direction::BOTH[usize::from(way % 2)];
        let n = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (frame, rest) = rest.split_at(n);
        data = rest;
        now.0 += 1000;
        offered += 1;
        let _ = classify(frame, direction);
        engine.arrive(now, direction, frame);
        engine.release(now, 64, &mut |d: Departure<'_>| {
            assert_eq!((d.direction, d.bytes()), (direction, frame));
            true
        });
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(now, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    assert_eq!(snapshot.total().received.packets, offered);
    assert_eq!(snapshot.total().held.packets, 0);
}
