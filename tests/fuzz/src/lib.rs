// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets for hostile files and requests. Each takes any bytes, and panics only where the
//! product is wrong: a panic of its own, or a promise that is not kept.
//!
//! `fuzz/` has the targets for `cargo fuzz` and a corpus for each; the tests play the
//! corpus and mutations of it on stable. Hostile frames are in `dataplane/emu/fuzz`.
#![allow(clippy::panic, reason = "a fuzzer's finding")]

mod api;
mod entropy;
mod files;
mod lab;
mod logs;
mod plan;
mod requests;
mod switch;

use std::io::Write as _;
use std::path::Path;
use tempfile::NamedTempFile;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As in `fuzz/Cargo.toml`, and of the folder of its corpus.
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Inputs of the short form for each file of the corpus.
    pub mutants: usize,
    /// Random inputs of the short form.
    pub random: usize,
    /// Folders with more seeds, from this crate's.
    pub seeds: &'static [&'static str],
}

/// A target of texts or files.
const fn mutated(name: &'static str, run: fn(&[u8]), seeds: &'static [&'static str]) -> Target {
    Target { name, run, mutants: 400, random: 100, seeds }
}

/// A target that draws a message or a log from the bytes, so that any bytes make a possible one.
const fn drawn(name: &'static str, run: fn(&[u8]), random: usize) -> Target {
    Target { name, run, mutants: 0, random, seeds: &[] }
}

const BOXES: &[&str] = &[
    "../../hw-configs/lab-10gbe-x710-quad",
    "../../hw-configs/lab-100gbe-cx6",
    "../../hw-configs/tofino-wedge100",
];

/// All targets. `fuzz/Cargo.toml` and `scripts/soak.sh` have a line for each.
pub const TARGETS: &[Target] = &[
    mutated("profile", files::profile, &["../../proto/profile/profiles"]),
    mutated("clients", files::clients, &[]),
    mutated("scenario", files::scenario, &["../../proto/scenario/scenarios"]),
    mutated("trace", files::trace, &[]),
    mutated("theaterq", files::theaterq, &[]),
    mutated("orbit", files::orbit, &[]),
    Target { mutants: 100, ..mutated("box", files::box_file, BOXES) },
    mutated("group", files::group, &[]),
    Target { mutants: 100, ..mutated("pair", logs::pair, &[]) },
    mutated("log", logs::log, &["../../control/fit/baselines"]),
    drawn("estimate", logs::estimate, 60),
    mutated("traffic", logs::traffic, &["../../control/fit/src/traffic/iperf"]),
    mutated("request", requests::request, &[]),
    drawn("api", api::call, 500),
    Target { mutants: 40, ..mutated("json", api::json, &[]) },
    drawn("state", lab::state, 20),
    drawn("p4runtime", switch::p4runtime, 600),
    drawn("shim", requests::shim, 2_000),
];

/// Runs the target of this name.
///
/// # Panics
/// If it finds something, or there is no such target.
pub fn play(name: &str, data: &[u8]) {
    match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => (target.run)(data),
        None => panic!("there is no target {name}"),
    }
}

/// Removes what the servers of the targets have left on disk.
pub fn end() {
    lab::end();
}

/// Lets `read` read a file with this content.
fn with_file(data: &[u8], read: impl FnOnce(&Path)) {
    let Ok(mut file) = NamedTempFile::with_prefix("linkemu-fuzz-") else { return };
    if file.write_all(data).is_ok() {
        read(file.path());
    }
}
