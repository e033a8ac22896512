// SPDX-License-Identifier: Apache-2.0
//! Memory for each byte of frame held, by the emulator's own account and by the kernel's.
//!
//! The kernel's is the growth of the resident set, hugepages included, from an engine with an
//! empty delay line to a full one; buffers that the engine keeps lie in a pool that is resident
//! from the start, so their whole size is added. The memory of an engine before the first frame is
//! stated apart.

use std::fs;

use serde::Serialize;

use crate::case::Case;
use crate::contender::Ours;
use crate::cost::{bytes, warm_up};
use crate::error::Error;
use crate::stand::{Bench, buffer};

/// Memory of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Footprint {
    pub case: String,
    /// Bytes of frames without FCS that were held.
    pub held_bytes: u64,
    /// Frames that were held in the driver's buffers.
    pub kept: u64,
    /// Bytes of store and kept buffers a byte held, by the engine's account.
    pub accounted: f64,
    /// Growth of the resident set and kept buffers a byte held.
    pub resident: f64,
    /// Resident bytes of an engine that holds nothing.
    pub fixed_bytes: u64,
}

/// Measures a case.
///
/// # Errors
/// If ports, pool or engine cannot be made.
pub fn measure(bench: &Bench, case: &Case) -> Result<Footprint, Error> {
    let limits = bench.limits(case);
    let stand = bench.open("memory", case, limits.buffers)?;
    let before = resident();
    let mut ours = Ours::new(stand, case, limits)?;
    let empty = resident();
    warm_up(&mut ours, case);
    let full = resident();
    let snapshot = &ours.report().snapshot;
    let held = snapshot.total().held.bytes;
    let kept = u64::from(snapshot.buffers);
    let grown = full.saturating_sub(empty) + kept * buffer(case);
    Ok(Footprint {
        case: case.to_string(),
        held_bytes: held,
        kept,
        accounted: bytes(snapshot, case) / held.max(1) as f64,
        resident: grown as f64 / held.max(1) as f64,
        fixed_bytes: empty.saturating_sub(before),
    })
}

/// Bytes of this process in memory, hugepages included.
fn resident() -> u64 {
    sum(&fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default())
}

fn sum(rollup: &str) -> u64 {
    let kilobytes = |line: &str| -> u64 {
        let counted = ["Rss:", "Shared_Hugetlb:", "Private_Hugetlb:"];
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let value = words.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        if counted.contains(&name) { value } else { 0 }
    };
    rollup.lines().map(kilobytes).sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugepages_count_as_resident() {
        let rollup = "00400000-7fff [rollup]\nRss:  100 kB\nPss:  50 kB\n\
                      Shared_Hugetlb: 0 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(sum(rollup), 2148 * 1024);
        assert_eq!(sum(""), 0);
    }

    #[test]
    fn this_process_is_resident() {
        assert!(resident() > 0);
    }
}
