// SPDX-License-Identifier: Apache-2.0
//! The fates of packets per profile and seed, as recorded: a seed means the same in each release.
//!
//! `fates.txt` has a digest of what left, and when, and of the accounts, for each built-in profile.
//! An experiment is repeatable as long as they stay. A change that is meant to alter fates replaces
//! them, and says so in the change log.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../emu/tests/numbered/mod.rs"]
mod numbered;

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use compile::compile;
use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Frame;
use emu::plan::Plan;
use emu::stats::Snapshot;
use emu::units::{Direction, Instant, Nanos};
use profile::Catalog;
use proto::dataplane::v1 as pb;
use sha2::{Digest, Sha256};

/// With 17 profiles, 510 runs, each with two changes.
const SEEDS: u64 = 30;
const BURSTS: u64 = 400;
const CLIENTS: u64 = 5;
const LIMITS: Limits =
    Limits { copy_break: 1024, buffers: 200, ..Limits::copying(64 << 20, 8, 1514) };

/// Numbers of a linear congruential generator (D. Knuth, MMIX).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// The plans of all built-in profiles, by name.
fn plans() -> Vec<(String, Plan)> {
    let plan = |entry: &profile::Entry| {
        let profile = Some(entry.profile.as_proto().clone());
        compile(&pb::Plan { profile, ..pb::Plan::default() }).unwrap()
    };
    let catalog = Catalog::built_in();
    catalog.iter().map(|entry| (entry.profile.name().to_owned(), plan(entry))).collect()
}

fn seeded(plan: &Plan, seed: u64) -> Plan {
    Plan { seed, ..plan.clone() }
}

fn frame(direction: Direction, client: u64, len: usize, number: u64) -> Vec<u8> {
    let mut f = vec![0; len];
    f[12..15].copy_from_slice(&[8, 0, 0x45]);
    // ECT(0), or not.
    f[15] = (number as u8 & 1) << 1;
    f[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    let at = if direction == Direction::Forward { 30 } else { 26 };
    f[at..at + 4].copy_from_slice(&[10, 0, 0, client as u8]);
    f[38..46].copy_from_slice(&number.to_be_bytes());
    f
}

/// Frames that left: direction, client, due time and bytes, in the order of each client.
type Left = Vec<(Direction, ClientKey, Instant, Vec<u8>)>;

fn release(engine: &mut Engine<Vec<u8>>, now: Instant, left: &mut Left) {
    while engine.next_deadline().is_some_and(|next| next <= now) {
        engine.release(now, 256, &mut |d: Departure<'_, Vec<u8>>| {
            left.push((d.direction, *d.client, d.due, d.bytes().to_vec()));
            if let Frame::Buffer(buffer) = d.frame {
                buffer.take();
            }
            true
        });
    }
}

/// Traffic of some clients through a profile, another one, and that one again.
fn run(plan: &Plan, other: &Plan, seed: u64, digest: &mut Sha256) {
    let mut left = Left::new();
    let mut numbers = Numbers(seed);
    let mut engine = Engine::new(LIMITS, seeded(plan, seed), Instant::ZERO).unwrap();
    for client in 0..CLIENTS as u8 {
        let host = Ipv4Addr::new(10, 0, 0, client);
        engine.arrive(Instant::ZERO, Direction::Return, &numbered::arp_reply(host));
    }
    let mut now = Instant::ZERO;
    for burst in 0..BURSTS {
        now = now + Nanos(numbers.below(3_000_000));
        if burst == BURSTS / 3 {
            engine.apply(now, seeded(other, seed), 1, false);
        } else if burst == BURSTS / 3 * 2 {
            engine.apply(now, seeded(plan, seed), 2, true);
        }
        let direction = Direction::BOTH[numbers.below(2) as usize];
        let mut client = numbers.below(CLIENTS);
        let frames = (0..=numbers.below(30)).map(|n| {
            if numbers.below(4) == 0 {
                client = numbers.below(CLIENTS);
            }
            let len = [60, 61, 590, 1514][numbers.below(4) as usize];
            Some(frame(direction, client, len, burst * 100 + n))
        });
        let mut frames: Vec<_> = frames.collect();
        engine.arrive_burst(now, direction, &mut frames);
        if numbers.below(3) > 0 {
            release(&mut engine, now, &mut left);
        }
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(now, false, &mut snapshot);
    for client in &snapshot.clients {
        for pipe in &client.pipes.0 {
            let counts = (pipe.received, pipe.sent, pipe.dropped, pipe.held, pipe.queue);
            digest.update(format!("{:?} {counts:?} {}", client.key, pipe.queue_max_bytes));
        }
    }
    release(&mut engine, now + Nanos::from_secs(20), &mut left);
    // Clients have no order among them.
    left.sort_by_key(|(direction, client, ..)| (*direction, *client));
    for (_, _, due, frame) in left {
        digest.update(due.0.to_be_bytes());
        digest.update(frame);
    }
}

#[test]
fn fates_per_profile_and_seed_are_those_recorded() {
    let plans = plans();
    let mut digests = String::new();
    for (n, (name, plan)) in plans.iter().enumerate() {
        let mut digest = Sha256::new();
        for seed in 1..=SEEDS {
            run(plan, &plans[(n + seed as usize) % plans.len()].1, seed, &mut digest);
        }
        let digest: String = digest.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect();
        writeln!(digests, "{name} {digest}").unwrap();
    }
    let recorded = include_str!("fates.txt");
    assert!(
        digests == recorded,
        "other fates than those in fates.txt. If they are meant to differ, replace the digests and \
         say so in the change log:\n{digests}"
    );
}
