// SPDX-License-Identifier: Apache-2.0
//! `linkctl verify`: its output, its report and its exit codes for a profile, a log and a live
//! link. Which links pass is tested in the crate `fit`.

use crate::baseline_lab::{
    DAY, GEO, INTERVAL_NS, Lab, MS, played, probe_csv, probe_head, probe_row,
};
use crate::baseline_lab::{quiet, scattered, short_csv, text};
use fit::baseline::Series;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Output, Stdio};
use std::sync::OnceLock;

/// A lab with a day of a link that has enough losses to estimate their rate.
fn lab() -> Lab {
    static LOSSY: OnceLock<Series> = OnceLock::new();
    let lab = Lab::new();
    let series = LOSSY.get_or_init(|| played(&lossy(), DAY, 1));
    lab.write("link.csv", probe_csv(series, INTERVAL_NS));
    lab
}

/// The known link with ten times the losses.
fn lossy() -> String {
    GEO.replace("\"20 min\"", "\"2 min\"").replace("\"12 min\"", "\"72 s\"")
}

/// A verification that must fail: its JSON, and the error.
fn fails(lab: &Lab, line: &str) -> (Value, Value) {
    let (out, err) = lab.ends(4, &format!("-o json verify {line}"));
    let error: Value = serde_json::from_str(err.lines().last().unwrap()).unwrap();
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["holds"], false);
    assert_eq!(error["error"]["code"], "check_failed");
    (found, error["error"].clone())
}

fn failed(found: &Value) -> Vec<String> {
    let rows = found["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["verdict"] == "fail")
        .map(|row| row["figure"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn fitted_link_passes() {
    let lab = lab();
    lab.ends(0, "fit link.csv -w mine.toml");
    let (out, err) = lab.ends(0, "verify mine.toml --baseline link.csv");
    assert_eq!(err, "");
    assert!(out.lines().last().unwrap().starts_with("PASS: all "), "{out}");
    assert!(!out.contains("FAIL"), "{out}");
}

#[test]
fn a_link_that_differs_ends_with_4_and_its_figures_are_named() {
    let lab = lab();
    let (found, error) = fails(&lab, "transparent --baseline link.csv");
    let failed = failed(&found);
    assert!(failed.contains(&"p50".to_owned()), "{failed:?}");
    assert_eq!(found["failed"], failed.len());
    let message = error["message"].as_str().unwrap();
    let expected = format!("{} figures are outside of their tolerances: Round-trip", failed.len());
    assert!(message.starts_with(&expected) && message.contains("p50"), "{message}");
}

#[test]
fn a_log_that_is_too_short_ends_with_5_and_the_needed_length() {
    let lab = Lab::new();
    lab.write("link.csv", probe_csv(&played(GEO, 600, 1), INTERVAL_NS));
    lab.write("geo.toml", GEO);
    let (out, err) = lab.ends(5, "-o json verify geo.toml --baseline link.csv");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&found["verdict"], &found["holds"]), (&"undecided".into(), &false.into()));
    let rows = found["rows"].as_array().unwrap().iter();
    assert_eq!(found["undecided"], rows.filter(|row| row["verdict"] == "undecided").count());
    // Two minutes were measured; there is a loss every few minutes.
    assert!(found["needed_s"].as_f64().unwrap() > 7_200.0, "{found}");
    let error: Value = serde_json::from_str(err.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "undecided");
    let hint = error["error"]["hints"][0].as_str().unwrap();
    assert!(hint.starts_with("logs of ") && hint.ends_with(" or more would decide"), "{hint}");
    let (out, _) = lab.ends(5, "verify geo.toml --baseline link.csv --report page.html");
    assert!(out.lines().last().unwrap().starts_with("UNDECIDED: "), "{out}");
    assert!(lab.read("page.html").contains("? undecided"));
}

/// The certificate of a run of that hour with this lateness.
fn certificate(hour: u8, late_ns: u64) -> String {
    let holds = late_ns <= 1_000_000;
    format!(
        "{{\"holds\": {holds}, \"span\": {{\"since_utc\": \"2026-01-01T{hour:02}:00:00Z\"}}, \
         \"until_utc\": \"2026-01-01T{hour:02}:59:59Z\", \"criteria\": [{{\"name\": \"lateness_p99\", \
         \"value\": {late_ns}, \"limit\": 1000000, \"unit\": \"ns\", \"holds\": {holds}, \
         \"text\": \"lateness_p99 {late_ns} ns, at most 1 ms\"}}]}}"
    )
}

#[test]
fn log_of_late_emulator_is_refused_and_uncertified_is_unknown() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    lab.write("run.json", certificate(0, 20_000));
    lab.write("late.json", certificate(0, 3_200_000));
    lab.write("other.json", certificate(5, 20_000));
    let verify = "verify --measured link.csv --baseline link.csv";
    for line in
        ["fit link.csv -w mine.toml", verify, &format!("{verify} --measured-certificate run.json")]
    {
        for (file, part) in [
            (
                "late.json",
                "late.json: the emulator may itself have been the bottleneck of the run \
                           (lateness_p99 3200000 ns, at most 1 ms)",
            ),
            (
                "other.json",
                "other.json is of 2026-01-01T05:00:00Z to 2026-01-01T05:59:59Z, and \
                            link.csv of 2026-01-01T00:00:00",
            ),
            ("link.csv", "link.csv is not the certificate of a run"),
            ("absent.json", "cannot read absent.json"),
        ] {
            let error = lab.error(1, &format!("{line} --certificate {file}"));
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(part), "{line}: {message}");
            assert_eq!(error["code"], "certificate");
        }
    }
    let late = lab.error(1, &format!("{verify} --measured-certificate late.json"));
    assert!(late["message"].as_str().unwrap().contains("bottleneck"), "{late}");
    // A baseline against itself: some figures are undecided.
    let remarks = |line: &str| {
        let found: Value = serde_json::from_str(&lab.ends(5, line).0).unwrap();
        found["remarks"].to_string()
    };
    let unknown = "whether an emulator was in the path of the log and was itself late is unknown";
    let passes = "the certificate of the emulator (run.json) passes: lateness_p99 20000 ns";
    let said = remarks(&format!("-o json {verify}"));
    assert_eq!((said.matches(unknown).count(), said.contains(passes)), (2, false), "{said}");
    let both = "--certificate run.json --measured-certificate run.json";
    let said = remarks(&format!("-o json {verify} {both}"));
    assert_eq!((said.matches(passes).count(), said.contains(unknown)), (2, false), "{said}");
    let (out, _) = lab.ends(0, "fit link.csv -w mine.toml");
    assert!(out.contains("whether an emulator was in the path"), "{out}");
    lab.ends(0, "fit link.csv -w mine.toml --certificate run.json");
    let profile = lab.read("mine.toml");
    assert!(profile.contains(passes) && !profile.contains(unknown), "{profile}");
    lab.write(
        "study.toml",
        "source = \"x\"\ninterval = \"200 ms\"\n[delay]\nsamples = 1000\n\
         exceedance = [[\"1 ms\", \"50 %\"], [\"2 ms\", \"5 %\"]]\n",
    );
    let (_, told) = lab.ends(2, "fit study.toml --certificate run.json");
    assert!(told.contains("--certificate is for a log"), "{told}");
}

#[test]
fn json_has_stable_keys_and_all_numbers() {
    let lab = lab();
    lab.write("lossy.toml", lossy());
    let found = lab.json("verify lossy.toml --baseline link.csv --report page.html --seed 2");
    assert_eq!((&found["holds"], &found["failed"]), (&true.into(), &0.into()));
    assert_eq!((&found["verdict"], &found["undecided"]), (&"pass".into(), &0.into()));
    assert!(failed(&found).is_empty() && found["needed_s"].is_null());
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&found),
        [
            "baseline",
            "failed",
            "holds",
            "needed_s",
            "played",
            "profile",
            "remarks",
            "report",
            "rows",
            "sha256",
            "undecided",
            "verdict"
        ]
    );
    assert_eq!((&found["baseline"], &found["profile"]), (&"link.csv".into(), &"geo".into()));
    assert_eq!(found["report"], "page.html");
    assert!(found["played"].as_str().unwrap().starts_with("in virtual time, seed 2, "));
    let rows = found["rows"].as_array().unwrap();
    let expected = [
        "baseline",
        "because",
        "error",
        "figure",
        "group",
        "link",
        "needed_s",
        "tolerance",
        "unit",
        "verdict",
    ];
    for row in rows {
        assert_eq!(keys(row), expected);
        for number in ["baseline", "error", "link", "tolerance"] {
            assert!(row[number].is_f64(), "{row}");
        }
    }
}

#[test]
fn report_is_one_self_contained_page() {
    let lab = lab();
    lab.write("geo.toml", GEO);
    let (out, err) = lab.ends(4, "verify geo.toml --baseline link.csv --report page.html");
    assert!(out.contains("FAIL Losses, lost: link minus baseline is "), "{out}");
    let verdict = out.lines().find(|line| line.starts_with("FAIL: "));
    assert!(verdict.is_some() && err.starts_with("error: "), "{out}{err}");
    let page = lab.read("page.html");
    assert!(page.starts_with("<!DOCTYPE html>"), "{}", &page[..100]);
    assert!(page.trim_end().ends_with("</html>"));
    assert_eq!(page.matches("<svg").count(), 4);
    for needed in ["link.csv", "Verification of geo", "loss events", "✗ FAIL", "✓ pass"] {
        assert!(page.contains(needed), "{needed}");
    }
    for outside in ["<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(lab.files().iter().eq(["geo.toml", "link.csv", "page.html"]), "{:?}", lab.files());
    // A failure before the end leaves the page as it was.
    lab.write("empty.csv", "");
    lab.ends(1, "verify geo.toml --baseline empty.csv --report page.html");
    assert_eq!(lab.read("page.html"), page);
}

#[test]
fn baseline_faults_are_reported_once() {
    let lab = Lab::new();
    let mut log = short_csv();
    log.truncate(log.len() - 9);
    lab.write("link.csv", log);
    let output = lab.run("verify viasat2 --baseline link.csv");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(out.matches("line is cut off").count(), 1, "{out}");
    assert!(!err.contains("cut off"), "{err}");
}

#[test]
fn a_log_that_was_measured_is_compared_as_well() {
    let lab = lab();
    lab.write("like.csv", probe_csv(&played(&lossy(), DAY, 2), INTERVAL_NS));
    let found = lab.json("verify --measured like.csv --baseline link.csv");
    assert_eq!((&found["holds"], &found["profile"]), (&true.into(), &"like.csv".into()));
    assert_eq!(found["played"], format!("live, {DAY} probes"));
}

#[test]
fn logs_that_cannot_be_compared_are_refused_with_the_reason() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    let row = |n: u64| probe_row(n, n * 500 * MS, Some(quiet(n)));
    let slow: String = (0..1_000).map(row).collect();
    lab.write("slow.csv", probe_head(500 * MS) + &slow);
    let mut at = 0;
    let mut exponential = probe_head(INTERVAL_NS).replace("constant", "poisson");
    for n in 0..2_000 {
        let u = (scattered(n, 1_000_000) as f64 + 0.5) / 1e6;
        at += (-(INTERVAL_NS as f64) * u.ln()) as u64 + 1;
        exponential += &probe_row(n, at, Some(quiet(n)));
    }
    lab.write("poisson.csv", exponential);
    let few: String = (0..20).map(|n| probe_row(n, n * INTERVAL_NS, Some(quiet(n)))).collect();
    lab.write("few.csv", probe_head(INTERVAL_NS) + &few);
    for (line, what) in [
        ("verify viasat2 --baseline few.csv", "20 round trips"),
        ("verify --measured few.csv --baseline link.csv", "20 probes"),
    ] {
        let error = lab.error(5, line);
        let message = error["message"].as_str().unwrap();
        let told = format!(
            "few.csv: {what} are too few to compare, which needs 100: probe for 20 seconds"
        );
        assert!(message.contains(&told), "{message}");
    }
    lab.write("own.csv", "time,rtt\n0,1\n1,1\n");
    lab.write(
        "study.toml",
        "source = \"x\"\ninterval = \"200 ms\"\n[delay]\nsamples = 1000\n\
                             exceedance = [[\"1 ms\", \"50 %\"], [\"2 ms\", \"5 %\"]]\n",
    );
    for (line, parts) in [
        ("--measured slow.csv", &["slow.csv: it was probed at intervals of 500 ms", "200 ms"][..]),
        ("--measured poisson.csv", &["poisson.csv: it was probed at exponential intervals"]),
        ("--measured own.csv", &["own.csv: ", "begins with \"time,rtt\""]),
        ("--measured study.toml", &["study.toml: it is no log of probes"]),
        ("--measured absent.csv", &["cannot read absent.csv"]),
        ("absent.toml", &["cannot read absent.toml"]),
        ("viasat3", &["nearest is \"viasat2\""]),
        ("link.csv", &["no built-in profile \"link.csv\""]),
    ] {
        let error = lab.error(1, &format!("verify {line} --baseline link.csv"));
        let message = error["message"].as_str().unwrap();
        assert!(parts.iter().all(|part| message.contains(part)), "{line}: {message}");
    }
    for (line, part) in [
        ("", "<NAME|FILE|--live"),
        ("viasat2 --measured x.csv", "cannot be used with"),
        ("--live 127.0.0.1", "--duration"),
        ("viasat2 --duration 1s", "--duration is for --live"),
        ("--measured x.csv --duration 1s", "--duration is for --live"),
        ("viasat2 --confidence 10%", "not within 80 % and 100 %"),
        ("viasat2 --margin 10", "unit"),
        ("viasat2 --measured-certificate run.json", "--measured-certificate is for --measured"),
    ] {
        let (_, told) = lab.ends(2, &format!("verify {line} --baseline link.csv"));
        assert!(told.contains(part), "{line}: {told}");
    }
    let (_, told) = lab.ends(2, "verify viasat2 --baseline link.csv -o page.toml");
    assert!(told.contains("write text or json"), "{told}");
    let (_, told) = lab.ends(2, "verify viasat2");
    assert!(told.contains("--baseline"), "{told}");
}

/// A reflector that does not outlive the test.
struct Reflector {
    child: Child,
    address: String,
    _stderr: BufReader<ChildStderr>,
}

impl Reflector {
    fn new(lab: &Lab) -> Self {
        let mut command = lab.command("probe reflect --bind 127.0.0.1:0");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("reflecting probes at ").unwrap().to_owned();
        Self { child, address, _stderr: stderr }
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a log shows that its sender was held up: its intervals are not those asked for. The
/// test is then void.
fn held_up(output: &Output) -> bool {
    let told = text(&output.stderr);
    let signs = [
        "the interval changes",
        "neither constant nor exponential",
        "was probed at",
        "the probes are ",
        "too few to compare",
    ];
    let void = signs.iter().any(|sign| told.contains(sign));
    if void {
        println!("VOID: the sender was held up: {told}");
    }
    void
}

/// Measures a live link twice. False if a sender was held up.
fn live_link_is_compared() -> bool {
    let lab = Lab::new();
    let reflector = Reflector::new(&lab);
    let address = &reflector.address;
    lab.ends(0, &format!("probe send {address} --interval 5ms --count 300 -w base.csv"));
    let output =
        lab.run(&format!("-o json verify --live {address} --duration 1500ms --baseline base.csv"));
    if held_up(&output) {
        return false;
    }
    // Two stretches of a busy machine's loopback may differ; a second and a half without a loss
    // says little of losses.
    let expected = match output.status.code() {
        Some(4) => "fail",
        Some(5) => "undecided",
        _ => panic!("{}", text(&output.stderr)),
    };
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["verdict"], &found["holds"]), (&expected.into(), &false.into()));
    assert_eq!(found["profile"], format!("live link to {address}"));
    assert!(found["played"].as_str().unwrap().starts_with("live, "), "{found}");
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["figure"] == "p50"), "{rows:?}");
    assert!(lab.files().iter().eq(["base.csv"]), "{:?}", lab.files());
    true
}

#[test]
fn live_link_is_probed_like_its_baseline() {
    let _ = live_link_is_compared() || live_link_is_compared();
}
