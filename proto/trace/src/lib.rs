// SPDX-License-Identifier: Apache-2.0
//! Rates that change with time: traces of mahimahi, CSV and Parquet. Delay and loss over time: [`path`].
//!
//! A mahimahi trace has one line for each opportunity to send 1504 bytes, with the
//! millisecond at which it comes (`PACKET_SIZE` in mahimahi's `link_queue.hh`; the bytes are
//! those of the IP packet and four of its TUN device). It starts again after the last one,
//! and its time is the period. Without a step it is read as single opportunities ([`Opportunities`]).
//! With one it is averaged; an opportunity at *t* was earned in the millisecond before.
//!
//! CSV and Parquet have two columns, whose names give the units: `time_s` (or `ms`, `us`,
//! `ns`) and `rate_bps` (or `kbps`, `mbps`, `gbps`). A rate holds until the next row's time,
//! the last one as long as the one before: nothing is interpolated. In steps that are longer than
//! the rows the rates are averaged over time.
//!
//! Rates are steps of equal length, and the last step ends where the trace ends: the
//! length is the requested one, changed so that a whole number of steps fits. So
//! the duration and the bytes are those of the trace, to rounding.

mod error;
pub mod number;
mod opportunities;
pub mod packet_times;
mod pair;
mod path;
mod steps;
mod table;
pub mod tap;
pub mod text;

pub use error::{Place, RateError, RateFormat};
pub use opportunities::Opportunities;
pub use pair::{Pair, PairStep, read_pair};
pub use path::{PathSteps, read_path};

use number::decimal;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use steps::Trace;
use table::{Column, PARQUET, TIME, Table};
use text::shown;

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

/// Reads a trace in any format. Without a step, a mahimahi trace is read as single
/// opportunities, and the others in steps of the median time between their rows.
///
/// # Errors
/// If it is in no such format, or a part of it cannot be understood.
pub fn read_rate(path: &Path, step_ns: Option<u64>) -> Result<RateFile, RateError> {
    let (bytes, name) = content(path)?;
    of_bytes(bytes, &name, step_ns)
}

fn of_bytes(bytes: Vec<u8>, name: &str, step_ns: Option<u64>) -> Result<RateFile, RateError> {
    let sha256 = sha256(&bytes);
    let format = format(&bytes)?;
    let (trace, remarks) = match format {
        RateFormat::Mahimahi if step_ns.is_none() => {
            let runs = opportunities::runs(&bytes)?;
            let (step_ns, bytes, name) = (MS, OPPORTUNITY_BYTES, name.into());
            return Ok(RateFile::Opportunities(Opportunities {
                step_ns,
                bytes,
                runs,
                name,
                sha256,
            }));
        }
        RateFormat::Mahimahi => (averaged(&bytes)?, Vec::new()),
        _ => {
            let table = Table::read(bytes, format, &[&RATE])?;
            let trace = table.pieces(0)?.ok_or_else(|| RATE.missing(&table.names))?;
            (trace, table.remarks())
        }
    };
    let (step_ns, rates_bps) = trace.steps(format, step_ns)?;
    let name = name.into();
    Ok(RateFile::Steps(RateSteps { step_ns, rates_bps, name, format, sha256, remarks }))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file's bytes, and its name for messages.
fn content(path: &Path) -> Result<(Vec<u8>, String), RateError> {
    let (file, name) = regular_file(path)?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    let read = file.take(FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| RateError::from(error).named(&name))?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(RateError::Bytes { name });
    }
    Ok((bytes, name))
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

/// The lines that are no comments before the first one, with their numbers from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines = (1..).zip(whole.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
    lines.skip_while(|(_, line)| line.is_empty() || line.starts_with(b"#"))
}

/// The first bytes, or the first line without a comment, determine the format.
fn format(bytes: &[u8]) -> Result<RateFormat, RateError> {
    if bytes.starts_with(PARQUET) {
        return Ok(RateFormat::Parquet);
    }
    let (_, begin) = lines(bytes).next().ok_or(RateError::NoDuration)?;
    if begin.iter().all(u8::is_ascii_digit) {
        Ok(RateFormat::Mahimahi)
    } else if TIME.is_in(begin) || begin.contains(&b',') {
        Ok(RateFormat::Csv)
    } else {
        Err(RateError::UnknownFormat { begin: shown(begin) })
    }
}

/// The milliseconds of a mahimahi trace, ascending. The last one is not zero.
fn times(bytes: &[u8], mut found: impl FnMut(u64)) -> Result<(), RateError> {
    let mut last = 0;
    for (number, text) in lines(bytes) {
        let place = Place::Line(number);
        let bad = |problem: &str| RateError::line(place, problem, text);
        let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let ms = plain.then(|| decimal(text, 1)).flatten();
        let ms = ms.ok_or_else(|| bad("this is no whole number of milliseconds"))?;
        let ms = ms.value.unsigned_abs();
        if ms.saturating_mul(MS) > SPAN_NS {
            return Err(RateError::Span { place });
        }
        if ms < last {
            return Err(bad("this is earlier than the line before"));
        }
        last = ms;
        found(ms);
    }
    if last == 0 { Err(RateError::NoDuration) } else { Ok(()) }
}

/// A mahimahi trace as pieces of a rate.
fn averaged(bytes: &[u8]) -> Result<Trace, RateError> {
    let mut pieces: Vec<(u64, u128)> = Vec::new();
    let bits = u128::from(OPPORTUNITY_BYTES * 8) * u128::from(S);
    times(bytes, |ms| {
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

#[cfg(test)]
mod tests;
