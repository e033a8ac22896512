// SPDX-License-Identifier: Apache-2.0

use super::*;

fn named(text: &str) -> Options {
    Options { columns: Some(text.parse().unwrap()), ..Options::default() }
}

fn refused_columns(text: &str) -> String {
    text.parse::<Columns>().unwrap_err().to_string()
}

#[test]
fn columns_are_read_in_any_place_and_unit() {
    let text = "host,rtt_us,t,n\na,\"598120\",0.0,0\na,597000,0.2,1\na,,0.4,2\na,601000,0.6,3\n";
    let log = baseline_with(text, &named("sent=t,rtt=rtt_us:us,seq=n"));
    assert_eq!(in_ms(&log), [(0, Some(598)), (200, Some(597)), (400, None), (600, Some(601))]);
    assert_eq!(log.interval_ns, 200 * MS);
    assert_eq!(log.resolution_ns, 1_000);

    let text = "when;ms\n2020-07-24T00:00:00Z;598.12\n2020-07-24T02:00:00.2+02:00;NaN\n\
                2020-07-24 00:00:00.4Z;597\n";
    let log = baseline_with(text, &named("sent=when:rfc3339,rtt=ms,lost=NaN"));
    assert_eq!(in_ms(&log), [(0, Some(598)), (200, None), (400, Some(597))]);

    let text = "t:x\trtt\r\n1595548800000\t0.6\r\n1595548800200\t5.97e-1\r\n";
    let log = baseline_with(text, &named("sent=t:x:ms,rtt=rtt:s"));
    assert_eq!(in_ms(&log), [(0, Some(600)), (200, Some(597))]);
}

#[test]
fn numbers_without_a_row_are_losses() {
    let rows = (0..50_u64).filter(|n| n % 10 != 7);
    let rows: String = rows.map(|n| format!("{n},{}.5,600\n", 1_595_548_800 + n)).collect();
    let baseline = baseline_with(&format!("n,t,rtt\n{rows}"), &named("sent=t:unix,rtt=rtt,seq=n"));
    assert_eq!((baseline.series.len(), baseline.series.lost()), (50, 5));
    assert_eq!(in_ms(&baseline)[7], (7_000, None));
    says(&baseline.remarks[0], &["5 sequence numbers have no row", "lost"]);
}

#[test]
fn loss_without_send_time_is_timed_by_its_number() {
    let text = "n,t,rtt\n0,,\n1,1.0,600\n2,2.0,600\n3,,\n4,4.0,600\n5,,\n";
    let baseline = baseline_with(text, &named("sent=t,rtt=rtt,seq=n"));
    let answered: Vec<bool> = baseline.series.iter().map(|p| p.rtt_ns.is_some()).collect();
    assert_eq!(answered, [false, true, true, false, true, false]);
    assert_eq!(in_ms(&baseline)[5], (5_000, None));
}

#[test]
fn gaps_without_numbers_are_reported_not_lost() {
    let rows = (0..50_u64).filter(|n| n % 10 != 7);
    let rows: String = rows.map(|n| format!("{n},600\n")).collect();
    let baseline = baseline_with(&format!("t,rtt\n{rows}"), &named("sent=t,rtt=rtt"));
    assert_eq!((baseline.series.len(), baseline.series.lost()), (45, 0));
    says(&baseline.remarks[0], &["5 intervals are longer by half", "no sequence numbers"]);
}

#[test]
fn truncated_last_line_is_ignored() {
    let text = "n,t,rtt\n0,0,600\n1,1,600\n2,2";
    let log = baseline_with(text, &named("sent=t,rtt=rtt,seq=n"));
    assert_eq!(log.series.len(), 2);
    says(&log.remarks[0], &["last line is cut off"]);
    let whole = baseline_with("n,t,rtt\n0,0,600\n1,1,600", &named("sent=t,rtt=rtt,seq=n"));
    assert_eq!(whole.series.len(), 2, "many tools end a file without a line end");
}

#[test]
fn bad_lines_are_named() {
    let options = named("sent=t,rtt=rtt,seq=n");
    for ends in ["\n", "\r\n"] {
        let with =
            |row: &str| format!("n,t,rtt\n0,0,600\n\n# note\n{row}\n2,2,600\n").replace('\n', ends);
        for (row, parts) in [
            ("1,1", &["line 5", "2 fields where the header has 3", "\"1,1\""][..]),
            ("x,1,600", &["line 5", "sequence number \"x\" is no whole"]),
            ("1.5,1,600", &["line 5", "sequence number \"1.5\" is no whole"]),
            ("1,noon,600", &["line 5", "send time \"noon\" is neither a number"]),
            ("1,,600", &["line 5", "send time \"\" is neither a number"]),
            ("1,1,gone", &["line 5", "--columns \"sent=t,rtt=rtt,seq=n,lost=gone\""]),
            ("1,1,0", &["line 5", "more than zero", "--columns \"sent=t,rtt=rtt,seq=n,lost=0\""]),
            ("1,1,-600", &["line 5", "more than zero", "lost=-600\""]),
            ("1,1,9e6", &["line 5", "9e6", "at most 1 h"]),
        ] {
            says(&refused_with(&with(row), &options), parts);
        }
    }
    let dated = named("sent=t:rfc3339,rtt=rtt");
    says(&refused_with("t,rtt\nnoon,5\n1,5\n", &dated), &["line 2", "no date and time"]);
    says(&refused_with("t,rtt\n2020-07-24,5\n1,5\n", &dated), &["line 2", "no date and time"]);
}

#[test]
fn lines_are_counted_as_editors_do() {
    for (ends, end) in [("\n", "\n"), ("\r\n", "\r\n"), ("\n", ""), ("\r\n", "")] {
        let rows = "# note\n\nn,t,rtt\n# note\n0,0,600\n\n1,1,600\n2,2,600\n3,3,600";
        let text = format!("{}{end}", rows.replace('\n', ends));
        let baseline = baseline_with(&text, &named("sent=t,rtt=rtt,seq=n"));
        assert_eq!(baseline.remarks.len(), 0, "{:?}", baseline.remarks);
        let text = text.replace("3,3", "3,90");
        let baseline = baseline_with(&text, &named("sent=t,rtt=rtt,seq=n"));
        says(&baseline.remarks[0], &["first at line 9,"]);
    }
}

#[test]
fn missing_columns_are_named() {
    let text = "n,t,rtt\n0,0,600\n1,1,600\n";
    says(&refused_with(text, &named("sent=time,rtt=rtt")), &["\"time\"", "\"n,t,rtt\""]);
    says(&refused_with(text, &named("sent=t:hours,rtt=rtt")), &["\"t:hours\""]);
    says(&refused_with(text, &named("sent=t,rtt=rtt:rfc3339")), &["no date", "s, ms, us or ns"]);
}

#[test]
fn invalid_mapping_is_refused() {
    says(&refused_columns("t,rtt"), &["\"t\" is none of time, done, rtt", "sent=NAME"]);
    says(&refused_columns("sent=t,rtt"), &["\"rtt\" has no =", "sent=NAME"]);
    says(&refused_columns("time,seq"), &["rtt is missing"]);
    says(&refused_columns("sent=t"), &["rtt=NAME is missing"]);
    says(&refused_columns("rtt=t"), &["sent=NAME is missing"]);
    says(&refused_columns("sent=t,sent=u,rtt=r"), &["\"sent\" is there twice"]);
    says(&refused_columns("sent=t,rtt=r,loss=x"), &["\"loss\" is none of"]);
}

/// Rows of a waiting prober: 300 probes, a lost one after every 30; `loss` in place of the round trip.
fn waiting(loss: &str, at_the_end: bool, separator: char) -> String {
    let mut text = String::new();
    let mut at = 1_595_548_800_000_u64;
    for n in 0..300_u64 {
        let lost = n % 30 == 29;
        let end = if lost { at + 2_000 } else { at + 20 + n % 7 };
        let logged = if at_the_end { end } else { at };
        let cell = if lost { loss.to_owned() } else { (end - at).to_string() };
        writeln!(text, "{}.{:03}{separator}{cell}", logged / 1_000, logged % 1_000).unwrap();
        at = (at + 200).max(end);
    }
    text
}

#[test]
fn table_without_header_is_read_by_number_or_in_turn() {
    for separator in [',', ';', '\t', ' '] {
        let text = waiting("-1", false, separator);
        for columns in ["sent=1:s,rtt=2:ms", "time:s,rtt:ms", "time,rtt"] {
            let log = baseline_with(&text, &named(columns));
            assert_eq!((log.series.len(), log.series.lost()), (300, 10), "{separator:?} {columns}");
        }
    }
    let text = "0.0 a 598\n0.2 a 597\n0.4 a 599\n";
    assert_eq!(baseline_with(text, &named("time,_,rtt:ms")).series.len(), 3);
}

#[test]
fn usual_marks_of_a_loss_are_known() {
    for mark in ["-1", "-1.000", "NaN", "", "timeout", "Timeout", "lost", "*", "-", "N/A", "null"] {
        let log = baseline_with(&waiting(mark, false, ','), &named("time,rtt"));
        assert_eq!((log.series.len(), log.series.lost()), (300, 10), "{mark}");
    }
    let text = waiting("0", false, ',');
    says(&refused_with(&text, &named("time,rtt")), &["--columns \"sent=1,rtt=2,lost=0\""]);
    assert_eq!(baseline_with(&text, &named("sent=1,rtt=2,lost=0")).series.lost(), 10);
    let text = "t,rtt,lost\n0,600,0\n1,600,1\n2,600,0\n3,600,false\n4,600,true\n";
    assert_eq!(baseline_with(text, &named("sent=t,rtt=rtt,lost=lost")).series.lost(), 2);
}

#[test]
fn waiting_prober_is_recognised_whichever_times_it_logs() {
    for at_the_end in [false, true] {
        let log = baseline_with(&waiting("-1", at_the_end, ','), &named("time,rtt"));
        let pace = log.waiting.unwrap();
        assert_eq!((log.interval_ns / MS, pace.after_answer_ns), (200, None));
        assert_eq!(pace.after_loss_ns / (10 * MS), 200, "{:?}", log.remarks);
        assert_eq!((log.series.segments().len(), log.series.timed().len()), (1, 1));
        // The same times, but for the round trips that differ by up to 6 ms.
        let sent: Vec<u64> = log.series.iter().map(|p| p.sent_ns.div_ceil(10 * MS) * 10).collect();
        assert_eq!(sent[28..32], [5_600, 5_800, 7_800, 8_000], "{at_the_end}");
    }
    let stated = waiting("-1", true, ',');
    let few: String = stated.lines().take(40).map(|line| format!("{line}\n")).collect();
    let log = baseline_with(&few, &named("done,rtt"));
    assert_eq!(log.series.get(29).unwrap().sent_ns.div_ceil(10 * MS) * 10, 5_800);
}

#[test]
fn the_columns_of_a_table_are_guessed() {
    let guess = |text: &str| {
        let said = refused(text);
        let guess = said.split("--columns \"").nth(1).and_then(|s| s.split('"').next()).unwrap();
        (guess.to_owned(), baseline_with(text, &named(guess)))
    };
    for (rows, expected) in [
        ("n,time,rtt_ms\n0,0.0,598\n1,0.2,597\n2,0.4,-1\n", "sent=time:s,rtt=rtt_ms:ms,seq=n"),
        ("0.0\t598\n0.2\t597\n0.4\t-1\n", "sent=1:s,rtt=2:ms"),
        ("1595548800000;a;20.5\n1595548800200;a;20.4\n1595548800400;a;\n", "sent=1:ms,rtt=3:ms"),
        ("2020-07-24T00:00:00 20\n2020-07-24T00:00:01 19\n", "sent=1:rfc3339,rtt=2:ms"),
        ("2020-07-24T00:00:00.0Z,latency\n", ""),
        (
            "when,latency (us)\n1595548800,20000\n1595548801,*\n1595548802,20100\n",
            "sent=when:s,rtt=latency (us):us",
        ),
    ] {
        if expected.is_empty() {
            says(&refused(rows), &["sent=NAME:s,rtt=NAME:ms"]);
            continue;
        }
        let (guessed, log) = guess(rows);
        assert_eq!(guessed, expected);
        assert!(log.series.len() >= 2);
    }
}

#[test]
fn coarse_times_are_read_with_the_interval_that_the_message_names() {
    let rows = |n: u64| format!("{},600\n", 1_595_548_800 + n / 5);
    let text: String = (0..1_000).map(rows).collect();
    says(&refused_with(&text, &named("time,rtt")), &["--interval 199.2 ms"]);
    let with = Options { interval_ns: Some(200 * MS), ..named("time,rtt") };
    let log = baseline_with(&text, &with);
    assert_eq!((log.series.len(), log.interval_ns), (1_000, 200 * MS));
    assert_eq!(in_ms(&log)[999].0, 199_800);
}
