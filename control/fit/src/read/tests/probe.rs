// SPDX-License-Identifier: Apache-2.0

use super::*;

const GOLDEN: &str = "\
# format = linkemu-probe 1
# target = 192.0.2.1:2112
# interval = 200 ms
# spacing = constant
# size = 20
# timeout = 10 s
# started_utc = 2026-03-01T12:00:00Z
# synchronised = true
sequence,sent_utc,sent_s,rtt_ms,there_ms,back_ms
0,2026-03-01T12:00:00.000100Z,0.000100,597.310,290.110,307.200
1,2026-03-01T12:00:00.200080Z,0.200080,598.420,291.110,307.310
2,2026-03-01T12:00:00.400110Z,0.400110,,,
3,2026-03-01T12:00:00.600100Z,0.600100,602.730,289.110,313.620
";

#[test]
fn a_log_is_read() {
    let baseline = baseline(GOLDEN);
    assert_eq!(in_ms(&baseline), [(0, Some(597)), (199, Some(598)), (400, None), (600, Some(602))]);
    assert_eq!(baseline.series.get(1).unwrap().sent_ns, 199_980_000);
    assert_eq!(baseline.series.get(1).unwrap().rtt_ns, Some(598_420_000));
    assert_eq!(baseline.interval_ns, 199_990_000);
    assert_eq!(baseline.spacing, Spacing::Constant);
    assert_eq!(baseline.resolution_ns, 1_000, "as written");
    let one_way = OneWay { there_ns: 290_110_000, back_ns: 307_310_000 };
    assert_eq!(baseline.one_way, Some(one_way));
    assert_eq!(recorded(&baseline), "2026-03-01T12:00:00.0001Z 2026-03-01T12:00:01.20283Z");
    assert_eq!(baseline.remarks, Vec::<String>::new());
}

#[test]
fn unsynchronised_clocks_give_no_one_way_delays() {
    let text = GOLDEN.replace("synchronised = true", "synchronised = false");
    assert_eq!(baseline(&text).one_way, None);
    let text = GOLDEN.replace(",29", ",-29").replace(",28", ",-28");
    let baseline = baseline(&text);
    assert_eq!(baseline.one_way, None);
    says(&baseline.remarks[0], &["-290.1 ms there", "307.3 ms back", "not synchronised"]);
}

#[test]
fn a_resumed_run_comes_after_a_break() {
    let text = format!(
        "{GOLDEN}# resumed_utc = 2026-03-01T13:00:00Z\n\
         4,2026-03-01T13:00:00Z,3600,600.1,,\n5,2026-03-01T13:00:00.2Z,3600.2,600.2,,\n"
    );
    let baseline = baseline(&text);
    assert_eq!(baseline.series.segments(), [0..4, 4..6]);
    assert_eq!(in_ms(&baseline)[4], (3_599_999, Some(600)));
    says(&baseline.remarks[0], &["interrupted 1 time"]);
    assert_eq!(baseline.remarks.len(), 1);
}

#[test]
fn run_with_restarted_numbers_and_clock_is_appended() {
    let text = format!(
        "{GOLDEN}# resumed_utc = 2026-03-01T13:00:00Z\n\
         0,2026-03-01T13:00:00Z,0,600.1,,\n1,2026-03-01T13:00:00.2Z,0.2,600.2,,\n"
    );
    let baseline = baseline(&text);
    assert_eq!(baseline.series.segments(), [0..4, 4..6]);
    assert_eq!(in_ms(&baseline)[4].0, 800, "an interval later, for want of better");
}

#[test]
fn numbers_continuing_after_break_are_kept() {
    let text = format!(
        "{GOLDEN}# resumed_utc = 2026-03-01T13:00:00Z\n\
         10,2026-03-01T13:00:00Z,3600.0001,600.1,,\n11,2026-03-01T13:00:00.2Z,3600.2,600.2,,\n"
    );
    let baseline = baseline(&text);
    assert_eq!(baseline.series.segments(), [0..4, 4..6]);
    says(&baseline.remarks.join(" "), &["6 sequence numbers are missing:"]);
}

#[test]
fn missing_numbers_are_no_losses() {
    let rows = (0..100).filter(|n| !(40..43).contains(n)).map(|n| (n, n as f64, Some(600.0)));
    let baseline = baseline(&probe_log("", rows));
    assert_eq!((baseline.series.len(), baseline.series.lost()), (97, 0));
    assert_eq!(baseline.series.segments(), [0..40, 40..97]);
    says(&baseline.remarks[0], &["3 sequence numbers are missing"]);
}

#[test]
fn truncated_line_is_ignored() {
    let cut = GOLDEN.trim_end();
    for cut in [cut, cut.strip_suffix("3.620").unwrap(), &cut[..cut.len() - 30]] {
        let baseline = baseline(cut);
        assert_eq!(baseline.series.len(), 3, "{cut}");
        says(&baseline.remarks[0], &["1 line is cut off"]);
    }
}

#[test]
fn a_crash_before_a_resumption_leaves_one_bad_line() {
    let text = format!(
        "{GOLDEN}4,2026-03-01T12:0\n# resumed_utc = 2026-03-01T13:00:00Z\n\
         5,2026-03-01T13:00:00Z,0,600.1,,\n6,2026-03-01T13:00:00.2Z,0.2,600.2,,\n"
    );
    let baseline = baseline(&text);
    assert_eq!(baseline.series.segments(), [0..4, 4..6]);
    says(&baseline.remarks[0], &["1 line is cut off"]);
}

#[test]
fn bad_lines_are_named() {
    let row = "2,2026-03-01T12:00:00.400110Z,0.400110,,,";
    for (bad, parts) in [
        ("2,x,0.4,600", &["line 12", "fewer than six", "\"2,x,0.4,600\""][..]),
        ("2,x,0.4,600,,,", &["line 12", "more than six"]),
        ("x,x,0.4,600,,", &["line 12", "sequence is no whole number"]),
        ("2.5,x,0.4,600,,", &["line 12", "sequence is no whole number"]),
        ("-2,x,0.4,600,,", &["line 12", "sequence is no whole number"]),
        ("2,x,soon,600,,", &["line 12", "sent_s is no number"]),
        ("2,x,0.4,lost,,", &["line 12", "rtt_ms is no number"]),
        ("2,x,0.4,600,1,x", &["line 12", "one-way delay"]),
        ("2,x,0.4,-600,,", &["line 12", "-600 ms", "more than zero", "unit"]),
        ("2,x,0.4,0.000,,", &["line 12", "0.000 ms"]),
        ("2,x,0.4,3600001,,", &["line 12", "at most 1 h"]),
    ] {
        says(&refused(&GOLDEN.replace(row, bad)), parts);
    }
    says(&refused(&GOLDEN.replace("probe 1", "probe 2")), &["linkemu-probe 2"]);
    says(&refused(&GOLDEN.replace("sequence,", "number,")), &["header is \"number,sent_utc"]);
    says(&refused(&GOLDEN.replace("= constant", "= odd")), &["line 4", "neither constant nor"]);
    says(&refused(&GOLDEN.replace("= true", "= yes")), &["line 8", "neither true nor false"]);
    says(&refused(&GOLDEN.replace("200 ms", "200")), &["line 3", "no unit"]);
}

#[test]
fn a_stated_interval_must_be_the_measured_one() {
    says(
        &refused(&GOLDEN.replace("200 ms", "20 ms")),
        &["200 ms apart", "the file itself says 20 ms", "5 %"],
    );
}

#[test]
fn log_without_answer_is_refused() {
    let head = &GOLDEN[..GOLDEN.find("0,2026").unwrap()];
    says(&refused(head), &["no probe"]);
    says(&refused(&format!("{head}0,2026-03-01T12:00:00Z,0,600,,\n")), &["one probe"]);
    says(
        &refused(&probe_log("", (0..7).map(|n| (n, n as f64, None)))),
        &["all 7 probes were lost"],
    );
}

#[test]
fn host_that_stalls_leaves_pauses_of_known_length() {
    // Every fifth probe is late, and a quarter of the instants are skipped.
    let mut rows = Vec::new();
    for n in (0..4_000_u64).filter(|n| n % 40 < 30) {
        let late = if n % 5 == 0 { 0.15 } else { 0.0 };
        rows.push((n, n as f64 * 0.2 + late, (n % 100 != 7).then_some(600.0)));
    }
    let log = baseline(&probe_log("# interval = 200 ms\n# spacing = constant\n", rows));
    assert_eq!((log.series.len(), log.series.lost()), (3_000, 40));
    assert_eq!((log.interval_ns, log.series.timed().len()), (200 * MS, 1));
    says(&log.remarks.join(" "), &["sequence numbers are missing", "often late"]);
}

#[test]
fn prober_that_is_rarely_in_time_keeps_its_interval() {
    let rows = (0..2_000_u64).map(|n| {
        (
            n,
            n as f64 * 0.005 + if n % 8 == 0 { 0.0 } else { (8 - n % 8) as f64 * 0.0049 },
            Some(600.0),
        )
    });
    let log = baseline(&probe_log("# interval = 5 ms\n# spacing = constant\n", rows));
    assert_eq!(log.interval_ns, 5 * MS);
}
