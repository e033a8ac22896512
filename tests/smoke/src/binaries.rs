// SPDX-License-Identifier: Apache-2.0
//! Finds the programs under test and checks if this machine can test them.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::Uid;

use crate::error::{self, Error};

/// Environment variable with the directory of the programs.
pub const DIRECTORY_VARIABLE: &str = "LINKEMU_BIN";

/// Tools that a test bed needs, and the Debian packages that contain them.
pub const TOOLS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("tcpdump", "tcpdump"),
    ("taskset", "util-linux"),
];

#[derive(Clone, Debug)]
pub struct Binaries {
    pub dataplane: PathBuf,
    pub linkd: PathBuf,
    pub linkctl: PathBuf,
}

/// Reason for which nothing can be tested here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The machine or the user does not permit it: skip.
    Permission(String),
    /// Something was not built or installed: a failure in CI.
    Part(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Permission(reason) | Self::Part(reason)) = self;
        f.write_str(reason)
    }
}

impl Binaries {
    /// Programs in `LINKEMU_BIN`, or beside this program.
    pub fn find() -> Result<Self, Lack> {
        Ok(Self {
            dataplane: program("linkd-dataplane")?,
            linkd: program("linkd")?,
            linkctl: program("linkctl")?,
        })
    }
}

/// A program in `LINKEMU_BIN`, or beside this program.
pub fn program(name: &str) -> Result<PathBuf, Lack> {
    let path = directory().join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Lack::Part(format!(
        "there is no {}: build it with `cargo build --release`, or name its directory in \
         {DIRECTORY_VARIABLE}",
        path.display()
    )))
}

fn directory() -> PathBuf {
    if let Some(named) = env::var_os(DIRECTORY_VARIABLE) {
        return PathBuf::from(named);
    }
    // Test binaries are in `deps` below the directory of the programs.
    let own = env::current_exe().unwrap_or_default();
    let own = own.parent().unwrap_or(Path::new("."));
    if own.ends_with("deps") { own.parent().unwrap_or(own) } else { own }.to_owned()
}

/// Whether a missing part is a failure in this run.
#[must_use]
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}

/// Whether a test bed can be built here.
pub fn check_machine() -> Result<(), Lack> {
    if !Uid::effective().is_root() {
        let user = Uid::effective();
        return Err(Lack::Permission(format!(
            "network namespaces need root, and this is user {user}: run it with sudo"
        )));
    }
    for (tool, package) in TOOLS {
        if !on_path(tool) {
            return Err(Lack::Part(format!(
                "there is no `{tool}`: apt-get install {package}, or run scripts/setup.sh"
            )));
        }
    }
    namespaces_permitted().map_err(|said| {
        Lack::Permission(format!("network namespaces are not permitted here: {said}"))
    })
}

fn on_path(tool: &str) -> bool {
    search_path().any(|d| d.join(tool).is_file())
}

fn search_path() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = env::split_paths(&path).collect();
    directories.into_iter().chain(["/usr/sbin".into(), "/sbin".into()])
}

/// A program of Debian's `prometheus`, on PATH or in the directory where scripts/setup.sh unpacks
/// it. Without it, prints a message and returns none; the caller skips the check.
pub fn monitoring_tool(name: &str) -> error::Result<Option<PathBuf>> {
    let places = search_path().chain([set_up("prometheus")]);
    let found = places.map(|d| d.join(name)).find(|file| file.is_file());
    or_leave_out(name, found)
}

/// The Python with gRPC that scripts/setup.sh installs. None as in [`monitoring_tool`].
pub fn python() -> error::Result<Option<PathBuf>> {
    let python = set_up("python").join("bin/python");
    or_leave_out("python with grpcio-reflection", python.is_file().then_some(python))
}

/// Where scripts/setup.sh puts a tool.
fn set_up(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/tools").join(name)
}

fn or_leave_out(name: &str, found: Option<PathBuf>) -> error::Result<Option<PathBuf>> {
    if found.is_none() {
        let lack = format!("there is no `{name}`: run scripts/setup.sh");
        if env::var("CI").is_ok_and(|v| v == "true" || v == "1") {
            return Err(Error::parse("the tools of the tests", lack));
        }
        eprintln!("SKIPPED: {lack}");
    }
    Ok(found)
}

/// Tries it: no other check is reliable, in containers above all.
fn namespaces_permitted() -> Result<(), String> {
    static PERMITTED: OnceLock<Result<(), String>> = OnceLock::new();
    PERMITTED.get_or_init(try_namespace).clone()
}

fn try_namespace() -> Result<(), String> {
    let name = format!("lemu-{}-probe", std::process::id());
    let ip = |verb: &str| {
        let done = Command::new("ip").args(["netns", verb, &name]).output();
        let done = done.map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        if done.status.success() { Ok(()) } else { Err(said) }
    };
    let added = ip("add");
    let deleted = ip("delete");
    added.and(deleted)
}
