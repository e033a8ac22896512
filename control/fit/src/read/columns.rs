// SPDX-License-Identifier: Apache-2.0
//! A table with columns that the user named or numbered. Fields are separated by commas,
//! semicolons, tabs or spaces; lines that begin with `#` are comments.
//!
//! The first row is a header if it has one of the names and cannot be read as a probe. Otherwise it
//! must be a probe, and columns have their numbers only.

use super::Limits;
use super::clean::{LOST, Log, Row, recorded, round_trip};
use super::error::{Place, ReadError, shown};
use super::number::{Steps, decimal};
use super::tap::{BOM, Bytes, Tap};
use crate::baseline::Format;
use csv::{ByteRecord, Reader, ReaderBuilder, Terminator};
use std::fmt;
use std::io::{self, Read};
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
/// name has its number, from 1; in a table without a header a number is nothing else. Or the meaning
/// of each column in turn, as in `time:s,rtt:ms`: `time` (or `sent`), `done`, `rtt`, `seq`, and `_`
/// for any other.
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
    /// Seconds or a date: no unit was given.
    Any,
}

/// Whether a name is the number of a column, from 1.
fn number(name: &str) -> Option<usize> {
    name.trim().parse().ok()
}

/// The column of a header that has this name.
fn position(header: &ByteRecord, name: &str) -> Option<usize> {
    header.iter().position(|field| field.trim_ascii() == name.trim().as_bytes())
}

/// A name with which [`Columns`] finds this column of a header again. None if the cell is empty or a
/// number, is repeated, or cannot be written there.
pub(super) fn name_in(header: &ByteRecord, column: usize) -> Option<&str> {
    let name = std::str::from_utf8(header.get(column)?.trim_ascii()).ok()?;
    let is_number = decimal(name.as_bytes(), 1).is_some();
    let usable = !name.is_empty() && !name.contains(',') && !is_number;
    (usable && position(header, name) == Some(column)).then_some(name)
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
        let names = [named(&columns.sent).0, named(&columns.rtt).0];
        let mut names = names.into_iter().chain(columns.sequence.as_deref());
        if names.any(|name| number(name).is_none() && position(first, name).is_some()) {
            let layout = Self::of(columns, first, true)?;
            if layout.probe(first, 1).is_err() {
                return Ok(layout);
            }
        }
        Self::of(columns, first, false)
    }

    fn of(columns: &'a Columns, first: &ByteRecord, header: bool) -> Result<Self, ReadError> {
        let by_name = |name: &str| position(first, name).filter(|_| header);
        let at = |name: &str| {
            let by_number = || number(name)?.checked_sub(1).filter(|column| *column < first.len());
            by_name(name).or_else(by_number).ok_or_else(|| ReadError::NoColumn {
                column: name.into(),
                row: if header { "header" } else { "first row" },
                content: joined(first),
            })
        };
        let (sent, sent_unit) = named(&columns.sent);
        let (rtt, rtt_unit) = named(&columns.rtt);
        let rtt_unit = match rtt_unit {
            Some(Unit::Number(unit)) => unit,
            None | Some(Unit::Any) => MS,
            Some(Unit::Rfc3339) => {
                return Err(ReadError::ColumnsText {
                    text: columns.rtt.clone(),
                    problem: "a round trip is no date: its unit is s, ms, us or ns".into(),
                });
            }
        };
        let lost = columns.lost.as_deref().map(|lost| match by_name(lost) {
            Some(column) => Lost::Column(column),
            None => Lost::Text(lost.as_bytes()),
        });
        Ok(Self {
            columns,
            sent: (at(sent)?, sent_unit.unwrap_or(Unit::Any)),
            rtt: (at(rtt)?, rtt_unit),
            sequence: columns.sequence.as_deref().map(at).transpose()?,
            lost,
            fields: first.len(),
            header,
        })
    }

    /// Reads a row as a probe, for nothing but its errors.
    fn probe(&self, record: &ByteRecord, line: u64) -> Result<(), ReadError> {
        let numbered = self.sequence.is_some();
        let mut log = Log { numbered, ..Log::new(Format::Columns) };
        row(self, record, line, &mut log, &mut Steps::new(1))
    }

    /// Checks a first row that is no header.
    fn check(&self, first: &ByteRecord, line: u64) -> Result<(), ReadError> {
        self.probe(first, line).map_err(|error| match error {
            ReadError::Line { place, problem, content } => {
                let problem = format!("{problem}; {}", self.remedy(first));
                ReadError::Line { place, problem, content }
            }
            other => other,
        })
    }

    /// How a first row that is neither a header nor a probe can be read.
    fn remedy(&self, first: &ByteRecord) -> String {
        let cells = [Some(self.sent.0), Some(self.rtt.0), self.sequence];
        let mut cells = cells.into_iter().flatten().filter_map(|column| first.get(column));
        let is_text = |cell: &[u8]| cell.trim_ascii().first().is_some_and(u8::is_ascii_alphabetic);
        match self.named_by(first).filter(|_| cells.all(is_text)) {
            Some(columns) => format!(
                "if this row is the header, name the columns: --columns {columns:?}; if it is no \
                 probe, begin it with #"
            ),
            None => "correct it, or begin it with # to leave it out".into(),
        }
    }

    /// These columns by the names of a header, if it has one that can be used.
    fn named_by(&self, header: &ByteRecord) -> Option<String> {
        let named_by = |text: &str, column: usize| {
            let unit = &text[named(text).0.len()..];
            let name = name_in(header, column).filter(|name| named(name).1.is_none());
            name.map(|name| format!("{name}{unit}"))
        };
        let (sent, rtt) = (&self.columns.sent, &self.columns.rtt);
        let by_name = (named_by(sent, self.sent.0), named_by(rtt, self.rtt.0));
        let sequence = self.sequence.and_then(|column| name_in(header, column).map(str::to_owned));
        let any = by_name.0.is_some() || by_name.1.is_some() || sequence.is_some();
        let columns = Columns {
            sent: by_name.0.unwrap_or_else(|| sent.clone()),
            rtt: by_name.1.unwrap_or_else(|| rtt.clone()),
            sequence: sequence.or_else(|| self.columns.sequence.clone()),
            ..self.columns.clone()
        };
        any.then(|| columns.to_string())
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
    let delimiter = separator(head, columns).0;
    let mut tap = Tap::lines(bytes);
    if head.starts_with(BOM) {
        io::copy(&mut (&mut tap).take(BOM.len() as u64), &mut io::sink())?;
    }
    let mut reader = builder(delimiter).from_reader(tap);
    let mut record = ByteRecord::new();
    if !next(&mut reader, &mut record)? {
        return Err(ReadError::NoProbe);
    }
    let layout = Layout::find(columns, &record)?;
    if !layout.header {
        // The reader stands after the line's end.
        layout.check(&record, reader.position().line().saturating_sub(1).max(1))?;
    }
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

fn builder(delimiter: u8) -> ReaderBuilder {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).flexible(true).comment(Some(b'#')).buffer_capacity(1 << 16);
    // With \r in the last field, where it is trimmed, lines are counted as editors do.
    builder.delimiter(delimiter).terminator(Terminator::Any(b'\n'));
    builder
}

/// The separator of a file that begins with `head`, and whether its first row is a header or a probe
/// with it. If it is neither with any, the separator with which the columns exist.
fn separator(head: &[u8], columns: &Columns) -> (u8, bool) {
    let head = head.strip_prefix(BOM).unwrap_or(head);
    let fits = |delimiter: u8| {
        let mut first = ByteRecord::new();
        next(&mut builder(delimiter).from_reader(head), &mut first).ok().filter(|found| *found)?;
        let layout = Layout::find(columns, &first).ok()?;
        Some((delimiter, layout.header || layout.probe(&first, 1).is_ok()))
    };
    let all = || SEPARATORS.iter().filter_map(|delimiter| fits(*delimiter));
    all().find(|(_, reads)| *reads).or_else(|| all().next()).unwrap_or((b',', false))
}

/// Whether the columns are those of a file that begins with `head`.
pub(super) fn are_of(columns: &Columns, head: &[u8]) -> bool {
    separator(head, columns).1
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
        let first = if layout.header { "header" } else { "first row" };
        let problem = format!("{} fields where the {first} has {}", record.len(), layout.fields);
        return Err(bad(problem));
    }
    let cell = |index: usize| record.get(index).unwrap_or_default().trim_ascii();
    let sequence = match layout.sequence {
        Some(index) => {
            let number = decimal(cell(index), 1).filter(|n| n.decimals == 0);
            let number = number.and_then(|n| u64::try_from(n.value).ok());
            number.ok_or_else(|| {
                let cell = shown(cell(index));
                bad(format!("the sequence number {cell:?} is no whole number from 0 on"))
            })?
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
        Unit::Any => decimal(sent, S).map(|number| number.value).or_else(|| date(sent)),
    };
    let sent_ns = sent_ns.ok_or_else(|| {
        let problem = match layout.sent.1 {
            Unit::Number(_) | Unit::Any if decimal(sent, 1).is_some() => {
                "is more than 292 years: is the unit right?"
            }
            Unit::Number(_) => "is no number; if it is a date, its unit is rfc3339",
            Unit::Rfc3339 => "is no date and time, as 2020-07-24T00:00:00Z",
            Unit::Any => "is neither a number of seconds nor a date and time",
        };
        bad(format!("the send time {:?} {problem}", shown(sent)))
    })?;
    let rtt_ns = if lost {
        LOST
    } else {
        let number = decimal(rtt, layout.rtt.1).ok_or_else(|| {
            let columns = layout.with_lost(rtt);
            bad(format!(
                "the round trip {:?} is no number; if it marks a lost probe: --columns {columns:?}",
                shown(rtt)
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
