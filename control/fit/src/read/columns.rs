// SPDX-License-Identifier: Apache-2.0
//! A table with columns that the user named or numbered. Fields are separated by commas,
//! semicolons, tabs or spaces; lines that begin with `#` are comments. The first row is a header if
//! it cannot be read as a probe.

use super::Limits;
use super::clean::{LOST, Log, Row, recorded, round_trip};
use super::error::{Place, ReadError, shown};
use super::number::{Steps, decimal};
use super::tap::{Bytes, Tap};
use crate::baseline::Format;
use csv::{ByteRecord, Reader, ReaderBuilder, Terminator};
use std::fmt;
use std::io::Read;
use std::str::FromStr;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// Times from the year 2000 on, in ns since 1970, are those of a wall clock.
const WALL_CLOCK_NS: i64 = 946_684_800_000_000_000;
/// Separators of fields, in the order in which they are tried.
pub(super) const SEPARATORS: &[u8] = b",;\t ";

/// Names and units of the columns of a table.
///
/// As a text: `sent=NAME[:UNIT],rtt=NAME[:UNIT],seq=NAME,lost=TEXT`, the last two optional, with
/// `done=` in place of `sent=` if the times are those of answers and timeouts. A column without a
/// name has its number, from 1. Or the meaning of each column in turn, as in `time:s,rtt:ms`: `time`
/// (or `sent`), `done`, `rtt`, `seq`, and `_` for any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The column of the send times: `NAME` or `NAME:UNIT`, with the unit `s`, `ms`, `us`,
    /// `ns`, `unix` (seconds) or `rfc3339`; seconds, or a date, if it is left out.
    pub sent: String,
    /// Whether these are the times of answers and timeouts.
    pub done: bool,
    /// The column of the round trips: `NAME` or `NAME:UNIT`; milliseconds if it is left
    /// out. An empty cell is a loss, as are -1 and words such as `NaN` and `timeout`.
    pub rtt: String,
    /// The column of the sequence numbers. Numbers without a row are losses.
    pub sequence: Option<String>,
    /// Another text that marks a loss in the column of the round trips, or the column that says
    /// whether a probe was lost.
    pub lost: Option<String>,
}

impl FromStr for Columns {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Self, ReadError> {
        let error = |problem: String| ReadError::ColumnsText { text: text.into(), problem };
        let (mut sent, mut rtt, mut sequence, mut lost) = (None, None, None, None);
        let mut done = false;
        let in_turn = !text.contains('=');
        for (number, part) in (1..).zip(text.split(',')) {
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key.trim(), value.to_owned()),
                None if in_turn => {
                    let (key, unit) = part.trim().split_once(':').map_or((part.trim(), ""), |p| p);
                    let colon = if unit.is_empty() { "" } else { ":" };
                    (key, format!("{number}{colon}{unit}"))
                }
                None => return Err(error(format!("{part:?} has no =; write sent=NAME,rtt=NAME"))),
            };
            let place = match key {
                "sent" => &mut sent,
                "time" if in_turn => &mut sent,
                "done" => {
                    done = true;
                    &mut sent
                }
                "rtt" => &mut rtt,
                "seq" => &mut sequence,
                "lost" if !in_turn => &mut lost,
                "_" if in_turn => continue,
                key if in_turn => {
                    return Err(error(format!(
                        "{key:?} is none of time, done, rtt, seq and _; or write sent=NAME,rtt=NAME"
                    )));
                }
                key => {
                    let problem = format!("{key:?} is none of sent, done, rtt, seq and lost");
                    return Err(error(problem));
                }
            };
            if place.replace(value).is_some() {
                return Err(error(format!("{key:?} is there twice")));
            }
        }
        let example = |key: &str| if in_turn { key.to_owned() } else { format!("{key}=NAME") };
        let missing = |key: &str| error(format!("{} is missing", example(key)));
        Ok(Self {
            sent: sent.ok_or_else(|| missing(if in_turn { "time" } else { "sent" }))?,
            done,
            rtt: rtt.ok_or_else(|| missing("rtt"))?,
            sequence,
            lost,
        })
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = if self.done { "done" } else { "sent" };
        write!(f, "{time}={},rtt={}", self.sent, self.rtt)?;
        let rest = [("seq", &self.sequence), ("lost", &self.lost)];
        rest.iter().try_for_each(|(key, value)| match value {
            Some(value) => write!(f, ",{key}={value}"),
            None => Ok(()),
        })
    }
}

/// How a cell is read.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// A number of so many nanoseconds.
    Number(u64),
    Rfc3339,
}

/// Splits `NAME:UNIT`.
fn named(text: &str) -> (&str, Option<Unit>) {
    let with_unit = || {
        let (name, unit) = text.rsplit_once(':')?;
        let unit = match unit {
            "s" | "unix" => Unit::Number(S),
            "ms" => Unit::Number(MS),
            "us" => Unit::Number(1_000),
            "ns" => Unit::Number(1),
            "rfc3339" => Unit::Rfc3339,
            _ => return None,
        };
        Some((name, Some(unit)))
    };
    with_unit().unwrap_or((text, None))
}

/// Where the columns are.
struct Layout<'a> {
    columns: &'a Columns,
    sent: (usize, Unit),
    rtt: (usize, u64),
    sequence: Option<usize>,
    lost: Option<Lost<'a>>,
    fields: usize,
    /// Whether the first row has the names.
    header: bool,
}

/// What marks a loss in addition to the usual words.
enum Lost<'a> {
    Text(&'a [u8]),
    Column(usize),
}

impl<'a> Layout<'a> {
    /// From the first row, which has the names if it is a header.
    fn find(columns: &'a Columns, first: &ByteRecord) -> Result<Self, ReadError> {
        let by_name = |name: &str| {
            first.iter().position(|field| field.trim_ascii() == name.trim().as_bytes())
        };
        let by_number = |name: &str| {
            let number = name.trim().parse::<usize>().ok()?.checked_sub(1)?;
            (number < first.len()).then_some(number)
        };
        let at = |name: &str| {
            by_name(name)
                .or_else(|| by_number(name))
                .ok_or_else(|| ReadError::NoColumn { column: name.into(), header: joined(first) })
        };
        let (sent, sent_unit) = named(&columns.sent);
        let (rtt, rtt_unit) = named(&columns.rtt);
        let rtt_unit = match rtt_unit {
            Some(Unit::Number(unit)) => unit,
            None => MS,
            Some(Unit::Rfc3339) => {
                return Err(ReadError::ColumnsText {
                    text: columns.rtt.clone(),
                    problem: "a round trip is no date: its unit is s, ms, us or ns".into(),
                });
            }
        };
        let sent = at(sent)?;
        let dated = || first.get(sent).is_some_and(|cell| date(cell.trim_ascii()).is_some());
        let default = if dated() { Unit::Rfc3339 } else { Unit::Number(S) };
        let lost = columns.lost.as_deref().map(|lost| match by_name(lost) {
            Some(column) => Lost::Column(column),
            None => Lost::Text(lost.as_bytes()),
        });
        let mut layout = Self {
            columns,
            sent: (sent, sent_unit.unwrap_or(default)),
            rtt: (at(rtt)?, rtt_unit),
            sequence: columns.sequence.as_deref().map(at).transpose()?,
            lost,
            fields: first.len(),
            header: true,
        };
        let mut scratch = Log::new(Format::Columns);
        let probe = row(&layout, first, 1, &mut scratch, &mut Steps::new(1));
        layout.header = probe.is_err();
        Ok(layout)
    }

    /// These columns with a text that marks a loss.
    fn with_lost(&self, text: &[u8]) -> String {
        let lost = Some(String::from_utf8_lossy(text).into_owned());
        Columns { lost, ..self.columns.clone() }.to_string()
    }
}

/// A date and time in nanoseconds; without a zone, in UTC.
pub(super) fn date(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let time = match text.parse::<jiff::Timestamp>() {
        Ok(time) => time,
        Err(_) => {
            let civil = text.parse::<jiff::civil::DateTime>().ok().filter(|_| text.len() > 10)?;
            civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()
        }
    };
    i64::try_from(time.as_nanosecond()).ok()
}

/// A record approximately as the file had it.
fn joined(record: &ByteRecord) -> String {
    shown(&record.iter().collect::<Vec<_>>().join(&b","[..]))
}

/// Reads a file that begins with `head`. Returns the log and the SHA-256 of the file.
pub(super) fn read(
    bytes: Bytes<'_>,
    head: &[u8],
    columns: &Columns,
    limits: Limits,
) -> Result<(Log, String), ReadError> {
    let builder = |delimiter: u8| {
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).comment(Some(b'#')).buffer_capacity(1 << 16);
        // With \r in the last field, where it is trimmed, lines are counted as editors do.
        builder.delimiter(delimiter).terminator(Terminator::Any(b'\n'));
        builder
    };
    // The separator with which the named columns exist.
    let with = |delimiter: u8| {
        let mut header = ByteRecord::new();
        let mut reader = builder(delimiter).from_reader(head);
        next(&mut reader, &mut header).is_ok() && Layout::find(columns, &header).is_ok()
    };
    let delimiter = SEPARATORS.iter().copied().find(|d| with(*d)).unwrap_or(b',');
    let mut reader = builder(delimiter).from_reader(Tap::lines(bytes));
    let mut record = ByteRecord::new();
    if !next(&mut reader, &mut record)? {
        return Err(ReadError::NoProbe);
    }
    if let Some(first) = record.get(0).and_then(|field| field.strip_prefix(super::tap::BOM)) {
        let fields = std::iter::once(first).chain(record.iter().skip(1)).map(<[u8]>::to_vec);
        record = fields.collect::<Vec<_>>().into();
    }
    let layout = Layout::find(columns, &record)?;
    let numbered = layout.sequence.is_some();
    let mut log = Log { numbered, done: columns.done, limits, ..Log::new(Format::Columns) };
    let mut steps = Steps::new(layout.rtt.1);
    let mut line = 0;
    let mut first = !layout.header;
    while std::mem::take(&mut first) || next(&mut reader, &mut record)? {
        // The reader stands after the line's end.
        line = reader.position().line().saturating_sub(1);
        if let Err(error) = row(&layout, &record, line, &mut log, &mut steps) {
            // The last line, cut off where the writer was stopped?
            if next(&mut reader, &mut record)? || reader.get_ref().ended() {
                return Err(error);
            }
            log.remarks.push("The last line is cut off: left out.".into());
            break;
        }
    }
    let first = log.rows.first().map_or(0, |row| row.sent_ns);
    if first >= WALL_CLOCK_NS && !columns.done {
        log.recorded = recorded(log.rows.iter().map(|row| (row.sent_ns, row.rtt())));
    }
    // The last line may have none.
    let last = log.rows.last_mut().filter(|row| row.line == line && !reader.get_ref().ended());
    if let Some(row) = last {
        row.line += 1;
    }
    log.resolution_ns = steps.step();
    Ok((log, reader.into_inner().sha256()?))
}

/// The next record that is no blank line.
fn next<R: Read>(reader: &mut Reader<R>, record: &mut ByteRecord) -> Result<bool, ReadError> {
    loop {
        let found = reader.read_byte_record(record).map_err(|error| match error.into_kind() {
            csv::ErrorKind::Io(error) => error.into(),
            kind => ReadError::Malformed { format: Format::Columns, problem: format!("{kind:?}") },
        })?;
        if !found || record.len() != 1 || !record[0].trim_ascii().is_empty() {
            return Ok(found);
        }
    }
}

/// Whether a cell in place of a round trip says that the probe was lost, as probers write it.
fn is_lost(cell: &[u8]) -> bool {
    const WORDS: [&str; 17] = [
        "nan",
        "null",
        "none",
        "nil",
        "na",
        "n/a",
        "inf",
        "lost",
        "loss",
        "timeout",
        "timed out",
        "timed_out",
        "request timed out",
        "unreachable",
        "*",
        "-",
        "--",
    ];
    let minus_one = decimal(cell, 1_000).is_some_and(|n| n.value == -1_000);
    cell.is_empty() || minus_one || WORDS.iter().any(|w| cell.eq_ignore_ascii_case(w.as_bytes()))
}

/// Whether a cell of a column of losses says that the probe was lost.
fn is_true(cell: &[u8]) -> bool {
    ["1", "true", "yes", "y", "x", "lost", "true_up", "true_down"]
        .iter()
        .any(|w| cell.eq_ignore_ascii_case(w.as_bytes()))
}

fn row(
    layout: &Layout<'_>,
    record: &ByteRecord,
    line: u64,
    log: &mut Log,
    steps: &mut Steps,
) -> Result<(), ReadError> {
    let place = Place::Line(line);
    let bad = |problem: String| ReadError::Line { place, problem, content: joined(record) };
    if record.len() != layout.fields {
        let problem = format!("{} fields where the header has {}", record.len(), layout.fields);
        return Err(bad(problem));
    }
    let cell = |index: usize| record.get(index).unwrap_or_default().trim_ascii();
    let sequence = match layout.sequence {
        Some(index) => {
            let number = decimal(cell(index), 1).filter(|n| n.decimals == 0);
            let number = number.and_then(|n| u64::try_from(n.value).ok());
            number.ok_or_else(|| bad("the sequence number is no whole number".into()))?
        }
        None => 0,
    };
    let rtt = cell(layout.rtt.0);
    let lost = is_lost(rtt)
        || match layout.lost {
            Some(Lost::Text(text)) => text == rtt,
            Some(Lost::Column(index)) => is_true(cell(index)),
            None => false,
        };
    let sent = cell(layout.sent.0);
    if lost && sent.is_empty() && log.numbered {
        // Its number tells that it was sent, and so when.
        log.first = Some(log.first.map_or(sequence, |first| first.min(sequence)));
        log.end = Some(log.end.unwrap_or(0).max(sequence.saturating_add(1)));
        return Ok(());
    }
    let sent_ns = match layout.sent.1 {
        Unit::Number(unit) => decimal(sent, unit).map(|number| number.value),
        Unit::Rfc3339 => date(sent),
    };
    let sent_ns = sent_ns.ok_or_else(|| {
        bad(match layout.sent.1 {
            Unit::Number(_) => {
                "the send time is no number; if it is a date, its unit is rfc3339".into()
            }
            Unit::Rfc3339 => "the send time is no date and time, as 2020-07-24T00:00:00Z".into(),
        })
    })?;
    let rtt_ns = if lost {
        LOST
    } else {
        let number = decimal(rtt, layout.rtt.1).ok_or_else(|| {
            let columns = layout.with_lost(rtt);
            bad(format!(
                "the round trip is no number; if it marks a lost probe: --columns {columns:?}"
            ))
        })?;
        let ns = round_trip(number.value, place, || shown(rtt));
        let ns = ns.map_err(|error| match number.value {
            ..=0 => bad(format!(
                "a round trip must be more than zero; if it marks a lost probe: --columns {:?}",
                layout.with_lost(rtt)
            )),
            _ => error,
        })?;
        steps.see(number);
        ns
    };
    log.push(Row { line, sequence, sent_ns, rtt_ns })
}
