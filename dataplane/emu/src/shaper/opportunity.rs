// SPDX-License-Identifier: Apache-2.0
//! Delivery opportunities: single instants at which a number of bytes may leave.
//!
//! After the link of mahimahi (R. Netravali et al., USENIX ATC 2015; `link_queue.cc`). At each
//! opportunity up to its number of bytes leaves. A frame that is larger continues in the next
//! opportunity, and what a frame leaves over serves the next one, if that has arrived. What nothing
//! waits for is lost. A frame uses only opportunities after its arrival. The trace repeats after
//! its period.
//!
//! Everything is a function of time: an opportunity has a position, which is the number of whole
//! turns and its index in the turn. The finish of a frame follows from its first opportunity by
//! one division; finding the instant of a position costs O(1) from one frame to the next, and a
//! binary search after a pause. All of it is exact, and no time is stored that could drift.
//!
//! Differs from mahimahi in its resolution: an arrival is compared in nanoseconds, mahimahi rounds
//! it down to a millisecond. Both give the same departures. A rate change converts the rest of
//! the frame in service to whole bytes, rounded up.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::units::{BitRate, Instant, NANOS_PER_SEC, Nanos};

/// Instants that a cursor is advanced by before a binary search is cheaper.
const STEPS: usize = 8;
/// Rates of the bounds on a burst, in quarters of the mean rate.
const QUARTERS: [u64; 14] = [4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256];

/// Instant of a turn with opportunities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    /// Steps since the turn began.
    at: u32,
    /// Index in the turn of its first opportunity.
    first: u32,
}

/// Upper bound of the bytes in a window of any length: `burst` and `rate` × length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// In bit/s.
    pub rate: u64,
    /// In bytes.
    pub burst: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Table {
    step: Nanos,
    bytes: NonZeroU64,
    /// In the order of time, each with at least one opportunity.
    bursts: Vec<Burst>,
    /// Opportunities in a turn.
    total: u32,
    /// Steps in a turn.
    period: u32,
    bounds: Vec<Bound>,
}

/// The opportunities of a trace. All pipes share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities(Arc<Table>);

impl Opportunities {
    /// Opportunities of `bytes` each, one at least. Each of `runs` is a number of steps since the
    /// run before, or since the start, and the number of opportunities then. The trace repeats
    /// after the last of them. Sums are cut at 2³² − 1.
    #[must_use]
    pub fn new(step: Nanos, bytes: u32, runs: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let (mut period, mut total) = (0_u32, 0_u32);
        let mut bursts: Vec<Burst> = Vec::new();
        for (steps, count) in runs {
            period = period.saturating_add(steps);
            if count > 0 && bursts.last().is_none_or(|last| last.at < period) {
                bursts.push(Burst { at: period, first: total });
            }
            total = total.saturating_add(count);
        }
        let bytes = NonZeroU64::new(bytes.into()).unwrap_or(NonZeroU64::MIN);
        let step = step.max(Nanos(1));
        let mut table = Table { step, bytes, bursts, total, period, bounds: Vec::new() };
        table.bounds = table.bounds();
        Self(Arc::new(table))
    }

    #[must_use]
    pub fn step(&self) -> Nanos {
        self.0.step
    }

    /// Number of instants with opportunities in a turn.
    #[must_use]
    pub fn instants(&self) -> usize {
        self.0.bursts.len()
    }

    /// Whether there is an opportunity and a turn takes time.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.0.total > 0 && self.0.period > 0
    }

    /// Rate over whole turns, rounded up.
    #[must_use]
    pub fn mean(&self) -> BitRate {
        BitRate::bps(self.0.mean())
    }

    /// Largest rate of a single step.
    #[must_use]
    pub fn max(&self) -> BitRate {
        let table = &*self.0;
        let mut most = 0;
        for i in 0..table.bursts.len() {
            let mut count = table.count(i);
            // The end of a turn is the start of the next one.
            let (first, last) = (table.bursts[0], table.bursts[table.bursts.len() - 1]);
            if first.at == 0 && last.at == table.period && i == 0 {
                count += table.count(table.bursts.len() - 1);
            }
            most = most.max(count);
        }
        BitRate::bps(table.rate(most, table.step.0.into()))
    }

    /// The bound that allows the fewest bytes in `span`.
    #[must_use]
    pub fn bound(&self, span: Nanos) -> Bound {
        let bits = |b: &&Bound| {
            u128::from(b.rate) * u128::from(span.0)
                + u128::from(b.burst) * 8 * u128::from(NANOS_PER_SEC)
        };
        self.0.bounds.iter().min_by_key(bits).copied().unwrap_or_default()
    }
}

impl Table {
    /// Opportunities of the burst `i`.
    fn count(&self, i: usize) -> u64 {
        let next = self.bursts.get(i + 1).map_or(self.total, |next| next.first);
        u64::from(next - self.bursts[i].first)
    }

    /// `count` opportunities in `ns` nanoseconds in bit/s, rounded up.
    fn rate(&self, count: u64, ns: u128) -> u64 {
        let bits = u128::from(count) * u128::from(self.bytes.get()) * 8;
        let rate = (bits * u128::from(NANOS_PER_SEC)).div_ceil(ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Zero if a turn takes no time.
    fn mean(&self) -> u64 {
        if self.period == 0 {
            return 0;
        }
        self.rate(self.total.into(), u128::from(self.period) * u128::from(self.step.0))
    }

    /// Bounds at several rates, the mean at least.
    fn bounds(&self) -> Vec<Bound> {
        let mean = self.mean();
        let rates = QUARTERS.map(|quarters| {
            let rate = u128::from(mean) * u128::from(quarters) / 4;
            u64::try_from(rate).unwrap_or(u64::MAX)
        });
        rates.map(|rate| Bound { rate, burst: self.burst(rate) }).to_vec()
    }

    /// The most bytes in any window beyond those of `rate`, which is the mean rate at least:
    /// within two turns.
    fn burst(&self, rate: u64) -> u64 {
        let one = i128::from(self.bytes.get()) * 8 * i128::from(NANOS_PER_SEC);
        let per_step = i128::from(rate).saturating_mul(self.step.0.into());
        let (mut excess, mut most) = (0_i128, 0_i128);
        let mut before = 0;
        for turn in 0..2 {
            for (i, burst) in self.bursts.iter().enumerate() {
                let at = turn * i128::from(self.period) + i128::from(burst.at);
                excess = excess.saturating_sub(per_step.saturating_mul(at - before)).max(0);
                excess += one * i128::from(self.count(i));
                (before, most) = (at, most.max(excess));
            }
        }
        let bytes = most.unsigned_abs().div_ceil(8 * u128::from(NANOS_PER_SEC));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The burst with the opportunity `index`, which is in or after the burst `near` more often
    /// than not.
    fn burst_of(&self, index: u32, near: usize) -> usize {
        let near = near.min(self.bursts.len() - 1);
        let behind = &self.bursts[near..];
        if behind[0].first <= index {
            let ahead = behind.iter().take(STEPS).take_while(|b| b.first <= index).count();
            if ahead < STEPS {
                return near + ahead - 1;
            }
        }
        self.bursts.partition_point(|b| b.first <= index) - 1
    }
}

/// An opportunity. Ordered by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    turn: u64,
    index: u32,
}

/// Opportunities that run since an instant, and the frame in service.
#[derive(Clone, Debug)]
pub(super) struct Link {
    trace: Opportunities,
    since: Instant,
    /// Where the frame in service ends, or the last one ended.
    end: Position,
    /// Bytes that it leaves over there.
    spare: u64,
    /// The burst of `end`.
    burst: usize,
}

impl Link {
    /// `None` if there is never an opportunity.
    pub(super) fn new(trace: &Opportunities, since: Instant) -> Option<Self> {
        let (end, trace) = (Position::default(), trace.clone());
        trace.is_sound().then_some(Self { trace, since, end, spare: 0, burst: 0 })
    }

    pub(super) fn mean(&self) -> BitRate {
        self.trace.mean()
    }

    /// When a frame of `bytes` that begins at `at` leaves.
    pub(super) fn start(&mut self, at: Instant, bytes: u64) -> Instant {
        let first = self.after(at);
        self.take(first, bytes)
    }

    /// When a frame of `bytes` leaves that waited as the one before it left.
    pub(super) fn follow(&mut self, bytes: u64) -> Instant {
        match self.spare.checked_sub(bytes) {
            Some(spare) => {
                self.spare = spare;
                self.time(self.end, self.burst)
            }
            None => self.take(self.advanced(self.end, 1), bytes - self.spare),
        }
    }

    /// Bytes of the frame in service that are left at `at`.
    pub(super) fn left(&self, at: Instant) -> u64 {
        let next = self.after(at);
        if next > self.end {
            return 0;
        }
        let turns = self.end.turn - next.turn;
        let opportunities = turns
            .saturating_mul(self.trace.0.total.into())
            .saturating_add(self.end.index.into())
            .saturating_sub(next.index.into())
            .saturating_add(1);
        opportunities.saturating_mul(self.trace.0.bytes.get()).saturating_sub(self.spare)
    }

    /// When `bytes` more have left after the frame in service.
    pub(super) fn ahead(&self, bytes: u64) -> Instant {
        let more = bytes.saturating_sub(self.spare).div_ceil(self.trace.0.bytes.get());
        let end = self.advanced(self.end, more);
        self.time(end, self.trace.0.burst_of(end.index, self.burst))
    }

    /// Serves `bytes`, at least one, from the opportunity `first` on.
    fn take(&mut self, first: Position, bytes: u64) -> Instant {
        let size = self.trace.0.bytes.get();
        let count = bytes.div_ceil(size).max(1);
        self.end = self.advanced(first, count - 1);
        self.spare = (count * size).saturating_sub(bytes);
        self.burst = self.trace.0.burst_of(self.end.index, self.burst);
        self.time(self.end, self.burst)
    }

    /// The first opportunity after `t`.
    fn after(&self, t: Instant) -> Position {
        let table = &*self.trace.0;
        let steps = t.since(self.since).0 / table.step.0;
        let period = u64::from(table.period);
        let (turn, at) = (steps / period, steps % period);
        let burst = table.bursts.partition_point(|b| u64::from(b.at) <= at);
        match table.bursts.get(burst) {
            Some(burst) => Position { turn, index: burst.first },
            None => Position { turn: turn.saturating_add(1), index: 0 },
        }
    }

    fn advanced(&self, from: Position, count: u64) -> Position {
        let total = u64::from(self.trace.0.total);
        let index = u64::from(from.index).saturating_add(count);
        let turn = from.turn.saturating_add(index / total);
        Position { turn, index: u32::try_from(index % total).unwrap_or(0) }
    }

    /// When an opportunity of the burst `burst` comes.
    fn time(&self, at: Position, burst: usize) -> Instant {
        let table = &*self.trace.0;
        let steps = at.turn.saturating_mul(table.period.into());
        let steps = steps.saturating_add(table.bursts[burst].at.into());
        self.since + Nanos(steps.saturating_mul(table.step.0))
    }
}

#[cfg(test)]
mod tests;
