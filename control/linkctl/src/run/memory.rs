// SPDX-License-Identifier: Apache-2.0
//! Memory for the packets of a run: the free memory of the machine and of the control groups of this process.
//!
//! It is found outside of the namespaces, which may hide control groups. All sizes are in bytes.

use crate::failure::Failure;
use cgroup::{Group, Groups};
use procfs::{Current, Meminfo};
use profile::format_size;

/// Enough for the built-in profiles of satellites.
const MOST: u64 = 2 << 30;
/// Minimum: less holds no link.
const LEAST: u64 = 4 << 20;
/// Memory of the programs of a run and of the rings of its ports.
const PROGRAMS: u64 = 96 << 20;
/// Bits of a size below a MiB.
const MIB: u64 = (1 << 20) - 1;

/// Memory for packets, and a message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    pub bytes: u64,
    pub remarks: Vec<String>,
}

impl Memory {
    /// As much as is asked for, or as there is.
    ///
    /// # Errors
    /// If there is less.
    pub fn find(asked: Option<u64>) -> Result<Self, Failure> {
        let available = Meminfo::current().ok().and_then(|memory| memory.mem_available);
        let groups = Groups::current().unwrap_or_else(|error| Groups {
            unknown: vec![format!("the memory limits of control groups are unknown: {error}")],
            ..Groups::default()
        });
        Self::within(asked, available, &groups)
    }

    fn within(
        asked: Option<u64>,
        available: Option<u64>,
        groups: &Groups,
    ) -> Result<Self, Failure> {
        // The rest is left to the command.
        let part = |bytes: u64| bytes / 4 * 3;
        let of_machine = available.map_or(MOST, part).min(MOST);
        let mut remarks = groups.unknown.clone();
        let Some(group) = groups.tightest() else {
            return Ok(Self { bytes: asked.unwrap_or(of_machine), remarks });
        };
        let room = group.free().saturating_sub(PROGRAMS);
        let bytes = asked.unwrap_or_else(|| of_machine.min(part(room) & !MIB));
        if bytes > room || (bytes < LEAST && asked.is_none()) {
            return Err(too_little(group, asked.unwrap_or(LEAST)));
        }
        if asked.is_none() && bytes < of_machine {
            let size = format_size(bytes);
            remarks.push(format!("the link has {size} for packets: {}", leaves(group)));
        }
        Ok(Self { bytes, remarks })
    }
}

fn leaves(group: &Group) -> String {
    format!(
        "the control group {} leaves {} of its limit of {}, and the programs of a run take {}",
        group.path.display(),
        format_size(group.free()),
        format_size(group.limit),
        format_size(PROGRAMS)
    )
}

fn too_little(group: &Group, needed: u64) -> Failure {
    Failure::failed(
        "resource_exhausted",
        format!("there is no memory for {} of packets: {}", format_size(needed), leaves(group)),
    )
    .hint(
        "raise the limit: MemoryMax= of a systemd unit, --memory of docker run; or give linkctl run a \
         smaller --memory",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(limit: u64, used: u64) -> Groups {
        let group = Group { path: "/sys/fs/cgroup/job".into(), limit, used };
        Groups { limited: vec![group], unknown: Vec::new() }
    }

    fn bytes(asked: Option<u64>, groups: &Groups) -> Option<u64> {
        Memory::within(asked, Some(100 << 30), groups).ok().map(|memory| memory.bytes)
    }

    #[test]
    fn memory_is_part_of_what_tightest_limit_leaves() {
        assert_eq!(bytes(None, &Groups::default()), Some(MOST));
        assert_eq!(bytes(None, &limited(120 << 20, 4 << 20)), Some((20 << 20) / 4 * 3));
        assert_eq!(bytes(None, &limited(1 << 40, 0)), Some(MOST));
        let machine = Memory::within(None, Some(1 << 30), &Groups::default()).unwrap();
        assert_eq!((machine.bytes, machine.remarks.len()), ((1 << 30) / 4 * 3, 0));
    }

    #[test]
    fn limit_without_room_is_refused_with_figures() {
        let small = limited(100_000_000, 10_000_000);
        let refused = Memory::within(None, None, &small).unwrap_err();
        let text = refused.message();
        assert!(text.contains("/job leaves 90 MB of its limit of 100 MB"), "{text}");
        let groups = limited(120 << 20, 4 << 20);
        assert_eq!(bytes(Some(20 << 20), &groups), Some(20 << 20));
        assert_eq!(bytes(Some(21 << 20), &groups), None);
    }

    #[test]
    fn unknown_limit_is_told() {
        let unknown = vec!["the memory limit of the control group /a is unknown".to_owned()];
        let groups = Groups { unknown: unknown.clone(), ..Groups::default() };
        assert_eq!(Memory::within(Some(1), None, &groups).unwrap().remarks, unknown);
    }
}
