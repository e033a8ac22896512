// SPDX-License-Identifier: Apache-2.0
//! A snapshot of the statistics as JSON. The keys are a contract: they do not change. Their meaning is
//! that of the fields of `linkemu.v1`.

use crate::instant;
use crate::pipe::{Count, Pipe};
use proto::linkemu::v1 as pb;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Snapshot {
    pub time_ns: u64,
    pub utc: Option<String>,
    pub generation: u64,
    pub clients: Vec<Client>,
    pub ports: Vec<Port>,
    pub lateness_ns: Lateness,
    pub memory: Memory,
    pub emulator_drops: u64,
    pub stall_max_ns: u64,
    pub lossy: bool,
    pub conservation: Conservation,
    /// `None` from a dataplane without this field.
    pub span: Option<Span>,
    pub workers: Vec<Worker>,
}

/// Since the last mark.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Span {
    pub since_ns: u64,
    pub since_utc: Option<String>,
    pub marked: bool,
    pub generation: u64,
    pub lossy: bool,
    pub received: Count,
    pub sent: Count,
    pub overload: u64,
    pub missed: u64,
    pub transmit_dropped: u64,
    pub unconfirmed: u64,
    pub port_faults: u64,
    pub unplaced: u64,
    /// `None` without a P4 switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchSpan>,
    /// `None` for one box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boxes: Option<BoxSpan>,
    /// `None` from a dataplane without this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Tolerance>,
    /// `None` for a group of boxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSpan>,
}

/// How late packets may be, and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Tolerance {
    pub lateness_ns: u64,
    pub lateness_reason: String,
    pub stall_ns: u64,
    pub stall_reason: String,
}

/// What the dataplane's machine did in a run. `None`: unknown.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct HostSpan {
    pub waited_ns: Option<u64>,
    pub stolen_ns: Option<u64>,
    pub pressure_ns: Option<u64>,
    pub load: Option<f64>,
    pub processors: u32,
    pub nice: i32,
    pub reserved: bool,
    pub hugepages: bool,
}

/// A run as seen by a group of boxes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct BoxSpan {
    pub gaps: Vec<String>,
}

/// A run as seen by the P4 switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SwitchSpan {
    pub is_whole: bool,
    pub lost_to_box: u64,
    pub lost_from_box: u64,
    pub excess_p99_ns: u64,
    pub early: u64,
    /// Zero from an older linkd.
    #[serde(default)]
    pub lost_to_hosts: u64,
    #[serde(default)]
    pub lost_at_egress: Vec<PortLoss>,
    #[serde(default)]
    pub excess_max_ns: u64,
    /// `None` (null in JSON) if the switch does not report it.
    #[serde(default)]
    pub stall_max_ns: Option<u64>,
    #[serde(default)]
    pub dropped: u64,
    #[serde(default)]
    pub foreign_changes: u64,
}

/// Frames lost in the switch before the egress of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PortLoss {
    pub port: u32,
    pub to_hosts: bool,
    pub packets: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Worker {
    pub lateness_ns: Lateness,
    pub memory: Memory,
    pub stall_max_ns: u64,
    pub received: Count,
}

/// Name under which the accounts of all expired clients are summed. The accounts of a client are added
/// at once when it expires, so differences over time are not rates.
pub const EXPIRED: &str = "expired";

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Client {
    pub client: String,
    pub forward: Pipe,
    pub r#return: Pipe,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Port {
    pub name: String,
    pub received: Count,
    pub sent: Count,
    pub missed: u64,
    pub transmit_dropped: u64,
    pub staged: u64,
    pub malformed: u64,
    /// Frames of clients without a slot.
    pub unplaced: u64,
    /// Frames with neither VLAN of a hairpin pair.
    pub foreign: u64,
    /// `None` if the port does not report it.
    pub link: Option<Link>,
    /// `None` if the speed is unknown.
    pub link_mbps: Option<u32>,
    /// MTU of the interface in bytes; `None` without an interface.
    pub mtu: Option<u32>,
    /// Times that something happened by which packets may have been lost.
    pub faults: u64,
    /// The last change of the port, in words.
    pub last_change: Option<String>,
    /// Frames that the driver counts as sent and the interface does not.
    pub unconfirmed: u64,
}

/// Whether a port has a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    Up,
    Down,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Lateness {
    pub count: u64,
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Memory {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub used_max_bytes: u64,
}

/// Packets of all clients and directions; exact if every pipe balances, in
/// packets and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Conservation {
    pub received: u64,
    pub duplicated: u64,
    #[serde(default)]
    pub generated: u64,
    pub sent: u64,
    pub dropped: u64,
    pub held: u64,
    pub exact: bool,
}

impl From<pb::Stats> for Snapshot {
    fn from(stats: pb::Stats) -> Self {
        let client = |stats: pb::ClientStats| Client {
            client: stats.client,
            forward: stats.forward_pipe.into(),
            r#return: stats.return_pipe.into(),
        };
        let port = |stats: pb::PortStats| {
            let state = stats.state.clone().unwrap_or_default();
            Port {
                mtu: Some(state.mtu).filter(|mtu| *mtu > 0),
                faults: state.faults,
                last_change: state.last_changes.last().cloned(),
                unconfirmed: state.unconfirmed,
                missed: stats.missed,
                transmit_dropped: stats.transmit_dropped,
                staged: stats.staged,
                malformed: stats.malformed,
                unplaced: stats.unplaced,
                foreign: stats.foreign,
                link: match stats.link() {
                    pb::LinkState::Unspecified => None,
                    pb::LinkState::Up => Some(Link::Up),
                    pb::LinkState::Down => Some(Link::Down),
                },
                link_mbps: Some(stats.link_mbps).filter(|mbps| *mbps > 0),
                name: stats.name,
                received: stats.received.into(),
                sent: stats.sent.into(),
            }
        };
        let clients: Vec<_> = stats.clients.into_iter().map(client).collect();
        Self {
            time_ns: stats.time_ns,
            utc: instant::utc(stats.utc.as_ref()),
            generation: stats.generation,
            conservation: conservation(&clients),
            clients,
            ports: stats.ports.into_iter().map(port).collect(),
            lateness_ns: stats.lateness.into(),
            memory: stats.memory.into(),
            emulator_drops: stats.emulator_drops,
            stall_max_ns: stats.stall_max_ns,
            lossy: stats.lossy,
            span: stats.span.map(Span::from),
            workers: stats.workers.into_iter().map(Worker::from).collect(),
        }
    }
}

impl From<Option<pb::Lateness>> for Lateness {
    fn from(lateness: Option<pb::Lateness>) -> Self {
        let pb::Lateness { count, p50_ns, p99_ns, p999_ns, max_ns } = lateness.unwrap_or_default();
        Self { count, p50: p50_ns, p99: p99_ns, p999: p999_ns, max: max_ns }
    }
}

impl From<Option<pb::Memory>> for Memory {
    fn from(memory: Option<pb::Memory>) -> Self {
        let pb::Memory { capacity_bytes, used_bytes, used_max_bytes } = memory.unwrap_or_default();
        Self { capacity_bytes, used_bytes, used_max_bytes }
    }
}

impl From<pb::Span> for Span {
    fn from(span: pb::Span) -> Self {
        Self {
            since_ns: span.since_ns,
            since_utc: instant::utc(span.since_utc.as_ref()),
            marked: span.marked,
            generation: span.generation,
            lossy: span.lossy,
            received: span.received.into(),
            sent: span.sent.into(),
            overload: span.overload,
            missed: span.missed,
            transmit_dropped: span.transmit_dropped,
            unconfirmed: span.unconfirmed,
            port_faults: span.port_faults,
            unplaced: span.unplaced,
            switch: span.switch.map(SwitchSpan::from),
            boxes: span.boxes.map(|boxes| BoxSpan { gaps: boxes.gaps }),
            tolerance: span.tolerance.map(Tolerance::from),
            host: span.host.map(HostSpan::from),
        }
    }
}

impl From<pb::Tolerance> for Tolerance {
    fn from(tolerance: pb::Tolerance) -> Self {
        let pb::Tolerance { lateness_ns, lateness_reason, stall_ns, stall_reason } = tolerance;
        Self { lateness_ns, lateness_reason, stall_ns, stall_reason }
    }
}

impl From<pb::HostSpan> for HostSpan {
    fn from(host: pb::HostSpan) -> Self {
        Self {
            waited_ns: host.waited_ns,
            stolen_ns: host.stolen_ns,
            pressure_ns: host.pressure_ns,
            load: host.load,
            processors: host.processors,
            nice: host.nice,
            reserved: host.reserved,
            hugepages: host.hugepages,
        }
    }
}

impl From<pb::SwitchSpan> for SwitchSpan {
    fn from(span: pb::SwitchSpan) -> Self {
        let loss = |loss: pb::SwitchPortLoss| {
            let pb::SwitchPortLoss { port, to_hosts, packets } = loss;
            PortLoss { port, to_hosts, packets }
        };
        Self {
            is_whole: span.is_whole,
            lost_to_box: span.lost_to_box,
            lost_from_box: span.lost_from_box,
            excess_p99_ns: span.excess_p99_ns,
            early: span.early,
            lost_to_hosts: span.lost_to_hosts,
            lost_at_egress: span.lost_at_egress.into_iter().map(loss).collect(),
            excess_max_ns: span.excess_max_ns,
            stall_max_ns: span.stall_max_ns,
            dropped: span.dropped,
            foreign_changes: span.foreign_changes,
        }
    }
}

impl From<pb::WorkerStats> for Worker {
    fn from(worker: pb::WorkerStats) -> Self {
        Self {
            lateness_ns: worker.lateness.into(),
            memory: worker.memory.into(),
            stall_max_ns: worker.stall_max_ns,
            received: worker.received.into(),
        }
    }
}

fn conservation(clients: &[Client]) -> Conservation {
    let [mut received, mut duplicated, mut generated] = [Count::default(); 3];
    let [mut sent, mut dropped, mut held] = [Count::default(); 3];
    let mut exact = true;
    for pipe in clients.iter().flat_map(|client| [&client.forward, &client.r#return]) {
        received += pipe.received;
        duplicated += pipe.duplicated;
        generated += pipe.generated;
        sent += pipe.sent;
        dropped += pipe.dropped.total();
        held += pipe.held;
        exact &= pipe.balances();
    }
    let [received, duplicated, generated] = [received, duplicated, generated].map(|c| c.packets);
    let [sent, dropped, held] = [sent, dropped, held].map(|c| c.packets);
    Conservation { received, duplicated, generated, sent, dropped, held, exact }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(packets: u64, bytes: u64) -> Option<pb::Count> {
        Some(pb::Count { packets, bytes })
    }

    fn pipe(received: (u64, u64), sent: (u64, u64)) -> Option<pb::PipeStats> {
        let drop = |reason: i32| pb::Drop { reason, count: count(1, 100) };
        Some(pb::PipeStats {
            received: count(received.0, received.1),
            sent: count(sent.0, sent.1),
            dropped: vec![drop(1), drop(3), drop(99)],
            held: count(2, 200),
            ..Default::default()
        })
    }

    fn snapshot(pipes: &[Option<pb::PipeStats>]) -> Snapshot {
        let client = |pipe: &Option<pb::PipeStats>| pb::ClientStats {
            client: "10.0.0.1".into(),
            forward_pipe: pipe.clone(),
            ..Default::default()
        };
        pb::Stats { clients: pipes.iter().map(client).collect(), ..Default::default() }.into()
    }

    #[test]
    fn every_pipe_must_balance_in_packets_and_bytes() {
        let good = pipe((10, 1_000), (5, 500));
        let none = snapshot(&[]).conservation;
        let exact = Conservation { received: 10, sent: 5, dropped: 3, held: 2, ..none };
        assert_eq!(snapshot(std::slice::from_ref(&good)).conservation, exact);
        assert!(!snapshot(&[good.clone(), pipe((10, 1_001), (5, 500))]).conservation.exact);
        // Two errors that cancel in the sum are seen all the same.
        let (more, less) = (pipe((11, 1_000), (5, 500)), pipe((9, 1_000), (5, 500)));
        assert!(!snapshot(&[more, less]).conservation.exact);
        assert!(!snapshot(&[pipe((u64::MAX, u64::MAX), (5, 500))]).conservation.exact);
        assert!(snapshot(&[]).conservation.exact);
        // Duplicates and generated packets are part of the balance.
        let made = |duplicates, others| {
            let pipe = pipe((10, 1_000), (7, 700)).unwrap();
            let [duplicated, generated] = [duplicates, others].map(|n| count(n, n * 100));
            Some(pb::PipeStats { duplicated, generated, ..pipe })
        };
        assert!(!snapshot(&[made(1, 0)]).conservation.exact);
        assert!(!snapshot(&[made(0, 1)]).conservation.exact);
        let both = snapshot(&[made(1, 1)]).conservation;
        assert!(both.exact);
        assert_eq!((both.duplicated, both.generated), (1, 1));
    }

    #[test]
    fn unknown_reasons_are_kept() {
        let snapshot = snapshot(&[pipe((10, 1_000), (5, 500))]);
        assert_eq!(snapshot.clients[0].forward.dropped.other, Count { packets: 1, bytes: 100 });
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["clients"][0]["forward"]["dropped"]["other"]["packets"], 1);
        assert!(json["clients"][0]["return"]["dropped"].get("other").is_none());
    }
}
