// SPDX-License-Identifier: Apache-2.0
//! Which cases a run has: not every combination, but each value of each property beside the
//! others' worst.

use emu::units::Nanos;

use crate::case::{Case, Profile};
use crate::sizes::Sizes;

pub const SIZES: [Sizes; 4] =
    [Sizes::Fixed(64), Sizes::Fixed(512), Sizes::Fixed(1518), Sizes::Imix];
/// All delays, ms.
pub const DELAYS_MS: [u64; 4] = [1, 10, 100, 300];
/// All numbers of clients.
pub const CLIENTS: [u32; 3] = [1, 100, 10_000];

const SMALL: Sizes = Sizes::Fixed(64);

/// The case that most goals are about.
#[must_use]
pub fn smallest() -> Case {
    Case::new(SMALL, Profile::Full, 300, 1)
}

/// The case of full frames.
#[must_use]
pub fn full_frames() -> Case {
    Case::new(Sizes::Fixed(1518), Profile::Full, 300, 1)
}

#[must_use]
pub fn mix() -> Case {
    Case::new(Sizes::Imix, Profile::Full, 300, 1)
}

/// The smallest frames, to 10,000 clients.
#[must_use]
pub fn many_clients() -> Case {
    Case { clients: 10_000, ..smallest() }
}

/// The cases that are worth their time, or a few of them; with a filter, the case of exactly that
/// name, or else those with it in their names, out of all combinations if none of these has it.
#[must_use]
pub fn cases(quick: bool, filter: Option<&str>) -> Vec<Case> {
    let chosen = if quick { few() } else { many() };
    let Some(filter) = filter else { return chosen };
    if let Some(one) = every().into_iter().find(|c| c.to_string() == filter) {
        return vec![one];
    }
    let with = |cases: Vec<Case>| -> Vec<Case> {
        cases.into_iter().filter(|c| c.to_string().contains(filter)).collect()
    };
    let found = with(chosen);
    if found.is_empty() { with(every()) } else { found }
}

/// The cases with a budget. Their delays are short, so that callgrind fills them in seconds.
#[must_use]
pub fn guarded() -> Vec<Case> {
    let full = |sizes, clients| Case::new(sizes, Profile::Full, 10, clients);
    let smallest = Case::new(SMALL, Profile::Full, 1, 1);
    vec![
        Case::new(SMALL, Profile::Transparent, 0, 1),
        Case::new(SMALL, Profile::Transparent, 0, 10_000),
        Case::new(SMALL, Profile::DelayOnly, 1, 1),
        smallest,
        Case { both: true, ..smallest },
        full(SMALL, 10_000),
        full(Sizes::Fixed(512), 1),
        full(Sizes::Fixed(1518), 1),
        full(Sizes::Imix, 1),
        Case {
            delay: Nanos::from_millis(10),
            ..Case::new(Sizes::Fixed(1518), Profile::Viasat2, 0, 1)
        },
        Case { delay: Nanos::from_millis(1), ..on_links(1) },
        Case { delay: Nanos::from_millis(1), ..on_links(64) },
        Case { ruled: true, ..full(SMALL, 10_000) },
        Case { captured: true, ..smallest },
        Case::new(SMALL, Profile::Access, 1, 1),
        Case::new(SMALL, Profile::Access, 1, 1_000),
        Case::new(SMALL, Profile::Carrier, 1, 1_000),
        // What a thousand clients cost without it.
        Case::new(SMALL, Profile::Full, 1, 1_000),
    ]
}

/// A thousand clients on so many links.
fn on_links(links: u32) -> Case {
    Case { links, ..Case::new(SMALL, Profile::Full, 300, 1_024) }
}

fn few() -> Vec<Case> {
    vec![
        on_links(64),
        Case::new(SMALL, Profile::Transparent, 0, 1),
        smallest(),
        many_clients(),
        full_frames(),
        mix(),
    ]
}

fn many() -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in SIZES {
        cases.push(Case::new(sizes, Profile::Transparent, 0, 1));
        cases.extend(DELAYS_MS.map(|ms| Case::new(sizes, Profile::Full, ms, 1)));
        cases.extend([100, 10_000].map(|n| Case::new(sizes, Profile::Full, 300, n)));
        cases.push(Case::new(sizes, Profile::DelayOnly, 300, 1));
        cases.push(Case::new(sizes, Profile::Viasat2, 0, 1));
    }
    cases.push(Case { both: true, ..smallest() });
    cases.extend([1, 2, 64, 1_024].map(on_links));
    cases.push(Case::new(SMALL, Profile::Transparent, 0, 10_000));
    cases.push(Case::new(SMALL, Profile::DelayOnly, 300, 10_000));
    cases.extend([1, 10, 100].map(|ms| Case::new(SMALL, Profile::DelayOnly, ms, 1)));
    cases.extend([1, 10, 100].map(|ms| Case::new(SMALL, Profile::Full, ms, 10_000)));
    cases.sort();
    cases
}

fn every() -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in SIZES {
        for profile in [Profile::Transparent, Profile::DelayOnly, Profile::Full, Profile::Viasat2] {
            for delay in DELAYS_MS {
                cases.extend(CLIENTS.map(|n| Case::new(sizes, profile, delay, n)));
            }
        }
    }
    cases.extend(cases.clone().into_iter().map(|case| Case { both: true, ..case }));
    cases.extend([1, 2, 64, 1_024].map(on_links));
    cases.extend(guarded());
    cases.sort();
    cases.dedup();
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_value_of_the_issue_is_measured_and_no_case_twice() {
        let cases = many();
        let names: BTreeSet<String> = cases.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), cases.len());
        for sizes in SIZES {
            for ms in DELAYS_MS {
                assert!(names.contains(&format!("{sizes}-full-{ms}ms-1")));
            }
            for n in CLIENTS {
                assert!(names.contains(&format!("{sizes}-full-300ms-{n}")));
            }
        }
        assert!(few().iter().all(|c| names.contains(&c.to_string())));
    }

    #[test]
    fn filter_finds_cases_outside_the_list() {
        let named = |filter| {
            let found = cases(false, Some(filter));
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(named("512B-full-100ms-100"), ["512B-full-100ms-100"]);
        let both = ["512B-full-1ms-100", "512B-full-1ms-100-both"];
        assert!(
            named("512B-full-1ms-10").iter().take(2).eq(both),
            "{:?}",
            named("512B-full-1ms-10")
        );
        assert_eq!(named("1518B-transparent"), ["1518B-transparent-0ms-1"]);
        assert_eq!(named("64B-full-300ms-1-both").len(), 1);
        assert!(named("nothing").is_empty());
    }
}
