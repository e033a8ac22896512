// SPDX-License-Identifier: Apache-2.0
//! Which columns a table seems to have, for the message that asks for them.
//!
//! Names count first, then values: times ascend, and round trips do not. The user confirms the guess.
//! A guess with which the first row is neither a header nor a probe is not made.

use super::columns::{Columns, SEPARATORS, are_of, date, name_in};
use super::tap::BOM;
use csv::{ByteRecord, ReaderBuilder};

/// Rows that are looked at.
const ROWS: usize = 200;

/// The option `--columns` for a file that begins with `head`.
pub(super) fn guess(head: &[u8]) -> Option<String> {
    let head = head.strip_prefix(BOM).unwrap_or(head);
    // The last line may be cut off.
    let whole = memchr::memrchr(b'\n', head).map_or(head, |end| &head[..end]);
    SEPARATORS.iter().find_map(|separator| {
        let mut reader = ReaderBuilder::new();
        reader.has_headers(false).flexible(true).comment(Some(b'#')).delimiter(*separator);
        let rows = reader.from_reader(whole).into_byte_records().take(ROWS).filter_map(Result::ok);
        let rows: Vec<ByteRecord> = rows.filter(|row| row.len() > 1).collect();
        let guess = of_rows(&rows, true).or_else(|| of_rows(&rows, false))?;
        guess.parse::<Columns>().is_ok_and(|columns| are_of(&columns, head)).then_some(guess)
    })
}

/// Guesses the columns of these rows. `header`: the first row has their names.
fn of_rows(rows: &[ByteRecord], header: bool) -> Option<String> {
    let first = rows.first()?;
    let number = |row: &ByteRecord, column: usize| {
        let text = std::str::from_utf8(row.get(column)?).ok()?;
        text.trim().parse::<f64>().ok().filter(|number| number.is_finite())
    };
    let dated = |row: &ByteRecord, column: usize| {
        row.get(column).and_then(|cell| date(cell.trim_ascii())).is_some()
    };
    let body = &rows[usize::from(header)..];
    let columns: Vec<Column> = (0..first.len())
        .map(|index| {
            let name = name_in(first, index).filter(|_| header);
            Column {
                name: name.map_or_else(|| (index + 1).to_string(), str::to_owned),
                dated: body.first().is_some_and(|row| dated(row, index)),
                values: body.iter().filter_map(|row| number(row, index)).collect(),
            }
        })
        .collect();
    let named = |words: &[&str]| columns.iter().position(|c| c.is_named(words));
    let time = named(&["sent", "time", "timestamp", "ts", "date", "when", "epoch"])
        .or_else(|| columns.iter().position(|c| c.dated || c.is_epoch()))
        .or_else(|| columns.iter().position(|c| c.ascends() && !c.counts()))
        .or_else(|| columns.iter().position(Column::ascends))?;
    let rtt = named(&["rtt", "latency", "ping", "delay", "roundtrip", "ms"])
        .filter(|rtt| *rtt != time)
        .or_else(|| {
            let other = |(i, c): (usize, &Column)| {
                (i != time && !c.values.is_empty() && !c.ascends()).then_some(i)
            };
            columns.iter().enumerate().find_map(other)
        })?;
    let sequence = columns.iter().enumerate().find(|(i, c)| *i != time && *i != rtt && c.counts());
    let mut used = [Some(time), Some(rtt), sequence.map(|(i, _)| i)].into_iter().flatten();
    if header && used.any(|c| number(first, c).is_some() || dated(first, c)) {
        return None;
    }
    let (time, rtt) = (&columns[time], &columns[rtt]);
    let sequence = sequence.map_or(String::new(), |(_, c)| format!(",seq={}", c.name));
    let rtt_unit = rtt.unit_in_name().unwrap_or("ms");
    Some(format!("sent={}:{},rtt={}:{rtt_unit}{sequence}", time.name, time.unit(), rtt.name))
}

struct Column {
    name: String,
    dated: bool,
    values: Vec<f64>,
}

impl Column {
    /// Whether a part of its name is one of these words.
    fn is_named(&self, words: &[&str]) -> bool {
        let name = self.name.to_ascii_lowercase();
        name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| words.contains(&part))
    }

    fn ascends(&self) -> bool {
        self.values.len() > 1 && self.values.is_sorted_by(|a, b| a < b)
    }

    /// Whether it has whole numbers, mostly each one more than the one before.
    fn counts(&self) -> bool {
        let next = |p: &&[f64]| p[0].fract() == 0.0 && p[1] - p[0] == 1.0;
        let steps = self.values.windows(2).filter(next).count();
        self.ascends() && 2 * steps >= self.values.len()
    }

    /// Whether it has times since 1970, after 2001.
    fn is_epoch(&self) -> bool {
        self.ascends() && self.values[0] >= 1e9
    }

    fn unit_in_name(&self) -> Option<&'static str> {
        ["ms", "us", "ns", "s"].into_iter().find(|unit| self.is_named(&[unit]))
    }

    /// The unit of times.
    fn unit(&self) -> &'static str {
        if self.dated {
            return "rfc3339";
        }
        match self.values.first().copied().unwrap_or(0.0) {
            1e9..1e11 => "s",
            1e11..1e14 => "ms",
            1e14..1e17 => "us",
            1e17.. => "ns",
            _ => self.unit_in_name().unwrap_or("s"),
        }
    }
}
