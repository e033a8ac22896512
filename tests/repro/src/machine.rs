// SPDX-License-Identifier: Apache-2.0
//! The machine and the software of a flow.

use std::fmt;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub virtual_machine: bool,
    pub kernel: String,
    pub iperf3: String,
    /// Commit of the product, with `+` if files differ from it.
    pub commit: String,
}

impl Machine {
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|l| l.starts_with(name));
            line.and_then(|l| l.split_once(':')).map_or("", |(_, v)| v.trim()).to_owned()
        };
        Self {
            cpu: field("model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: field("flags").split(' ').any(|f| f == "hypervisor"),
            kernel: kernel(),
            iperf3: said("iperf3", &["--version"]).lines().next().unwrap_or_default().to_owned(),
            commit: commit(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, virtual_machine, kernel, iperf3, commit } = self;
        let kind = if *virtual_machine { "virtual machine, " } else { "" };
        write!(f, "{kind}{cpu} ({cores} cores), Linux {kernel}, {iperf3}, commit {commit}")
    }
}

/// Release of the running kernel.
#[must_use]
pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let place = ["-C", env!("CARGO_MANIFEST_DIR")];
        said("git", &[&place, arguments].concat())
    };
    let head = git(&["rev-parse", "--short", "HEAD"]);
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if head.is_empty() {
        return "unknown".to_owned();
    }
    if changed { format!("{head}+") } else { head }
}

/// Output of a command; empty if it fails.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let output = output.filter(|o| o.status.success());
    output.map_or_else(String::new, |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}
