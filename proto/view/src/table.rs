// SPDX-License-Identifier: Apache-2.0
//! A snapshot for people: as tables, or as one line.

use bytesize::ByteSize;
use comfy_table::Table;
use units::counted;

use crate::grid;
use crate::instant;
use crate::pipe::{Access, Count, Pipe};
use crate::snapshot::{Client, Link, Port, Snapshot};

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
pub fn table(snapshot: &Snapshot) -> String {
    arranged(snapshot, Table::new().width().map(usize::from))
}

/// A snapshot as tables of at most `width` columns, where that is possible.
fn arranged(snapshot: &Snapshot, width: Option<usize>) -> String {
    let utc = snapshot.utc.as_deref().unwrap_or("at an unknown time");
    let seconds = instant::seconds(snapshot.time_ns);
    let directions = snapshot
        .clients
        .iter()
        .flat_map(|it| [(it, "forward", &it.forward), (it, "return", &it.r#return)]);
    let clients = directions.map(|(client, direction, pipe)| {
        [
            client.client.clone(),
            direction.into(),
            count(pipe.received),
            count(pipe.sent),
            drops(pipe),
            pipe.marked.packets.to_string(),
            count(pipe.held),
            count(pipe.queue),
            size(pipe.queue_max_bytes),
        ]
    });
    let clients = grid::grid(2, CLIENTS, &clients.collect::<Vec<_>>(), width);
    let ports = snapshot.ports.iter().map(|port| {
        [
            port.name.clone(),
            link(port),
            count(port.received),
            count(port.sent),
            port.missed.to_string(),
            port.transmit_dropped.to_string(),
            port.unconfirmed.to_string(),
            port.faults.to_string(),
            port.staged.to_string(),
            port.malformed.to_string(),
            port.unplaced.to_string(),
            port.foreign.to_string(),
        ]
    });
    let ports = grid::grid(2, PORTS, &ports.collect::<Vec<_>>(), width);
    let late = &snapshot.lateness_ns;
    let memory = &snapshot.memory;
    format!(
        "{utc}, {seconds} of the dataplane's clock, generation {}\n\n{clients}\n\n{ports}\n\n\
         lateness: p50 {}, p99 {}, p99.9 {}, max {} of {}\n\
         memory: {} used, {} at most, of {}\n\
         emulator drops: {}, longest stall {}\n\
         {}{}{}conservation: {}",
        snapshot.generation,
        time(late.p50),
        time(late.p99),
        time(late.p999),
        time(late.max),
        counted(late.count, "packet", "packets"),
        size(memory.used_bytes),
        size(memory.used_max_bytes),
        size(memory.capacity_bytes),
        snapshot.emulator_drops,
        time(snapshot.stall_max_ns),
        if snapshot.lossy { LOSSY } else { "" },
        cross_traffic(snapshot),
        access(snapshot),
        conservation(snapshot),
    )
}

/// A line on cross traffic, if there was any.
fn cross_traffic(snapshot: &Snapshot) -> String {
    let (mut offered, mut dropped) = (Count::default(), Count::default());
    for pipe in pipes(snapshot) {
        offered += pipe.cross_offered;
        dropped += pipe.cross_dropped;
    }
    if offered == Count::default() {
        return String::new();
    }
    format!("cross traffic: {} offered, {} dropped\n", count(offered), count(dropped))
}

/// A line on capacity on demand, if there was any.
fn access(snapshot: &Snapshot) -> String {
    let mut sum = None::<Access>;
    let mut waiting = 0;
    for pipe in pipes(snapshot) {
        if let Some(of_pipe) = pipe.access {
            *sum.get_or_insert_default() += of_pipe;
            waiting += pipe.queue.bytes;
        }
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
pub fn line(snapshot: &Snapshot, last: Option<&Snapshot>) -> String {
    let throughput = |pipe: fn(&Snapshot) -> u64| {
        let Some(last) = last else { return "-".to_owned() };
        let bytes = pipe(snapshot).saturating_sub(pipe(last)) as f64;
        let seconds = snapshot.time_ns.saturating_sub(last.time_ns) as f64 / 1e9;
        if seconds > 0.0 { format!("{:.2} Mbit/s", bytes * 8e-6 / seconds) } else { "-".into() }
    };
    let queue = pipes(snapshot).map(|pipe| pipe.queue.bytes).fold(0, u64::saturating_add);
    let exact = if snapshot.conservation.exact { "exact" } else { "NOT EXACT" };
    format!(
        "{}  generation {}  forward {}  return {}  queue {}  dropped {}  late p99 {}  \
         emulator drops {}  conservation {exact}{}",
        instant::seconds(snapshot.time_ns),
        snapshot.generation,
        throughput(|s| sent(s, |client| &client.forward)),
        throughput(|s| sent(s, |client| &client.r#return)),
        size(queue),
        snapshot.conservation.dropped,
        time(snapshot.lateness_ns.p99),
        snapshot.emulator_drops,
        if snapshot.lossy { "  lossy" } else { "" },
    )
}

fn pipes(snapshot: &Snapshot) -> impl Iterator<Item = &Pipe> {
    snapshot.clients.iter().flat_map(|client| [&client.forward, &client.r#return])
}

fn sent(snapshot: &Snapshot, pipe: fn(&Client) -> &Pipe) -> u64 {
    snapshot.clients.iter().map(|client| pipe(client).sent.bytes).fold(0, u64::saturating_add)
}

fn count(count: Count) -> String {
    if count.packets == 0 {
        "0".into()
    } else {
        format!("{} ({})", count.packets, size(count.bytes))
    }
}

/// "10000 Mb/s", "up" where the speed is not known, "DOWN", or "-".
fn link(port: &Port) -> String {
    match (port.link, port.link_mbps) {
        (None, _) => "-".into(),
        (Some(Link::Down), _) => "DOWN".into(),
        (Some(Link::Up), Some(mbps)) => format!("{mbps} Mb/s"),
        (Some(Link::Up), None) => "up".into(),
    }
}

fn drops(pipe: &Pipe) -> String {
    let reasons: Vec<_> = pipe
        .dropped
        .reasons()
        .into_iter()
        .filter(|(_, count)| count.packets > 0)
        .map(|(reason, count)| format!("{reason} {}", count.packets))
        .collect();
    if reasons.is_empty() { "0".into() } else { reasons.join(", ") }
}

fn conservation(snapshot: &Snapshot) -> String {
    let c = &snapshot.conservation;
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
    let off = pipes(snapshot).filter(|pipe| !pipe.balances()).count();
    format!(
        "NOT EXACT ({sum}; {}): please report this",
        counted(off, "pipe does not balance", "pipes do not balance")
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

    fn snapshot(client: &str) -> Snapshot {
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
        let stats = pb::Stats {
            clients: vec![pb::ClientStats {
                client: client.into(),
                forward_pipe: Some(pipe.clone()),
                return_pipe: Some(pipe),
                ..Default::default()
            }],
            ports: ["wan.a", "client.a", "wan.b", "client.b"].map(port).into(),
            lateness: Some(pb::Lateness { count: 1, ..Default::default() }),
            ..Default::default()
        };
        stats.into()
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
