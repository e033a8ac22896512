// SPDX-License-Identifier: Apache-2.0
//! Errors of `linkctl fit`: the exit code, the name of the file, the remedy, and nothing
//! written. Which logs and traces are refused is tested in the crates `fit` and `trace`.

use crate::baseline_lab::{INTERVAL_NS, Lab, S, probe_csv, quiet, regularly, short_csv};
use nix::unistd::geteuid;
use std::fs;
use std::os::unix::fs::PermissionsExt;

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

#[test]
fn baseline_that_cannot_be_read_is_named_with_exit_code_1() {
    let lab = Lab::new();
    lab.write("elf", b"\x7fELF\x02\x01\x01\0\0\0,;\t\n".repeat(500));
    lab.write("table", "time,rtt\n1,2\n");
    fs::create_dir(lab.at("folder")).unwrap();
    for (name, parts) in [
        ("elf", &["elf: the file is binary", "UTF-8"][..]),
        ("table", &["table: ", "--columns \"sent=time:s,rtt=rtt:ms\"", "\"time,rtt\""]),
        ("absent.csv", &["cannot read absent.csv: No such file"]),
        ("folder", &["cannot read folder: Is a directory"]),
    ] {
        says(name, &refused(&lab, 1, name), parts);
    }
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
fn corrected_log_is_fitted_with_a_lasting_warning() {
    let lab = Lab::new();
    let log = short_csv();
    lab.write("link.csv", &log[..log.len() - 20]);
    let (_, told) = lab.ends(0, "fit link.csv -w mine.toml");
    let cut = "1 line is cut off, as by a crash";
    says("warning", &told, &["warning: ", cut]);
    lab.check("mine.toml");
    says("remark", &lab.read("mine.toml"), &[cut, "samples = 4499"]);
}

#[test]
fn options_that_contradict_the_baseline_are_refused() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    lab.write("other.toml", "source = \"no profile\"\n");
    for (line, parts) in [
        ("link.csv --interval 100ms", &["200 ms apart", "--interval says 100 ms", "5 %"][..]),
        (
            "link.csv --isolated-duration 300ms",
            &["300 ms are longer than the probing interval", "at most the interval"],
        ),
        (
            "link.csv --forward-delay 700ms",
            &["forward delay of 700 ms", "600 ms", "less than that"],
        ),
        ("link.csv --like viasat3", &["\"viasat3\"", "nearest is \"viasat2\"", "ending in .toml"]),
        ("link.csv --like none.toml", &["cannot read none.toml"]),
        ("link.csv --like other.toml", &["other.toml is not a valid profile"]),
    ] {
        says(line, &refused(&lab, 1, line), parts);
    }
}

#[test]
fn impossible_options_are_usage_errors() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    for (line, parts) in [
        ("link.csv --format pcap", &["pcap", "probe"][..]),
        ("link.csv --columns rtt", &["\"rtt\" does not name columns", "time is missing"]),
        ("link.csv --columns rtt=a", &["sent=NAME is missing"]),
        ("link.csv --interval 5", &["write a unit"]),
        ("link.csv --isolated-duration 0ms", &["--isolated-duration: 0 ms is below 1 µs"]),
        ("link.csv --forward-delay 61s", &["--forward-delay: 1 min 1 s is above 1 min"]),
        ("link.csv --routine-duration 1s", &["--routine-duration is for published figures"]),
        ("link.csv --rare-duration 2h", &["--rare-duration: 2 h is above 1 h"]),
        ("link.csv --name -", &["--name: \"-\" is not a name"]),
        ("link.csv --queue 1B", &["--queue: 1 B is below 1.518 kB"]),
        ("link.csv --like viasat2 --queue 10MB", &["--queue 10 MB", "--like", "edit that profile"]),
        ("link.csv --forward-rate 1bit/s", &["--forward-rate: 1 bit/s is below 1 kbit/s"]),
        ("link.csv --forward-rate 1Mbit/s --forward-trace t", &["cannot be used with"]),
        ("link.csv --trace-step 1s", &["--trace-step 1 s", "--forward-trace"]),
        ("link.csv more.csv", &["more.csv"]),
    ] {
        says(line, &refused(&lab, 2, line), parts);
    }
    let (_, told) = lab.ends(2, "fit link.csv -o mine.toml");
    says("-o", &told, &["text or json", "a file to be written is named by -w"]);
}

#[test]
fn unwritable_path_is_reported_before_reading() {
    let lab = Lab::new();
    fs::create_dir(lab.at("folder")).unwrap();
    lab.write("file", "");
    let before = lab.files();
    // The baseline does not exist, which would be the next error.
    for (file, parts) in [
        (
            "nowhere/mine.toml",
            &["cannot write nowhere/mine.toml", "no folder nowhere; make it"][..],
        ),
        ("file/mine.toml", &["no folder file"]),
        ("folder", &["folder: it is a folder; name a file in it"]),
        ("folder/", &["it is a folder"]),
        // Not even root may create files there.
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

#[test]
fn value_outside_profiles_is_refused_with_field_and_hint() {
    let lab = Lab::new();
    let seventy = regularly(INTERVAL_NS, 4_500, |n| Some(70 * S + quiet(n)));
    lab.write("seventy.csv", probe_csv(&seventy, INTERVAL_NS));
    let message = refused(&lab, 1, "seventy.csv --forward-delay 1s");
    says("field", &message, &["outside of what a profile can say", "return.delay.base"]);
    // The message has a single violation, and not only the list.
    let (_, told) = lab.ends(1, "fit seventy.csv --forward-delay 1s");
    says("hint", &told, &["return.delay.base: 1 min 9.6", "is above 1 min", "hint: "]);
}

#[test]
fn rate_trace_that_cannot_be_used_is_named_with_the_remedy() {
    let lab = Lab::new();
    lab.write("link.csv", short_csv());
    let huge: String = (1..=100_000).map(|n| format!("{n},1000\n")).collect();
    let huge = format!("time_s,rate_kbps\n{huge}");
    let many: String = (1..=600_000).map(|n| format!("{n}\n")).collect();
    for (name, text, parts) in [
        ("words.trace", "1\nfast\n", &["words.trace: ", "line 2", "\"fast\""][..]),
        ("huge.trace", &huge, &["100000 steps of 1 s", "65536", "--trace-step 1.526s or longer"]),
        ("many.trace", &many, &["600000 runs of opportunities", "524288", "write a step"]),
        (
            "slow.csv",
            "time_s,rate_bps\n0,10\n1,10\n",
            &["10 bit/s is below 1 kbit/s", "--trace-step"],
        ),
    ] {
        lab.write(name, text);
        for option in ["--forward-trace", "--return-trace"] {
            let message = refused(&lab, 1, &format!("link.csv {option} {name}"));
            says(name, &message, parts);
        }
    }
    let message = refused(&lab, 1, "link.csv --forward-trace absent.trace");
    says("absent", &message, &["cannot read absent.trace"]);
    // The remedy helps.
    lab.ends(0, "fit link.csv --forward-trace huge.trace --trace-step 1.526s -w mine.toml");
    lab.check("mine.toml");
}
