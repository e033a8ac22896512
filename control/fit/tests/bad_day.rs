// SPDX-License-Identifier: Apache-2.0
//! The built-in `viasat2-bad-day` has the figures of a bad day of that link.

use crate::common::INTERVAL_NS;
use fit::verify::{play, regular};
use profile::Catalog;
use proto::linkemu::v1 as pb;

/// Probes of a day.
const DAY: usize = 432_000;
const MINUTE_NS: u64 = 60_000_000_000;
/// Minutes that are further apart belong to two episodes.
const APART: u64 = 10;
/// p99.99 of the ordinary day of `viasat2`'s baseline; that of the bad one is about twice as long.
const ORDINARY_MS: f64 = 766.0;

/// Median over days of p99.99 in ms, and minutes above 1 s, and episodes of them, per day.
fn figures(days: usize, seed: u64) -> [f64; 3] {
    let profile = Catalog::built_in().get("viasat2-bad-day").unwrap().clone();
    let series = play(&profile, seed, regular(INTERVAL_NS, (days * DAY) as u64)).unwrap();
    let (mut quantiles, mut minutes, mut episodes) = (Vec::new(), 0, 0);
    for day in 0..days {
        let probes = || series.slice(day * DAY..(day + 1) * DAY);
        let mut sorted: Vec<u64> = probes().filter_map(|p| p.rtt_ns).collect();
        sorted.sort_unstable();
        quantiles.push(sorted[((sorted.len() - 1) as f64 * 0.9999).round() as usize] as f64 / 1e6);
        let long = probes().filter(|p| p.rtt_ns.is_some_and(|ns| ns > 1_000_000_000));
        let mut above: Vec<u64> = long.map(|p| p.sent_ns / MINUTE_NS).collect();
        above.dedup();
        minutes += above.len();
        let begins = above.windows(2).filter(|pair| pair[1] - pair[0] > APART).count();
        episodes += begins + usize::from(!above.is_empty());
    }
    quantiles.sort_by(f64::total_cmp);
    let n = days as f64;
    let all = [quantiles[days / 2], minutes as f64 / n, episodes as f64 / n];
    println!(
        "{days} days: p99.99 {:.0} ms; {:.1} minutes in {:.1} episodes",
        all[0], all[1], all[2]
    );
    all
}

/// Within a factor of 1.3 of twice the ordinary p99.99, and the counts of the published day
/// within four standard errors of the mean of so many days.
fn figures_are_those_of_a_bad_day(days: usize, seed: u64) {
    let [quantile, minutes, episodes] = figures(days, seed);
    let ratio = quantile / (2.0 * ORDINARY_MS);
    assert!((1.0 / 1.3..1.3).contains(&ratio), "{quantile}");
    // Poisson counts of episodes, and of minutes in clusters of two.
    let error = |mean: f64, cluster: f64| 4.0 * (mean * cluster / days as f64).sqrt();
    assert!((episodes - 5.0).abs() < error(5.0, 1.0), "{episodes}");
    assert!((minutes - 8.0).abs() < error(8.0, 4.0), "{minutes}");
}

#[test]
fn two_weeks_of_bad_days_are_like_the_published_one() {
    figures_are_those_of_a_bad_day(14, 1);
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn half_a_year_of_bad_days_is_like_the_published_one() {
    figures_are_those_of_a_bad_day(180, 2);
}

#[test]
fn bad_day_differs_from_viasat2_in_one_class_of_excursions() {
    let catalog = Catalog::built_in();
    let of = |name: &str| catalog.get(name).unwrap().as_proto().clone();
    let (mut bad, ordinary) = (of("viasat2-bad-day"), of("viasat2"));
    let excursions = |profile: &mut pb::Profile| {
        let delay = profile.return_pipe.as_mut().unwrap().delay.as_mut().unwrap();
        std::mem::take(&mut delay.excursions)
    };
    let mut same = ordinary.clone();
    let (mut of_bad, of_ordinary) = (excursions(&mut bad), excursions(&mut same));
    let added = of_bad.pop().unwrap();
    assert!(added.regime.is_some_and(|regime| regime.factor > 1e5));
    assert_eq!(of_bad, of_ordinary);
    assert_eq!(bad.forward_pipe, same.forward_pipe);
    assert_eq!(bad.return_pipe, same.return_pipe);
}
