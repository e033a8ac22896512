// SPDX-License-Identifier: Apache-2.0
//! `linkctl doctor` on this machine: forms, exit codes, and the findings on linkd and the
//! dataplane. Unit tests cover the findings on the machine, with machines of files.

use crate::lab::{Lab, text};
use serde_json::Value;

/// The findings, and the exit code.
fn doctor(lab: &Lab, line: &str) -> (Vec<Value>, i32) {
    let dataplane = lab.at("dataplane.sock").display().to_string();
    let output = lab.run(&format!("-o json doctor --dataplane {dataplane} {line}"));
    let json: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let checks = json["checks"].as_array().unwrap().clone();
    let bad = checks.iter().filter(|check| check["level"] == "FINDING_LEVEL_BAD").count();
    assert_eq!(json["bad"], bad);
    let code = output.status.code().unwrap();
    assert_eq!(code, if bad > 0 { 4 } else { 0 }, "{}", text(&output.stderr));
    (checks, code)
}

fn of<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{checks:?}"))
}

#[test]
fn versions_of_linkd_and_dataplane_are_checked() {
    let mut lab = Lab::new();
    // The fake socket is made with the rights of the test.
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o660);
    std::fs::set_permissions(lab.at("dataplane.sock"), rights).unwrap();
    let (checks, _) = doctor(&lab, "");
    let own = format!("answers, version {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(of(&checks, "linkd")["found"], own);
    let dataplane = of(&checks, "dataplane");
    assert_eq!(dataplane["level"], "FINDING_LEVEL_WARNING");
    assert!(dataplane["found"].as_str().unwrap().contains("version fake; linkctl is"));

    lab.running = None;
    let (checks, code) = doctor(&lab, "");
    assert_eq!((of(&checks, "linkd")["level"].as_str(), code), (Some("FINDING_LEVEL_BAD"), 4));
    assert!(of(&checks, "linkd")["found"].as_str().unwrap().contains("no dataplane at"));
    assert_eq!(of(&checks, "dataplane")["level"], "FINDING_LEVEL_BAD");
    lab.stop();
    let (checks, _) = doctor(&lab, "");
    assert_eq!(of(&checks, "linkd")["level"], "FINDING_LEVEL_WARNING");
}

#[test]
fn missing_resource_of_a_box_is_bad() {
    let lab = Lab::new();
    let text = "[ports]\nwan = \"ffff:ff:1f.7\"\nclient = \"net_af_packet,iface=nosuch0\"\n\
                [workers]\ncores = [8000]\n[memory]\npackets = \"8000000 GiB\"\nhuge = \"on\"\n\
                buffers = \"8000000 GiB\"\n";
    std::fs::write(lab.at("box.toml"), text).unwrap();
    let (checks, code) = doctor(&lab, "--box box.toml");
    assert_eq!(code, 4);
    let bad: Vec<_> = checks.iter().filter(|check| check["level"] == "FINDING_LEVEL_BAD").collect();
    let named = |words: &str| bad.iter().any(|c| c["found"].as_str().unwrap().contains(words));
    assert!(named("ffff:ff:1f.7") && named("nosuch0"), "{bad:?}");
    for name in ["cores", "memory", "hugepages", "DPDK drivers"] {
        assert_eq!(of(&checks, name)["level"], "FINDING_LEVEL_BAD", "{name}");
    }
    for check in &checks {
        assert_eq!(check["remedy"] == "", check["level"] == "FINDING_LEVEL_OK", "{check}");
    }
    lab.fails(1, "doctor --box nothing.toml");
}

#[test]
fn text_is_a_table_with_commands() {
    let lab = Lab::new();
    let output = lab.run("doctor --iface nosuch0");
    let out = text(&output.stdout);
    assert!(out.contains("CHECK") && out.contains("$ ethtool -k nosuch0"), "{out}");
    assert!(text(&output.stderr).is_empty() == (output.status.code() == Some(0)));
}
