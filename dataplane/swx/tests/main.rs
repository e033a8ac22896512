// SPDX-License-Identifier: Apache-2.0
//! A small program runs in a pipeline: tables of all kinds, registers, drops, changes between packets.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::sync::OnceLock;

use dpdk::{Eal, EalOptions, Mbuf, Memory, Mempool};
use swx::{Entry, Error, Key, Match, Pipeline, Wire};

const SPEC: &str = include_str!("program.spec");

#[derive(Debug)]
struct Memories {
    pool: Mempool,
    input: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

impl Wire for Memories {
    fn receive(&mut self) -> Option<Mbuf> {
        self.pool.alloc(&self.input.pop_front()?)
    }

    fn send(&mut self, packet: Mbuf) {
        self.sent.extend(packet.contiguous().map(<[u8]>::to_vec));
    }
}

/// EAL starts once in a process.
fn memories() -> (Eal, Memories) {
    static EAL: OnceLock<(Eal, Mempool)> = OnceLock::new();
    let start = || {
        let eal = Eal::init(&EalOptions::new(Memory::NoHuge { megabytes: 256 })).unwrap();
        let pool = Mempool::new(&eal, "packets", 1023, 2048).unwrap();
        (eal, pool)
    };
    let (eal, pool) = EAL.get_or_init(start);
    let wire = Memories { pool: pool.clone(), input: VecDeque::new(), sent: Vec::new() };
    (eal.share(), wire)
}

fn build(spec: &str) -> Result<Pipeline<Memories>, Error> {
    let (eal, wire) = memories();
    Pipeline::build(&eal, spec, wire)
}

fn pipeline() -> Pipeline<Memories> {
    build(SPEC).unwrap()
}

/// Sends packets through the pipeline and returns those sent, and the number of those dropped.
fn exchange(pipeline: &mut Pipeline<Memories>, packets: &[&[u8]]) -> (Vec<Vec<u8>>, u64) {
    let before = pipeline.dropped();
    pipeline.wire().input.extend(packets.iter().map(|p| p.to_vec()));
    while !pipeline.wire().input.is_empty() {
        pipeline.run(100);
    }
    pipeline.drain();
    (std::mem::take(&mut pipeline.wire().sent), pipeline.dropped() - before)
}

fn entry(fields: &[(u128, u128)], priority: u32, action: &str, arguments: &[u128]) -> Entry {
    Entry {
        key: Key { fields: fields.to_vec(), priority },
        action: action.into(),
        arguments: arguments.to_vec(),
    }
}

#[test]
fn packets_pass_tables_in_order_and_are_counted() {
    let mut pipeline = pipeline();
    let kinds = |name: &str| -> Vec<Match> {
        pipeline.table(name).unwrap().fields.iter().map(|f| f.kind).collect()
    };
    assert_eq!(kinds("exact"), [Match::Exact]);
    assert_eq!(kinds("wide"), [Match::Lpm]);
    // Without entries, all is dropped.
    let packets: Vec<Vec<u8>> = (0..40).map(|n| [&[n, 0xaa], &[n; 30][..]].concat()).collect();
    let packets: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let (sent, dropped) = exchange(&mut pipeline, &packets);
    assert_eq!((sent.len(), dropped), (0, 40));
    // Even types are marked.
    for kind in (0..40).step_by(2) {
        let entry = entry(&[(kind, 0xff)], 0, "mark", &[kind + 100]);
        pipeline.set("exact", &entry).unwrap();
    }
    pipeline.commit().unwrap();
    let (sent, dropped) = exchange(&mut pipeline, &packets);
    assert_eq!((sent.len(), dropped), (20, 20));
    for (n, packet) in sent.iter().enumerate() {
        let n = 2 * n as u8;
        assert_eq!(packet[..3], [n + 100, 0xaa, n]);
        assert_eq!(packet.len(), 32);
    }
    assert_eq!(pipeline.register("passed", 4).unwrap(), 1);
    assert_eq!(pipeline.register("passed", 5).unwrap(), 0);
    assert_eq!(pipeline.register("dropped", 0).unwrap(), 60);
    pipeline.set_register("passed", 4, 7).unwrap();
    assert_eq!(pipeline.register("passed", 4).unwrap(), 7);
    // One is removed, one changed.
    pipeline.remove("exact", &Key { fields: vec![(0, 0xff)], priority: 0 }).unwrap();
    pipeline.set("exact", &entry(&[(2, 0xff)], 0, "mark", &[99])).unwrap();
    pipeline.commit().unwrap();
    let (sent, _) = exchange(&mut pipeline, &packets[..4]);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][0], 99);
}

#[test]
fn longest_of_prefixes_wins() {
    let mut pipeline = pipeline();
    // Addresses of 128 bits in the payload.
    let prefix = |value: u128, length: u32, to: u128| {
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        entry(&[(value, mask)], 128 - length, "mark", &[to])
    };
    let net = 0x2001_0db8_u128 << 96;
    for entry in [prefix(0, 0, 1), prefix(net, 32, 2), prefix(net | 5, 128, 3)] {
        pipeline.set("wide", &entry).unwrap();
    }
    pipeline.commit().unwrap();
    let mut came = |address: u128| {
        let packet = [&[200, 0][..], &address.to_be_bytes(), &[0; 8]].concat();
        exchange(&mut pipeline, &[&packet]).0.first().map(|p| p[0])
    };
    assert_eq!(came(7), Some(1));
    assert_eq!(came(net | 4), Some(2));
    assert_eq!(came(net | 5), Some(3));
}

#[test]
fn wrong_changes_change_nothing() {
    let mut pipeline = pipeline();
    let good = entry(&[(2, 0xff)], 0, "mark", &[9]);
    assert!(matches!(pipeline.set("none", &good), Err(Error::Missing { .. })));
    assert!(pipeline.set("exact", &entry(&[(2, 0xff)], 0, "other", &[])).is_err());
    assert!(pipeline.set("exact", &entry(&[(2, 0xff)], 0, "mark", &[256])).is_err());
    assert!(pipeline.register("none", 0).is_err());
    assert!(pipeline.register("passed", 1 << 20).is_err());
    pipeline.set("exact", &good).unwrap();
    pipeline.abort();
    pipeline.commit().unwrap();
    assert_eq!(exchange(&mut pipeline, &[&[2; 32]]).0.len(), 0);
}

#[test]
fn wrong_specifications_are_refused() {
    assert!(matches!(build("nonsense"), Err(Error::Spec { line: 1, .. })));
    // Well-formed, with an unknown field.
    let unknown = SPEC.replace("regadd passed m.kind 1", "regadd passed m.other 1");
    assert!(matches!(build(&unknown), Err(Error::Refused(_))));
    // Each line alone is missing.
    let lines: Vec<&str> = SPEC.lines().collect();
    for gone in 0..lines.len() {
        let rest: Vec<&str> =
            lines.iter().enumerate().filter(|(n, _)| *n != gone).map(|(_, l)| *l).collect();
        // Some are comments, or blank. None ends the process.
        drop(build(&rest.join("\n")));
    }
}
