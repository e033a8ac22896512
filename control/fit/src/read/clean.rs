// SPDX-License-Identifier: Apache-2.0
//! From the rows of a log to a baseline: in order, each probe once, at a known interval.
//!
//! Every correction is counted and reported in the baseline's remarks; a fault that cannot be
//! corrected is an error.

use super::error::{Place, ReadError, counted, duration};
use super::spacing::{self, Interval};
use super::{Limits, place, waiting};
use crate::baseline::{Baseline, Format, OneWay, Source, Spacing};
use jiff::Timestamp;

/// Round trip of a lost probe in a row.
pub(super) const LOST: u64 = u64::MAX;

/// Longest plausible round trip: 1 h.
const RTT_NS: i64 = 3_600_000_000_000;

/// A probe as a log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub line: u64,
    pub sequence: u64,
    /// By any clock that has one origin for the whole log.
    pub sent_ns: i64,
    /// The round trip, or [`LOST`].
    pub rtt_ns: u64,
}

impl Row {
    pub fn rtt(&self) -> Option<u64> {
        (self.rtt_ns != LOST).then_some(self.rtt_ns)
    }
}

/// Meaning of a sequence number without a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Lost,
    /// A probe of which nothing is known.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Log {
    pub format: Format,
    pub rows: Vec<Row>,
    /// Converts a row's line number to its place.
    pub place: fn(u64) -> Place,
    /// Whether the log has sequence numbers; otherwise the order in time gives them.
    pub numbered: bool,
    pub missing: Missing,
    /// The interval of a log without send times: they are its multiples.
    pub untimed: Option<u64>,
    /// The number of the probe that was sent first, if it is known.
    pub first: Option<u64>,
    /// One more than the number of the probe that was sent last, if it is known.
    pub end: Option<u64>,
    /// Whether the prober may have been stopped with probes on their way.
    pub stopped: bool,
    /// Lines, ascending, at or after which probes come after a break.
    pub breaks: Vec<u64>,
    /// Probing interval from the log.
    pub interval: Option<u64>,
    pub spacing: Option<Spacing>,
    /// The spacing that the user states.
    pub stated: Option<Spacing>,
    /// Whether the user says that the times are those of answers and timeouts.
    pub done: bool,
    /// The step of its round trips.
    pub resolution_ns: u64,
    /// One-way delays, to be believed if they are plausible.
    pub there: Vec<i64>,
    pub back: Vec<i64>,
    /// When the first probe was sent and when the last one was sent or came back, by the wall
    /// clock.
    pub recorded: Option<[Timestamp; 2]>,
    pub remarks: Vec<String>,
    pub limits: Limits,
}

impl Log {
    /// An empty log of a format.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            rows: Vec::new(),
            place: Place::Line,
            numbered: true,
            missing: Missing::Lost,
            untimed: None,
            first: None,
            end: None,
            stopped: false,
            breaks: Vec::new(),
            interval: None,
            spacing: None,
            stated: None,
            done: false,
            resolution_ns: 1,
            there: Vec::new(),
            back: Vec::new(),
            recorded: None,
            remarks: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Adds a row, if there may be more.
    pub fn push(&mut self, row: Row) -> Result<(), ReadError> {
        self.limits.check(self.rows.len() as u64 + 1)?;
        self.rows.push(row);
        Ok(())
    }

    /// Whether the log says that it was interrupted between two rows.
    pub fn breaks_between(&self, before: &Row, after: &Row) -> bool {
        let next = self.breaks.partition_point(|line| *line <= before.line);
        self.breaks.get(next).is_some_and(|line| *line <= after.line)
    }
}

/// When probes were sent and answered, by send times of the wall clock, in ns since 1970, and round
/// trips: from the first time to the last.
pub(super) fn recorded(probes: impl Iterator<Item = (i64, Option<u64>)>) -> Option<[Timestamp; 2]> {
    let times = probes.map(|(sent, rtt)| (sent, sent.saturating_add_unsigned(rtt.unwrap_or(0))));
    let (first, last) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let time = |ns: i64| Timestamp::from_nanosecond(ns.into()).ok();
    Some([time(first)?, time(last)?])
}

/// A round trip as a row holds it, or the error that names it.
pub(super) fn round_trip(
    ns: i64,
    place: Place,
    text: impl FnOnce() -> String,
) -> Result<u64, ReadError> {
    match u64::try_from(ns) {
        Ok(rtt) if rtt > 0 && ns <= RTT_NS => Ok(rtt),
        _ => Err(ReadError::RoundTrip { place, rtt: text() }),
    }
}

/// Makes a baseline of a log.
pub(super) fn clean(
    mut log: Log,
    name: String,
    sha256: String,
    given: Option<u64>,
) -> Result<Baseline, ReadError> {
    let mut remarks = std::mem::take(&mut log.remarks);
    let one_way = one_way(&mut log, &mut remarks);
    order(&mut log, &mut remarks);
    let longest = enough(&log)?;
    let done = log.done;
    waiting::to_the_beginning(&mut log, done, &mut remarks);
    let interval = interval(&mut log, given, &mut remarks)?;
    if interval.ns == 0 {
        return Err(ReadError::Interval { interval: duration(0) });
    }
    interval.agrees(given, "--interval")?;
    let series = place::place(&log, &interval, longest, &mut remarks)?;
    Ok(Baseline {
        source: Source { name, format: log.format, sha256 },
        interval_ns: interval.ns,
        spacing: interval.spacing,
        waiting: interval.waiting,
        resolution_ns: log.resolution_ns,
        series,
        one_way,
        recorded: log.recorded,
        emulator: None,
        remarks,
    })
}

/// The probing interval.
fn interval(
    log: &mut Log,
    given: Option<u64>,
    remarks: &mut Vec<String>,
) -> Result<Interval, ReadError> {
    if let Some(ns) = log.untimed {
        return Ok(Interval::stated(ns, log.rows.len()));
    }
    let coarse = match (Interval::of(log, remarks), given) {
        (Ok(interval), _) => return as_stated(log, interval, remarks),
        (Err(ReadError::CoarseTimes { .. }), Some(given)) => given,
        // The numbers tell how many probes were sent.
        (Err(ReadError::CoarseTimes { .. }), None) if log.numbered => spacing::whole_mean(log),
        (Err(error), _) => return Err(error),
    };
    Interval::stated(spacing::whole_mean(log), 0).agrees(Some(coarse), "--interval")?;
    remarks.push(
        "The time stamps are coarser than the interval: send times are the probe's number times the \
         interval."
            .into(),
    );
    log.untimed = Some(coarse);
    Ok(Interval::stated(coarse, log.rows.len()))
}

/// The interval that was found, or the one that the file says, if a busy prober sent as many
/// probes as that makes, but not in time.
fn as_stated(log: &Log, found: Interval, remarks: &mut Vec<String>) -> Result<Interval, ReadError> {
    let origin = "the file itself";
    let Err(differs) = found.agrees(log.interval, origin) else { return Ok(found) };
    let whole = Interval { ns: spacing::whole_mean(log), ..found };
    let (Ok(()), Some(ns)) = (whole.agrees(log.interval, origin), log.interval) else {
        return Err(differs);
    };
    remarks.push(format!(
        "The prober was often late: half of its intervals are {} or less, where the file says {}; \
         the send times are as they were logged.",
        duration(found.ns),
        duration(ns)
    ));
    Ok(Interval { ns, ..found })
}

/// Puts the rows in order and drops all but the first of each number.
fn order(log: &mut Log, remarks: &mut Vec<String>) {
    let numbered = log.numbered;
    let key = |row: &Row| if numbered { row.sequence.cast_signed() } else { row.sent_ns };
    let mut latest = i64::MIN;
    let mut late = 0;
    for row in &log.rows {
        late += u64::from(key(row) < latest);
        latest = latest.max(key(row));
    }
    if late > 0 {
        log.rows.sort_unstable_by_key(|row| (key(row), row.line));
        let by = if numbered { "sequence number" } else { "send time" };
        let rows = counted(late, "probe was", "probes were");
        remarks.push(format!("{rows} logged out of order: the log was sorted by {by}."));
    }
    if !numbered {
        (0..).zip(&mut log.rows).for_each(|(sequence, row)| row.sequence = sequence);
        return;
    }
    let before = log.rows.len();
    log.rows.dedup_by(|next, kept| {
        let same = next.sequence == kept.sequence;
        if same && kept.rtt_ns == LOST {
            *kept = *next;
        }
        same
    });
    let repeated = (before - log.rows.len()) as u64;
    if repeated > 0 {
        let rows = counted(repeated, "row repeats", "rows repeat");
        remarks.push(format!("{rows} a sequence number: the first answer of each was kept."));
    }
}

/// Checks that there is something to measure; the longest round trip.
fn enough(log: &Log) -> Result<u64, ReadError> {
    let (mut first, mut end) = (log.first.unwrap_or(u64::MAX), log.end.unwrap_or(0));
    if let (Some(row), Some(last)) = (log.rows.first(), log.rows.last()) {
        first = first.min(row.sequence);
        end = end.max(last.sequence.saturating_add(1));
    }
    let (rows, all) = (log.rows.len() as u64, end.saturating_sub(first));
    let probes = match log.missing {
        Missing::Lost => rows.max(all),
        Missing::Unknown => rows,
    };
    log.limits.check(probes)?;
    match probes {
        0 => return Err(ReadError::NoProbe),
        1 => return Err(ReadError::OneProbe),
        _ => {}
    }
    let answered = log.rows.iter().map(|row| row.rtt_ns).filter(|rtt| *rtt != LOST);
    let Some(longest) = answered.max() else { return Err(ReadError::AllLost { probes }) };
    let missing = all.saturating_sub(rows);
    if log.missing == Missing::Lost && missing > rows.saturating_mul(9).saturating_add(100_000) {
        return Err(ReadError::MostlyMissing { missing, probes: rows });
    }
    Ok(longest)
}

/// Medians of the one-way delays, if they can be those of synchronised clocks: both are
/// positive and together they are a round trip.
fn one_way(log: &mut Log, remarks: &mut Vec<String>) -> Option<OneWay> {
    let there = median(&mut std::mem::take(&mut log.there))?;
    let back = median(&mut std::mem::take(&mut log.back))?;
    let answered = log.rows.iter().map(|row| row.rtt_ns).filter(|rtt| *rtt != LOST);
    let round_trip = median(&mut answered.map(u64::cast_signed).collect::<Vec<_>>())?;
    let text = |ns: i64| {
        let sign = if ns < 0 { "-" } else { "" };
        format!("{sign}{}", duration(ns.unsigned_abs()))
    };
    let figures = format!(
        "The median one-way delays of the log are {} there and {} back, that of the round trip {}",
        text(there),
        text(back),
        text(round_trip)
    );
    let sum = i128::from(there) + i128::from(back);
    let off = (sum - i128::from(round_trip)).unsigned_abs();
    if there <= 0 || back <= 0 || off * 20 > u128::from(round_trip.unsigned_abs()) {
        remarks.push(format!("{figures}: the clocks were not synchronised, they were not used."));
        return None;
    }
    if log.format == Format::Irtt {
        remarks.push(format!(
            "{figures}: they were used, but irtt does not say whether the clocks were synchronised."
        ));
    }
    Some(OneWay { there_ns: there.unsigned_abs(), back_ns: back.unsigned_abs() })
}

fn median(sample: &mut [i64]) -> Option<i64> {
    let middle = sample.len() / 2;
    (!sample.is_empty()).then(|| *sample.select_nth_unstable(middle).1)
}
