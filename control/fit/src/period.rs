// SPDX-License-Identifier: Apache-2.0
//! Detects a periodic reconfiguration: at equal intervals the level of the round trips jumps, and
//! between these boundaries it is constant apart from faster variation. A Starlink terminal gets a
//! new satellite every 15 s, at 12, 27, 42 and 57 s of each minute (N. Mohan et al., "A Multifaceted
//! Look at Starlink Performance", WWW 2024).
//!
//! New levels are independent of the old ones, so the round trips themselves have no spectral line
//! at the period. Their changes have one. The detector works in three steps:
//!
//! 1. [`changes`]: instants at which the level changes most within half a period.
//! 2. [`scan`]: a scan statistic for these instants over all periods and phases (S. Wallenstein,
//!    J. Naus, 1973, for one circle). Its significance is that of independent uniform instants,
//!    multiplied by the number of periods, phases and windows that were tried (C. E. Bonferroni,
//!    1936).
//! 3. [`boundaries`]: each boundary is located by maximum likelihood (D. V. Hinkley, 1970), and
//!    period and phase are those of a line through them. The period is accepted only if the level
//!    changes more at the boundaries than half a period from them. So the wait for a slot that beats
//!    with the probes, or an episode that repeats, is no reconfiguration: the level behind it is the
//!    same as before.
//!
//! All steps use the ranks of the round trips, so that a few extreme ones have no weight. Times are
//! in seconds since the zero of the series.

mod boundaries;
mod changes;
mod levels;
mod scan;

use crate::baseline::Series;
use crate::interval::Interval;
use crate::seconds;
use crate::work::{self, ongoing};
pub use levels::{Levels, levels};

use boundaries::Boundaries;
use changes::Ranks;

/// Shortest and longest period that is looked for, in seconds.
const PERIODS: [f64; 2] = [0.1, 120.0];
/// A period has at least so many probes.
const LEAST_PROBES: f64 = 8.0;
/// A log has at least so many periods.
const LEAST_PERIODS: f64 = 8.0;
/// From the shortest to the longest period of a band, in which changes are those over the same time.
const BAND: f64 = std::f64::consts::SQRT_2;
/// The scan uses the beginning of a log, so many of the shortest periods of a band.
const SCANNED: f64 = 256.0;
/// Largest probability of finding a period in a log that has none.
const SIGNIFICANCE: f64 = 1e-3;

/// A period of reconfigurations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    pub length: Interval,
    /// The first boundary at or after the zero of the series.
    pub phase: Interval,
    /// Logarithm to the base of 10 of the probability of such an agreement by chance, in a log
    /// without a period.
    pub log10_p: f64,
}

impl Period {
    /// The number of the period that an instant belongs to: the first boundary begins number 1.
    #[must_use]
    pub fn number(&self, t: f64) -> i64 {
        ((t - self.phase.value) / self.length.value).floor() as i64 + 1
    }

    /// The time from the nearest boundary, negative before it.
    #[must_use]
    pub fn from_boundary(&self, t: f64) -> f64 {
        let periods = (t - self.phase.value) / self.length.value;
        (periods - periods.round()) * self.length.value
    }
}

/// Detects the period of a log; the probing interval is in ns.
#[must_use]
pub fn detect(series: &Series, interval_ns: u64) -> Option<Period> {
    let ranks = Ranks::of(series);
    let span = ranks.span()?;
    let interval = seconds(interval_ns);
    let shortest = PERIODS[0].max(LEAST_PROBES * interval);
    let longest = PERIODS[1].min((span.1 - span.0) / LEAST_PERIODS);
    let bands: Vec<f64> = std::iter::successors(Some(shortest), |from| Some(BAND * from))
        .take_while(|from| *from < longest)
        .collect();
    let within = (SIGNIFICANCE / bands.len().max(1) as f64).ln();
    let mut found: Vec<scan::Found> = bands
        .iter()
        .filter_map(|from| {
            if work::is_cancelled() {
                return None;
            }
            let until = span.1.min(span.0 + SCANNED * from);
            let times = ranks.changes((span.0, until), *from, interval);
            scan::scan(&times, (span.0, until), (*from, longest.min(BAND * from)))
        })
        .filter(|found| found.ln_p < within)
        .collect();
    found.sort_by(|a, b| a.ln_p.total_cmp(&b.ln_p));
    found.iter().find_map(|found| {
        ongoing().ok()?;
        let boundaries = Boundaries::locate(&ranks, span, interval, found)?;
        let (length, phase) = boundaries.line()?;
        let log10_p = (found.ln_p + (bands.len() as f64).ln()) / std::f64::consts::LN_10;
        Some(Period { length, phase, log10_p })
    })
}

#[cfg(test)]
mod tests;
