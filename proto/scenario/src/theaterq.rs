// SPDX-License-Identifier: Apache-2.0
//! A trace of TheaterQ as a scenario.
//!
//! TheaterQ is a queueing discipline of Linux whose link follows a trace (M. Ottens,
//! K.-S. Hielscher, R. German, arXiv:2510.27057; units are those of `README.md` and
//! `sch_theaterq.c` in its repository, March 2026). A row of CSV is in force for its KEEP, in
//! µs. LATENCY, JITTER and DUP_DELAY are in ns, RATE in bit/s (-1: not limited, 0: nothing
//! leaves), LOSS and DUP_PROB shares of 2³²-1, LIMIT in packets (or, with `byteqlen`, bytes).
//! A row has five fields (KEEP, LATENCY, RATE, LOSS, LIMIT), or those of its extended format.
//! Lines that begin with `#` are comments. TheaterQ passes over every other line that does not
//! begin with a digit; here such a line is a header, before the first row only, whose columns
//! are looked for by their names.
//!
//! What differs when it is played:
//! - LOSS is drawn where packets leave the shaper, not before the queue.
//! - LIMIT does not count the packet in service there and does here, so it is one packet more;
//!   a packet counts as one of [`FRAME_BYTES`].
//! - Packets keep their order when the latency falls: they do there only within a ROUTE_ID.
//! - JITTER and DUP_DELAY have no counterpart: they are refused unless they are zero, or
//!   ignored on request; likewise a QUEUE_ID that changes.

use crate::limits::{EVERY_NS, FILE_BYTES, LENGTH_NS, STEPS};
use profile::{
    DELAY_BASE_NS, FRAME_BYTES, PIPE_RATE_BPS, QUEUE_LIMIT_BYTES, Rate, format_duration,
    format_probability, format_size, nearest,
};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Read;
use trace::tap::{Line, Lines};

/// Bytes of a trace.
pub const TRACE_BYTES: u64 = 64 << 20;
const US: u64 = 1_000;
/// Characters of a value or name that a message shows.
const SHOWN: usize = 40;

/// A column of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// Duration of a row.
    Keep,
    Latency,
    /// Variation between packets.
    Jitter,
    Rate,
    /// The probability to be lost.
    Loss,
    /// Limit of the queue.
    Limit,
    /// The probability to be duplicated.
    DupProb,
    /// Delay of duplicates, added to the delay.
    DupDelay,
    /// Packets of one route keep their order.
    RouteId,
    QueueId,
}

use Column::{DupDelay, DupProb, Jitter, Keep, Latency, Limit, Loss, QueueId, RouteId};

const SIMPLE: [Column; 5] = [Keep, Latency, Column::Rate, Loss, Limit];
/// The extended format; ROUTE_ID and QUEUE_ID came later, in this order.
const EXTENDED: [Column; 10] =
    [Keep, Latency, Jitter, Column::Rate, Loss, Limit, DupProb, DupDelay, RouteId, QueueId];

impl Column {
    /// As TheaterQ writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Keep => "KEEP",
            Latency => "LATENCY",
            Jitter => "JITTER",
            Self::Rate => "RATE",
            Loss => "LOSS",
            Limit => "LIMIT",
            DupProb => "DUP_PROB",
            DupDelay => "DUP_DELAY",
            RouteId => "ROUTE_ID",
            QueueId => "QUEUE_ID",
        }
    }

    /// The column of a name; upper and lower case are equal.
    ///
    /// # Errors
    /// The fault of the name, and the nearest one.
    pub fn named(name: &str) -> Result<Self, String> {
        let capitals = name.to_ascii_uppercase();
        let names = EXTENDED.map(Self::name);
        EXTENDED.into_iter().find(|column| column.name() == capitals).ok_or_else(|| {
            let remedy = match nearest(&capitals, names) {
                Some(near) => format!("the nearest is {near:?}"),
                None => format!("the columns are {}", names.join(", ")),
            };
            format!("unknown column {:?}: {remedy}", short(name))
        })
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Input and options of an import.
#[derive(Clone, Debug, Default)]
pub struct Import {
    pub name: String,
    /// The profile that it begins with.
    pub profile: String,
    /// Columns of which nothing is taken.
    pub ignored: Vec<Column>,
    /// LIMIT counts bytes.
    pub bytes: bool,
    /// Repeat after the last row, without end; otherwise the last row stays current.
    pub repeated: bool,
}

/// A scenario's text, and what it does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// In TOML.
    pub toml: String,
    /// Differences from TheaterQ, in words.
    pub remarks: Vec<String>,
}

/// Why traces give no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read {file}: {source}")]
    Io { file: String, source: std::io::Error },
    /// More bytes than a trace has.
    #[error("{file} has more than {} MiB: cut it", TRACE_BYTES >> 20)]
    Bytes { file: String },
    /// A line that cannot be understood, or is not possible.
    #[error("{file}:{line}: {problem}")]
    Line {
        file: String,
        /// From 1.
        line: u64,
        /// The fault and the remedy.
        problem: String,
    },
    /// The file is empty.
    #[error("{file} has no rows: write KEEP,LATENCY,RATE,LOSS,LIMIT in each")]
    Empty { file: String },
    /// Two traces that repeat would part.
    #[error(
        "one trace lasts {one} and the other {other}: traces that are repeated must be as long as \
         each other"
    )]
    Lengths {
        /// Length of the forward trace.
        one: String,
        /// Length of the return trace.
        other: String,
    },
    /// More than a scenario holds.
    #[error(
        "{steps} changes make {bytes} bytes, more than the {FILE_BYTES} of a scenario: cut the \
         trace, or let its rows last longer"
    )]
    Long {
        steps: usize,
        /// Bytes of text.
        bytes: usize,
    },
}

/// Parameters of a pipe in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Values {
    base_ns: Option<u64>,
    /// `None` within: not limited.
    rate: Option<Option<u64>>,
    loss: Option<f64>,
    limit: Option<u64>,
    duplicate: Option<f64>,
}

/// A file that is read.
struct Trace {
    /// From when on, and what changes then.
    changes: Vec<(u64, Values)>,
    length_ns: u64,
    remarks: Vec<String>,
}

impl Import {
    /// Makes a scenario of one trace, or of one for each direction; each with its name.
    ///
    /// # Errors
    /// If a file cannot be read or understood, or says what a link cannot be, or they are too
    /// long for a scenario.
    pub fn read(
        &self,
        forward: Option<(&str, &mut dyn Read)>,
        back: Option<(&str, &mut dyn Read)>,
    ) -> Result<Imported, ImportError> {
        let mut source = Vec::new();
        let mut trace = |file: Option<(&str, &mut dyn Read)>| {
            file.map(|(file, bytes)| {
                source.push(plain(file));
                self.trace(file, bytes)
            })
            .transpose()
        };
        let (forward, back) = (trace(forward)?, trace(back)?);
        let length = |trace: &Option<Trace>| trace.as_ref().map(|trace| trace.length_ns);
        let both = length(&forward).zip(length(&back));
        if let Some((one, other)) = both.filter(|(one, other)| self.repeated && one != other) {
            let [one, other] = [one, other].map(format_duration);
            return Err(ImportError::Lengths { one, other });
        }
        let length_ns = length(&forward).max(length(&back)).unwrap_or(0);
        let mut steps = BTreeMap::<u64, [Option<Values>; 2]>::new();
        let mut remarks = Vec::new();
        for (way, trace) in [forward, back].into_iter().enumerate() {
            let Some(trace) = trace else { continue };
            for (at, values) in trace.changes {
                steps.entry(at).or_default()[way] = Some(values);
            }
            remarks.extend(trace.remarks);
        }
        let toml = self.toml(&source.join(" and "), &steps, length_ns);
        if toml.len() > FILE_BYTES || steps.len() as u64 > STEPS {
            return Err(ImportError::Long { steps: steps.len(), bytes: toml.len() });
        }
        Ok(Imported { toml, remarks })
    }

    fn toml(&self, source: &str, steps: &BTreeMap<u64, [Option<Values>; 2]>, end: u64) -> String {
        let mut lines = Vec::new();
        for (at, ways) in steps {
            let at = format_duration(*at);
            let mut line = format!("  {{ at = \"{at}\"");
            for (way, values) in ["forward", "return"].into_iter().zip(ways) {
                if let Some(values) = values {
                    let _ = write!(line, ", {way} = {{ {values} }}");
                }
            }
            lines.push(line + " },");
        }
        // The last row is current until then.
        lines.push(format!("  {{ at = \"{}\" }},", format_duration(end)));
        let steps = lines.join("\n");
        let steps = match self.repeated {
            false => steps,
            true => format!("  {{ repeat = \"forever\", step = [\n{steps}\n  ] }},"),
        };
        format!(
            "name = \"{}\"\ndescription = \"A trace of TheaterQ.\"\nsource = \"{source}\"\n\
             step = [\n  {{ profile = \"{}\" }},\n{steps}\n]\n",
            plain(&self.name),
            plain(&self.profile),
        )
    }

    fn trace(&self, file: &str, bytes: &mut dyn Read) -> Result<Trace, ImportError> {
        let mut lines = Lines::of(Box::new(bytes));
        let (mut columns, mut size) = (None::<Vec<Column>>, 0);
        let (mut changes, mut at_ns) = (Vec::<(u64, Values)>::new(), 0_u64);
        let (mut count, mut last, mut falls) = (0_u64, Values::default(), false);
        let (mut queue_id, mut route_id) = (None, None);
        let unread = |source| ImportError::Io { file: file.into(), source };
        while let Some(Line { number: line, text, .. }) = lines.next().map_err(unread)? {
            size += text.len() as u64 + 1;
            if size > TRACE_BYTES {
                return Err(ImportError::Bytes { file: file.into() });
            }
            if text.trim_ascii().is_empty() || text.starts_with(b"#") {
                continue;
            }
            // TheaterQ takes the text between the commas as a number, without further checks.
            let row: Vec<&[u8]> =
                text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
            let wrong = |problem| ImportError::Line { file: file.into(), line, problem };
            if columns.is_none() && !text.first().is_some_and(u8::is_ascii_digit) {
                columns = Some(header(&row).map_err(wrong)?);
                continue;
            }
            let columns = match &mut columns {
                Some(columns) => columns,
                none => none.insert(format(&row).map_err(wrong)?),
            };
            let fields = self.fields(columns, &row).map_err(wrong)?;
            let values = self.values(&fields).map_err(wrong)?;
            count += 1;
            if count > STEPS {
                let problem = format!("more than {STEPS} rows: cut the trace");
                return Err(wrong(problem));
            }
            if let Some(id) = fields.get(&QueueId)
                && *queue_id.get_or_insert(*id) != *id
            {
                let problem = "QUEUE_ID: a queue for each is none of a scenario's values: write \
                               the same in all rows, or have it ignored";
                return Err(wrong(problem.to_owned()));
            }
            let id = fields.get(&RouteId).copied().unwrap_or(0);
            let ordered = id != 0 && *route_id.get_or_insert(id) == id;
            falls |= !ordered && values.base_ns < last.base_ns;
            let change = values.beside(&last);
            if change != Values::default() {
                changes.push((at_ns, change));
            }
            last = values;
            let keep = fields.get(&Keep).copied().unwrap_or(0).unsigned_abs();
            let keep = u64::try_from(keep).ok().and_then(|us| us.checked_mul(US));
            at_ns = keep
                .filter(|ns| *ns >= *EVERY_NS.start())
                .and_then(|ns| at_ns.checked_add(ns))
                .filter(|at| *at <= LENGTH_NS)
                .ok_or_else(|| {
                    let (least, most) =
                        (format_duration(*EVERY_NS.start()), format_duration(LENGTH_NS));
                    wrong(format!("KEEP: a row lasts {least} or more, and all of them {most}"))
                })?;
        }
        if count == 0 {
            return Err(ImportError::Empty { file: file.into() });
        }
        let mut remarks = Vec::new();
        if falls {
            remarks.push(format!(
                "{file}: the latency falls: TheaterQ may let packets overtake there, here they \
                 keep their order"
            ));
        }
        Ok(Trace { changes, length_ns: at_ns, remarks })
    }

    /// The numbers of a row that are not ignored.
    fn fields(&self, columns: &[Column], row: &[&[u8]]) -> Result<BTreeMap<Column, i128>, String> {
        if row.len() != columns.len() {
            let (given, expected) = (row.len(), columns.len());
            return Err(format!("{given} fields in a trace of {expected} columns: write as many"));
        }
        let mut fields = BTreeMap::new();
        for (column, field) in columns.iter().zip(row) {
            if self.ignored.contains(column) && *column != Keep {
                continue;
            }
            let number = std::str::from_utf8(field).ok().and_then(|text| text.parse::<i128>().ok());
            let least = if *column == Column::Rate { -1 } else { 0 };
            let most = match column {
                Loss | Limit | DupProb | RouteId | QueueId => i128::from(u32::MAX),
                Column::Rate => i128::from(i64::MAX),
                _ => i128::from(u64::MAX),
            };
            let number = number.filter(|number| (least..=most).contains(number));
            let number = number.ok_or_else(|| {
                let given = short(&String::from_utf8_lossy(field));
                format!("{column}: {given:?} is no whole number from {least} to {most}")
            })?;
            fields.insert(*column, number);
        }
        Ok(fields)
    }

    fn values(&self, fields: &BTreeMap<Column, i128>) -> Result<Values, String> {
        let share = |column| {
            let scaled = fields.get(&column)?;
            // Below 2^53: exact.
            Some(*scaled as f64 / f64::from(u32::MAX))
        };
        let whole = |column| fields.get(&column).map(|n| u64::try_from(*n).unwrap_or(u64::MAX));
        if whole(Jitter).is_some_and(|ns| ns > 0) {
            return Err(unheard_of(Jitter, "a delay that is drawn for each packet is"));
        }
        if whole(DupDelay).is_some_and(|ns| ns > 0) && share(DupProb).is_some_and(|p| p > 0.0) {
            return Err(unheard_of(DupDelay, "a delay of duplicates is"));
        }
        let base_ns = whole(Latency);
        if let Some(ns) = base_ns.filter(|ns| !DELAY_BASE_NS.contains(ns)) {
            let (ns, most) = (format_duration(ns), format_duration(*DELAY_BASE_NS.end()));
            return Err(format!("LATENCY: {ns} is more than {most}"));
        }
        let rate = fields.get(&Column::Rate).map(|bps| u64::try_from(*bps).ok());
        if let Some(Some(bps)) = rate
            && bps != 0
            && !PIPE_RATE_BPS.contains(&bps)
        {
            let [least, most] = [*PIPE_RATE_BPS.start(), *PIPE_RATE_BPS.end()]
                .map(|bps| Rate::from_bps(Some(bps)).to_string());
            return Err(format!("RATE: {bps} bit/s is not from {least} to {most}, 0 or -1"));
        }
        let limit = match whole(Limit) {
            Some(0) => {
                return Err("LIMIT: 0 is no limit there, and here a queue has one: write one, or \
                            have the column ignored for that of the profile"
                    .to_owned());
            }
            Some(n) if self.bytes => Some(n.saturating_add(FRAME_BYTES)),
            Some(n) => Some(n.saturating_add(1).saturating_mul(FRAME_BYTES)),
            None => None,
        };
        if let Some(bytes) = limit.filter(|bytes| !QUEUE_LIMIT_BYTES.contains(bytes)) {
            let (bytes, most) = (format_size(bytes), format_size(*QUEUE_LIMIT_BYTES.end()));
            return Err(format!("LIMIT: {bytes} is more than {most}"));
        }
        Ok(Values { base_ns, rate, loss: share(Loss), limit, duplicate: share(DupProb) })
    }
}

/// The columns of rows without a header.
fn format(row: &[&[u8]]) -> Result<Vec<Column>, String> {
    match row.len() {
        5 => Ok(SIMPLE.to_vec()),
        n @ 8..=10 => Ok(EXTENDED[..n].to_vec()),
        n => Err(format!(
            "{n} fields are neither the 5 of TheaterQ's simple format nor the 8 to 10 of the \
             extended one: name them in a first line, such as KEEP,LATENCY,RATE"
        )),
    }
}

/// The columns that a header names.
fn header(row: &[&[u8]]) -> Result<Vec<Column>, String> {
    let mut columns = Vec::new();
    for field in row {
        let column = Column::named(&String::from_utf8_lossy(field))?;
        if columns.contains(&column) {
            return Err(format!("{column} is named twice"));
        }
        columns.push(column);
    }
    match columns.contains(&Keep) {
        true => Ok(columns),
        false => Err("KEEP is missing: without it nobody knows how long a row lasts".to_owned()),
    }
}

fn unheard_of(column: Column, what: &str) -> String {
    format!("{column}: {what} none of a scenario's values: write 0, or have it ignored")
}

/// A text without what TOML would have to escape.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || "\"\\".contains(c) { '_' } else { c }).collect()
}

fn short(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

impl Values {
    /// The parameters that differ from the row before.
    fn beside(&self, before: &Self) -> Self {
        fn changed<T: PartialEq + Copy>(value: Option<T>, before: Option<T>) -> Option<T> {
            value.filter(|_| value != before)
        }
        Self {
            base_ns: changed(self.base_ns, before.base_ns),
            rate: changed(self.rate, before.rate),
            loss: changed(self.loss, before.loss),
            limit: changed(self.limit, before.limit),
            duplicate: changed(self.duplicate, before.duplicate),
        }
    }
}

/// In a profile's words.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.rate.map(|bps| format!("rate = \"{}\"", Rate::from_bps(bps))),
            self.base_ns.map(|ns| format!("delay.base = \"{}\"", format_duration(ns))),
            self.limit.map(|bytes| format!("queue.limit = \"{}\"", format_size(bytes))),
            self.loss.map(|p| format!("packet_loss = \"{}\"", format_probability(p))),
            self.duplicate.map(|p| format!("duplicate = \"{}\"", format_probability(p))),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests;
