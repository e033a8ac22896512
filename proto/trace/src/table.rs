// SPDX-License-Identifier: Apache-2.0
//! Columns of numbers over time, from CSV or Parquet.
//!
//! The names of the columns give their units. Rows are in the order of their times.

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use std::sync::Arc;
use units::counted;

use crate::error::{Place, RateError};
use crate::number::decimal;
use crate::steps::Trace;
use crate::{RateFormat, S, SPAN_NS};

/// The most rows: four hours and a half at one a millisecond.
const ROWS: usize = 1 << 24;
/// What a Parquet file begins with.
pub(crate) const PARQUET: &[u8] = b"PAR1";

/// A quantity over time.
pub(crate) struct Column {
    /// Name in messages.
    pub name: &'static str,
    /// Column names, and the factor of each to the unit that is used here.
    pub names: [(&'static str, u64); 4],
    /// The names in messages.
    pub listed: &'static str,
    /// Largest value, and its description.
    pub most: (i64, &'static str),
}

pub(crate) const TIME: Column = Column {
    name: "time",
    names: [("time_s", S), ("time_ms", 1_000_000), ("time_us", 1_000), ("time_ns", 1)],
    listed: "time_s, time_ms, time_us or time_ns",
    most: (i64::MAX, "too large"),
};

impl Column {
    /// Index of the column among these names, and the factor of its unit.
    fn find(&self, names: &[String]) -> Option<(usize, u64)> {
        names.iter().enumerate().find_map(|(index, field)| {
            let (_, factor) = self.names.iter().find(|(name, _)| name == field)?;
            Some((index, *factor))
        })
    }

    pub fn missing(&self, names: &[String]) -> RateError {
        RateError::NoColumn { column: self.listed, header: names.join(",") }
    }

    /// Whether a line of CSV names it.
    pub fn is_in(&self, header: &[u8]) -> bool {
        let mut fields = header.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        fields.any(|field| self.names.iter().any(|(name, _)| name.as_bytes() == field))
    }
}

/// Numbers over time. A row holds until the next one, the last as long as the one before.
pub(crate) struct Table {
    /// Names of all columns of the file.
    pub names: Vec<String>,
    times: Vec<i64>,
    /// Those that were asked for, in their order; `None` where the file has none.
    columns: Vec<Option<Vec<u64>>>,
    repeated: u64,
}

/// Where a wanted column is in a row, and the factor of its unit.
struct Wanted<'a> {
    column: &'a Column,
    at: Option<(usize, u64)>,
}

impl Table {
    /// Reads a whole file.
    ///
    /// # Errors
    /// If there is no column of times, or a row cannot be understood.
    pub fn read(
        bytes: Vec<u8>,
        format: RateFormat,
        columns: &[&Column],
    ) -> Result<Self, RateError> {
        match format {
            RateFormat::Parquet => Self::parquet(bytes.into(), columns),
            _ => Self::csv(&bytes, columns),
        }
    }

    fn csv(bytes: &[u8], columns: &[&Column]) -> Result<Self, RateError> {
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .flexible(true)
            .from_reader(bytes);
        let header = reader.byte_headers().map_err(|error| RateError::table("CSV", &error))?;
        let names = header.iter().map(|name| String::from_utf8_lossy(name).into_owned());
        let (mut table, time, wanted) = Self::of(names.collect(), columns)?;
        let mut record = csv::ByteRecord::new();
        while reader.read_byte_record(&mut record).map_err(|e| RateError::table("CSV", &e))? {
            let place = Place::Line(record.position().map_or(0, csv::Position::line));
            let cell = |index: usize| record.get(index);
            let content = || record.iter().collect::<Vec<_>>().join(&b',');
            table.add(time, &wanted, cell, place, content)?;
        }
        Ok(table)
    }

    fn parquet(bytes: Bytes, columns: &[&Column]) -> Result<Self, RateError> {
        let bad = |error: ParquetError| RateError::table("Parquet", &error);
        let length = bytes.len() as u64;
        let reader = SerializedFileReader::new(bytes).map_err(bad)?;
        let chunks = reader.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns);
        if !chunks.into_iter().all(|chunk| is_within(chunk, length)) {
            let why = "a column is not within the file: is it whole?";
            return Err(bad(ParquetError::General(why.to_owned())));
        }
        let file = reader.metadata().file_metadata();
        let rows = usize::try_from(file.num_rows()).unwrap_or(usize::MAX);
        if rows > ROWS {
            return Err(RateError::Rows { most: ROWS });
        }
        let fields = file.schema().get_fields();
        let names: Vec<String> = fields.iter().map(|field| field.name().to_string()).collect();
        let (_, time, wanted) = Self::of(names.clone(), columns)?;
        // Only the columns that are used are decoded. They come in the order of the file.
        let used = std::iter::once(time).chain(wanted.iter().filter_map(|column| column.at));
        let mut used: Vec<usize> = used.map(|(index, _)| index).collect();
        used.sort_unstable();
        used.dedup();
        let fields = used.iter().map(|index| Arc::clone(&fields[*index])).collect();
        let schema = Type::group_type_builder(file.schema().name());
        let schema = schema.with_fields(fields).build().map_err(bad)?;
        let kept: Vec<String> = used.into_iter().map(|index| names[index].clone()).collect();
        let (mut table, time, wanted) = Self::of(kept, columns)?;
        for (number, row) in (1..).zip(reader.get_row_iter(Some(schema)).map_err(bad)?) {
            let cells = texts(&row.map_err(bad)?);
            let cell = |index: usize| cells.get(index).map(String::as_bytes);
            let content = || cells.join(",").into_bytes();
            table.add(time, &wanted, cell, Place::Row(number), content)?;
        }
        table.names = names;
        Ok(table)
    }

    /// An empty table, the place of its times, and those of the columns that are asked for.
    #[allow(clippy::type_complexity)]
    fn of<'a>(
        names: Vec<String>,
        columns: &[&'a Column],
    ) -> Result<(Self, (usize, u64), Vec<Wanted<'a>>), RateError> {
        let time = TIME.find(&names).ok_or_else(|| TIME.missing(&names))?;
        let wanted: Vec<Wanted<'a>> =
            columns.iter().map(|column| Wanted { column, at: column.find(&names) }).collect();
        let columns = wanted.iter().map(|column| column.at.map(|_| Vec::new())).collect();
        Ok((Self { names, times: Vec::new(), columns, repeated: 0 }, time, wanted))
    }

    /// Adds a row. Of rows with the same time the last one counts.
    fn add<'r>(
        &mut self,
        time: (usize, u64),
        wanted: &[Wanted<'_>],
        cell: impl Fn(usize) -> Option<&'r [u8]>,
        place: Place,
        content: impl Fn() -> Vec<u8>,
    ) -> Result<(), RateError> {
        let bad = |problem: &str| RateError::line(place, problem, &content());
        let number = |(index, factor): (usize, u64), name: &str| {
            let text = cell(index).ok_or_else(|| bad("the row has too few fields"))?;
            let number = decimal(text, factor);
            number.map(|n| n.value).ok_or_else(|| bad(&format!("the {name} is no number")))
        };
        let now = number(time, TIME.name)?;
        let again = match self.times.last() {
            Some(before) if now < *before => {
                return Err(bad("this is earlier than the row before"));
            }
            before => before == Some(&now),
        };
        if self.times.first().is_some_and(|first| now.abs_diff(*first) > SPAN_NS) {
            return Err(RateError::Span { place });
        }
        if self.times.len() >= ROWS {
            return Err(RateError::Rows { most: ROWS });
        }
        for (Wanted { column, at }, values) in wanted.iter().zip(&mut self.columns) {
            let (Some(at), Some(values)) = (at, values) else { continue };
            let value = number(*at, column.name)?;
            if !(0..=column.most.0).contains(&value) {
                return Err(bad(&format!("the {} is negative, or {}", column.name, column.most.1)));
            }
            if again {
                values.pop();
            }
            values.push(value.unsigned_abs());
        }
        if again {
            self.repeated += 1;
        } else {
            self.times.push(now);
        }
        Ok(())
    }

    /// A column that was asked for, as pieces; `None` if the file has none.
    ///
    /// # Errors
    /// If it is of less than two times.
    pub fn pieces(&self, column: usize) -> Result<Option<Trace>, RateError> {
        let Some(Some(values)) = self.columns.get(column) else { return Ok(None) };
        let mut spacings: Vec<u64> =
            self.times.windows(2).map(|pair| pair[1].abs_diff(pair[0])).collect();
        let (Some(start), Some(last)) = (self.times.first(), spacings.last().copied()) else {
            return Err(RateError::NoDuration);
        };
        let ends = self.times.iter().skip(1).map(|time| time.abs_diff(*start));
        let end = self.times.last().map_or(0, |time| time.abs_diff(*start)).saturating_add(last);
        let mut from = 0;
        let pieces = ends.chain([end]).zip(values).map(|(until, value)| {
            let carries = u128::from(until - from) * u128::from(*value);
            from = until;
            (until, carries)
        });
        let pieces = pieces.collect();
        let middle = spacings.len() / 2;
        let usual_step_ns = *spacings.select_nth_unstable(middle).1;
        Ok(Some(Trace { pieces, usual_step_ns }))
    }

    /// Corrections that were made, as text.
    pub fn remarks(&self) -> Vec<String> {
        let rows = counted(self.repeated, "row has", "rows have");
        let again = format!("{rows} the time of the row before: the last of each was kept.");
        if self.repeated > 0 { vec![again] } else { Vec::new() }
    }
}

/// Whether the place of a column's data is one in a file of `length` bytes. The reader panics at others.
fn is_within(chunk: &ColumnChunkMetaData, length: u64) -> bool {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let end = start.checked_add(chunk.compressed_size());
    start >= 0 && end.is_some_and(|end| end >= start && end.unsigned_abs() <= length)
}

/// The fields of a row as CSV would have them. A missing value is empty.
fn texts(row: &Row) -> Vec<String> {
    let text = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Float(value) => value.to_string(),
        Field::Double(value) => value.to_string(),
        Field::Str(value) => value.clone(),
        other => other.to_string(),
    };
    row.get_column_iter().map(|(_, field)| text(field)).collect()
}
