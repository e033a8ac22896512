// SPDX-License-Identifier: Apache-2.0
//! What a verification found, for people, programs and plots.

use serde::Serialize;

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Quantiles of the round trip.
    Quantiles,
    /// Shares of round trips above a level.
    Exceedances,
    /// Lost probes, and runs of them.
    Losses,
    /// Episodes of raised delay.
    Episodes,
    /// How round trips hang together.
    Autocorrelation,
}

impl Group {
    /// Its title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Quantiles => "Round-trip quantiles",
            Self::Exceedances => "Round trips above a level",
            Self::Losses => "Losses",
            Self::Episodes => "Delay episodes",
            Self::Autocorrelation => "Autocorrelation",
        }
    }
}

/// Whether a figure of the link is that of the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the tolerance.
    Pass,
    /// Outside of it.
    Fail,
}

/// A figure of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is about.
    pub group: Group,
    /// Its name, such as "p99.9" or "share above 700 ms".
    pub figure: String,
    /// Its unit: "ms", "%", "per hour", "" …
    pub unit: &'static str,
    /// Of the baseline.
    pub baseline: f64,
    /// Of the link.
    pub link: f64,
    /// How far apart they may be, in the same unit.
    pub tolerance: f64,
    /// What the tolerance is made of, in words.
    pub because: String,
    /// Whether they are.
    pub verdict: Verdict,
}

/// A curve of one of both: (x, y).
pub type Curve = Vec<(f64, f64)>;

/// The same curve of both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    /// Of the baseline; empty if it has none.
    pub baseline: Curve,
    /// Of the link.
    pub link: Curve,
}

/// What is plotted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plots {
    /// Round trip in ms against the share above it (0 to 1).
    pub exceedance: Pair,
    /// Hours since the start against the largest and the least round trip in ms in each of
    /// some hundred equal spans: largest and least follow each other.
    pub time_series: Pair,
    /// Lost probes in a run against runs per day.
    pub run_lengths: Pair,
    /// Lag in seconds against the autocorrelation of the round trips.
    pub autocorrelation: Pair,
}

/// A verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The baseline's source, and its SHA-256.
    pub baseline: String,
    /// Of the baseline's file.
    pub sha256: String,
    /// The profile's name.
    pub profile: String,
    /// How the link was played: "in virtual time, seed 1, 3,024,000 probes" or "live …".
    pub played: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// What could not be compared, and what was wrong with the baseline.
    pub remarks: Vec<String>,
    /// The plots; not part of the JSON.
    #[serde(skip)]
    pub plots: Plots,
}

impl Comparison {
    /// Whether all figures hold. Without figures nothing was shown.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.rows.is_empty() && self.failed().next().is_none()
    }

    /// The figures that are outside of their tolerance.
    pub fn failed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.verdict == Verdict::Fail)
    }
}
