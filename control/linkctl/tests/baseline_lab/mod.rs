// SPDX-License-Identifier: Apache-2.0
//! A folder in which the binary works, and baselines of a known link in each format.
//!
//! Times are in nanoseconds. Each test binary uses a part of this.

use fit::baseline::{Probe, Series};
use fit::verify::{play, regular};
use profile::Profile;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;
pub const INTERVAL_NS: u64 = 200 * MS;
/// A day at five probes a second.
pub const DAY: u64 = 86_400 * 5;
/// The wall clock when the first probe of a log is due, in seconds since 1970:
/// 2026-01-01T00:00:00Z.
pub const EPOCH_S: u64 = 1_767_225_600;

/// A geostationary link with losses of two kinds, slots and excursions.
pub const GEO: &str = r#"
name = "geo"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "275 ms"
outages = [
    { interval = "20 min", duration = "400 ms", law = "exponential" },
    { interval = "12 min", duration = "100 ms", law = "fixed" },
]
[return]
rate = "unlimited"
queue.limit = "1 MB"
outages = [
    { interval = "20 min", duration = "400 ms", law = "exponential" },
    { interval = "12 min", duration = "100 ms", law = "fixed" },
]
[return.delay]
base = "300 ms"
slot = "43.017 ms"
excursions = [
    { interval = "8 s", duration = "400 ms", location = "0 ms", scale = "30 ms", shape = -0.2, max = "5 s" },
]
"#;

/// The link of [`GEO`], probed for a day.
pub fn day() -> &'static Series {
    static SERIES: OnceLock<Series> = OnceLock::new();
    SERIES.get_or_init(|| played(GEO, DAY, 1))
}

/// A link, probed `count` times.
pub fn played(toml: &str, count: u64, seed: u64) -> Series {
    let profile = Profile::from_toml(toml).unwrap();
    play(&profile, seed, regular(INTERVAL_NS, count)).unwrap()
}

/// A series in which the probe of each number has a round trip, or was lost.
pub fn regularly(interval_ns: u64, count: u64, rtt: impl Fn(u64) -> Option<u64>) -> Series {
    let mut series = Series::default();
    for (number, sent_ns) in (0..count).zip(regular(interval_ns, count)) {
        series.push(Probe { sent_ns, rtt_ns: rtt(number) });
    }
    series
}

/// Spreads a number over 0 to `below`, evenly and without order.
pub fn scattered(number: u64, below: u64) -> u64 {
    // SplitMix64 (G. L. Steele, 2014).
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % below
}

/// A round trip of 600 ms and an exponential of 3 ms more.
pub fn quiet(number: u64) -> u64 {
    let u = (scattered(number, 1_000_000) as f64 + 0.5) / 1e6;
    600 * MS + (-3e6 * u.ln()) as u64
}

/// A quarter of an hour of a quiet link, with nine probes lost one at a time.
pub fn short() -> Series {
    regularly(INTERVAL_NS, 4_500, |n| (n % 500 != 250).then(|| quiet(n)))
}

/// It, as a probe log.
pub fn short_csv() -> String {
    probe_csv(&short(), INTERVAL_NS)
}

/// The head of a probe log.
pub fn probe_head(interval_ns: u64) -> String {
    let interval = profile::format_duration(interval_ns);
    format!(
        "# format = linkemu-probe 1\n# target = far.example:8620\n# interval = {interval}\n\
         # spacing = constant\n# size = 20\n# timeout = 10 s\n# synchronised = false\n\
         # started_utc = 2026-01-01T00:00:00.000000000Z\n\
         sequence,sent_utc,sent_s,rtt_ms,there_ms,back_ms\n"
    )
}

/// A row of it.
pub fn probe_row(sequence: u64, sent_ns: u64, rtt_ns: Option<u64>) -> String {
    // The wall clock is for readers only: it is valid for a day.
    let (s, ns) = (sent_ns / S, sent_ns % S);
    let (h, m, s_of) = (s / 3_600 % 24, s / 60 % 60, s % 60);
    let rtt = rtt_ns.map_or(String::new(), |r| format!("{}.{:06}", r / MS, r % MS));
    format!("{sequence},2026-01-01T{h:02}:{m:02}:{s_of:02}.{ns:09}Z,{s}.{ns:09},{rtt},,\n")
}

/// Output of `linkctl probe send`.
pub fn probe_csv(series: &Series, interval_ns: u64) -> String {
    let mut text = probe_head(interval_ns);
    for (number, probe) in (0..).zip(series.iter()) {
        text += &probe_row(number, probe.sent_ns, probe.rtt_ns);
    }
    text
}

/// Output of `ping -D`: three digits of a round trip, and the time of the answer.
pub fn ping(series: &Series) -> String {
    let mut text = String::from("PING far.example (192.0.2.7) 56(84) bytes of data.\n");
    for (number, probe) in (1_u64..).zip(series.iter()) {
        let Some(rtt) = probe.rtt_ns else { continue };
        let (at, ms) = (EPOCH_S * S + probe.sent_ns + rtt, rtt as f64 / 1e6);
        let digits = if rtt >= 100 * MS {
            0
        } else if rtt >= 10 * MS {
            1
        } else {
            2
        };
        let (number, stamp) = (number as u16, (at + 500) / 1_000);
        let (s, us) = (stamp / 1_000_000, stamp % 1_000_000);
        writeln!(
            text,
            "[{s}.{us:06}] 64 bytes from 192.0.2.7: icmp_seq={number} ttl=51 time={ms:.digits$} ms"
        )
        .unwrap();
    }
    let (sent, lost) = (series.len(), series.lost());
    let last = series.iter().last().map_or(0, |probe| probe.sent_ns);
    writeln!(
        text,
        "\n--- far.example ping statistics ---\n{sent} packets transmitted, {} received, {}% packet \
         loss, time {}ms\nrtt min/avg/max/mdev = 1.000/2.000/3.000/0.100 ms",
        sent - lost,
        lost as f64 / sent as f64 * 100.0,
        last / MS
    )
    .unwrap();
    text
}

/// Output of `irtt client -o`.
pub fn irtt(series: &Series, interval_ns: u64) -> String {
    let mut text = format!(
        "{{\n    \"version\": {{\"irtt\": \"0.9.1\", \"protocol\": 1, \"json_format\": 1}},\n    \
         \"system_info\": {{\"os\": \"linux\"}},\n    \"config\": {{\"params\": {{\"interval\": \
         {interval_ns}, \"length\": 48}}}},\n    \"round_trips\": ["
    );
    for (number, probe) in (0..).zip(series.iter()) {
        let comma = if number > 0 { "," } else { "" };
        let (lost, delay) = match probe.rtt_ns {
            Some(rtt) => (false, format!("{{\"rtt\": {rtt}}}")),
            None => (true, "{}".into()),
        };
        let (wall, monotonic) = (EPOCH_S * S + probe.sent_ns, 7 * S + probe.sent_ns);
        write!(
            text,
            "{comma}\n{{\"seqno\": {number}, \"lost\": \"{lost}\", \"timestamps\": {{\"client\": \
             {{\"receive\": {{}}, \"send\": {{\"wall\": {wall}, \"monotonic\": {monotonic}}}}}, \
             \"server\": {{\"receive\": {{}}, \"send\": {{}}}}}}, \"delay\": {delay}, \"ipdv\": \
             {{}}}}"
        )
        .unwrap();
    }
    text + "\n]}\n"
}

/// Output of a custom tool, with the columns [`COLUMNS`].
pub fn columns(series: &Series) -> String {
    let mut text = String::from("host;when;n;answer_us\n");
    for (number, probe) in (0..).zip(series.iter()) {
        let at = EPOCH_S * S + probe.sent_ns;
        let rtt = match probe.rtt_ns {
            Some(rtt) => format!("{}.{:03}", rtt / 1_000, rtt % 1_000),
            None => "timeout".into(),
        };
        writeln!(text, "far;{}.{:09};{number};{rtt}", at / S, at % S).unwrap();
    }
    text
}

/// See [`columns`].
pub const COLUMNS: &str = "sent=when:unix,rtt=answer_us:us,seq=n,lost=timeout";

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder in which linkctl is run.
pub struct Lab(TempDir);

impl Lab {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.at(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    /// The names of all files in it.
    pub fn files(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linkctl"));
        command.current_dir(self.0.path()).args(line.split_whitespace());
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Standard output and error of a command that must end with `code`.
    pub fn ends(&self, code: i32, line: &str) -> (String, String) {
        let output = self.run(line);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{line}\n{out}\n{err}");
        assert!(!err.contains("panicked"), "{line}\n{err}");
        (out, err)
    }

    /// Standard output of a command that is done, as JSON.
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ends(0, &format!("-o json {line}")).0).unwrap()
    }

    /// Requires that `linkctl profile check` accepts the file.
    pub fn check(&self, name: &str) {
        let (out, _) = self.ends(0, &format!("profile check {name}"));
        assert!(out.contains("is valid"), "{out}");
    }

    /// The error of a command that must end with `code`, as it says it in JSON.
    pub fn error(&self, code: i32, line: &str) -> Value {
        let (out, err) = self.ends(code, &format!("-o json {line}"));
        assert_eq!(out, "", "{line}");
        let told = err.lines().last().unwrap_or_default();
        let json: Value =
            serde_json::from_str(told).unwrap_or_else(|e| panic!("{line}: {e}\n{err}"));
        json["error"].clone()
    }
}
