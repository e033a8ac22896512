// SPDX-License-Identifier: Apache-2.0
//! Counters of the kernel: reordering that TCP senders detected, and UDP datagrams for which a
//! socket had no room.

use std::collections::BTreeMap;
use std::fs;

use crate::error::{Result, Trying};
use crate::namespace::Namespace;

/// Counters of a group, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// One line has the names, the next line the values.
    fn read(group: &str, text: &str) -> Self {
        let mut rows = text.lines().filter_map(|l| l.strip_prefix(group));
        let (names, values) = (rows.next().unwrap_or(""), rows.next().unwrap_or(""));
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        Self(pairs.filter_map(|(n, v)| Some((n.to_owned(), v.parse().ok()?))).collect())
    }

    fn value(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Counters of the group `TcpExt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters(Counters);

impl TcpCounters {
    pub fn of(namespace: &Namespace) -> Result<Self> {
        let text = namespace.enter(|| {
            fs::read_to_string("/proc/thread-self/net/netstat")
                .trying(|| "read the kernel's TCP counters".to_owned())
        })?;
        Ok(Self::read(&text))
    }

    fn read(text: &str) -> Self {
        Self(Counters::read("TcpExt:", text))
    }

    /// Reordering events that the sender detected since `earlier`: by SACK, by timestamps, by
    /// duplicate ACKs.
    #[must_use]
    pub fn reorderings_since(&self, earlier: &Self) -> u64 {
        ["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"]
            .iter()
            .map(|name| self.0.value(name).saturating_sub(earlier.0.value(name)))
            .sum()
    }
}

/// Datagrams that the namespace has dropped because a socket's buffer was full.
pub fn udp_without_room(namespace: &Namespace) -> Result<u64> {
    let text = namespace.enter(|| {
        fs::read_to_string("/proc/thread-self/net/snmp")
            .trying(|| "read the kernel's UDP counters".to_owned())
    })?;
    let udp = Counters::read("Udp:", &text);
    Ok(udp.value("RcvbufErrors") + udp.value("MemErrors"))
}

#[cfg(test)]
mod tests {
    use super::{Counters, TcpCounters};

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: A TCPSACKReorder TCPTSReorder\nTcpExt: 1 2 3\nIpExt: B\nIpExt: 9\n";
        let later = TcpCounters::read(text);
        assert_eq!(later.reorderings_since(&TcpCounters::default()), 5);
        assert_eq!(later.reorderings_since(&later), 0);
        let udp = Counters::read("Udp:", "Udp: InErrors RcvbufErrors\nUdp: 9 7\nUdpLite: A\n");
        assert_eq!((udp.value("RcvbufErrors"), udp.value("A")), (7, 0));
    }
}
