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
//! over a break between two runs it continues by the wall clock. An empty `rtt_ms` is a
//! lost probe. `there_ms` and `back_ms` are one-way delays, only if the clocks of both
//! hosts are synchronised; their sum is the round trip. `seed` is in the head of a Poisson
//! log.
//!
//! A file that was cut anywhere is a log again once its last line is cut off up to the
//! last line feed, which is what resuming does. The file is locked while it is written.

mod error;
mod format;
mod resume;

pub use error::LogError;
pub use format::{COLUMNS, FORMAT};
pub use resume::Opened;

use crate::plan::{Plan, Spacing};
use crate::prober::{Row, Start};
use error::failed;
use format::{head, millis, seconds};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A log that is being written.
#[derive(Debug)]
pub struct Log {
    csv: csv::Writer<File>,
    path: PathBuf,
    /// Whether one-way delays are written.
    synchronised: bool,
    _lock: Flock<File>,
}

impl Log {
    /// Creates a log at `now`, or resumes an existing one. A Poisson schedule without a seed gets
    /// `seed`.
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
        // Another sender may have written between opening and locking.
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

    /// Writes a row to the buffer.
    ///
    /// # Errors
    /// If the buffer was full and the file cannot be written.
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

    /// Writes buffered rows to the file.
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

#[cfg(test)]
mod tests;
