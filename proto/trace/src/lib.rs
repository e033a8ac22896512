// SPDX-License-Identifier: Apache-2.0
//! Rates that change with time: traces of mahimahi, and CSV. Delay and loss over time: [`path`].
//!
//! A mahimahi trace has one line for each opportunity to send 1504 bytes, with the
//! millisecond at which it comes (`PACKET_SIZE` in mahimahi's `link_queue.hh`; the bytes are
//! those of the IP packet and four of its TUN device). It starts again after the last one,
//! and its time is the period. Without a step it is read as single opportunities ([`Opportunities`]).
//! With one it is averaged; an opportunity at *t* was earned in the millisecond before.
//!
//! CSV has two columns, of which the header names the units: `time_s` (or `ms`, `us`,
//! `ns`) and `rate_bps` (or `kbps`, `mbps`, `gbps`). A rate holds until the next row's time,
//! the last one as long as the one before.
//!
//! Rates are steps of equal length, and the last step ends where the trace ends: the
//! length is the requested one, changed so that a whole number of steps fits. So
//! the duration and the bytes are those of the trace, to rounding.

mod error;
pub mod number;
mod opportunities;
mod pair;
mod path;
pub mod tap;
pub mod text;

pub use error::{RateError, RateFormat};
pub use opportunities::Opportunities;
pub use pair::{Pair, PairStep, read_pair};
pub use path::{PathSteps, read_path};

use number::decimal;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use tap::{Bytes, Lines};
use text::{counted, shown};

/// Bytes of an opportunity of mahimahi.
pub const OPPORTUNITY_BYTES: u64 = 1_504;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// The step if none is asked for.
const STEP_NS: u64 = 100 * MS;
/// The most steps, and the longest trace.
const STEPS: u64 = 10_000_000;
const SPAN_NS: u64 = 366 * 86_400 * S;
/// Bytes of a file: an hour of 12 Mbit/s is 25 MB of mahimahi's.
pub const FILE_BYTES: u64 = 256 << 20;
/// The highest rate: 1 Tbit/s.
const RATE_BPS: i64 = 1_000_000_000_000;

/// A rate in steps of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSteps {
    /// The length of a step.
    pub step_ns: u64,
    /// The rate in each; not empty.
    pub rates_bps: Vec<u64>,
    pub name: String,
    pub format: RateFormat,
    /// SHA-256 of the file's bytes, in hexadecimal.
    pub sha256: String,
    /// Corrections that were made, as text.
    pub remarks: Vec<String>,
}

/// A trace as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateFile {
    Steps(RateSteps),
    Opportunities(Opportunities),
}

/// Reads a trace in either format. Without a step, a mahimahi trace is read as single
/// opportunities, and CSV in steps of the median time between its rows.
///
/// # Errors
/// If it is in neither format, or a line of it cannot be understood.
pub fn read_rate(path: &Path, step_ns: Option<u64>) -> Result<RateFile, RateError> {
    let (bytes, name) = open(path)?;
    either(bytes, &name, step_ns).map_err(|error| error.named(&name))
}

/// Reads a trace of mahimahi.
///
/// # Errors
/// If a line is no time in milliseconds, or earlier than the one before.
pub fn mahimahi(path: &Path, step_ns: u64) -> Result<RateSteps, RateError> {
    steps(path, RateFormat::Mahimahi, Some(step_ns))
}

/// Reads CSV with a column of times and one of rates.
///
/// # Errors
/// If the header does not name them with their units, or a line cannot be understood.
pub fn csv(path: &Path, step_ns: Option<u64>) -> Result<RateSteps, RateError> {
    steps(path, RateFormat::Csv, step_ns)
}

fn steps(path: &Path, format: RateFormat, step_ns: Option<u64>) -> Result<RateSteps, RateError> {
    let (bytes, name) = open(path)?;
    read(bytes, &name, Some(format), step_ns).map_err(|error| error.named(&name))
}

/// The bytes of a file, and its name for messages.
fn open(path: &Path) -> Result<(Bytes<'static>, String), RateError> {
    let (file, name) = regular_file(path)?;
    if file.metadata().map_err(|error| RateError::from(error).named(&name))?.len() > FILE_BYTES {
        return Err(RateError::Bytes { name });
    }
    // It may grow meanwhile.
    Ok((Box::new(file.take(FILE_BYTES)), name))
}

/// Opens a regular file, and returns it with its name.
fn regular_file(path: &Path) -> Result<(File, String), RateError> {
    let name = path.display().to_string();
    let named = |error: io::Error| RateError::from(error).named(&name);
    // Before it is opened: a pipe without a writer would wait for one.
    if !std::fs::metadata(path).map_err(named)?.is_file() {
        return Err(RateError::NoFile { name });
    }
    let file = File::open(path).map_err(named)?;
    Ok((file, name))
}

fn either(bytes: Bytes<'_>, name: &str, step_ns: Option<u64>) -> Result<RateFile, RateError> {
    let begun = Begun::of(bytes, None)?;
    if begun.format == RateFormat::Mahimahi && step_ns.is_none() {
        return opportunities::read(begun, name).map(RateFile::Opportunities);
    }
    begun.steps(name, step_ns).map(RateFile::Steps)
}

fn read(
    bytes: Bytes<'_>,
    name: &str,
    format: Option<RateFormat>,
    step_ns: Option<u64>,
) -> Result<RateSteps, RateError> {
    Begun::of(bytes, format)?.steps(name, step_ns)
}

/// A file after its first line.
struct Begun<'a> {
    lines: Lines<'a>,
    format: RateFormat,
    /// The first line without a comment, and its number.
    begin: Vec<u8>,
    number: u64,
}

impl<'a> Begun<'a> {
    fn of(bytes: Bytes<'a>, format: Option<RateFormat>) -> Result<Self, RateError> {
        let mut lines = Lines::of(bytes);
        // The first line without a comment determines the format.
        let (begin, number) = loop {
            let Some(line) = lines.next()? else { return Err(RateError::NoDuration) };
            let text = line.text.trim_ascii();
            if !text.is_empty() && !text.starts_with(b"#") {
                break (text.to_vec(), line.number);
            }
        };
        let is_time = begin.iter().all(u8::is_ascii_digit);
        let has_columns = TIME.find(&begin).is_ok();
        let format = match format {
            Some(format) => format,
            None if is_time => RateFormat::Mahimahi,
            None if has_columns || begin.contains(&b',') => RateFormat::Csv,
            None => return Err(RateError::UnknownFormat { begin: shown(&begin) }),
        };
        Ok(Self { lines, format, begin, number })
    }

    fn steps(mut self, name: &str, step_ns: Option<u64>) -> Result<RateSteps, RateError> {
        let mut remarks = Vec::new();
        let trace = match self.format {
            RateFormat::Mahimahi => averaged(&mut self)?,
            RateFormat::Csv => rows(&mut self.lines, &self.begin, &RATE, &mut remarks)?,
        };
        let (step_ns, rates_bps) = trace.steps(self.format, step_ns)?;
        Ok(RateSteps {
            step_ns,
            rates_bps,
            name: name.into(),
            format: self.format,
            sha256: self.lines.sha256()?,
            remarks,
        })
    }

    /// The milliseconds of a mahimahi trace, ascending. The last one is not zero.
    fn times(&mut self, mut found: impl FnMut(u64)) -> Result<(), RateError> {
        let mut last = 0;
        let mut add = |text: &[u8], number: u64| {
            let bad = |problem: &str| RateError::line(number, problem, text);
            let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
            let ms = plain.then(|| decimal(text, 1)).flatten();
            let ms = ms.ok_or_else(|| bad("this is no whole number of milliseconds"))?;
            let ms = ms.value.unsigned_abs();
            if ms.saturating_mul(MS) > SPAN_NS {
                return Err(RateError::Span { line: number });
            }
            if ms < last {
                return Err(bad("this is earlier than the line before"));
            }
            last = ms;
            found(ms);
            Ok(())
        };
        add(&self.begin, self.number)?;
        while let Some(line) = self.lines.next()? {
            add(line.text.trim_ascii(), line.number)?;
        }
        if last == 0 { Err(RateError::NoDuration) } else { Ok(()) }
    }
}

/// Pieces of constant rate: the end of each, in ns from the start of the trace, ascending,
/// and what it carries, in bits times 10⁹.
struct Trace {
    pieces: Vec<(u64, u128)>,
    /// Step length if none is requested.
    usual_step_ns: u64,
}

impl Trace {
    /// Spreads the pieces over equal steps.
    fn steps(&self, format: RateFormat, asked: Option<u64>) -> Result<(u64, Vec<u64>), RateError> {
        let asked = asked.unwrap_or(self.usual_step_ns);
        let error = |problem: String| RateError::Step { step_ns: asked, problem };
        let finest = if format == RateFormat::Mahimahi { MS } else { 1 };
        if asked < finest {
            return Err(error("a trace in milliseconds has none shorter than 1 ms".into()));
        }
        let Some(&(end, _)) = self.pieces.last() else { return Err(RateError::NoDuration) };
        if end == 0 {
            return Err(RateError::NoDuration);
        }
        let count = (end.saturating_add(asked / 2) / asked).max(1);
        if count > STEPS {
            return Err(error(format!("the trace would have {count} of them, more than {STEPS}")));
        }
        let mut rates = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        let mut pieces = self.pieces.iter();
        // The current piece, its remaining length, and its start.
        let (mut piece, mut at) = (pieces.next(), 0_u64);
        let mut left = piece.map_or(0, |piece| piece.1);
        let bound = |step: u64| (u128::from(end) * u128::from(step) / u128::from(count)) as u64;
        for step in 0..count {
            let (start, until) = (bound(step), bound(step + 1));
            let mut carried = 0_u128;
            while let Some(&(piece_end, _)) = piece {
                if piece_end > until {
                    // The share of the piece that falls into this step.
                    let (part, whole) = (until - at, piece_end - at);
                    let share = left / u128::from(whole) * u128::from(part)
                        + left % u128::from(whole) * u128::from(part) / u128::from(whole);
                    carried += share;
                    left -= share;
                    at = until;
                    break;
                }
                carried += left;
                at = piece_end;
                piece = pieces.next();
                left = piece.map_or(0, |piece| piece.1);
            }
            let ns = u128::from((until - start).max(1));
            rates.push(u64::try_from((carried + ns / 2) / ns).unwrap_or(u64::MAX));
        }
        Ok(((end / count).max(1), rates))
    }
}

/// Reads the rest of a mahimahi trace as pieces of a rate.
fn averaged(begun: &mut Begun<'_>) -> Result<Trace, RateError> {
    let mut pieces: Vec<(u64, u128)> = Vec::new();
    let bits = u128::from(OPPORTUNITY_BYTES * 8) * u128::from(S);
    begun.times(|ms| {
        // An opportunity at zero is earned in the first millisecond, as there is none before.
        let end = (ms * MS).max(MS);
        let last = pieces.last().map_or(0, |piece| piece.0);
        if end > last {
            if end - last > MS {
                pieces.push((end - MS, 0));
            }
            pieces.push((end, 0));
        }
        if let Some(piece) = pieces.last_mut() {
            piece.1 += bits;
        }
    })?;
    Ok(Trace { pieces, usual_step_ns: STEP_NS })
}

/// A quantity over time in a CSV file.
struct Column {
    /// Name in messages.
    name: &'static str,
    /// Column names, and the factor of each to the unit that is used here.
    names: [(&'static str, u64); 4],
    /// The names in messages.
    listed: &'static str,
    /// Largest value, and its description.
    most: (i64, &'static str),
}

const TIME: Column = Column {
    name: "time",
    names: [("time_s", S), ("time_ms", MS), ("time_us", 1_000), ("time_ns", 1)],
    listed: "time_s, time_ms, time_us or time_ns",
    most: (i64::MAX, "too large"),
};

/// In bit/s.
const RATE: Column = Column {
    name: "rate",
    names: [
        ("rate_bps", 1),
        ("rate_kbps", 1_000),
        ("rate_mbps", 1_000_000),
        ("rate_gbps", 1_000_000_000),
    ],
    listed: "rate_bps, rate_kbps, rate_mbps or rate_gbps",
    most: (RATE_BPS, "more than 1 Tbit/s"),
};

impl Column {
    /// Index of the column, and the factor of its unit.
    fn find(&self, header: &[u8]) -> Result<(usize, u64), RateError> {
        let columns = header.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).enumerate();
        let mut found = columns.filter_map(|(index, field)| {
            let name = self.names.iter().find(|(name, _)| name.as_bytes() == field)?;
            Some((index, name.1))
        });
        let missing = || RateError::NoColumn { column: self.listed, header: shown(header) };
        found.next().ok_or_else(missing)
    }
}

/// Reads a column of the rest of a CSV file as pieces that hold until the next row.
fn rows(
    lines: &mut Lines<'_>,
    header: &[u8],
    column: &Column,
    remarks: &mut Vec<String>,
) -> Result<Trace, RateError> {
    let (times, values) = (TIME.find(header)?, column.find(header)?);
    let mut rows: Vec<(i64, u64)> = Vec::new();
    let mut spacings: Vec<u64> = Vec::new();
    let mut repeated = 0;
    while let Some(line) = lines.next()? {
        let bad = |problem: &str| RateError::line(line.number, problem, line.text);
        let text = line.text.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        let cell = |index: usize| {
            let field = text.split(|byte| *byte == b',').nth(index);
            field.map(<[u8]>::trim_ascii).ok_or_else(|| bad("the row has too few fields"))
        };
        let time = decimal(cell(times.0)?, times.1);
        let time = time.ok_or_else(|| bad("the time is no number"))?.value;
        let value = decimal(cell(values.0)?, values.1);
        let value = value.ok_or_else(|| bad(&format!("the {} is no number", column.name)))?.value;
        if !(0..=column.most.0).contains(&value) {
            return Err(bad(&format!("the {} is negative, or {}", column.name, column.most.1)));
        }
        let Some(&(before, _)) = rows.last() else {
            rows.push((time, value.unsigned_abs()));
            continue;
        };
        match time.cmp(&before) {
            std::cmp::Ordering::Less => return Err(bad("this is earlier than the row before")),
            std::cmp::Ordering::Equal => {
                repeated += 1;
                rows.pop();
            }
            std::cmp::Ordering::Greater => spacings.push(time.abs_diff(before)),
        }
        rows.push((time, value.unsigned_abs()));
        if rows.first().is_some_and(|first| time.abs_diff(first.0) > SPAN_NS) {
            return Err(RateError::Span { line: line.number });
        }
    }
    let (Some(&(start, _)), Some(&last)) = (rows.first(), spacings.last()) else {
        return Err(RateError::NoDuration);
    };
    if repeated > 0 {
        let rows = counted(repeated, "row has", "rows have");
        remarks.push(format!("{rows} the time of the row before: the last of each was kept."));
    }
    let ends = rows.iter().skip(1).map(|row| row.0.abs_diff(start));
    let end = rows.last().map_or(0, |row| row.0.abs_diff(start)).saturating_add(last);
    let mut from = 0;
    let pieces = ends.chain([end]).zip(&rows).map(|(until, row)| {
        let carries = u128::from(until - from) * u128::from(row.1);
        from = until;
        (until, carries)
    });
    let pieces = pieces.collect();
    let middle = spacings.len() / 2;
    let usual_step_ns = *spacings.select_nth_unstable(middle).1;
    Ok(Trace { pieces, usual_step_ns })
}

#[cfg(test)]
mod tests;
