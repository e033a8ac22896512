// SPDX-License-Identifier: Apache-2.0
//! Histories of links and of groups by seeds: `cargo run -p simulation -- --help`.

use simulation::{Failure, Script, World, failure, run, simulate_all};

/// Outcomes that one history in a hundred reaches, at least.
const OF_LINKS: [&str; 14] = [
    "made at once",
    "made at an instant",
    "made together",
    "repeated",
    "stale",
    "withdrawn",
    "refused",
    "key used again",
    "the caller has gone",
    "restored",
    "scenario finished",
    "scenario stopped",
    "scenario paused",
    "scenario resumed",
];
const OF_GROUPS: [&str; 12] = [
    "made at once",
    "made at an instant",
    "made without a box",
    "no answer",
    "repeated",
    "stale",
    "withdrawn",
    "refused",
    "key used again",
    "box lost",
    "scenario finished",
    "scenario stopped",
];

const OF_LINKD: [&str; 13] = [
    "made",
    "repeated",
    "stale",
    "refused",
    "no lease",
    "no answer",
    "acquired",
    "restored",
    "returned",
    "run",
    "run under a lease",
    "linkd was started again",
    "the dataplane was started again",
];

fn check(world: World, seeds: u64, outcomes: &[&str]) -> Result<(), Failure> {
    let coverage = simulate_all(world, 0..seeds, || {}).map_err(|seed| failure(world, seed))?;
    for what in outcomes {
        let often = coverage.get(what).is_some_and(|times| times * 100 >= seeds);
        assert!(often, "{what}: {coverage:?}");
    }
    Ok(())
}

#[test]
fn histories_of_links_are_sound() -> Result<(), Failure> {
    check(World::Links, 2_000, &OF_LINKS)
}

#[test]
fn histories_of_groups_are_sound() -> Result<(), Failure> {
    check(World::Group, 60, &OF_GROUPS)
}

#[test]
fn histories_of_linkd_are_sound() -> Result<(), Failure> {
    check(World::Linkd, 30, &OF_LINKD)
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn hundred_thousand_histories_of_links_are_sound() -> Result<(), Failure> {
    check(World::Links, 100_000, &OF_LINKS)
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn ten_thousand_histories_of_groups_are_sound() -> Result<(), Failure> {
    check(World::Group, 10_000, &OF_GROUPS)
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn five_thousand_histories_of_linkd_are_sound() -> Result<(), Failure> {
    check(World::Linkd, 5_000, &OF_LINKD)
}

#[test]
fn seed_has_one_history() {
    for (world, seeds) in [(World::Links, 20), (World::Group, 4)] {
        for seed in 0..seeds {
            let script = Script::of(world, seed);
            assert_eq!(run(&script), run(&script), "{world:?}, seed {seed}");
        }
    }
}
