// SPDX-License-Identifier: Apache-2.0

use super::*;

/// A row of each (line's place in the file, sequence, seconds, ms) as CSV.
fn csv(rows: impl IntoIterator<Item = (u64, f64, Option<f64>)>) -> String {
    let mut text = String::from("n,t,rtt\n");
    for (sequence, sent, rtt) in rows {
        let rtt = rtt.map_or(String::new(), |rtt| rtt.to_string());
        writeln!(text, "{sequence},{sent:.9},{rtt}").unwrap();
    }
    text
}

fn options() -> Options {
    Options { columns: Some("sent=t,rtt=rtt,seq=n".parse().unwrap()), ..Options::default() }
}

fn unnumbered() -> Options {
    Options { columns: Some("sent=t,rtt=rtt".parse().unwrap()), ..Options::default() }
}

fn regular(count: u64, interval: f64) -> Vec<(u64, f64, Option<f64>)> {
    (0..count).map(|n| (n, n as f64 * interval, Some(600.0))).collect()
}

/// Uniform numbers in (0, 1): splitmix64.
fn uniform(seed: u64) -> impl Iterator<Item = f64> {
    (1_u64..).map(move |n| {
        let mut z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 + 1e-17
    })
}

fn cumulated(spacings: impl Iterator<Item = f64>) -> Vec<(u64, f64, Option<f64>)> {
    let mut at = 0.0;
    (0..)
        .zip(spacings)
        .map(|(n, spacing)| {
            at += spacing;
            (n, at, Some(600.0))
        })
        .collect()
}

#[test]
fn rows_out_of_order_are_sorted_and_counted() {
    let mut rows = regular(50, 0.2);
    rows.swap(10, 12);
    rows.swap(30, 31);
    let log = baseline_with(&csv(rows.clone()), &options());
    assert_eq!(in_ms(&log), in_ms(&baseline_with(&csv(regular(50, 0.2)), &options())));
    says(&log.remarks[0], &["3 probes were logged out of order", "by sequence number"]);
    let log = baseline_with(&csv(rows), &unnumbered());
    assert_eq!(log.series.len(), 50);
    says(&log.remarks[0], &["3 probes were logged out of order", "by send time"]);
}

#[test]
fn duplicates_are_dropped_and_the_first_kept() {
    let mut rows = regular(50, 0.2);
    rows.insert(20, (19, 3.8, Some(700.0)));
    rows.insert(30, (5, 1.0, Some(700.0)));
    let baseline = baseline_with(&csv(rows), &options());
    assert_eq!(baseline.series.len(), 50);
    assert!(baseline.series.iter().all(|p| p.rtt_ns == Some(600 * MS)));
    says(&baseline.remarks.join(" "), &["2 rows repeat a sequence number"]);
}

#[test]
fn clock_step_interrupts_the_series() {
    for (by, words) in [
        (3_600.0, "for longer than usual 1 time, first at line 62, at most by 1 h:"),
        (-3_600.0, "set back at line 62 (by 1 h)"),
        (2.5, "at most by 2.5 s:"),
    ] {
        let mut rows = regular(100, 0.2);
        rows[60..].iter_mut().for_each(|row| row.1 += by);
        let baseline = baseline_with(&csv(rows), &options());
        assert_eq!(baseline.series.segments(), [0..60, 60..100], "{by}");
        says(&baseline.remarks[0], &[words]);
        // Only a clock that was set back leaves the time unknown.
        assert_eq!(baseline.series.timed().len(), if by < 0.0 { 2 } else { 1 });
        if by < 0.0 {
            assert_eq!(in_ms(&baseline)[60].0, 12_000, "as the numbers say");
        }
    }
}

#[test]
fn long_gap_with_matching_numbers_is_no_break() {
    let mut rows = regular(60_000, 0.2);
    rows.drain(10_000..19_999);
    // The prober's own pace drifts by 3 % there.
    rows[10_000..].iter_mut().for_each(|row| row.1 += 10_000.0 * 0.2 * 0.03);
    let baseline = baseline_with(&csv(rows), &options());
    assert_eq!((baseline.series.len(), baseline.series.lost()), (60_000, 9_999));
    assert_eq!(baseline.series.segments().len(), 1);
    // Lost probes are evenly spread over the gap.
    assert_eq!(
        in_ms(&baseline)[14_999].0,
        2_999_800 - 1_999_800 + 1_999_800 / 2 + 999_900 + 30_000
    );
}

#[test]
fn many_clock_steps_are_an_error() {
    let mut rows = regular(100, 0.2);
    for (index, row) in rows.iter_mut().enumerate() {
        row.1 -= (index / 5) as f64 * 100.0;
    }
    says(&refused_with(&csv(rows), &options()), &["19 jumps in 100 probes", "line 7"]);
    let mut rows = regular(100, 1e12);
    rows[50].1 = 9e9;
    says(
        &refused_with("n,t,rtt\n0,1e30,5\n1,2,5\n", &options()),
        &["line 2", "\"1e30\" is neither a number"],
    );
}

#[test]
fn more_than_a_century_is_an_error() {
    let mut rows = regular(100, 0.2);
    rows[50..].iter_mut().for_each(|row| row.1 += 4e9);
    says(&refused_with(&csv(rows), &options()), &["line 52", "100 years"]);
}

#[test]
fn equal_neighbour_timestamps_are_separated() {
    let mut rows = regular(100, 0.2);
    rows[50].1 = rows[49].1;
    let baseline = baseline_with(&csv(rows), &options());
    assert_eq!(baseline.series.segments().len(), 1);
    says(&baseline.remarks[0], &["1 probe has a send time that is not after", "nanosecond"]);
    let coarse = regular(100, 0.2).into_iter().map(|row| (row.0, row.1.floor(), row.2));
    let coarse: Vec<_> = coarse.collect();
    says(&refused_with(&csv(coarse.clone()), &unnumbered()), &["coarser than the interval"]);
    // With numbers, it is known how many probes there were.
    assert_eq!(baseline_with(&csv(coarse), &options()).series.len(), 100);
}

#[test]
fn exponential_intervals_are_distinguished_from_constant() {
    let rows = cumulated(uniform(1).map(|u| -0.2 * u.ln()).take(20_000));
    let poisson = baseline_with(&csv(rows.clone()), &options());
    assert_eq!(poisson.spacing, Spacing::Poisson);
    // The mean of 20,000 has a standard error of 0.7 %.
    assert!(poisson.interval_ns.abs_diff(200 * MS) < 6 * MS, "{}", poisson.interval_ns);
    assert_eq!(poisson.series.segments().len(), 1);
    assert_eq!(poisson.remarks, Vec::<String>::new());

    // With a tenth lost, and without their rows.
    let some = rows.into_iter().zip(uniform(2)).filter(|(_, u)| *u > 0.1).map(|(row, _)| row);
    let poisson = baseline_with(&csv(some), &options());
    assert_eq!(poisson.spacing, Spacing::Poisson);
    assert_eq!(poisson.series.segments().len(), 1);

    // A sender's jitter of 20 %.
    let jitter = uniform(3).map(|u| 0.2 + 0.04 * (u - 0.5)).take(5_000);
    let constant = baseline_with(&csv(cumulated(jitter)), &options());
    assert_eq!(constant.spacing, Spacing::Constant);
    assert!(constant.interval_ns.abs_diff(200 * MS) < MS);

    let uneven = uniform(4).map(|u| if u < 0.5 { 0.1 } else { 0.3 }).take(5_000);
    let error = refused_with(&csv(cumulated(uneven)), &options());
    says(&error, &["neither constant nor exponential", "0.50", "--spacing irregular"]);
    let uneven = uniform(4).map(|u| if u < 0.5 { 0.1 } else { 0.3 }).take(5_000);
    let any = Options { spacing: Some(Spacing::Irregular), ..options() };
    let irregular = baseline_with(&csv(cumulated(uneven)), &any);
    assert_eq!((irregular.spacing, irregular.series.len()), (Spacing::Irregular, 5_000));
}

#[test]
fn often_late_prober_keeps_stated_constant_spacing() {
    let log = |least: f64, most: f64| {
        let gaps = uniform(4).map(|u| if u < 0.5 { least } else { most }).take(5_000);
        let mut at = 0.0;
        let rows = (0..).zip(gaps).map(|(n, gap)| {
            at += gap;
            (n, at, Some(600.0))
        });
        probe_log("# spacing = constant\n", rows)
    };
    let late = baseline(&log(0.1, 0.3));
    assert_eq!(late.spacing, Spacing::Constant);
    says(&late.remarks[0], &["often late", "the file says are constant", "vary by 50 %"]);
    says(&refused(&log(0.05, 0.35)), &["neither constant nor exponential", "is 0.76"]);
}

#[test]
fn occasionally_late_prober_is_regular() {
    let stalls = uniform(5).map(|u| if u < 0.01 { 2.0 } else { 0.2 }).take(5_000);
    let baseline = baseline_with(&csv(cumulated(stalls)), &options());
    assert_eq!((baseline.spacing, baseline.interval_ns), (Spacing::Constant, 200 * MS));
}

#[test]
fn the_stated_spacing_must_be_the_measured_one() {
    let rows: Vec<_> = cumulated(uniform(1).map(|u| -0.2 * u.ln()).take(1_000));
    assert_eq!(
        baseline(&probe_log("# spacing = poisson\n", rows.clone())).spacing,
        Spacing::Poisson
    );
    says(
        &refused(&probe_log("# spacing = constant\n", rows)),
        &["exponential", "header says at constant"],
    );
    // With few intervals, the file's statement takes precedence.
    let few: Vec<_> = cumulated(uniform(6).map(|u| -0.2 * u.ln()).take(10));
    assert_eq!(baseline(&probe_log("# spacing = poisson\n", few)).spacing, Spacing::Poisson);
}

#[test]
fn mixed_intervals_are_an_error_that_names_the_line() {
    for (first, second) in [(0.2, 0.015), (0.015, 0.2), (1.0, 1.3)] {
        for count in [40, 4_000] {
            let spacings = (0..count).map(|n| if n <= count / 4 { first } else { second });
            let error = refused_with(&csv(cumulated(spacings)), &options());
            // The header and the rows before it.
            let line = format!("line {}:", count / 4 + 3);
            let (from, to) = (first * 1e3, second * 1e3);
            says(&error, &[&line, "split the file", "interval changes from"]);
            says(&error, &["--spacing irregular"]);
            let text = |ms: f64| duration((ms * 1e6).round() as u64);
            says(&error, &[&format!("from {} to {}", text(from), text(to))]);
        }
    }
}

#[test]
fn mixed_exponential_intervals_are_an_error() {
    let spacings = uniform(7).enumerate().take(10_000);
    let spacings = spacings.map(|(n, u)| if n < 6_000 { -0.2 * u.ln() } else { -0.015 * u.ln() });
    says(&refused_with(&csv(cumulated(spacings)), &options()), &["interval changes"]);
}

#[test]
fn the_given_interval_must_be_the_measured_one() {
    let text = csv(regular(100, 0.2));
    let with = |ms: u64| Options { interval_ns: Some(ms * MS), ..options() };
    assert_eq!(baseline_with(&text, &with(195)).interval_ns, 200 * MS);
    says(&refused_with(&text, &with(180)), &["200 ms apart", "--interval says 180 ms"]);
}

#[test]
fn non_sequence_column_is_refused() {
    let rows = (0..20).map(|n| (n * 1_000_000, n as f64, Some(600.0)));
    says(&refused_with(&csv(rows), &options()), &["sequence numbers are missing", "column"]);
    let huge = [(0, 0.0, Some(1.0)), (i64::MAX as u64 + 1, 1.0, Some(1.0))];
    says(&refused_with("n,t,rtt\n0,0,5\n9e18,1,5\n", &options()), &["no whole number"]);
    says(&refused_with(&csv(huge), &options()), &["no whole number"]);
    let large = [(0, 0.0, Some(1.0)), (900_000_000_000_000_000, 1.0, Some(1.0))];
    says(&refused_with(&csv(large), &options()), &["899999999999999999 sequence numbers"]);
}

#[test]
fn every_other_probe_missing_still_has_an_interval() {
    let rows = regular(50, 0.2).into_iter().filter(|row| row.0 % 2 == 0);
    let baseline = baseline_with(&csv(rows), &options());
    assert_eq!((baseline.interval_ns, baseline.series.lost()), (200 * MS, 24));
}

#[test]
fn breaks_everywhere_leave_no_interval() {
    says(&refused_with("n,t,rtt\n0,9,5\n1,1,5\n", &options()), &["no two probes follow"]);
}

#[test]
fn the_breaks_of_many_lines_are_not_all_named() {
    let mut rows = regular(1_000, 0.2);
    for (index, row) in rows.iter_mut().enumerate() {
        row.1 -= (index / 50) as f64 * 100.0;
    }
    let baseline = baseline_with(&csv(rows), &options());
    assert_eq!(baseline.series.segments().len(), 20);
    says(&baseline.remarks[0], &["line 52 (by 1 min 40 s)", "and 14 more"]);
}

#[test]
fn prober_that_follows_answers_is_irregular() {
    let mut at = 0.0;
    let rows = uniform(8).zip(uniform(9)).take(5_000).enumerate().map(|(n, (u, lost))| {
        let rtt = (lost > 0.02).then_some(20.0 + 200.0 * u);
        let row = (n as u64, at, rtt);
        at += rtt.map_or(3.0, |ms| ms / 1e3) + 0.05;
        row
    });
    let baseline = baseline_with(&csv(rows), &options());
    assert_eq!(baseline.spacing, Spacing::Irregular);
    let pace = baseline.waiting.unwrap();
    assert_eq!(
        (pace.after_answer_ns.map(|ns| ns / MS), pace.after_loss_ns / MS),
        (Some(50), 3_050)
    );
    assert_eq!(baseline.series.segments().len(), 1);
    says(
        &baseline.remarks[0],
        &["waits for each answer", "50 ms after an answer", "3.05 s after a"],
    );
}

#[test]
fn an_answer_counts_more_than_a_loss_of_the_same_number() {
    let mut rows = regular(50, 0.2);
    rows.insert(7, (7, 1.4, None));
    let baseline = baseline_with(&csv(rows), &options());
    assert_eq!((baseline.series.len(), baseline.series.lost()), (50, 0));
}
