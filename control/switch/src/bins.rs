// SPDX-License-Identifier: Apache-2.0
//! Histogram buckets in the switch: ranges of ticks, as prefixes of 32 bits.
//!
//! A bound belongs to the bucket below it. A switch counts whole ticks, so bounds are rounded down
//! to a tick: on bmv2, with a tick of 1 µs, the first bound of lateness is 1 µs instead of 1.024
//! µs. Bounds beyond 32 bits of ticks (4.3 s on a Tofino) are omitted.

use crate::names::{self, BINS};
use emu::histogram::Lateness;
use p4runtime::Entry;

/// Bin for frames that came back too early.
pub const EARLY: u64 = 30;
/// Bin for values in no range of the table: beyond the last bound.
pub const BEYOND: u64 = BINS - 1;

/// Upper bounds of transit times in ms: three per decade for terrestrial links, and denser around
/// half and whole round trips to a geostationary satellite.
const TRANSIT_MS: [u64; 30] = [
    1, 2, 5, 10, 20, 50, 100, 150, 200, 225, 250, 275, 300, 325, 350, 400, 450, 500, 550, 600, 650,
    700, 800, 1000, 1250, 1500, 2000, 3000, 4000, 8000,
];

/// Bounds of a histogram in ticks of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    tick: u64,
    ticks: Vec<u32>,
}

impl Bounds {
    fn new(tick: u64, bounds: impl Iterator<Item = u64>) -> Self {
        let ticks = bounds.filter_map(|ns| u32::try_from(ns / tick).ok());
        let mut ticks: Vec<u32> = ticks.filter(|ticks| *ticks < u32::MAX).collect();
        ticks.dedup();
        Self { tick, ticks }
    }

    pub fn transit(tick: u64) -> Self {
        Self::new(tick, TRANSIT_MS.iter().map(|ms| ms * 1_000_000))
    }

    /// Bounds of lateness, the same as in the dataplane.
    pub fn lateness(tick: u64) -> Self {
        Self::new(tick, (0..Lateness::BOUNDS).map(|n| Lateness::FIRST_BOUND.0 << n))
    }

    /// Effective bounds, ns.
    pub fn ns(&self) -> Vec<u64> {
        self.ticks.iter().map(|ticks| u64::from(*ticks) * self.tick).collect()
    }

    /// Bins of the buckets: one more than bounds.
    pub fn bins(&self) -> impl Iterator<Item = u64> {
        (0..self.ticks.len() as u64).chain([BEYOND])
    }

    pub fn entries(&self, table: &str, action: &str) -> Vec<Entry> {
        let mut low = 0;
        let mut entries = Vec::new();
        for (bin, high) in self.ticks.iter().enumerate() {
            for (value, length) in prefixes(low, *high) {
                let entry = Entry::new(table).lpm("ticks", value, length);
                entries.push(entry.does(action).with("bin", bin as u128));
            }
            low = high + 1;
        }
        entries
    }
}

/// The entries of both tables.
pub fn entries(table: &str, tick: u64) -> Vec<Entry> {
    if table == names::TRANSIT_BINS {
        Bounds::transit(tick).entries(table, names::SET_TRANSIT_BIN)
    } else {
        Bounds::lateness(tick).entries(table, names::SET_LATENESS_BIN)
    }
}

/// The smallest set of prefixes (value, length) that covers `low..=high`.
fn prefixes(low: u32, high: u32) -> Vec<(u32, u32)> {
    let mut prefixes = Vec::new();
    let (mut at, end) = (u64::from(low), u64::from(high) + 1);
    while at < end {
        // The largest block that starts here and does not exceed the end.
        let aligned = at.trailing_zeros().min(u32::BITS);
        let room = (end - at).ilog2();
        let bits = aligned.min(room);
        prefixes.push((at as u32, u32::BITS - bits));
        at += 1 << bits;
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4runtime::Match;
    use proptest::prelude::*;

    /// The bin that the switch finds for a value.
    fn bin(entries: &[Entry], value: u32) -> u64 {
        let hit = entries.iter().find_map(|entry| match entry.key.fields["ticks"] {
            Match::Lpm { value: prefix, length } => {
                let same = u64::from(value) >> (32 - length) == (prefix as u64) >> (32 - length);
                same.then(|| entry.action.params["bin"] as u64)
            }
            _ => None,
        });
        hit.unwrap_or(BEYOND)
    }

    #[test]
    fn bounds_fit_bins_and_tables() {
        for tick in [1, 1000] {
            for (bounds, all) in [
                (Bounds::transit(tick), TRANSIT_MS.len()),
                (Bounds::lateness(tick), Lateness::BOUNDS),
            ] {
                assert!(bounds.ticks.is_sorted_by(|a, b| a < b));
                assert!(bounds.ticks.len() <= EARLY as usize);
                assert!(tick == 1 || bounds.ticks.len() == all);
                assert!(bounds.entries("t", "a").len() <= 1024);
                assert_eq!(bounds.bins().count(), bounds.ns().len() + 1);
            }
        }
    }

    #[test]
    fn bound_belongs_to_the_bucket_below() {
        let bounds = Bounds::transit(1000);
        let entries = bounds.entries(names::TRANSIT_BINS, names::SET_TRANSIT_BIN);
        assert_eq!(bin(&entries, 0), 0);
        for (n, bound) in bounds.ticks.iter().enumerate() {
            assert_eq!(bin(&entries, *bound), n as u64);
            assert_ne!(bin(&entries, bound + 1), n as u64);
        }
        assert_eq!(bin(&entries, u32::MAX), BEYOND);
    }

    #[test]
    fn lateness_bounds_equal_the_dataplane_rounded_to_ticks() {
        assert_eq!(Bounds::lateness(1).ns()[..3], [1024, 2048, 4096]);
        assert_eq!(Bounds::lateness(1000).ns()[..7], [1000, 2000, 4000, 8000, 16000, 32000, 65000]);
    }

    #[test]
    fn full_range_is_one_prefix() {
        assert_eq!(prefixes(0, u32::MAX), [(0, 0)]);
        assert_eq!(prefixes(u32::MAX, u32::MAX), [(u32::MAX, 32)]);
    }

    proptest! {
        #[test]
        fn prefixes_cover_the_range_without_overlap(a: u32, b: u32) {
            let (low, high) = (a.min(b), a.max(b));
            let mut at = u64::from(low);
            let found = prefixes(low, high);
            for (value, length) in &found {
                prop_assert_eq!(u64::from(*value), at);
                let size = 1u64 << (32 - length);
                prop_assert_eq!(at % size, 0);
                at += size;
            }
            prop_assert_eq!(at, u64::from(high) + 1);
            prop_assert!(found.len() <= 62);
        }
    }
}
