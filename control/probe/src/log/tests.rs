// SPDX-License-Identifier: Apache-2.0
//! Logs written, cut and resumed.

use super::*;
use crate::prober::Reply;
use proptest::prelude::*;
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

const S: Duration = Duration::from_secs(1);

fn start() -> SystemTime {
    humantime::parse_rfc3339("2026-01-01T00:00:00Z").unwrap()
}

fn plan() -> Plan {
    Plan::new("host".parse().unwrap())
}

fn poisson(seed: Option<u64>) -> Plan {
    Plan { spacing: Spacing::Poisson { seed }, ..plan() }
}

fn row(sequence: u64, sent: Duration, rtt_ns: Option<u64>) -> Row {
    let reply = rtt_ns.map(|ns| Reply { rtt: Duration::from_nanos(ns), there_ns: 1_500_000 });
    Row { sequence, sent_utc: start() + sent, sent, reply }
}

struct Lab {
    directory: TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("log.csv")
    }

    fn create(&self, plan: &Plan) -> Log {
        Log::open(&self.path(), plan, false, 5, start()).unwrap().0
    }

    fn resume(&self, plan: &Plan, after: Duration) -> Result<(Log, Opened), LogError> {
        Log::open(&self.path(), plan, true, 6, start() + after)
    }

    /// A log of two probes.
    fn two(&self) {
        let mut log = self.create(&plan());
        log.write(&row(0, Duration::from_nanos(104_211), Some(597_300_112))).unwrap();
        log.write(&row(1, S / 5, None)).unwrap();
        log.flush().unwrap();
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }
}

#[test]
fn the_file_is_what_the_documentation_shows() {
    let lab = Lab::new();
    lab.two();
    let (mut log, opened) = lab.resume(&plan(), 600 * S).unwrap();
    assert_eq!(opened, Opened { start: Start { sequence: 2, elapsed: 600 * S }, seed: None });
    log.write(&row(2, 600 * S + Duration::from_nanos(90_001), Some(597_300_112))).unwrap();
    drop(log);
    let expected = "\
# format = linkemu-probe 1
# target = host:8620
# interval = 200 ms
# spacing = constant
# size = 20
# timeout = 10 s
# synchronised = false
# started_utc = 2026-01-01T00:00:00.000000000Z
sequence,sent_utc,sent_s,rtt_ms,there_ms,back_ms
0,2026-01-01T00:00:00.000104211Z,0.000104211,597.300112,,
1,2026-01-01T00:00:00.200000000Z,0.200000000,,,
# resumed_utc = 2026-01-01T00:10:00.000000000Z
2,2026-01-01T00:10:00.000090001Z,600.000090001,597.300112,,
";
    assert_eq!(lab.text(), expected);
}

#[test]
fn one_way_delays_are_written_only_of_synchronised_clocks_and_sum_to_the_round_trip() {
    let lab = Lab::new();
    let mut log = lab.create(&Plan { synchronised: true, ..plan() });
    log.write(&row(0, S, Some(1_000_001))).unwrap();
    log.write(&row(1, S, None)).unwrap();
    drop(log);
    let text = lab.text();
    assert!(text.contains("# synchronised = true\n"));
    assert!(text.contains(",1.000001,1.500000,-0.499999\n"), "{text}");
    assert!(text.ends_with(",,,\n"));
}

#[test]
fn an_existing_file_is_refused_with_the_remedy_and_kept() {
    let lab = Lab::new();
    for content in ["", "precious"] {
        fs::write(lab.path(), content).unwrap();
        let error = Log::open(&lab.path(), &plan(), false, 0, start()).unwrap_err();
        assert!(error.to_string().contains("exists: give --resume"), "{error}");
        assert_eq!(lab.text(), content);
    }
}

#[test]
fn resuming_missing_or_empty_log_begins_it() {
    let lab = Lab::new();
    assert_eq!(lab.resume(&plan(), S).unwrap().1, Opened::default());
    fs::write(lab.path(), "").unwrap();
    assert_eq!(lab.resume(&plan(), S).unwrap().1, Opened::default());
    let log = lab.resume(&plan(), 5 * S).unwrap();
    assert_eq!(log.1.start, Start { sequence: 0, elapsed: 4 * S });
}

#[test]
fn a_log_is_written_by_one_sender() {
    let lab = Lab::new();
    let log = lab.create(&plan());
    let error = lab.resume(&plan(), S).unwrap_err();
    assert!(error.to_string().contains("by another sender"), "{error}");
    drop(log);
    lab.resume(&plan(), S).unwrap();
}

#[test]
fn log_of_another_plan_is_refused_with_differences() {
    let lab = Lab::new();
    lab.two();
    let before = lab.text();
    let interval = Duration::from_millis(100);
    for (other, expected) in [
        (Plan { target: "other".parse().unwrap(), ..plan() }, "target = host:8620, not other:8620"),
        (Plan { interval, size: 64, ..plan() }, "interval = 200 ms, not 100 ms, size = 20, not 64"),
        (Plan { timeout: S, ..plan() }, "timeout = 10 s, not 1 s"),
        (Plan { synchronised: true, ..plan() }, "synchronised = false, not true"),
    ] {
        let error = lab.resume(&other, S).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(lab.text(), before);
    }
}

#[test]
fn a_poisson_log_keeps_its_seed() {
    let lab = Lab::new();
    let (log, opened) = Log::open(&lab.path(), &poisson(None), false, 5, start()).unwrap();
    assert_eq!(opened.seed, Some(5));
    drop(log);
    for seed in [None, Some(5)] {
        assert_eq!(lab.resume(&poisson(seed), S).unwrap().1.seed, Some(5));
    }
    let error = lab.resume(&poisson(Some(7)), S).unwrap_err().to_string();
    assert!(error.contains("seed = 5, not 7"), "{error}");
}

#[test]
fn time_ascends_over_a_break_although_the_wall_clock_was_set_back() {
    let lab = Lab::new();
    let mut log = lab.create(&plan());
    log.write(&row(0, 100 * S, None)).unwrap();
    drop(log);
    let start = lab.resume(&plan(), 10 * S).unwrap().1.start;
    assert_eq!(start, Start { sequence: 1, elapsed: 100 * S + Duration::from_millis(200) });
}

#[test]
fn log_cut_anywhere_resumes_after_last_whole_row() {
    let lab = Lab::new();
    lab.two();
    let whole = lab.text();
    let head = whole.find("sequence,").unwrap() + COLUMNS.join(",").len() + 1;
    for cut in 1..=whole.len() {
        fs::write(lab.path(), &whole[..cut]).unwrap();
        let result = lab.resume(&plan(), 600 * S);
        if cut < head {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("its head has no end"), "{error}");
            assert_eq!(lab.text(), whole[..cut]);
            continue;
        }
        let rows = whole[head..cut].matches('\n').count();
        assert_eq!(result.unwrap().1.start.sequence, rows as u64);
        let text = lab.text();
        let mut lines = text.lines().rev();
        assert!(lines.next().unwrap().starts_with("# resumed_utc = 2026-01-01T00:10:00"));
        assert!(text.ends_with('\n') && whole.starts_with(text.rsplit_once("# res").unwrap().0));
    }
}

#[test]
fn zero_filled_log_resumes_after_last_whole_row() {
    let lab = Lab::new();
    lab.two();
    let mut bytes = fs::read(lab.path()).unwrap();
    bytes.extend([0; 4096]);
    fs::write(lab.path(), bytes).unwrap();
    assert_eq!(lab.resume(&plan(), S).unwrap().1.start.sequence, 2);
    assert!(!lab.text().contains('\0'));
}

#[test]
fn long_log_resumes_after_last_row() {
    let lab = Lab::new();
    let mut log = lab.create(&plan());
    // More than is read of a tail.
    for sequence in 0..40_000_u32 {
        log.write(&row(sequence.into(), S * sequence, Some(1))).unwrap();
    }
    drop(log);
    assert!(fs::metadata(lab.path()).unwrap().len() > 2 << 20);
    assert_eq!(lab.resume(&plan(), S).unwrap().1.start.sequence, 40_000);
}

#[test]
fn invalid_log_is_refused_with_reason_and_kept() {
    let lab = Lab::new();
    lab.two();
    let whole = lab.text();
    for (content, expected) in [
        ("\n".to_owned(), "its columns are \"\""),
        ("a,b,c\n1,2,3\n".to_owned(), "its columns are \"a,b,c\""),
        ("x".repeat(1 << 20), "its head has no end"),
        ("#\n".repeat(1 << 16), "its columns are \"#\""),
        ("# x\n".repeat(1 << 16), "its head has no end"),
        (whole.replace("# size = 20\n", ""), "does not say its size"),
        (whole.replace("2026-01-01T00:00:00.000000000Z", "soon"), "its started_utc is \"soon\""),
        (whole.clone() + "2,3\n", "its last line \"2,3\" is no row"),
        (whole.clone() + "2,soon,1.000000000,,,\n", "is no row"),
        (whole.clone() + "2,2026-01-01T00:00:00Z,1.0,,,\n", "is no row"),
        (whole.clone() + "-1,2026-01-01T00:00:00Z,1.000000000,,,\n", "is no row"),
        (whole.clone() + &"# x\n".repeat(1 << 20), "no row is near its end"),
        (whole + "18446744073709551615,2026-01-01T00:00:00Z,1.000000000,,,\n", "last number"),
    ] {
        fs::write(lab.path(), &content).unwrap();
        let error = lab.resume(&plan(), S).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("another -w"), "{error}");
        assert_eq!(lab.text(), content);
    }
}

#[test]
fn unopenable_path_is_named() {
    let lab = Lab::new();
    let missing = lab.directory.path().join("no/log.csv");
    let error = Log::open(&missing, &plan(), false, 0, start()).unwrap_err().to_string();
    assert!(error.contains("cannot open") && error.contains("no/log.csv"), "{error}");
    let error = Log::open(lab.directory.path(), &plan(), true, 0, start()).unwrap_err().to_string();
    assert!(error.contains("cannot open"), "{error}");
    let error = Log::open(Path::new("/dev/null"), &plan(), true, 0, start()).unwrap_err();
    assert!(error.to_string().contains("it is no file"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        // 64 cases by default, scaled by PROPTEST_CASES / 256.
        cases: ProptestConfig::default().cases.saturating_mul(64).div_ceil(256),
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_files_are_resumed_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 1..200),
        at in 0_usize..400,
    ) {
        let lab = Lab::new();
        lab.two();
        let mut file = fs::read(lab.path()).unwrap();
        let at = at.min(file.len());
        file.splice(at..at, bytes);
        fs::write(lab.path(), &file).unwrap();
        if lab.resume(&plan(), S).is_err() {
            prop_assert_eq!(fs::read(lab.path()).unwrap(), file);
        }
    }
}
