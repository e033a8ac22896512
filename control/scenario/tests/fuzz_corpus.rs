// SPDX-License-Identifier: Apache-2.0
//! Plays the fuzzer's corpus, and mutations of it and of the built-in scenarios, through
//! the fuzzer's body.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../fuzz/fuzz_targets/body.rs"]
mod body;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::fs;
use std::path::Path;

fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    for folder in ["fuzz/corpus/scenario", "scenarios"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            texts.push(fs::read(entry.unwrap().path()).unwrap());
        }
    }
    // The order of a directory is not defined; that of the cases is.
    texts.sort();
    texts
}

#[test]
fn the_corpus_does_no_harm() {
    let corpus = corpus();
    assert!(corpus.len() >= 10, "{}", corpus.len());
    for data in corpus {
        body::scenario(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::with_cases(2_000)
    })]

    #[test]
    fn mutations_of_the_corpus_do_no_harm(
        which in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        splice in any::<prop::sample::Index>(),
    ) {
        let corpus = corpus();
        let mut data = corpus[which.index(corpus.len())].clone();
        for (at, byte) in edits {
            let at = at.index(data.len());
            data[at] = byte;
        }
        // A piece of another one in the middle.
        let other = &corpus[from.index(corpus.len())];
        let cut = splice.index(other.len());
        let at = splice.index(data.len());
        data.splice(at..at, other[cut..other.len().min(cut + 40)].iter().copied());
        body::scenario(&data);
    }
}
