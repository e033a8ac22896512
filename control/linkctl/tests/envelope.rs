// SPDX-License-Identifier: Apache-2.0
//! `linkctl envelope`, and links outside of it, against linkd in-process and a fake
//! dataplane.

use crate::lab::{Lab, text};
use proto::linkemu::v1 as pb;
use serde_json::Value;

const OFFLINE: &str = "--socket /nonexistent/linkd.sock envelope --memory 4GB --port-rate 10Gbit/s";

fn with_room() -> Lab {
    let lab = Lab::new();
    lab.fake.state().room = Some(pb::Room {
        clients: 16,
        port_bps: 10_000_000_000,
        frame_bytes: 1_514,
        memory_bytes: 3 << 30,
        workers: 1,
        shim_bytes: 0,
        pair_bytes: 0,
    });
    lab
}

/// A profile that needs gigabytes.
const HUGE: &str = r#"name = "huge"
[forward]
rate = "unlimited"
queue.limit = "1 MB"
delay.base = "5 s"
[return]
rate = "25 Gbit/s"
queue.limit = "1518 B"
delay.base = "1 ms"
"#;

#[test]
fn table_uses_running_dataplane_or_given_values() {
    let lab = with_room();
    let shown = lab.done("envelope");
    assert!(
        shown.starts_with("What 3.22 GB hold for 16 clients, on ports of 10 Gbit/s"),
        "{shown}"
    );
    for part in ["10 Gbit/s (port)", "100 Gbit/s", "64 B", "1518 B", "IMIX", "ANY", "FCS"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = lab.done("envelope --memory 1GB --port-rate 40Gbit/s --max-frame 9018B");
    assert!(shown.starts_with("What 1 GB hold for 16 clients, on ports of 40 Gbit/s"), "{shown}");
    assert!(shown.contains("40 Gbit/s (port)") && shown.contains("carry 9018 B"), "{shown}");
    assert!(lab.done(&format!("{OFFLINE} --clients 16")).starts_with("What 4 GB hold for 16"));
    // The memory is divided among the workers, and one of them may have to hold all.
    let shown = lab.done("envelope --memory 4GB --workers 2");
    assert!(shown.starts_with("What 2 GB hold, the part of each of 2 workers, for 16"), "{shown}");
}

#[test]
fn table_in_json_follows_memory_and_rate() {
    let lab = Lab::new();
    let answer = lab.done(&format!("-o json {OFFLINE} --clients 100"));
    let envelope: pb::Envelope = proto::from_json(answer.as_bytes()).unwrap();
    let room = pb::Room {
        clients: 100,
        port_bps: 10_000_000_000,
        frame_bytes: 1_514,
        memory_bytes: 4_000_000_000,
        workers: 1,
        ..Default::default()
    };
    assert_eq!((envelope.room, &envelope.profile), (Some(room), &None));
    let rows = &envelope.rows;
    assert_eq!(rows.len(), 5);
    let delay = |row: usize, of: &str| {
        let found = rows[row].delays.iter().find(|delay| delay.frames == of);
        found.unwrap().delay_ns as f64
    };
    assert_eq!((rows[2].rate_bps, rows[2].port), (room.port_bps, true));
    // At 14.88 million frames of 60 bytes a second: 4 GB is 4.48 s without bookkeeping.
    assert!((2.8e9..4.48e9).contains(&delay(2, "64 B")), "{answer}");
    for of in ["64 B", "128 B", "512 B", "1518 B", "IMIX"] {
        assert!(delay(2, "ANY") < delay(2, of), "{of}: {answer}");
        assert!((delay(0, of) / delay(4, of) / 100.0 - 1.0).abs() < 1e-6, "{of}: {answer}");
    }
    // A port with another rate has a separate row.
    let json = lab.json("-o json envelope --memory 4GB --port-rate 40Gbit/s --clients 1");
    assert_eq!(json["rows"].as_array().unwrap().len(), 6);
}

#[test]
fn fitting_profile_shows_headroom_and_oversized_exits_4() {
    let lab = with_room();
    let shown = lab.done("envelope --profile viasat2-pings");
    assert!(
        shown.contains("viasat2-pings fits: it needs 1.") && shown.contains("MB each way"),
        "{shown}"
    );
    let output = lab.run("-o json envelope --profile viasat2-pings --clients 1000");
    assert_eq!(output.status.code(), Some(4));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let profile = &json["profile"];
    assert_eq!((&profile["name"], &profile["fits"]), (&"viasat2-pings".into(), &false.into()));
    let clients = profile["clients"]["value"].as_u64().unwrap();
    assert!(profile["excesses"][0].as_str().unwrap().contains("of 1000 clients"), "{json}");
    let error: Value = serde_json::from_str(&text(&output.stderr)).unwrap();
    assert_eq!(error["error"]["code"], "check_failed");
    // The offered number of clients fits, and one more does not.
    lab.done(&format!("envelope --profile viasat2-pings --clients {clients}"));
    lab.fails(4, &format!("envelope --profile viasat2-pings --clients {}", clients + 1));
    let queue = profile["queue_bytes"]["forward_value"].as_u64().unwrap();
    let toml = lab.done("profile show viasat2-pings");
    let with = |name: &str, limit: u64| {
        let toml = toml.replace("\"36 MB\"", &format!("\"{limit} B\""));
        let toml = toml.replace("threshold = \"18 MB\"", "threshold = \"10 kB\"");
        std::fs::write(lab.at(name), toml.replace("\"viasat2-pings\"", "\"mine\"")).unwrap();
    };
    with("fits.toml", queue);
    with("over.toml", queue + 10_000);
    lab.done("envelope --profile fits.toml --clients 1000");
    lab.fails(4, "envelope --profile ./over.toml --clients 1000");
}

#[test]
fn envelope_works_without_linkd_given_its_values() {
    let mut lab = with_room();
    std::fs::write(lab.at("huge.toml"), HUGE).unwrap();
    let line = format!("{OFFLINE} --clients 1 --profile huge.toml");
    let output = lab.run(&line);
    assert_eq!(output.status.code(), Some(4));
    let shown = text(&output.stdout);
    for part in [
        "huge DOES NOT FIT: it needs ",
        "note: return: 25 Gbit/s is more than the port's 10 Gbit/s",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(text(&output.stderr).contains("too little memory: needs "), "{output:?}");
    assert!(lab.done(&format!("{OFFLINE} --clients 1 --profile geo-600")).contains("geo-600 fits"));
    let error = lab.fails(1, &format!("{OFFLINE} --clients 1 --profile geo-60"));
    assert!(error.contains("the nearest is \"geo-600\""), "{error}");
    lab.fails(1, &format!("{OFFLINE} --clients 1 --profile gone.toml"));
    std::fs::write(lab.at("bad.toml"), "name = 1").unwrap();
    lab.fails(1, &format!("{OFFLINE} --clients 1 --profile bad.toml"));
    let error = lab.fails(3, OFFLINE);
    assert!(error.contains("hint: without linkd: give --memory, --port-rate and"), "{error}");
    // A dataplane that does not say, and none.
    lab.fake.state().room = None;
    assert!(lab.fails(1, "envelope").contains("older one"));
    lab.running = None;
    lab.fails(3, "envelope");
    for line in ["envelope --clients 0", "envelope --clients 100001", "envelope --memory 4Gb"] {
        lab.fails(2, line);
    }
    // The limits of the arguments.
    for (memory, clients) in [("0B", 1), ("0B", 100_000), ("18000000TB", 100_000)] {
        let rest = format!("--memory {memory} --port-rate 1bit/s --clients {clients}");
        lab.done(&format!("envelope {rest} --max-frame 14B"));
    }
}

#[test]
fn oversized_link_is_refused_or_accepted_as_lossy() {
    let lab = with_room();
    lab.fake.state().excess = Some("needs 9.6 GB, 4 GB reserved: at most 112 ms".into());
    let error = lab.fails(1, "set profile viasat2");
    assert!(error.contains("needs 9.6 GB, 4 GB reserved: at most 112 ms"), "{error}");
    assert!(error.contains("hint: what can be held: linkctl envelope"), "{error}");
    let error: Value = serde_json::from_str(&lab.fails(1, "-o json set profile viasat2")).unwrap();
    assert_eq!(error["error"]["code"], "failed_precondition");
    assert_eq!(error["error"]["details"]["needed_bytes"], 9_600);

    let line = lab.done("set profile viasat2 --lossy");
    assert!(line.contains("\nlossy: packets may be lost"), "{line}");
    assert!(line.contains("\nnote: needs 9.6 GB, 4 GB reserved"), "{line}");
    let shown = lab.done("show");
    assert!(shown.contains("\n# lossy: ") && shown.contains("\n# note: needs 9.6 GB"), "{shown}");
    std::fs::write(lab.at("saved.toml"), shown).unwrap();
    let json = lab.json("-o json show");
    assert_eq!(
        (&json["applied"]["lossy"], &json["remarks"][0]),
        (&true.into(), &"needs 9.6 GB, 4 GB reserved: at most 112 ms".into())
    );
    assert_eq!(lab.json("-o json stats")["lossy"], true);
    assert!(lab.done("stats").contains("\nlossy: the link was set although"));

    lab.fails(1, "set rate 1Mbit/s");
    let json = &lab.json("-o json set rate 1Mbit/s --lossy")["links"][0];
    let (applied, profile) = (&json["applied"], &json["profile"]);
    assert_eq!((&applied["lossy"], &profile["name"]), (&true.into(), &"viasat2*".into()));
    lab.fails(1, "set profile saved.toml");
    lab.fake.state().excess = None;
    assert!(!lab.done("set profile saved.toml --lossy").contains("lossy"));
    assert_eq!(lab.json("-o json show")["applied"]["lossy"], false);
    assert!(!lab.done("stats").contains("lossy"));
}
