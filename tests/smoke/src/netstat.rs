// SPDX-License-Identifier: Apache-2.0
//! The kernel's own TCP counters: a second witness of what a sender believes.

use std::collections::BTreeMap;
use std::fs;

use crate::error::{Result, Trying};
use crate::namespace::Namespace;

/// Counters of the group `TcpExt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters(BTreeMap<String, u64>);

impl TcpCounters {
    /// Those of a namespace.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn of(namespace: &Namespace) -> Result<Self> {
        let text = namespace.enter(|| {
            fs::read_to_string("/proc/thread-self/net/netstat")
                .trying(|| "read the kernel's TCP counters".to_owned())
        })?;
        Ok(Self::read(&text))
    }

    /// One line has the names, the next one the values.
    fn read(text: &str) -> Self {
        let mut rows = text.lines().filter_map(|l| l.strip_prefix("TcpExt:"));
        let (names, values) = (rows.next().unwrap_or(""), rows.next().unwrap_or(""));
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        Self(pairs.filter_map(|(n, v)| Some((n.to_owned(), v.parse().ok()?))).collect())
    }

    /// How often the sender took segments for reordered since `earlier`: by SACK, by
    /// timestamps, by duplicate ACKs.
    #[must_use]
    pub fn reorderings_since(&self, earlier: &Self) -> u64 {
        ["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"]
            .iter()
            .map(|name| self.value(name).saturating_sub(earlier.value(name)))
            .sum()
    }

    fn value(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::TcpCounters;

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: A TCPSACKReorder TCPTSReorder\nTcpExt: 1 2 3\nIpExt: B\nIpExt: 9\n";
        let later = TcpCounters::read(text);
        assert_eq!(later.reorderings_since(&TcpCounters::default()), 5);
        assert_eq!(later.reorderings_since(&later), 0);
    }
}
