// SPDX-License-Identifier: Apache-2.0
//! The sender's decisions, without clock and socket.
//!
//! Times are since the run's start. The caller asks [`Prober::due`], sends, and says so
//! ([`Prober::sent`]), passes replies to [`Prober::reply`], and takes completed rows from
//! [`Prober::settle`], in the order of their numbers.
//!
//! Invariants: numbers have no gaps, also where an instant was skipped; each probe gives one
//! row; at most `outstanding_limit` probes are held.

use crate::plan::{Extent, Plan, Spacing};
use crate::report::Counts;
use crate::schedule::Schedule;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

/// Number of completed probes of which it is remembered whether they were answered. This separates
/// late replies from duplicates; replies to older probes count as late.
const HISTORY: usize = 1 << 16;

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub sequence: u64,
    /// When it was sent, by the wall clock.
    pub sent_utc: SystemTime,
    /// Time of sending since the start of the log.
    pub sent: Duration,
    /// `None` if the probe was lost.
    pub reply: Option<Reply>,
}

/// A probe that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub rtt: Duration,
    /// From the sender to the reflector by the clocks of both, in ns: negative if they
    /// are not synchronised well enough.
    pub there_ns: i64,
}

#[derive(Debug)]
struct Outstanding {
    sent: Duration,
    sent_utc: SystemTime,
    reply: Option<Reply>,
}

/// Position of a run in its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub sequence: u64,
    /// Time from the start of the log to the start of the run.
    pub elapsed: Duration,
}

#[derive(Debug)]
pub struct Prober {
    schedule: Schedule,
    extent: Extent,
    timeout: Duration,
    limit: usize,
    start: Start,
    /// The number of the probe sent next.
    next: u64,
    ended: bool,
    /// Up to `next`, oldest first; the oldest has no reply once rows were taken.
    outstanding: VecDeque<Outstanding>,
    /// Whether the probes before those came back, oldest first.
    history: VecDeque<bool>,
    counts: Counts,
}

impl Prober {
    /// At the start of a run. `seed` is that of a Poisson schedule.
    #[must_use]
    pub fn new(plan: &Plan, seed: u64, start: Start) -> Self {
        let schedule = match plan.spacing {
            Spacing::Constant => Schedule::constant(plan.interval),
            // Separate stream, so that a resumed run does not repeat the instants of the first one.
            Spacing::Poisson { .. } => Schedule::poisson(plan.interval, seed, start.sequence),
        };
        Self {
            schedule,
            extent: plan.extent,
            timeout: plan.timeout,
            limit: plan.outstanding_limit(),
            start,
            next: start.sequence,
            ended: false,
            outstanding: VecDeque::new(),
            history: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the number of a probe that is due. Probes that are late by more than an interval are
    /// skipped: probes in a burst would measure each other.
    pub fn due(&mut self, now: Duration) -> Option<u64> {
        while let Some(instant) = self.next_instant() {
            let late = now.checked_sub(instant)?;
            if late <= self.schedule.interval() && self.outstanding.len() < self.limit {
                return Some(self.next);
            }
            self.skip();
        }
        None
    }

    /// When the next probe is due, if there is one.
    pub fn next_instant(&mut self) -> Option<Duration> {
        let instant = self.schedule.next();
        self.ended |= match self.extent {
            Extent::Open => false,
            Extent::Count(count) => self.next >= count,
            Extent::Duration(duration) => self.start.elapsed + instant >= duration,
        };
        (!self.ended).then_some(instant)
    }

    /// Records that the due probe was sent.
    pub fn sent(&mut self, at: Duration, utc: SystemTime) {
        self.outstanding.push_back(Outstanding { sent: at, sent_utc: utc, reply: None });
        self.next += 1;
        self.counts.sent += 1;
        self.schedule.advance();
    }

    pub fn skip(&mut self) {
        self.counts.skipped += 1;
        self.schedule.advance();
    }

    /// Sends no more probes; replies to those in flight are awaited.
    pub const fn end(&mut self) {
        self.ended = true;
    }

    /// A reply with the lower bits of its number and the reflector's time, which is any.
    pub fn reply(&mut self, sequence: u32, reflected_ns: u64, at: Duration) {
        // How many probes ago it was sent: fewer than 2^31 are remembered.
        let ago = (self.next as u32).wrapping_sub(sequence) as usize;
        if ago == 0 || ago as u64 > self.next - self.start.sequence {
            self.counts.foreign += 1;
            return;
        }
        let Some(index) = self.outstanding.len().checked_sub(ago) else {
            return self.reply_to_settled(ago - self.outstanding.len());
        };
        let Some(probe) = self.outstanding.get_mut(index) else { return };
        let rtt = at.saturating_sub(probe.sent);
        if probe.reply.is_some() {
            self.counts.duplicates += 1;
        } else if rtt > self.timeout {
            self.counts.late += 1;
        } else {
            probe.reply = Some(Reply { rtt, there_ns: since(probe.sent_utc, reflected_ns) });
        }
    }

    fn reply_to_settled(&mut self, ago: usize) {
        let index = self.history.len().checked_sub(ago);
        match index.and_then(|index| self.history.get_mut(index)) {
            Some(true) => self.counts.duplicates += 1,
            Some(came_back) => {
                *came_back = true;
                self.counts.late += 1;
            }
            None => self.counts.late += 1,
        }
    }

    /// A datagram that is no reply to a probe of this run.
    pub const fn foreign(&mut self) {
        self.counts.foreign += 1;
    }

    /// The next row, if its fate is known, given that all replies that had arrived by
    /// `read_until` were handed in.
    pub fn settle(&mut self, read_until: Duration) -> Option<Row> {
        let probe = self.outstanding.front()?;
        if probe.reply.is_none() && probe.sent + self.timeout >= read_until {
            return None;
        }
        let sequence = self.next - self.outstanding.len() as u64;
        let Outstanding { sent, sent_utc, reply } = self.outstanding.pop_front()?;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(reply.is_some());
        match reply {
            Some(_) => self.counts.received += 1,
            None => self.counts.lost += 1,
        }
        Some(Row { sequence, sent_utc, sent: self.start.elapsed + sent, reply })
    }

    /// Time at which the oldest probe in flight counts as lost.
    #[must_use]
    pub fn next_loss(&self) -> Option<Duration> {
        self.outstanding.front().map(|probe| probe.sent + self.timeout)
    }

    /// Whether all probes are sent and completed.
    pub fn done(&mut self) -> bool {
        self.next_instant().is_none() && self.outstanding.is_empty()
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { outstanding: self.outstanding.len() as u64, ..self.counts }
    }

    /// Time until the last probe is sent, if known.
    #[must_use]
    pub fn remaining(&self, now: Duration) -> Option<Duration> {
        match self.extent {
            _ if self.ended => Some(Duration::ZERO),
            Extent::Open => None,
            Extent::Count(count) => {
                let left = count.saturating_sub(self.next).saturating_sub(1);
                let last = self.schedule.interval().as_secs_f64() * left as f64;
                let last = Duration::try_from_secs_f64(last).unwrap_or(Duration::MAX);
                Some(self.schedule.next().saturating_add(last).saturating_sub(now))
            }
            Extent::Duration(duration) => Some(duration.saturating_sub(self.start.elapsed + now)),
        }
    }
}

/// Difference of two instants of the wall clock, in ns.
fn since(earlier: SystemTime, later_ns: u64) -> i64 {
    let earlier = earlier.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let ns = i128::from(later_ns) - i128::try_from(earlier.as_nanos()).unwrap_or(i128::MAX);
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
