// SPDX-License-Identifier: Apache-2.0
//! Instants: on the dataplane's clock, and in UTC.

use proto::linkemu::v1 as pb;
use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999, the end of RFC 3339.
const LAST: u64 = 253_402_300_799;

/// RFC 3339 with nanoseconds; `None` if absent or out of range.
pub fn utc(timestamp: Option<&prost_types::Timestamp>) -> Option<String> {
    let timestamp = timestamp?;
    let seconds = u64::try_from(timestamp.seconds).ok().filter(|seconds| *seconds <= LAST)?;
    let nanos = u32::try_from(timestamp.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    let instant = UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))?;
    Some(humantime::format_rfc3339_nanos(instant).to_string())
}

/// Nanoseconds as seconds with all their decimals.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// "generation 3, at 12.345678901 s of the dataplane's clock (2026-…Z)".
pub fn applied(applied: &pb::Applied, at: &str) -> String {
    let utc = utc(applied.effective_utc.as_ref()).map_or(String::new(), |utc| format!(" ({utc})"));
    let seconds = seconds(applied.effective_ns);
    format!("generation {}, {at} {seconds} of the dataplane's clock{utc}", applied.generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_exact_and_hostile_ones_are_none() {
        let utc = |seconds, nanos| utc(Some(&prost_types::Timestamp { seconds, nanos }));
        assert_eq!(utc(1_790_000_000, 5).unwrap(), "2026-09-21T14:13:20.000000005Z");
        for (seconds, nanos) in
            [(-1, 0), (i64::MAX, 0), (i64::MIN, 0), (0, -1), (0, i32::MAX), (253_402_300_800, 0)]
        {
            assert_eq!(utc(seconds, nanos), None);
        }
        assert_eq!(seconds(12_345_678_901), "12.345678901 s");
    }
}
