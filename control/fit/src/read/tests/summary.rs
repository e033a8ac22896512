// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::baseline::LossCounts;

const GOLDEN: &str = "\
# Figures of a study.
source = \"SAT20: S. Claypool et al., CCNC 2021\"
interval = \"200 ms\"

[losses]
samples = 3024000
lost = 604
single = 465
runs = 44
longest = 11

[delay]
samples = 432000
reading_error = \"1 ms\"
reading_error_share = \"1 %\"
exceedance = [[\"576 ms\", \"95 %\"], [\"597.3 ms\", \"50 %\"], [\"690 ms\", \"0.1 %\"]]
";

fn figures(text: &str) -> Summary {
    match read_with(text, &Options::default()).unwrap() {
        Input::Summary(summary) => summary,
        Input::Log(_) => panic!("a log"),
    }
}

#[test]
fn figures_are_read() {
    let summary = figures(GOLDEN);
    assert_eq!(summary.source.name, "SAT20: S. Claypool et al., CCNC 2021");
    assert_eq!(summary.source.format, Format::Summary);
    assert_eq!(summary.source.sha256.len(), 64);
    assert_eq!(summary.interval_ns, 200 * MS);
    let losses = LossCounts { lost: 604, single: 465, runs: 44, longest: 11 };
    assert_eq!((summary.loss_samples, summary.losses), (3_024_000, Some(losses)));
    assert_eq!(summary.delay_samples, 432_000);
    let points = [(576 * MS, 0.95), (597_300_000, 0.5), (690 * MS, 0.001)];
    assert_eq!(summary.exceedance, points);
    assert_eq!((summary.reading_error_ns, summary.reading_error_share), (MS, 0.01));
}

#[test]
fn either_section_may_be_left_out() {
    let (losses, delay) = (GOLDEN.find("[losses]").unwrap(), GOLDEN.find("[delay]").unwrap());
    let only = figures(&GOLDEN[..delay]);
    assert_eq!((only.delay_samples, only.exceedance.len()), (0, 0));
    let only = figures(&format!("{}{}", &GOLDEN[..losses], &GOLDEN[delay..]));
    assert_eq!((only.loss_samples, only.losses), (0, None));
    says(&refused(&GOLDEN[..losses]), &["neither [losses] nor [delay]"]);
}

#[test]
fn maxima_are_read_and_those_below_the_median_refused() {
    let with = |maxima: &str| format!("{GOLDEN}maxima = {maxima}\n");
    let read = figures(&with("[\"1245 ms\", \"842 ms\"]"));
    assert_eq!(read.maxima_ns, [1_245 * MS, 842 * MS]);
    let low = refused(&with("[\"842 ms\", \"590 ms\"]"));
    says(&low, &["delay.maxima[1]: 590 ms is no largest round trip", "(597.3 ms, 1 h]"]);
    says(&refused(&with("[\"2 h\"]")), &["delay.maxima[0]: 2 h is no largest"]);
    says(&refused(&with("[\"842\"]")), &["delay.maxima[0]: "]);
}

#[test]
fn contradictions_are_named() {
    for (from, to, parts) in [
        ("lost = 604", "lost = 3024001", &["lost = 3024001 is more than samples"][..]),
        ("single = 465", "single = 605", &["single = 605 is more than lost = 604"]),
        ("runs = 44", "runs = 70", &["runs = 70 need 140", "leaves 139"]),
        ("runs = 44", "runs = 0", &["runs = 0", "leaves 139 losses in runs"]),
        ("single = 465", "single = 604", &["runs = 44", "leaves none"]),
        ("longest = 11", "longest = 54", &["longest = 54", "at most 53"]),
        ("longest = 11", "longest = 3", &["longest = 3", "at least 4"]),
        ("samples = 3024000", "samples = 1000", &["1000 have no room", "604 losses in 509"]),
        ("interval = \"200 ms\"", "interval = \"0 ms\"", &["interval", "more than zero"]),
        ("interval = \"200 ms\"", "interval = \"200\"", &["interval", "no unit"]),
        ("\"SAT20: S. Claypool et al., CCNC 2021\"", "\" \"", &["source is empty"]),
        ("50 %", "95 %", &["exceedance[1]", "not lower"]),
        ("597.3 ms", "576 ms", &["exceedance[1]", "not longer"]),
        ("95 %", "101 %", &["exceedance[0]", "not in 0 to 100 %"]),
        ("0.1 %", "0.0001 %", &["exceedance[2]", "less than one of samples = 432000"]),
        ("576 ms", "0 ms", &["exceedance[0]", "not in (0, 1 h]"]),
        ("1 %", "100 %", &["reading error"]),
    ] {
        says(&refused(&GOLDEN.replacen(from, to, 1)), parts);
    }
    let two = GOLDEN.replace("longest = 11", "longest = 99").replace("50 %", "half");
    says(&refused(&two), &["longest = 99", "exceedance[1]"]);
    let none = GOLDEN.replace("604", "0").replace("465", "0").replace("44", "0");
    says(&refused(&none), &["longest = 11, but without runs it is 0"]);
    assert_eq!(figures(&none.replace("= 11", "= 0")).losses, Some(LossCounts::default()));
}

#[test]
fn unknown_keys_are_refused() {
    says(&refused(&GOLDEN.replace("longest", "max")), &["max", "summary"]);
    says(&refused(&GOLDEN.replace("lost = 604\n", "")), &["missing field `lost`"]);
    says(&refused(&GOLDEN.replace("604", "-604")), &["summary"]);
}

#[test]
fn given_interval_must_match_the_study() {
    let with = |ns| Options { interval_ns: Some(ns), ..Options::default() };
    assert!(read_with(GOLDEN, &with(201 * MS)).is_ok());
    says(&refused_with(GOLDEN, &with(100 * MS)), &["200 ms apart", "--interval says 100 ms"]);
}

#[test]
fn profile_as_baseline_is_refused_with_explanation() {
    let profile = "name = \"x\"\nsource = \"y\"\n[forward]\nrate = \"down\"\n[return]\n\
                   [provenance]\ninterval = \"200 ms\"\n";
    says(&refused(profile), &["it is a profile", "what that was fitted to"]);
}
