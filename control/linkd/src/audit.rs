// SPDX-License-Identifier: Apache-2.0
//! The audit log: changes, attempted changes, and refused callers.
//!
//! A file of JSON lines, opened for append. A call that needs more than the role of a viewer has
//! two lines: `asked` is written first, so that no change is without it; `answered` has the result.
//! If `asked` cannot be written, the call is refused. A refused call has one line, and so has a
//! refused connection.
//!
//! Each line is one write with `O_APPEND`. A partial line, which a full disk leaves, is cut off, so
//! that every line is complete. The kernel's copy survives linkd but not the machine: the file is
//! synced when it is reopened and when linkd ends, not at each line, so that a slow disk does not
//! delay a change.
//!
//! Anyone on the network can cause refusals: of each kind a burst of [`BURST`] and then
//! [`PER_SECOND`] a second are written. A separate line has the number of those left out.

use crate::caller::Caller;
use crate::refusal::clip;
use serde::Serialize;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

/// Burst of refusals of one kind.
const BURST: f64 = 200.0;
/// And on average.
const PER_SECOND: f64 = 10.0;
/// Owner and group may read.
const MODE: u32 = 0o640;
/// No line is longer: texts in it are clipped.
const LINE_BYTES: u64 = 1 << 20;
const LINE_START: &[u8] = b"{\"time\":";

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("cannot open the audit log {}: {source}; give --audit-log a file that linkd may append to", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("the audit log {} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The file cannot be written.
    #[error("cannot write the audit log {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Line<'a> {
    pub event: &'static str,
    /// Number of the call, the same in all its lines. It restarts with linkd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub who: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub role: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub from: &'a str,
    /// Number of the browser session. It restarts with linkd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub method: &'a str,
    /// Resource name of the link that the request is about; empty: of `main`, of the box, or not read.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub link: &'a str,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub request: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: &'a str,
}

impl<'a> Line<'a> {
    /// A line about a caller's request.
    pub fn of(event: &'static str, caller: &'a Caller, method: &'a str) -> Self {
        let Caller { name, role, from, session, .. } = caller;
        let (role, session) = (role.as_str(), *session);
        Self { event, who: name, role, from, session, method, ..Self::default() }
    }
}

#[derive(Serialize)]
struct Timed<'a> {
    time: String,
    #[serde(flatten)]
    line: &'a Line<'a>,
}

/// The log, or none; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audit(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    log: Mutex<Log>,
    calls: AtomicU64,
    handshakes: Mutex<Bucket>,
    refusals: Mutex<Bucket>,
}

#[derive(Debug)]
struct Log {
    file: File,
    /// The length of the file up to its last whole line, after a line was written in part and
    /// the part could not be cut off.
    torn: Option<u64>,
}

/// How many lines of a kind may be written.
#[derive(Debug)]
struct Bucket {
    level: f64,
    since: Instant,
    left_out: u64,
}

impl Audit {
    /// Appends to a file, which is made if it is not there.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let log = Mutex::new(Log { file: open(path)?, torn: None });
        let shared = Shared {
            path: path.into(),
            log,
            calls: AtomicU64::new(0),
            handshakes: Mutex::new(Bucket::full(Instant::now())),
            refusals: Mutex::new(Bucket::full(Instant::now())),
        };
        let audit = Self(Some(Arc::new(shared)));
        let message = format!("linkd {}", env!("CARGO_PKG_VERSION"));
        audit.write(&Line { event: "started", message: &message, ..Line::default() })?;
        Ok(audit)
    }

    /// Opens the file again, after logrotate has moved it. If that fails, the open one stays.
    pub fn reopen(&self) -> Result<(), AuditError> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let file = open(&shared.path)?;
        let before = {
            let mut log = shared.log();
            log.torn = None;
            std::mem::replace(&mut log.file, file)
        };
        sync(&before);
        self.write(&Line { event: "reopened", ..Line::default() })
    }

    /// A number for a call.
    pub fn number(&self) -> Option<u64> {
        self.0.as_ref().map(|shared| shared.calls.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub fn write(&self, line: &Line<'_>) -> Result<(), AuditError> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let message = clip(line.message);
        let line = Line { message: &message, request: line.request.clone(), ..*line };
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let result = serde_json::to_string(&Timed { time, line: &line })
            .map_err(io::Error::from)
            .and_then(|text| shared.log().append(&shared.path, &text));
        result.map_err(|source| {
            tracing::error!(path = %shared.path.display(), error = %source, "cannot write the audit log");
            AuditError::Write { path: shared.path.clone(), source }
        })
    }

    /// A call that was refused before anything was done.
    pub fn call_refused(&self, line: &Line<'_>) {
        let Line { who, from, method, message, .. } = line;
        tracing::info!(who, from, method, why = message, "refused");
        if let Some(shared) = &self.0 {
            self.bounded(&shared.refusals, line);
        }
    }

    /// A connection that was refused.
    pub fn handshake_refused(&self, from: SocketAddr, why: &str) {
        tracing::info!(%from, why, "a connection is refused");
        if let Some(shared) = &self.0 {
            let from = from.to_string();
            let event = "handshake_refused";
            let line = Line { event, from: &from, message: why, ..Line::default() };
            self.bounded(&shared.handshakes, &line);
        }
    }

    /// Writes a line unless there were too many of its kind. That it cannot be written is
    /// logged, and refuses the next change.
    fn bounded(&self, bucket: &Mutex<Bucket>, line: &Line<'_>) {
        let left_out = {
            let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            if !bucket.take(Instant::now()) {
                return;
            }
            std::mem::take(&mut bucket.left_out)
        };
        if left_out > 0 {
            let message = format!("{left_out} lines of the kind {} are left out", line.event);
            let _ = self.write(&Line { event: "left_out", message: &message, ..Line::default() });
        }
        let _ = self.write(line);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        sync(&self.log().file);
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn append(&mut self, path: &Path, text: &str) -> io::Result<()> {
        // Lines in a removed file would be lost.
        if self.file.metadata()?.nlink() == 0 {
            self.file = open(path).map_err(io::Error::other)?;
            self.torn = None;
        }
        if let Some(whole) = self.torn {
            cut(&self.file, whole)?;
            self.torn = None;
        }
        let whole = self.file.metadata()?.len();
        // One write, unless the disk becomes full in the middle of it.
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        if written.is_err() && self.file.metadata().is_ok_and(|now| now.len() > whole) {
            self.torn = self.file.set_len(whole).is_err().then_some(whole);
        }
        written
    }
}

impl Bucket {
    fn full(now: Instant) -> Self {
        Self { level: BURST, since: now, left_out: 0 }
    }

    fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.since).as_secs_f64() * PER_SECOND;
        self.level = (self.level + gained).min(BURST);
        self.since = now;
        if self.level < 1.0 {
            self.left_out += 1;
            return false;
        }
        self.level -= 1.0;
        true
    }
}

fn open(path: &Path) -> Result<File, AuditError> {
    let failed = |source| AuditError::Open { path: path.into(), source };
    // A pipe without a reader is not waited for.
    let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(flags.bits())
        .open(path)
        .map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(AuditError::NotAFile(path.into()));
    }
    if kind.is_file() {
        end_line(&file).map_err(failed)?;
    }
    Ok(file)
}

/// Ends the last line of a log, if linkd or the machine stopped in the middle of it.
fn end_line(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(LINE_BYTES);
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or_default()];
    file.read_exact_at(&mut tail, start)?;
    let line = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    match &tail[line..] {
        [] => Ok(()),
        part if serde_json::from_slice::<Value>(part).is_err()
            && (part.starts_with(LINE_START) || LINE_START.starts_with(part)) =>
        {
            cut(file, start + line as u64)
        }
        _ => (&*file).write_all(b"\n"),
    }
}

/// Cuts off the part of a line that follows the last whole one. A file that may only grow
/// (chattr +a) keeps it, as a line that is not JSON.
fn cut(mut file: &File, whole: u64) -> io::Result<()> {
    file.set_len(whole).or_else(|_| file.write_all(b"\n"))
}

fn sync(file: &File) {
    // A character device cannot be synced.
    let _ = file.sync_data();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn refusals_are_bounded_and_what_is_left_out_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        let from = "192.0.2.1:5".parse().unwrap();
        for _ in 0..1_000 {
            audit.handshake_refused(from, "\u{0}\n\"no\"");
        }
        let bucket = &audit.0.as_ref().unwrap().handshakes;
        let left_out = bucket.lock().unwrap().left_out;
        bucket.lock().unwrap().since -= Duration::from_secs(1);
        audit.handshake_refused(from, "the last");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[0]["event"], "started");
        assert_eq!(lines[1]["message"], "\u{0}\n\"no\"");
        let [.., summary, last] = &*lines else { panic!("{text}") };
        assert_eq!(last["message"], "the last");
        assert_eq!(summary["event"], "left_out");
        assert_eq!(
            summary["message"],
            format!("{left_out} lines of the kind handshake_refused are left out")
        );
        assert_eq!(lines.len() as u64 - 3 + left_out, 1_000);
        // Only a part of them, on a machine of any speed.
        assert!(lines.len() < 1_000);
    }

    #[test]
    fn a_file_that_is_gone_is_made_anew_and_a_moved_one_is_kept_until_it_is_reopened() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let audit = Audit::open(&at("log")).unwrap();
        let write = |event| audit.write(&Line { event, ..Line::default() }).unwrap();
        std::fs::rename(at("log"), at("log.1")).unwrap();
        write("moved");
        assert!(!at("log").exists());
        audit.reopen().unwrap();
        write("anew");
        std::fs::remove_file(at("log")).unwrap();
        write("removed");
        let read = |name| std::fs::read_to_string(at(name)).unwrap();
        assert!(read("log.1").contains("\"moved\"") && read("log").contains("\"removed\""));
        assert_eq!(std::fs::metadata(at("log")).unwrap().mode() & 0o7137, 0);
    }

    #[test]
    fn part_of_a_line_is_cut_off_when_the_log_is_opened_and_a_whole_one_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let whole = "{\"time\":\"now\"}\n";
        for (before, kept) in [
            ("", ""),
            (whole, whole),
            ("{\"time\":\"no", ""),
            ("{\"ti", ""),
            ("{\"time\":\"now\"}", whole),
            ("{\"time\":\"now\"}\n{\"time\":\"no", whole),
            // Not a line of ours.
            ("a note", "a note\n"),
        ] {
            std::fs::write(&path, before).unwrap();
            Audit::open(&path).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let started = text.strip_prefix(kept).unwrap();
            let started: Value = serde_json::from_str(started).unwrap();
            assert_eq!(started["event"], "started", "{before:?}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("elsewhere", at("link")).unwrap();
        for name in ["pipe", "link", "", "none/log"] {
            assert!(Audit::open(&at(name)).is_err(), "{name}");
        }
        assert!(matches!(Audit::open(Path::new("/dev/full")), Err(AuditError::Write { .. })));
    }
}
