// SPDX-License-Identifier: Apache-2.0
//! A link passes verification against its own log, and fails in the figures that differ.

use std::sync::OnceLock;

use crate::common::{INTERVAL_NS, baseline, options};
use fit::baseline::Series;
use fit::fitted::fit;
use fit::read::Input;
use fit::verify::{Comparison, Group, Settings, Verdict, against_log, against_profile};
use fit::verify::{play, regular};
use profile::{Catalog, Profile};

/// Probes of a day.
const DAY: u64 = 86_400 * 5;

/// A geostationary link with losses of two kinds, slots and excursions.
const GEO: &str = r#"
name = "geo"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "275 ms"
outages = [
    { interval = "20 min", duration = "400 ms", law = "exponential" },
    { interval = "12 min", duration = "100 ms", law = "fixed" },
]
[return]
rate = "unlimited"
queue.limit = "1 MB"
outages = [
    { interval = "20 min", duration = "400 ms", law = "exponential" },
    { interval = "12 min", duration = "100 ms", law = "fixed" },
]
[return.delay]
base = "300 ms"
slot = "43.017 ms"
excursions = [
    { interval = "8 s", duration = "400 ms", location = "0 ms", scale = "30 ms", shape = -0.2, max = "5 s" },
]
"#;

fn geo() -> Profile {
    Profile::from_toml(GEO).unwrap()
}

/// The same link with ten times the losses.
fn lossy() -> Profile {
    let lossy = GEO.replace("\"20 min\"", "\"2 min\"").replace("\"12 min\"", "\"72 s\"");
    Profile::from_toml(&lossy).unwrap()
}

fn played(profile: &Profile, count: u64, seed: u64) -> Series {
    play(profile, seed, regular(INTERVAL_NS, count)).unwrap()
}

/// The log of a day of [`geo`].
fn day() -> &'static Input {
    static DAY_OF_GEO: OnceLock<Input> = OnceLock::new();
    DAY_OF_GEO.get_or_init(|| Input::Log(baseline(played(&geo(), DAY, 1))))
}

fn compare(profile: &Profile, seed: u64) -> Comparison {
    against_profile(day(), profile, &Settings { seed, ..Settings::default() }).unwrap()
}

fn failed(comparison: &Comparison) -> Vec<&str> {
    comparison.failed().map(|row| row.figure.as_str()).collect()
}

#[track_caller]
fn only_losses_fail(comparison: &Comparison) {
    let failed = failed(comparison);
    assert!(failed.contains(&"lost") && failed.contains(&"loss events"), "{failed:?}");
    let others = comparison.rows.iter().filter(|row| row.group != Group::Losses);
    for row in others {
        assert_eq!(row.verdict, Verdict::Pass, "{row:?}");
    }
}

#[test]
fn a_link_and_its_fit_pass_against_the_log_of_the_link() {
    let fitted = fit(day(), &options()).unwrap().profile;
    // Another seed than that of the log.
    for profile in [&geo(), &fitted] {
        let comparison = compare(profile, 2);
        assert!(comparison.holds(), "{}: {:?}", profile.name(), failed(&comparison));
        let groups = [
            Group::Quantiles,
            Group::Exceedances,
            Group::Losses,
            Group::Episodes,
            Group::Autocorrelation,
        ];
        for group in groups {
            assert!(comparison.rows.iter().any(|row| row.group == group), "{group:?}");
        }
    }
}

#[test]
fn a_link_without_losses_and_delays_fails_in_both() {
    let comparison = compare(Catalog::built_in().get("transparent").unwrap(), 1);
    assert!(!comparison.holds());
    let failed = failed(&comparison);
    for figure in ["p50", "p99", "lost", "loss events"] {
        assert!(failed.contains(&figure), "{figure}: {failed:?}");
    }
}

#[test]
fn ten_times_the_losses_fail_in_the_losses_alone() {
    only_losses_fail(&compare(&lossy(), 1));
}

#[test]
fn a_measured_log_passes_or_fails_as_its_link_does() {
    let settings = Settings::default();
    let like = against_log(day(), &baseline(played(&geo(), DAY / 2, 2)), "like", &settings);
    assert!(like.holds(), "{:?}", failed(&like));
    assert_eq!(like.played, format!("live, {} probes", DAY / 2));
    let other = against_log(day(), &baseline(played(&lossy(), DAY / 2, 2)), "lossy", &settings);
    only_losses_fail(&other);
}
