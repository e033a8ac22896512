// SPDX-License-Identifier: Apache-2.0
//! The last minute of a client, for the charts.
//!
//! It is kept in buckets of half a second of the dataplane's clock, so that the memory of
//! a client does not depend on the interval of the snapshots: 120 buckets of 20 bytes, 24 MB
//! for 10,000 clients. The bytes between two snapshots are spread evenly over the buckets
//! that lie between.

use crate::top::rates::Row;
use std::collections::VecDeque;

const BUCKET_NS: u64 = 500_000_000;
/// Number of buckets: one minute.
const BUCKETS: u64 = 120;
const BUCKET_S: f64 = BUCKET_NS as f64 / 1e9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// Transmitted towards the client, bit/s.
    Forward,
    /// Transmitted from the client, bit/s.
    Return,
    /// The longest queues, both directions together, bytes.
    Queue,
    /// Drops of all kinds, both directions, packets/s.
    Drops,
}

impl Series {
    /// In the order in which they are drawn.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Return, Self::Queue, Self::Drops];
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Its number since the dataplane started, the low bits.
    number: u32,
    /// Bits forward, bits return, bytes, packets.
    values: [f32; 4],
}

#[derive(Clone, Debug, Default)]
pub struct History(VecDeque<Bucket>);

impl History {
    /// Adds what a row says of the time from `from_ns` to `to_ns`.
    pub fn add(&mut self, from_ns: u64, to_ns: u64, row: &Row) {
        let both = row.both();
        let rates = [
            row.forward.rate_bps.unwrap_or(0.0),
            row.back.rate_bps.unwrap_or(0.0),
            both.dropping().unwrap_or(0.0),
        ];
        let last = to_ns / BUCKET_NS;
        let first = (from_ns.min(to_ns) / BUCKET_NS).max(last.saturating_sub(BUCKETS - 1));
        for number in first..=last {
            let (start, end) = (number * BUCKET_NS, (number + 1).saturating_mul(BUCKET_NS));
            let ns = end.min(to_ns).saturating_sub(start.max(from_ns));
            let seconds = ns as f64 / 1e9;
            let Some(bucket) = self.bucket(number) else { continue };
            let [forward, back, queue, drops] = &mut bucket.values;
            *forward += (rates[0] * seconds) as f32;
            *back += (rates[1] * seconds) as f32;
            *drops += (rates[2] * seconds) as f32;
            if number == last {
                *queue = queue.max(both.queue_bytes as f32);
            }
        }
    }

    /// The bucket of a number, made where it is not; `None` for one that is over.
    fn bucket(&mut self, number: u64) -> Option<&mut Bucket> {
        // A link runs for less than the 68 years of 32 bits.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        if self.0.back().is_none_or(|last| last.number < number) {
            self.0.push_back(Bucket { number, values: [0.0; 4] });
        }
        while self.0.front().is_some_and(|b| u64::from(number - b.number.min(number)) >= BUCKETS) {
            self.0.pop_front();
        }
        self.0.iter_mut().rev().find(|bucket| bucket.number == number)
    }

    /// `columns` figures that cover the minute up to `now_ns`, the oldest first: in each, the
    /// mean of rates, and the longest queue. Buckets that nothing is known of are 0.
    pub fn chart(&self, series: Series, now_ns: u64, columns: usize) -> Vec<u64> {
        let mut minute = [0.0_f64; BUCKETS as usize];
        let now = now_ns / BUCKET_NS;
        for bucket in &self.0 {
            let Some(age) = now.checked_sub(u64::from(bucket.number)) else { continue };
            let Some(place) = (BUCKETS - 1).checked_sub(age) else { continue };
            let value = f64::from(bucket.values[series as usize]);
            minute[place as usize] = if series == Series::Queue { value } else { value / BUCKET_S };
        }
        // The bucket that is being filled counts as far as it is filled.
        let filled = (now_ns % BUCKET_NS) as f64 / BUCKET_NS as f64;
        if series != Series::Queue {
            let newest = minute.len() - 1;
            let guess = if filled > 0.0 { minute[newest] / filled } else { minute[newest - 1] };
            minute[newest] = guess;
        }
        let column = |n: usize| {
            let (start, end) = (n * minute.len() / columns, (n + 1) * minute.len() / columns);
            // Where there are more columns than buckets, a bucket has several.
            let part = &minute[start..end.max(start + 1)];
            let value = match series {
                Series::Queue => part.iter().copied().fold(0.0, f64::max),
                // Seldom drops are not to vanish by rounding.
                Series::Drops => (part.iter().sum::<f64>() / part.len() as f64).ceil(),
                _ => part.iter().sum::<f64>() / part.len() as f64,
            };
            value as u64
        };
        (0..columns).map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::Flow;

    const S: u64 = 1_000_000_000;

    fn row(bps: f64, queue: u64) -> Row {
        let drops = Some([1.0, 0.0, 0.0, 0.0, 0.0]);
        let forward = Flow { rate_bps: Some(bps), queue_bytes: queue, drops, ..Flow::default() };
        let back = Flow { rate_bps: Some(bps / 2.0), drops: Some([0.0; 5]), ..Flow::default() };
        Row { client: "a".into(), forward, back }
    }

    #[test]
    fn a_steady_rate_is_a_level_chart_whatever_the_interval() {
        for step in [10_000_000, 200_000_000, 500_000_000, 700_000_000, 7 * S] {
            let mut history = History::default();
            let mut now = 3 * S;
            while now < 90 * S {
                history.add(now, now + step, &row(1e6, 5));
                now += step;
            }
            for columns in [1, 7, 60, 119, 120] {
                let chart = history.chart(Series::Forward, now, columns);
                assert_eq!(chart.len(), columns);
                // Sums of 32-bit floats.
                assert!(
                    chart.iter().all(|bps| bps.abs_diff(1_000_000) <= 1_000),
                    "{step} {columns}: {chart:?}"
                );
                let chart = history.chart(Series::Return, now, columns);
                assert!(chart.iter().all(|bps| bps.abs_diff(500_000) <= 500), "{chart:?}");
            }
        }
    }

    #[test]
    fn burst_keeps_its_place_and_leaves_after_a_minute() {
        let mut history = History::default();
        history.add(10 * S, 10 * S + BUCKET_NS, &row(8e6, 700));
        let at = |now, series| -> Vec<(usize, u64)> {
            let chart = history.chart(series, now, 120);
            chart.into_iter().enumerate().filter(|(_, value)| *value > 0).collect()
        };
        assert_eq!(at(30 * S, Series::Forward), [(79, 8_000_000)]);
        // Its end is the start of the next bucket, which holds the queue.
        assert_eq!(at(30 * S, Series::Queue), [(80, 700)]);
        assert!(at(71 * S, Series::Forward).is_empty());
        // In a narrow chart the bucket is a part of a column, which shows the longest queue.
        assert_eq!(history.chart(Series::Forward, 30 * S, 12)[7], 800_000);
        assert_eq!(history.chart(Series::Queue, 30 * S, 12)[8], 700);
    }

    #[test]
    fn single_drop_in_a_minute_is_visible() {
        let mut history = History::default();
        history.add(10 * S, 11 * S, &row(0.0, 0));
        for columns in [1, 10, 120] {
            let chart = history.chart(Series::Drops, 20 * S, columns);
            assert!(chart.iter().any(|rate| *rate > 0), "{columns}");
        }
    }

    #[test]
    fn memory_is_bounded_and_odd_clocks_do_no_harm() {
        let mut history = History::default();
        for n in 0..100_000 {
            history.add(n * 100_000_000, (n + 1) * 100_000_000, &row(1.0, 1));
        }
        assert!(history.0.len() <= BUCKETS as usize);
        history.add(0, u64::MAX, &row(1.0, 1));
        history.add(u64::MAX, 0, &row(1.0, 1));
        history.add(5, 5, &row(f64::MAX, u64::MAX));
        assert!(history.0.len() <= BUCKETS as usize);
        let _ = history.chart(Series::Forward, u64::MAX, 120);
        let _ = history.chart(Series::Forward, 0, 500);
        assert!(history.chart(Series::Forward, 0, 0).is_empty());
    }
}
