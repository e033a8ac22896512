// SPDX-License-Identifier: Apache-2.0

use super::*;
use ::parquet::basic::{Compression, GzipLevel, Repetition, Type as PhysicalType, ZstdLevel};
use ::parquet::data_type::DoubleType;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::Type;
use proptest::prelude::*;
use std::sync::Arc;

fn steps(text: &str, step_ns: Option<u64>) -> Result<RateSteps, RateError> {
    let step_ns = match step_ns {
        None if text.trim_start().starts_with(|c: char| c.is_ascii_digit()) => Some(STEP_NS),
        other => other,
    };
    match of_bytes(text.into(), "a trace", step_ns)? {
        RateFile::Steps(steps) => Ok(steps),
        RateFile::Opportunities(found) => panic!("{found:?}"),
    }
}

fn opportunities(text: &str) -> Opportunities {
    match of_bytes(text.into(), "a trace", None) {
        Ok(RateFile::Opportunities(found)) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_of_a_millisecond_are_one_run() {
    let found = opportunities("# a link\n0\n0\n3\n3\n3\n20\n");
    assert_eq!((found.step_ns, found.bytes), (MS, 1504));
    assert_eq!(found.runs, [(0, 2), (3, 3), (17, 1)]);
    assert_eq!(opportunities("1").runs, [(1, 1)]);
    let bad = |text: &str| of_bytes(text.into(), "it", None).unwrap_err().to_string();
    assert!(bad("0\n0\n").contains("no duration"), "{}", bad("0\n0\n"));
    assert!(bad("5\n4\n").contains("line 2: this is earlier"), "{}", bad("5\n4\n"));
    assert!(bad("5\n\n6\n").contains("line 2: this is no whole number"), "{}", bad("5\n\n6\n"));
    // With a step it is averaged.
    let averaged = of_bytes("1\n".into(), "it", Some(MS)).unwrap();
    assert!(matches!(averaged, RateFile::Steps(_)), "{averaged:?}");
}

fn refused(text: &str, parts: &[&str]) {
    let error = steps(text, None).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

fn lines(numbers: impl IntoIterator<Item = u64>) -> String {
    numbers.into_iter().map(|n| format!("{n}\n")).collect()
}

/// Bits that the steps carry.
fn bits(trace: &RateSteps) -> f64 {
    let step = trace.step_ns as f64 / S as f64;
    trace.rates_bps.iter().map(|rate| *rate as f64 * step).sum()
}

#[test]
fn one_opportunity_a_millisecond_is_12_mbit_per_s() {
    let trace = steps("1\n", None).unwrap();
    assert_eq!((trace.step_ns, trace.rates_bps.as_slice()), (MS, &[12_032_000][..]));
    assert_eq!(trace.format, RateFormat::Mahimahi);
    let trace = steps(&lines(1..=1_000), None).unwrap();
    assert_eq!((trace.step_ns, trace.rates_bps), (100 * MS, vec![12_032_000; 10]));
}

#[test]
fn opportunities_are_counted_at_their_times() {
    // Two at 50 ms, none in the second step, three at the very end of the third.
    let trace = steps("50\n50\n300\n300\n300\n", None).unwrap();
    let one = OPPORTUNITY_BYTES * 8 * 10;
    assert_eq!(trace.rates_bps, [2 * one, 0, 3 * one]);
    // One at zero counts in the first step.
    assert_eq!(steps("0\n100\n", None).unwrap().rates_bps, [2 * one]);
    let other = steps("0\n200\n", None).unwrap();
    assert_eq!(other.rates_bps, [one, one]);
}

#[test]
fn the_step_is_changed_so_that_the_period_is_kept() {
    let trace = steps(&lines((1..=1_030).step_by(3)), None).unwrap();
    assert_eq!(trace.rates_bps.len(), 10);
    assert_eq!(trace.step_ns, 103 * MS, "1030 ms in ten steps");
    let expected = (OPPORTUNITY_BYTES * 8 * 344) as f64;
    assert!((bits(&trace) - expected).abs() < 10.0, "{} of {expected}", bits(&trace));
}

#[test]
fn rows_hold_until_the_next() {
    let trace = steps("time_s,rate_mbps\n10,100\n11,50\n13,0\n14,20\n", None).unwrap();
    assert_eq!(trace.format, RateFormat::Csv);
    assert_eq!(trace.step_ns, S);
    assert_eq!(trace.rates_bps, [100, 50, 50, 0, 20].map(|r| r * 1_000_000));
    let coarse = steps("time_s,rate_mbps\n10,100\n11,50\n13,0\n14,20\n", Some(2 * S + S / 2));
    // 5 s in two steps: the mean over 2.5 s each.
    assert_eq!(coarse.unwrap().rates_bps, [70_000_000, 18_000_000]);
}

#[test]
fn units_follow_the_header() {
    let text = "# a link\nloss,rate_kbps,time_ms\n\n0,1000,0\n0,144.5,500\n";
    let trace = steps(text, None).unwrap();
    assert_eq!((trace.step_ns, trace.rates_bps), (500 * MS, vec![1_000_000, 144_500]));
    let repeated = steps("time_s,rate_bps\n0,5\n0,7\n1,9\n", None).unwrap();
    assert_eq!(repeated.rates_bps, [7, 9]);
    assert!(repeated.remarks[0].contains("1 row has the time of the row before"));
}

#[test]
fn bad_traces_are_refused() {
    refused("", &["empty"]);
    refused("0\n", &["no duration"]);
    refused("0\n0\n", &["no duration"]);
    refused("5\nx\n", &["line 2", "whole number of milliseconds", "\"x\""]);
    refused("5\n\n6\n", &["line 2", "whole number"]);
    refused("5\n-6\n", &["line 2", "whole number"]);
    refused("5\n6.5\n", &["line 2", "whole number"]);
    refused("5\n4\n", &["line 2", "earlier"]);
    refused("5\n99999999999999\n", &["line 2", "366 d"]);
    refused("1\n31000000000\n", &["10000000"]);
    refused("hello\n", &["no mahimahi trace", "time_s,rate_mbps", "\"hello\""]);
    refused("a,b\n1,2\n", &["no column time_s", "\"a,b\""]);
    refused("time_s,rate\n1,2\n", &["no column rate_bps"]);
    refused("time_s,rate_bps\n", &["no duration"]);
    refused("time_s,rate_bps\n1,2\n", &["no duration"]);
    refused("time_s,rate_bps\n1,2\n2\n", &["line 3", "too few fields"]);
    refused("time_s,rate_bps\n1,2\n0,2\n", &["line 3", "earlier"]);
    refused("time_s,rate_bps\n1,2\nx,2\n", &["line 3", "time is no number"]);
    refused("time_s,rate_bps\n1,2\n2,x\n", &["line 3", "rate is no number"]);
    refused("time_s,rate_bps\n1,2\n2,-1\n", &["line 3", "negative"]);
    refused("time_s,rate_gbps\n1,2\n2,1001\n", &["line 3", "1 Tbit/s"]);
    refused("time_s,rate_bps\n1,2\n2e9,1\n", &["line 3", "366 d"]);
    let short = steps("5\n6\n", Some(1)).unwrap_err().to_string();
    assert!(short.contains("shorter than 1 ms"), "{short}");
    let zero = steps("time_s,rate_bps\n1,2\n2,2\n", Some(0)).unwrap_err().to_string();
    assert!(zero.contains("steps of 0 ns cannot be"), "{zero}");
}

#[test]
fn only_a_file_of_bounded_size_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let error = read_rate(&directory.path().join("none"), None).unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
    let error = read_rate(directory.path(), None).unwrap_err().to_string();
    assert!(error.contains("is no file"), "{error}");
    // The file is endless, so the reader must stop by itself.
    let error = read_rate(Path::new("/dev/zero"), None).unwrap_err().to_string();
    assert!(error.contains("is no file"), "{error}");
    let large = File::create(directory.path().join("large")).unwrap();
    large.set_len(FILE_BYTES + 1).unwrap();
    let error = read_rate(&directory.path().join("large"), None).unwrap_err().to_string();
    assert!(error.contains("more than 256 MiB"), "{error}");
}

proptest! {
    #[test]
    fn opportunities_are_kept(
        mut times in prop::collection::vec(1_u64..20_000, 1..300),
        step_ms in 1_u64..3_000,
    ) {
        times.sort_unstable();
        let count = times.len() as u64;
        let period = *times.last().unwrap();
        let trace = steps(&lines(times), Some(step_ms * MS)).unwrap();
        let expected = (count * OPPORTUNITY_BYTES * 8) as f64;
        // Half a bit/s a step for the rate, and a nanosecond a step for its length.
        let steps = trace.rates_bps.len() as f64;
        let rounding = steps * 0.5 * trace.step_ns as f64 / S as f64
            + expected * 2.0 / trace.step_ns as f64 + 1.0;
        prop_assert!((bits(&trace) - expected).abs() <= rounding, "{} {expected}", bits(&trace));
        let whole = trace.step_ns * trace.rates_bps.len() as u64;
        prop_assert!(period * MS - whole < trace.rates_bps.len() as u64);
    }

    #[test]
    fn bytes_never_panic(text in "(time_s,rate_bps\n)?([0-9.,e\\-\n]|[0-9]){0,80}",
                         step in prop::option::of(any::<u64>())) {
        let _ = steps(&text, step);
    }
}

/// A Parquet file of these columns, with this compression.
fn parquet(columns: &[(&str, &[f64])], compression: Compression) -> Vec<u8> {
    let fields = columns.iter().map(|(name, _)| {
        let field = Type::primitive_type_builder(name, PhysicalType::DOUBLE);
        Arc::new(field.with_repetition(Repetition::REQUIRED).build().unwrap())
    });
    let schema = Type::group_type_builder("trace").with_fields(fields.collect()).build().unwrap();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, values) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn parquet_is_read_as_csv_is() {
    let text = "time_s,rate_mbps\n10,100\n11,50.25\n13,0\n14,20\n";
    let columns: [(&str, &[f64]); 3] = [
        ("rate_mbps", &[100.0, 50.25, 0.0, 20.0]),
        ("other", &[1.0, f64::NAN, 3.0, 4.0]),
        ("time_s", &[10.0, 11.0, 13.0, 14.0]),
    ];
    let expected = steps(text, None).unwrap();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        let found = of_bytes(parquet(&columns, compression), "a trace", None).unwrap();
        let RateFile::Steps(found) = found else { panic!("{found:?}") };
        assert_eq!((found.step_ns, &found.rates_bps), (expected.step_ns, &expected.rates_bps));
        assert_eq!(found.format, RateFormat::Parquet);
    }
}

#[test]
fn bad_parquet_is_refused() {
    let refused = |bytes: Vec<u8>, part: &str| {
        let error = of_bytes(bytes, "a trace", None).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    };
    let of = |columns: &[(&str, &[f64])]| parquet(columns, Compression::SNAPPY);
    refused(of(&[("time_s", &[0.0, 1.0]), ("rate", &[1.0, 2.0])]), "\"time_s,rate\" has no column");
    refused(
        of(&[("time_s", &[0.0, 1.0]), ("rate_bps", &[1.0, f64::NAN])]),
        "row 2: the rate is no",
    );
    refused(
        of(&[("time_s", &[0.0, 1.0]), ("rate_bps", &[1.0, -2.0])]),
        "row 2: the rate is negative",
    );
    refused(of(&[("time_s", &[1.0, 0.0]), ("rate_bps", &[1.0, 2.0])]), "row 2: this is earlier");
    let whole = of(&[("time_s", &[0.0, 1.0]), ("rate_bps", &[1.0, 2.0])]);
    refused(whole[..whole.len() - 1].to_vec(), "cannot be read as Parquet");
    refused(b"PAR1".to_vec(), "cannot be read as Parquet");
}

proptest! {
    #[test]
    fn damaged_parquet_never_panics(at in 4_usize..400, byte in any::<u8>(), cut in 0_usize..100) {
        let columns: [(&str, &[f64]); 2] = [("time_s", &[0.0, 1.0]), ("rate_bps", &[1.0, 2.0])];
        let mut bytes = parquet(&columns, Compression::SNAPPY);
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let _ = of_bytes(bytes, "a trace", None);
    }
}
