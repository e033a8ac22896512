// SPDX-License-Identifier: Apache-2.0
//! Finds the end of a log in order to resume it. Only head and tail are read, so the time does not
//! depend on the length of the log.

use super::error::{LogError, failed};
use super::format::{COLUMNS, constants};
use crate::plan::{Plan, Spacing};
use crate::prober::Start;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Upper limit of the length of a head, in bytes.
const HEAD: u64 = 1 << 16;
/// The last row and the comments after it are shorter.
const TAIL: u64 = 1 << 20;

/// State of an open log that a run needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// First probe of the run.
    pub start: Start,
    /// Seed of a Poisson schedule, from the log or the plan.
    pub seed: Option<u64>,
}

/// Content of a log.
#[derive(Debug)]
pub(super) struct Found {
    head: HashMap<String, String>,
    /// Number and `sent_s` of the last row.
    last: Option<(u64, Duration)>,
    /// The length of the whole lines.
    pub(super) whole: u64,
}

/// Reads a log that is `length` long.
pub(super) fn read(file: &mut File, path: &Path, length: u64) -> Result<Found, LogError> {
    let foreign = |why: String| LogError::Foreign { path: path.into(), why };
    let mut part = |from: u64, length: u64| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from)).map_err(failed("read", path))?;
        file.take(length).read_to_end(&mut bytes).map_err(failed("read", path))?;
        Ok::<_, LogError>(bytes)
    };
    let bytes = part(0, HEAD.min(length))?;
    let mut head = HashMap::new();
    let mut after_head = 0;
    let columns = loop {
        let rest = bytes.get(after_head..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| foreign("its head has no end".into()))?;
        let line = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
        after_head += end + 1;
        match line.strip_prefix("# ").map(|line| line.split_once(" = ")) {
            Some(Some((key, value))) => head.insert(key.to_owned(), value.to_owned()),
            Some(None) => None,
            None => break line.into_owned(),
        };
    };
    if columns != COLUMNS.join(",") {
        let columns: String = columns.chars().take(80).collect();
        return Err(foreign(format!("its columns are {columns:?}, not {:?}", COLUMNS.join(","))));
    }
    let after_head = after_head as u64;
    let from = after_head.max(length.saturating_sub(TAIL));
    let mut tail = part(from, length - from)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    tail.truncate(whole);
    let mut lines = tail.split(|byte| *byte == b'\n').rev();
    // The first line of the tail may be cut off at its front: it is reached only if no row follows.
    let last = match lines.find(|line| !line.is_empty() && !line.starts_with(b"#")) {
        None if from == after_head => None,
        None => return Err(foreign("no row is near its end".into())),
        Some(line) => {
            let line = String::from_utf8_lossy(line);
            let shown: String = line.chars().take(80).collect();
            Some(row(&line).ok_or_else(|| foreign(format!("its last line {shown:?} is no row")))?)
        }
    };
    Ok(Found { head, last, whole: from + whole as u64 })
}

/// The number and `sent_s` of a row.
fn row(line: &str) -> Option<(u64, Duration)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [sequence, sent_utc, sent_s, _, _, _] = fields.as_slice() else { return None };
    humantime::parse_rfc3339(sent_utc).ok()?;
    let (seconds, ns) = sent_s.split_once('.').filter(|(_, ns)| ns.len() == 9)?;
    Some((sequence.parse().ok()?, Duration::new(seconds.parse().ok()?, ns.parse().ok()?)))
}

impl Found {
    /// Returns where a run at `now` continues, if the log was made by the same plan.
    pub(super) fn go_on(
        &self,
        path: &Path,
        plan: &Plan,
        now: SystemTime,
    ) -> Result<Opened, LogError> {
        let foreign = |why: String| LogError::Foreign { path: path.into(), why };
        let entry = |key: &str| {
            let value = self.head.get(key).map(String::as_str);
            value.ok_or_else(|| foreign(format!("its head does not say its {key}")))
        };
        let mut differences = Vec::new();
        for (key, here) in constants(plan) {
            let there = entry(key)?;
            if there != here {
                differences.push(format!("{key} = {there}, not {here}"));
            }
        }
        let seed = match plan.spacing {
            Spacing::Constant => None,
            Spacing::Poisson { seed: here } => {
                let there = entry("seed")?;
                let seed = there.parse().map_err(|_| foreign(format!("its seed is {there:?}")))?;
                if let Some(here) = here.filter(|here| *here != seed) {
                    differences.push(format!("seed = {seed}, not {here}"));
                }
                Some(seed)
            }
        };
        if !differences.is_empty() {
            return Err(LogError::Different { path: path.into(), differences });
        }
        let started = entry("started_utc")?;
        let started = humantime::parse_rfc3339(started)
            .map_err(|_| foreign(format!("its started_utc is {started:?}")))?;
        let by_wall_clock = now.duration_since(started).unwrap_or_default();
        let start = match self.last {
            None => Start { sequence: 0, elapsed: by_wall_clock },
            // Time ascends also if the wall clock was set back.
            Some((sequence, sent)) => {
                let sequence = sequence.checked_add(1);
                let sequence =
                    sequence.ok_or_else(|| foreign("its last number is the largest".into()))?;
                let after = sent.saturating_add(plan.interval);
                Start { sequence, elapsed: by_wall_clock.max(after) }
            }
        };
        Ok(Opened { start, seed })
    }
}
