// SPDX-License-Identifier: Apache-2.0
//! Both forms of a report, as facts.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use roxmltree::{Document, ParsingOptions};

use super::axis::{Axis, Kind};
use super::table::Numbers;
use super::{html, text};
use crate::verify::{Comparison, Curve, Group, Pair, Plots, Row, Verdict};

fn row(group: Group, figure: &str, [baseline, link, tolerance]: [f64; 3]) -> Row {
    let verdict = if (baseline - link).abs() <= tolerance { Verdict::Pass } else { Verdict::Fail };
    Row {
        group,
        figure: figure.into(),
        unit: "ms",
        baseline,
        link,
        tolerance,
        error: tolerance / 10.0,
        because: format!("why {figure}"),
        verdict,
        needed_s: None,
    }
}

/// The same, of logs that are too short by a factor of ten.
fn undecided(group: Group, figure: &str, values: [f64; 3]) -> Row {
    let row = row(group, figure, values);
    let error = 3.0 * row.tolerance;
    Row { error, verdict: Verdict::Undecided, needed_s: Some(36_000.0), ..row }
}

fn comparison() -> Comparison {
    let pair = |y: f64| Pair {
        baseline: (1..200).map(|n| (f64::from(n), y / f64::from(n))).collect(),
        link: (1..200).map(|n| (f64::from(n), 1.1 * y / f64::from(n))).collect(),
    };
    Comparison {
        baseline: "a week of pings".into(),
        sha256: "00ff".repeat(16),
        profile: "viasat2".into(),
        played: "in virtual time, seed 1".into(),
        rows: vec![
            row(Group::Losses, "lost", [0.02, 0.0201, 0.0007]),
            row(Group::Quantiles, "p50", [597.3, 598.2, 1.0]),
            row(Group::Quantiles, "p99.99", [766.0, 812.44, 31.7]),
        ],
        remarks: vec!["a line was not understood".into()],
        plots: Plots {
            exceedance: pair(1.0),
            time_series: pair(600.0),
            run_lengths: pair(60.0),
            autocorrelation: pair(0.9),
        },
    }
}

fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap()
}

/// The texts of the cells of each row that is not a headline.
fn cells(page: &str) -> Vec<Vec<String>> {
    let words = |n: roxmltree::Node<'_, '_>| -> String {
        n.descendants().filter(|n| n.is_text()).filter_map(|n| n.text()).collect()
    };
    parsed(page)
        .descendants()
        .filter(|n| {
            n.has_tag_name("tr")
                && matches!(n.attribute("class"), Some("pass" | "fail" | "undecided"))
        })
        .map(|n| n.children().map(words).collect())
        .collect()
}

fn numbers(baseline: f64, link: f64, tolerance: f64) -> [String; 4] {
    let n = Numbers::of(&row(Group::Losses, "", [baseline, link, tolerance]));
    [n.baseline, n.link, n.difference, n.tolerance]
}

#[test]
fn the_page_has_every_figure_under_its_group_and_says_which_fail() {
    let page = html(&comparison()).unwrap();
    assert_eq!(
        cells(&page),
        [
            ["p50, ms", "597.3", "598.2", "+0.9", "± 0.1", "± 1.0", "✓ pass", "why p50"],
            ["p99.99, ms", "766", "812", "+46", "± 3", "± 32", "✗ FAIL", "why p99.99"],
            [
                "lost, ms",
                "0.02000",
                "0.02010",
                "+0.00010",
                "± 0.00007",
                "± 0.00070",
                "✓ pass",
                "why lost",
            ],
        ]
    );
    for shown in ["FAIL: 2 of 3 figures hold", "a week of pings", "seed 1", "not understood"] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn the_page_has_four_plots_and_needs_nothing_else() {
    let page = html(&comparison()).unwrap();
    let document = parsed(&page);
    assert_eq!(document.descendants().filter(|n| n.tag_name().name() == "svg").count(), 4);
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        assert!(!["script", "link", "img", "iframe"].contains(&node.tag_name().name()));
        for attribute in node.attributes() {
            assert!(!["src", "href", "style"].contains(&attribute.name()), "{attribute:?}");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn hostile_names_are_text() {
    let mut comparison = comparison();
    let hostile = "<script>alert(1)</script>\"'&]]>\u{1b}[2J\u{0}\u{202e}\u{ffff}\nnext";
    for name in [&mut comparison.profile, &mut comparison.baseline, &mut comparison.played] {
        *name = hostile.into();
    }
    comparison.sha256 = hostile.into();
    comparison.remarks = vec![hostile.into()];
    for row in &mut comparison.rows {
        row.figure = hostile.into();
        row.because = hostile.into();
    }
    let page = html(&comparison).unwrap();
    assert!(!page.contains("<script"));
    let first = cells(&page).remove(0);
    assert!(first[0].starts_with("<script>alert(1)</script>\"'&]]>"), "{first:?}");
    let text = text(&comparison, Some(80));
    for form in [page, text] {
        assert!(!form.contains(['\u{1b}', '\u{0}', '\u{202e}', '\u{ffff}']));
    }
}

#[test]
fn the_same_comparison_gives_the_same_report() {
    assert_eq!(html(&comparison()).unwrap(), html(&comparison()).unwrap());
    assert_eq!(text(&comparison(), Some(80)), text(&comparison(), Some(80)));
}

#[test]
fn plot_names_side_without_points() {
    let mut comparison = comparison();
    comparison.plots.time_series.baseline.clear();
    comparison.plots.run_lengths.baseline = vec![(1.0, 0.0), (2.0, f64::NAN)];
    comparison.plots.autocorrelation = Pair::default();
    let page = html(&comparison).unwrap();
    for note in ["the baseline has no points\n", "no points that can be shown", "neither has"] {
        assert_eq!(page.matches(note).count(), 1, "{note}");
    }
}

#[test]
fn a_single_point_is_drawn_with_a_marker() {
    let point = Pair { baseline: vec![(600.0, 0.5)], link: Curve::new() };
    let plots = Plots { exceedance: point, ..Plots::default() };
    let page = html(&Comparison { plots, ..comparison() }).unwrap();
    // Two panels, and the legend of each of the four plots.
    assert_eq!(page.matches("<circle").count(), 2 + 4);
}

#[test]
fn a_gap_of_the_time_series_is_not_bridged() {
    let mut comparison = comparison();
    let span = |x: f64, y: f64| [(x, y), (x, y - 10.0)];
    let spans = [span(0.0, 600.0), span(1.0, 610.0), span(2.0, f64::NAN), span(3.0, 600.0)];
    comparison.plots = Plots::default();
    comparison.plots.time_series.link = spans.concat();
    // The triangles of the legends are polygons of full opacity.
    assert_eq!(html(&comparison).unwrap().matches("<polygon opacity=\"0.35\"").count(), 2);
}

#[test]
fn long_curve_is_thinned_to_visible_points() {
    let mut comparison = comparison();
    let long = |n: u32| -> Curve {
        (0..n).map(|i| f64::from(i) / f64::from(n)).map(|s| (600.0 + 100.0 * s, 1.0 - s)).collect()
    };
    comparison.plots = Plots::default();
    comparison.plots.exceedance = Pair { baseline: long(300_000), link: long(300_000) };
    assert!(html(&comparison).unwrap().len() < 200_000);
}

#[test]
fn the_text_ends_with_the_verdict_and_explains_what_failed() {
    let mut comparison = comparison();
    let failed = text(&comparison, None);
    let expected =
        "FAIL Round-trip quantiles, p99.99: link minus baseline is +46 ± 3, tolerance 32 ms\n";
    assert!(failed.contains(expected), "{failed}");
    assert!(failed.contains("tolerance: why p99.99\n"));
    assert_eq!(failed.lines().last(), Some("FAIL: 2 of 3 figures hold"));
    comparison.rows.retain(|row| row.verdict == Verdict::Pass);
    assert_eq!(text(&comparison, None).lines().last(), Some("PASS: all 2 figures hold"));
}

#[test]
fn both_forms_report_undecided_figures_and_needed_length() {
    let mut comparison = comparison();
    comparison.rows.retain(|row| row.verdict == Verdict::Pass);
    comparison.rows.push(undecided(Group::Quantiles, "p95", [450.0, 476.0, 20.0]));
    let said = text(&comparison, None);
    let expected = "UNDECIDED Round-trip quantiles, p95: link minus baseline is +26 ± 60, \
                    tolerance 20 ms\n     tolerance: why p95\n     length: logs of 10 hours or \
                    more would decide\n";
    assert!(said.contains(expected), "{said}");
    let verdict = "UNDECIDED: 2 of 3 figures hold, 1 undecided: logs of 10 hours or more would \
                   decide";
    assert_eq!(said.lines().last(), Some(verdict));
    let page = html(&comparison).unwrap();
    assert!(page.contains("class=\"verdict undecided\"") && page.contains(verdict), "{page}");
    assert_eq!(
        cells(&page)[1][4..],
        ["± 60", "± 20", "? undecided", "why p95; logs of 10 hours or more would decide",]
    );
    // A failure is a failure whatever else is undecided.
    comparison.rows.push(row(Group::Losses, "lost", [1.0, 9.0, 0.1]));
    let verdict = "FAIL: 1 of 4 figures do not hold, 1 undecided";
    assert_eq!(text(&comparison, None).lines().last(), Some(verdict));
    // An error without a bound, and no length that is known to help.
    let row = undecided(Group::Losses, "lost", [1.0, 1.0, 0.1]);
    let row = Row { error: f64::INFINITY, needed_s: None, ..row };
    let said = text(&Comparison { rows: vec![row], ..comparison }, None);
    assert!(said.contains("is 0.00 ± inf, tolerance 0.10"), "{said}");
    assert!(said.ends_with("1 undecided: no length of the logs is known to decide\n"));
}

#[test]
fn a_comparison_without_figures_is_undecided() {
    let empty = Comparison { rows: Vec::new(), ..comparison() };
    assert!(text(&empty, None).ends_with("UNDECIDED: no figure could be compared\n"));
    assert!(html(&empty).unwrap().contains("class=\"verdict undecided\""));
}

#[test]
fn numbers_have_the_digits_of_their_tolerance() {
    assert_eq!(numbers(597.3, 598.24, 1.04), ["597.3", "598.2", "+0.9", "1.0"]);
    assert_eq!(numbers(1245.0, 1101.0, 350.0), ["1245", "1101", "-144", "350"]);
    assert_eq!(numbers(0.049, 0.0455, 0.012), ["0.049", "0.045", "-0.004", "0.012"]);
    assert_eq!(numbers(1e-5, 2e-5, 3e-5), ["1.00e-5", "2.00e-5", "+1.00e-5", "3.00e-5"]);
    assert_eq!(numbers(0.5, 0.5, 3e-9), ["0.500000", "0.500000", "0.000000", "3.00e-9"]);
    assert_eq!(numbers(-0.004, 0.0, 0.3), ["0.00", "0.00", "+0.00", "0.30"]);
    assert_eq!(numbers(0.0, 0.0, 0.0), ["0.000000", "0.000000", "0.000000", "0.000000"]);
    assert_eq!(numbers(f64::NAN, f64::INFINITY, 1.0), ["n/a", "inf", "n/a", "1.0"]);
}

#[test]
fn a_logarithmic_axis_has_whole_decades_and_no_zeros() {
    let axis = Axis::decades([0.0, -1.0, f64::NAN, 0.002, 37.0].into_iter());
    assert_eq!(axis.ends(), (-3.0, 2.0));
    assert_eq!(axis.place(0.0), None);
    assert_eq!(axis.place(f64::NAN), None);
    assert_eq!(axis.place(10.0), Some(1.0));
}

#[test]
fn an_axis_is_logarithmic_if_its_values_crowd() {
    let crowded = Axis::fitting([1.0, 2.0, 3.0, 4.0, 1500.0].into_iter(), Kind::Whole);
    assert_eq!(crowded.place(100.0), Some(2.0));
    let even = Axis::fitting((1..12).map(f64::from), Kind::Whole);
    assert_eq!(even.place(10.0), Some(10.0));
}

/// Any number, the odd ones often.
fn value() -> impl Strategy<Value = f64> {
    let odd = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-320, 1e308, -1e12, 1e12];
    prop_oneof![prop::sample::select(odd.to_vec()), prop::num::f64::ANY, -10.0..2000.0, 0.0..1.0]
}

fn pair() -> impl Strategy<Value = Pair> {
    let curve = || prop::collection::vec((value(), value()), 0..80);
    (curve(), curve()).prop_map(|(baseline, link)| Pair { baseline, link })
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let groups = [Group::Quantiles, Group::Episodes, Group::Autocorrelation];
    let row = (prop::sample::select(groups.to_vec()), any::<String>(), [value(), value(), value()])
        .prop_map(|(group, figure, values)| row(group, &figure, values));
    prop::collection::vec(row, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        // 200 cases by default, scaled by PROPTEST_CASES / 256.
        cases: ProptestConfig::default().cases.saturating_mul(200).div_ceil(256),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_comparison_has_a_well_formed_report(
        rows in rows(),
        name in any::<String>(),
        (exceedance, time_series, run_lengths, autocorrelation) in (pair(), pair(), pair(), pair()),
        width in prop::option::of(any::<u16>()),
    ) {
        let plots = Plots { exceedance, time_series, run_lengths, autocorrelation };
        let count = rows.len();
        let comparison = Comparison { rows, profile: name, plots, ..comparison() };
        let page = html(&comparison).unwrap();
        prop_assert_eq!(cells(&page).len(), count);
        prop_assert!(!page.contains("NaN"));
        prop_assert!(!text(&comparison, width).is_empty());
    }
}
