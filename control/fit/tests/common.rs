// SPDX-License-Identifier: Apache-2.0
//! Baselines that more than one test uses. Times are in nanoseconds.

use std::sync::OnceLock;

use fit::baseline::{Baseline, Probe, Series};
use fit::fitted::Options;
use fit::verify::{play, regular};
use profile::Catalog;

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;
pub const INTERVAL_NS: u64 = 200 * MS;
/// Probes of a week.
pub const WEEK: u64 = 7 * 86_400 * 5;

/// The built-in `viasat2`, probed for a week. It takes seconds to play, so it is played once.
pub fn viasat2_week() -> &'static Series {
    static SERIES: OnceLock<Series> = OnceLock::new();
    SERIES.get_or_init(|| {
        let catalog = Catalog::built_in();
        play(catalog.get("viasat2").unwrap(), 1, regular(INTERVAL_NS, WEEK)).unwrap()
    })
}

/// Options that state nothing; losses are split over both directions.
pub fn options() -> Options {
    Options::new("fitted")
}

/// A clean log of a prober with constant intervals.
pub fn baseline(series: Series) -> Baseline {
    Baseline::regular("truth", INTERVAL_NS, series)
}

/// A log of `count` probes; a probe without a round trip was lost.
pub fn log(count: u64, rtt: impl Fn(u64) -> Option<u64>) -> Baseline {
    let mut series = Series::default();
    for n in 0..count {
        series.push(Probe { sent_ns: n * INTERVAL_NS, rtt_ns: rtt(n) });
    }
    baseline(series)
}

/// A round trip of 600 ms and an exponential of 3 ms more.
pub fn quiet(number: u64) -> u64 {
    // SplitMix64 (G. L. Steele, 2014).
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let u = ((z ^ (z >> 31)) % 1_000_000) as f64 + 0.5;
    600 * MS + (-3e6 * (u / 1e6).ln()) as u64
}
