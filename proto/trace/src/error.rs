// SPDX-License-Identifier: Apache-2.0
//! Formats of rate traces, and errors of reading them.

use crate::FILE_BYTES;
use crate::packet_times::BackInTime;
use crate::text::shown;
use std::io;

/// The formats of rate traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateFormat {
    /// Opportunities to send, one a line.
    Mahimahi,
    Csv,
    Parquet,
}

impl RateFormat {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mahimahi => "mahimahi",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// A place in a file, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Line(u64),
    /// Of a format without lines.
    Row(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Row(number) => write!(f, "row {number}"),
        }
    }
}

/// Why a file is no trace of a rate. Contents are shown shortened.
#[derive(Debug, thiserror::Error)]
pub enum RateError {
    #[error("cannot read {name}: {source}")]
    Io { name: String, source: io::Error },
    /// A pipe or a device, which may have no end.
    #[error("{name} is no file: write the trace into one")]
    NoFile { name: String },
    /// More bytes than a trace has.
    #[error("{name} has more than {} MiB: cut it, or average it into CSV such as time_s,rate_mbps", FILE_BYTES >> 20)]
    Bytes { name: String },
    /// A line that cannot be understood.
    #[error("{place}: {problem}: {content:?}")]
    Line { place: Place, problem: String, content: String },
    #[error(
        "the file is no mahimahi trace (a millisecond per line), no CSV with a header such as \
         time_s,rate_mbps, and no Parquet: it begins with {begin:?}"
    )]
    UnknownFormat { begin: String },
    /// A time or rate column that is missing or has no unit.
    #[error("the header {header:?} has no column {column}: name the unit, as in time_s,rate_mbps")]
    NoColumn {
        /// The names that it may have.
        column: &'static str,
        header: String,
    },
    #[error(
        "the header has no column of delay or loss: name one with its unit, as in \
         time_s,delay_ms,loss"
    )]
    NoPath,
    #[error("{name} is no capture in pcap or pcapng, or is cut off: {problem}")]
    Capture { name: String, problem: String },
    #[error("{name}: {error}")]
    BackInTime { name: String, error: BackInTime },
    #[error(
        "none of {sent} packets is in both captures: is the second one of the same packets, and \
         are the clocks less than a minute apart? The offset of the second clock can be given"
    )]
    NoMatch { sent: u64 },
    #[error(
        "a packet arrives {by_ns} ns before it was sent: the second clock is behind. Give its \
         offset, -{by_ns} ns or less"
    )]
    Early { by_ns: u64 },
    #[error("the trace has no duration: it is empty, or ends at 0 ms, or is CSV of one row")]
    NoDuration,
    #[error("{place}: the trace is longer than 366 d there: is the unit of time right?")]
    Span { place: Place },
    #[error("the trace has more than {most} rows: cut it, or average it")]
    Rows { most: usize },
    /// What the library for the format says.
    #[error("this cannot be read as {format}: {problem}")]
    Table { format: &'static str, problem: String },
    /// A step that is zero or too short.
    #[error("steps of {step_ns} ns cannot be: {problem}")]
    Step { step_ns: u64, problem: String },
}

impl From<io::Error> for RateError {
    fn from(source: io::Error) -> Self {
        Self::Io { name: "the file".into(), source }
    }
}

impl RateError {
    pub(crate) fn table(format: &'static str, error: &dyn std::error::Error) -> Self {
        Self::Table { format, problem: error.to_string() }
    }

    pub(crate) fn line(place: Place, problem: &str, content: &[u8]) -> Self {
        Self::Line { place, problem: problem.into(), content: shown(content) }
    }

    /// Names the file in an error of reading it.
    pub(crate) fn named(self, name: &str) -> Self {
        match self {
            Self::Io { source, .. } => Self::Io { name: name.into(), source },
            other => other,
        }
    }
}
