// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets for hostile files and requests. Each function takes any bytes,
//! and panics only where the product is wrong.
//!
//! `fuzz/` has the targets for `cargo fuzz` and a corpus for each; the tests play the
//! corpus and mutations of it on stable. Hostile frames are in `dataplane/emu/fuzz`.
#![allow(clippy::panic, reason = "a fuzzer's finding")]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use clients::Clients;
use compile::compile;
use emu::engine::{Departure, Engine, Limits};
use emu::plan::{Plan, Room};
use emu::stats::Snapshot;
use emu::units::{Direction, Instant};
use fit::read::{self, Options};
use profile::Profile;
use prost::Message;
use proto::dataplane::v1 as dataplane;
use proto::linkemu::v1 as pb;
use scenario::{Scenario, Timeline};
use tempfile::TempDir;

/// Steps of a scenario that are looked at.
const STEPS: usize = 2_000;

/// A profile's file. A parsed profile is written such that it parses to the same, and is a link
/// that the dataplane knows.
///
/// # Panics
/// If it is not.
pub fn profile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = Profile::from_toml(text) else { return };
    let written = read.to_toml();
    match Profile::from_toml(&written) {
        Ok(again) => assert_eq!(again.as_proto(), read.as_proto(), "{written}"),
        Err(error) => panic!("what was written is refused: {error}\n{written}"),
    }
    known(read.into_proto(), 1);
}

/// A scenario's file. One that is valid keeps its limits, its instants ascend, and it has
/// as many steps as it says.
///
/// # Panics
/// If it does not.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let scenario = match Scenario::from_toml(text) {
        Ok(scenario) => scenario,
        Err(found) => {
            assert!(!found.is_empty());
            return;
        }
    };
    assert!(scenario.steps().is_none_or(|steps| (1..=scenario::STEPS).contains(&steps)));
    assert!(scenario.length_ns().is_none_or(|length| length <= scenario::LENGTH_NS));
    let mut last = 0;
    let mut count = 0;
    let mut failed = false;
    for (i, item) in Timeline::new(&scenario, None, Default::default()).take(STEPS).enumerate() {
        // A ramp from a value that is not known here.
        let Ok(item) = item else {
            failed = true;
            break;
        };
        assert_eq!(item.index, i as u64);
        assert!(item.at_ns >= last);
        assert!(!item.action.to_string().is_empty());
        last = item.at_ns;
        count += 1;
    }
    if !failed && count < STEPS {
        assert_eq!(scenario.steps(), Some(count as u64));
        assert_eq!(scenario.length_ns(), Some(last));
    }
}

/// A file of clients. A parsed file is written such that it parses to the same, and all frames
/// are accounted for, no matter which client sent them.
///
/// # Panics
/// If it is not, or they are not.
pub fn clients(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = Clients::from_toml(text) else { return };
    let written = read.to_toml();
    match Clients::from_toml(&written) {
        Ok(again) => assert_eq!(again, read, "{written}"),
        Err(error) => panic!("what was written is refused: {error}\n{written}"),
    }
    let (rules, beams) = (read.rules().clone().into(), read.beams().clone().into());
    run(Plan { rules, beams, ..Plan::transparent() });
}

/// A file with a rate over time, in either format.
pub fn trace(data: &[u8]) {
    with_file(data, |path| {
        let _ = trace::read_rate(path, None);
        let _ = trace::read_rate(path, Some(1_000_000_000));
    });
}

/// A baseline's file, in any format.
pub fn log(data: &[u8]) {
    with_file(data, |path| {
        let _ = read::read(path, &Options::default());
    });
}

/// A request as it comes over the wire, after a byte that chooses which. A profile in it
/// that is found valid is a link that the dataplane knows.
pub fn request(data: &[u8]) {
    let Some((which, wire)) = data.split_first() else { return };
    match which % 6 {
        0 => drop(pb::PatchLinkRequest::decode(wire)),
        1 => drop(pb::SetProfileRequest::decode(wire)),
        2 => drop(pb::WatchStatsRequest::decode(wire)),
        3 => drop(pb::AcquireLeaseRequest::decode(wire)),
        4 => {
            let Ok(pb::PutProfileRequest { profile: Some(profile), .. }) =
                pb::PutProfileRequest::decode(wire)
            else {
                return;
            };
            if profile::validate(&profile).is_ok() {
                known(profile, 1);
            }
        }
        _ => {
            let Ok(dataplane::ApplyRequest { change: Some(change), .. }) =
                dataplane::ApplyRequest::decode(wire)
            else {
                return;
            };
            let Ok(merged) = owner::merge(&change, dataplane::Plan::default()) else { return };
            if let Ok(compiled) = compile(&merged.plan) {
                run(compiled);
            }
        }
    }
}

/// A valid request compiles and runs.
fn known(profile: pb::Profile, seed: u64) {
    let plan = dataplane::Plan { profile: Some(profile), seed, ..dataplane::Plan::default() };
    match compile(&plan) {
        Ok(compiled) => run(compiled),
        Err(error) => panic!("valid, and does not compile: {error}\n{plan:?}"),
    }
}

/// Frames through a plan, if the core takes it: all are accounted for.
fn run(plan: Plan) {
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

fn with_file(data: &[u8], read: impl FnOnce(&Path)) {
    static FOLDER: OnceLock<Option<TempDir>> = OnceLock::new();
    let Some(folder) = FOLDER.get_or_init(|| TempDir::with_prefix("linkemu-fuzz-").ok()) else {
        return;
    };
    let path = folder.path().join(format!("{:?}", std::thread::current().id()));
    if fs::write(&path, data).is_ok() {
        read(&path);
    }
}
