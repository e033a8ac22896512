// SPDX-License-Identifier: Apache-2.0
//! Memory that the control groups of this process leave to it: of version 2 (`memory.max`) and of version
//! 1 (`memory.limit_in_bytes`).
//!
//! Each group up to the mount of its file system limits the process. Page cache that was not used lately
//! counts as free, as the kernel would reclaim it. All sizes are in bytes.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};
use procfs::{ProcError, ProcessCGroup};

/// A control group with a limit on memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub path: PathBuf,
    /// Its limit.
    pub limit: u64,
    /// Memory in use, excluding reclaimable memory.
    pub used: u64,
}

impl Group {
    /// Bytes that are left.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The groups of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Those with a limit.
    pub limited: Vec<Group>,
    /// Why the limits of further ones are unknown, a sentence each.
    pub unknown: Vec<String>,
}

impl Groups {
    /// Those of this process.
    ///
    /// # Errors
    /// If `/proc` does not say which these are.
    pub fn current() -> Result<Self, ProcError> {
        let process = Process::myself()?;
        let mounts = process.mountinfo()?.0;
        let mut groups = Self::default();
        for membership in process.cgroups()? {
            groups.add(&membership, &mounts);
        }
        Ok(groups)
    }

    /// The group that leaves the least.
    #[must_use]
    pub fn tightest(&self) -> Option<&Group> {
        self.limited.iter().min_by_key(|group| group.free())
    }

    fn add(&mut self, membership: &ProcessCGroup, mounts: &[MountInfo]) {
        let v2 = membership.hierarchy == 0;
        if !v2 && !membership.controllers.iter().any(|c| c == "memory") {
            return;
        }
        let of_memory = |m: &&MountInfo| match m.fs_type.as_str() {
            "cgroup2" => v2,
            "cgroup" => !v2 && m.super_options.contains_key("memory"),
            _ => false,
        };
        let Some(mount) = mounts.iter().find(of_memory) else {
            if membership.pathname != "/" {
                self.unknown.push(format!(
                    "the memory limit of the control group {} is unknown: its file system is not \
                     mounted here",
                    membership.pathname
                ));
            }
            return;
        };
        let within = Path::new(&membership.pathname);
        // In a container, a part of the path may lie above the mount.
        let within = within.strip_prefix(&mount.root).unwrap_or(within);
        self.up_from(&mount.mount_point, within, if v2 { &V2 } else { &V1 });
    }

    /// Adds the groups with a limit, from `within` up to `mount`.
    fn up_from(&mut self, mount: &Path, within: &Path, files: &Files) {
        let within = within.strip_prefix("/").unwrap_or(within);
        let own = mount.join(within);
        if !own.is_dir() {
            // Another mount hides it, as `ip netns exec` does.
            self.unknown.push(format!(
                "the memory limit of a control group is unknown: there is no {}",
                own.display()
            ));
        }
        for part in within.ancestors() {
            let path = mount.join(part);
            match group(&path, files) {
                Ok(group) => self.limited.extend(group),
                Err(error) => self.unknown.push(format!(
                    "the memory limit of a control group is unknown: cannot read {}: {error}",
                    path.join(files.limit).display()
                )),
            }
        }
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

/// A group, if it has a limit. The first group of version 2, and one without the controller, have no file
/// for it.
fn group(path: &Path, files: &Files) -> io::Result<Option<Group>> {
    let read = |name: &str| fs::read_to_string(path.join(name));
    let limit = match read(files.limit) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(text) if text.trim() == "max" => return Ok(None),
        other => number(&other?)?,
    };
    let usage = number(&read(files.usage)?)?;
    let stat = read("memory.stat").unwrap_or_default();
    let reclaimable = stat
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == files.reclaimable)
        .and_then(|(_, n)| n.trim().parse().ok())
        .unwrap_or(0);
    Ok(Some(Group { path: path.to_owned(), limit, used: usage.saturating_sub(reclaimable) }))
}

fn number(text: &str) -> io::Result<u64> {
    let text = text.trim();
    text.parse().map_err(|_| io::Error::new(ErrorKind::InvalidData, format!("{text:?} is no size")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_from(mount: &Path, within: &str, files: &Files) -> Groups {
        let mut groups = Groups::default();
        groups.up_from(mount, Path::new(within), files);
        groups
    }

    #[test]
    fn every_group_up_to_mount_counts_and_cache_is_free() {
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
        let groups = up_from(root.path(), "/a/b/c", &V2);
        let found: Vec<_> = groups.limited.iter().map(|g| (g.limit, g.free())).collect();
        assert_eq!(found, [(500, 0), (1_000_000, 900_000)]);
        assert_eq!(groups.limited[1].path, root.path().join("a"));
        assert_eq!((groups.tightest(), groups.unknown.len()), (groups.limited.first(), 0));
    }

    #[test]
    fn hidden_group_is_unknown_and_not_unlimited() {
        let root = tempfile::tempdir().unwrap();
        // A sysfs mounted over control groups has their empty mount point only.
        let groups = up_from(root.path(), "/user/run", &V1);
        assert_eq!(groups.limited, []);
        assert!(groups.unknown[0].contains("there is no"), "{groups:?}");
        assert!(groups.unknown[0].ends_with("/user/run"), "{groups:?}");
    }

    #[test]
    fn damaged_files_are_unknown() {
        let root = tempfile::tempdir().unwrap();
        for (limit, usage) in [("", "1"), ("-1", "1"), ("1e9", "1"), ("1", "many"), ("1", "")] {
            fs::write(root.path().join(V1.limit), limit).unwrap();
            fs::write(root.path().join(V1.usage), usage).unwrap();
            let groups = up_from(root.path(), "/", &V1);
            assert_eq!((groups.limited.len(), groups.unknown.len()), (0, 1), "{limit} {usage}");
        }
        let none = tempfile::tempdir().unwrap();
        assert_eq!(up_from(none.path(), "/", &V2), Groups::default());
    }
}
