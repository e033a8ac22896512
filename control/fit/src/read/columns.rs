// SPDX-License-Identifier: Apache-2.0
//! CSV with a header and columns that the user named. Fields may be separated by commas,
//! semicolons or tabs; lines that begin with `#` are comments.

use super::clean::{LOST, Log, Row, round_trip};
use super::error::{Place, ReadError, shown};
use super::number::{Steps, decimal};
use super::tap::{Bytes, Tap};
use crate::baseline::Format;
use csv::{ByteRecord, Reader, ReaderBuilder, Terminator};
use std::io::Read;
use std::str::FromStr;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Names and units of the columns of a CSV file.
///
/// As a text: `sent=NAME[:UNIT],rtt=NAME[:UNIT],seq=NAME,lost=TEXT`, the last two optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The column of the send times: `NAME` or `NAME:UNIT`, with the unit `s`, `ms`, `us`,
    /// `ns`, `unix` (seconds) or `rfc3339`; seconds if it is left out.
    pub sent: String,
    /// The column of the round trips: `NAME` or `NAME:UNIT`; milliseconds if it is left
    /// out. An empty cell is a loss.
    pub rtt: String,
    /// The column of the sequence numbers. Numbers without a row are losses.
    pub sequence: Option<String>,
    /// The text that marks a loss in the column of the round trips.
    pub lost: Option<String>,
}

impl FromStr for Columns {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Self, ReadError> {
        let error = |problem: String| ReadError::ColumnsText { text: text.into(), problem };
        let (mut sent, mut rtt, mut sequence, mut lost) = (None, None, None, None);
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| error(format!("{part:?} has no =; write sent=NAME,rtt=NAME")))?;
            let place = match key.trim() {
                "sent" => &mut sent,
                "rtt" => &mut rtt,
                "seq" => &mut sequence,
                "lost" => &mut lost,
                key => {
                    let problem = format!("{key:?} is none of sent, rtt, seq and lost");
                    return Err(error(problem));
                }
            };
            if place.replace(value.to_string()).is_some() {
                return Err(error(format!("{key:?} is there twice")));
            }
        }
        let missing = |key: &str| error(format!("{key}=NAME is missing"));
        Ok(Self {
            sent: sent.ok_or_else(|| missing("sent"))?,
            rtt: rtt.ok_or_else(|| missing("rtt"))?,
            sequence,
            lost,
        })
    }
}

/// How a cell is read.
#[derive(Clone, Copy)]
enum Unit {
    /// A number of so many nanoseconds.
    Number(u64),
    Rfc3339,
}

/// Splits `NAME:UNIT`.
fn named(text: &str, default: u64) -> (&str, Unit) {
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
        Some((name, unit))
    };
    with_unit().unwrap_or((text, Unit::Number(default)))
}

struct Layout<'a> {
    sent: (usize, Unit),
    rtt: (usize, u64),
    sequence: Option<usize>,
    lost: Option<&'a [u8]>,
    fields: usize,
}

impl<'a> Layout<'a> {
    fn find(columns: &'a Columns, header: &ByteRecord) -> Result<Self, ReadError> {
        let at = |name: &str| {
            header
                .iter()
                .position(|field| field.trim_ascii() == name.trim().as_bytes())
                .ok_or_else(|| ReadError::NoColumn { column: name.into(), header: joined(header) })
        };
        let (sent, sent_unit) = named(&columns.sent, S);
        let (rtt, rtt_unit) = named(&columns.rtt, MS);
        let Unit::Number(rtt_unit) = rtt_unit else {
            return Err(ReadError::ColumnsText {
                text: columns.rtt.clone(),
                problem: "a round trip is no date: its unit is s, ms, us or ns".into(),
            });
        };
        Ok(Self {
            sent: (at(sent)?, sent_unit),
            rtt: (at(rtt)?, rtt_unit),
            sequence: columns.sequence.as_deref().map(at).transpose()?,
            lost: columns.lost.as_deref().map(str::as_bytes),
            fields: header.len(),
        })
    }
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
    let delimiter = b",;\t".iter().copied().find(|d| with(*d)).unwrap_or(b',');
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
    let mut log = Log { numbered: layout.sequence.is_some(), ..Log::new(Format::Columns) };
    let mut steps = Steps::new(layout.rtt.1);
    let mut line = 0;
    while next(&mut reader, &mut record)? {
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
    let lost = rtt.is_empty() || layout.lost.is_some_and(|lost| lost == rtt);
    let sent = cell(layout.sent.0);
    if lost && sent.is_empty() && log.numbered {
        // Its number tells that it was sent, and so when.
        log.first = Some(log.first.map_or(sequence, |first| first.min(sequence)));
        log.end = Some(log.end.unwrap_or(0).max(sequence.saturating_add(1)));
        return Ok(());
    }
    let sent_ns = match layout.sent.1 {
        Unit::Number(unit) => decimal(sent, unit).map(|number| number.value),
        Unit::Rfc3339 => std::str::from_utf8(sent)
            .ok()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
            .and_then(|time| i64::try_from(time.as_nanosecond()).ok()),
    };
    let sent_ns = sent_ns.ok_or_else(|| {
        bad(match layout.sent.1 {
            Unit::Number(_) => "the send time is no number".into(),
            Unit::Rfc3339 => {
                "the send time is no date and time with a zone, as 2020-07-24T00:00:00Z".into()
            }
        })
    })?;
    let rtt_ns = if lost {
        LOST
    } else {
        let number = decimal(rtt, layout.rtt.1).ok_or_else(|| {
            bad("the round trip is no number; if it marks a lost probe, name it: lost=TEXT".into())
        })?;
        steps.see(number);
        round_trip(number.value, place, || shown(rtt))?
    };
    log.rows.push(Row { line, sequence, sent_ns, rtt_ns });
    Ok(())
}
