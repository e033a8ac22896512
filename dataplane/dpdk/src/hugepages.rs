// SPDX-License-Identifier: Apache-2.0
//! Hugepage memory of the system. Control thread.

use std::fs;
use std::path::Path;

/// Hugepage memory, summed over page sizes and NUMA nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hugepages {
    /// Bytes reserved.
    pub total: u64,
    /// Bytes reserved and not in use.
    pub free: u64,
}

/// Reads the reserved hugepages; zero if the kernel has none.
#[must_use]
pub fn hugepages_reserved() -> Hugepages {
    read(Path::new("/sys/kernel/mm/hugepages"))
}

fn read(folder: &Path) -> Hugepages {
    let mut sum = Hugepages::default();
    let Ok(sizes) = fs::read_dir(folder) else {
        return sum;
    };
    for size in sizes.flatten() {
        let name = size.file_name();
        let kib = name
            .to_str()
            .and_then(|n| n.strip_prefix("hugepages-"))
            .and_then(|n| n.strip_suffix("kB"))
            .and_then(|n| n.parse::<u64>().ok());
        let Some(kib) = kib else { continue };
        let pages = |file: &str| -> u64 {
            fs::read_to_string(size.path().join(file))
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0)
        };
        let bytes = kib.saturating_mul(1024);
        sum.total = sum.total.saturating_add(pages("nr_hugepages").saturating_mul(bytes));
        sum.free = sum.free.saturating_add(pages("free_hugepages").saturating_mul(bytes));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_hugepages_reports_none() {
        assert_eq!(read(Path::new("/nonexistent")), Hugepages::default());
    }

    #[test]
    fn free_hugepages_do_not_exceed_reserved() {
        let pages = hugepages_reserved();
        assert!(pages.free <= pages.total);
    }
}
