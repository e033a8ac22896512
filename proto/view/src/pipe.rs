// SPDX-License-Identifier: Apache-2.0
//! Counters of one client and direction, as JSON. The keys are a contract: they do not change.

use proto::linkemu::v1 as pb;
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

/// Counters of one client and direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Pipe {
    pub received: Count,
    pub sent: Count,
    pub dropped: Dropped,
    pub held: Count,
    pub queue: Count,
    pub queue_max_bytes: u64,
    pub marked: Count,
    pub duplicated: Count,
    pub corrupted: Count,
    /// ICMP messages of the link about packets above its MTU.
    #[serde(default)]
    pub generated: Count,
    /// Phantom frames of cross traffic that arrived.
    #[serde(default)]
    pub cross_offered: Count,
    /// Phantom frames that the queue dropped.
    #[serde(default)]
    pub cross_dropped: Count,
    /// Capacity on demand; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    pub queue_delay_ns: Option<Histogram>,
    pub lateness_ns: Option<Histogram>,
}

/// What a terminal asked for and was assigned. The difference of assigned and used bytes was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Access {
    pub requested_bytes: u64,
    pub assigned_bytes: u64,
    pub used_bytes: u64,
    pub requests: u64,
    pub collisions: u64,
}

impl AddAssign for Access {
    fn add_assign(&mut self, other: Self) {
        self.requested_bytes += other.requested_bytes;
        self.assigned_bytes += other.assigned_bytes;
        self.used_bytes += other.used_bytes;
        self.requests += other.requests;
        self.collisions += other.collisions;
    }
}

impl From<pb::AccessStats> for Access {
    fn from(stats: pb::AccessStats) -> Self {
        let pb::AccessStats { requested_bytes, assigned_bytes, used_bytes, requests, collisions } =
            stats;
        Self { requested_bytes, assigned_bytes, used_bytes, requests, collisions }
    }
}

/// Durations since the dataplane started. The first bucket is up to and including its bound,
/// each further one up to twice as long, the last all that are longer still.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Histogram {
    pub counts: Vec<u64>,
    pub sum: u64,
    pub first_bound: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Dropped {
    pub aqm: Count,
    pub limit: Count,
    pub outage: Count,
    pub loss: Count,
    pub overload: Count,
    pub runt: Count,
    pub oversize: Count,
    pub scheduled: Count,
    #[serde(default)]
    pub mtu: Count,
    /// Where a P4 switch puts a shim on each.
    #[serde(default, skip_serializing_if = "Count::is_zero")]
    pub shim: Count,
    /// Reasons that a newer linkd has.
    #[serde(default, skip_serializing_if = "Count::is_zero")]
    pub other: Count,
}

impl Count {
    fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        // Real counters do not overflow; invalid input must not panic.
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl From<Option<pb::Count>> for Count {
    fn from(count: Option<pb::Count>) -> Self {
        let pb::Count { packets, bytes } = count.unwrap_or_default();
        Self { packets, bytes }
    }
}

impl Dropped {
    /// Each reason and its name.
    pub fn reasons(&self) -> [(&'static str, Count); 11] {
        [
            ("aqm", self.aqm),
            ("limit", self.limit),
            ("outage", self.outage),
            ("loss", self.loss),
            ("overload", self.overload),
            ("runt", self.runt),
            ("oversize", self.oversize),
            ("scheduled", self.scheduled),
            ("mtu", self.mtu),
            ("shim", self.shim),
            ("other", self.other),
        ]
    }

    pub fn total(&self) -> Count {
        let mut total = Count::default();
        self.reasons().into_iter().for_each(|(_, count)| total += count);
        total
    }
}

impl AddAssign<&Self> for Dropped {
    fn add_assign(&mut self, o: &Self) {
        let Self {
            aqm,
            limit,
            outage,
            loss,
            overload,
            runt,
            oversize,
            scheduled,
            mtu,
            shim,
            other,
        } = self;
        let sums =
            [aqm, limit, outage, loss, overload, runt, oversize, scheduled, mtu, shim, other];
        sums.into_iter().zip(o.reasons()).for_each(|(sum, (_, count))| *sum += count);
    }
}

impl Pipe {
    /// received + duplicated + generated = sent + dropped + held.
    pub fn balances(&self) -> bool {
        let dropped = self.dropped.total();
        let sum = |part: fn(&Count) -> u64| {
            let all = |counts: [Count; 3]| counts.iter().map(|c| u128::from(part(c))).sum::<u128>();
            all([self.sent, dropped, self.held])
                == all([self.received, self.duplicated, self.generated])
        };
        sum(|c| c.packets) && sum(|c| c.bytes)
    }
}

/// Adds counts; both histograms have the same bounds.
fn add_histogram(sum: &mut Option<Histogram>, other: Option<&Histogram>) {
    match (sum, other) {
        (_, None) => {}
        (Some(sum), Some(other)) => {
            let pairs = sum.counts.iter_mut().zip(&other.counts);
            pairs.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
            sum.sum = sum.sum.saturating_add(other.sum);
        }
        (sum, Some(other)) => *sum = Some(other.clone()),
    }
}

impl From<pb::Histogram> for Histogram {
    fn from(h: pb::Histogram) -> Self {
        Self { counts: h.counts, sum: h.sum_ns, first_bound: h.first_bound_ns }
    }
}

impl AddAssign<&Self> for Pipe {
    /// The high-water mark of a sum is the highest of its parts' own.
    fn add_assign(&mut self, other: &Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.dropped += &other.dropped;
        self.held += other.held;
        self.queue += other.queue;
        self.queue_max_bytes = self.queue_max_bytes.max(other.queue_max_bytes);
        self.marked += other.marked;
        self.duplicated += other.duplicated;
        self.corrupted += other.corrupted;
        self.generated += other.generated;
        self.cross_offered += other.cross_offered;
        self.cross_dropped += other.cross_dropped;
        if let Some(other) = other.access {
            *self.access.get_or_insert_default() += other;
        }
        add_histogram(&mut self.queue_delay_ns, other.queue_delay_ns.as_ref());
        add_histogram(&mut self.lateness_ns, other.lateness_ns.as_ref());
    }
}

impl From<Option<pb::PipeStats>> for Pipe {
    fn from(stats: Option<pb::PipeStats>) -> Self {
        let stats = stats.unwrap_or_default();
        let mut dropped = Dropped::default();
        for drop in &stats.dropped {
            let slot = match drop.reason() {
                pb::DropReason::Aqm => &mut dropped.aqm,
                pb::DropReason::Limit => &mut dropped.limit,
                pb::DropReason::Outage => &mut dropped.outage,
                pb::DropReason::Loss => &mut dropped.loss,
                pb::DropReason::Overload => &mut dropped.overload,
                pb::DropReason::Runt => &mut dropped.runt,
                pb::DropReason::Oversize => &mut dropped.oversize,
                pb::DropReason::Scheduled => &mut dropped.scheduled,
                pb::DropReason::Shim => &mut dropped.shim,
                pb::DropReason::Mtu => &mut dropped.mtu,
                pb::DropReason::Unspecified => &mut dropped.other,
            };
            *slot += drop.count.into();
        }
        Self {
            received: stats.received.into(),
            sent: stats.sent.into(),
            dropped,
            held: stats.held.into(),
            queue: stats.queue.into(),
            queue_max_bytes: stats.queue_max_bytes,
            marked: stats.marked.into(),
            duplicated: stats.duplicated.into(),
            corrupted: stats.corrupted.into(),
            generated: stats.generated.into(),
            cross_offered: stats.cross_offered.into(),
            cross_dropped: stats.cross_dropped.into(),
            access: stats.access.map(Access::from),
            queue_delay_ns: stats.queue_delay.map(Histogram::from),
            lateness_ns: stats.lateness.map(Histogram::from),
        }
    }
}
