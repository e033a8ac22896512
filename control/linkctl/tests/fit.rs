// SPDX-License-Identifier: Apache-2.0
//! `linkctl fit`: baselines of a known link in every format, and the results.

use crate::baseline_lab::{
    COLUMNS, GEO, INTERVAL_NS, Lab, MS, columns, day, irtt, ping, probe_csv, short_csv,
};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use profile::{Profile, parse_duration};
use proto::linkemu::v1 as pb;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt, symlink};
use std::sync::OnceLock;

/// A value with the ends of its interval, in ns or as a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    value: f64,
    low: f64,
    high: f64,
}

impl Estimate {
    fn width(self) -> f64 {
        self.high - self.low
    }
}

fn estimates(fitted: &Value) -> BTreeMap<String, Estimate> {
    let number = |text: &Value| {
        let text = text.as_str().unwrap();
        text.parse().unwrap_or_else(|_| parse_duration(text).unwrap() as f64)
    };
    let of = |e: &Value| Estimate {
        value: number(&e["value"]),
        low: number(&e["low"]),
        high: number(&e["high"]),
    };
    let all = fitted["estimates"].as_array().unwrap();
    all.iter().map(|e| (e["parameter"].as_str().unwrap().to_owned(), of(e))).collect()
}

/// The day of the known link, fitted from each format: probe, ping, irtt, columns.
fn fitted() -> &'static [Value; 4] {
    static FITTED: OnceLock<[Value; 4]> = OnceLock::new();
    FITTED.get_or_init(|| {
        let lab = Lab::new();
        lab.write("link.csv", probe_csv(day(), INTERVAL_NS));
        lab.write("ping.log", ping(day()));
        lab.write("irtt.json", irtt(day(), INTERVAL_NS));
        lab.write("own.csv", columns(day()));
        let own = format!("fit own.csv --columns {COLUMNS}");
        let lines = ["fit link.csv", "fit ping.log", "fit irtt.json", &own];
        std::thread::scope(|scope| {
            lines.map(|line| scope.spawn(|| lab.json(line))).map(|thread| thread.join().unwrap())
        })
    })
}

fn profile_of(fitted: &Value) -> pb::Profile {
    Profile::from_toml(fitted["profile"].as_str().unwrap()).unwrap().as_proto().clone()
}

#[test]
fn every_format_of_the_same_series_gives_the_same_estimates() {
    let [probe, ping, irtt, columns] = fitted();
    for fitted in [probe, ping, irtt, columns] {
        assert_eq!(fitted["samples"], day().len());
        assert_eq!(fitted["lost"], day().lost());
        assert_eq!(fitted["losses"], probe["losses"]);
        assert_eq!(fitted["remarks"], Value::Array(Vec::new()));
    }
    // Both are exact to the nanosecond.
    assert_eq!(probe["interval_ns"], irtt["interval_ns"]);
    assert_eq!(estimates(probe), estimates(irtt));
    let exact = estimates(probe);
    let of_columns = estimates(columns);
    let of_ping = estimates(ping);
    assert!(exact.keys().eq(of_columns.keys()) && exact.keys().eq(of_ping.keys()), "{of_ping:?}");
    for (parameter, exact) in exact {
        // Eighteen digits of seconds since 1970 have 10 ns: nothing beside chance.
        let near = (of_columns[&parameter].value - exact.value).abs();
        assert!(near <= exact.width() / 20.0, "{parameter}: {exact:?}, {near}");
        // Ping writes whole milliseconds of these round trips.
        let rounding = if parameter.ends_with("shape") { 0.0 } else { MS as f64 };
        let coarse = of_ping[&parameter].value;
        assert!(
            (exact.low - rounding..=exact.high + rounding).contains(&coarse),
            "{parameter}: {exact:?}, {coarse}"
        );
    }
}

#[test]
fn the_json_has_these_keys() {
    let [probe, ..] = fitted();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut expected = vec![
        "name",
        "file",
        "samples",
        "lost",
        "interval_ns",
        "sha256",
        "losses",
        "estimates",
        "goodness",
        "unidentified",
        "remarks",
        "sensitivities",
        "profile",
    ];
    expected.sort_unstable();
    assert_eq!(keys(probe), expected);
    let first = |list: &str| keys(&probe[list][0]);
    assert_eq!(first("estimates"), ["high", "low", "method", "parameter", "value"]);
    assert_eq!(first("goodness"), ["degrees_of_freedom", "p_value", "statistic", "test"]);
    assert_eq!((&probe["name"], &probe["file"]), (&"link".into(), &Value::Null));
    assert_eq!(probe["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn both_file_options_write_the_printed_profile() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    let (out, err) = lab.ends(0, "fit link.csv -w mine.toml");
    assert_eq!(err, "");
    let read = "mine\n read       link.csv: probe log, 4500 probes, one every 200 ms, 9 lost";
    assert!(out.starts_with(read), "{out}");
    assert!(out.ends_with("written to mine.toml\n"), "{out}");
    let with_o = lab.read("mine.toml");
    for line in ["fit link.csv -w mine.toml", "fit --write mine.toml link.csv"] {
        fs::remove_file(lab.at("mine.toml")).unwrap();
        lab.ends(0, line);
        assert_eq!(lab.read("mine.toml"), with_o, "{line}");
    }
    let (printed, told) = lab.ends(0, "fit link.csv --name mine");
    assert_eq!(printed, with_o);
    assert!(told.starts_with("mine\n read       link.csv: probe log, 4500 probes"), "{told}");
    let json = lab.json("fit link.csv --write mine.toml");
    assert_eq!(json["profile"], *with_o);
    assert_eq!(json["file"], "mine.toml");
    lab.check("mine.toml");
    assert!(lab.files().iter().eq(["link.csv", "mine.toml"]), "{:?}", lab.files());
}

#[test]
fn text_says_in_ten_lines_what_a_user_must_know() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    let (out, _) = lab.ends(0, "fit link.csv -w mine.toml");
    for expected in [
        "mine\n read       link.csv: probe log, 4500 probes, one every 200 ms, ",
        "\n losses     isolated losses; from all ",
        " lost probes, in ",
        "\n forward    delay ",
        "; outages of 100 ms every ",
        "\n return     delay ",
        "\n uncertain  ",
        "\n assumed    rates and queues; ",
        "(--verbose says what and why)",
        "\n next       linkctl verify mine.toml --baseline link.csv\n",
        "\nwritten to mine.toml\n",
    ] {
        assert!(out.contains(expected), "{expected:?} is not in\n{out}");
    }
    assert!(out.lines().count() <= 12, "{out}");
    assert!(out.lines().all(|line| line.trim_end() == line), "{out}");
}

#[test]
fn verbose_text_reports_estimates_errors_and_unknowns() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    let (out, _) = lab.ends(0, "fit link.csv -w mine.toml --verbose");
    for expected in [
        "\n next ",
        "\n\n PARAMETER ",
        "95 % FROM",
        "\n forward and return\n   outages[0].interval ",
        " maximum likelihood\n",
        "\n base of the round trip ",
        "\n\nnot told by the baseline:\n -  rates and queues: ",
        "100 ms is a stated prior",
    ] {
        assert!(out.contains(expected), "{expected:?} is not in\n{out}");
    }
    assert!(out.lines().all(|line| line.trim_end() == line), "{out}");
}

#[test]
fn failed_fit_leaves_the_file_unchanged() {
    let lab = Lab::new();
    lab.write("empty.csv", "");
    lab.write("mine.toml", "precious");
    lab.ends(1, "fit empty.csv -w mine.toml");
    lab.ends(1, "fit empty.csv -w none.toml");
    assert_eq!(lab.read("mine.toml"), "precious");
    assert!(lab.files().iter().eq(["empty.csv", "mine.toml"]), "{:?}", lab.files());
}

#[test]
fn existing_file_is_replaced_with_its_mode_and_through_links() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    lab.write("real.toml", "old");
    fs::set_permissions(lab.at("real.toml"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.toml", lab.at("mine.toml")).unwrap();
    lab.ends(0, "fit link.csv -w mine.toml");
    assert!(lab.at("mine.toml").is_symlink());
    assert!(lab.read("real.toml").starts_with("name = \"mine\""));
    let mode = lab.at("real.toml").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // A pipe or a device is written to, and stays one.
    let path = lab.at("pipe.toml");
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let nonblocking = OFlag::O_NONBLOCK.bits();
    let pipe = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(&path);
    lab.ends(0, "fit link.csv -w pipe.toml --name mine");
    assert!(path.metadata().unwrap().file_type().is_fifo());
    let mut written = vec![0; 1 << 16];
    let length = pipe.unwrap().read(&mut written).unwrap();
    assert_eq!(String::from_utf8_lossy(&written[..length]), lab.read("real.toml"));
}

#[test]
fn command_does_not_overwrite_its_input() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    lab.write("like.toml", GEO);
    lab.write("down.trace", "1\n2\n");
    symlink("link.csv", lab.at("alias.toml")).unwrap();
    let before = lab.read("link.csv");
    for (line, named) in [
        ("fit link.csv -w link.csv", "link.csv"),
        ("fit link.csv -w alias.toml", "link.csv"),
        ("fit link.csv --like like.toml -w like.toml", "like.toml"),
        ("fit link.csv --forward-trace down.trace -w ./down.trace", "down.trace"),
        ("verify like.toml --baseline link.csv --report link.csv", "link.csv"),
        ("verify like.toml --baseline link.csv --report like.toml", "like.toml"),
    ] {
        let (_, told) = lab.ends(2, line);
        assert!(told.contains(&format!("would overwrite {named}, which is read")), "{told}");
    }
    assert_eq!(lab.read("link.csv"), before);
    assert_eq!(lab.read("like.toml"), GEO);
}

#[test]
fn rates_and_queues_are_as_stated() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    let of = |line: &str| {
        let profile = profile_of(&lab.json(line));
        [profile.forward_pipe.unwrap(), profile.return_pipe.unwrap()]
    };
    let [forward, back] =
        of("fit link.csv --forward-rate 144Mbit/s --return-rate 12Mbit/s --queue 36MB");
    assert_eq!((forward.rate_bps, back.rate_bps), (Some(144_000_000), Some(12_000_000)));
    assert!([&forward, &back].iter().all(|p| p.queue.unwrap().limit_bytes == 36_000_000));
    let [forward, back] = of("fit link.csv");
    assert_eq!((forward.rate_bps, back.rate_bps), (None, None));

    let catalog = profile::Catalog::built_in();
    let like = catalog.get("viasat2").unwrap().as_proto().clone();
    let like = [like.forward_pipe.unwrap(), like.return_pipe.unwrap()];
    let found = of("fit link.csv --like viasat2 --queue 30MB");
    for (like, found) in like.iter().zip(&found) {
        assert_eq!((like.rate_bps, like.overhead_bytes), (found.rate_bps, found.overhead_bytes));
        let (like, found) = (like.queue.unwrap(), found.queue.unwrap());
        assert_eq!((found.limit_bytes, found.random_drop), (30_000_000, like.random_drop));
    }
    let delays = of("fit link.csv --forward-delay 100ms").map(|pipe| pipe.delay.unwrap().base_ns);
    assert_eq!(delays[0], 100 * MS);
    assert!(delays[1].abs_diff(500 * MS) < MS / 10, "{delays:?}");
    let losses = |line: &str| of(line).map(|pipe| pipe.outages.len());
    assert_eq!(losses("fit link.csv --losses-in forward"), [1, 0]);
    assert_eq!(losses("fit link.csv --losses-in return"), [0, 1]);
    assert_eq!(losses("fit link.csv"), [1, 1]);
    let bodies = |line: &str| of(line).map(|pipe| pipe.delay.unwrap().body.is_some());
    assert_eq!(bodies("fit link.csv --delay-in forward"), [true, false]);
    assert_eq!(bodies("fit link.csv --delay-in return"), [false, true]);
}

/// The mean over the steps, in bit/s.
fn mean(trace: &pb::RateTrace) -> f64 {
    trace.rates_bps.iter().sum::<u64>() as f64 / trace.rates_bps.len() as f64
}

#[test]
fn a_rate_trace_becomes_one_of_the_same_mean_in_a_valid_profile() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    // Mahimahi: 1504 bytes at each line, more and more seldom, for 10 s.
    let mut ms = 0;
    let mut opportunities = String::new();
    let mut count = 0_u64;
    while ms < 10_000 {
        ms += 1 + ms / 2_000;
        opportunities += &format!("{ms}\n");
        count += 1;
    }
    lab.write("down.trace", &opportunities);
    let of_down = count as f64 * 1504.0 * 8.0 / (f64::from(ms) / 1e3);
    // Ten minutes of seconds.
    let rates: Vec<u64> =
        (0..600).map(|s| if s % 60 < 3 { 0 } else { 1_000 * (s % 7 + 1) }).collect();
    let rows: String = rates.iter().enumerate().map(|(s, kbps)| format!("{s},{kbps}\n")).collect();
    lab.write("up.csv", format!("time_s,rate_kbps\n{rows}"));
    let of_up = rates.iter().sum::<u64>() as f64 * 1e3 / 600.0;

    lab.ends(0, "fit link.csv --forward-trace down.trace --return-trace up.csv -w mine.toml");
    lab.check("mine.toml");
    // Without a step the opportunities stay single.
    let profile = Profile::from_toml(&lab.read("mine.toml")).unwrap().as_proto().clone();
    let trace = profile.forward_pipe.unwrap().rate_trace.unwrap();
    assert_eq!(trace.opportunities.unwrap().runs.iter().map(|run| run % 16).sum::<u64>(), count);

    let averaged = "fit link.csv --forward-trace down.trace --return-trace up.csv --trace-step 1s";
    lab.ends(0, &format!("{averaged} -w mine.toml"));
    let profile = Profile::from_toml(&lab.read("mine.toml")).unwrap().as_proto().clone();
    let traces = [profile.forward_pipe, profile.return_pipe].map(|pipe| {
        let pipe = pipe.unwrap();
        assert_eq!(pipe.rate_bps, None);
        pipe.rate_trace.unwrap()
    });
    // Each step is rounded to a bit per second, and its length to a nanosecond.
    assert!((mean(&traces[0]) / of_down - 1.0).abs() < 1e-6, "{} {of_down}", mean(&traces[0]));
    assert!((mean(&traces[1]) - of_up).abs() < 1.0, "{} {of_up}", mean(&traces[1]));
    assert_eq!(traces[1].step_ns, 1_000 * MS);
    assert_eq!(traces[1].rates_bps.len(), 600);

    // Longer steps carry the same.
    lab.ends(0, "fit link.csv --return-trace up.csv --trace-step 7s -w mine.toml");
    lab.check("mine.toml");
    let profile = Profile::from_toml(&lab.read("mine.toml")).unwrap().as_proto().clone();
    let trace = profile.return_pipe.unwrap().rate_trace.unwrap();
    assert!((mean(&trace) - of_up).abs() < 1.0, "{} {of_up}", mean(&trace));
    assert_eq!(trace.rates_bps.len(), 86);
}

#[test]
fn published_figures_are_fitted_too() {
    let lab = Lab::new();
    lab.write(
        "study.toml",
        "source = \"a study\"\ninterval = \"200 ms\"\n[losses]\nsamples = 3024000\nlost = 604\n\
         single = 465\nruns = 44\nlongest = 11\n[delay]\nsamples = 432000\nexceedance = [[\"576 \
         ms\", \"95 %\"], [\"587 ms\", \"75 %\"], [\"597 ms\", \"50 %\"], [\"607 ms\", \"25 %\"], \
         [\"618 ms\", \"5 %\"], [\"640 ms\", \"1 %\"], [\"690 ms\", \"0.1 %\"]]\n",
    );
    let fitted = lab.json("fit study.toml -w mine.toml");
    assert_eq!((&fitted["samples"], &fitted["lost"]), (&3_024_000.into(), &604.into()));
    lab.check("mine.toml");
    assert!(lab.read("mine.toml").contains("source = \"a study\""));
}

const DOWNLOADS: &str = "source = \"a study\"\n[[flows]]\ncongestion_control = \"cubic\"\ncount = 20\n\
                         time = [{ bytes = \"1 MB\", mean = \"7 s\", spread = \"1 s\" }]\n";

#[test]
fn traffic_estimates_what_pings_leave_open() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    lab.write("downloads.toml", DOWNLOADS);
    let line = "fit link.csv --like viasat2 --traffic downloads.toml --traffic-flows 2";
    let fitted = lab.json(line);
    let methods = fitted["estimates"].as_array().unwrap().iter();
    let simulated = methods.filter(|e| e["method"] == "simulated moments").count();
    assert!(simulated >= 3, "{fitted}");
    let sensitivities = fitted["sensitivities"].as_array().unwrap();
    // One time of a start-up tells little of the capacity: the prior does.
    assert!(
        sensitivities.iter().any(|s| s["prior"] == "forward: capacity.spread: prior"),
        "{fitted}"
    );
    let unidentified = fitted["unidentified"].to_string();
    assert!(!unidentified.contains("is a stated prior, and their number"), "{unidentified}");
    let profile = profile_of(&fitted);
    assert!(profile.forward_pipe.unwrap().capacity.is_some());
    let remarks = fitted["remarks"].as_array().unwrap();
    assert!(remarks.iter().any(|r| r.as_str().unwrap().contains("20 flows of cubic: a study")));
    assert_eq!(lab.json(line), fitted);
}

#[test]
fn unusable_traffic_is_refused_and_nothing_is_written() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    lab.write("downloads.toml", DOWNLOADS.replace("cubic", "reno"));
    let line = "fit link.csv --like viasat2 -w mine.toml --traffic downloads.toml";
    let (_, said) = lab.ends(1, line);
    assert!(said.contains("\"reno\" is no modelled congestion control"), "{said}");
    assert!(!lab.files().contains("mine.toml"));
    lab.ends(2, "fit link.csv --traffic-flows 1 --traffic downloads.toml");
    lab.ends(2, "fit link.csv --traffic-flows 5");
}
