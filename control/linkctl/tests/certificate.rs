// SPDX-License-Identifier: Apache-2.0
//! `linkctl certificate` against linkd in-process and a fake dataplane.

use crate::baseline_lab::short_csv;
use crate::lab::{Lab, text};
use proto::linkemu::v1 as pb;

/// Statistics of a sound dataplane 5 s after a mark.
fn sound() -> pb::Stats {
    let utc = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
    let memory =
        Some(pb::Memory { capacity_bytes: 2_000_000, used_bytes: 0, used_max_bytes: 500_000 });
    pb::Stats {
        time_ns: 9_000_000_000,
        utc: utc(1_790_000_005),
        memory,
        lateness: Some(pb::Lateness { count: 6, p99_ns: 20_000, ..Default::default() }),
        span: Some(pb::Span {
            since_ns: 4_000_000_000,
            since_utc: utc(1_790_000_000),
            marked: true,
            sent: count(6),
            received: count(7),
            ..Default::default()
        }),
        workers: vec![pb::WorkerStats { memory, ..Default::default() }],
        ..Default::default()
    }
}

#[test]
fn sound_run_passes_and_marks_only_on_request() {
    let lab = Lab::new();
    lab.fake.state().stats = sound();
    lab.fake.state().generation = 2;
    let said = lab.done("certificate");
    for expected in [
        "PASS: the emulator was not the bottleneck",
        "from 2026-09-21T14:13:20.000000000Z to 2026-09-21T14:13:25.000000000Z, 5.000000000 s",
        "generation 0 to 2: 2 changes",
        "packets: 7 received, 6 sent",
        "limit of stall: the strict limit: the dataplane does not tell",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{said}");
    }
    let json = lab.json("-o json certificate");
    assert_eq!(json["holds"], true);
    assert_eq!(json["span"]["since_ns"], 4_000_000_000_u64);
    assert_eq!(json["until_ns"], 9_000_000_000_u64);
    assert_eq!(json["changes"], 2);
    assert!(json["criteria"].as_array().unwrap().iter().all(|c| c["holds"] == true));
    assert_eq!(lab.fake.state().marks, 0);
    // The output is a valid certificate for a log, here for one of another time.
    std::fs::write(lab.at("run.json"), json.to_string()).unwrap();
    std::fs::write(lab.at("link.csv"), short_csv()).unwrap();
    let (run, log) = (lab.at("run.json"), lab.at("link.csv"));
    let refused = lab.fails(1, &format!("fit {} --certificate {}", log.display(), run.display()));
    let times = "is of 2026-09-21T14:13:20Z to 2026-09-21T14:13:25Z, and ";
    assert!(refused.contains(times), "{refused}");
    lab.done("certificate --mark");
    assert_eq!(lab.fake.state().marks, 1);
}

#[test]
fn a_run_in_which_the_emulator_lost_packets_fails_with_4() {
    let lab = Lab::new();
    lab.fake.state().stats = sound();
    lab.fake.state().stats.span.as_mut().unwrap().missed = 3;
    lab.fake.state().stats.stall_max_ns = 25_000_000;
    let output = lab.run("certificate");
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stdout).starts_with("FAIL: "), "{}", text(&output.stdout));
    let expected = "error: the emulator may have been the bottleneck: emulator_drops 3 packets, \
                    at most 0 packets; stall 25.0 ms, at most 10.0 ms\n";
    assert_eq!(text(&output.stderr), expected);
    let said = text(&output.stdout);
    assert!(said.contains("remedy: missed: a worker did not fetch frames"), "{said}");
    let output = lab.run("-o json certificate --max-drops 3");
    assert_eq!(output.status.code(), Some(4));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["holds"], false);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["code"], "check_failed");
    lab.done("certificate --max-drops 3 --max-stall 25ms");
    let changes = lab.fails(4, "certificate --max-drops 3 --max-stall 25ms --min-packets 7");
    assert!(changes.contains("packets 6 packets, at least 7 packets"), "{changes}");
}

#[test]
fn limits_of_lateness_follow_from_the_link_unless_strict() {
    let lab = Lab::new();
    let mut stats = sound();
    stats.stall_max_ns = 25_000_000;
    stats.span.as_mut().unwrap().tolerance = Some(pb::Tolerance {
        lateness_ns: 6_000_000,
        lateness_reason: "1 % of 600 ms".into(),
        stall_ns: 40_000_000,
        stall_reason: "time slots".into(),
    });
    lab.fake.state().stats = stats;
    let said = lab.done("certificate");
    assert!(
        said.contains("at most 40.0 ms") && said.contains("limit of stall: time slots"),
        "{said}"
    );
    assert_eq!(lab.json("-o json certificate")["criteria"][2]["reason"], "1 % of 600 ms");
    let strict = lab.fails(4, "certificate --strict");
    assert!(strict.contains("stall 25.0 ms, at most 10.0 ms"), "{strict}");
    lab.done("certificate --strict --max-stall 25ms");
}

#[test]
fn run_without_packets_is_said_to_have_none() {
    let lab = Lab::new();
    let mut stats = sound();
    stats.span.as_mut().unwrap().sent = None;
    lab.fake.state().stats = stats;
    let said = lab.fails(4, "certificate");
    assert!(said.contains("no packets were sent over the link"), "{said}");
}

#[test]
fn certificate_needs_a_span_and_linkd() {
    let lab = Lab::new();
    let refused = lab.fails(1, "certificate");
    assert!(refused.contains("older"), "{refused}");
    lab.fails(3, "--socket ./nowhere.sock certificate");
    lab.fails(2, "certificate --max-stall soon");
}
