// SPDX-License-Identifier: Apache-2.0
//! Plays each target's corpus, mutations of it, and random bytes.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target};
use libtest_mimic::{Arguments, Failed, Trial};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// Words of some format, besides any byte.
const WORDS: [&str; 16] = [
    "0",
    "-1",
    "1e999",
    "nan",
    "18446744073709551616",
    "1725927977397135872",
    "\n",
    ",",
    "=",
    "[[",
    "\"",
    "%",
    " ms",
    "{}",
    "\u{ff}\u{ff}",
    "\0\0\0\0",
];
/// Bytes of a random input.
const RANDOM: usize = 400;

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.next_u64() as usize % n.max(1)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.below(RANDOM);
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    fn mutant(&mut self, data: &[u8]) -> Vec<u8> {
        let mut mutant = data.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(mutant.len());
            let to = (at + self.below(8)).min(mutant.len());
            let word = match self.below(WORDS.len() + 2) {
                0 => vec![self.below(256) as u8],
                // A part of it once more.
                1 => mutant[at..(at + self.below(200)).min(mutant.len())].to_vec(),
                n => WORDS[n - 2].as_bytes().to_vec(),
            };
            mutant.splice(at..to, word);
        }
        if self.below(4) == 0 {
            mutant.truncate(self.below(mutant.len()));
        }
        mutant
    }
}

/// Files of the corpora, in a stable order.
fn seeds(target: &Target) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = format!("fuzz/corpus/{}", target.name);
    let own = root.join(own);
    let folders = own.is_dir().then_some(own).into_iter();
    let folders = folders.chain(target.seeds.iter().map(|folder| root.join(folder)));
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

/// All inputs of the short form, and so many times as many. An input that is found is in
/// `build/fuzz-TARGET`.
fn play(target: &Target, times: usize) {
    let mut random = Random(ChaCha8Rng::seed_from_u64(1));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build");
    let input = root.join(format!("fuzz-{}", target.name));
    fs::create_dir_all(root).unwrap();
    let kept = fs::File::create(&input).unwrap();
    let run = |data: &[u8]| {
        // A stack overflow or an abort leaves no other trace.
        kept.write_all_at(data, 0).unwrap();
        kept.set_len(data.len() as u64).unwrap();
        (target.run)(data);
    };
    let files = seeds(target);
    assert!(files.len() >= 2 || target.mutants == 0, "{files:?}");
    for file in files {
        let data = fs::read(&file).unwrap();
        run(&data);
        for _ in 0..target.mutants * times {
            run(&random.mutant(&data));
        }
    }
    for _ in 0..target.random * times {
        run(&random.bytes());
    }
    fs::remove_file(input).unwrap();
}

/// `fuzz/Cargo.toml` and the soak parts have each target.
fn targets_are_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
    let parts = fs::read_to_string(root.join("../../scripts/soak.sh")).unwrap();
    for target in TARGETS {
        let name = target.name;
        assert!(listed.contains(&format!("[[bin]]\nname = \"{name}\"\n")), "{name}");
        assert!(parts.contains(&format!("\nfuzz-{name} ")), "{name}");
    }
    assert_eq!(listed.matches("[[bin]]").count(), TARGETS.len());
}

fn main() {
    // Times as many inputs, to look for faults without cargo-fuzz.
    let times = std::env::var("FUZZ_TIMES").map_or(1, |times| times.parse().unwrap());
    let mut trials: Vec<Trial> = TARGETS
        .iter()
        .map(|target| {
            let name = format!("{}_does_no_harm", target.name);
            Trial::test(name, move || {
                play(target, times);
                Ok::<_, Failed>(())
            })
        })
        .collect();
    trials.push(Trial::test("targets_are_listed", || {
        targets_are_listed();
        Ok(())
    }));
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    fuzz::end();
    conclusion.exit();
}
