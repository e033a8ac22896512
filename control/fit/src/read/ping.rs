// SPDX-License-Identifier: Apache-2.0
//! The output of ping: that of iputils with or without `-D` and `-O`, of busybox, of BSD and
//! macOS, and of fping with `-l` or `-c`. Lines before ping's first one and after its summary may be
//! anything, and each line may begin with its date and time, as a pipe through `ts` adds.
//!
//! Lost are the sequence numbers without an answer. The number has 16 bits on the wire and
//! starts again after 65535, so that more than 32,767 in a row without an answer cannot be
//! counted. With `-D` each line begins with the time at which the answer came, so that the
//! probe was sent a round trip before; without it, a probe's time is its number times the
//! interval.

use super::Limits;
use super::clean::{Log, Row, recorded, round_trip};
use super::columns::date;
use super::error::{Place, ReadError, counted, shown};
use super::number::{Decimal, decimal, place};
use super::spacing::Interval;
use super::tap::{Bytes, Line, Lines};
use crate::baseline::Format;
use memchr::memmem::find;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Whether a line is one of ping's.
pub(super) fn recognises(line: &[u8]) -> bool {
    line.starts_with(b"PING ") || find(line, b" bytes from ").is_some() || fping(line).is_some()
}

/// What follows the number in a line of fping's, and the number: `host : [7], 64 bytes, 10.2 ms`.
fn fping(line: &[u8]) -> Option<(u64, &[u8])> {
    let rest = &line[find(line, b" : [")? + 4..];
    let digits = digits(rest);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let rest = rest[digits.len()..].strip_prefix(b"], ")?;
    (find(rest, b" bytes, ").is_some() || rest.starts_with(b"timed out")).then_some((number, rest))
}

/// Reads one; the second is its SHA-256.
pub(super) fn read(
    bytes: Bytes<'_>,
    given: Option<u64>,
    limits: Limits,
) -> Result<(Log, String), ReadError> {
    let mut lines = Lines::of(bytes);
    let mut reader = Reader::new();
    reader.log.limits = limits;
    while let Some(line) = lines.next()? {
        if line.cut {
            if !line.text.is_empty() {
                reader.log.remarks.push("The last line is cut off: left out.".into());
            }
            break;
        }
        reader.line(&line)?;
    }
    Ok((reader.finish(given)?, lines.sha256()?))
}

/// Summary at the end of the output.
#[derive(Clone, Copy)]
struct Totals {
    line: u64,
    transmitted: u64,
    /// From the first probe to the last; not all versions say it.
    time_ms: Option<u64>,
}

/// A file that is being read.
struct Reader {
    log: Log,
    /// The number of the first probe, which the first line tells.
    first: Option<u64>,
    stamped: Option<bool>,
    /// The lowest and the highest sequence number so far, of answered and of lost probes.
    lowest: Option<u64>,
    highest: Option<u64>,
    /// Round trips by their decimals.
    decimals: [u64; 10],
    errors: u64,
    corrupted: u64,
    duplicates: u64,
    /// Lines of ping about itself.
    notes: u64,
    note: String,
    totals: Option<Totals>,
}

impl Reader {
    fn new() -> Self {
        Self {
            log: Log { stopped: true, ..Log::new(Format::Ping) },
            first: None,
            stamped: None,
            lowest: None,
            highest: None,
            decimals: [0; 10],
            errors: 0,
            corrupted: 0,
            duplicates: 0,
            notes: 0,
            note: String::new(),
            totals: None,
        }
    }

    fn line(&mut self, line: &Line<'_>) -> Result<(), ReadError> {
        let (stamp, text) = stamp(line.text.strip_prefix(b"^C").unwrap_or(line.text));
        let begun = self.highest.is_some() || self.first.is_some();
        let bad = |problem: &str| ReadError::line(Place::Line(line.number), problem, line.text);
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        if text.starts_with(b"PING") {
            if begun {
                return Err(bad("a second run of ping begins: split the file there"));
            }
            // BSD and busybox write a colon, and count from zero.
            let zero = find(text, b"): ").is_some() || text.starts_with(b"PING6");
            self.first = Some(u64::from(!zero));
            return Ok(());
        }
        if let Some((number, rest)) = fping(text) {
            self.first.get_or_insert(0);
            self.see(number);
            return match time(rest) {
                Some(rtt) => self.answered(line, stamp, number, rtt),
                None => Ok(()),
            };
        }
        if find(text, b" bytes from ").is_some() {
            return self.answer(line, stamp, text);
        }
        if find(text, b" packets transmitted").is_some() {
            let totals = totals(line.number, text).ok_or_else(|| bad("a summary of ping's"))?;
            self.totals = Some(totals);
            return Ok(());
        }
        let silent = text.starts_with(b"no answer yet for ")
            || text.starts_with(b"Request timeout for ")
            || text.starts_with(b"From ");
        if silent && let Some(sequence) = sequence(text) {
            self.unwrap(sequence).ok_or_else(|| bad("the sequence number goes back"))?;
            // A redirect is printed in addition to the answer and does not replace it.
            let error = text.starts_with(b"From ") && find(text, b"Redirect").is_none();
            self.errors += u64::from(error);
            return Ok(());
        }
        let ends = [&b"--- "[..], b"rtt ", b"round-trip ", b"pipe ", b", pipe ", b", ipg"];
        if ends.iter().any(|end| text.starts_with(end)) {
            return Ok(());
        }
        let notes = [&b"ping: "[..], b"ping6: ", b"Warning: ", b"wrong data byte", b"#", b"\r"];
        let other = !begun || self.totals.is_some();
        if silent || other || notes.iter().any(|note| text.starts_with(note)) {
            if self.notes == 0 {
                self.note = shown(text);
            }
            self.notes += 1;
            return Ok(());
        }
        Err(bad("this is no line of ping's"))
    }

    fn answer(
        &mut self,
        line: &Line<'_>,
        stamp: Option<i64>,
        text: &[u8],
    ) -> Result<(), ReadError> {
        let at = Place::Line(line.number);
        let bad = |problem: &str| ReadError::line(at, problem, line.text);
        let sequence = sequence(text).ok_or_else(|| bad("the answer has no sequence number"))?;
        let sequence = self.unwrap(sequence);
        let sequence = sequence.ok_or_else(|| bad("the sequence number goes back"))?;
        if text.ends_with(b"(DUP!)") {
            self.duplicates += 1;
            return Ok(());
        }
        if find(text, b"BAD CHECKSUM").is_some() || find(text, b"(truncated)").is_some() {
            self.corrupted += 1;
            return Ok(());
        }
        let rtt = time(text).ok_or_else(|| {
            bad("the answer has no time: ping must send 16 bytes or more (-s) to measure it")
        })?;
        self.answered(line, stamp, sequence, rtt)
    }

    fn answered(
        &mut self,
        line: &Line<'_>,
        stamp: Option<i64>,
        sequence: u64,
        rtt: Decimal,
    ) -> Result<(), ReadError> {
        let at = Place::Line(line.number);
        let written = || format!("{} ms", rtt.value as f64 / MS as f64);
        let rtt_ns = round_trip(rtt.value, at, written)?;
        if *self.stamped.get_or_insert(stamp.is_some()) != stamp.is_some() {
            let problem = "some answers have a time stamp (ping -D) and some have none";
            return Err(ReadError::line(at, problem, line.text));
        }
        // Ping rounds to three digits, so that the step varies with the size.
        let places = usize::try_from(rtt.decimals).unwrap_or(0).min(self.decimals.len() - 1);
        self.decimals[places] += 1;
        let sent_ns = stamp.unwrap_or(0).saturating_sub(rtt.value);
        self.log.push(Row { line: line.number, sequence, sent_ns, rtt_ns })
    }

    /// The number of a probe, of which the wire has the last 16 bits: the nearest to the
    /// highest so far.
    fn unwrap(&mut self, wire: u16) -> Option<u64> {
        let Some(highest) = self.highest else {
            // The file may begin with any; before the first answer some may be lost.
            self.see(u64::from(wire));
            return self.highest;
        };
        let ahead = wire.wrapping_sub(highest as u16).cast_signed();
        let sequence = highest.checked_add_signed(i64::from(ahead))?;
        self.see(sequence);
        Some(sequence)
    }

    fn see(&mut self, sequence: u64) {
        self.lowest = Some(self.lowest.map_or(sequence, |lowest| lowest.min(sequence)));
        self.highest = Some(self.highest.map_or(sequence, |highest| highest.max(sequence)));
    }

    fn finish(mut self, given: Option<u64>) -> Result<Log, ReadError> {
        let mut log = self.log;
        // Regardless of the first line.
        if let (Some(first), Some(lowest)) = (self.first, self.lowest) {
            self.first = Some(first.min(lowest));
        }
        log.first = self.first.or(self.lowest);
        if let (Some(first), Some(totals)) = (self.first, self.totals) {
            let end = first.saturating_add(totals.transmitted);
            let seen = self.highest.map_or(first, |highest| highest + 1);
            if end < seen || end - seen > 32_767 {
                let problem = format!(
                    "{} were transmitted, but the sequence numbers tell of {}; of more than 32767 \
                     in a row without a line the number is not known: ping with -O, or split \
                     the file",
                    totals.transmitted,
                    seen - first
                );
                return Err(ReadError::line(Place::Line(totals.line), problem, b""));
            }
            log.end = Some(end);
        } else {
            log.end = self.highest.map(|highest| highest + 1);
            log.remarks.push(
                "Ping's first line or its summary is missing: probes before the first line with a \
                 number or after the last are not known."
                    .into(),
            );
        }
        let half = self.decimals.iter().sum::<u64>().div_ceil(2);
        let mut seen = 0;
        let typical = self.decimals.iter().position(|count| {
            seen += count;
            seen >= half
        });
        if self.stamped == Some(true) {
            log.recorded = recorded(log.rows.iter().map(|row| (row.sent_ns, row.rtt())));
        }
        log.resolution_ns = place(MS, i32::try_from(typical.unwrap_or(0)).unwrap_or(0));
        if self.stamped == Some(false) {
            log.untimed = Some(untimed(self.totals, given)?);
            log.remarks.push(
                "The log has no time stamps (ping -D): send times are the sequence number times \
                 the interval."
                    .into(),
            );
        }
        if self.errors > 0 {
            let probes = counted(self.errors, "probe was", "probes were");
            log.remarks.push(format!("{probes} answered with an error: they count as lost."));
        }
        if self.duplicates > 0 {
            let answers =
                counted(self.duplicates, "answer is a duplicate", "answers are duplicates");
            log.remarks.push(format!("{answers}: the first of each was kept."));
        }
        if self.corrupted > 0 {
            let answers = counted(self.corrupted, "answer was", "answers were");
            log.remarks.push(format!("{answers} corrupted: they count as lost."));
        }
        if self.notes > 0 {
            let lines = counted(self.notes, "line is", "lines are");
            log.remarks.push(format!("{lines} not about a probe, such as {:?}.", self.note));
        }
        Ok(log)
    }
}

/// The interval of a log without time stamps.
fn untimed(totals: Option<Totals>, given: Option<u64>) -> Result<u64, ReadError> {
    let measured = totals.and_then(|totals| {
        let intervals = totals.transmitted.checked_sub(1).filter(|n| *n > 0)?;
        let ns = totals.time_ms?.checked_mul(MS)? / intervals;
        (1..=86_400 * S).contains(&ns).then_some(ns)
    });
    let Some(ns) = measured else { return given.ok_or(ReadError::NoInterval) };
    Interval::stated(ns, 0).agrees(given, "--interval")?;
    Ok(ns)
}

/// Splits off the time stamp that a line begins with: that of `-D`, `[1795283678.707028] `, or a date
/// and time. Anything else before ping's own words is left out.
fn stamp(text: &[u8]) -> (Option<i64>, &[u8]) {
    let Some(begin) = begin(text) else { return (None, text) };
    let (prefix, rest) = text.split_at(begin);
    let trimmed = |byte: &u8| !b" \t[]()|:".contains(byte);
    let (Some(first), Some(last)) =
        (prefix.iter().position(trimmed), prefix.iter().rposition(trimmed))
    else {
        return (None, rest);
    };
    let prefix = &prefix[first..=last];
    let number = || decimal(prefix, S).map(|stamp| stamp.value);
    (number().or_else(|| date(prefix)), rest)
}

/// Where ping's own words begin, if the line is one of its.
fn begin(text: &[u8]) -> Option<usize> {
    let after_digits = |words: &[u8]| {
        let end = find(text, words)?;
        let digits = text[..end].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        (digits > 0).then(|| end - digits)
    };
    if let Some(end) = find(text, b" : [").filter(|_| fping(text).is_some()) {
        return Some(text[..end].iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1));
    }
    let words: [&[u8]; 10] = [
        b"PING",
        b"no answer yet for ",
        b"Request timeout for ",
        b"From ",
        b"--- ",
        b"rtt ",
        b"round-trip ",
        b"ping: ",
        b"pipe ",
        b"Warning: ",
    ];
    after_digits(b" bytes from ")
        .or_else(|| after_digits(b" packets transmitted"))
        .or_else(|| words.iter().filter_map(|words| find(text, words)).min())
}

/// The number after `seq=`, or `icmp_seq `.
fn sequence(text: &[u8]) -> Option<u16> {
    let at = find(text, b"seq=").or_else(|| find(text, b"seq "))?;
    let digits = digits(&text[at + 4..]);
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The milliseconds after `time=`, or fping's after the bytes.
fn time(text: &[u8]) -> Option<Decimal> {
    let after = |words: &[u8]| find(text, words).map(|at| at + words.len());
    let number = &text[after(b" time=").or_else(|| after(b" bytes, "))?..];
    let end = find(number, b" ms")?;
    decimal(&number[..end], MS)
}

/// `3 packets transmitted, 3 received, 0% packet loss, time 409ms`.
fn totals(line: u64, text: &[u8]) -> Option<Totals> {
    let text = std::str::from_utf8(text).ok()?;
    let transmitted = text.split(' ').next()?.parse().ok()?;
    let time = text.split(", ").find_map(|part| part.strip_prefix("time ")?.strip_suffix("ms"));
    let time_ms = match time {
        Some(time) => Some(time.parse().ok()?),
        None => None,
    };
    Some(Totals { line, transmitted, time_ms })
}

fn digits(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    &text[..end]
}
