// SPDX-License-Identifier: Apache-2.0
//! Multicast groups and the digests that were sent lately.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::header::Learn;

/// Ports of each multicast group.
pub type Groups = HashMap<u16, Vec<u16>>;

/// A host is reported at most once in this time, as long as it stays unknown.
const REPEAT: Duration = Duration::from_secs(1);
/// Hosts that are remembered at a time. Beyond it, none is reported until some are forgotten.
const REMEMBERED: usize = 4096;

/// Hosts that were reported lately.
#[derive(Debug, Default)]
pub struct Reported {
    at: HashMap<Learn, Instant>,
}

impl Reported {
    /// Whether to report a host now.
    pub fn is_due(&mut self, learn: Learn, now: Instant) -> bool {
        if self.at.get(&learn).is_some_and(|&at| now.duration_since(at) < REPEAT) {
            return false;
        }
        if self.at.len() >= REMEMBERED {
            self.at.retain(|_, at| now.duration_since(*at) < REPEAT);
        }
        if self.at.len() >= REMEMBERED {
            return false;
        }
        self.at.insert(learn, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_reported_once_a_second() {
        let mut reported = Reported::default();
        let start = Instant::now();
        let host = |mac| Learn { port: 1, mac, direction: 0 };
        assert!(reported.is_due(host(1), start));
        assert!(!reported.is_due(host(1), start + REPEAT / 2));
        assert!(reported.is_due(host(2), start + REPEAT / 2));
        assert!(reported.is_due(host(1), start + REPEAT));
        let forged = (0..2 * REMEMBERED as u64).filter(|&mac| reported.is_due(host(mac), start));
        assert!(forged.count() <= REMEMBERED);
        assert!(reported.is_due(host(3), start + 3 * REPEAT));
    }
}
