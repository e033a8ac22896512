// SPDX-License-Identifier: Apache-2.0
//! The fuzz target, and the test that runs its corpus.

use emu::classify::classify;
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::mtu::{AnswerPlan, MtuPlan};
use emu::plan::Plan;
use emu::stats::Snapshot;
use emu::units::{Direction, Instant};

/// Takes `data` as frames, each after its direction and its length in two bytes. None
/// may panic; all must be accounted for; frames leave unchanged, except that the return direction
/// has an MTU, the least one, and answers.
pub fn frames(mut data: &[u8]) {
    let limits = Limits::copying(1 << 20, 2, 1514);
    let mut plan = Plan::transparent();
    let answers = AnswerPlan { v4: None, v6: None, rate: 1_000_000 };
    plan.pipes[Direction::Return].mtu = Some(MtuPlan { limit: 68, answers: Some(answers) });
    let Ok(mut engine) = Engine::new(limits, plan, Instant::ZERO) else {
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
            if *d.client == ClientKey::Bypass && d.direction != direction {
                assert!(direction == Direction::Return && frame.len() > 68 + 14);
                assert!(d.bytes().len() > 14 + 28 && d.bytes()[..6] == frame[6..12]);
            } else {
                assert_eq!((d.direction, d.bytes()), (direction, frame));
            }
            true
        });
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(now, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    assert_eq!(snapshot.total().received.packets, offered);
    assert_eq!(snapshot.total().held.packets, 0);
}
