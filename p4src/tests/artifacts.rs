// SPDX-License-Identifier: Apache-2.0
//! The compiled program matches the sources.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use sha2::{Digest, Sha256};

const KEPT: &str = "compiled/bmv2";
const MADE: [&str; 3] = ["linkemu.json", "linkemu.p4info.bin", "linkemu.p4info.txtpb"];
const REMEDY: &str = "run p4src/compile.sh P4C p4src/compiled/bmv2, and commit what it makes";

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> String {
    fs::read_to_string(here().join(KEPT).join("SOURCES")).unwrap()
}

/// The compiler version in `SOURCES`.
fn compiler(sources: &str) -> &str {
    sources.lines().find_map(|l| l.strip_prefix("# p4c-bm2-ss ")).unwrap()
}

/// Files and hashes of all lines.
fn listed(sources: &str) -> BTreeMap<String, String> {
    let lines = sources.lines().filter(|l| !l.starts_with('#'));
    lines.map(|l| l.split_once("  ").unwrap()).map(|(h, f)| (f.into(), h.into())).collect()
}

fn hash(file: &Path) -> String {
    let bytes = fs::read(file).unwrap_or_else(|e| panic!("{}: {e}: {REMEDY}", file.display()));
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Prints past the test harness, which captures output.
#[allow(clippy::explicit_write, reason = "eprintln is kept back")]
fn loud(why: &str) {
    writeln!(io::stderr(), "SKIPPED: {why}").unwrap();
}

#[test]
fn compiled_program_matches_the_sources() {
    for (file, expected) in listed(&sources()) {
        assert_eq!(hash(&here().join(&file)), expected, "{file} is another one: {REMEDY}");
    }
}

#[test]
fn every_source_and_every_artifact_is_listed() {
    let mut expected: BTreeSet<String> = MADE.iter().map(|m| format!("{KEPT}/{m}")).collect();
    for folder in ["shared", "v1model"] {
        for entry in fs::read_dir(here().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            expected.insert(format!("{folder}/{name}"));
        }
    }
    let listed: BTreeSet<String> = listed(&sources()).into_keys().collect();
    assert_eq!(listed, expected, "{REMEDY}");
}

/// Objects of a target that are visible to the control plane, from annotations in its sources.
fn names(target: &str) -> BTreeSet<String> {
    let files = ["shared", target].into_iter().flat_map(|d| fs::read_dir(here().join(d)).unwrap());
    let text: String = files.map(|f| fs::read_to_string(f.unwrap().path()).unwrap()).collect();
    let named = text.split("@name(\".").skip(1);
    named.map(|rest| rest.split_once('"').unwrap().0.to_owned()).collect()
}

#[test]
fn both_targets_have_the_same_names() {
    let v1model = names("v1model");
    let kept = fs::read_to_string(here().join(KEPT).join("linkemu.p4info.txtpb")).unwrap();
    for name in &v1model {
        assert!(kept.contains(&format!("name: \"{name}\"")), "{name}: {REMEDY}");
    }
    // A Tofino counter counts only one of several fates of a packet.
    let (more, same): (BTreeSet<_>, BTreeSet<_>) =
        names("tna").into_iter().partition(|n| n.starts_with("linkemu.fates_"));
    assert_eq!(same, v1model);
    assert_eq!(more.len(), 4);
}

#[test]
fn compiled_program_contains_no_machine_path() {
    for name in MADE {
        let bytes = fs::read(here().join(KEPT).join(name)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for root in ["/home/", "/root/", "/tmp/", "/usr/", "/build/"] {
            assert!(!text.contains(root), "{name} has a path below {root}: {REMEDY}");
        }
    }
}

/// The compiler: `LINKEMU_P4C`, or `p4c-bm2-ss` in PATH.
#[test]
fn compiler_reproduces_the_compiled_program() {
    let p4c = env::var("LINKEMU_P4C").unwrap_or_else(|_| "p4c-bm2-ss".into());
    let Ok(version) = Command::new(&p4c).arg("--version").output() else {
        loud(&format!("{p4c} is not there: nothing was compiled (LINKEMU_P4C names another)"));
        return;
    };
    let version =
        String::from_utf8(version.stdout).unwrap() + &String::from_utf8(version.stderr).unwrap();
    let sources = sources();
    let kept_by = compiler(&sources);
    let same = version.split_whitespace().any(|w| w == kept_by);
    let out = tempfile::tempdir().unwrap();
    let mut compile = Command::new(here().join("compile.sh"));
    compile.arg(&p4c).arg(out.path());
    if same {
        // Another version of the compiler may print other warnings.
        compile.arg("--Werror");
    }
    assert!(compile.status().unwrap().success(), "{p4c} does not take the program");
    if !same {
        loud(&format!("{p4c} is not {kept_by}: what it made was not compared"));
        return;
    }
    for name in MADE {
        let made = hash(&out.path().join(name));
        assert_eq!(made, hash(&here().join(KEPT).join(name)), "{name}: {REMEDY}");
    }
}
