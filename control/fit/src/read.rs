// SPDX-License-Identifier: Apache-2.0
//! Readers of baselines: logs of round trips, and published figures.
//!
//! The format is given, or detected from the content without guessing. Each reader passes rows to
//! `clean.rs`, which notes each correction in the remarks of the baseline. Faults that cannot be
//! corrected are errors with the line. Times are read as exact decimals, in nanoseconds.

mod clean;
mod columns;
mod error;
mod guess;
mod irtt;
mod ping;
mod place;
mod probe;
mod spacing;
mod summary;
mod waiting;

pub use columns::Columns;
pub use error::{Place, ReadError};

use crate::baseline::{Baseline, Format, Spacing, Summary};
use crate::work::{self, Cancelled, Step};
use error::{duration, shown};
use std::fs::File;
use std::io::{BufReader, Cursor, Read as _};
use std::path::Path;
use trace::tap::{BOM, Bytes};
use trace::{number, tap};

/// Bytes at the beginning of a file that determine its format.
const HEAD: u64 = 1 << 16;
/// Lines of it among which ping's first one is searched.
const HEAD_LINES: usize = 100;
/// Begin of a file that gzip packed, and the most bytes that are unpacked.
const GZIP: &[u8] = b"\x1f\x8b";
const UNPACKED: u64 = 1 << 36;
const DAY_NS: u64 = 86_400_000_000_000;

/// How to read a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Format; detected from the content if `None`.
    pub format: Option<Format>,
    /// Probing interval; the log must agree with it.
    pub interval_ns: Option<u64>,
    pub columns: Option<Columns>,
    /// How the probes are spaced; found from the times if `None`.
    pub spacing: Option<Spacing>,
    pub limits: Limits,
}

/// Limits of a file, so that reading and evaluating it take bounded memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Probes, including those that the log leaves out.
    pub probes: usize,
    /// Bytes, after unpacking.
    pub bytes: u64,
}

impl Default for Limits {
    /// As many probes as fit into memory.
    fn default() -> Self {
        Self { probes: usize::MAX, bytes: UNPACKED }
    }
}

impl Limits {
    fn check(self, probes: u64) -> Result<(), ReadError> {
        match usize::try_from(probes) {
            Ok(probes) if probes <= self.probes => Ok(()),
            _ => Err(ReadError::TooMany { most: self.probes }),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A log, probe by probe.
    Log(Baseline),
    Summary(Summary),
}

/// Reads a baseline.
///
/// # Errors
/// If the file cannot be read, its format is not known or its content not plausible.
pub fn read(path: &Path, options: &Options) -> Result<Input, ReadError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| ReadError::from(error).named(&name))?;
    read_from(Box::new(file), &name, options).map_err(|error| error.named(&name))
}

/// Reads a baseline of `length` bytes that is called `name`. It is observed by [`crate::work`].
///
/// # Errors
/// As [`read`]; if it was cancelled, any.
pub fn read_open(
    file: impl std::io::Read,
    length: u64,
    name: &str,
    options: &Options,
) -> Result<Input, ReadError> {
    work::step(Step::Reading, 0.0, 1.0);
    let file = Observed { file, read: 0, length };
    read_from(Box::new(file), name, options).map_err(|error| error.named(name))
}

/// A file with its progress observed.
struct Observed<R> {
    file: R,
    read: u64,
    length: u64,
}

impl<R: std::io::Read> std::io::Read for Observed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if work::is_cancelled() {
            return Err(std::io::Error::other(Cancelled));
        }
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        work::done(self.read as f64 / self.length.max(1) as f64);
        Ok(read)
    }
}

/// A reader that fails after so many bytes.
struct Bounded<'a> {
    bytes: Bytes<'a>,
    left: u64,
    most: u64,
}

impl std::io::Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let message = format!("it has more than {}", profile::format_size(self.most));
            std::io::Error::new(std::io::ErrorKind::FileTooLarge, message)
        })?;
        Ok(read)
    }
}

fn read_from(file: Bytes<'_>, name: &str, options: &Options) -> Result<Input, ReadError> {
    let limits = options.limits;
    let (mut head, file) = unpacked(file)?;
    let left = limits.bytes.saturating_sub(head.len() as u64);
    let mut file: Bytes<'_> = Box::new(Bounded { bytes: file, left, most: limits.bytes });
    (&mut file).take(HEAD.saturating_sub(head.len() as u64)).read_to_end(&mut head)?;
    let format = format(&head, options)?;
    let given = options.interval_ns;
    if let Some(interval) = given.filter(|ns| !(1..=DAY_NS).contains(ns)) {
        return Err(ReadError::Interval { interval: duration(interval) });
    }
    let bytes: Bytes<'_> = Box::new(Cursor::new(head.clone()).chain(file));
    let (mut log, sha256) = match format {
        Format::Probe => probe::read(bytes, limits)?,
        Format::Ping => ping::read(bytes, given, limits)?,
        Format::Irtt => irtt::read(bytes, limits)?,
        Format::Columns => match &options.columns {
            Some(columns) => columns::read(bytes, &head, columns, limits)?,
            None => return Err(not_named(&head)),
        },
        Format::Summary => {
            let summary = summary::read(bytes, given)?;
            limits.check(summary.loss_samples.max(summary.delay_samples))?;
            return Ok(Input::Summary(summary));
        }
    };
    log.stated = options.spacing;
    clean::clean(log, name.into(), sha256, given).map(Input::Log)
}

/// The beginning of a file, and the rest of it: of one that gzip packed, as irtt does, the unpacked
/// bytes.
fn unpacked(mut file: Bytes<'_>) -> Result<(Vec<u8>, Bytes<'_>), ReadError> {
    let mut magic = Vec::new();
    (&mut file).take(GZIP.len() as u64).read_to_end(&mut magic)?;
    if magic != GZIP {
        return Ok((magic, file));
    }
    let packed = Cursor::new(magic).chain(file);
    let bytes = flate2::read::MultiGzDecoder::new(BufReader::new(packed));
    Ok((Vec::new(), Box::new(bytes.take(UNPACKED))))
}

/// The format of a file that begins with `head`.
fn format(head: &[u8], options: &Options) -> Result<Format, ReadError> {
    let head = head.strip_prefix(BOM).unwrap_or(head);
    if head.trim_ascii().is_empty() {
        return Err(ReadError::Empty);
    }
    let packers = [
        (&b"\x28\xb5\x2f\xfd"[..], "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"PK\x03\x04", "zip"),
    ];
    if let Some((_, packer)) = packers.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(ReadError::Packed { packer });
    }
    match (options.format, &options.columns) {
        (None | Some(Format::Columns), Some(_)) => return Ok(Format::Columns),
        (Some(format), Some(_)) => return Err(ReadError::ColumnsNotUsed { format }),
        (Some(format), None) => return Ok(format),
        (None, None) => {}
    }
    let mut lines = head.split(|byte| *byte == b'\n');
    if head.starts_with(probe::MAGIC.as_bytes()) {
        Ok(Format::Probe)
    } else if irtt::recognises(head) {
        Ok(Format::Irtt)
    } else if lines.by_ref().take(HEAD_LINES).any(ping::recognises) {
        Ok(Format::Ping)
    } else if summary::recognises(&String::from_utf8_lossy(head)) {
        Ok(Format::Summary)
    } else {
        Err(unknown(head))
    }
}

/// Reports that the format of a file that begins with `head` is unknown.
fn unknown(head: &[u8]) -> ReadError {
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        let remedy = ", which iconv makes of it";
        return ReadError::Binary { what: "text in UTF-16", remedy };
    }
    if head.contains(&0) {
        return ReadError::Binary { what: "binary", remedy: "" };
    }
    let begin = first_line(head);
    let json = begin.starts_with(b"{") || begin.starts_with(b"[");
    if !json && (guess::guess(head).is_some() || begin.iter().any(|byte| b",;\t".contains(byte))) {
        return not_named(head);
    }
    // If there are only comments, the first one.
    let begin = if begin.is_empty() { head.trim_ascii_start() } else { begin };
    let line = begin.split(|byte| *byte == b'\n').next().unwrap_or_default();
    ReadError::UnknownFormat { begin: shown(line) }
}

/// Reports a table without named columns.
fn not_named(head: &[u8]) -> ReadError {
    let guess = guess::guess(head).unwrap_or_else(|| "sent=NAME:s,rtt=NAME:ms".into());
    ReadError::ColumnsNotNamed { header: shown(first_line(head)), guess }
}

/// The first line that is no comment.
fn first_line(head: &[u8]) -> &[u8] {
    let head = head.strip_prefix(BOM).unwrap_or(head);
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.find(|line| !line.is_empty() && !line.starts_with(b"#")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
