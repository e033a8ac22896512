// SPDX-License-Identifier: Apache-2.0
//! Plays the fuzzer's corpus, and mutations of it, through the fuzzer's body.

#[path = "../fuzz/fuzz_targets/body.rs"]
mod body;

use std::fs;
use std::path::Path;

use emu::client::ClientKey;
use emu::rng::{Stage, Stream, StreamKey};
use emu::units::{Direction, Nanos};

#[test]
fn corpus_and_mutations_do_not_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/frames");
    let key =
        StreamKey { seed: 1, client: ClientKey::Bypass, direction: Direction::Return, epoch: 0 };
    let mut random = Stream::new(key, Stage::Aqm, 1);
    let mut below = |n: usize| random.below(Nanos(n as u64)).0 as usize;
    let mut played = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let data = fs::read(entry.unwrap().path()).unwrap();
        body::frames(&data);
        for _ in 0..2_000 {
            let mut mutant = data.clone();
            for _ in 0..=below(4) {
                let at = below(mutant.len());
                mutant[at] = below(256) as u8;
            }
            mutant.truncate(1 + below(mutant.len()));
            body::frames(&mutant);
            played += 1;
        }
    }
    assert!(played >= 20_000, "{played}");
}
