// SPDX-License-Identifier: Apache-2.0
//! The output of `linkctl probe send`: comment lines `# key = value`, a header, and a row of CSV
//! without quotes for each probe that was sent, in order. An empty round trip is a loss.
//!
//! A row's time is `sent_s`, of a monotonic clock; a comment `# resumed_utc = ...` marks
//! a pause between two rows, over which `sent_s` continues by the wall clock.

use super::Limits;
use super::clean::{LOST, Log, Missing, Row, round_trip};
use super::error::{Place, ReadError, counted, shown};
use super::number::{Steps, decimal};
use super::tap::{Bytes, Line, Lines};
use crate::baseline::{Format, Spacing};
use ::probe::log::{COLUMNS, FORMAT};
use jiff::Timestamp;
use std::time::Duration;

/// Beginning of such a file, of any version.
pub(super) const MAGIC: &str = "# format = linkemu-probe";
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Returns the log and the SHA-256 of the file.
pub(super) fn read(bytes: Bytes<'_>, limits: Limits) -> Result<(Log, String), ReadError> {
    let mut lines = Lines::of(bytes);
    let mut reader = Reader::new();
    reader.log.limits = limits;
    // An unreadable row; the next line determines whether the writer was stopped.
    let mut doubt: Option<ReadError> = None;
    let mut dropped = 0;
    while let Some(line) = lines.next()? {
        if line.cut {
            // Even if it can be read: of a number, the last digits may be missing.
            dropped += 1;
            break;
        }
        if let Some(comment) = line.text.strip_prefix(b"#") {
            let resumed = reader.comment(comment, line.number)?;
            if let Some(error) = doubt.take() {
                if !resumed {
                    return Err(error);
                }
                dropped += 1;
            }
            continue;
        }
        if let Some(error) = doubt.take() {
            return Err(error);
        }
        if !line.text.is_empty() {
            doubt = reader.row(&line).err();
        }
    }
    if let Some(error) = doubt {
        return Err(error);
    }
    let mut log = reader.finish()?;
    if dropped > 0 {
        let lines = counted(dropped, "line is cut off", "lines are cut off");
        log.remarks.push(format!("{lines}, as by a crash of the prober: left out."));
    }
    Ok((log, lines.sha256()?))
}

/// A file that is being read.
struct Reader {
    log: Log,
    steps: Steps,
    version: bool,
    header: bool,
    synchronised: bool,
    /// Whether the next row begins a run.
    resumed: bool,
    /// Offset of the sequence numbers of this run.
    renumber: u64,
    next: u64,
    /// When the first probe was sent, by the wall clock; none if that cannot be read.
    first_utc: Option<Timestamp>,
    /// The same of the last, as it is written.
    last_utc: Vec<u8>,
}

impl Reader {
    fn new() -> Self {
        Self {
            log: Log { missing: Missing::Unknown, ..Log::new(Format::Probe) },
            steps: Steps::new(MS),
            version: false,
            header: false,
            synchronised: false,
            resumed: false,
            renumber: 0,
            next: 0,
            first_utc: None,
            last_utc: Vec::new(),
        }
    }

    /// Returns whether the comment marks a resumed run.
    fn comment(&mut self, text: &[u8], number: u64) -> Result<bool, ReadError> {
        let text = String::from_utf8_lossy(text);
        let Some((key, value)) = text.split_once('=') else { return Ok(false) };
        let value = value.trim().trim_matches('"');
        let bad = |problem: String| ReadError::line(Place::Line(number), problem, value.as_bytes());
        match key.trim() {
            "format" if value == FORMAT => self.version = true,
            "format" => return Err(malformed(format!("it is {value:?}, not {FORMAT}"))),
            "interval" => {
                let interval = profile::parse_duration(value).map_err(|e| bad(e.to_string()))?;
                self.log.interval = Some(interval);
            }
            "spacing" => {
                self.log.spacing = Some(match value {
                    "constant" => Spacing::Constant,
                    "poisson" => Spacing::Poisson,
                    _ => return Err(bad("the spacing is neither constant nor poisson".into())),
                });
            }
            "synchronised" => {
                self.synchronised = match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(bad("synchronised is neither true nor false".into())),
                };
            }
            "resumed_utc" => {
                self.log.breaks.push(number);
                self.resumed = true;
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    fn row(&mut self, line: &Line<'_>) -> Result<(), ReadError> {
        let place = Place::Line(line.number);
        let bad = |problem: &str| ReadError::line(place, problem, line.text);
        if !self.header {
            let header = COLUMNS.join(",");
            if line.text != header.as_bytes() {
                let problem = format!("its header is {:?}", shown(line.text));
                return Err(malformed(format!("{problem}, not {header:?}")));
            }
            self.header = true;
            return Ok(());
        }
        let mut fields = line.text.split(|byte| *byte == b',');
        let mut field = || fields.next().ok_or_else(|| bad("the row has fewer than six fields"));
        let (sequence, utc, sent) = (field()?, field()?, field()?);
        let (rtt, there, back) = (field()?, field()?, field()?);
        if fields.next().is_some() {
            return Err(bad("the row has more than six fields"));
        }
        let sequence = decimal(sequence, 1).filter(|n| n.decimals == 0);
        let sequence = sequence.and_then(|n| u64::try_from(n.value).ok());
        let sequence = sequence.ok_or_else(|| bad("sequence is no whole number"))?;
        let sent_ns = decimal(sent, S).ok_or_else(|| bad("sent_s is no number"))?.value;
        let rtt_ns = if rtt.is_empty() {
            LOST
        } else {
            let number = decimal(rtt, MS).ok_or_else(|| bad("rtt_ms is no number"))?;
            let ns = round_trip(number.value, place, || format!("{} ms", shown(rtt)))?;
            self.steps.see(number);
            ns
        };
        if self.synchronised && !there.is_empty() && !back.is_empty() {
            let one_way = |text| decimal(text, MS).map(|number| number.value);
            let delays = one_way(there).zip(one_way(back));
            let (there, back) = delays.ok_or_else(|| bad("a one-way delay is no number"))?;
            self.log.there.push(there);
            self.log.back.push(back);
        }
        if std::mem::take(&mut self.resumed) {
            // Numbers that start again follow those of the run before.
            self.renumber = self.next.saturating_sub(sequence);
        }
        let sequence = sequence.saturating_add(self.renumber).min(i64::MAX.unsigned_abs());
        self.next = self.next.max(sequence.saturating_add(1));
        if self.log.rows.is_empty() {
            self.first_utc = timestamp(utc);
        }
        self.last_utc.clear();
        self.last_utc.extend_from_slice(utc);
        self.log.push(Row { line: line.number, sequence, sent_ns, rtt_ns })
    }

    fn finish(mut self) -> Result<Log, ReadError> {
        if !self.version {
            return Err(malformed(format!("it has no line {:?}", format!("# format = {FORMAT}"))));
        }
        self.log.resolution_ns = self.steps.step();
        let rtt_ns = self.log.rows.last().and_then(Row::rtt).unwrap_or(0);
        let end = timestamp(&self.last_utc);
        let end = end.and_then(|t| t.checked_add(Duration::from_nanos(rtt_ns)).ok());
        self.log.recorded = self.first_utc.zip(end).map(|(first, end)| [first, end]);
        Ok(self.log)
    }
}

fn timestamp(text: &[u8]) -> Option<Timestamp> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn malformed(problem: String) -> ReadError {
    ReadError::Malformed { format: Format::Probe, problem }
}
