// SPDX-License-Identifier: Apache-2.0
//! The probing interval, from the times at which probes were sent.
//!
//! Only neighbours count: two probes with consecutive sequence numbers and no
//! break between them. A lost probe without a logged send time has no neighbours, so no
//! interpolated time enters. Quantiles decide, not moments: a clock that was set and a
//! prober that was held up leave intervals of any length.

use super::clean::{LOST, Log, Row};
use super::error::{ReadError, duration};
use super::waiting;
use crate::baseline::{Spacing, Waiting};
use std::ops::{Range, RangeInclusive};

/// Largest deviation of intervals from the stated one, and of windows from each other.
const STATED: f64 = 0.05;
const WINDOW: f64 = 0.2;
/// The coefficient of variation from which on intervals cannot have been meant as constant:
/// that of exponential ones is 1.
const HELD_UP: f64 = 0.7;

/// The interval and how it varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// The median, or the mean if they are exponential.
    pub ns: u64,
    pub spacing: Spacing,
    pub waiting: Option<Waiting>,
    pub count: usize,
}

impl Interval {
    /// An interval that is not from the times of the probes.
    pub const fn stated(ns: u64, count: usize) -> Self {
        Self { ns, spacing: Spacing::Constant, waiting: None, count }
    }

    /// Finds the interval between `rows`, which are in order. Times at any spacing are taken as
    /// they are if the log says so.
    pub fn of(log: &Log, remarks: &mut Vec<String>) -> Result<Self, ReadError> {
        let pairs =
            || log.rows.windows(2).filter_map(|p| Some((&p[0], &p[1], neighbours(log, p)?)));
        let answered = |row: &Row| row.rtt_ns != LOST;
        let mut after = [true, false].map(|answer| -> Vec<u64> {
            pairs().filter(|(before, ..)| answered(before) == answer).map(|p| p.2).collect()
        });
        let waits = waiting::after_loss(log, &mut after);
        let [after_answer, after_loss] = after;
        let mut spacings = after_answer;
        if waits.is_none() || spacings.is_empty() {
            spacings.extend(after_loss);
        }
        if spacings.is_empty() {
            // Every other probe is missing: the mean over the gap has to do.
            spacings.extend(log.rows.windows(2).filter_map(|pair| over_a_gap(log, pair)));
        }
        let Some(middle) = middle(&mut spacings) else { return Err(ReadError::NoNeighbours) };
        if middle.median == 0 {
            return Err(ReadError::CoarseTimes { interval: duration(whole_mean(log)) });
        }
        if middle.median > 86_400_000_000_000 {
            return Err(ReadError::Interval { interval: duration(middle.median) });
        }
        let stated = log.stated.or(log.spacing);
        let follows = (stated.is_none() || stated == Some(Spacing::Irregular))
            .then(|| waiting::after_answer(pairs(), &middle))
            .flatten();
        let mut interval = match (stated, follows) {
            (_, Some(_)) | (Some(Spacing::Irregular), None) => {
                Self { spacing: Spacing::Irregular, ..Self::stated(middle.median, spacings.len()) }
            }
            _ => {
                mixed(log, waits.is_some())?;
                classify(&spacings, &middle, log, remarks)?
            }
        };
        let after_loss_ns = waits.or(follows.map(|pause| pause.saturating_add(interval.ns)));
        interval.waiting =
            after_loss_ns.map(|after_loss_ns| Waiting { after_answer_ns: follows, after_loss_ns });
        interval.remark(remarks);
        Ok(interval)
    }

    fn remark(&self, remarks: &mut Vec<String>) {
        let Some(Waiting { after_answer_ns, after_loss_ns }) = self.waiting else { return };
        let follows = match after_answer_ns {
            Some(pause) => format!("sends {} after an answer and", duration(pause)),
            None => "sends the next probe".into(),
        };
        remarks.push(format!(
            "The prober waits for each answer: it {follows} {} after a lost probe. Losses count at \
             these times.",
            duration(after_loss_ns)
        ));
    }

    /// The time in which probes with so many numbers are sent, after `before`.
    pub fn expected(&self, before: &Row, numbers: u64) -> i128 {
        let after_loss = self.waiting.map_or(self.ns, |w| w.after_loss_ns);
        let first = if before.rtt_ns == LOST { after_loss } else { self.ns };
        i128::from(first) + i128::from(numbers.saturating_sub(1)) * i128::from(after_loss)
    }

    /// Whether it is the interval that `origin` says.
    pub fn agrees(&self, stated: Option<u64>, origin: &'static str) -> Result<(), ReadError> {
        // The mean of n exponential intervals has a standard error of 1/√n.
        let chance = match self.spacing {
            Spacing::Constant | Spacing::Irregular => 0.0,
            Spacing::Poisson => 4.0 / (self.count as f64).sqrt(),
        };
        let Some(stated) = stated else { return Ok(()) };
        if self.ns.abs_diff(stated) as f64 <= stated as f64 * chance.max(STATED) {
            return Ok(());
        }
        Err(ReadError::IntervalDiffers {
            found: duration(self.ns),
            origin,
            stated: duration(stated),
        })
    }
}

/// Time between two probes that were sent in direct succession.
fn neighbours(log: &Log, pair: &[Row]) -> Option<u64> {
    let [before, after] = pair else { return None };
    if after.sequence.checked_sub(before.sequence) != Some(1) || log.breaks_between(before, after) {
        return None;
    }
    (after.sent_ns >= before.sent_ns).then(|| after.sent_ns.abs_diff(before.sent_ns))
}

/// The mean time from one to the next of all that were sent from one of two probes to the
/// other.
fn over_a_gap(log: &Log, pair: &[Row]) -> Option<u64> {
    let [before, after] = pair else { return None };
    if log.breaks_between(before, after) || after.sent_ns < before.sent_ns {
        return None;
    }
    let between = after.sent_ns.abs_diff(before.sent_ns);
    between.checked_div(after.sequence.checked_sub(before.sequence)?)
}

/// The mean time between all probes of a log.
pub(super) fn whole_mean(log: &Log) -> u64 {
    let (Some(first), Some(last)) = (log.rows.first(), log.rows.last()) else { return 0 };
    let span = last.sent_ns.abs_diff(first.sent_ns);
    span.checked_div(last.sequence.saturating_sub(first.sequence)).unwrap_or(0)
}

/// The middle of a sample.
#[derive(Clone, Copy)]
pub(super) struct Middle {
    pub tenth: u64,
    pub median: u64,
    pub nine_tenths: u64,
}

/// Reorders the sample; `None` if it is empty.
pub(super) fn middle(sample: &mut [u64]) -> Option<Middle> {
    let last = sample.len().checked_sub(1)?;
    let mut quantile = |share: f64| {
        let index = (last as f64 * share).round() as usize;
        *sample.select_nth_unstable(index.min(last)).1
    };
    Some(Middle { tenth: quantile(0.1), median: quantile(0.5), nine_tenths: quantile(0.9) })
}

fn classify(
    spacings: &[u64],
    middle: &Middle,
    log: &Log,
    remarks: &mut Vec<String>,
) -> Result<Interval, ReadError> {
    let stated = log.stated.or(log.spacing);
    // An exponential interval is longer than twenty medians once in a million.
    let longest = middle.median.saturating_mul(20);
    let usual = || spacings.iter().filter(|ns| **ns <= longest).map(|ns| *ns as f64);
    let count = usual().count().max(1);
    let mean = usual().sum::<f64>() / count as f64;
    let variance = usual().map(|ns| (ns - mean).powi(2)).sum::<f64>() / count as f64;
    let variation = variance.sqrt() / mean;

    let median = middle.median as f64;
    let narrow = middle.nine_tenths.abs_diff(middle.tenth) as f64 <= 0.5 * median;
    // The median of an exponential distribution is ln 2 of its mean.
    let memoryless = (0.7..1.3).contains(&variation) && (0.55..0.85).contains(&(median / mean));
    let found = match (narrow || variation < 0.3, memoryless) {
        (true, _) => Some(Spacing::Constant),
        (false, true) => Some(Spacing::Poisson),
        (false, false) => None,
    };
    // With few intervals, the file's statement takes precedence.
    let spacing = match (found, stated) {
        (_, Some(stated)) if spacings.len() < 50 => stated,
        // It also takes precedence if a busy host was rarely on time.
        (None, Some(Spacing::Constant)) if variation < HELD_UP => {
            remarks.push(format!(
                "The prober was often late: its intervals, which the file says are constant, vary \
                 by {:.0} % (standard deviation); the send times are as they were logged.",
                variation * 100.0
            ));
            Spacing::Constant
        }
        (None, _) => {
            return Err(ReadError::Spacing {
                variation,
                median: duration(middle.median),
                mean: duration(mean.round() as u64),
            });
        }
        (Some(found), Some(stated)) if found != stated => {
            let origin = "the file's own header";
            return Err(ReadError::SpacingDiffers {
                found: name(found),
                origin,
                stated: name(stated),
            });
        }
        (Some(found), _) => found,
    };
    let ns = match spacing {
        Spacing::Constant | Spacing::Irregular => middle.median,
        Spacing::Poisson => mean.round() as u64,
    };
    Ok(Interval { spacing, ..Interval::stated(ns, spacings.len()) })
}

fn name(spacing: Spacing) -> &'static str {
    match spacing {
        Spacing::Constant => "at constant intervals",
        Spacing::Poisson => "at exponential intervals",
        Spacing::Irregular => "at irregular intervals",
    }
}

/// The intervals of a stretch of the log.
struct Window {
    start: usize,
    median: u64,
    /// Possible medians of a longer stretch, if all of it is like this one.
    range: RangeInclusive<u64>,
}

/// An error if a part of the log has another interval than the rest.
fn mixed(log: &Log, waits: bool) -> Result<(), ReadError> {
    let counts = |row: &Row| !(waits && row.rtt_ns == LOST);
    let size = (log.rows.len() / 10).clamp(10, 1_000);
    let mut windows = Vec::with_capacity(log.rows.len() / size + 1);
    let mut scratch = Vec::with_capacity(size);
    for start in (1..log.rows.len()).step_by(size) {
        scratch.clear();
        let rows = &log.rows[start - 1..(start + size).min(log.rows.len())];
        let pairs = rows.windows(2).filter(|pair| counts(&pair[0]));
        scratch.extend(pairs.filter_map(|pair| neighbours(log, pair)));
        if scratch.len() < size / 2 {
            continue;
        }
        scratch.sort_unstable();
        // The rank of the median has a standard error of √n / 2: five of them.
        let (middle, last) = (scratch.len() / 2, scratch.len() - 1);
        let ranks = (2.5 * (scratch.len() as f64).sqrt()).ceil() as usize;
        let range = scratch[middle.saturating_sub(ranks)]..=scratch[(middle + ranks).min(last)];
        windows.push(Window { start, median: scratch[middle], range });
    }
    let usual = of_windows(&windows);
    let differs = |w: &Window| {
        w.median.abs_diff(usual) as f64 > WINDOW * usual as f64 && !w.range.contains(&usual)
    };
    let count = windows.iter().filter(|w| differs(w)).count();
    let substantial = count * 20 >= windows.len() || (count >= 10 && count * 100 >= windows.len());
    if count == 0 || !substantial {
        return Ok(());
    }
    let first = differs(&windows[0]);
    let Some(change) = windows.iter().position(|w| differs(w) != first) else { return Ok(()) };
    let end = windows[change..].iter().position(|w| differs(w) == first);
    let end = end.map_or(windows.len(), |end| change + end);
    let (before, after) = (of_windows(&windows[..change]), of_windows(&windows[change..end]));
    let from = windows[change - 1].start;
    let to = (windows[change].start + size).min(log.rows.len());
    let at = boundary(log, from..to, before, after);
    Err(ReadError::MixedIntervals {
        place: (log.place)(log.rows[at].line),
        before: duration(before),
        after: duration(after),
    })
}

fn of_windows(windows: &[Window]) -> u64 {
    let mut medians: Vec<u64> = windows.iter().map(|w| w.median).collect();
    middle(&mut medians).map_or(0, |m| m.median)
}

/// The row after which intervals are closer to `after` than to `before`: the choice that
/// leaves the fewest on the wrong side.
fn boundary(log: &Log, range: Range<usize>, before: u64, after: u64) -> usize {
    let (mut best, mut at, mut score) = (0_i64, range.start, 0_i64);
    for index in range {
        if score > best {
            (best, at) = (score, index);
        }
        let Some(ns) = neighbours(log, &log.rows[index - 1..=index]) else { continue };
        // Nearer in ratio: ns² against before × after.
        let shorter = u128::from(ns).pow(2) < u128::from(before) * u128::from(after);
        score += if shorter == (before < after) { 1 } else { -1 };
    }
    at
}
