// SPDX-License-Identifier: Apache-2.0
//! Counters of a pipe and snapshots of an engine.
//!
//! Conservation: received + duplicated = sent + dropped + held, in packets and in bytes, at
//! every instant.

use hdrhistogram::Histogram;

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
    /// Its turn in a run that is dropped by count.
    Scheduled,
    /// Without a shim that can be, where each frame is to have one.
    Shim,
}

impl DropReason {
    /// Every reason, in the order of [`PipeStats::dropped`].
    pub const ALL: [Self; 9] = [
        Self::Aqm,
        Self::Limit,
        Self::Outage,
        Self::Loss,
        Self::Overload,
        Self::Runt,
        Self::Oversize,
        Self::Scheduled,
        Self::Shim,
    ];
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of Ethernet frame without FCS.
    pub bytes: u64,
}

impl Count {
    /// Counts one frame.
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

/// The accounts of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStats {
    /// Arrived.
    pub received: Count,
    /// Made beside what arrived.
    pub duplicated: Count,
    /// Handed to the egress port.
    pub sent: Count,
    /// Dropped, by [`DropReason`].
    pub dropped: [Count; DropReason::ALL.len()],
    /// In the queue and in the delay line.
    pub held: Count,
    /// In the queue, the frame in service included.
    pub queue: Count,
    /// Most bytes in the queue since the last mark.
    pub queue_max_bytes: u64,
    /// Marked by the queue's AQM and not dropped; wherever they went from there.
    pub marked: Count,
    /// Of which a bit was turned; wherever they went from there.
    pub corrupted: Count,
    /// From a frame's arrival to the end of its service, by the shaper or in a beam by that, of
    /// all that were served.
    pub queue_delay: histogram::QueueDelay,
    /// How late the frames that were sent left.
    pub lateness: histogram::Lateness,
}

impl PipeStats {
    /// All drops.
    #[must_use]
    pub fn dropped_total(&self) -> Count {
        self.dropped.iter().fold(Count::default(), |a, d| a.plus(*d))
    }

    /// Whether received + duplicated = sent + dropped + held.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.received.plus(self.duplicated) == self.sent.plus(self.dropped_total()).plus(self.held)
    }
}

/// The accounts of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientStats {
    /// Whose.
    pub key: ClientKey,
    /// Per direction.
    pub pipes: ByDirection<PipeStats>,
}

/// Quantiles of how late frames left, since the last mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Frames.
    pub count: u64,
    /// Median.
    pub p50: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// 99.9th percentile.
    pub p999: Nanos,
    /// The latest.
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
    /// The instant.
    pub at: Instant,
    /// Generation of the plan in force.
    pub generation: u64,
    /// Every client, `bypass` and `default` first.
    pub clients: Vec<ClientStats>,
    /// Since the last mark.
    pub lateness: Lateness,
    /// Frames with a damaged or cut IP header, per direction; they passed.
    pub malformed: ByDirection<u64>,
    /// Size of the packet store in bytes.
    pub store_capacity: u64,
    /// Of it in use, whole segments.
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
        Self { clients: Vec::with_capacity(clients), ..Self::default() }
    }

    /// Whether every pipe's accounts balance.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.clients.iter().all(|c| c.pipes.0.iter().all(PipeStats::is_conserved))
    }

    /// The sum over clients and directions.
    #[must_use]
    pub fn total(&self) -> PipeStats {
        let mut sum = PipeStats::default();
        for p in self.clients.iter().flat_map(|c| c.pipes.0) {
            sum.received = sum.received.plus(p.received);
            sum.sent = sum.sent.plus(p.sent);
            sum.held = sum.held.plus(p.held);
            sum.queue = sum.queue.plus(p.queue);
            sum.duplicated = sum.duplicated.plus(p.duplicated);
            sum.corrupted = sum.corrupted.plus(p.corrupted);
            sum.marked = sum.marked.plus(p.marked);
            sum.queue_max_bytes = sum.queue_max_bytes.max(p.queue_max_bytes);
            sum.queue_delay = sum.queue_delay.plus(&p.queue_delay);
            sum.lateness = sum.lateness.plus(&p.lateness);
            for (a, b) in sum.dropped.iter_mut().zip(p.dropped) {
                *a = a.plus(b);
            }
        }
        sum
    }
}
