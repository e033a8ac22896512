// SPDX-License-Identifier: Apache-2.0
//! The binary against linkd in-process and a fake dataplane: output, JSON, exit
//! codes.

use crate::lab::{Lab, text};
use proto::linkemu::v1 as pb;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

/// All that can vary, both ways the same.
const VARIED: &str = r#"name = "varied"
[forward]
rate_trace = { step = "100 ms", rates = ["12 Mbit/s", "down"] }
gilbert_elliott = { to_bad = "0.5 %", to_good = "25 %", loss_in_bad = "100 %" }
drop_run = { pass = 999, drop = 1 }
duplicate = "1 %"
reorder = { probability = "2 %", by = "5 ms" }
queue = { limit = "1 MB", codel = { interval = "600 ms" }, ecn = true }
outages = [{ interval = "1 h", duration = "1 s", law = "fixed" }]
fade = { interval = "8 h", duration = "20 min", factor = 30.0 }
delay = { base = "10 ms", body = { correlation = "80 ms", quantiles = ["0 ms", "3 ms"] } }
[return]
rate_trace = { step = "100 ms", rates = ["12 Mbit/s", "down"] }
gilbert_elliott = { to_bad = "0.5 %", to_good = "25 %", loss_in_bad = "100 %" }
drop_run = { pass = 999, drop = 1 }
duplicate = "1 %"
reorder = { probability = "2 %", by = "5 ms" }
queue = { limit = "1 MB", codel = { interval = "600 ms" }, ecn = true }
outages = [{ interval = "1 h", duration = "1 s", law = "fixed" }]
fade = { interval = "8 h", duration = "20 min", factor = 30.0 }
delay = { base = "10 ms", body = { correlation = "80 ms", quantiles = ["0 ms", "3 ms"] } }
[provenance]
source = "pings.csv"
format = "ping"
samples = 1000
lost = 5
interval = "200 ms"
unidentified = ["the split of the round trip"]
estimates = [{ parameter = "delay.base", value = "10 ms", low = "9 ms", high = "11 ms" }]
goodness = [{ test = "runs", statistic = 7.5, degrees_of_freedom = 5.0, p_value = 0.25 }]
"#;

fn stats() -> pb::Stats {
    let count = |packets, bytes| Some(pb::Count { packets, bytes });
    let pipe = pb::PipeStats {
        received: count(10, 10_000),
        sent: count(6, 6_000),
        dropped: vec![
            pb::Drop { reason: pb::DropReason::Aqm as i32, count: count(1, 1_000) },
            pb::Drop { reason: pb::DropReason::Outage as i32, count: count(1, 1_000) },
        ],
        held: count(2, 2_000),
        queue: count(1, 1_000),
        queue_max_bytes: 18_000_000,
        ..Default::default()
    };
    pb::Stats {
        time_ns: 12_345_678_901,
        utc: Some(prost_types::Timestamp { seconds: 1_790_000_000, nanos: 5 }),
        clients: vec![pb::ClientStats {
            client: "10.0.0.2".into(),
            forward_pipe: Some(pipe),
            return_pipe: Some(pb::PipeStats::default()),
            ..Default::default()
        }],
        ports: vec![pb::PortStats {
            name: "wan".into(),
            missed: 3,
            link: pb::LinkState::Down as i32,
            ..Default::default()
        }],
        lateness: Some(pb::Lateness {
            count: 6,
            p50_ns: 5,
            p99_ns: 1_500,
            p999_ns: 2_000,
            max_ns: u64::MAX,
        }),
        memory: Some(pb::Memory { capacity_bytes: 1 << 29, used_bytes: 7, used_max_bytes: 8 }),
        emulator_drops: 3,
        stall_max_ns: 4_000,
        ..Default::default()
    }
}

#[test]
fn a_profile_is_set_by_name_and_from_a_file() {
    let lab = Lab::new();
    let line = lab.done("set profile viasat2 --seed 7");
    assert_eq!(
        line,
        "viasat2 in force: generation 1, at 1.345678901 s of the dataplane's clock \
         (2026-09-21T14:13:21.000000005Z)\n"
    );
    let toml = lab.done("profile show viasat2").replace("\"viasat2\"", "\"mine\"");
    std::fs::write(lab.at("mine.toml"), &toml).unwrap();
    let change = lab.json("-o json set profile mine.toml")["links"][0].clone();
    let applied = &change["applied"];
    assert_eq!(applied["generation"], 2);
    assert_eq!(applied["effective_ns"], 2_345_678_901_u64);
    assert_eq!(applied["effective_utc"], "2026-09-21T14:13:22.000000005Z");
    assert_eq!(change["profile"]["name"], "mine");
    assert_eq!(change["seed"], 7);
    lab.done("set profile ./mine.toml");
    assert_eq!(lab.link().name, "mine");
}

#[test]
fn set_command_changes_the_named_part() {
    let lab = Lab::new();
    lab.done("set profile viasat2");
    lab.done("set rate 72Mbit/s --direction forward");
    assert_eq!((lab.forward().rate_bps, lab.back().rate_bps), (Some(72_000_000), Some(12_000_000)));
    lab.done("set rate down");
    assert_eq!((lab.forward().rate_bps, lab.back().rate_bps), (Some(0), Some(0)));
    lab.done("set rate unlimited -d return");
    assert_eq!((lab.forward().rate_bps, lab.back().rate_bps), (Some(0), None));

    let before = lab.back().delay.unwrap();
    lab.done("set delay 100ms --direction return");
    assert_eq!(lab.back().delay.unwrap(), pb::Delay { base_ns: 100_000_000, ..before });
    lab.done("set delay 200ms --slot none");
    assert_eq!(lab.back().delay.unwrap().slot_ns, 0);
    assert_eq!(lab.forward().delay.unwrap().base_ns, 200_000_000);

    lab.done("set queue 30MB");
    assert_eq!(lab.forward().queue.unwrap().random_drop.unwrap().threshold_bytes, 18_000_000);
    lab.done("set queue 10MB --threshold 5MB --drop-at-limit 100%");
    let queue = lab.forward().queue.unwrap();
    let drop = queue.random_drop.unwrap();
    assert_eq!((queue.limit_bytes, drop.threshold_bytes), (10_000_000, 5_000_000));
    assert_eq!((drop.probability_at_threshold, drop.probability_at_limit), (0.0, 1.0));
    lab.done("set queue 1MB --tail-drop");
    assert_eq!(lab.forward().queue.unwrap().random_drop, None);

    std::fs::write(lab.at("varied.toml"), VARIED).unwrap();
    lab.done("set profile varied.toml");
    for line in ["set loss none -d forward", "set loss --every 1min --for 1s -d return"] {
        lab.done(line);
    }
    for (pipe, classes) in [(lab.forward(), 0), (lab.back(), 1)] {
        assert_eq!((pipe.outages.len(), pipe.fade, pipe.packet_loss), (classes, None, 0.0));
        assert_eq!((pipe.gilbert_elliott, pipe.drop_run), (None, None));
    }

    lab.done("set profile viasat2");
    lab.done("set loss none -d forward");
    assert_eq!((lab.forward().outages.len(), lab.back().outages.len()), (0, 2));
    lab.done("set loss --every 3h --for 320ms --law fixed");
    let outage = pb::Outage { interval_ns: 10_800_000_000_000, duration_ns: 320_000_000, law: 2 };
    assert_eq!((lab.forward().outages, lab.back().outages), (vec![outage], vec![outage]));
    assert_eq!(lab.link().name, "viasat2*");
}

#[test]
fn first_attempts_work_or_give_a_remedy() {
    let lab = Lab::new();
    std::fs::write(
        lab.at("geo.toml"),
        profile::Catalog::built_in().get("geo-600").unwrap().to_toml(),
    )
    .unwrap();
    let piped = std::fs::File::open(lab.at("geo.toml")).unwrap();
    let output = lab.command("set profile -").stdin(piped).output().unwrap();
    assert_eq!((output.status.code(), lab.link().name.as_str()), (Some(0), "geo-600"));

    lab.done("set loss --every 1min --for 1s");
    lab.done("set loss 1%");
    for pipe in [lab.forward(), lab.back()] {
        assert_eq!((pipe.packet_loss, pipe.outages.len()), (0.01, 0));
    }
    lab.done("set loss none");
    assert_eq!(lab.forward().packet_loss, 0.0);
    let told = lab.fails(1, "set loss 150%");
    assert!(told.contains("150 % is above 100 %"), "{told}");
    lab.fails(2, "set loss 1% --every 1min --for 1s");

    std::fs::write(lab.at("train.toml"), "").unwrap();
    let told = lab.fails(1, "set profile train");
    assert!(
        told.contains("hint: train.toml is a file: linkctl set profile ./train.toml"),
        "{told}"
    );
    assert!(!lab.fails(1, "set profile trains").contains("is a file"));

    // One-way, and it says so; or the round trip, in halves.
    let output = lab.command("set delay 600ms").output().unwrap();
    let told = text(&output.stdout);
    assert!(told.contains("a round trip by 1.2 s") && told.contains("--rtt 600ms"), "{told}");
    lab.done("set delay --rtt 600ms");
    for pipe in [lab.forward(), lab.back()] {
        assert_eq!(pipe.delay.unwrap().base_ns, 300_000_000);
    }
    lab.fails(2, "set delay --rtt 600ms -d forward");
}

#[test]
fn a_rate_trace_comes_out_of_a_file() {
    let lab = Lab::new();
    lab.done("set profile viasat2");
    // 1504 bytes each 10 ms for 200 ms, then none for as long.
    let times: String = (1..=20).map(|n| format!("{}\n", n * 10)).collect();
    std::fs::write(lab.at("lte"), times).unwrap();
    std::fs::write(lab.at("rates.csv"), "time_s,rate_mbps\n0,10\n1,20\n").unwrap();
    lab.done("set rate --trace lte -d forward");
    let trace = |step_ns, rates_bps: &[u64]| {
        Some(pb::RateTrace { step_ns, rates_bps: rates_bps.to_vec(), ..Default::default() })
    };
    let forward = lab.forward();
    // Single opportunities; with a step, their mean.
    let runs = vec![10 * 16 + 1; 20];
    let opportunities = Some(pb::Opportunities { size_bytes: 1504, runs });
    let single = Some(pb::RateTrace { step_ns: 1_000_000, opportunities, ..Default::default() });
    assert_eq!((forward.rate_bps, &forward.rate_trace), (None, &single));
    lab.done("set rate --trace lte -d forward --trace-step 100ms");
    assert_eq!(lab.forward().rate_trace, trace(100_000_000, &[1_203_200; 2]));
    assert_eq!(lab.back().rate_bps, Some(12_000_000));
    lab.done("set rate --trace rates.csv --trace-step 2s");
    assert_eq!(lab.back().rate_trace, trace(2_000_000_000, &[15_000_000]));
    let told = lab.fails(1, "set rate --trace none");
    assert!(told.contains("cannot read none"), "{told}");
    std::fs::write(lab.at("long"), "100000000\n").unwrap();
    let told = lab.fails(1, "set rate --trace long --trace-step 100ms");
    assert!(
        told.contains("1000000 steps of 100 ms") && told.contains("--trace-step 1.526s"),
        "{told}"
    );
    lab.done("set rate --trace long --trace-step 1.526s");
    // A profile names the file that is beside it, wherever it is set from.
    std::fs::create_dir(lab.at("links")).unwrap();
    std::fs::rename(lab.at("lte"), lab.at("links/lte")).unwrap();
    let varied = VARIED.replace(
        "rate_trace = { step = \"100 ms\", rates = [\"12 Mbit/s\", \"down\"] }",
        "rate_trace = { file = \"lte\" }",
    );
    std::fs::write(lab.at("links/varied.toml"), varied).unwrap();
    for line in ["profile check links/varied.toml", "set profile links/varied.toml"] {
        lab.done(line);
    }
    assert_eq!(lab.forward().rate_trace, single);
    lab.done("profile put links/varied.toml");
    // The part that linkd receives contains no file name.
    let part = ["set", "part", "rate_trace = { file = \"lte\" }"];
    let output = lab.command("").args(part).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("came without one"), "{}", text(&output.stderr));
    let steps = "[[step]]\nforward.rate_trace = { file = \"links/lte\" }\n";
    std::fs::write(lab.at("s.toml"), format!("name = \"s\"\n{steps}")).unwrap();
    let told = lab.fails(4, "scenario check s.toml");
    assert!(told.contains("1 file is not a valid scenario"), "{told}");
}

#[test]
fn part_is_set_with_profile_keys_and_removed() {
    let lab = Lab::new();
    lab.done("set profile viasat2");
    let part = |words: &[&str], direction: &str| {
        let output = lab.command("set part").args(words).args(["-d", direction]).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let done = (Some(0), String::new());
    let reorder = "reorder = { probability = \"2 %\", by = \"5 ms\" }";
    let noise = ["duplicate = \"1 %\"", "corrupt = \"50 %\"", reorder, "rate = \"down\""];
    assert_eq!(part(&noise, "both"), done);
    let reordered = pb::Reorder { probability: 0.02, by_ns: 5_000_000 };
    for pipe in [lab.forward(), lab.back()] {
        assert_eq!((pipe.duplicate, pipe.corrupt, pipe.rate_bps), (0.01, 0.5, Some(0)));
        assert_eq!(pipe.reorder, Some(reordered));
    }
    // A loss of zero removes the loss.
    lab.done("set loss none");
    assert_eq!((lab.forward().duplicate, lab.forward().reorder), (0.01, Some(reordered)));
    let none = ["duplicate = \"0 %\"", "corrupt = \"0 %\"", "reorder = \"none\""];
    assert_eq!(part(&none, "forward"), done);
    assert_eq!((lab.forward().duplicate, lab.forward().corrupt, lab.forward().reorder), {
        (0.0, 0.0, None)
    });
    assert_eq!(lab.back().reorder, Some(reordered));
    // Each word is a separate line of the error message.
    let generation = lab.json("-o json show")["applied"]["generation"].clone();
    let (code, told) = part(&["rate = \"1 Mbit/s\"", "duplicat = \"1 %\""], "both");
    assert_eq!(code, Some(1));
    let expected = "line 2, column 1: part.duplicat: unknown key \"duplicat\": the nearest is";
    assert!(told.contains(expected), "{told}");
    let (_, told) = part(&["reorder.probability = \"1 %\""], "both");
    assert!(told.contains("part.reorder.by: missing"), "{told}");
    let (_, told) = part(&["duplicate = 0.1"], "both");
    assert!(told.contains("part.duplicate: "), "{told}");
    let (_, told) = part(&[""], "both");
    assert!(told.contains("changes nothing"), "{told}");
    let (_, told) = part(&["duplicate"], "both");
    assert!(told.contains("not TOML"), "{told}");
    assert_eq!(lab.json("-o json show")["applied"]["generation"], generation);
}

#[test]
fn expected_generation_is_enforced() {
    let lab = Lab::new();
    lab.done("set profile viasat2 --expect-generation 0");
    let refused = lab.fails(1, "set rate down --expect-generation 9");
    assert!(refused.contains("generation 9 was expected and 1 is current"), "{refused}");
    lab.done("set rate down --expect-generation 1");
}

#[test]
fn the_link_shown_can_be_set_again() {
    let lab = Lab::new();
    assert!(lab.done("show").contains("no profile is set"));
    assert_eq!(lab.json("-o json show").get("profile"), None);
    lab.done("set profile viasat2 --seed 7");
    lab.done("set rate 72Mbit/s");
    let shown = lab.done("show");
    assert!(shown.starts_with("# In force: generation 2, since 2.345678901 s of"), "{shown}");
    assert!(shown.contains("seed 7") && shown.contains("rate = \"72 Mbit/s\""), "{shown}");
    std::fs::write(lab.at("saved.toml"), shown).unwrap();
    let before = lab.link();
    lab.done("set profile viasat2");
    lab.done("set profile saved.toml");
    assert_eq!(lab.link(), before);
    let shown = lab.json("show -o json");
    assert_eq!(shown["applied"]["generation"], 4);
    let profile = &shown["profile"];
    assert_eq!(profile["name"], "viasat2*");
    assert_eq!(profile["forward_pipe"]["rate_bps"], 72_000_000);
    let pipe = &profile["return_pipe"];
    assert_eq!(pipe["outages"][1]["law"], "DURATION_LAW_FIXED");
    assert_eq!(pipe["packet_loss"], 0.0);
    assert_eq!([pipe.get("fade"), pipe["delay"].get("body"), profile.get("provenance")], [None; 3]);
}

#[test]
fn variation_and_its_source_are_shown() {
    let lab = Lab::new();
    std::fs::write(lab.at("varied.toml"), VARIED).unwrap();
    lab.done("set profile varied.toml");
    let before = lab.link();
    let short = lab.done("show");
    assert!(
        short.contains("# Fitted to pings.csv; not shown: linkctl show --provenance"),
        "{short}"
    );
    assert!(!short.contains("[provenance]") && !short.contains("goodness"), "{short}");
    std::fs::write(lab.at("saved.toml"), lab.done("show --provenance")).unwrap();
    lab.done("set profile saved.toml");
    assert_eq!(lab.link(), before);
    let shown: pb::Link = proto::from_json(lab.done("show -o json").as_bytes()).unwrap();
    assert_eq!(shown.profile, Some(before));
}

#[test]
fn statistics_in_json_are_those_of_linkd_with_their_balance() {
    let lab = Lab::new();
    lab.fake.state().stats = stats();
    let text = lab.done("-o json stats --mark");
    assert_eq!(lab.fake.state().marks, 1);
    let conservation = pb::Conservation {
        received: 10,
        sent: 6,
        dropped: 2,
        held: 2,
        exact: true,
        ..Default::default()
    };
    let expected = pb::Stats { conservation: Some(conservation), ..stats() };
    assert_eq!(proto::from_json::<pb::Stats>(text.as_bytes()).unwrap(), expected);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["time_ns"], 12_345_678_901_u64);
    assert_eq!(json["lateness"]["max_ns"], u64::MAX);
    assert_eq!(json["ports"][0]["link"], "LINK_STATE_DOWN");
    assert_eq!(json["conservation"]["exact"], true);
}

#[test]
fn statistics_in_text_report_balance() {
    let lab = Lab::new();
    lab.fake.state().stats = stats();
    let shown = lab.done("stats");
    for expected in [
        "10.0.0.2",
        "forward",
        "aqm 1, outage 1",
        "18.0 MB",
        "lateness: p50 5 ns, p99 1.5 µs",
        "emulator drops: 3, longest stall 4.0 µs",
        "conservation: exact (received 10, sent 6 + dropped 2 + held 2)",
    ] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
    lab.fake.state().stats.clients[0].return_pipe.as_mut().unwrap().received =
        Some(pb::Count { packets: 0, bytes: 1 });
    assert!(lab.done("stats").contains("conservation: NOT EXACT"));
}

#[test]
fn watching_prints_a_line_per_interval_and_survives_a_closed_pipe() {
    let lab = Lab::new();
    lab.fake.state().stats = stats();
    for line in ["stats --watch 10ms", "-o json stats --watch 10ms"] {
        let mut child =
            lab.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..3 {
            let line = lines.next().unwrap().unwrap();
            assert!(line.contains("conservation"), "{line}");
            if line.starts_with('{') {
                serde_json::from_str::<Value>(&line).unwrap();
            }
        }
        drop(lines);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn watching_ends_with_3_when_the_dataplane_dies() {
    let mut lab = Lab::new();
    let mut child = lab
        .command("stats --watch 10ms")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    lab.running = None;
    while lines.next().is_some() {}
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(error.contains("no dataplane at"), "{error}");
}

#[test]
fn unreachable_linkd_exits_3_with_start_command() {
    let mut lab = Lab::new();
    lab.running = None;
    let error = lab.fails(3, "show");
    assert!(error.contains("error: no dataplane at "), "{error}");
    assert!(error.contains("start linkd-dataplane"), "{error}");
    let error = lab.fails(3, "--socket /nonexistent/linkd.sock show");
    assert!(
        error.contains("cannot reach linkd at /nonexistent/linkd.sock: there is no such socket")
    );
    assert!(
        error.contains("hint: is it running? start it: linkd --socket /nonexistent/linkd.sock")
    );
    let error = lab.fails(3, "-o json --socket /nonexistent/linkd.sock show");
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["error"]["code"], "unreachable");
    // These commands do not contact linkd.
    assert!(lab.done("--socket /nonexistent/linkd.sock completion bash").contains("linkctl"));
    drop(std::os::unix::net::UnixListener::bind(lab.at("dead.sock")).unwrap());
    assert!(lab.fails(3, "--socket dead.sock show").contains("nobody listens there"));
}

#[test]
fn refusal_exits_1_with_violations() {
    let lab = Lab::new();
    let error = lab.fails(1, "set rate down");
    assert!(error.contains("no profile is set yet"), "{error}");
    let error = lab.fails(1, "set profile viasat3");
    assert!(error.contains("the nearest is \"viasat2\""), "{error}");
    lab.done("set profile viasat2");
    let error = lab.fails(1, "-o json set rate 1bit/s");
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["error"]["code"], "invalid_argument");
    assert_eq!(error["error"]["violations"][0]["field"], "forward.rate");
    assert_eq!(error["error"]["violations"][1]["field"], "return.rate");
    let error = lab.fails(1, "set rate 1bit/s");
    assert!(error.contains("\n  return.rate: 1 bit/s is below 1 kbit/s"), "{error}");
    let error = lab.fails(1, "set profile missing.toml");
    assert!(error.contains("cannot read missing.toml"), "{error}");
    std::fs::write(lab.at("bad.toml"), "name = \"bad\"\nrate = 1\n").unwrap();
    let error = lab.fails(1, "set profile bad.toml");
    assert!(error.contains("line 2, column 1: rate: unknown key"), "{error}");
    assert_eq!(lab.link().name, "viasat2");
}

#[test]
fn usage_error_exits_2_also_in_json() {
    let lab = Lab::new();
    for line in ["", "set rate 72", "set queue 0", "frobnicate", "set profile", "stats --watch 0s"]
    {
        let error = lab.fails(2, line);
        assert!(!error.is_empty(), "{line}");
    }
    let error: Value = serde_json::from_str(&lab.fails(2, "-o json set rate 72")).unwrap();
    assert_eq!(error["error"]["code"], "usage");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("such as \"72 Mbit/s\""), "{message}");
    assert!(lab.done("--help").contains("Examples:"));
    assert!(lab.done("--version").starts_with("linkctl "));
}

#[test]
fn failed_check_exits_4() {
    let lab = Lab::new();
    let good = lab.done("profile show viasat2");
    std::fs::write(lab.at("good.toml"), &good).unwrap();
    std::fs::write(lab.at("bad.toml"), good.replace("\"144 Mbit/s\"", "144")).unwrap();
    assert_eq!(lab.done("profile check good.toml"), "good.toml: viasat2 is valid\n");
    let output = lab.run("profile check good.toml bad.toml");
    assert_eq!(output.status.code(), Some(4));
    let shown = text(&output.stdout);
    assert!(shown.contains("bad.toml:7:8: forward.rate: rate = 144 has no unit"), "{shown}");
    assert!(text(&output.stderr).contains("1 file is not a valid profile"));
    let output = lab.run("-o json profile check good.toml bad.toml");
    assert_eq!(output.status.code(), Some(4));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["files"][0]["valid"], true);
    assert_eq!(json["files"][1]["violations"][0]["field"], "forward.rate");
    assert_eq!(json["files"][1]["violations"][0]["line"], 7);
    lab.fails(1, "profile check missing.toml");
}

#[test]
fn profiles_are_listed_and_shown() {
    let lab = Lab::new();
    let listed = lab.done("profile list");
    let lines: Vec<_> = listed.lines().map(str::trim).collect();
    let line = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(line("fixed line") < line("adsl2plus") && line("adsl2plus") < line("satellite"));
    assert!(line("satellite") < line("viasat2") && listed.contains("SAT20"), "{listed}");
    let json = lab.json("-o json profile list");
    let viasat2 = json["profiles"].as_array().unwrap().iter().find(|p| p["name"] == "viasat2");
    assert_eq!(viasat2.unwrap()["group"], "satellite");
    let json = lab.json("-o json profile show geo-600");
    assert_eq!(json["forward_pipe"].get("rate_bps"), None);
    assert_eq!(json["return_pipe"]["delay"]["base_ns"], 300_000_000);
}
