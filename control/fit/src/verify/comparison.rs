// SPDX-License-Identifier: Apache-2.0
//! Result of a verification: figures, verdict and plots.

use serde::Serialize;

/// Group of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Quantiles of the round trip.
    Quantiles,
    /// Shares of round trips above a level.
    Exceedances,
    /// Lost probes, and runs of them.
    Losses,
    Episodes,
    /// How round trips hang together.
    Autocorrelation,
    /// Figures by the periods of a reconfiguration.
    Periods,
}

impl Group {
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Quantiles => "Round-trip quantiles",
            Self::Exceedances => "Round trips above a level",
            Self::Losses => "Losses",
            Self::Episodes => "Delay episodes",
            Self::Autocorrelation => "Autocorrelation",
            Self::Periods => "Reconfiguration",
        }
    }
}

/// Whether a figure of the link is that of the baseline, within the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Shown to be within the tolerance.
    Pass,
    /// Shown to be outside of it.
    Fail,
    /// Neither was shown: the logs are too short.
    Undecided,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub group: Group,
    /// Its name, such as "p99.9" or "share above 700 ms".
    pub figure: String,
    /// Its unit: "ms", "%", "per hour", "" …
    pub unit: &'static str,
    pub baseline: f64,
    pub link: f64,
    /// How far apart they may be, in the same unit. It depends on the baseline alone.
    pub tolerance: f64,
    /// Half of the confidence interval of their difference, in the same unit: the sampling error of
    /// both. Infinite (in JSON null) if the samples do not bound the difference.
    pub error: f64,
    /// Derivation of the tolerance, as text.
    pub because: String,
    /// Whether they are that near.
    pub verdict: Verdict,
    /// For an undecided figure: the length of each log that decides it, in seconds; `None` if no
    /// length is known to.
    pub needed_s: Option<f64>,
}

/// A curve of one of both: (x, y).
pub type Curve = Vec<(f64, f64)>;

/// The same curve of both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    /// Curve of the baseline; empty if it has none.
    pub baseline: Curve,
    pub link: Curve,
}

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

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The baseline's source, and its SHA-256.
    pub baseline: String,
    pub sha256: String,
    pub profile: String,
    /// How the link was played: "in virtual time, seed 1, 3,024,000 probes" or "live …".
    pub played: String,
    pub rows: Vec<Row>,
    /// Figures that could not be compared, and faults of the baseline.
    pub remarks: Vec<String>,
    /// The plots; not part of the JSON.
    #[serde(skip)]
    pub plots: Plots,
}

impl Comparison {
    /// Verdict over all figures: the link fails if one of them fails, and passes if all of them
    /// pass. Without figures nothing was shown.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.failed().next().is_some() {
            Verdict::Fail
        } else if self.rows.is_empty() || self.undecided().next().is_some() {
            Verdict::Undecided
        } else {
            Verdict::Pass
        }
    }

    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdict() == Verdict::Pass
    }

    /// The figures that are outside of their tolerance.
    pub fn failed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.verdict == Verdict::Fail)
    }

    /// The figures that the logs are too short for.
    pub fn undecided(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.verdict == Verdict::Undecided)
    }

    /// How long each log has to be to decide all undecided figures, in seconds; none if there is
    /// none, or no length is known to decide one of them.
    #[must_use]
    pub fn needed_s(&self) -> Option<f64> {
        let longest = |longest: f64, row: &Row| Some(longest.max(row.needed_s?));
        self.undecided().try_fold(0.0, longest).filter(|s| *s > 0.0)
    }
}

/// A comparison as JSON with stable keys.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    verdict: Verdict,
    holds: bool,
    failed: usize,
    undecided: usize,
    needed_s: Option<f64>,
    report: Option<String>,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

impl<'a> View<'a> {
    /// `report` is the file with the page, if one was written.
    #[must_use]
    pub fn new(comparison: &'a Comparison, report: Option<String>) -> Self {
        Self {
            verdict: comparison.verdict(),
            holds: comparison.holds(),
            failed: comparison.failed().count(),
            undecided: comparison.undecided().count(),
            needed_s: comparison.needed_s(),
            report,
            comparison,
        }
    }
}

/// A length of time for people, of two significant digits, rounded up: "2.6 days".
#[must_use]
pub fn length(seconds: f64) -> String {
    let units = [(86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds")];
    // A unit is used from two of it on: "36 hours", then "2 days".
    let (unit, name) =
        units.into_iter().find(|(unit, _)| seconds >= 2.0 * unit).unwrap_or((1.0, "seconds"));
    let value = seconds / unit;
    let step = 10_f64.powf(value.max(1e-9).log10().floor() - 1.0);
    // The small term keeps a rounding error from adding a whole step.
    let value = (value / step - 1e-9).ceil() * step;
    format!("{value:.*} {name}", usize::from(value < 9.95))
}
