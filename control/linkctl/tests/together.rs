// SPDX-License-Identifier: Apache-2.0
//! `set` on several links.

use crate::lab::Lab;
use serde_json::Value;

fn with_links() -> Lab {
    let lab = Lab::new();
    lab.done("link add lab1");
    lab.done("link add lab2");
    lab
}

#[test]
fn every_form_of_set_changes_all_links() {
    let lab = with_links();
    lab.done("set profile viasat2");
    let text = lab.done("--link lab1,lab2 set profile viasat2 --seed 7");
    assert!(text.starts_with("in force at "), "{text}");
    for line in ["\n  lab1: viasat2, generation 1\n", "\n  lab2: viasat2, generation 1\n"] {
        assert!(text.contains(line), "{text}");
    }
    for (n, form) in [
        "set rate 20Mbit/s",
        "set delay 300ms -d forward",
        "set queue 40MB",
        "set loss 1%",
        "set part mtu={limit=\"1280B\"}",
    ]
    .iter()
    .enumerate()
    {
        let answer = lab.json(&format!("-o json --link main --link lab1 --link lab2 {form}"));
        let links = answer["links"].as_array().unwrap();
        let named: Vec<_> = links.iter().map(|link| link["name"].as_str().unwrap()).collect();
        assert_eq!(named, ["links/main", "links/lab1", "links/lab2"]);
        let generation = |link: &Value| link["applied"]["generation"].as_u64();
        let generations: Vec<_> = links.iter().map(generation).collect();
        let n = n as u64;
        assert_eq!(generations, [Some(n + 2); 3], "{form}");
        let applied = &links[0]["applied"];
        assert!(applied["effective_ns"].is_u64() && applied["effective_utc"].is_string());
    }
}

#[test]
fn other_commands_refuse_several_links() {
    let lab = with_links();
    for command in ["show", "stats", "lease show", "events", "scenario status", "clients list"] {
        let error = lab.fails(2, &format!("--link lab1,lab2 {command}"));
        assert!(error.contains("--link names 2 links (lab1, lab2)"), "{command}: {error}");
    }
}
