// SPDX-License-Identifier: Apache-2.0
//! The state of the machine, without which a figure means little.

use std::fmt;
use std::fs;
use std::process::Command;

use dpdk::{Memory, hugepages_reserved};
use serde::Serialize;

/// The machine of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// Its cores that this process may use.
    pub cores: usize,
    pub kernel: String,
    pub dpdk: String,
    /// Bytes of hugepages that are reserved.
    pub hugepages: u64,
    /// Whether DPDK's buffers are in hugepages.
    pub buffers_in_hugepages: bool,
    /// The kernel's choice for transparent hugepages.
    pub transparent_hugepages: String,
    /// The load average of the last minute at the start; what else ran.
    pub load: String,
    /// Whether a hypervisor is beneath.
    pub virtual_machine: bool,
    /// The commit that was measured, with `+` if files differ from it.
    pub commit: String,
}

impl Machine {
    /// This machine, with EAL's release and memory.
    #[must_use]
    pub fn here(dpdk: &str, memory: Memory) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|l| l.starts_with(name));
            line.and_then(|l| l.split_once(':')).map_or("", |(_, v)| v.trim()).to_owned()
        };
        Self {
            cpu: field("model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease"),
            dpdk: dpdk.to_owned(),
            hugepages: hugepages_reserved().total,
            buffers_in_hugepages: matches!(memory, Memory::InMemory { .. }),
            transparent_hugepages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            virtual_machine: field("flags").split(' ').any(|f| f == "hypervisor"),
            commit: commit(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = if self.virtual_machine { "virtual machine, " } else { "" };
        writeln!(f, "{machine}{} ({} cores), Linux {}", self.cpu, self.cores, self.kernel)?;
        let buffers = if self.buffers_in_hugepages { "hugepages" } else { "ordinary pages" };
        writeln!(
            f,
            "{}, buffers in {buffers}; {} MB of hugepages reserved, transparent ones: {}",
            self.dpdk,
            self.hugepages >> 20,
            self.transparent_hugepages
        )?;
        write!(f, "commit {}, load average {} at the start", self.commit, self.load)
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The word in brackets, as sysfs marks a choice.
fn chosen(line: &str) -> String {
    let inner = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or("unknown", |(word, _)| word).to_owned()
}

/// Output of `git`; empty if it fails.
pub fn git(arguments: &[&str]) -> String {
    let out = Command::new("git").args(arguments).output().ok().filter(|o| o.status.success());
    out.map_or_else(String::new, |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

fn commit() -> String {
    let head = git(&["rev-parse", "--short", "HEAD"]);
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    match (head.is_empty(), changed) {
        (true, _) => "unknown".to_owned(),
        (false, true) => format!("{head}+"),
        (false, false) => head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_brackets_its_choice() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "unknown");
    }
}
