// SPDX-License-Identifier: Apache-2.0
//! `linkctl clients` against linkd in-process and a fake dataplane.

use crate::lab::{Lab, text};
use proto::linkemu::v1 as pb;
use serde_json::json;

const FILE: &str = r#"[automatic]
limit = 100

[[client]]
name = "alice"
prefix = [
    "10.1.0.0/24",
    "2001:db8:1::/48",
]
vlan = [100]
mac = ["02:00:00:00:00:01"]
beam = "b1"
weight = 2

[[client.match]]
prefix = "10.2.0.0/16"
protocol = "udp"
port = "5000-5010"
dscp = 46

[[client]]
name = "bob"
prefix = ["10.0.0.0/8"]

[[beam]]
name = "b1"
forward_rate = "400 Mbit/s"
return_rate = "40 Mbit/s"
"#;

fn lab() -> Lab {
    let lab = Lab::new();
    lab.done("set profile viasat2");
    std::fs::write(lab.at("clients.toml"), FILE).unwrap();
    lab
}

#[test]
fn the_clients_shown_can_be_set_again_and_cleared() {
    let lab = lab();
    assert!(lab.done("clients show").contains("# Nothing is said of the clients"));
    let said = lab.done("clients set clients.toml");
    assert!(said.starts_with("clients in force: generation 2, at 2.345678901 s"), "{said}");
    let shown = lab.done("clients show");
    assert!(shown.starts_with("# In force: generation 2, since"), "{shown}");
    assert!(shown.ends_with(FILE), "{shown}");
    std::fs::write(lab.at("saved.toml"), &shown).unwrap();
    let answer =
        lab.json("-o json clients set saved.toml --expect-generation 2")["links"][0].clone();
    let applied = &answer["applied"];
    assert_eq!(
        (&applied["generation"], &answer["profile"]["name"]),
        (&json!(3), &json!("viasat2"))
    );
    let shown = || -> pb::GetClientsResponse {
        proto::from_json(lab.done("-o json clients show").as_bytes()).unwrap()
    };
    let clients = shown().clients.unwrap();
    assert_eq!(clients.automatic.unwrap().limit, Some(100));
    assert_eq!(clients.clients[0].vlans, [100]);
    let rule = pb::Match {
        prefix: "10.2.0.0/16".into(),
        protocol: "udp".into(),
        port: "5000-5010".into(),
        dscp: Some(46),
        ..Default::default()
    };
    assert_eq!(clients.clients[0].matches, [rule]);
    let bob = pb::Client {
        name: "bob".into(),
        prefixes: vec!["10.0.0.0/8".into()],
        ..Default::default()
    };
    assert_eq!(clients.clients[1], bob);
    lab.done("clients beam b1 200Mbit/s --direction forward");
    lab.done("clients beam b1 unlimited --direction return");
    let (answer, forward_rate_bps) = (shown(), Some(200_000_000));
    let clients = answer.clients.unwrap();
    assert_eq!(
        clients.beams,
        [pb::Beam { name: "b1".into(), forward_rate_bps, return_rate_bps: None }]
    );
    assert_eq!((answer.applied.unwrap().generation, clients.clients[0].weight), (5, 2));
    assert_eq!(lab.run("clients beam b2 down").status.code(), Some(1));
    assert_eq!(lab.run("clients beam b1 unlimited").status.code(), Some(1));
    lab.done("clients clear");
    assert_eq!(shown().clients, Some(pb::Clients::default()));
}

#[test]
fn wrong_file_is_reported_by_line_and_changes_nothing() {
    let lab = lab();
    let wrong = FILE.replace("10.1.0.0/24", "10.1.0.7/24").replace("\"bob\"", "\"alice\"");
    std::fs::write(lab.at("wrong.toml"), wrong).unwrap();
    let output = lab.run("clients set wrong.toml");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("write 10.1.0.0/24") && said.contains("line 7"), "{said}");
    assert!(said.contains("alice is the name of client[0] as well"), "{said}");
    assert_eq!(lab.run("clients set none.toml").status.code(), Some(1));
    assert_eq!(lab.run("clients set clients.toml --expect-generation 7").status.code(), Some(1));
    assert_eq!(lab.run("clients set").status.code(), Some(2));
    assert_eq!(lab.fake.state().generation, 1);
}

#[test]
fn every_client_is_listed() {
    let lab = lab();
    lab.done("clients set clients.toml");
    let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
    let pipe = pb::PipeStats { received: count(7), sent: count(7), ..Default::default() };
    let names = ["bypass", "default", "10.2.0.1", "alice", "carol"];
    lab.fake.state().stats.clients = names
        .iter()
        .map(|name| pb::ClientStats {
            client: (*name).into(),
            forward_pipe: Some(pipe.clone()),
            return_pipe: Some(pb::PipeStats::default()),
            ..Default::default()
        })
        .collect();
    let table = lab.done("clients list");
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..5], ["CLIENT", "KIND", "BEAM", "DIRECTION", "RECEIVED"]);
    for row in [
        ["10.2.0.1", "automatic", "-", "forward", "7", "7", "0", "0"],
        ["alice", "named", "b1/2", "forward", "7", "7", "0", "0"],
        ["carol", "removed", "-", "forward", "7", "7", "0", "0"],
        ["bob", "named", "-", "return", "0", "0", "0", "0"],
    ] {
        assert!(rows.iter().any(|r| *r == row), "{row:?}\n{table}");
    }
    let list = lab.json("-o json clients list");
    assert_eq!(list["clients"].as_array().unwrap().len(), 6);
    let account = &list["clients"][3]["forward_account"];
    assert_eq!(account["sent"], json!({"packets": 7, "bytes": 700}));
    assert_eq!(list["clients"][3]["kind"], "CLIENT_KIND_NAMED");
    assert_eq!(list["clients"][4]["removed"], true);
}
