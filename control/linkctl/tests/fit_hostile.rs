// SPDX-License-Identifier: Apache-2.0
//! `linkctl fit` and what is no baseline, or hardly one: either a profile that is valid and
//! says what it does not know, or an error that names the value, the limit and the remedy,
//! with nothing written.

use crate::baseline_lab;
use crate::baseline_lab::{
    INTERVAL_NS, Lab, MS, S, irtt, ping, probe_csv, probe_head, probe_row, quiet, regularly,
};
use crate::baseline_lab::{scattered, short, short_csv};
use fit::baseline::Series;
use nix::unistd::geteuid;
use profile::Profile;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Probes of the logs here.
const COUNT: u64 = 4_500;

/// A probe log in which the probe of each number is sent at a time of its own.
fn csv_at(at: impl Fn(u64) -> u64, numbers: impl IntoIterator<Item = u64>) -> String {
    let row = |n: u64| probe_row(n, at(n), (n % 500 != 250).then(|| quiet(n)));
    probe_head(INTERVAL_NS) + &numbers.into_iter().map(row).collect::<String>()
}

fn steadily(n: u64) -> u64 {
    n * INTERVAL_NS
}

/// By a sender that is seldom on time.
fn late(n: u64) -> u64 {
    steadily(n) + scattered(n, 190) * MS
}

fn csv_of(rtt: impl Fn(u64) -> Option<u64>) -> String {
    probe_csv(&regularly(INTERVAL_NS, COUNT, rtt), INTERVAL_NS)
}

/// A fit that must fail: its message, once it is sure that it did nothing else.
fn refused(lab: &Lab, code: i32, line: &str) -> String {
    lab.write("mine.toml", "precious");
    let before = lab.files();
    let error = lab.error(code, &format!("fit --write mine.toml {line}"));
    assert_eq!(lab.read("mine.toml"), "precious", "{line}");
    assert_eq!(lab.files(), before, "{line}");
    assert_ne!(error["code"], "internal", "{line}");
    let mut message = error["message"].as_str().unwrap().to_owned();
    for list in ["violations", "hints"] {
        for item in error[list].as_array().unwrap() {
            message += &format!("\n{item}");
        }
    }
    message
}

#[track_caller]
fn says(line: &str, message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{line}: {part:?} is not in\n{message}");
    }
}

/// A fit that must succeed: its standard error, and the profile, which is valid.
fn fitted(lab: &Lab, line: &str) -> (String, Profile) {
    let (_, told) = lab.ends(0, &format!("fit {line} -o mine.toml"));
    lab.check("mine.toml");
    let profile = Profile::from_toml(&lab.read("mine.toml")).unwrap();
    fs::remove_file(lab.at("mine.toml")).unwrap();
    (told, profile)
}

fn unidentified(profile: &Profile) -> String {
    profile.as_proto().provenance.as_ref().unwrap().unidentified.join("\n")
}

#[test]
fn what_is_no_baseline_is_refused_and_named() {
    let lab = Lab::new();
    let elf: Vec<u8> = b"\x7fELF\x02\x01\x01\0\0\0,;\t\n".repeat(500);
    let utf16: Vec<u8> = "\u{feff}PING a\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let irtt = irtt(&short(), INTERVAL_NS);
    let head = probe_head(INTERVAL_NS);
    let long = b"x".repeat(3 << 20);
    let two_runs = ping(&short()).repeat(2);
    let files: [(&str, &[u8], &[&str]); 15] = [
        ("empty", b"", &["the file is empty"]),
        ("blank", b"\n \n\n", &["the file is empty"]),
        ("comments", b"# a\n# b\n", &["none of the formats", "\"# a\"", "--columns"]),
        ("head", head.as_bytes(), &["no probe in the file"]),
        ("elf", &elf, &["the file is binary", "UTF-8"]),
        ("utf16", &utf16, &["UTF-16", "iconv"]),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0", &["packed with gzip: unpack it"]),
        ("prose", b"The link is fine.\n", &["none of the formats", "The link is fine."]),
        ("json", b"{\"rtt\": [1, 2]}\n", &["none of the formats"]),
        ("cut", &irtt.as_bytes()[..irtt.len() / 2], &["the format irtt: it is cut off", "column"]),
        ("none", b"{\"irtt\": 1, \"round_trips\": []}", &["no probe in the file"]),
        ("profile", baseline_lab::GEO.as_bytes(), &["none of the formats"]),
        ("table", b"time,rtt\n1,2\n", &["--columns sent=NAME:s,rtt=NAME:ms", "\"time,rtt\""]),
        ("tworuns", two_runs.as_bytes(), &["a second run of ping begins: split the file there"]),
        ("long", &long, &["none of the formats", "xxx..."]),
    ];
    for (name, bytes, parts) in files {
        lab.write(name, bytes);
        let message = refused(&lab, 1, name);
        says(name, &message, parts);
        assert!(message.starts_with(&format!("{name}: ")), "the file is named: {message}");
    }
    let message = refused(&lab, 1, "absent.csv");
    says("absent", &message, &["cannot read absent.csv: No such file"]);
    fs::create_dir(lab.at("folder")).unwrap();
    says("folder", &refused(&lab, 1, "folder"), &["cannot read folder: Is a directory"]);
    fs::remove_dir(lab.at("folder")).unwrap();
    // A profile that was fitted, which has a source and an interval.
    lab.write("link.csv", short_csv());
    lab.ends(0, "fit link.csv -o fitted.toml");
    says("fitted", &refused(&lab, 1, "fitted.toml"), &["it is a profile: give what that was"]);
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    if geteuid().is_root() {
        println!("skipped: root may read anything");
        return;
    }
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    fs::set_permissions(lab.at("link.csv"), fs::Permissions::from_mode(0o000)).unwrap();
    says("unreadable", &refused(&lab, 1, "link.csv"), &["cannot read link.csv: Permission denied"]);
}

#[test]
fn logs_with_too_little_in_them_are_refused_with_what_is_needed() {
    let lab = Lab::new();
    for (name, text, parts) in [
        (
            "lost",
            csv_of(|_| None),
            &["all 4500 probes were lost", "the target does not answer"][..],
        ),
        ("lostping", ping(&regularly(INTERVAL_NS, 100, |_| None)), &["all 100 probes were lost"]),
        (
            "fifty",
            csv_of(|n| (n % 90 == 7).then(|| quiet(n))),
            &["50 round trips", "needs 100", "probe for longer"],
        ),
        ("twenty", csv_at(steadily, 0..20), &["20 round trips", "needs 100"]),
        ("one", csv_at(steadily, 0..1), &["one probe", "two are the least"]),
    ] {
        lab.write(name, text);
        says(name, &refused(&lab, 1, name), parts);
    }
}

#[test]
fn rows_that_cannot_be_are_refused_by_their_line() {
    let lab = Lab::new();
    let good = csv_at(steadily, 0..COUNT);
    let row = |n: u64| probe_row(n, steadily(n), Some(quiet(n)));
    let with = |from: &str, to: &str| good.replacen(from, to, 1);
    let rtt = |to: &str| {
        let new = row(77).rsplitn(4, ',').nth(3).unwrap().to_owned() + &format!(",{to},,\n");
        with(&row(77), &new)
    };
    let late = csv_at(late, 0..COUNT);
    // Nine lines of head, and numbers from zero: the probe of number 77 is in line 87.
    for (name, text, parts) in [
        ("zero", rtt("0.000000"), &["line 87", "0.000000 ms cannot be", "more than zero"][..]),
        ("negative", rtt("-5"), &["line 87", "-5 ms cannot be", "is the unit right?"]),
        ("hours", rtt("4000000"), &["line 87", "4000000 ms cannot be", "at most 1 h"]),
        ("words", rtt("fast"), &["line 87", "rtt_ms is no number"]),
        ("fields", with(",,\n", ",\n"), &["line 10", "fewer than six fields"]),
        ("header", with("rtt_ms", "rtt_us"), &["not in the format probe", "rtt_us"]),
        (
            "version",
            with("linkemu-probe 1", "linkemu-probe 9"),
            &["linkemu-probe 9", "not linkemu-probe 1"],
        ),
        (
            "mixed",
            csv_at(
                |n| if n < 2_000 { n * 200 * MS } else { 400 * S + (n - 2_000) * 500 * MS },
                0..COUNT,
            ),
            &["line 2011", "changes from 200 ms to 500 ms", "split the file there"],
        ),
        (
            "erratic",
            late.replace("# spacing = constant\n", ""),
            &["neither constant nor exponential"],
        ),
        (
            "header-interval",
            with("interval = 200 ms", "interval = 100 ms"),
            &["the file itself says 100 ms"],
        ),
    ] {
        lab.write(name, text);
        says(name, &refused(&lab, 1, name), parts);
    }
}

#[test]
fn logs_that_can_be_put_right_are_fitted_with_a_warning() {
    let lab = Lab::new();
    let good = csv_at(steadily, 0..COUNT);
    let unsorted = (0..COUNT).map(|n| if n / 100 == 7 { 1_499 - n } else { n });
    let step = |from: u64, by_s: i64| {
        csv_at(
            move |n| {
                let at = steadily(n) + 7_200 * S;
                if n < from { at } else { at.saturating_add_signed(by_s * S as i64) }
            },
            0..COUNT,
        )
    };
    let cut_ping = ping(&short());
    for (name, text, samples, warning) in [
        ("cut", good[..good.len() - 20].to_owned(), COUNT - 1, "1 line is cut off, as by a crash"),
        ("unsorted", csv_at(steadily, unsorted), COUNT, "99 probes were logged out of order"),
        (
            "duplicated",
            csv_at(steadily, (0..2_000).chain(1_990..COUNT)),
            COUNT,
            "10 rows repeat a sequence number: the first of each was kept",
        ),
        ("forward", step(2_000, 3_600), COUNT, "at line 2010 (1 h forward)"),
        ("back", step(2_000, -3_600), COUNT, "at line 2010 (1 h back)"),
        ("late", csv_at(late, 0..COUNT), COUNT, "The prober was often late: its intervals"),
        (
            "cutping",
            cut_ping[..cut_ping.find("\n\n---").unwrap() - 9].to_owned(),
            COUNT - 1,
            "The last line is cut off",
        ),
    ] {
        lab.write(name, text);
        let (told, profile) = fitted(&lab, name);
        says(name, &told, &["warning: ", warning]);
        let provenance = profile.as_proto().provenance.as_ref().unwrap();
        assert_eq!(provenance.samples, samples, "{name}");
        assert_eq!(provenance.lost, 9, "{name}");
        let interval = provenance.interval_ns;
        assert!(interval.abs_diff(INTERVAL_NS) < INTERVAL_NS / 50, "{name}: {interval}");
        says(name, &provenance.remarks.join("\n"), &[warning]);
    }
}

#[test]
fn logs_that_tell_little_are_fitted_and_the_profile_says_what_it_does_not_know() {
    let lab = Lab::new();
    let outages = |profile: &Profile| {
        let pipes = profile.as_proto();
        let pipes = [&pipes.forward_pipe, &pipes.return_pipe];
        pipes.map(|pipe| pipe.as_ref().unwrap().outages.clone())
    };
    let delay =
        |profile: &Profile| profile.as_proto().return_pipe.as_ref().unwrap().delay.clone().unwrap();

    lab.write("constant", csv_of(|_| Some(600 * MS)));
    let (_, profile) = fitted(&lab, "constant");
    let constant = delay(&profile);
    assert_eq!((constant.base_ns, &constant.body, constant.slot_ns), (300 * MS, &None, 0));
    assert!(constant.excursions.is_empty());
    says(
        "constant",
        &unidentified(&profile),
        &["delay: a round trip does not tell how it is split"],
    );

    lab.write("no-losses", csv_of(|n| Some(quiet(n))));
    let (told, profile) = fitted(&lab, "no-losses");
    assert_eq!(told, "");
    assert!(outages(&profile).iter().all(Vec::is_empty));
    let expected = "losses: none of 4499 probes was lost, so fewer than one in 1499 is (95 %)";
    says("no-losses", &unidentified(&profile), &[expected]);

    lab.write("singles", csv_of(|n| (n % 100 != 50).then(|| quiet(n))));
    let (_, profile) = fitted(&lab, "singles");
    for class in outages(&profile) {
        assert_eq!(class.len(), 1);
        assert_eq!(class[0].duration_ns, 100 * MS, "half of the interval, as stated");
    }
    says("singles", &unidentified(&profile), &["how long outages last", "prior"]);
    let (_, profile) = fitted(&lab, "singles --isolated-duration 20ms");
    assert!(outages(&profile).iter().all(|class| class[0].duration_ns == 20 * MS));
}

#[test]
fn options_that_contradict_the_baseline_are_refused() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    lab.write("study.toml", STUDY);
    for (line, parts) in [
        ("link.csv --interval 100ms", &["200 ms apart", "--interval says 100 ms", "5 %"][..]),
        ("study.toml --interval 100ms", &["200 ms apart", "--interval says 100 ms"]),
        ("link.csv --interval 0ms", &["0 ms cannot be", "at most 1 d"]),
        (
            "link.csv --isolated-duration 300ms",
            &["300 ms are longer than the probing interval", "at most the interval"],
        ),
        (
            "link.csv --forward-delay 700ms",
            &["forward delay of 700 ms", "600 ms", "less than that"],
        ),
        ("link.csv --format ping", &["line 9", "no line of ping's"]),
        ("link.csv --format irtt", &["not in the format irtt"]),
        ("link.csv --format summary", &["not in the format summary"]),
        ("link.csv --columns sent=sent_s,rtt=delay", &["no column \"delay\"", "sequence,sent_utc"]),
        ("link.csv --columns sent=sent_s,rtt=rtt_ms:m", &["\"rtt_ms:m\"", "s, ms, us, ns, unix"]),
        ("link.csv --columns sent=sent_s,rtt=rtt_ms --format ping", &["leave one of them out"]),
        ("link.csv --like viasat3", &["\"viasat3\"", "nearest is \"viasat2\"", "ending in .toml"]),
        ("link.csv --like none.toml", &["cannot read none.toml"]),
        ("link.csv --like study.toml", &["study.toml is not a valid profile"]),
    ] {
        says(line, &refused(&lab, 1, line), parts);
    }
}

#[test]
fn options_that_say_nothing_possible_are_usage_errors() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    for (line, parts) in [
        ("link.csv --format pcap", &["pcap", "probe"][..]),
        ("link.csv --columns rtt", &["no =", "sent=NAME,rtt=NAME"]),
        ("link.csv --columns rtt=a", &["sent=NAME is missing"]),
        ("link.csv --interval 5", &["write a unit"]),
        ("link.csv --isolated-duration 0ms", &["--isolated-duration: 0 ms is below 1 us"]),
        ("link.csv --forward-delay 61s", &["--forward-delay: 1 min 1 s is above 1 min"]),
        ("link.csv --routine-duration 1s", &["--routine-duration is for published figures"]),
        ("link.csv --rare-duration 2h", &["--rare-duration: 2 h is above 1 h"]),
        ("link.csv --name -", &["--name: \"-\" is not a name"]),
        ("link.csv --queue 1B", &["--queue: 1 B is less than one full frame", "1518 B"]),
        ("link.csv --like viasat2 --queue 10MB", &["--queue 10 MB", "--like", "edit that profile"]),
        ("link.csv --forward-rate 1bit/s", &["--forward-rate: 1 bit/s is below 1 kbit/s"]),
        ("link.csv --forward-rate 1Mbit/s --forward-trace t", &["cannot be used with"]),
        ("link.csv --trace-step 1s", &["--trace-step 1 s", "--forward-trace"]),
        ("link.csv more.csv", &["more.csv"]),
    ] {
        says(line, &refused(&lab, 2, line), parts);
    }
    let (_, told) = lab.ends(2, "fit link.csv -o mine.yaml");
    says("-o", &told, &["text or json", "ends in .toml"]);
    let (_, told) = lab.ends(2, "fit link.csv -o mine.toml -w other.toml");
    says("-o -w", &told, &["name two files: give one"]);
}

#[test]
fn places_that_cannot_be_written_are_told_before_the_baseline_is_read() {
    let lab = Lab::new();
    fs::create_dir(lab.at("folder")).unwrap();
    lab.write("file", "");
    let before = lab.files();
    // The baseline is not there: that would be told next.
    for (file, parts) in [
        (
            "nowhere/mine.toml",
            &["cannot write nowhere/mine.toml", "no folder nowhere; make it"][..],
        ),
        ("file/mine.toml", &["no folder file"]),
        ("folder", &["folder: it is a folder; name a file in it"]),
        ("folder/", &["it is a folder"]),
        // Nobody may make files there, not even root.
        ("/proc/mine.toml", &["cannot write /proc/mine.toml: "]),
    ] {
        let error = lab.error(1, &format!("fit absent.csv --write {file}"));
        assert_eq!(error["code"], "io", "{file}");
        says(file, error["message"].as_str().unwrap(), parts);
        let error = lab.error(1, &format!("verify viasat2 --baseline absent.csv --report {file}"));
        says(file, error["message"].as_str().unwrap(), parts);
    }
    assert_eq!(lab.files(), before);
    if !geteuid().is_root() {
        fs::set_permissions(lab.at("folder"), fs::Permissions::from_mode(0o555)).unwrap();
        let error = lab.error(1, "fit absent.csv --write folder/mine.toml");
        says("read-only", error["message"].as_str().unwrap(), &["Permission denied"]);
    }
}

/// Published figures.
const STUDY: &str = "source = \"a study\"\ninterval = \"200 ms\"\n[losses]\nsamples = 100000\nlost = \
                     20\nsingle = 10\nruns = 4\nlongest = 3\n[delay]\nsamples = 10000\nexceedance = \
                     [[\"576 ms\", \"95 %\"], [\"590 ms\", \"50 %\"], [\"620 ms\", \"5 %\"]]\n";

#[test]
fn published_figures_that_cannot_be_are_refused() {
    let lab = Lab::new();
    for (from, to, parts) in [
        ("single = 10", "single = 30", &["contradict", "single = 30 is more than lost = 20"][..]),
        ("runs = 4", "runs = 9", &["runs = 9 need 18 losses", "leaves 10"]),
        ("lost = 20", "lost = 200000", &["lost = 200000 is more than samples = 100000"]),
        ("\"50 %\"", "\"99 %\"", &["exceedance[1]", "not lower"]),
        ("\"200 ms\"", "\"0 ms\"", &["more than zero"]),
        ("\"200 ms\"", "200", &["not in the format summary", "line 2"]),
        ("longest", "longst", &["longst"]),
        (
            "ms\", \"",
            "s\", \"",
            &["4 min 48 s is above 1 min", "is the unit of the round trips right?"],
        ),
    ] {
        assert!(STUDY.contains(from));
        lab.write("study.toml", STUDY.replace(from, to));
        says(to, &refused(&lab, 1, "study.toml"), parts);
    }
    let end = STUDY.find("[delay]").unwrap();
    lab.write("study.toml", &STUDY[..end]);
    says("no delay", &refused(&lab, 1, "study.toml"), &["no [delay]", "at least two points"]);
}

#[test]
fn round_trips_longer_than_a_profile_can_say_are_refused_with_the_limit() {
    let lab = Lab::new();
    let long = |n: u64| Some(130 * S + quiet(n));
    lab.write("long.csv", csv_of(long));
    let message = refused(&lab, 1, "long.csv");
    let parts = ["outside of what a profile can say", "forward.delay.base", "above 1 min", "unit"];
    says("long", &message, &parts);
    // One of both directions holds it: the message has it, and not only a list.
    lab.write("seventy.csv", csv_of(|n| Some(70 * S + quiet(n))));
    let (_, told) = lab.ends(1, "fit seventy.csv --forward-delay 1s");
    says("seventy", &told, &["return.delay.base: 1 min 9.6", "is above 1 min", "hint: "]);
    fitted(&lab, "seventy.csv");
}

#[test]
fn rate_traces_that_are_none_are_refused_and_named() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    let huge: String = (1..=100_000).map(|n| format!("{}\n", n * 100)).collect();
    for (name, text, parts) in [
        ("empty.trace", "", &["no duration", "empty"][..]),
        ("zero.trace", "0\n0\n", &["no duration"]),
        ("descending.trace", "1\n5\n3\n", &["line 3", "earlier than the line before"]),
        ("words.trace", "1\nfast\n", &["line 2", "whole number of milliseconds", "\"fast\""]),
        ("negative.trace", "-1\n2\n", &["neither a mahimahi trace", "\"-1\""]),
        ("huge.trace", &huge, &["100000 steps of 100 ms", "65536", "--trace-step 153ms or longer"]),
        ("units.csv", "time,rate\n0,1\n", &["time_s", "name the unit"]),
        ("one.csv", "time_s,rate_mbps\n0,1\n", &["no duration"]),
        ("back.csv", "time_s,rate_mbps\n0,1\n2,1\n1,1\n", &["line 4", "earlier"]),
        ("negative.csv", "time_s,rate_mbps\n0,1\n1,-1\n", &["line 3", "negative"]),
        (
            "slow.csv",
            "time_s,rate_bps\n0,10\n1,10\n",
            &["10 bit/s is below 1 kbit/s", "--trace-step"],
        ),
        ("down.csv", "time_s,rate_bps\n0,0\n1,0\n", &["every step is down"]),
        ("fine.csv", "time_us,rate_mbps\n0,1\n10,1\n", &["10 us is below 1 ms", "--trace-step"]),
    ] {
        lab.write(name, text);
        for option in ["--forward-trace", "--return-trace"] {
            let message = refused(&lab, 1, &format!("link.csv {option} {name}"));
            says(name, &message, parts);
        }
    }
    let message = refused(&lab, 1, "link.csv --forward-trace absent.trace");
    says("absent", &message, &["cannot read absent.trace"]);
    let message = refused(&lab, 1, "link.csv --forward-trace link.csv");
    says("no trace", &message, &["link.csv: the header", "time_s"]);
    // What was advised helps.
    lab.ends(0, "fit link.csv --forward-trace huge.trace --trace-step 153ms -o mine.toml");
    lab.check("mine.toml");
}

/// A link that is lost once for long, and now and then for a probe.
fn with_one_huge_outage() -> Series {
    regularly(INTERVAL_NS, COUNT, |n| {
        (!(2_000..3_000).contains(&n) && n % 500 != 250).then(|| quiet(n))
    })
}

#[test]
fn one_huge_outage_does_not_pass_for_many_isolated_losses() {
    let lab = Lab::new();
    lab.write("link.csv", probe_csv(&with_one_huge_outage(), INTERVAL_NS));
    let (_, profile) = fitted(&lab, "link.csv");
    says("huge", &unidentified(&profile), &["outages: ", "how long outages last"]);
    let pipes = profile.as_proto();
    for pipe in [&pipes.forward_pipe, &pipes.return_pipe] {
        for class in &pipe.as_ref().unwrap().outages {
            // Of nine probes lost alone in a quarter of an hour: a hundred seconds each way
            // or half a minute at worst, and not a third of a second.
            assert!(class.duration_ns > INTERVAL_NS || class.interval_ns > 30 * S, "{class:?}");
        }
    }
}
