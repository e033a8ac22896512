// SPDX-License-Identifier: Apache-2.0
//! `linkctl scenario`, against linkd in-process and a fake dataplane.

use crate::lab::{Lab, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

const SHORT: &str = "name = \"short\"\n[[step]]\nlabel = \"slow, \\\"quoted\\\"\"\nboth.rate = \"1 Mbit/s\"\n\
                     [[step]]\nafter = \"50 ms\"\nboth.rate = \"2 Mbit/s\"\n[[step]]\nlabel = \"end\"\n";
const ENDLESS: &str = "name = \"endless\"\n[[step]]\nrepeat = \"forever\"\n[[step.step]]\nboth.rate = \"1 Mbit/s\"\n\
                       [[step.step]]\nafter = \"100 ms\"\n";

fn lab() -> Lab {
    let lab = Lab::new();
    lab.done("set profile viasat2");
    fs::write(lab.at("short.toml"), SHORT).unwrap();
    fs::write(lab.at("endless.toml"), ENDLESS).unwrap();
    lab
}

#[test]
fn the_built_in_ones_are_listed_and_shown_as_files_that_check() {
    let lab = lab();
    let list = lab.done("scenario list");
    for name in ["rain-fade", "beam-congestion", "handover", "lte-highway", "link-flap", "SAT20"] {
        assert!(list.contains(name), "{name}: {list}");
    }
    let scenarios = lab.json("-o json scenario list")["scenarios"].as_array().unwrap().len();
    assert_eq!(scenarios, 5);
    fs::write(lab.at("mine.toml"), lab.done("scenario show rain-fade")).unwrap();
    let checked = lab.done("--socket /nonexistent/linkd.sock scenario check mine.toml");
    assert!(checked.contains("rain-fade is valid") && checked.contains("5 min"), "{checked}");
    let unknown = lab.fails(1, "scenario show rain-fad");
    assert!(unknown.contains("rain-fade"), "{unknown}");
}

#[test]
fn wrong_file_is_reported_with_places_and_exit_code_4() {
    let lab = lab();
    fs::write(lab.at("wrong.toml"), "name = \"it\"\n[[step]]\nlable = \"x\"\n").unwrap();
    let output = lab.run("scenario check short.toml wrong.toml");
    assert_eq!(output.status.code(), Some(4));
    let told = text(&output.stdout);
    assert!(told.contains("wrong.toml:3:1: step[0].lable: unknown key"), "{told}");
    assert!(told.contains("short.toml: short is valid (steps: 3; 50 ms)"), "{told}");
    let refused = lab.fails(1, "scenario run wrong.toml");
    assert!(refused.contains("the nearest is \"label\""), "{refused}");
    assert!(lab.fails(1, "scenario run ./none.toml").contains("cannot read"));
}

#[test]
fn check_rejects_unknown_profiles_unless_named() {
    let lab = lab();
    let wrong = "name = \"it\"\n[[step]]\nprofile = \"viasat\"\n[[step]]\nprofile = \"lab-7\"\n";
    fs::write(lab.at("it.toml"), wrong).unwrap();
    let told = lab.run("scenario check it.toml --profile lab-7");
    assert_eq!(told.status.code(), Some(4));
    let told = text(&told.stdout);
    assert!(told.contains("\"viasat\" is not a built-in profile, \"viasat2\" is"), "{told}");
    assert!(!told.contains("lab-7"), "{told}");
    let json = lab.run("-o json scenario check it.toml");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["files"][0]["violations"].as_array().unwrap().len(), 2, "{json}");
    assert!(
        lab.done("scenario check it.toml --profile lab-7 --profile viasat").contains("is valid")
    );
}

#[test]
fn a_dry_run_shows_the_plan() {
    let lab = lab();
    let shown = lab.done("scenario run short.toml --dry-run");
    assert!(shown.contains("both: rate 2 Mbit/s"), "{shown}");
    let json = lab.json("-o json scenario run lte-highway --dry-run");
    assert_eq!(json["first"].as_array().unwrap().len(), 20);
    assert_eq!(json["scenario"]["length_ns"], 640_000_000_000_u64);
}

#[test]
fn a_run_ends_with_its_state_and_a_log_of_every_step() {
    let lab = lab();
    let state = lab.json("-o json scenario run short.toml --log steps.csv --seed 7");
    assert_eq!(
        (&state["phase"], &state["steps_done"]),
        (&"SCENARIO_PHASE_FINISHED".into(), &3.into())
    );
    let log = fs::read_to_string(lab.at("steps.csv")).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    let header = "run,index,time_ns,utc,label,planned_ns,planned_utc,late_ns,generation,message";
    assert_eq!(lines[0], header);
    assert!(lines[1].contains("\"slow, \"\"quoted\"\"\""), "{log}");
    lab.done("scenario run short.toml --log steps.jsonl");
    let log = fs::read_to_string(lab.at("steps.jsonl")).unwrap();
    let rows: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
    assert_eq!(rows.len(), 3);
    for row in &rows {
        let late = number(row, "time_ns") - number(row, "planned_ns");
        assert_eq!(late, number(row, "late_ns"), "{row}");
    }
    assert_eq!(number(&rows[1], "planned_ns") - number(&rows[0], "planned_ns"), 50_000_000);
    assert_eq!((&rows[0]["run"], &rows[2]["label"]), (&2.into(), &"end".into()));
    assert_eq!(rows[2]["generation"], Value::Null);
    let plan = lab.fake.state().plan.clone().unwrap();
    assert_eq!(plan.seed, 7);
}

#[test]
fn detached_run_is_watched_paused_and_stopped() {
    let lab = lab();
    assert!(lab.done("scenario status").contains("no scenario has run"));
    assert!(lab.fails(1, "scenario watch").contains("no run to follow"));
    assert!(lab.fails(1, "scenario stop").contains("no scenario runs"));
    let started = lab.done("scenario run endless.toml --detach");
    assert!(started.contains("endless (run 1") && started.contains("running"), "{started}");
    let refused = lab.fails(1, "scenario run short.toml");
    assert!(refused.contains("runs \"endless\""), "{refused}");
    assert_eq!(lab.json("-o json scenario pause")["phase"], "SCENARIO_PHASE_PAUSED");
    assert_eq!(lab.json("-o json scenario status")["phase"], "SCENARIO_PHASE_PAUSED");
    assert_eq!(lab.json("-o json scenario resume")["phase"], "SCENARIO_PHASE_RUNNING");
    let stopped = lab.json("-o json scenario stop --restore");
    assert_eq!(stopped["phase"], "SCENARIO_PHASE_STOPPED");
    // The last run has ended, and not at its end.
    assert!(lab.fails(1, "scenario watch").contains("endless did not come to its end: stopped by"));
}

#[test]
fn interrupt_stops_the_run_with_its_exit_code() {
    let lab = lab();
    let mut command = lab.command("scenario run endless.toml");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its handler stands before linkd is asked to run it.
    while lab.json("-o json scenario status")["phase"] != "SCENARIO_PHASE_RUNNING" {
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("did not come to its end: stopped by"));
    assert_eq!(lab.json("-o json scenario status")["phase"], "SCENARIO_PHASE_STOPPED");
}

#[test]
fn traces_of_theaterq_become_a_scenario_file() {
    let lab = lab();
    fs::write(lab.at("down.csv"), "100000,20000000,12000000,0,10\n100000,30000000,0,0,10\n")
        .unwrap();
    fs::write(lab.at("up.csv"), "KEEP,LATENCY,JITTER\n200000,20000000,5\n").unwrap();
    let offline = "--socket /nonexistent/linkd.sock scenario";
    let refused =
        lab.fails(1, &format!("{offline} import --forward down.csv --return up.csv -w mine.toml"));
    assert!(refused.contains("up.csv:2: JITTER"), "{refused}");
    assert!(refused.contains("--ignore COLUMN"), "{refused}");
    assert!(!lab.at("mine.toml").exists());
    let done = lab.done(&format!(
        "{offline} import --forward down.csv --return up.csv --ignore jitter -w mine.toml"
    ));
    assert_eq!(done, "mine.toml: mine (steps: 4; 200 ms)\n");
    let checked = lab.done(&format!("{offline} check mine.toml"));
    assert!(checked.contains("mine is valid"), "{checked}");
    // Without a file it is printed.
    let printed = lab.done(&format!("{offline} import --return down.csv --name up --repeat"));
    assert!(printed.starts_with("name = \"up\"\n") && printed.contains("forever"), "{printed}");
    let json = lab.json(&format!("-o json {offline} import --return down.csv"));
    assert_eq!((&json["name"], &json["steps"]), (&"down".into(), &4.into()));
    assert!(lab.fails(2, "scenario run x -o y.toml").contains("write text or json"));
    let none = lab.fails(1, &format!("{offline} import --forward none.csv"));
    assert!(none.contains("cannot read none.csv"), "{none}");
}
