// SPDX-License-Identifier: Apache-2.0
//! Why a file is no baseline.

use crate::baseline::Format;
pub(super) use profile::counted;
use std::fmt;
use std::io;
pub(super) use trace::text::shown;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, from 1.
    Line(u64),
    /// An element of irtt's `round_trips`, from 0.
    RoundTrip(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::RoundTrip(number) => write!(f, "round_trips[{number}]"),
        }
    }
}

/// Why a file is no baseline. Contents are shown shortened.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file, or a part of it.
    #[error("cannot read {name}: {source}")]
    Io { name: String, source: io::Error },
    #[error("the file is empty: nothing was measured")]
    Empty,
    #[error("the file is packed with {packer}: unpack it first")]
    Packed { packer: &'static str },
    #[error(
        "the file is in none of the formats {}: it begins with {begin:?}. A table of another \
         kind is read as CSV with its columns named: --columns sent=NAME,rtt=NAME",
        formats()
    )]
    UnknownFormat { begin: String },
    #[error("the file is {what}: a baseline is text in UTF-8{remedy}")]
    Binary {
        /// Probable kind of the file.
        what: &'static str,
        /// Remedy, as the end of the message.
        remedy: &'static str,
    },
    #[error(
        "the file is a table, which does not say what its columns mean: name them, with their \
         units, as in --columns {guess:?}. It begins with {header:?}"
    )]
    ColumnsNotNamed {
        header: String,
        /// Columns that the table seems to have.
        guess: String,
    },
    /// Columns were named, but of another format.
    #[error("columns are named, but the format is {}: leave one of them out", format.name())]
    ColumnsNotUsed { format: Format },
    /// The text that names columns.
    #[error("{text:?} does not name columns: {problem}")]
    ColumnsText {
        text: String,
        /// Violated rule of the format.
        problem: String,
    },
    /// A column that does not exist.
    #[error("there is no column {column:?}: the {row} is {content:?}{}", units(column))]
    NoColumn {
        column: String,
        /// What the first row is.
        row: &'static str,
        content: String,
    },
    /// The content violates the stated or detected format.
    #[error("the file is not in the format {}: {problem}", format.name())]
    Malformed { format: Format, problem: String },
    /// A line that cannot be understood.
    #[error("{place}: {problem}: {content:?}")]
    Line { place: Place, problem: String, content: String },
    /// A round trip that cannot be one.
    #[error(
        "{place}: a round trip of {rtt} cannot be: it must be more than zero and at most 1 h; \
         is the unit right?"
    )]
    RoundTrip { place: Place, rtt: String },
    #[error("there is no probe in the file: nothing was measured")]
    NoProbe,
    #[error("there is one probe in the file: two are the least that have an interval")]
    OneProbe,
    #[error("all {probes} probes were lost: the link was down, or the target does not answer")]
    AllLost { probes: u64 },
    #[error(
        "the log has more than {most} probes, the most that are read here: give a part of it, or \
         linkctl fit reads it whole"
    )]
    TooMany { most: usize },
    /// The send times are unknown.
    #[error(
        "nothing says when the probes were sent: the log has neither time stamps (ping -D) nor \
         a summary line with the time; give the interval with --interval"
    )]
    NoInterval,
    /// Probes with breaks between all of them.
    #[error(
        "no two probes follow each other: between any two the clock was set or the prober was \
         interrupted, so that there is no interval"
    )]
    NoNeighbours,
    /// The measured interval differs from the stated one.
    #[error(
        "the probes are {found} apart, but {origin} says {stated}: they differ by more than 5 %"
    )]
    IntervalDiffers {
        found: String,
        /// Source of the contradicting value.
        origin: &'static str,
        /// Value that contradicts the measured one.
        stated: String,
    },
    /// An interval of zero, or of more than a day.
    #[error("an interval of {interval} cannot be: it must be more than zero and at most 1 d")]
    Interval { interval: String },
    /// Several intervals in one log.
    #[error(
        "{place}: the interval changes from {before} to {after}: split the file there, or read it \
         with --spacing irregular, which takes the send times as they are"
    )]
    MixedIntervals { place: Place, before: String, after: String },
    /// Time stamps that do not tell neighbours apart.
    #[error(
        "half of the probes have the send time of the one before: the time stamps are coarser \
         than the interval; if the log has a row for each probe, --interval {interval} reads it \
         with a probe per interval"
    )]
    CoarseTimes { interval: String },
    /// Send times that are neither regular nor random.
    #[error(
        "the intervals between probes are neither constant nor exponential: their coefficient \
         of variation is {variation:.2} (0 is constant, 1 exponential), their median {median} \
         and their mean {mean}; --spacing irregular takes the send times as they are"
    )]
    Spacing { variation: f64, median: String, mean: String },
    /// Not spaced as the file says.
    #[error(
        "the probes are spaced {found}, but {origin} says {stated}; --spacing irregular takes the \
         send times as they are"
    )]
    SpacingDiffers {
        found: &'static str,
        /// Source of the contradicting value.
        origin: &'static str,
        /// Value that contradicts the measured one.
        stated: &'static str,
    },
    /// Send times that jump about.
    #[error(
        "the send times do not follow the order of the probes: {breaks} jumps in {probes} \
         probes, the first at {place}; are the columns the right ones?"
    )]
    Unsteady { breaks: u64, probes: u64, place: Place },
    #[error(
        "{missing} sequence numbers are missing among {probes} probes: that is no baseline of \
         a working link; is the column the right one?"
    )]
    MostlyMissing {
        /// Numbers without a probe.
        missing: u64,
        probes: u64,
    },
    /// A log of more than a century.
    #[error("{place}: the log spans more than 100 years there: is the unit of time right?")]
    Span { place: Place },
    /// Published figures that contradict each other.
    #[error("the figures contradict each other: {}", violations.join("; "))]
    Figures { violations: Vec<String> },
}

/// The names of the formats that a file can be recognised as.
fn formats() -> String {
    let names = Format::ALL.map(|format| match format {
        Format::Probe => "probe (linkctl probe send)",
        Format::Ping => "ping (ping -D)",
        Format::Irtt => "irtt (irtt client -o FILE.json)",
        Format::Columns => "columns (CSV)",
        Format::Summary => "summary (TOML)",
    });
    names.join(", ")
}

/// The units, where a column's name seems to have one.
fn units(column: &str) -> &'static str {
    match column.contains(':') {
        true => "; what is after a colon is a unit if it is s, ms, us, ns, unix or rfc3339",
        false => "",
    }
}

/// A duration as errors and remarks show it: with at most four digits that matter.
pub(super) fn duration(ns: u64) -> String {
    let digits = ns.max(1).ilog10();
    let unit = 10_u64.pow(digits.saturating_sub(3));
    profile::format_duration(ns.saturating_add(unit / 2) / unit * unit)
}

impl From<io::Error> for ReadError {
    fn from(source: io::Error) -> Self {
        Self::Io { name: "the file".into(), source }
    }
}

impl ReadError {
    /// With the file's name, where the error is about the file.
    pub(super) fn named(self, name: &str) -> Self {
        match self {
            Self::Io { source, .. } => Self::Io { name: name.into(), source },
            other => other,
        }
    }

    /// A line that cannot be understood.
    pub(super) fn line(place: Place, problem: impl Into<String>, content: &[u8]) -> Self {
        Self::Line { place, problem: problem.into(), content: shown(content) }
    }
}
