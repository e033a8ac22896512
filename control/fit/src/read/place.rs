// SPDX-License-Identifier: Apache-2.0
//! Probes in time: from the clock of a log to time since the first probe, with the lost
//! probes in their places, and interrupted where the clock was set or no probes were sent.
//!
//! Send times come out strictly ascending over the whole series.

use super::clean::{Log, Missing, Row};
use super::error::{Place, ReadError, counted, duration};
use super::spacing::Interval;
use crate::baseline::{Format, Probe, Series, Spacing};

const S: u64 = 1_000_000_000;
const CENTURY_NS: u64 = 36_525 * 86_400 * S;
/// Breaks that are named in the remarks, each with its line.
const NAMED: u64 = 5;

/// Places the probes of a log with the given longest round trip.
pub(super) fn place(
    log: &Log,
    interval: &Interval,
    longest: u64,
    remarks: &mut Vec<String>,
) -> Result<Series, ReadError> {
    let mut rows = log.rows.iter();
    let Some(mut before) = rows.next() else { return Err(ReadError::NoProbe) };
    let mut placing = Placing::begin(log, interval, before);
    for row in rows {
        placing.next(before, row)?;
        before = row;
    }
    placing.end(before, longest)?;
    placing.jumps.remark(log, remarks)?;
    placing.counts.remark(log, remarks);
    Ok(placing.series)
}

/// A series that is being made.
struct Placing<'a> {
    log: &'a Log,
    interval: &'a Interval,
    series: Series,
    /// When the last probe was sent.
    last: u64,
    /// From the log's clock to time since the first probe.
    offset: i128,
    jumps: Jumps,
    counts: Counts,
}

impl<'a> Placing<'a> {
    /// Places the first row, and the probes before it.
    fn begin(log: &'a Log, interval: &'a Interval, row: &Row) -> Self {
        let (series, jumps, counts) = (Series::default(), Jumps::default(), Counts::default());
        let mut placing = Self { log, interval, series, last: 0, offset: 0, jumps, counts };
        let leading = log.first.map_or(0, |first| row.sequence.saturating_sub(first));
        for probe in 0..leading {
            placing.push(probe.saturating_mul(interval.ns), None);
        }
        placing.push(leading.saturating_mul(interval.ns), row.rtt());
        placing.offset = i128::from(placing.last) - sent(log, row);
        placing
    }

    /// Places a row, and the probes without one between it and the one before.
    fn next(&mut self, before: &Row, row: &Row) -> Result<(), ReadError> {
        let place = (self.log.place)(row.line);
        let numbers = row.sequence.saturating_sub(before.sequence).max(1);
        let expected = self.interval.expected(before, numbers);
        let elapsed = sent(self.log, row) - sent(self.log, before);
        let resumed = self.log.breaks_between(before, row);
        let late = elapsed - expected;
        let limit = self.limit(expected, numbers);
        let back = elapsed < -self.rounding() || (!resumed && late < -limit);
        if back {
            // Only the sequence numbers determine the real length.
            self.offset = i128::from(self.last) + expected - sent(self.log, row);
        }
        let time = u64::try_from(sent(self.log, row) + self.offset).unwrap_or(0);
        let time = time.max(self.last.saturating_add(1));
        if time > CENTURY_NS {
            return Err(ReadError::Span { place });
        }
        let (between, counts) = (numbers - 1, &mut self.counts);
        counts.resumed += u64::from(resumed);
        let held_up = resumed || late > limit;
        if back && !resumed {
            self.jumps.see(place, late);
        } else if late > limit && !resumed {
            self.counts.pause(place, late);
        }
        if between > 0 && (resumed || self.log.missing == Missing::Unknown) {
            self.counts.unknown += between;
        } else {
            let constant = self.interval.spacing == Spacing::Constant;
            let long = constant && 2 * elapsed > 3 * expected;
            self.counts.gaps += u64::from(long && !self.log.numbered);
            self.counts.crowded += u64::from(elapsed <= 0 && !back);
            self.counts.filled += between;
            let start = self.last;
            // If the prober was held up, the lost probes were sent before that.
            let whole = if held_up { expected } else { i128::from(time - start) };
            let whole = u128::try_from(whole).unwrap_or(0).min(u128::from(time - start));
            let all = self.interval.expected(before, numbers).unsigned_abs().max(1);
            for number in 1..numbers {
                let share = self.interval.expected(before, number).unsigned_abs();
                self.push(start.saturating_add((whole * share / all) as u64), None);
            }
        }
        if back {
            self.series.interrupt();
        } else if held_up || (between > 0 && self.log.missing == Missing::Unknown) {
            self.series.pause();
        }
        self.push(time, row.rtt());
        Ok(())
    }

    /// Time stamps and round trips are rounded: that far, time may seem to go back.
    fn rounding(&self) -> i128 {
        i128::from((self.interval.ns / 2).min(1_000_000))
    }

    /// Largest difference between the time that passed and the time that the sequence numbers explain.
    fn limit(&self, expected: i128, numbers: u64) -> i128 {
        // In intervals. The chance of an exponential one over 30 is 1e-13; the sum of n of
        // them has a standard deviation of √n.
        let usual = match self.interval.spacing {
            Spacing::Constant | Spacing::Irregular => 10.0,
            Spacing::Poisson => 30.0 + 10.0 * (numbers as f64).sqrt(),
        };
        let usual = (usual * self.interval.ns as f64) as i128;
        // A prober's pace drifts: over many probes that is a share of them.
        usual.max(i128::from(S)).max(expected / 20)
    }

    /// Places the probes after the last row.
    fn end(&mut self, last: &Row, longest: u64) -> Result<(), ReadError> {
        let end = self.log.end.unwrap_or(0);
        let after = end.saturating_sub(last.sequence).saturating_sub(1);
        // A prober that is stopped leaves unanswered what a round trip holds.
        let held = longest.saturating_add(self.interval.ns / 2) / self.interval.ns;
        self.counts.held = if self.log.stopped { after.min(held) } else { 0 };
        let start = self.last;
        for number in 1..=after - self.counts.held {
            let later = self.interval.expected(last, number).unsigned_abs();
            let later = u64::try_from(later).unwrap_or(u64::MAX);
            self.push(start.saturating_add(later), None);
        }
        if self.last > CENTURY_NS {
            return Err(ReadError::Span { place: (self.log.place)(last.line) });
        }
        Ok(())
    }

    fn push(&mut self, time: u64, rtt_ns: Option<u64>) {
        let earliest = if self.series.is_empty() { 0 } else { self.last.saturating_add(1) };
        self.last = time.max(earliest);
        self.series.push(Probe { sent_ns: self.last, rtt_ns });
    }
}

/// When a probe was sent, by the log's clock.
fn sent(log: &Log, row: &Row) -> i128 {
    match log.untimed {
        Some(interval) => i128::from(row.sequence) * i128::from(interval),
        None => i128::from(row.sent_ns),
    }
}

/// Corrections, in probes except for the pauses and gaps.
#[derive(Default)]
struct Counts {
    resumed: u64,
    /// Longer than the limit, where no probe was sent.
    pauses: u64,
    longest: i128,
    /// The first of them.
    pause: Option<Place>,
    /// Without a row, and placed as lost.
    filled: u64,
    /// Without a row, and left out.
    unknown: u64,
    /// Left out at the end.
    held: u64,
    /// Longer than one and a half intervals, in a log without numbers.
    gaps: u64,
    /// Moved to be after the one before.
    crowded: u64,
}

impl Counts {
    /// The prober was late by this time.
    fn pause(&mut self, place: Place, late: i128) {
        self.pause.get_or_insert(place);
        self.pauses += 1;
        self.longest = self.longest.max(late);
    }

    fn remark(self, log: &Log, remarks: &mut Vec<String>) {
        if self.resumed > 0 {
            let times = counted(self.resumed, "time", "times");
            remarks.push(format!("The prober was interrupted {times}: the series is, too."));
        }
        if let Some(place) = self.pause {
            let times = counted(self.pauses, "time", "times");
            let longest = u64::try_from(self.longest.unsigned_abs()).unwrap_or(u64::MAX);
            remarks.push(format!(
                "No probe was sent for longer than usual {times}, first at {place}, at most by {}: \
                 the prober stood still, or its clock was set forward.",
                duration(longest)
            ));
        }
        let mut say = |count: u64, one: &str, many: &str, rest: &str| {
            if count > 0 {
                remarks.push(format!("{}{rest}", counted(count, one, many)));
            }
        };
        if log.format != Format::Ping {
            say(
                self.filled,
                "sequence number has no row",
                "sequence numbers have no row",
                ": they count as lost.",
            );
        }
        say(
            self.unknown,
            "sequence number is missing",
            "sequence numbers are missing",
            ": the prober sent no probe for them, or was interrupted there.",
        );
        say(
            self.held,
            "probe at the end",
            "probes at the end",
            " may have been on the way when the prober was stopped: left out.",
        );
        say(
            self.gaps,
            "interval is longer by half, or more",
            "intervals are longer by half, or more",
            ": the log has no sequence numbers, so that a probe that left no row is not counted \
             as lost.",
        );
        say(
            self.crowded,
            "probe has a send time that is not after the one before",
            "probes have send times that are not after the ones before",
            ", by the clock's resolution: moved by a nanosecond.",
        );
    }
}

/// Where the clock was set back.
#[derive(Default)]
struct Jumps {
    first: Option<Place>,
    count: u64,
    named: Vec<String>,
}

impl Jumps {
    fn see(&mut self, at: Place, by_ns: i128) {
        self.first.get_or_insert(at);
        self.count += 1;
        if self.count <= NAMED {
            let by = duration(u64::try_from(by_ns.unsigned_abs()).unwrap_or(u64::MAX));
            self.named.push(format!("{at} (by {by})"));
        }
    }

    fn remark(&self, log: &Log, remarks: &mut Vec<String>) -> Result<(), ReadError> {
        let Some(place) = self.first else { return Ok(()) };
        let (breaks, probes) = (self.count, log.rows.len() as u64);
        if breaks > (probes / 10).max(NAMED) {
            return Err(ReadError::Unsteady { breaks, probes, place });
        }
        let more = match breaks - self.named.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = self.named.join(", ");
        remarks.push(format!(
            "The clock was set back at {named}{more}: the series is interrupted there."
        ));
        Ok(())
    }
}
