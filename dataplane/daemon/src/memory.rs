// SPDX-License-Identifier: Apache-2.0
//! Whether the machine has the memory that the packet store is promised.
//!
//! The store is allocated as it is used; a lack of memory must be refused at the start, not
//! found missing under load. Two limits count: what the machine has available
//! (`/proc/meminfo`), and what each control group that the process is in leaves of its
//! own, of version 2 (`memory.max`) and of version 1 (`memory.limit_in_bytes`). Page cache
//! that was not used lately counts as free there, as the kernel would reclaim it.

use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};
use procfs::{Current, Meminfo, ProcError};
use thiserror::Error;

/// Why the store cannot have its memory.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The machine has less.
    #[error(
        "--memory {} is more than the {} that the machine has available: give less, or free some",
        profile::format_size(*.asked), profile::format_size(*.available)
    )]
    Machine {
        /// Requested bytes.
        asked: u64,
        /// Available bytes.
        available: u64,
    },
    /// A control group leaves less.
    #[error(
        "--memory {} is more than the {} that the control group {} leaves of its limit of {}: give \
         less, or raise the limit (for a systemd unit MemoryMax=)",
        profile::format_size(*.asked), profile::format_size(.group.free()), .group.path.display(),
        profile::format_size(.group.limit)
    )]
    Group {
        /// Requested bytes.
        asked: u64,
        /// The group that leaves the least.
        group: Group,
    },
    /// The kernel does not say.
    #[error("cannot tell how much memory there is: {0}: is /proc mounted?")]
    Unknown(#[from] ProcError),
}

/// A control group with a limit on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub path: PathBuf,
    /// Its limit in bytes.
    pub limit: u64,
    /// Memory in use in bytes, excluding reclaimable memory.
    pub used: u64,
}

impl Group {
    /// Bytes that are left.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The files of one version of control groups.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`.
    reclaimable: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};
const V2: Files =
    Files { limit: "memory.max", usage: "memory.current", reclaimable: "inactive_file" };

/// Checks that `asked` bytes are there to be used.
///
/// # Errors
/// If they are not, by the tightest of the limits, or if the kernel does not say.
pub fn check_memory(asked: u64) -> Result<(), MemoryError> {
    // A kernel before 3.14 does not report available memory.
    let available = Meminfo::current()?.mem_available.unwrap_or(u64::MAX);
    if asked > available {
        return Err(MemoryError::Machine { asked, available });
    }
    match groups()?.into_iter().min_by_key(Group::free) {
        Some(group) if asked > group.free() => Err(MemoryError::Group { asked, group }),
        _ => Ok(()),
    }
}

/// The control groups with a limit that this process is in.
fn groups() -> Result<Vec<Group>, ProcError> {
    let process = Process::myself()?;
    let (memberships, mounts) = (process.cgroups()?, process.mountinfo()?);
    let mut groups = Vec::new();
    for membership in memberships {
        let v2 = membership.hierarchy == 0;
        if !v2 && !membership.controllers.iter().any(|c| c == "memory") {
            continue;
        }
        let of_memory = |m: &&MountInfo| match m.fs_type.as_str() {
            "cgroup2" => v2,
            "cgroup" => !v2 && m.super_options.contains_key("memory"),
            _ => false,
        };
        let Some(mount) = mounts.0.iter().find(of_memory) else {
            if membership.pathname != "/" {
                tracing::warn!(
                    group = membership.pathname,
                    "the memory limit of this control group is unknown: its file system is not \
                     mounted here; `ip netns exec` hides it, `nsenter --net=/run/netns/NAME` does not"
                );
            }
            continue;
        };
        let within = Path::new(&membership.pathname);
        // In a container, a part of the path may lie above the mount.
        let within = within.strip_prefix(&mount.root).unwrap_or(within);
        groups.extend(up_from(&mount.mount_point, within, if v2 { &V2 } else { &V1 }));
    }
    Ok(groups)
}

/// The groups with a limit, from `within` up to `mount`. A missing file, or one without a
/// limit, is left out.
fn up_from(mount: &Path, within: &Path, files: &Files) -> Vec<Group> {
    let within = within.strip_prefix("/").unwrap_or(within);
    within.ancestors().filter_map(|part| group(&mount.join(part), files)).collect()
}

fn group(path: &Path, files: &Files) -> Option<Group> {
    let read = |name: &str| fs::read_to_string(path.join(name)).ok();
    // "max" is no number, and no limit.
    let limit = read(files.limit)?.trim().parse().ok()?;
    let usage: u64 = read(files.usage)?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let reclaimable = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == files.reclaimable)
        .and_then(|(_, n)| n.trim().parse().ok())
        .unwrap_or(0);
    Some(Group { path: path.to_owned(), limit, used: usage.saturating_sub(reclaimable) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_above_machine_is_refused() {
        let refused = check_memory(u64::MAX).unwrap_err().to_string();
        assert!(refused.contains("--memory 18446744.073709551615 TB is more than"), "{refused}");
        check_memory(0).unwrap();
    }

    #[test]
    fn every_cgroup_up_to_mount_counts_and_cache_is_free() {
        let root = tempfile::tempdir().unwrap();
        let write = |at: &str, name: &str, text: &str| {
            let path = root.path().join(at);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(name), text).unwrap();
        };
        write("a", "memory.max", "1000000\n");
        write("a", "memory.current", "400000\n");
        write("a", "memory.stat", "anon 100000\ninactive_file 300000\nactive_file 0\n");
        write("a/b", "memory.max", "max\n");
        write("a/b", "memory.current", "400000\n");
        write("a/b/c", "memory.max", "500\n");
        write("a/b/c", "memory.current", "600\n");
        let groups = up_from(root.path(), Path::new("/a/b/c/gone"), &V2);
        let found: Vec<_> = groups.iter().map(|g| (g.limit, g.free())).collect();
        assert_eq!(found, [(500, 0), (1_000_000, 900_000)]);
        assert_eq!(groups[1].path, root.path().join("a"));
        let text = MemoryError::Group { asked: 2_000_000, group: groups[1].clone() }.to_string();
        assert!(text.contains("2 MB is more than the 900 kB that the control group"), "{text}");
        assert!(text.contains("its limit of 1 MB") && text.contains("MemoryMax="), "{text}");
    }

    #[test]
    fn invalid_cgroup_files_set_no_limit() {
        let root = tempfile::tempdir().unwrap();
        for (limit, usage) in [("", "1"), ("-1", "1"), ("1e9", "1"), ("1", "many"), ("1", "")] {
            fs::write(root.path().join(V1.limit), limit).unwrap();
            fs::write(root.path().join(V1.usage), usage).unwrap();
            assert_eq!(up_from(root.path(), Path::new("/"), &V1), []);
        }
        assert_eq!(up_from(Path::new("/nonexistent"), Path::new("../.."), &V2), []);
    }
}
