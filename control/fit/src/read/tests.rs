// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::baseline::{OneWay, Probe, Spacing};
use std::fmt::Write as _;

mod cleaning;
mod columns;
mod every_loss;
mod headers;
mod hostile;
mod irtt;
mod ping;
mod probe;
mod summary;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn read_with(text: &str, options: &Options) -> Result<Input, ReadError> {
    read_from(Box::new(text.as_bytes()), "a log", options)
}

/// The baseline of a text that is one.
fn baseline_with(text: &str, options: &Options) -> Baseline {
    match read_with(text, options).unwrap() {
        Input::Log(baseline) => {
            hold(&baseline);
            baseline
        }
        Input::Summary(_) => panic!("a summary"),
    }
}

fn baseline(text: &str) -> Baseline {
    baseline_with(text, &Options::default())
}

/// The error for a text that is no baseline.
fn refused_with(text: &str, options: &Options) -> String {
    read_with(text, options).unwrap_err().to_string()
}

fn refused(text: &str) -> String {
    refused_with(text, &Options::default())
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// When a log was recorded.
fn recorded(baseline: &Baseline) -> String {
    let [first, last] = baseline.recorded.unwrap();
    format!("{first} {last}")
}

#[track_caller]
fn hold(baseline: &Baseline) {
    let series = &baseline.series;
    let probes: Vec<Probe> = series.iter().collect();
    assert!(probes.len() >= 2);
    assert!(series.lost() < probes.len(), "at least one came back");
    assert_eq!(probes[0].sent_ns, 0);
    assert!(probes.is_sorted_by(|a, b| a.sent_ns < b.sent_ns), "send times ascend");
    let rtts = probes.iter().filter_map(|probe| probe.rtt_ns);
    assert!(rtts.clone().all(|rtt| (1..=3_600 * S).contains(&rtt)));
    assert!((1..=DAY_NS).contains(&baseline.interval_ns));
    assert!(baseline.resolution_ns >= 1 && baseline.resolution_ns <= S);
    assert_eq!(baseline.source.sha256.len(), 64);
    let segments = series.segments();
    assert_eq!(segments.iter().map(|s| s.len()).sum::<usize>(), probes.len());
    assert!(segments.iter().all(|s| !s.is_empty()));
    for remark in &baseline.remarks {
        assert!(remark.ends_with('.') && remark.len() < 1_000, "{remark}");
    }
}

/// Times, in ms, and round trips, in ms, of a series.
fn in_ms(baseline: &Baseline) -> Vec<(u64, Option<u64>)> {
    baseline.series.iter().map(|p| (p.sent_ns / MS, p.rtt_ns.map(|rtt| rtt / MS))).collect()
}

/// A log of `linkctl probe`, with a row for each (sequence, seconds, ms).
fn probe_log(header: &str, rows: impl IntoIterator<Item = (u64, f64, Option<f64>)>) -> String {
    let mut text = format!(
        "# format = linkemu-probe 1\n{header}sequence,sent_utc,sent_s,rtt_ms,there_ms,back_ms\n"
    );
    for (sequence, sent, rtt) in rows {
        let rtt = rtt.map_or(String::new(), |rtt| format!("{rtt:.3}"));
        writeln!(text, "{sequence},2026-01-01T00:00:00.5Z,{sent:.6},{rtt},,").unwrap();
    }
    text
}

#[test]
fn format_is_detected_from_content() {
    let format = |text: &str| super::format(text.as_bytes(), &Options::default());
    assert_eq!(format("# format = linkemu-probe 1\n").unwrap(), Format::Probe);
    assert_eq!(format("\u{feff}# format = linkemu-probe 1\r\n").unwrap(), Format::Probe);
    assert_eq!(format("PING a (1.2.3.4) 56(84) bytes of data.\n").unwrap(), Format::Ping);
    let answer = "[1.5] 64 bytes from a: icmp_seq=9 ttl=64 time=1 ms\n";
    assert_eq!(format(answer).unwrap(), Format::Ping);
    assert_eq!(format("\n{\n \"version\": {\n \"irtt\": \"0.9.0\"").unwrap(), Format::Irtt);
    assert_eq!(format("# figures\nsource = \"x\"\ninterval = \"1 s\"\n").unwrap(), Format::Summary);
    let named = Options { columns: Some("sent=a,rtt=b".parse().unwrap()), ..Options::default() };
    assert_eq!(super::format(b"a,b\n", &named).unwrap(), Format::Columns);
}

#[test]
fn unknown_format_is_refused_with_remedy() {
    let all = ["probe", "ping", "irtt", "columns", "summary", "--columns sent=NAME,rtt=NAME"];
    says(&refused("hello\n"), &all);
    says(&refused("{\"a\": 1}\n"), &all);
    says(
        &refused("# a comment\nwhen;ms\n1;2\n"),
        &["name them", "--columns \"sent=when:s,rtt=ms:ms\"", "\"when;ms\""],
    );
    says(&refused(""), &["empty"]);
    says(&refused(" \n\n"), &["empty"]);
    let packed = read_from(Box::new(&b"BZh9\x08\x00"[..]), "a", &Options::default());
    says(&packed.unwrap_err().to_string(), &["bzip2", "unpack"]);
}

#[test]
fn contradictory_options_are_refused() {
    let columns: Option<Columns> = Some("sent=a,rtt=b".parse().unwrap());
    let options = Options { format: Some(Format::Ping), columns, ..Options::default() };
    says(&refused_with("a,b\n", &options), &["ping", "leave one"]);
    let options = Options { format: Some(Format::Columns), ..Options::default() };
    says(&refused_with("a,b\n1,2\n", &options), &["name them", "\"a,b\""]);
    let options = Options { interval_ns: Some(0), ..Options::default() };
    says(&refused_with("PING a\n", &options), &["more than zero"]);
    let options = Options { format: Some(Format::Probe), ..Options::default() };
    says(&refused_with("sequence\n", &options), &["not in the format probe"]);
}

#[test]
fn unsupported_content_is_named_by_its_likely_format() {
    let refused = |bytes: &[u8]| {
        let options = Options::default();
        read_from(Box::new(bytes), "test", &options).unwrap_err().to_string()
    };
    says(&refused(b"\x7fELF\x02\0,;\0"), &["the file is binary", "text in UTF-8"]);
    says(&refused(b"\xff\xfeP\0I\0N\0G\0"), &["UTF-16", "iconv"]);
    says(&refused(b"{\"a\": [1, 2]}"), &["none of the formats", "a\\\": [1, 2]"]);
    says(&refused(b"\n# of comments\n# alone\n"), &["it begins with \"# of comments\""]);
    says(&refused(b"# of a table\ntime,rtt\n"), &["begins with \"time,rtt\"", "--columns"]);
    let long = refused("é".repeat(5000).as_bytes());
    says(&long, &[&format!("it begins with \"{}...\"", "é".repeat(100))]);
}

#[test]
fn a_file_is_read_from_its_path_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("link.log");
    let text = probe_log("", (0..10).map(|n| (n, n as f64, Some(600.0))));
    std::fs::write(&path, &text).unwrap();
    let Input::Log(baseline) = read(&path, &Options::default()).unwrap() else { panic!() };
    assert_eq!(baseline.source.name, path.display().to_string());
    assert_eq!(baseline.source.format, Format::Probe);
    let missing = read(&directory.path().join("none"), &Options::default()).unwrap_err();
    says(&missing.to_string(), &["cannot read", "none"]);
    let folder = read(directory.path(), &Options::default()).unwrap_err();
    says(&folder.to_string(), &["cannot read", &directory.path().display().to_string()]);
}

#[test]
fn log_packed_with_gzip_is_read() {
    let text = probe_log("", (0..5_000).map(|n| (n, n as f64, Some(600.0))));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    let read = |bytes: &[u8]| read_from(Box::new(bytes), "a log", &Options::default());
    assert_eq!(read(&bytes).unwrap(), Input::Log(baseline(&text)));
    says(&read(&bytes[..bytes.len() / 2]).unwrap_err().to_string(), &["cannot read"]);
}

#[test]
fn hash_covers_the_whole_file() {
    // Longer than the head, so that both parts are hashed.
    let rows = (0..5_000).map(|n| (n, n as f64 * 0.2, Some(600.0)));
    let text = probe_log("", rows);
    assert!(text.len() as u64 > HEAD);
    let mut tap = tap::Tap::bytes(Box::new(text.as_bytes()));
    std::io::copy(&mut tap, &mut std::io::sink()).unwrap();
    assert_eq!(baseline(&text).source.sha256, tap.sha256().unwrap());
}
