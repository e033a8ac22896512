// SPDX-License-Identifier: Apache-2.0
//! The first row of a table: a header, or the first probe.

use super::*;

fn named(text: &str) -> Options {
    Options { columns: Some(text.parse().unwrap()), ..Options::default() }
}

/// Send times in ns and round trips in ms.
fn exact(text: &str, columns: &str) -> Vec<(u64, Option<u64>)> {
    let baseline = baseline_with(text, &named(columns));
    baseline.series.iter().map(|p| (p.sent_ns, p.rtt_ns.map(|rtt| rtt / MS))).collect()
}

#[test]
fn number_without_header_is_a_column_whatever_the_first_row_contains() {
    // The sequence number of the first row is 1, as the column of the times.
    let text: String = (1..100_u64).map(|n| format!("{},{n},45.5\n", n as f64 * 0.15)).collect();
    let log = baseline_with(&text, &named("sent=1:s,rtt=3:ms,seq=2"));
    assert_eq!((log.series.len(), log.interval_ns), (99, 150 * MS));
    // Each cell has the number of another column.
    let text = "3,1,2\n4,2,3\n5,3,1\n";
    assert_eq!(exact(text, "sent=1,rtt=3,seq=2"), [(0, Some(2)), (S, Some(3)), (2 * S, Some(1))]);
    // A mark of a loss is none of its cells.
    let text = "0,598,1\n1,0,1\n2,597,1\n";
    assert_eq!(exact(text, "sent=1,rtt=2,lost=0"), [(0, Some(598)), (S, None), (2 * S, Some(597))]);
}

#[test]
fn nanoseconds_since_1970_are_read_exactly() {
    let expected = [(0, Some(65)), (150_000_001, Some(66)), (300_000_001, None)];
    for (times, unit) in [
        (["1725927977397135872", "1725927977547135873", "1725927977697135873"], "ns"),
        (["1725927977397135.872", "1725927977547135.873", "1725927977697135.873"], "us"),
        (["1725927977.397135872", "1725927977.547135873", "1725927977.697135873"], "unix"),
    ] {
        let [first, second, third] = times;
        let text = format!("{first},65.4\n{second},66\n{third},\n");
        assert_eq!(exact(&text, &format!("sent=1:{unit},rtt=2:ms")), expected, "{unit}");
        let text = format!("t,rtt\n{text}");
        assert_eq!(exact(&text, &format!("sent=t:{unit},rtt=rtt:ms")), expected, "{unit}");
    }
    let far = refused_with("1725927977397135872,65.4\n2,65.4\n", &named("time:s,rtt:ms"));
    says(&far, &["line 1", "\"1725927977397135872\"", "292 years", "is the unit right?"]);
}

#[test]
fn bad_first_row_is_named_with_its_cell_and_the_remedy() {
    let rows = "1,20\n2,21\n";
    let leave_out = "begin it with # to leave it out";
    for (first, columns, parts) in [
        ("0x5,19", "sent=1,rtt=2", &["line 1", "send time \"0x5\"", leave_out][..]),
        ("0x5,19", "sent=1:ms,rtt=2", &["line 1", "send time \"0x5\" is no number", leave_out]),
        ("0,1 9", "sent=1,rtt=2", &["line 1", "round trip \"1 9\" is no number", leave_out]),
        ("0,0", "sent=1,rtt=2", &["line 1", "more than zero", "lost=0", leave_out]),
        ("noon,19", "time,rtt", &["line 1", "send time \"noon\"", leave_out]),
        ("# log\n\n0x5,19", "time,rtt", &["line 3", "send time \"0x5\"", leave_out]),
        ("0,9e6", "time,rtt", &["line 1", "9e6", "at most 1 h"]),
    ] {
        let text = format!("{first}\n{rows}");
        says(&refused_with(&text, &named(columns)), parts);
        // The only row is not cut off.
        says(&refused_with(first, &named(columns)), &parts[1..]);
    }
    let numbered = named("sent=1,rtt=2,seq=3");
    says(&refused_with("0,19,x\n1,20,2\n", &numbered), &["line 1", "\"x\" is no whole number"]);
}

#[test]
fn header_that_was_numbered_is_refused_with_its_names() {
    for (header, columns, proposed) in [
        ("t,rtt,n", "sent=1:s,rtt=2:ms,seq=3", "sent=t:s,rtt=rtt:ms,seq=n"),
        ("t,rtt,n", "time,rtt", "sent=t,rtt=rtt"),
        ("\"t, s\",rtt,n", "sent=1:s,rtt=2", "sent=1:s,rtt=rtt"),
        ("x,rtt,x", "done=1:s,rtt=2:ms,seq=3", "done=x:s,rtt=rtt:ms,seq=3"),
    ] {
        let text = format!("{header}\n0,20,0\n1,21,1\n2,22,2\n");
        let said = refused_with(&text, &named(columns));
        says(&said, &["line 1", "if this row is the header", &format!("--columns \"{proposed}\"")]);
        assert_eq!(baseline_with(&text, &named(proposed)).series.len(), 3);
    }
    // No name of it can be given.
    let said = refused_with("\"t, s\",\"r, ms\"\n0,20\n1,21\n", &named("time,rtt"));
    says(&said, &["line 1", "\"t, s\"", "begin it with # to leave it out"]);
    assert_eq!(exact("#\"t, s\",\"r, ms\"\n0,20\n1,21\n", "time,rtt").len(), 2);
}

#[test]
fn names_and_numbers_go_together_in_a_table_with_a_header() {
    let text = "t,2,1\n0,20,0\n1,21,1\n";
    let expected = [(0, Some(20)), (S, Some(21))];
    // The header's names go before numbers: "2" and "1" are there.
    assert_eq!(exact(text, "sent=t,rtt=2,seq=1"), expected);
    assert_eq!(exact("t,3,2\n0,20,0\n1,21,1\n", "sent=t,rtt=3,seq=2"), expected);
    assert_eq!(exact("t,rtt,n\n0,20,0\n1,21,1\n", "sent=1,rtt=rtt,seq=3"), expected);
    // A loss is marked by a column, or by a text.
    assert_eq!(exact("t,rtt,gone\n0,20,0\n1,21,no\n", "sent=t,rtt=2,lost=gone"), expected);
}

#[test]
fn names_that_match_in_part_are_refused() {
    let text = "n,t,rtt\n0,0,600\n1,1,600\n";
    let header = "the header is \"n,t,rtt\"";
    says(&refused_with(text, &named("sent=time,rtt=rtt")), &["no column \"time\"", header]);
    says(&refused_with(text, &named("sent=t,rtt=RTT")), &["no column \"RTT\"", header]);
    says(&refused_with(text, &named("sent=t,rtt=rtt,seq=4")), &["no column \"4\"", header]);
    let text = "0,600\n1,600\n";
    let first = "the first row is \"0,600\"";
    says(&refused_with(text, &named("sent=t,rtt=rtt")), &["no column \"t\"", first]);
    says(&refused_with(text, &named("sent=1,rtt=3")), &["no column \"3\"", first]);
    says(&refused_with(text, &named("sent=0,rtt=1")), &["no column \"0\"", first]);
    // The name is there, but in a row that is a probe.
    let said = refused_with("0,timeout\n1,600\n", &named("sent=1,rtt=timeout"));
    says(&said, &["no column \"timeout\"", "the first row is \"0,timeout\""]);
}

#[test]
fn time_without_a_unit_is_seconds_or_a_date() {
    let expected = [(0, Some(20)), (S, Some(21))];
    let rows = "2020-07-24T00:00:00Z,20\n2020-07-24T00:00:01Z,21\n";
    assert_eq!(exact(rows, "time,rtt"), expected);
    assert_eq!(exact(&format!("t,rtt\n{rows}"), "sent=t,rtt=rtt"), expected);
    assert_eq!(exact("t,rtt\n5,20\n6,21\n", "sent=t,rtt=rtt"), expected);
}

#[test]
fn mark_and_quotes_at_the_begin_of_a_file_are_no_part_of_a_name() {
    let expected = [(0, Some(20)), (S, Some(21))];
    for (header, columns) in [
        ("", "sent=1:s,rtt=2:ms"),
        ("t;rtt;n\n", "sent=t:s,rtt=rtt:ms"),
        ("\"t\";\"rtt\";n\n", "sent=t:s,rtt=rtt:ms"),
        ("# by a tool\n\"t\";rtt;n\n", "sent=t:s,rtt=2:ms"),
    ] {
        for separator in [";", ",", "\t", " "] {
            for (begin, end) in [("", "\n"), ("\u{feff}", "\n"), ("\u{feff}", "\r\n")] {
                let rows = format!("{header}\"0\";20;a\n1;\"21\";b\n").replace(';', separator);
                let text = format!("{begin}{}", rows.replace('\n', end));
                assert_eq!(exact(&text, columns), expected, "{text:?} {columns}");
            }
        }
    }
    // A comma in a date does not separate columns.
    let text = "2020-07-24T00:00:00Z;20;1,5\n2020-07-24T00:00:01Z;21;1,5\n";
    assert_eq!(exact(text, "sent=1:rfc3339,rtt=2:ms"), expected);
}

/// The proposal of the message for a table.
fn proposed(text: &str) -> String {
    let said = refused(text);
    said.split("--columns \"").nth(1).and_then(|s| s.split('"').next()).unwrap().to_owned()
}

#[test]
fn proposed_columns_read_the_file_that_they_were_proposed_for() {
    let rows = |row: &dyn Fn(u64) -> String| (0..50).map(row).collect::<String>();
    let ns = |n: u64| 1_725_927_977_397_135_872 + n * 220 * MS;
    let rtt = |n: u64| 40 + n * 7 % 11;
    let by_number =
        rows(&|n| format!("{}.{:02},{},{}\n", n * 15 / 100, n * 15 % 100, n + 1, rtt(n)));
    let logs = [
        (by_number.clone(), "sent=1:s,rtt=3:ms,seq=2", 150),
        (rows(&|n| format!("{},{}.5\n", ns(n), rtt(n))), "sent=1:ns,rtt=2:ms", 220),
        (rows(&|n| format!("{};{n};{}\n", ns(n) / MS, rtt(n))), "sent=1:ms,rtt=3:ms,seq=2", 220),
        (format!("\u{feff}{by_number}"), "sent=1:s,rtt=3:ms,seq=2", 150),
        (format!("\u{feff}\"t\",n,rtt\n{by_number}"), "sent=t:s,rtt=rtt:ms,seq=n", 150),
        // Names that cannot be given: with a comma, repeated, a number.
        (format!("\"time, s\",n,rtt\n{by_number}"), "sent=1:s,rtt=rtt:ms,seq=n", 150),
        (format!("time,time,rtt\n{by_number}"), "sent=time:s,rtt=rtt:ms,seq=2", 150),
        (format!("time,,rtt\n{by_number}"), "sent=time:s,rtt=rtt:ms,seq=2", 150),
        (by_number.replace(',', "\t"), "sent=1:s,rtt=3:ms,seq=2", 150),
        (by_number.replace(',', " "), "sent=1:s,rtt=3:ms,seq=2", 150),
    ];
    for (text, expected, interval_ms) in logs {
        assert_eq!(proposed(&text), expected);
        let log = baseline_with(&text, &named(expected));
        assert_eq!((log.series.len(), log.series.lost()), (50, 0), "{expected}");
        assert_eq!(log.interval_ns / MS, interval_ms, "{expected}: {:?}", log.remarks);
    }
    // With a first row that is no header, nothing would work.
    for first in ["measured in 2024", "0x5,1,40", "time,1,2"] {
        let text = format!("{first}\n{by_number}");
        says(&refused(&text), &["--columns", "sent=NAME", "rtt=NAME"]);
    }
}
