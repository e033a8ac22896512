// SPDX-License-Identifier: Apache-2.0
//! Periodic reconfigurations: found and estimated where there are some, not found where there are
//! none, and told apart by a verification.

use std::sync::OnceLock;

use crate::common::{MS, S, options};
use fit::baseline::{Baseline, Series};
use fit::fitted::fit;
use fit::period::detect;
use fit::read::Input;
use fit::verify::{Comparison, Group, Settings, Verdict, against_profile, play, regular};
use profile::Profile;

const INTERVAL_NS: u64 = 50 * MS;

/// A link with a new level every 15 s, a faster variation, and outages at one in two boundaries.
const LEO: &str = r#"
name = "leo"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "8 ms"
outages = [{ interval = "40 s", duration = "60 ms", law = "exponential" }]
[return]
rate = "unlimited"
queue.limit = "1 MB"
[return.delay]
base = "8 ms"
body.correlation = "60 ms"
body.quantiles = ["0 ms", "2 ms", "4 ms", "6 ms", "9 ms", "20 ms"]
[return.reconfiguration]
period = "15 s"
phase = "3.7 s"
clock = "start"
values = "drawn"
delays = ["0 ms", "3 ms", "6 ms", "10 ms", "16 ms", "40 ms"]
outage_probability = "50 %"
outage = "300 ms"
"#;

/// Links without a period. Each has what could be mistaken for one: a slot that beats with the
/// probes, values that are held for as long as a period, and regular looking episodes.
const OTHERS: [&str; 4] = [
    r#"slot = "43.017 ms""#,
    r#"body = { correlation = "15 s", quantiles = ["0 ms", "5 ms", "12 ms", "40 ms"] }"#,
    r#"body = { correlation = "80 ms", quantiles = ["0 ms", "1 ms", "2 ms", "9 ms"] }
excursions = [{ interval = "8 s", duration = "2 s", location = "0 ms", scale = "30 ms", shape = 0.1, max = "1 s" }]"#,
    r#"slot = "49.999 ms"
excursions = [{ interval = "1 min", duration = "20 s", location = "5 ms", scale = "5 ms", shape = 0.0, max = "1 s" }]"#,
];

fn leo() -> Profile {
    Profile::from_toml(LEO).unwrap()
}

fn other(delay: &str) -> Profile {
    let pipe = "rate = \"unlimited\"\nqueue.limit = \"1 MB\"\n";
    let text = format!(
        "name = \"other\"\n[forward]\n{pipe}delay.base = \"1 ms\"\n[return]\n{pipe}[return.delay]\nbase = \"20 ms\"\n{delay}\n"
    );
    Profile::from_toml(&text).unwrap()
}

fn log_of(profile: &Profile, interval_ns: u64, hours: f64, seed: u64) -> Baseline {
    let count = (hours * 3600.0 * S as f64 / interval_ns as f64) as u64;
    let series: Series = play(profile, seed, regular(interval_ns, count)).unwrap();
    Baseline::regular("leo", interval_ns, series)
}

/// Logs of `plays` seeds of each of [`OTHERS`] in which a period is found.
fn found_without_one(plays: u64) -> Vec<String> {
    let mut found = Vec::new();
    for delay in OTHERS {
        let profile = other(delay);
        for seed in 0..plays {
            let interval = [20 * MS, 50 * MS, 200 * MS, S][seed as usize % 4];
            let log = log_of(&profile, interval, 15_000.0 * interval as f64 / 3.6e12, seed);
            if let Some(period) = detect(&log.series, log.interval_ns) {
                found.push(format!("{delay} {seed}: {period:?}"));
            }
        }
    }
    found
}

#[test]
fn logs_without_a_period_have_none() {
    assert_eq!(found_without_one(8), [] as [String; 0]);
}

#[test]
#[ignore = "takes minutes: make soak"]
fn fewer_than_one_in_a_hundred_of_the_logs_without_a_period_have_one() {
    let plays = 500;
    let found = found_without_one(plays);
    let logs = plays * OTHERS.len() as u64;
    assert!((found.len() as u64) < logs / 100, "{} of {logs}: {found:#?}", found.len());
}

#[test]
fn period_and_phase_lie_within_the_stated_intervals() {
    // An unround period is estimated; a division of a minute is recognised.
    for (period, text) in [(15.0, "15 s"), (13.37, "13.37 s"), (2.4, "2.4 s")] {
        let profile = Profile::from_toml(
            &LEO.replace("\"15 s\"", &format!("\"{text}\"")).replace("3.7 s", "1.7 s"),
        )
        .unwrap();
        let (mut lengths, mut phases) = (0, 0);
        for seed in 0..10 {
            let log = log_of(&profile, INTERVAL_NS, 0.5, seed);
            let found = detect(&log.series, log.interval_ns);
            let found = found.unwrap_or_else(|| panic!("{text}, seed {seed}: no period"));
            lengths += u32::from(found.length.covers(period));
            phases += u32::from(found.phase.covers(1.7));
            assert!((found.length.value / period - 1.0).abs() < 1e-3, "{text} {seed}: {found:?}");
            assert!((found.phase.value - 1.7).abs() < 0.3, "{text} {seed}: {found:?}");
        }
        assert!(lengths >= 8 && phases >= 7, "{text}: {lengths} {phases} of 10");
    }
}

#[test]
fn a_period_is_found_with_sparse_probes() {
    for (interval, hours) in [(200 * MS, 1.0), (S, 6.0)] {
        let log = log_of(&leo(), interval, hours, 3);
        let found = detect(&log.series, log.interval_ns).unwrap();
        assert_eq!(found.length.value, 15.0);
        assert!((found.phase.value - 3.7).abs() < 0.5, "{found:?}");
    }
}

/// Six hours of [`leo`].
fn baseline() -> &'static Input {
    static HOURS: OnceLock<Input> = OnceLock::new();
    HOURS.get_or_init(|| Input::Log(log_of(&leo(), INTERVAL_NS, 6.0, 1)))
}

fn compare(profile: &Profile) -> Comparison {
    against_profile(baseline(), profile, &Settings { seed: 7, ..Settings::default() }).unwrap()
}

fn of_periods(comparison: &Comparison) -> Vec<(&str, f64, f64, Verdict)> {
    let rows = comparison.rows.iter().filter(|row| row.group == Group::Periods);
    rows.map(|row| (row.figure.as_str(), row.baseline, row.link, row.verdict)).collect()
}

#[test]
fn the_fit_has_the_reconfiguration_and_passes_and_without_it_fails() {
    let fitted = fit(baseline(), &options()).unwrap();
    let found = fitted.reconfiguration.as_ref().unwrap();
    let outages = found.at_boundaries.as_ref().unwrap();
    assert!(outages.probability.covers(0.5) && outages.duration.covers(0.3), "{outages:?}");
    let with = fitted.profile.as_proto().return_pipe.as_ref().unwrap();
    let levels = &with.reconfiguration.as_ref().unwrap().delays_ns;
    let middle = levels[levels.len() / 2] as f64 / 1e6;
    assert!((middle - 8.0).abs() < 2.0, "{middle}");
    let comparison = compare(&fitted.profile);
    let failed: Vec<_> = comparison.failed().collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let rows = of_periods(&comparison);
    assert!(rows.len() >= 3, "{rows:?}");
    for (figure, baseline, link, verdict) in rows {
        assert_ne!(verdict, Verdict::Fail, "{figure} {baseline} {link}");
    }
    // The same profile without the reconfiguration.
    let mut without = fitted.profile.as_proto().clone();
    for pipe in [&mut without.forward_pipe, &mut without.return_pipe].into_iter().flatten() {
        pipe.reconfiguration = None;
    }
    let comparison = compare(&Profile::try_from(without).unwrap());
    let failed: Vec<&str> = comparison.failed().map(|row| row.figure.as_str()).collect();
    for figure in
        ["share of the variance between periods of 15 s", "share of the changes at boundaries"]
    {
        assert!(failed.contains(&figure), "{failed:?}");
    }
}

#[test]
fn a_reconfiguration_that_the_baseline_lacks_fails() {
    let other = log_of(&other(OTHERS[2]), INTERVAL_NS, 2.0, 5);
    let settings = Settings::default();
    let comparison = against_profile(&Input::Log(other), &leo(), &settings).unwrap();
    let row = comparison.failed().find(|row| row.figure == "share of the changes at boundaries");
    let row = row.unwrap();
    assert!(row.baseline < 0.6 && row.link > 0.8, "{row:?}");
}
