// SPDX-License-Identifier: Apache-2.0
//! Plans that are valid: they compile, and account for every frame.

use compile::compile;
use emu::engine::{Departure, Engine, Limits};
use emu::plan::{Plan, Room};
use emu::stats::Snapshot;
use emu::units::{Direction, Instant};
use proto::dataplane::v1 as dataplane;
use proto::linkemu::v1 as pb;

/// A valid request compiles and runs.
pub fn known(profile: pb::Profile, seed: u64) {
    let plan = dataplane::Plan { profile: Some(profile), seed, ..dataplane::Plan::default() };
    match compile(&plan) {
        Ok(compiled) => run(compiled),
        Err(error) => panic!("valid, and does not compile: {error}\n{plan:?}"),
    }
}

/// Frames through a plan, if the core takes it: all are accounted for.
pub fn run(plan: Plan) {
    let room = Room {
        clients: 2,
        port_bps: 1_000_000_000,
        frame: 1514,
        capacity: 1 << 20,
        workers: 1,
        tag: 0,
        unanswered: false,
    };
    if plan.check(room).is_err_and(|error| !error.is_lossy()) {
        return;
    }
    let limits = Limits::copying(1 << 20, 2, 1514);
    let Ok(mut engine) = Engine::new(limits, plan, Instant::ZERO) else { return };
    let other = [0x45; 200];
    // IPv4, from 69.69.69.69 and to it.
    let mut ip = other;
    ip[12..14].copy_from_slice(&[8, 0]);
    ip[16..18].copy_from_slice(&186_u16.to_be_bytes());
    let mut now = Instant::ZERO;
    for n in 0..64_u64 {
        now.0 += 1 << (n / 3);
        for direction in Direction::BOTH {
            engine.arrive(now, direction, if n % 2 == 0 { &other } else { &ip });
        }
        engine.release(now, 64, &mut |_: Departure<'_>| n % 3 > 0);
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(now, false, &mut snapshot);
    assert!(snapshot.is_conserved(), "{snapshot:?}");
    assert_eq!(snapshot.total().received.packets, 128);
}
