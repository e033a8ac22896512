// SPDX-License-Identifier: Apache-2.0
//! From the workers' reports and the ports' counters to the protos' statistics.

use std::collections::HashMap;
use std::slice;

use dpdk::Link;
use emu::access::AccessStats;
use emu::client::ClientKey;
use emu::histogram::Histogram;
use emu::stats::{ClientStats, Count, DropReason, PipeStats, Snapshot};
use emu::units::{ByDirection, Direction, Nanos};
use proto::linkemu::v1 as model;
use shim::Numbers;
use worker::command::Report;
use worker::io::EgressCounters;

use crate::watch::Seen;

/// Counters of a port's driver.
#[derive(Clone, Debug, Default)]
pub struct PortAccount {
    /// Such as `wan` or `wan.a`.
    pub name: String,
    /// Frames and bytes that came in.
    pub received: Count,
    /// Frames and bytes that left.
    pub sent: Count,
    /// Lost before the emulator saw them.
    pub missed: u64,
    /// Frames of a hairpin pair's port that were of neither side.
    pub foreign: u64,
    /// Taken by the driver and not sent.
    pub failed: u64,
    /// Its link now, if the driver tells.
    pub link: Option<Link>,
    /// Its link state, if known.
    pub seen: Seen,
}

impl Seen {
    /// As the protos have it.
    #[must_use]
    pub fn state(self, name: &str) -> model::PortState {
        model::PortState {
            name: name.to_owned(),
            mtu: self.mtu.unwrap_or(0),
            gone: self.gone,
            faults: self.faults,
            changes: self.changes,
            last_changes: self.last.into(),
            unconfirmed: self.unconfirmed,
        }
    }
}

/// Merges the reports of all workers and the accounts of the ports of each pair, `wan` first.
#[must_use]
pub fn merge(reports: &[Box<Report>], pairs: Vec<[PortAccount; 2]>) -> model::Stats {
    let mut stats = model::Stats::default();
    let mut known = HashMap::new();
    for r in reports {
        let s = &r.snapshot;
        stats.time_ns = stats.time_ns.max(s.at.0);
        stats.generation = s.generation;
        for c in &s.clients {
            add_client(&mut stats.clients, &mut known, c);
        }
        stats.stall_max_ns = stats.stall_max_ns.max(r.stall_max.0);
        let one = slice::from_ref(r);
        stats.workers.push(model::WorkerStats {
            lateness: Some(lateness(one)),
            memory: Some(memory(one)),
            stall_max_ns: r.stall_max.0,
            received: Some(count(s.total().received)),
        });
    }
    stats.memory = Some(memory(reports));
    stats.lateness = Some(lateness(reports));
    // Forward comes in on wan and leaves on client.
    let ways = [(Direction::Forward, Direction::Return), (Direction::Return, Direction::Forward)];
    let ports = (0..).zip(pairs).flat_map(|(pair, ports)| {
        ports.into_iter().zip(ways).map(move |(port, ways)| (pair, port, ways))
    });
    for (pair, port, (comes_in, leaves)) in ports {
        let egress = |of: fn(EgressCounters) -> u64| -> u64 {
            reports.iter().filter_map(|r| r.egress.get(pair)).map(|it| of(it[leaves])).sum()
        };
        // Clients do not count by pair: the first one has the frames of all.
        let first = |of: fn(&Snapshot) -> &ByDirection<u64>| -> u64 {
            reports.iter().filter(|_| pair == 0).map(|r| of(&r.snapshot)[comes_in]).sum()
        };
        stats.ports.push(model::PortStats {
            state: Some(port.seen.state(&port.name)),
            name: port.name,
            received: Some(count(port.received)),
            sent: Some(count(port.sent)),
            missed: port.missed,
            foreign: port.foreign,
            transmit_dropped: port.failed + egress(|it| it.dropped),
            staged: egress(|it| it.staged),
            malformed: first(|it| &it.malformed),
            unplaced: first(|it| &it.unplaced),
            link: match port.link {
                None => model::LinkState::Unspecified,
                Some(link) if link.up => model::LinkState::Up,
                Some(_) => model::LinkState::Down,
            } as i32,
            link_mbps: port.link.and_then(|link| link.mbps).unwrap_or(0),
        });
    }
    let overload: u64 = reports
        .iter()
        .flat_map(|r| &r.snapshot.clients)
        .flat_map(|c| c.pipes.0)
        .map(|p| p.dropped[DropReason::Overload as usize].packets)
        .sum();
    stats.emulator_drops = overload + stats.ports.iter().map(lost).sum::<u64>();
    stats
}

/// Sets the number of each client in the switch: by its index in the worker that `has` it. The
/// reports are in the order of the workers.
pub(crate) fn number_clients(
    clients: &mut [model::ClientStats],
    reports: &[Box<Report>],
    has: impl Fn(ClientKey) -> usize,
    numbers: Numbers,
) {
    let mut known = HashMap::new();
    for (worker, report) in (0_u16..).zip(reports) {
        let own = report.snapshot.clients.iter().filter(|it| has(it.key) == usize::from(worker));
        known.extend(own.filter_map(|client| {
            let number = numbers.of(worker).number(client.index?);
            Some((client.key.to_string(), u32::from(number)))
        }));
    }
    for client in clients {
        client.number = known.get(&client.client).copied().unwrap_or(0);
    }
}

fn lost(port: &model::PortStats) -> u64 {
    let unconfirmed = port.state.as_ref().map_or(0, |state| state.unconfirmed);
    port.missed + port.transmit_dropped + unconfirmed
}

fn memory(reports: &[Box<Report>]) -> model::Memory {
    let sum = |f: fn(&Report) -> u64| reports.iter().map(|r| f(r)).sum();
    model::Memory {
        capacity_bytes: sum(|r| r.snapshot.store_capacity),
        used_bytes: sum(|r| r.snapshot.store_used),
        used_max_bytes: sum(|r| r.snapshot.store_used_max),
    }
}

/// Quantiles of several workers cannot be added; the largest of each is an upper bound.
fn lateness(reports: &[Box<Report>]) -> model::Lateness {
    let worst = |f: fn(&Report) -> Nanos| reports.iter().map(|r| f(r)).max().unwrap_or_default().0;
    model::Lateness {
        count: reports.iter().map(|r| r.snapshot.lateness.count).sum(),
        p50_ns: worst(|r| r.snapshot.lateness.p50),
        p99_ns: worst(|r| r.snapshot.lateness.p99),
        p999_ns: worst(|r| r.snapshot.lateness.p999),
        max_ns: worst(|r| r.snapshot.lateness.max),
    }
}

/// Bypass and default, which every worker has, are one in the sum; and so are the two
/// directions of a client that have different owners.
fn add_client(
    clients: &mut Vec<model::ClientStats>,
    known: &mut HashMap<ClientKey, usize>,
    c: &ClientStats,
) {
    let [forward, back] = c.pipes.0.map(|p| pipe(&p));
    match known.get(&c.key).and_then(|at| clients.get_mut(*at)) {
        Some(client) => {
            *client.forward_pipe.get_or_insert_default() += &forward;
            *client.return_pipe.get_or_insert_default() += &back;
        }
        None => {
            known.insert(c.key, clients.len());
            clients.push(model::ClientStats {
                client: c.key.to_string(),
                forward_pipe: Some(forward),
                return_pipe: Some(back),
                ..model::ClientStats::default()
            });
        }
    }
}

fn pipe(p: &PipeStats) -> model::PipeStats {
    let dropped = DropReason::ALL
        .into_iter()
        .map(|r| (r, p.dropped[r as usize]))
        .filter(|(_, c)| c.packets > 0)
        .map(|(r, c)| model::Drop { reason: reason(r).into(), count: Some(count(c)) })
        .collect();
    model::PipeStats {
        received: Some(count(p.received)),
        sent: Some(count(p.sent)),
        dropped,
        held: Some(count(p.held)),
        queue: Some(count(p.queue)),
        queue_max_bytes: p.queue_max_bytes,
        marked: Some(count(p.marked)),
        duplicated: Some(count(p.duplicated)),
        generated: Some(count(p.generated)),
        corrupted: Some(count(p.corrupted)),
        cross_offered: Some(count(p.cross_offered)),
        cross_dropped: Some(count(p.cross_dropped)),
        access: access(p.access),
        queue_delay: histogram(&p.queue_delay),
        lateness: histogram(&p.lateness),
    }
}

fn histogram<const FIRST: u32, const N: usize>(
    h: &Histogram<FIRST, N>,
) -> Option<model::Histogram> {
    let (sum_ns, first_bound_ns) = (h.sum().0, Histogram::<FIRST, N>::FIRST_BOUND.0);
    let some = h.counts().iter().any(|n| *n > 0);
    some.then(|| model::Histogram { counts: h.counts().to_vec(), sum_ns, first_bound_ns })
}

/// Absent without capacity on demand.
fn access(a: AccessStats) -> Option<model::AccessStats> {
    let AccessStats { asked, granted, used, requests, collisions } = a;
    (granted > 0 || requests > 0).then_some(model::AccessStats {
        requested_bytes: asked,
        assigned_bytes: granted,
        used_bytes: used,
        requests,
        collisions,
    })
}

fn count(c: Count) -> model::Count {
    model::Count { packets: c.packets, bytes: c.bytes }
}

/// A reason, as the protos name it.
pub(crate) fn reason(r: DropReason) -> model::DropReason {
    match r {
        DropReason::Aqm => model::DropReason::Aqm,
        DropReason::Limit => model::DropReason::Limit,
        DropReason::Outage => model::DropReason::Outage,
        DropReason::Loss => model::DropReason::Loss,
        DropReason::Overload => model::DropReason::Overload,
        DropReason::Runt => model::DropReason::Runt,
        DropReason::Oversize => model::DropReason::Oversize,
        DropReason::Scheduled => model::DropReason::Scheduled,
        DropReason::Rejected => model::DropReason::Shim,
        DropReason::Mtu => model::DropReason::Mtu,
    }
}
