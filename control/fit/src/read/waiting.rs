// SPDX-License-Identifier: Apache-2.0
//! Probers that wait for each answer, and so send late after a lost probe.
//!
//! Such a prober probes an outage rarely, at times that depend on earlier answers. The send times
//! hold all that a likelihood needs; this module finds the pace, so that a link can be probed alike,
//! and corrects logs that hold the times of the answers.

use super::clean::{LOST, Log, Row};
use super::error::{counted, duration};
use super::spacing::{Middle, middle};
use crate::baseline::Format;

/// A wait after a loss is longer than the interval by this factor, at least.
const LONGER: f64 = 1.25;
/// So many waits tell that a prober waits.
const LEAST: usize = 3;
/// The share of the waits that are longer than nine in ten other intervals.
const MOST: f64 = 0.8;
/// Pauses after an answer vary less than the intervals by this factor, if probes follow answers.
const STEADIER: f64 = 0.3;
/// Intervals that vary less than by this share are constant.
const STEADY: f64 = 0.1;

/// The time from a lost probe to the next if it is longer than from an answered one; `after` holds
/// both times.
pub(super) fn after_loss(log: &Log, after: &mut [Vec<u64>; 2]) -> Option<u64> {
    let [answer, loss] = after;
    let usual = middle(answer)?;
    if loss.is_empty() {
        // The lost probes have no rows: two intervals that hold one.
        let over_one = log.rows.windows(2).filter(|p| !log.breaks_between(&p[0], &p[1]));
        let over_one = over_one.filter(|p| p[1].sequence.checked_sub(p[0].sequence) == Some(2));
        let spans =
            over_one.filter_map(|p| u64::try_from(p[1].sent_ns.checked_sub(p[0].sent_ns)?).ok());
        let rest: Vec<u64> = spans.map(|span| span.saturating_sub(usual.median)).collect();
        return longer(&usual, &rest);
    }
    longer(&usual, loss)
}

/// The median of the waits, if they are longer than usual.
fn longer(usual: &Middle, waits: &[u64]) -> Option<u64> {
    let long = waits.iter().filter(|wait| **wait > usual.nine_tenths).count();
    let median = middle(&mut waits.to_vec())?.median;
    let enough = waits.len() >= LEAST && long as f64 >= MOST * waits.len() as f64;
    (enough && median as f64 > LONGER * usual.median as f64).then_some(median)
}

/// The time from an answer to the next probe, if probes follow answers rather than a clock.
pub(super) fn after_answer<'a>(
    pairs: impl Iterator<Item = (&'a Row, &'a Row, u64)>,
    usual: &Middle,
) -> Option<u64> {
    let spread = usual.nine_tenths.abs_diff(usual.tenth) as f64;
    if spread < STEADY * usual.median as f64 {
        return None;
    }
    let answered = pairs.filter(|(before, ..)| before.rtt_ns != LOST);
    // A prober that does not wait sends before the answer: it has no pause.
    let pauses = answered.map(|(before, _, gap)| gap.checked_sub(before.rtt_ns));
    let mut pauses = pauses.collect::<Option<Vec<u64>>>()?;
    let pause = middle(&mut pauses)?;
    let steady = (pause.nine_tenths.abs_diff(pause.tenth) as f64) < STEADIER * spread;
    (pauses.len() >= 50 && steady).then_some(pause.median)
}

/// Whether the times of a log are those of answers and timeouts: then the time before a lost probe
/// is long, and the time after it is not.
fn at_the_end(log: &Log) -> bool {
    let gaps = |before: bool, after: bool| -> Vec<u64> {
        let pairs = log.rows.windows(2).filter(|p| p[0].line != p[1].line);
        let pairs = pairs.filter(|p| (p[0].rtt_ns == LOST, p[1].rtt_ns == LOST) == (before, after));
        pairs.filter_map(|p| u64::try_from(p[1].sent_ns.checked_sub(p[0].sent_ns)?).ok()).collect()
    };
    let Some(usual) = middle(&mut gaps(false, false)) else { return false };
    longer(&usual, &gaps(false, true)).is_some() && longer(&usual, &gaps(true, false)).is_none()
}

/// Moves times of answers and timeouts to those of the probes. `stated` if the user says that the
/// log has such times.
pub(super) fn to_the_beginning(log: &mut Log, stated: bool, remarks: &mut Vec<String>) {
    // The other formats say which times they have.
    if !stated && (log.format != Format::Columns || !at_the_end(log)) {
        return;
    }
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let gap = |p: &[Row]| p[1].sent_ns.saturating_sub(p[0].sent_ns);
    let of = |lost: bool| {
        let pairs = log.rows.windows(2).filter(move |p| (p[1].rtt_ns == LOST) == lost);
        pairs.filter(|p| p[0].rtt_ns != LOST)
    };
    // From one answer to the next probe, and to the end of a lost one.
    let pauses =
        of(false).map(|p| gap(p).saturating_sub(signed(p[1].rtt_ns)).max(0).unsigned_abs());
    let ends = of(true).map(|p| gap(p).max(0).unsigned_abs());
    let pause = middle(&mut pauses.collect::<Vec<_>>()).map_or(0, |m| m.median);
    let end = middle(&mut ends.collect::<Vec<_>>()).map_or(0, |m| m.median);
    let timeout = end.saturating_sub(pause);
    let mut lost = 0;
    for row in &mut log.rows {
        lost += u64::from(row.rtt_ns == LOST);
        let ago = if row.rtt_ns == LOST { timeout } else { row.rtt_ns };
        row.sent_ns = row.sent_ns.saturating_sub(signed(ago));
    }
    let probes = counted(lost, "lost probe was", "lost probes were");
    remarks.push(format!(
        "The times are those of answers and timeouts (as with done= in --columns): probes were sent \
         a round trip before, and {probes} sent {} before.",
        duration(timeout)
    ));
}
