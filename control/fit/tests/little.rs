// SPDX-License-Identifier: Apache-2.0
//! Logs that tell too little are refused with the limit. Logs that tell little are fitted, and
//! the profile names what it does not know.

use crate::common::{INTERVAL_NS, MS, S, log, options, quiet};
use fit::baseline::{Baseline, Format, LossCounts, Source, Summary};
use fit::fitted::{Fitted, Options, fit};
use fit::read::Input;
use proto::linkemu::v1 as pb;

/// Probes of a log: a quarter of an hour.
const COUNT: u64 = 4_500;

fn fitted(baseline: Baseline) -> Fitted {
    fit(&Input::Log(baseline), &options()).unwrap()
}

fn refused_with(baseline: Baseline, options: &Options) -> String {
    fit(&Input::Log(baseline), options).unwrap_err().to_string()
}

fn refused(baseline: Baseline) -> String {
    refused_with(baseline, &options())
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in\n{message}");
    }
}

fn pipes(fitted: &Fitted) -> [pb::Pipe; 2] {
    let profile = fitted.profile.as_proto();
    [&profile.forward_pipe, &profile.return_pipe].map(|pipe| pipe.clone().unwrap())
}

fn unidentified(fitted: &Fitted) -> String {
    fitted.profile.as_proto().provenance.as_ref().unwrap().unidentified.join("\n")
}

/// With nine probes lost one at a time.
fn short() -> Baseline {
    log(COUNT, |n| (n % 500 != 250).then(|| quiet(n)))
}

#[test]
fn log_with_too_few_round_trips_is_refused_with_the_number_needed() {
    let fifty = refused(log(COUNT, |n| (n % 90 == 7).then(|| quiet(n))));
    says(&fifty, &["50 round trips", "needs 100", "probe for longer"]);
    says(&refused(log(20, |n| Some(quiet(n)))), &["20 round trips", "needs 100"]);
}

#[test]
fn constant_round_trip_is_fitted_without_variation() {
    let fitted = fitted(log(COUNT, |_| Some(600 * MS)));
    let delay = pipes(&fitted)[1].delay.clone().unwrap();
    assert_eq!((delay.base_ns, &delay.body, delay.slot_ns), (300 * MS, &None, 0));
    assert!(delay.excursions.is_empty());
    let split = "delay: a round trip does not tell how it is split";
    says(&unidentified(&fitted), &[split]);
}

#[test]
fn log_without_losses_gives_their_upper_bound() {
    let fitted = fitted(log(COUNT, |n| Some(quiet(n))));
    assert!(pipes(&fitted).iter().all(|pipe| pipe.outages.is_empty()));
    let bound = "losses: none of 4500 probes was lost, so fewer than one in 1500 is (95 %)";
    says(&unidentified(&fitted), &[bound]);
}

#[test]
fn isolated_losses_have_a_stated_duration() {
    let singles = || log(COUNT, |n| (n % 100 != 50).then(|| quiet(n)));
    let half = fitted(singles());
    for pipe in pipes(&half) {
        assert_eq!(pipe.outages.len(), 1);
        assert_eq!(pipe.outages[0].duration_ns, INTERVAL_NS / 2, "a prior");
    }
    says(&unidentified(&half), &["how long outages last", "prior"]);
    let stated = Options { isolated_ns: Some(20 * MS), ..options() };
    let fitted = fit(&Input::Log(singles()), &stated).unwrap();
    assert!(pipes(&fitted).iter().all(|pipe| pipe.outages[0].duration_ns == 20 * MS));
}

#[test]
fn long_outage_is_distinguished_from_isolated_losses() {
    let lost = |n: u64| (2_000..3_000).contains(&n) || n % 500 == 250;
    let fitted = fitted(log(COUNT, |n| (!lost(n)).then(|| quiet(n))));
    says(&unidentified(&fitted), &["outages: ", "how long outages last"]);
    for class in pipes(&fitted).iter().flat_map(|pipe| &pipe.outages) {
        // For nine probes lost alone in a quarter of an hour: a hundred seconds each way
        // or half a minute at worst, and not a third of a second.
        assert!(class.duration_ns > INTERVAL_NS || class.interval_ns > 30 * S, "{class:?}");
    }
}

#[test]
fn stated_values_contradicting_the_log_are_refused() {
    let isolated = Options { isolated_ns: Some(300 * MS), ..options() };
    let told = refused_with(short(), &isolated);
    says(&told, &["300 ms are longer than the probing interval", "at most the interval"]);
    let forward = Options { forward_ns: Some(700 * MS), ..options() };
    says(
        &refused_with(short(), &forward),
        &["forward delay of 700 ms", "600 ms", "less than that"],
    );
}

#[test]
fn round_trips_longer_than_a_profile_allows_are_refused_with_the_limit() {
    let told = refused(log(COUNT, |n| Some(130 * S + quiet(n))));
    says(&told, &["outside of what a profile can say", "forward.delay.base", "above 1 min"]);
    // One direction holds all of it.
    let seventy = || log(COUNT, |n| Some(70 * S + quiet(n)));
    let forward = Options { forward_ns: Some(S), ..options() };
    let told = refused_with(seventy(), &forward);
    says(&told, &["return.delay.base: 1 min 9.6", "is above 1 min"]);
    fitted(seventy());
}

/// Published figures with a curve of round trips.
fn study(exceedance: Vec<(u64, f64)>) -> Input {
    Input::Summary(Summary {
        source: Source { name: "a study".into(), format: Format::Summary, sha256: String::new() },
        interval_ns: INTERVAL_NS,
        loss_samples: 100_000,
        losses: Some(LossCounts { lost: 20, single: 10, runs: 4, longest: 3 }),
        delay_samples: 10_000,
        exceedance,
        maxima_ns: Vec::new(),
        reading_error_ns: 0,
        reading_error_share: 0.0,
    })
}

#[test]
fn published_figures_without_or_beyond_a_delay_are_refused() {
    let none = fit(&study(Vec::new()), &options()).unwrap_err().to_string();
    says(&none, &["no [delay]", "at least two points"]);
    let minutes = vec![(576 * S, 0.95), (590 * S, 0.5), (620 * S, 0.05)];
    let long = fit(&study(minutes), &options()).unwrap_err().to_string();
    says(&long, &["4 min 48 s is above 1 min"]);
}
