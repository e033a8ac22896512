// SPDX-License-Identifier: Apache-2.0
//! Commands for a shared box: leases, events, stored profiles, named requests.

use crate::lab::{Lab, text};

#[test]
fn a_lease_is_acquired_used_renewed_and_released() {
    let lab = Lab::new();
    assert!(lab.fails(1, "lease show").contains("no lease runs"));
    let acquire = "lease acquire --holder ci-7 --ttl 1min --return-to transparent --purpose tests";
    let acquired = lab.json(&format!("-o json {acquire}"));
    let (lease, token) = (&acquired["lease"], acquired["token"].as_str().unwrap());
    assert_eq!((&lease["holder"], &lease["ttl_ns"]), (&"ci-7".into(), &60_000_000_000_u64.into()));
    let refused = lab.fails(1, "set profile viasat2");
    assert!(refused.contains("leased to ci-7 for tests until"), "{refused}");
    lab.done(&format!("--lease {token} set profile viasat2"));
    let shown = lab.json("-o json lease show");
    assert_eq!((&shown["holder"], shown.get("token")), (&"ci-7".into(), None));
    assert!(lab.done(&format!("--lease {token} lease renew")).contains("leased to ci-7"));
    let missing = lab.fails(2, "lease release");
    assert!(missing.contains("LINKEMU_LEASE"), "{missing}");
    let released = lab.done(&format!("--lease {token} lease release"));
    assert!(released.contains("the link returned: generation 2"), "{released}");
}

#[test]
fn command_under_lease_passes_its_exit_code() {
    let lab = Lab::new();
    let linkctl = env!("CARGO_BIN_EXE_linkctl");
    let with = |script: &str| {
        let mut command =
            lab.command("lease run --holder ci --ttl 9s --return-to geo-600 -- sh -c");
        command.arg(script.replace("linkctl", linkctl)).output().unwrap()
    };
    // Until it was renewed, which is after a third of its time to live.
    let script = "first=$(linkctl lease show); \
                  while test \"$(linkctl lease show)\" = \"$first\"; do sleep 0.2; done; \
                  linkctl set profile viasat2 && linkctl lease show; exit 7";
    let output = with(script);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("leased to ci"), "{}", text(&output.stdout));
    assert_eq!(lab.link().name, "geo-600");
    assert!(lab.fails(1, "lease show").contains("no lease runs"));
    let output = with("kill -9 $$");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("signal 9"), "{}", text(&output.stderr));
    lab.fails(1, "lease run --ttl 3s -- /nowhere/to/be/found");
    assert!(lab.fails(1, "lease show").contains("no lease runs"));
}

#[test]
fn events_are_shown_with_their_times() {
    let lab = Lab::new();
    lab.done("set profile viasat2");
    lab.done("set rate 72Mbit/s --direction forward");
    let told = lab.done("events");
    assert!(told.contains("LINK_CHANGED viasat2 by "), "{told}");
    let kinds: Vec<String> = lab
        .done("-o json events")
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["kind"] == "EVENT_KIND_LINK_CHANGED")
        .map(|event| format!("{} {}", event["generation"], event["time_ns"]))
        .collect();
    assert_eq!(kinds, ["1 1345678901", "2 2345678901"]);
    assert!(lab.fails(1, "events --after 99").contains("watch from 0"));
}

#[test]
fn profiles_are_stored_set_by_name_and_deleted() {
    let lab = Lab::new();
    let mine = lab.done("profile show geo-600").replace("\"geo-600\"", "\"mine\"");
    std::fs::write(lab.at("mine.toml"), &mine).unwrap();
    assert_eq!(lab.done("profile put mine.toml"), "mine is stored\n");
    assert_eq!(lab.json("-o json profile list")["stored"][0], "mine");
    lab.done("set profile mine");
    std::fs::write(lab.at("mine.toml"), mine.replace("300 ms", "310 ms")).unwrap();
    assert!(lab.fails(1, "profile put mine.toml").contains("replace it"));
    lab.done("profile put --replace mine.toml");
    std::fs::write(lab.at("bad.toml"), "name = 1").unwrap();
    lab.fails(1, "profile put mine.toml bad.toml");
    assert_eq!(lab.done("profile delete mine"), "mine is deleted\n");
}

#[test]
fn list_has_the_profiles_of_all_pages() {
    let lab = Lab::new();
    let rows: String = (0..65_536).map(|n| format!("{}.{:02},34360\n", n / 100, n % 100)).collect();
    std::fs::write(lab.at("trace.csv"), format!("time_s,rate_mbps\n{rows}")).unwrap();
    let mine = lab.done("profile show transparent").replace("\"transparent\"", "\"NAME\"");
    let traced = r#"rate_trace = { file = "trace.csv", step = "10 ms" }"#;
    let traced = mine.replace(r#"rate = "unlimited""#, traced);
    assert_ne!(traced, mine);
    for name in ["a", "z"] {
        let file = format!("{name}.toml");
        std::fs::write(lab.at(&file), traced.replace("NAME", name)).unwrap();
        lab.done(&format!("profile put {file}"));
    }
    let listed = lab.json("-o json profile list");
    let names: Vec<_> = listed["profiles"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    let mut built_in: Vec<_> = profile::Catalog::built_in()
        .iter()
        .map(|entry| entry.profile.name().to_owned())
        .chain(["a", "z"].map(String::from))
        .collect();
    built_in.sort_unstable();
    assert_eq!(names, built_in.iter().collect::<Vec<_>>());
    assert_eq!(listed["stored"], serde_json::json!(["a", "z"]));
}

#[test]
fn a_named_request_is_carried_out_once() {
    let lab = Lab::new();
    let set = "set profile viasat2 --request-id job-7";
    assert_eq!(lab.json(&format!("-o json {set}"))["repeated"], false);
    lab.done("set profile geo-600");
    let again = lab.json(&format!("-o json {set}"));
    assert_eq!(
        (&again["repeated"], &again["links"][0]["applied"]["generation"]),
        (&true.into(), &1.into())
    );
    assert!(lab.done(set).starts_with("carried out before: generation 1"));
    assert_eq!(lab.link().name, "geo-600");
}
