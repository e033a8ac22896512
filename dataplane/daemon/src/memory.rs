// SPDX-License-Identifier: Apache-2.0
//! Whether the machine has the memory that the packet store is promised.
//!
//! The store is allocated as it is used; a lack of memory must be refused at the start, not
//! found missing under load. Two limits count: what the machine has available
//! (`/proc/meminfo`), and what the process's control groups leave.

use cgroup::{Group, Groups};
use emu::si::{self, Round};
use procfs::{Current, Meminfo, ProcError};
use thiserror::Error;

/// Why the store cannot have its memory.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The machine has less.
    #[error(
        "--memory {} is more than the {} that the machine has available: give less, or free some",
        profile::format_size(*.asked), si::bytes(*.available, Round::Down)
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
        profile::format_size(*.asked), si::bytes(.group.free(), Round::Down), .group.path.display(),
        si::bytes(.group.limit, Round::Down)
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
    let groups = Groups::current()?;
    for why in &groups.unknown {
        tracing::warn!("{why}; `nsenter --net=/run/netns/NAME` shows it, `ip netns exec` does not");
    }
    match groups.tightest() {
        Some(group) if asked > group.free() => {
            Err(MemoryError::Group { asked, group: group.clone() })
        }
        _ => Ok(()),
    }
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
    fn refusal_names_group_with_figures() {
        let group = Group { path: "/sys/fs/cgroup/a".into(), limit: 1_000_000, used: 100_000 };
        let text = MemoryError::Group { asked: 2_000_000, group }.to_string();
        assert!(text.contains("2 MB is more than the 900 kB that the control group"), "{text}");
        assert!(text.contains("its limit of 1 MB") && text.contains("MemoryMax="), "{text}");
    }
}
