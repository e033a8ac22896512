// SPDX-License-Identifier: Apache-2.0
//! `linkctl switch`, and what `linkctl show` says of a switch, against linkd in-process.

use crate::lab::Lab;
use fake::declared_switch;
use p4runtime::Count;
use p4server::Fake;
use proto::linkemu::v1 as pb;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A lab with a dataplane that reports a switch.
fn with(address: &str) -> Lab {
    let lab = Lab::new();
    {
        let mut state = lab.fake.state();
        (state.switch, state.instance) = (Some(declared_switch(address)), 5);
    }
    until("linkd knows of the switch", || lab.run("switch show").status.code() == Some(0));
    lab.done("set profile transparent");
    lab
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An address without a listener.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Clients with numbers from 1.
fn numbered(lab: &Lab, names: &[&str]) {
    let client = |(name, number): (&&str, u32)| pb::ClientStats {
        client: (*name).into(),
        number,
        ..Default::default()
    };
    lab.fake.state().stats.clients = names.iter().zip(1..).map(client).collect();
}

#[test]
fn missing_switch_is_not_shown() {
    let lab = Lab::new();
    lab.done("set profile transparent");
    assert!(!lab.done("show").contains("stages"));
    for line in ["switch show", "switch gate close", "switch gate open --client alice"] {
        let said = lab.fails(1, line);
        assert!(said.contains("no P4 switch") && said.contains("[switch]"), "{said}");
    }
    assert!(lab.fails(2, "switch gate").contains("close"));
    lab.fails(2, "switch gate close --direction up");
}

#[test]
fn unreachable_switch_is_shown_and_link_can_be_set() {
    let address = nowhere();
    let lab = with(&address);
    let shown = lab.done("switch show");
    assert!(shown.starts_with(&format!("{address} (bmv2): lost, for ")), "{shown}");
    assert!(shown.contains("not restored yet"), "{shown}");
    let json = lab.json("-o json switch show");
    assert_eq!((&json["phase"], &json["entries"]), (&"SWITCH_PHASE_LOST".into(), &0.into()));
    assert_eq!(json["wires"].as_array().unwrap().len(), 4);
    let text = lab.done("show");
    let loss = text.lines().find(|line| line.starts_with("# loss") && line.contains("forward"));
    assert!(loss.unwrap().contains("dataplane"), "{text}");
    std::fs::write(lab.at("saved.toml"), &text).unwrap();
    lab.done("profile check saved.toml");
    let stages = lab.json("-o json switch show")["stages"].clone();
    assert_eq!(stages.as_array().unwrap().len(), 14);
    assert!(
        stages.as_array().unwrap().iter().all(|stage| stage["place"] == "STAGE_PLACE_DATAPLANE")
    );
    let said = lab.fails(1, "switch gate close --client 10.0.0.2");
    assert!(said.contains("10.0.0.2"), "{said}");
    let said = lab.fails(3, "switch gate close");
    assert!(said.contains("not ready"), "{said}");
}

#[test]
fn a_switch_that_is_ready_shows_its_part_its_counts_and_its_times() {
    let runtime = Runtime::new().unwrap();
    let switch = runtime.block_on(Fake::start(1)).unwrap();
    let lab = with(&switch.address());
    until("the switch is used", || {
        lab.fake.state().plan.as_ref().is_some_and(|plan| plan.offload.is_some())
    });
    lab.done(r#"set part packet_loss="1%" -d forward"#);
    let text = lab.done("show");
    let stage = |name: &str, direction: &str| {
        let found = text.lines().find(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next() == Some(name) && words.next() == Some(direction)
        });
        found.unwrap_or_else(|| panic!("{name} {direction}: {text}")).to_owned()
    };
    assert!(text.contains("# Where its stages run:"), "{text}");
    assert!(stage("loss", "forward").contains(" switch "), "{text}");
    assert!(stage("loss", "return").contains(" dataplane "), "{text}");
    assert!(stage("classification", "return").contains(" switch "), "{text}");
    let json = lab.json("-o json switch show");
    let loss = |direction: &str| {
        let stages = json["stages"].as_array().unwrap().iter();
        let mut found = stages.filter(|s| s["name"] == "loss" && s["direction"] == direction);
        found.next().unwrap()["place"].clone()
    };
    assert_eq!(
        (loss("DIRECTION_FORWARD"), loss("DIRECTION_RETURN")),
        ("STAGE_PLACE_SWITCH".into(), "STAGE_PLACE_DATAPLANE".into())
    );
    // Frames before the common reading of the switch and the box are not compared.
    lab.done("stats");
    // Client 2, forward: 9 from hosts, 8 from the box; and 4 of these in the third bucket.
    for (fate, packets) in [(0, 9), (1, 8), (2, 6), (3, 2)] {
        switch.count("linkemu.fates", 2 << 4 | fate, Count { packets, bytes: packets * 132 });
    }
    switch.count("linkemu.transit", 2 << 6 | 2, Count { packets: 4, bytes: 0 });
    let port = |name: &str, received| pb::PortStats {
        name: name.into(),
        received: Some(pb::Count { packets: received, bytes: 100 * received }),
        ..Default::default()
    };
    lab.fake.state().stats.ports = vec![port("wan", 7), port("client", 0)];
    let expected = serde_json::json!({
        "to_box": true, "port": "wan", "left": 9, "arrived": 7, "missing": 2,
    });
    // The counts of the switch and those of the box are read one after the other.
    until("the counts are read", || {
        let json = lab.json("-o json switch show");
        let is_ready = json["phase"] == "SWITCH_PHASE_READY" && json["wires"][0] == expected;
        is_ready && json["counts"][0]["forward_count"]["packets"] == 9
    });
    let json = lab.json("-o json switch show");
    let times = &json["forward_transit"];
    assert_eq!(times["counts"][2], 4);
    let lengths = ["counts", "bounds_ns"].map(|key| times[key].as_array().unwrap().len());
    assert_eq!(lengths[0], lengths[1] + 1);
    let shown = lab.done("switch show");
    for part in ["ready, for", "restored in", "9 left, 7 arrived, 2 missing", "####", "lost"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_gate_is_closed_shown_and_opened() {
    let runtime = Runtime::new().unwrap();
    let switch = runtime.block_on(Fake::start(1)).unwrap();
    let lab = with(&switch.address());
    numbered(&lab, &["bypass", "default", "10.0.0.2"]);
    until("the client can be gated", || {
        lab.run("switch gate close --client 10.0.0.2 -d forward").status.code() == Some(0)
    });
    assert_eq!(
        lab.done("switch gate close --client 10.0.0.2"),
        "the gate of 10.0.0.2, both, is closed\n"
    );
    let said = lab.json("-o json switch gate close --direction return");
    assert_eq!(said, serde_json::json!({}));
    let shown = lab.done("switch show");
    assert!(shown.contains("closed gate: all clients, return"), "{shown}");
    assert!(shown.contains("closed gate: 10.0.0.2, both"), "{shown}");
    lab.done("switch gate open");
    lab.done("switch gate open --client 10.0.0.2");
    assert_eq!(lab.json("-o json switch show")["gates"], serde_json::json!([]));
    copies_are_ordered_and_shown(&lab);
}

fn copies_are_ordered_and_shown(lab: &Lab) {
    assert_eq!(
        lab.done("switch mirror 10.0.0.2 -d forward"),
        "frames of 10.0.0.2, forward, are copied at hosts\n"
    );
    let shown = lab.done("switch show");
    assert!(shown.contains("mirror: 10.0.0.2, forward, at hosts, to port 5"), "{shown}");
    let said = lab.json("-o json switch mirror --all --at both");
    assert_eq!(said, serde_json::json!({}));
    assert!(lab.done("switch show").contains("mirror: all clients, both, at both"));
    assert_eq!(lab.done("switch mirror --off"), "no frames are copied\n");
    let state = lab.json("-o json switch show");
    let (port, asked) = (&state["mirror"]["port"], &state["mirror"]["mirror"]);
    assert_eq!((&asked["all"], port), (&false.into(), &5.into()));
    assert_eq!(asked["clients"], serde_json::json!([]));
    for wrong in ["10.0.0.2 --all", "--all --off", "--off --at box", "10.0.0.2 --at nowhere", ""] {
        lab.fails(2, &format!("switch mirror {wrong}"));
    }
    let said = lab.fails(1, "switch mirror nobody");
    assert!(said.contains("nobody") && said.contains("clients list"), "{said}");
}
