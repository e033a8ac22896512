// SPDX-License-Identifier: Apache-2.0
//! A snapshot for people: as tables, or as one line.

use bytesize::ByteSize;
use comfy_table::Table;
use units::counted;

use crate::grid;
use crate::instant;
use proto::linkemu::v1::{
    AccessStats, ClientStats, Conservation, Count, DropReason, LinkState, PipeStats, PortState,
    PortStats, Stats,
};

const CLIENTS: [&str; 9] =
    ["CLIENT", "DIRECTION", "RECEIVED", "SENT", "DROPPED", "MARKED", "HELD", "QUEUE", "HIGH WATER"];
const PORTS: [&str; 12] = [
    "PORT",
    "LINK",
    "RECEIVED",
    "SENT",
    "MISSED",
    "TRANSMIT DROPPED",
    "UNCONFIRMED",
    "FAULTS",
    "STAGED",
    "MALFORMED",
    "UNPLACED",
    "FOREIGN",
];
const LOSSY: &str = "lossy: the link was set although there is too little memory or time for it\n";

/// A snapshot as tables. They fit the terminal, if standard output is one.
#[must_use]
pub fn table(stats: &Stats) -> String {
    arranged(stats, Table::new().width().map(usize::from))
}

/// A snapshot as tables of at most `width` columns, where that is possible.
fn arranged(stats: &Stats, width: Option<usize>) -> String {
    let utc = instant::utc(stats.utc.as_ref());
    let utc = utc.as_deref().unwrap_or("at an unknown time");
    let seconds = instant::seconds(stats.time_ns);
    let clients = stats.pipes().map(|(client, direction, pipe)| {
        [
            client.to_owned(),
            direction.into(),
            count(pipe.received()),
            count(pipe.sent()),
            drops(pipe),
            pipe.marked().packets.to_string(),
            count(pipe.held()),
            count(pipe.queue()),
            size(pipe.queue_max_bytes),
        ]
    });
    let clients = grid::grid(2, CLIENTS, &clients.collect::<Vec<_>>(), width);
    let none = PortState::default();
    let ports = stats.ports.iter().map(|port| {
        let state = port.state.as_ref().unwrap_or(&none);
        [
            port.name.clone(),
            link(port),
            count(port.received()),
            count(port.sent()),
            port.missed.to_string(),
            port.transmit_dropped.to_string(),
            state.unconfirmed.to_string(),
            state.faults.to_string(),
            port.staged.to_string(),
            port.malformed.to_string(),
            port.unplaced.to_string(),
            port.foreign.to_string(),
        ]
    });
    let ports = grid::grid(2, PORTS, &ports.collect::<Vec<_>>(), width);
    let (late, memory) = (stats.lateness(), stats.memory());
    format!(
        "{utc}, {seconds} of the dataplane's clock, generation {}\n\n{clients}\n\n{ports}\n\n\
         lateness: p50 {}, p99 {}, p99.9 {}, max {} of {}\n\
         memory: {} used, {} at most, of {}\n\
         emulator drops: {}, longest stall {}\n\
         {}{}{}conservation: {}",
        stats.generation,
        time(late.p50_ns),
        time(late.p99_ns),
        time(late.p999_ns),
        time(late.max_ns),
        counted(late.count, "packet", "packets"),
        size(memory.used_bytes),
        size(memory.used_max_bytes),
        size(memory.capacity_bytes),
        stats.emulator_drops,
        time(stats.stall_max_ns),
        if stats.lossy { LOSSY } else { "" },
        cross_traffic(stats),
        access(stats),
        conservation(stats),
    )
}

/// A line on cross traffic, if there was any.
fn cross_traffic(stats: &Stats) -> String {
    let (mut offered, mut dropped) = (Count::default(), Count::default());
    for (_, _, pipe) in stats.pipes() {
        offered += pipe.cross_offered();
        dropped += pipe.cross_dropped();
    }
    if offered == Count::default() {
        return String::new();
    }
    format!("cross traffic: {} offered, {} dropped\n", count(offered), count(dropped))
}

/// A line on capacity on demand, if there was any.
fn access(stats: &Stats) -> String {
    let mut sum = None::<AccessStats>;
    let mut waiting = 0;
    for (_, _, pipe) in stats.pipes().filter(|(_, _, pipe)| pipe.access.is_some()) {
        proto::add(&mut sum, pipe.access);
        waiting += pipe.queue().bytes;
    }
    let Some(sum) = sum else { return String::new() };
    let collided = match sum.collisions {
        0 => String::new(),
        n => format!(", of which {n} collided"),
    };
    format!(
        "capacity on demand: {} wait, {} requested in {}{collided}, {} assigned, {} of them used\n",
        size(waiting),
        size(sum.requested_bytes),
        counted(sum.requests, "request", "requests"),
        size(sum.assigned_bytes),
        size(sum.used_bytes),
    )
}

/// A snapshot in a line, with the throughput since the last.
#[must_use]
pub fn line(stats: &Stats, last: Option<&Stats>) -> String {
    let throughput = |pipe: fn(&ClientStats) -> &PipeStats| {
        let Some(last) = last else { return "-".to_owned() };
        let bytes = sent(stats, pipe).saturating_sub(sent(last, pipe)) as f64;
        let seconds = stats.time_ns.saturating_sub(last.time_ns) as f64 / 1e9;
        if seconds > 0.0 { format!("{:.2} Mbit/s", bytes * 8e-6 / seconds) } else { "-".into() }
    };
    let queue = stats.pipes().map(|(_, _, pipe)| pipe.queue().bytes).fold(0, u64::saturating_add);
    let sums = balance(stats);
    format!(
        "{}  generation {}  forward {}  return {}  queue {}  dropped {}  late p99 {}  \
         emulator drops {}  conservation {}{}",
        instant::seconds(stats.time_ns),
        stats.generation,
        throughput(ClientStats::forward),
        throughput(ClientStats::back),
        size(queue),
        sums.dropped,
        time(stats.lateness().p99_ns),
        stats.emulator_drops,
        if sums.exact { "exact" } else { "NOT EXACT" },
        if stats.lossy { "  lossy" } else { "" },
    )
}

fn sent(stats: &Stats, pipe: fn(&ClientStats) -> &PipeStats) -> u64 {
    stats.clients.iter().map(|client| pipe(client).sent().bytes).fold(0, u64::saturating_add)
}

fn count(count: Count) -> String {
    if count.packets == 0 {
        "0".into()
    } else {
        format!("{} ({})", count.packets, size(count.bytes))
    }
}

/// "10000 Mb/s", "up" where the speed is not known, "DOWN", or "-".
fn link(port: &PortStats) -> String {
    match (port.link(), port.link_mbps) {
        (LinkState::Unspecified, _) => "-".into(),
        (LinkState::Down, _) => "DOWN".into(),
        (LinkState::Up, 0) => "up".into(),
        (LinkState::Up, mbps) => format!("{mbps} Mb/s"),
    }
}

fn drops(pipe: &PipeStats) -> String {
    let reasons: Vec<_> = DropReason::ALL
        .into_iter()
        .map(|reason| (reason.word(), pipe.dropped_for(reason).packets))
        .filter(|(_, packets)| *packets > 0)
        .map(|(reason, packets)| format!("{reason} {packets}"))
        .collect();
    if reasons.is_empty() { "0".into() } else { reasons.join(", ") }
}

/// The balance of all pipes; an older linkd does not send it.
fn balance(stats: &Stats) -> Conservation {
    stats.conservation.unwrap_or_else(|| stats.sums())
}

fn conservation(stats: &Stats) -> String {
    let c = balance(stats);
    let made = |name: &str, n: u64| match n {
        0 => String::new(),
        n => format!(" + {name} {n}"),
    };
    let made = made("duplicated", c.duplicated) + &made("generated", c.generated);
    let sum = format!(
        "received {}{made}, sent {} + dropped {} + held {}",
        c.received, c.sent, c.dropped, c.held
    );
    if c.exact {
        return format!("exact ({sum})");
    }
    format!(
        "NOT EXACT ({sum}; {}): please report this",
        counted(stats.unbalanced(), "pipe does not balance", "pipes do not balance")
    )
}

/// Bytes, rounded, for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    ByteSize::b(bytes).display().si().to_string()
}

/// Nanoseconds, rounded, for people.
#[must_use]
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::linkemu::v1 as pb;

    fn snapshot(client: &str) -> Stats {
        let count = Some(pb::Count { packets: 1_234_567, bytes: 1_800_000_000 });
        let drop = |reason| pb::Drop { reason, count };
        let pipe = pb::PipeStats {
            received: count,
            sent: count,
            dropped: [pb::DropReason::Aqm, pb::DropReason::Limit, pb::DropReason::Outage]
                .map(|reason| drop(reason as i32))
                .into(),
            held: count,
            queue: count,
            ..Default::default()
        };
        let port = |name: &str| pb::PortStats {
            name: name.into(),
            received: count,
            sent: count,
            ..Default::default()
        };
        pb::Stats {
            clients: vec![pb::ClientStats {
                client: client.into(),
                forward_pipe: Some(pipe.clone()),
                return_pipe: Some(pipe),
                ..Default::default()
            }],
            ports: ["wan.a", "client.a", "wan.b", "client.b"].map(port).into(),
            lateness: Some(pb::Lateness { count: 1, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn statistics_keep_words_whole_at_80_columns() {
        for client in ["10.0.0.2", "2001:db8:1111:2222:3333:4444:5555:6666"] {
            let text = arranged(&snapshot(client), Some(80));
            let tables = text.split("\nlateness:").next().unwrap();
            for line in tables.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
            for whole in CLIENTS.iter().chain(&PORTS).chain(&[client, "1234567 (1.8 GB)"]) {
                assert!(text.contains(whole), "{whole}:\n{text}");
            }
            assert!(text.contains("of 1 packet\n"), "{text}");
        }
        // Without a terminal a line has all of a client.
        let wide = arranged(&snapshot("10.0.0.2"), None);
        let client = wide.lines().find(|line| line.contains("10.0.0.2  forward")).unwrap();
        assert!(client.chars().count() > 100, "{wide}");
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        assert_eq!([999, 1_500, 2_000_000].map(time), ["999 ns", "1.5 µs", "2.0 ms"]);
    }
}
