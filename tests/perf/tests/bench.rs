// SPDX-License-Identifier: Apache-2.0
//! The program itself, on the null driver without hugepages: short runs. Their
//! checks count, their figures do not.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().unwrap()
}

fn short(case: &str, more: &[&str]) -> Output {
    let run = ["--no-huge", "--frames", "2000", "--repetitions", "1", "--no-goals", "-o", "json"];
    bench(&[&run[..], &["--case", case], more].concat())
}

fn results(out: &Output) -> Value {
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{told}{}", String::from_utf8_lossy(&out.stdout));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn every_kind_of_case_holds_what_it_says_and_loses_nothing() {
    for case in [
        "64B-full-1ms-1",
        "imix-full-10ms-100",
        "512B-delay-only-1ms-100",
        "1518B-full-10ms-1",
        "64B-transparent-0ms-1",
        "imix-full-10ms-1-both",
    ] {
        let results = results(&short(case, &[]));
        let cost = &results["costs"][0];
        assert_eq!(cost["case"], case);
        assert_eq!(cost["faults"], Value::Array(Vec::new()), "{cost}");
        assert!(cost["ours_ns"]["median"].as_f64().unwrap() > 0.0, "{cost}");
        let (held, expected) = (&cost["held"], cost["expected"].as_f64().unwrap());
        assert!(held.as_f64().unwrap() >= 0.9 * expected, "{cost}");
    }
}

#[test]
fn large_frames_keep_their_buffers_and_small_ones_do_not() {
    let per_byte = |copy_break| {
        let out = short("1518B-full-10ms-1", &["--copy-break", copy_break]);
        results(&out)["costs"][0]["bytes_per_byte"].as_f64().unwrap()
    };
    let (kept, copied) = (per_byte("256"), per_byte("1514"));
    // A record of a few dozen bytes, and a segment that is begun.
    assert!((1.0..1.2).contains(&copied), "{copied}");
    assert!(kept > copied, "{kept} {copied}");
}

#[test]
fn memory_is_measured_by_the_engines_account_and_the_kernels() {
    let out = short("64B-full-1ms-1", &["--only", "memory"]);
    let results = results(&out);
    let case = &results["memory"][0];
    let (accounted, resident) =
        (case["accounted"].as_f64().unwrap(), case["resident"].as_f64().unwrap());
    assert!(accounted > 1.0 && (resident / accounted - 1.0).abs() < 0.25, "{case}");
}

#[test]
fn results_and_plots_are_written_where_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on/the/way");
    let out = short("64B-full-1ms-1", &["--out", path.to_str().unwrap()]);
    assert!(out.status.success());
    for file in ["results.json", "results.txt", "cost.svg"] {
        assert!(path.join(file).is_file(), "{file}");
    }
}

#[test]
fn unknown_case_is_reported() {
    let out = bench(&["--no-huge", "--case", "65B"]);
    assert_eq!(out.status.code(), Some(1));
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(told.contains("no case has `65B` in its name"), "{told}");
}

#[test]
fn the_list_is_that_of_the_cases_that_run() {
    let out = bench(&["--list", "--quick"]);
    let list = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(list.lines().any(|l| l == "64B-full-300ms-10000"), "{list}");
    assert!(bench(&["--list"]).stdout.len() > list.len());
}
