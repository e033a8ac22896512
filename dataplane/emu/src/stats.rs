// SPDX-License-Identifier: Apache-2.0
//! Counters of a pipe and snapshots of an engine.
//!
//! Conservation: received + duplicated + generated = sent + dropped + held, in packets and in
//! bytes, at every instant.

use hdrhistogram::Histogram;

use crate::access::AccessStats;
use crate::client::ClientKey;
use crate::histogram;
use crate::units::{ByDirection, Instant, Nanos};

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// The queue's AQM chose it.
    Aqm,
    /// The queue was at its limit.
    Limit,
    /// The channel was in an outage.
    Outage,
    /// The channel lost it: loss per packet.
    Loss,
    /// The packet store was full: the emulator's own fault.
    Overload,
    /// Shorter than an Ethernet header.
    Runt,
    /// Longer than a frame may be.
    Oversize,
    /// Part of a run that is dropped by count.
    Scheduled,
    /// The caller rejected it ([`Hint::Reject`](crate::frame::Hint::Reject)).
    Rejected,
    /// Its IP packet was longer than the MTU of the link.
    Mtu,
}

impl DropReason {
    /// Every reason, in the order of [`PipeStats::dropped`].
    pub const ALL: [Self; 10] = [
        Self::Aqm,
        Self::Limit,
        Self::Outage,
        Self::Loss,
        Self::Overload,
        Self::Runt,
        Self::Oversize,
        Self::Scheduled,
        Self::Rejected,
        Self::Mtu,
    ];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u64,
    /// Bytes of Ethernet frame without FCS.
    pub bytes: u64,
}

impl Count {
    #[inline]
    pub fn add(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
    }

    /// The sum of two counts.
    #[must_use]
    pub fn plus(self, o: Self) -> Self {
        Self { packets: self.packets + o.packets, bytes: self.bytes + o.bytes }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStats {
    pub received: Count,
    /// Copies made of arriving frames.
    pub duplicated: Count,
    /// Frames that the link made itself: answers to packets above the MTU, in the bypass.
    pub generated: Count,
    /// Handed to the egress port.
    pub sent: Count,
    /// By [`DropReason`].
    pub dropped: [Count; DropReason::ALL.len()],
    /// In the queue and in the delay line.
    pub held: Count,
    /// In the queue, the frame in service and phantom ones included.
    pub queue: Count,
    /// Most bytes in the queue since the last mark.
    pub queue_max_bytes: u64,
    /// Marked by the queue's AQM, sent or dropped later.
    pub marked: Count,
    /// Frames with a flipped bit, sent or dropped later.
    pub corrupted: Count,
    /// Phantom frames of cross traffic that arrived. No other count includes them, except for
    /// [`PipeStats::queue`] and [`PipeStats::queue_max_bytes`].
    pub cross_offered: Count,
    /// Phantom frames that were dropped.
    pub cross_dropped: Count,
    /// Capacity that was asked for and granted.
    pub access: AccessStats,
    /// From a frame's arrival to the end of its service, by the shaper or in a beam by that, of
    /// all that were served.
    pub queue_delay: histogram::QueueDelay,
    /// How late the frames that were sent left.
    pub lateness: histogram::Lateness,
}

impl PipeStats {
    #[must_use]
    pub fn dropped_total(&self) -> Count {
        self.dropped.iter().fold(Count::default(), |a, d| a.plus(*d))
    }

    /// The sum of two accounts; of the high-water marks the higher one.
    #[must_use]
    pub fn plus(mut self, o: &Self) -> Self {
        self.received = self.received.plus(o.received);
        self.duplicated = self.duplicated.plus(o.duplicated);
        self.generated = self.generated.plus(o.generated);
        self.sent = self.sent.plus(o.sent);
        for (dropped, more) in self.dropped.iter_mut().zip(o.dropped) {
            *dropped = dropped.plus(more);
        }
        self.held = self.held.plus(o.held);
        self.queue = self.queue.plus(o.queue);
        self.queue_max_bytes = self.queue_max_bytes.max(o.queue_max_bytes);
        self.marked = self.marked.plus(o.marked);
        self.corrupted = self.corrupted.plus(o.corrupted);
        self.cross_offered = self.cross_offered.plus(o.cross_offered);
        self.cross_dropped = self.cross_dropped.plus(o.cross_dropped);
        self.access = self.access.plus(o.access);
        self.queue_delay = self.queue_delay.plus(&o.queue_delay);
        self.lateness = self.lateness.plus(&o.lateness);
        self
    }

    /// Whether received + duplicated + generated = sent + dropped + held.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        let came = self.received.plus(self.duplicated).plus(self.generated);
        came == self.sent.plus(self.dropped_total()).plus(self.held)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientStats {
    pub key: ClientKey,
    /// In the engine; none of the expired clients, which are one here.
    pub index: Option<u32>,
    pub pipes: ByDirection<PipeStats>,
}

/// Quantiles of how late frames left, since the last mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    pub count: u64,
    pub p50: Nanos,
    pub p99: Nanos,
    pub p999: Nanos,
    pub max: Nanos,
}

impl Lateness {
    /// The quantiles of a histogram of nanoseconds.
    #[must_use]
    pub fn of(h: &Histogram<u64>) -> Self {
        Self {
            count: h.len(),
            p50: Nanos(h.value_at_quantile(0.5)),
            p99: Nanos(h.value_at_quantile(0.99)),
            p999: Nanos(h.value_at_quantile(0.999)),
            max: Nanos(h.max()),
        }
    }
}

/// An engine's accounts at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub at: Instant,
    /// Generation of the current plan.
    pub generation: u64,
    /// Every client, `bypass` and `default` first; last, if clients have expired, `expired`.
    pub clients: Vec<ClientStats>,
    /// Since the last mark.
    pub lateness: Lateness,
    /// Frames with a damaged or cut IP header, per direction; they passed.
    pub malformed: ByDirection<u64>,
    /// Frames of clients that there was no slot for, per direction; they took the link of
    /// `default`.
    pub unplaced: ByDirection<u64>,
    /// Size of the packet store in bytes.
    pub store_capacity: u64,
    /// Bytes of the store in use, in whole segments.
    pub store_used: u64,
    /// Most in use since the last mark.
    pub store_used_max: u64,
    /// Drivers' buffers that are kept.
    pub buffers: u32,
}

impl Snapshot {
    /// An empty snapshot with room for `clients` clients, so that filling it in
    /// does not allocate.
    #[must_use]
    pub fn with_room_for(clients: usize) -> Self {
        // One more for those that have expired.
        Self { clients: Vec::with_capacity(clients + 1), ..Self::default() }
    }

    /// Whether every pipe's accounts balance.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.clients.iter().all(|c| c.pipes.0.iter().all(PipeStats::is_conserved))
    }

    /// The sum over clients and directions.
    #[must_use]
    pub fn total(&self) -> PipeStats {
        let pipes = self.clients.iter().flat_map(|c| &c.pipes.0);
        pipes.fold(PipeStats::default(), PipeStats::plus)
    }
}
