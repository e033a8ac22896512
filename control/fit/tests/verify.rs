// SPDX-License-Identifier: Apache-2.0
//! A link passes verification against its own log, and fails in the figures that differ.

use std::sync::OnceLock;

use crate::common::{INTERVAL_NS, MS, baseline, log, options};
use fit::baseline::{Baseline, Series};
use fit::fitted::fit;
use fit::read::Input;
use fit::verify::{Comparison, Group, Settings, Verdict, against_log, against_profile};
use fit::verify::{play, regular};
use profile::{Catalog, Profile};

/// Probes of a day.
const DAY: u64 = 86_400 * 5;

/// A geostationary link with losses of two kinds, slots and excursions. There are enough losses in
/// a day to estimate their rate within the margin.
const GEO: &str = r#"
name = "geo"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "275 ms"
outages = [
    { interval = "2 min", duration = "400 ms", law = "exponential" },
    { interval = "72 s", duration = "100 ms", law = "fixed" },
]
[return]
rate = "unlimited"
queue.limit = "1 MB"
outages = [
    { interval = "2 min", duration = "400 ms", law = "exponential" },
    { interval = "72 s", duration = "100 ms", law = "fixed" },
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
    let lossy = GEO.replace("\"2 min\"", "\"12 s\"").replace("\"72 s\"", "\"7.2 s\"");
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

/// The log of the first hours of [`geo`].
fn hours(hours: f64, seed: u64) -> Baseline {
    baseline(played(&geo(), (hours * 3600.0 * 5.0) as u64, seed))
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
    let like =
        against_log(day(), &baseline(played(&geo(), DAY / 2, 2)), "like", &settings).unwrap();
    assert!(like.holds(), "{:?}", failed(&like));
    assert_eq!(like.played, format!("live, {} probes", DAY / 2));
    let other =
        against_log(day(), &baseline(played(&lossy(), DAY / 2, 2)), "lossy", &settings).unwrap();
    only_losses_fail(&other);
}

#[test]
fn two_minute_log_passes_nothing_and_reports_needed_length() {
    let (short, settings) = (hours(1.0 / 30.0, 1), Settings::default());
    let input = Input::Log(short);
    // This does not depend on the link or on the length of its log.
    let itself = against_profile(&input, &geo(), &settings).unwrap();
    assert_eq!(itself.verdict(), Verdict::Undecided, "{:#?}", itself.rows);
    let needed = itself.needed_s().unwrap() / 3600.0;
    assert!((5.0..200.0).contains(&needed), "{needed} hours");
    for seed in 2..4 {
        let live = against_log(&input, &hours(1.0 / 30.0, seed), "live", &settings).unwrap();
        assert_eq!(live.verdict(), Verdict::Undecided, "{seed}: {:?}", failed(&live));
        let Input::Log(day) = day() else { panic!("a log") };
        let live =
            against_log(&Input::Log(day.clone()), &hours(1.0 / 30.0, seed), "live", &settings)
                .unwrap();
        assert_eq!(live.verdict(), Verdict::Undecided, "{seed}: {:?}", failed(&live));
    }
    // Nor does a long baseline help a short log.
    let live = against_log(day(), &hours(1.0 / 30.0, 2), "live", &settings).unwrap();
    assert_eq!(live.verdict(), Verdict::Undecided, "{:?}", failed(&live));
    // A figure far enough outside is still detected.
    let transparent = Catalog::built_in().get("transparent").unwrap().clone();
    let other = against_profile(&input, &transparent, &settings).unwrap();
    assert_eq!(other.verdict(), Verdict::Fail);
    assert!(failed(&other).contains(&"p50"), "{:?}", failed(&other));
}

#[test]
fn a_log_of_the_needed_length_decides() {
    let settings = Settings::default();
    let short = against_profile(&Input::Log(hours(3.0, 1)), &geo(), &settings).unwrap();
    assert_eq!(short.verdict(), Verdict::Undecided);
    let needed = short.needed_s().unwrap() / 3600.0;
    let long = against_profile(&Input::Log(hours(needed, 2)), &geo(), &settings).unwrap();
    let open: Vec<_> = long.undecided().collect();
    assert!(long.holds(), "{needed} hours: {open:#?} {:?}", failed(&long));
}

#[test]
fn a_worse_link_does_not_widen_its_own_tolerance() {
    let wide =
        GEO.replace("43.017 ms", "430.17 ms").replace("scale = \"30 ms\"", "scale = \"900 ms\"");
    let (like, wide) = (compare(&geo(), 1), compare(&Profile::from_toml(&wide).unwrap(), 1));
    assert_eq!(like.rows.len(), wide.rows.len());
    for (like, wide) in like.rows.iter().zip(&wide.rows) {
        // The interval of the largest round trip is the profile's own, about its median.
        if like.figure == "largest" {
            assert_eq!(like.verdict, Verdict::Pass);
            assert_ne!(wide.verdict, Verdict::Pass);
            continue;
        }
        assert_eq!((&like.figure, like.tolerance), (&wide.figure, wide.tolerance));
    }
    assert_eq!(wide.verdict(), Verdict::Fail);
}

#[test]
fn a_figure_near_zero_has_the_tolerance_of_its_floor() {
    // An hour without a loss, with round trips that differ by 10 us.
    let quiet = log(18_000, |n| Some(600 * MS + n % 7 * 10_000 / 6));
    let itself =
        against_log(&Input::Log(quiet.clone()), &quiet, "itself", &Settings::default()).unwrap();
    let row = |figure: &str| itself.rows.iter().find(|row| row.figure == figure).unwrap();
    // A fifth of 1 ms and the log's step, of 10⁻⁴ of the probes, and of a half.
    for (figure, tolerance, verdict) in [
        ("p50", 0.200_001, Verdict::Pass),
        ("p99", 0.200_001, Verdict::Pass),
        ("lost", 0.002, Verdict::Undecided),
        ("loss events", 0.36, Verdict::Undecided),
        ("at 0.2 s", 0.1, Verdict::Pass),
    ] {
        let row = row(figure);
        assert!((row.tolerance / tolerance - 1.0).abs() < 1e-6, "{row:?}");
        assert_eq!(row.verdict, verdict, "{row:?}");
    }
    // The 2.7 counts above zero of both logs are a third of 2 × 10⁻⁵ of the probes together:
    // √2 × 406,000 probes each.
    let needed = itself.needed_s().unwrap() * 5.0 / 2.0_f64.sqrt();
    assert!((needed / 406_000.0 - 1.0).abs() < 0.01, "{needed} probes");
}
