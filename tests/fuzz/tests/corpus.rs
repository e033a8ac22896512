// SPDX-License-Identifier: Apache-2.0
//! Plays each target's corpus, and mutations of it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

const MUTANTS: usize = 400;
/// Words of some format, besides any byte.
const WORDS: [&str; 12] =
    ["0", "-1", "1e999", "nan", "18446744073709551616", "\n", ",", "=", "[[", "\"", "%", " ms"];

fn play(target: &str, run: fn(&[u8]), more: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut below = |n: usize| random.next_u64() as usize % n.max(1);
    let mut seeds = 0;
    for folder in [&*format!("fuzz/corpus/{target}")].iter().chain(more) {
        let mut files: Vec<_> =
            fs::read_dir(root.join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        for file in files {
            let data = fs::read(&file).unwrap();
            seeds += 1;
            run(&data);
            for _ in 0..MUTANTS {
                let mut mutant = data.clone();
                for _ in 0..=below(4) {
                    let at = below(mutant.len());
                    let to = (at + below(8)).min(mutant.len());
                    let word = match below(WORDS.len() + 1) {
                        0 => vec![below(256) as u8],
                        n => WORDS[n - 1].as_bytes().to_vec(),
                    };
                    mutant.splice(at..to, word);
                }
                if below(4) == 0 {
                    mutant.truncate(below(mutant.len()));
                }
                run(&mutant);
            }
        }
    }
    assert!(seeds >= 3, "{seeds} seeds");
}

#[test]
fn no_profile_s_file_does_harm() {
    play("profile", fuzz::profile, &["../../proto/profile/profiles"]);
}

#[test]
fn no_file_of_clients_does_harm() {
    play("clients", fuzz::clients, &[]);
}

#[test]
fn no_scenario_s_file_does_harm() {
    play("scenario", fuzz::scenario, &["../../proto/scenario/scenarios"]);
}

#[test]
fn no_trace_s_file_does_harm() {
    play("trace", fuzz::trace, &[]);
}

#[test]
fn no_baseline_s_file_does_harm() {
    play("log", fuzz::log, &["../../control/fit/baselines"]);
}

#[test]
fn no_request_does_harm() {
    play("request", fuzz::request, &[]);
}
