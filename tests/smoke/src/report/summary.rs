// SPDX-License-Identifier: Apache-2.0
//! `summary.json`: the figures of a run under stable keys.

use serde::{Serialize, Serializer};

use crate::pb;
use crate::stats::{DropReason, Stats};

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub idle_rtt_ms: IdleRtt,
    pub downloads: Vec<Download>,
    /// Change of the rate in mid-download.
    pub change: Change,
    /// Forward queue, over the whole run.
    pub queue: Queue,
    /// Lateness of packets that left the emulator.
    pub lateness_us: Lateness,
    /// Packets of all clients and directions at the end of the run.
    #[serde(serialize_with = "balance")]
    pub conservation: pb::Conservation,
    /// Packets that the emulator itself lost.
    pub emulator_drops: u64,
}

fn balance<S: Serializer>(of: &pb::Conservation, serializer: S) -> Result<S::Ok, S::Error> {
    proto::json(of).serialize(serializer)
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct IdleRtt {
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Download {
    pub cc: String,
    /// Payload rate of the whole download.
    pub mbps: f64,
    /// Payload rate of its second half.
    pub mbps_second_half: f64,
    /// Mean round-trip time of the sender over its second half.
    pub rtt_ms_mean: f64,
    /// Segments that arrived after a segment that was sent later.
    pub reordered: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Change {
    pub from_mbps: f64,
    pub to_mbps: f64,
    pub measured_mbps: f64,
    /// Time of the change, since the dataplane's start.
    pub applied_at_ns: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Queue {
    pub max_bytes: u64,
    /// Packets dropped by the AQM.
    pub aqm_drops: u64,
    /// Packets that arrived while the queue was full.
    pub overflow_drops: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Lateness {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Queue {
    #[must_use]
    pub fn of(stats: &Stats) -> Self {
        let pipes = || stats.clients.iter().map(|c| c.forward());
        Self {
            max_bytes: pipes().map(|p| p.queue_max_bytes).max().unwrap_or(0),
            aqm_drops: pipes().map(|p| p.dropped_for(DropReason::Aqm).packets).sum(),
            overflow_drops: pipes().map(|p| p.dropped_for(DropReason::Limit).packets).sum(),
        }
    }
}

impl Lateness {
    #[must_use]
    pub fn of(stats: &Stats) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        let late = stats.lateness();
        Self { p50: us(late.p50_ns), p99: us(late.p99_ns), p999: us(late.p999_ns) }
    }
}

impl Summary {
    /// Reasons that make the run invalid.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.conservation.exact {
            faults.push(format!(
                "received + duplicated + generated is not sent + dropped + held: {:?}",
                self.conservation
            ));
        }
        if self.emulator_drops > 0 {
            faults.push(format!(
                "the emulator itself lost {} packets: this machine was too busy, or too slow \
                 for the link; see missed, transmit_dropped and overload in `linkctl stats`",
                self.emulator_drops
            ));
        }
        for download in self.downloads.iter().filter(|d| d.reordered > 0) {
            faults.push(format!(
                "{} segments of the {} download were reordered",
                download.reordered, download.cc
            ));
        }
        faults
    }
}
