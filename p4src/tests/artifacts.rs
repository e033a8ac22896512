// SPDX-License-Identifier: Apache-2.0
//! The compiled programs match the sources.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use sha2::{Digest, Sha256};

/// A compiled form in the repository.
struct Form {
    /// The target, below `compiled/`.
    target: &'static str,
    /// Folder of its sources.
    architecture: &'static str,
    made: [&'static str; 3],
    compiler: &'static str,
    /// Names another compiler.
    variable: &'static str,
}

const P4INFO: [&str; 2] = ["linkemu.p4info.bin", "linkemu.p4info.txtpb"];
const FORMS: [Form; 2] = [
    Form {
        target: "bmv2",
        architecture: "v1model",
        made: ["linkemu.json", P4INFO[0], P4INFO[1]],
        compiler: "p4c-bm2-ss",
        variable: "LINKEMU_P4C",
    },
    Form {
        target: "dpdk",
        architecture: "pna",
        made: ["linkemu.spec", P4INFO[0], P4INFO[1]],
        compiler: "p4c-dpdk",
        variable: "LINKEMU_P4C_DPDK",
    },
];
const REMEDY: &str = "run p4src/compile.sh P4C p4src/compiled/bmv2 with p4c-bm2-ss, and the same with \
                      p4c-dpdk and p4src/compiled/dpdk, and commit what they make";

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

impl Form {
    fn folder(&self) -> PathBuf {
        here().join("compiled").join(self.target)
    }

    fn sources(&self) -> String {
        fs::read_to_string(self.folder().join("SOURCES")).unwrap()
    }

    /// The compiler version in `SOURCES`.
    fn version(&self) -> String {
        let start = format!("# {} ", self.compiler);
        let sources = self.sources();
        sources.lines().find_map(|l| l.strip_prefix(&start)).unwrap().to_owned()
    }
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
    for (file, expected) in FORMS.iter().flat_map(|form| listed(&form.sources())) {
        assert_eq!(hash(&here().join(&file)), expected, "{file} is another one: {REMEDY}");
    }
}

#[test]
fn every_source_and_every_artifact_is_listed() {
    for form in &FORMS {
        let made = form.made.iter().map(|made| format!("compiled/{}/{made}", form.target));
        let mut expected: BTreeSet<String> = made.collect();
        for folder in ["shared", form.architecture] {
            for entry in fs::read_dir(here().join(folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                expected.insert(format!("{folder}/{name}"));
            }
        }
        let listed: BTreeSet<String> = listed(&form.sources()).into_keys().collect();
        assert_eq!(listed, expected, "{REMEDY}");
    }
}

/// Objects of a target that are visible to the control plane, from annotations in its sources.
fn names(target: &str) -> BTreeSet<String> {
    let files = ["shared", target].into_iter().flat_map(|d| fs::read_dir(here().join(d)).unwrap());
    let text: String = files.map(|f| fs::read_to_string(f.unwrap().path()).unwrap()).collect();
    let named = text.split("@name(\".").skip(1);
    named.map(|rest| rest.split_once('"').unwrap().0.to_owned()).collect()
}

#[test]
fn all_targets_have_the_same_names() {
    let v1model = names("v1model");
    let p4info = |form: &Form| fs::read_to_string(form.folder().join(P4INFO[1])).unwrap();
    let [bmv2, dpdk] = FORMS.each_ref().map(p4info);
    for name in &v1model {
        assert!(bmv2.contains(&format!("name: \"{name}\"")), "{name}: {REMEDY}");
    }
    // Numbers and widths, too.
    assert_eq!(dpdk.replacen("arch: \"pna\"", "arch: \"v1model\"", 1), bmv2, "{REMEDY}");
    // A Tofino counter counts only one of several fates of a packet.
    let (more, same): (BTreeSet<_>, BTreeSet<_>) =
        names("tna").into_iter().partition(|n| n.starts_with("linkemu.fates_"));
    assert_eq!(same, v1model);
    assert_eq!(more.len(), 4);
}

#[test]
fn compiled_program_contains_no_machine_path() {
    for (form, name) in FORMS.iter().flat_map(|form| form.made.map(|name| (form, name))) {
        let bytes = fs::read(form.folder().join(name)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for root in ["/home/", "/root/", "/tmp/", "/usr/", "/build/"] {
            assert!(!text.contains(root), "{name} has a path below {root}: {REMEDY}");
        }
    }
}

#[test]
fn compilers_reproduce_the_compiled_programs() {
    FORMS.iter().for_each(reproduce);
}

/// Compiles with the named compiler, or the one in PATH.
fn reproduce(form: &Form) {
    let p4c = env::var(form.variable).unwrap_or_else(|_| form.compiler.into());
    let Ok(version) = Command::new(&p4c).arg("--version").output() else {
        let variable = form.variable;
        loud(&format!("{p4c} is not there: nothing was compiled ({variable} names another)"));
        return;
    };
    let version =
        String::from_utf8(version.stdout).unwrap() + &String::from_utf8(version.stderr).unwrap();
    let kept_by = form.version();
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
    for name in form.made {
        let made = hash(&out.path().join(name));
        assert_eq!(made, hash(&form.folder().join(name)), "{name}: {REMEDY}");
    }
}
