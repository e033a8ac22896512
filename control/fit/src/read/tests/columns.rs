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
            ("x,1,600", &["line 5", "sequence number is no whole"]),
            ("1.5,1,600", &["line 5", "sequence number is no whole"]),
            ("1,noon,600", &["line 5", "send time is no number"]),
            ("1,,600", &["line 5", "send time is no number"]),
            ("1,1,NaN", &["line 5", "lost=TEXT"]),
            ("1,1,0", &["line 5", "more than zero"]),
            ("1,1,9e6", &["line 5", "9e6", "at most 1 h"]),
        ] {
            says(&refused_with(&with(row), &options), parts);
        }
    }
    let dated = named("sent=t:rfc3339,rtt=rtt");
    says(&refused_with("t,rtt\nnoon,5\n1,5\n", &dated), &["line 2", "no date and time"]);
    says(&refused_with("t,rtt\n2020-07-24T00:00:00,5\n1,5\n", &dated), &["line 2", "with a zone"]);
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
        says(&baseline.remarks[0], &["at line 9 ("]);
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
    says(&refused_columns("t,rtt"), &["\"t\" has no =", "sent=NAME"]);
    says(&refused_columns("sent=t"), &["rtt=NAME is missing"]);
    says(&refused_columns("rtt=t"), &["sent=NAME is missing"]);
    says(&refused_columns("sent=t,sent=u,rtt=r"), &["\"sent\" is there twice"]);
    says(&refused_columns("sent=t,rtt=r,loss=x"), &["\"loss\" is none of"]);
}
