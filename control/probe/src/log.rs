// SPDX-License-Identifier: Apache-2.0
//! The log: CSV after a head of comments, one row per probe in the order of sending.
//!
//! ```text
//! # format = linkemu-probe 1
//! # target = host:8620
//! # interval = 200 ms
//! # spacing = constant
//! # size = 20
//! # timeout = 10 s
//! # synchronised = false
//! # started_utc = 2026-01-01T00:00:00.000000000Z
//! sequence,sent_utc,sent_s,rtt_ms,there_ms,back_ms
//! 0,2026-01-01T00:00:00.000104211Z,0.000104211,597.300112,,
//! 1,2026-01-01T00:00:00.200001520Z,0.200001520,,,
//! # resumed_utc = 2026-01-01T00:10:00.000000000Z
//! 2,2026-01-01T00:10:00.000090001Z,600.000090001,597.300112,,
//! ```
//!
//! `sent_s` is in seconds of the monotonic clock since the start of the log, and ascends;
//! over a break between two runs it goes on by the wall clock. An empty `rtt_ms` is a
//! lost probe. `there_ms` and `back_ms` are one-way delays, only if the clocks of both
//! hosts are synchronised; their sum is the round trip. `seed` is in the head of a Poisson
//! log.
//!
//! A file that was cut anywhere is a log again once its last line is cut off up to the
//! last line feed, which is what resuming does. The file is locked while it is written.

use crate::plan::{Plan, Spacing, shown};
use crate::prober::{Row, Start};
use crate::resume;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The columns.
pub const COLUMNS: [&str; 6] = ["sequence", "sent_utc", "sent_s", "rtt_ms", "there_ms", "back_ms"];
/// The format's name and version.
pub const FORMAT: &str = "linkemu-probe 1";

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file is there.
    #[error("{} exists: give --resume to go on with it, or another -w", .0.display())]
    Exists(PathBuf),
    /// Another process has it.
    #[error("{} is being written by another sender: stop that, or give another -w", .0.display())]
    Busy(PathBuf),
    /// It is something else.
    #[error("{} is not a log that can be resumed: {why}; give another -w", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It was made otherwise.
    #[error(
        "{} has {}: a log has one of each, so give the same again, or another -w",
        path.display(),
        .differences.join(", ")
    )]
    Different {
        /// The file.
        path: PathBuf,
        /// Each as `key = there, not here`.
        differences: Vec<String>,
    },
    /// The system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

pub(crate) fn failed<'a, E: Into<io::Error>>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(E) -> LogError + 'a {
    move |source| LogError::Io { what, path: path.into(), source: source.into() }
}

/// A log that is being written.
#[derive(Debug)]
pub struct Log {
    csv: csv::Writer<File>,
    path: PathBuf,
    /// Whether one-way delays are written.
    synchronised: bool,
    _lock: Flock<File>,
}

/// What a run needs to know of its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Where the log goes on.
    pub start: Start,
    /// Of a Poisson schedule, as the log or the plan has it.
    pub seed: Option<u64>,
}

impl Log {
    /// Begins a log at `now`, or, if `resume`, goes on with the one that is there. A Poisson
    /// schedule without a seed gets `seed`.
    ///
    /// # Errors
    /// [`LogError`]; a file that was there is unchanged then.
    pub fn open(
        path: &Path,
        plan: &Plan,
        resume: bool,
        seed: u64,
        now: SystemTime,
    ) -> Result<(Self, Opened), LogError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let options = if resume { options.create(true) } else { options.create_new(true) };
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => LogError::Exists(path.into()),
            _ => failed("open", path)(error),
        })?;
        let metadata = file.metadata().map_err(failed("open", path))?;
        if !metadata.is_file() {
            return Err(LogError::Foreign { path: path.into(), why: "it is no file".into() });
        }
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => LogError::Busy(path.into()),
            _ => failed("lock", path)(error),
        })?;
        let mut file = lock.try_clone().map_err(failed("open", path))?;
        // Another sender may have written between the two.
        let length = file.metadata().map_err(failed("read", path))?.len();
        let opened = if length == 0 {
            let seed = match plan.spacing {
                Spacing::Constant => None,
                Spacing::Poisson { seed: given } => Some(given.unwrap_or(seed)),
            };
            let head = head(plan, seed, now) + &COLUMNS.join(",") + "\n";
            file.write_all(head.as_bytes()).map_err(failed("write", path))?;
            Opened { start: Start::default(), seed }
        } else if resume {
            let found = resume::read(&mut file, path, length)?;
            let opened = found.go_on(path, plan, now)?;
            file.set_len(found.whole).map_err(failed("cut", path))?;
            file.seek(SeekFrom::End(0)).map_err(failed("write", path))?;
            let mark = format!("# resumed_utc = {}\n", humantime::format_rfc3339_nanos(now));
            file.write_all(mark.as_bytes()).map_err(failed("write", path))?;
            opened
        } else {
            return Err(LogError::Exists(path.into()));
        };
        let csv = csv::WriterBuilder::new().buffer_capacity(1 << 16).from_writer(file);
        let synchronised = plan.synchronised;
        Ok((Self { csv, path: path.into(), synchronised, _lock: lock }, opened))
    }

    /// Writes a row, into memory first.
    ///
    /// # Errors
    /// If memory was full and the file cannot be written.
    pub fn write(&mut self, row: &Row) -> Result<(), LogError> {
        let one_way = |reply: i64| if self.synchronised { millis(reply) } else { String::new() };
        let (rtt, there, back) = row.reply.map_or_else(Default::default, |reply| {
            let rtt = i64::try_from(reply.rtt.as_nanos()).unwrap_or(i64::MAX);
            let back = rtt.saturating_sub(reply.there_ns);
            (millis(rtt), one_way(reply.there_ns), one_way(back))
        });
        let sent_utc = humantime::format_rfc3339_nanos(row.sent_utc).to_string();
        let fields = [row.sequence.to_string(), sent_utc, seconds(row.sent), rtt, there, back];
        self.csv.write_record(fields).map_err(|error| self.failed(error.into()))
    }

    /// Writes to the file what is in memory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.csv.flush().map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> LogError {
        failed("write", &self.path)(source)
    }
}

/// What stays the same over a log's runs.
pub(crate) fn constants(plan: &Plan) -> [(&'static str, String); 7] {
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

fn head(plan: &Plan, seed: Option<u64>, now: SystemTime) -> String {
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
fn seconds(time: Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}

/// Milliseconds with six decimals.
fn millis(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:06}", ns / 1_000_000, ns % 1_000_000)
}

#[cfg(test)]
mod tests;
