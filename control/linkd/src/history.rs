// SPDX-License-Identifier: Apache-2.0
//! Samples of the statistics of all links, for charts.
//!
//! One task samples, however many watch: each second, and ten times a second while somebody watches
//! with less than a second. With many links or clients the rounds are further apart: at least [`REST`] times
//! the duration of one. Samples are kept in
//! memory, bounded by [`SAMPLES`].

use crate::links::Links;
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, add, link_name};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Intervals of the two series.
pub(crate) const COARSE: Duration = Duration::from_secs(1);
pub(crate) const FINE: Duration = Duration::from_millis(100);
/// Kept of each link: an hour, and a minute.
const COARSE_SAMPLES: usize = 3_600;
const FINE_SAMPLES: usize = 600;
/// Kept of all links: about 80 MB.
const SAMPLES: usize = 131_072;
/// Interval between rounds, as a multiple of the duration of a round. Most of a round is spent waiting
/// for workers.
const REST: u32 = 3;
/// Links that are asked at a time.
const AT_ONCE: usize = 32;
/// For the statistics of one link.
const DEADLINE: Duration = Duration::from_secs(3);

/// The samples; clones share them.
#[derive(Clone)]
pub(crate) struct History(Arc<Shared>);

struct Shared {
    table: Mutex<BTreeMap<String, Series>>,
    /// Number of the last round.
    rounds: watch::Sender<u64>,
    wanted: watch::Sender<Wanted>,
}

/// Who wants samples.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// Without an end: for the web page.
    always: bool,
    coarse: usize,
    fine: usize,
}

impl Wanted {
    fn period(self) -> Option<Duration> {
        match self {
            Self { fine: 1.., .. } => Some(FINE),
            Self { always: true, .. } | Self { coarse: 1.., .. } => Some(COARSE),
            _ => None,
        }
    }
}

/// The samples of one link, in order of time.
#[derive(Default)]
struct Series {
    coarse: VecDeque<pb::LinkSample>,
    fine: VecDeque<pb::LinkSample>,
    /// When the last coarse one was taken.
    since: Option<Instant>,
    /// The round of the last one.
    round: u64,
}

/// Keeps the sampling going while it is there.
pub(crate) struct Watcher {
    history: History,
    is_fine: bool,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.history.0.wanted.send_modify(|wanted| *self.count(wanted) -= 1);
    }
}

impl Watcher {
    fn count<'a>(&self, wanted: &'a mut Wanted) -> &'a mut usize {
        if self.is_fine { &mut wanted.fine } else { &mut wanted.coarse }
    }
}

impl History {
    /// Without a watcher it samples only if `always`.
    pub fn new(always: bool) -> Self {
        let wanted = Wanted { always, ..Wanted::default() };
        let (rounds, wanted) = (watch::Sender::new(0), watch::Sender::new(wanted));
        Self(Arc::new(Shared { table: Mutex::default(), rounds, wanted }))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Series>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that samples are wanted at an interval.
    pub fn watch(&self, interval: Duration) -> Watcher {
        let watcher = Watcher { history: self.clone(), is_fine: interval < COARSE };
        self.0.wanted.send_modify(|wanted| *watcher.count(wanted) += 1);
        watcher
    }

    pub fn rounds(&self) -> watch::Receiver<u64> {
        self.0.rounds.subscribe()
    }

    /// The last sample of each link that was taken after a round, by name.
    pub fn since(&self, round: u64) -> BTreeMap<String, pb::LinkSample> {
        let table = self.table();
        let fresh = table.iter().filter(|(_, series)| series.round > round);
        fresh
            .filter_map(|(name, series)| Some((name.clone(), series.fine.back()?.clone())))
            .collect()
    }

    /// The samples of a link after a time on the dataplane's clock, or all for 0.
    pub fn of(&self, link: &str, is_fine: bool, after_ns: u64) -> Vec<pb::LinkSample> {
        let table = self.table();
        let Some(series) = table.get(link) else { return Vec::new() };
        let samples = if is_fine { &series.fine } else { &series.coarse };
        let samples = samples.iter().filter(|it| after_ns == 0 || it.time_ns > after_ns);
        samples.cloned().map(without_reasons).collect()
    }

    /// Samples for ever.
    pub async fn run(&self, links: &Links) {
        let mut wanted = self.0.wanted.subscribe();
        let mut last = None;
        loop {
            let period = wanted.borrow_and_update().period();
            let begin = match (period, last) {
                (None, _) => None,
                (Some(_), None) => Some(Instant::now()),
                (Some(period), Some((begin, took))) => Some(begin + period.max(took * REST)),
            };
            match begin {
                None => {
                    let _ = wanted.changed().await;
                    continue;
                }
                Some(begin) => tokio::select! {
                    () = sleep_until(begin) => {}
                    _ = wanted.changed() => continue,
                },
            }
            let begin = Instant::now();
            self.round(links, begin).await;
            last = Some((begin, begin.elapsed()));
        }
    }

    /// Takes a sample of each link.
    async fn round(&self, links: &Links, now: Instant) {
        let main = (MAIN_LINK.to_owned(), links.main().clone());
        let all: Vec<_> = std::iter::once(main).chain(links.others()).collect();
        let mut samples = BTreeMap::new();
        for part in all.chunks(AT_ONCE) {
            let mut asked = JoinSet::new();
            for (name, lane) in part {
                let (name, dataplane) = (name.clone(), lane.control.dataplane().clone());
                asked.spawn(async move {
                    // One that was removed meanwhile has no figures.
                    let stats = timeout(DEADLINE, dataplane.own_stats(false)).await.ok()?.ok()?;
                    Some((name.clone(), sample(&name, &stats)))
                });
            }
            samples.extend(asked.join_all().await.into_iter().flatten());
            if samples.is_empty() {
                // The dataplane does not answer.
                break;
            }
        }
        if samples.is_empty() {
            return;
        }
        let round = *self.0.rounds.borrow() + 1;
        self.keep(samples, now, round);
        self.0.rounds.send_replace(round);
    }

    fn keep(&self, samples: BTreeMap<String, pb::LinkSample>, now: Instant, round: u64) {
        let share = SAMPLES / samples.len().max(1);
        let (coarse, fine) = (share.min(COARSE_SAMPLES), (share / 4).clamp(1, FINE_SAMPLES));
        let coarse = coarse.min(share.saturating_sub(fine)).max(1);
        let mut table = self.table();
        table.retain(|name, _| samples.contains_key(name));
        for (name, sample) in samples {
            let series = table.entry(name).or_default();
            // A little early, so that no second is left out for one that comes late.
            let due =
                series.since.is_none_or(|since| now.duration_since(since) >= COARSE - FINE / 2);
            if due {
                series.since = Some(now);
                push(&mut series.coarse, without_reasons(sample.clone()), coarse);
            }
            // Only the last one has the reasons of drops.
            if let Some(last) = series.fine.pop_back() {
                series.fine.push_back(without_reasons(last));
            }
            push(&mut series.fine, sample, fine);
            series.round = round;
        }
    }
}

/// The sample without the reasons of drops, which take several times its memory.
fn without_reasons(mut sample: pb::LinkSample) -> pb::LinkSample {
    for direction in [&mut sample.forward_sample, &mut sample.return_sample].into_iter().flatten() {
        direction.drops = Vec::new();
    }
    sample
}

fn push(samples: &mut VecDeque<pb::LinkSample>, sample: pb::LinkSample, limit: usize) {
    let excess = (samples.len() + 1).saturating_sub(limit);
    samples.drain(..excess);
    samples.push_back(sample);
}

fn sample(name: &str, stats: &pb::Stats) -> pb::LinkSample {
    let pipes = |of: fn(&pb::ClientStats) -> Option<&pb::PipeStats>| {
        direction(stats.clients.iter().filter_map(of))
    };
    pb::LinkSample {
        link: link_name(name),
        time_ns: stats.time_ns,
        utc: stats.utc,
        generation: stats.generation,
        forward_sample: Some(pipes(|client| client.forward_pipe.as_ref())),
        return_sample: Some(pipes(|client| client.return_pipe.as_ref())),
        emulator_drops: stats.emulator_drops,
        stall_max_ns: stats.stall_max_ns,
        lateness_p99_ns: stats.lateness.as_ref().map_or(0, |lateness| lateness.p99_ns),
        memory_used_bytes: stats.memory.as_ref().map_or(0, |memory| memory.used_bytes),
        clients: u32::try_from(stats.clients.len()).unwrap_or(u32::MAX),
    }
}

fn direction<'a>(pipes: impl Iterator<Item = &'a pb::PipeStats>) -> pb::DirectionSample {
    let mut sum = pb::DirectionSample::default();
    let mut drops: BTreeMap<i32, Option<pb::Count>> = BTreeMap::new();
    for pipe in pipes {
        for (total, counts) in [
            (&mut sum.received, pipe.received),
            (&mut sum.sent, pipe.sent),
            (&mut sum.held, pipe.held),
            (&mut sum.queue, pipe.queue),
            (&mut sum.marked, pipe.marked),
        ] {
            add(total, counts);
        }
        for drop in &pipe.dropped {
            add(&mut sum.dropped, drop.count);
            add(drops.entry(drop.reason).or_default(), drop.count);
        }
        add(&mut sum.access, pipe.access);
        sum.longest_queue_bytes = sum.longest_queue_bytes.max(pipe.queue().bytes);
        if let Some(delay) = &pipe.queue_delay {
            sum.queue_delay_sum_ns = sum.queue_delay_sum_ns.saturating_add(delay.sum_ns);
            let packets = delay.counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
            sum.queue_delay_count = sum.queue_delay_count.saturating_add(packets);
        }
    }
    sum.drops = drops.into_iter().map(|(reason, count)| pb::Drop { reason, count }).collect();
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(history: &History, links: usize, at: Instant, n: u64) {
        let sample = |link: usize| {
            let sample = pb::LinkSample { time_ns: n, ..Default::default() };
            (link.to_string(), sample)
        };
        history.keep((0..links).map(sample).collect(), at, n);
    }

    #[test]
    fn samples_take_the_stated_memory() {
        let bytes = SAMPLES * size_of::<pb::LinkSample>();
        assert!((70_000_000..90_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn an_hour_of_seconds_and_a_minute_of_tenths_are_kept() {
        let history = History::new(true);
        let begin = Instant::now();
        for n in 1..=40_000 {
            keep(&history, 1, begin + FINE * n, u64::from(n));
        }
        let (fine, coarse) = (history.of("0", true, 0), history.of("0", false, 0));
        assert_eq!((fine.len(), coarse.len()), (FINE_SAMPLES, COARSE_SAMPLES));
        assert_eq!((fine[0].time_ns, fine[599].time_ns), (39_401, 40_000));
        assert!(coarse.windows(2).all(|two| two[1].time_ns - two[0].time_ns == 10));
        assert_eq!(history.of("0", true, 39_998).len(), 2);
        assert!(history.of("1", true, 0).is_empty());
        assert_eq!(history.since(39_999).len(), 1);
        assert!(history.since(40_000).is_empty());
    }

    #[test]
    fn samples_of_many_links_are_bounded_together_and_those_of_removed_ones_go() {
        let history = History::new(true);
        let begin = Instant::now();
        for n in 1..=200 {
            keep(&history, 1_024, begin + COARSE * n, u64::from(n));
        }
        let samples = |table: &BTreeMap<String, Series>| -> usize {
            table.values().map(|series| series.coarse.len() + series.fine.len()).sum()
        };
        assert_eq!(samples(&history.table()), SAMPLES);
        keep(&history, 2, begin + COARSE * 201, 201);
        assert_eq!(history.table().len(), 2);
    }

    #[test]
    fn sample_has_the_sums_over_all_clients() {
        let count = |packets| Some(pb::Count { packets, bytes: packets * 100 });
        let drop = |reason: pb::DropReason, packets| pb::Drop {
            reason: reason as i32,
            count: count(packets),
        };
        let pipe = |n| pb::PipeStats {
            received: count(n),
            dropped: vec![drop(pb::DropReason::Aqm, 1), drop(pb::DropReason::Outage, 2)],
            queue: count(n),
            access: Some(pb::AccessStats { requested_bytes: n, ..Default::default() }),
            queue_delay: Some(pb::Histogram { counts: vec![1, n], sum_ns: 5, first_bound_ns: 1 }),
            ..Default::default()
        };
        let client = |n| pb::ClientStats { forward_pipe: Some(pipe(n)), ..Default::default() };
        let stats = pb::Stats { clients: vec![client(3), client(4)], ..Default::default() };
        let sample = sample("lab1", &stats);
        let forward = sample.forward_sample.clone().unwrap();
        assert_eq!((sample.link.as_str(), sample.clients), ("links/lab1", 2));
        assert_eq!((forward.received, forward.dropped), (count(7), count(6)));
        assert_eq!((forward.queue_delay_sum_ns, forward.queue_delay_count), (10, 9));
        assert_eq!((forward.queue, forward.longest_queue_bytes), (count(7), 400));
        assert_eq!(forward.access.map(|access| access.requested_bytes), Some(7));
        assert_eq!(forward.drops, [drop(pb::DropReason::Aqm, 2), drop(pb::DropReason::Outage, 4)]);
        assert_eq!(sample.return_sample, Some(pb::DirectionSample::default()));

        let history = History::new(true);
        for n in 1..=2 {
            history.keep([("lab1".into(), sample.clone())].into(), Instant::now(), n);
        }
        let reasons = |sample: &pb::LinkSample| sample.forward_sample.as_ref().unwrap().drops.len();
        assert_eq!(reasons(&history.since(1)["lab1"]), 2);
        for is_fine in [false, true] {
            assert!(history.of("lab1", is_fine, 0).iter().all(|sample| reasons(sample) == 0));
        }
    }
}
