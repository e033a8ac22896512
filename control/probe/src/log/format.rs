// SPDX-License-Identifier: Apache-2.0
//! The head of a log, its columns and how it writes times.

use crate::plan::{Plan, shown};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

pub const COLUMNS: [&str; 6] = ["sequence", "sent_utc", "sent_s", "rtt_ms", "there_ms", "back_ms"];
/// The format's name and version.
pub const FORMAT: &str = "linkemu-probe 1";

/// Head entries that are equal in all runs of a log.
pub(super) fn constants(plan: &Plan) -> [(&'static str, String); 7] {
    [
        ("format", FORMAT.to_owned()),
        ("target", plan.target.to_string()),
        ("interval", shown(plan.interval)),
        ("spacing", plan.spacing.name().to_owned()),
        ("size", plan.size.to_string()),
        ("timeout", shown(plan.timeout)),
        ("synchronised", plan.synchronised.to_string()),
    ]
}

pub(super) fn head(plan: &Plan, seed: Option<u64>, now: SystemTime) -> String {
    let seed = seed.map(|seed| ("seed", seed.to_string()));
    let started = ("started_utc", humantime::format_rfc3339_nanos(now).to_string());
    let entries = constants(plan).into_iter().chain(seed).chain([started]);
    entries.fold(String::new(), |mut head, (key, value)| {
        // Writing to a string does not fail.
        let _ = writeln!(head, "# {key} = {value}");
        head
    })
}

/// Seconds with nine decimals.
pub(super) fn seconds(time: Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}

/// Milliseconds with six decimals.
pub(super) fn millis(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:06}", ns / 1_000_000, ns % 1_000_000)
}
