// SPDX-License-Identifier: Apache-2.0
//! Sums and balances of the statistics. Real counters do not overflow; those of an invalid message
//! saturate.

use crate::linkemu::v1::{
    AccessStats, ClientAccount, ClientStats, Conservation, Count, Drop, DropReason, Histogram,
    Lateness, Memory, PipeStats, PortStats, Span, Stats, WorkerStats,
};
use std::ops::AddAssign;
use std::sync::LazyLock;

/// Name of the sum of all expired clients. The accounts of a client are added at once when it expires, so
/// differences over time are not rates.
pub const EXPIRED: &str = "expired";

/// Fields that are zero if they are absent.
macro_rules! zero_if_absent {
    ($($message:ident { $($field:ident: $kind:ty),+ })+) => {$(
        impl $message {
            $(
                #[must_use]
                pub fn $field(&self) -> $kind {
                    self.$field.unwrap_or_default()
                }
            )+
        }
    )+};
}

zero_if_absent! {
    ClientAccount { received: Count, sent: Count, dropped: Count, held: Count }
    PortStats { received: Count, sent: Count }
    WorkerStats { received: Count, memory: Memory }
    Span { received: Count, sent: Count }
    Stats { lateness: Lateness, memory: Memory, conservation: Conservation }
}

/// The counts of a pipe, each with its function and as a part of a sum.
macro_rules! counts_of_pipe {
    ($($field:ident),+) => {
        zero_if_absent! { PipeStats { $($field: Count),+ } }

        impl PipeStats {
            fn add_counts(&mut self, more: &Self) {
                $(add(&mut self.$field, more.$field);)+
            }
        }
    };
}

counts_of_pipe! {
    received, sent, held, queue, marked, duplicated, corrupted, generated, cross_offered, cross_dropped
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl AddAssign for AccessStats {
    fn add_assign(&mut self, more: Self) {
        for (sum, more) in [
            (&mut self.requested_bytes, more.requested_bytes),
            (&mut self.assigned_bytes, more.assigned_bytes),
            (&mut self.used_bytes, more.used_bytes),
            (&mut self.requests, more.requests),
            (&mut self.collisions, more.collisions),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

impl AddAssign<&Self> for Histogram {
    /// Histograms of one kind have the same bounds.
    fn add_assign(&mut self, more: &Self) {
        let pairs = self.counts.iter_mut().zip(&more.counts);
        pairs.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.sum_ns = self.sum_ns.saturating_add(more.sum_ns);
    }
}

/// Adds to a sum that is absent without parts.
pub fn add<T: Copy + Default + AddAssign>(sum: &mut Option<T>, more: Option<T>) {
    if let Some(more) = more {
        *sum.get_or_insert_default() += more;
    }
}

fn add_histogram(sum: &mut Option<Histogram>, more: Option<&Histogram>) {
    match (sum, more) {
        (_, None) => {}
        (Some(sum), Some(more)) => *sum += more,
        (sum, Some(more)) => *sum = Some(more.clone()),
    }
}

impl AddAssign<&Self> for PipeStats {
    /// Of high-water marks the larger one remains.
    fn add_assign(&mut self, more: &Self) {
        self.add_counts(more);
        self.queue_max_bytes = self.queue_max_bytes.max(more.queue_max_bytes);
        add(&mut self.access, more.access);
        add_histogram(&mut self.queue_delay, more.queue_delay.as_ref());
        add_histogram(&mut self.lateness, more.lateness.as_ref());
        for drop in &more.dropped {
            self.drop_more(drop.reason, drop.count.unwrap_or_default());
        }
    }
}

impl PipeStats {
    /// Counts more packets as dropped.
    pub fn drop_more(&mut self, reason: i32, count: Count) {
        match self.dropped.iter_mut().find(|drop| drop.reason == reason) {
            Some(drop) => add(&mut drop.count, Some(count)),
            None => self.dropped.push(Drop { reason, count: Some(count) }),
        }
    }

    /// Packets dropped for a reason. Those that only a newer version knows are `Unspecified`.
    #[must_use]
    pub fn dropped_for(&self, reason: DropReason) -> Count {
        sum(self.dropped.iter().filter(|drop| drop.reason() == reason))
    }

    #[must_use]
    pub fn dropped_total(&self) -> Count {
        sum(&self.dropped)
    }

    /// received + duplicated + generated = sent + dropped + held.
    #[must_use]
    pub fn balances(&self) -> bool {
        let came = [self.received(), self.duplicated(), self.generated()];
        let left = [self.sent(), self.dropped_total(), self.held()];
        [|count: &Count| count.packets, |count: &Count| count.bytes].into_iter().all(|part| {
            let all =
                |counts: &[Count; 3]| counts.iter().map(|it| u128::from(part(it))).sum::<u128>();
            all(&came) == all(&left)
        })
    }
}

fn sum<'a>(drops: impl IntoIterator<Item = &'a Drop>) -> Count {
    let mut total = Count::default();
    drops.into_iter().filter_map(|drop| drop.count).for_each(|count| total += count);
    total
}

impl DropReason {
    /// All reasons; the last one is that of all others.
    pub const ALL: [Self; 11] = [
        Self::Aqm,
        Self::Limit,
        Self::Outage,
        Self::Loss,
        Self::Overload,
        Self::Runt,
        Self::Oversize,
        Self::Scheduled,
        Self::Mtu,
        Self::Shim,
        Self::Unspecified,
    ];

    /// As metrics and tables name it: "aqm".
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Aqm => "aqm",
            Self::Limit => "limit",
            Self::Outage => "outage",
            Self::Loss => "loss",
            Self::Overload => "overload",
            Self::Runt => "runt",
            Self::Oversize => "oversize",
            Self::Scheduled => "scheduled",
            Self::Mtu => "mtu",
            Self::Shim => "shim",
            Self::Unspecified => "other",
        }
    }
}

impl ClientStats {
    /// Counters towards the client.
    #[must_use]
    pub fn forward(&self) -> &PipeStats {
        self.forward_pipe.as_ref().unwrap_or(&NONE)
    }

    /// Counters from the client.
    #[must_use]
    pub fn back(&self) -> &PipeStats {
        self.return_pipe.as_ref().unwrap_or(&NONE)
    }

    /// Both, with the names of their directions.
    #[must_use]
    pub fn pipes(&self) -> [(&'static str, &PipeStats); 2] {
        [("forward", self.forward()), ("return", self.back())]
    }
}

static NONE: LazyLock<PipeStats> = LazyLock::new(PipeStats::default);

impl Stats {
    /// Client, direction and counters of each pipe.
    pub fn pipes(&self) -> impl Iterator<Item = (&str, &'static str, &PipeStats)> {
        self.clients
            .iter()
            .flat_map(|it| it.pipes().map(|(direction, pipe)| (&*it.client, direction, pipe)))
    }

    /// Number of pipes that do not balance.
    #[must_use]
    pub fn unbalanced(&self) -> usize {
        self.pipes().filter(|(_, _, pipe)| !pipe.balances()).count()
    }

    /// The sums of `conservation`.
    #[must_use]
    pub fn sums(&self) -> Conservation {
        let [mut received, mut duplicated, mut generated] = [Count::default(); 3];
        let [mut sent, mut dropped, mut held] = [Count::default(); 3];
        let mut exact = true;
        for (_, _, pipe) in self.pipes() {
            received += pipe.received();
            duplicated += pipe.duplicated();
            generated += pipe.generated();
            sent += pipe.sent();
            dropped += pipe.dropped_total();
            held += pipe.held();
            exact &= pipe.balances();
        }
        let [received, duplicated, generated] =
            [received, duplicated, generated].map(|count| count.packets);
        let [sent, dropped, held] = [sent, dropped, held].map(|count| count.packets);
        Conservation { received, duplicated, generated, sent, dropped, held, exact }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(packets: u64, bytes: u64) -> Option<Count> {
        Some(Count { packets, bytes })
    }

    fn pipe(received: (u64, u64), sent: (u64, u64)) -> PipeStats {
        let drop = |reason: i32| Drop { reason, count: count(1, 100) };
        PipeStats {
            received: count(received.0, received.1),
            sent: count(sent.0, sent.1),
            dropped: vec![drop(1), drop(3), drop(99)],
            held: count(2, 200),
            ..Default::default()
        }
    }

    fn sums(pipes: &[PipeStats]) -> Conservation {
        let client = |pipe: &PipeStats| ClientStats {
            forward_pipe: Some(pipe.clone()),
            ..Default::default()
        };
        Stats { clients: pipes.iter().map(client).collect(), ..Default::default() }.sums()
    }

    #[test]
    fn every_pipe_must_balance_in_packets_and_bytes() {
        let good = pipe((10, 1_000), (5, 500));
        let exact = Conservation { received: 10, sent: 5, dropped: 3, held: 2, ..sums(&[]) };
        assert_eq!(sums(std::slice::from_ref(&good)), exact);
        assert!(!sums(&[good, pipe((10, 1_001), (5, 500))]).exact);
        // Two errors that cancel in the sum are seen all the same.
        assert!(!sums(&[pipe((11, 1_000), (5, 500)), pipe((9, 1_000), (5, 500))]).exact);
        assert!(!sums(&[pipe((u64::MAX, u64::MAX), (5, 500))]).exact);
        assert!(sums(&[]).exact);
        // Duplicates and generated packets are part of the balance.
        let made = |duplicates, others| {
            let [duplicated, generated] = [duplicates, others].map(|n| count(n, n * 100));
            PipeStats { duplicated, generated, ..pipe((10, 1_000), (7, 700)) }
        };
        assert!(!sums(&[made(1, 0)]).exact);
        assert!(!sums(&[made(0, 1)]).exact);
        let both = sums(&[made(1, 1)]);
        assert_eq!((both.exact, both.duplicated, both.generated), (true, 1, 1));
    }

    #[test]
    fn sum_of_pipes_keeps_each_reason_and_the_larger_mark() {
        let one = PipeStats {
            queue_max_bytes: 7,
            queue_delay: Some(Histogram { counts: vec![1, 2], sum_ns: 3, first_bound_ns: 1 }),
            ..pipe((10, 1_000), (5, 500))
        };
        let mut sum = PipeStats { queue_max_bytes: 9, ..Default::default() };
        sum += &one;
        sum += &one;
        assert!(sum.balances());
        assert_eq!((sum.received().packets, sum.queue_max_bytes), (20, 9));
        for reason in [DropReason::Aqm, DropReason::Outage, DropReason::Unspecified] {
            assert_eq!(sum.dropped_for(reason), Count { packets: 2, bytes: 200 }, "{reason:?}");
        }
        assert_eq!(sum.dropped_for(DropReason::Loss), Count::default());
        assert_eq!(sum.queue_delay.unwrap().counts, [2, 4]);
    }
}
