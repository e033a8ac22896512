// SPDX-License-Identifier: Apache-2.0
//! The released program in a pipeline, without ports: frames in, decisions and frames out.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::sync::OnceLock;

use dpdk::{Eal, EalOptions, Mbuf, Memory, Mempool};
use p4runtime::{Change, Entry, P4Info};
use p4switch::header::{Decided, EXTRACTED, LENGTH, Received, SENT};
use p4switch::program::Program;
use p4switch::worker::{self, Counter};
use swx::{Pipeline, Wire};

#[derive(Debug)]
struct Frames {
    pool: Mempool,
    input: VecDeque<Vec<u8>>,
    output: Vec<(Decided, Vec<u8>)>,
}

impl Wire for Frames {
    fn receive(&mut self) -> Option<Mbuf> {
        let frame = self.input.pop_front()?;
        let mut header = [0; LENGTH];
        Received { port: 3, length: frame.len() as u16, now: 1, draws: 0, order: 0 }
            .write(&mut header);
        let padding = vec![0; EXTRACTED.saturating_sub(frame.len())];
        self.pool.alloc(&[&header[..], &frame, &padding].concat())
    }

    fn send(&mut self, packet: Mbuf) {
        let bytes = packet.contiguous().unwrap();
        let decided = Decided::read(bytes.first_chunk().unwrap());
        let padding = EXTRACTED.saturating_sub(decided.length.into());
        self.output.push((decided, bytes[LENGTH..bytes.len() - padding].to_vec()));
    }
}

fn start() -> (Eal, Mempool) {
    static EAL: OnceLock<(Eal, Mempool)> = OnceLock::new();
    let start = || {
        let eal = Eal::init(&EalOptions::new(Memory::NoHuge { megabytes: 256 })).unwrap();
        let pool = Mempool::new(&eal, "frames", 1023, 2048).unwrap();
        (eal, pool)
    };
    let (eal, pool) = EAL.get_or_init(start);
    (eal.share(), pool.clone())
}

struct Bench {
    pipeline: Pipeline<Frames>,
    program: Program,
    info: P4Info,
}

impl Bench {
    fn new() -> Self {
        let (eal, pool) = start();
        let spec = std::str::from_utf8(p4src::SWX_SPEC).unwrap();
        let info = P4Info::decode(p4src::SWX_P4INFO).unwrap();
        let program = Program::parse(spec).unwrap();
        let wire = Frames { pool, input: VecDeque::new(), output: Vec::new() };
        let mut pipeline = Pipeline::build(&eal, spec, wire).unwrap();
        for (table, entry) in &program.entries {
            pipeline.set(table, entry).unwrap();
        }
        pipeline.commit().unwrap();
        let tables: Vec<_> = pipeline.tables().cloned().collect();
        let program = program.fit(&info, &tables).unwrap();
        Self { pipeline, program, info }
    }

    fn insert(&mut self, entry: Entry) {
        let change = self.program.change(&self.info, &Change::Insert(entry)).unwrap();
        let Some(worker::Change::Set { table, entry }) = change else { panic!("{change:?}") };
        self.pipeline.set(&table, &entry).unwrap();
        self.pipeline.commit().unwrap();
    }

    fn exchange(&mut self, frames: &[&[u8]]) -> Vec<(Decided, Vec<u8>)> {
        self.pipeline.wire().input.extend(frames.iter().map(|frame| frame.to_vec()));
        while !self.pipeline.wire().input.is_empty() {
            self.pipeline.run(100);
        }
        self.pipeline.drain();
        std::mem::take(&mut self.pipeline.wire().output)
    }

    fn count(&mut self, counter: &str, cell: u32) -> u64 {
        let Counter::Registers { packets, .. } = self.program.counter(counter).unwrap() else {
            panic!("{counter} is in the ports");
        };
        self.pipeline.register(packets.as_ref().unwrap(), cell).unwrap()
    }
}

/// A port to hosts, and the second box, to which its frames go.
fn from_host() -> [Entry; 2] {
    let to_box = Entry::new("linkemu.boxes").exact("box", 1_u32).exact("direction", 0_u32);
    let to_box = to_box.does("linkemu.to_box").with("port", 5_u32);
    let to_box = to_box.with("base", 2048_u32).with("over", 0xf800_u32);
    let from_host = Entry::new("linkemu.ports")
        .exact("port", 3_u32)
        .does("linkemu.from_host")
        .with("direction", 0_u32)
        .with("box", 1_u32)
        .with("epoch", 0x1234_u32)
        .with("mirrors", 0_u32);
    [from_host, to_box]
}

fn prefix6(address: u128, length: u32, client: u32) -> Entry {
    let entry = Entry::new("linkemu.prefixes6").lpm("address", address, length);
    entry.does("linkemu.set_client").with("client", client).with("box", 1_u32)
}

/// An IPv6 packet without payload to an address.
fn v6(to: u128) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 2, 1, 2, 0, 0, 0, 1, 1, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, 0, 59, 64]);
    frame.extend([0; 16]);
    frame.extend(to.to_be_bytes());
    frame
}

#[test]
fn all_objects_of_the_p4info_are_in_the_specification() {
    let mut bench = Bench::new();
    assert!(bench.info.tables().count() >= 13);
    // Without entries, every frame is refused at its port.
    assert_eq!(bench.exchange(&[&[0; 60]]), []);
    assert_eq!(bench.count("linkemu.port_drops", 3 << 3), 1);
    assert_eq!(bench.program.counter(SENT).unwrap(), &Counter::Sent);
}

#[test]
fn frame_of_host_is_classified_by_longest_prefix_and_wrapped() {
    let mut bench = Bench::new();
    from_host().into_iter().for_each(|entry| bench.insert(entry));
    let net = 0x2001_0db8_u128 << 96;
    for (length, client) in [(0, 10), (32, 11), (128, 12)] {
        let address = if length == 128 {
            net | 5
        } else if length == 32 {
            net
        } else {
            0
        };
        bench.insert(prefix6(address, length, client));
    }
    for (to, client) in [(7, 10), (net | 4, 11), (net | 5, 12)] {
        let frame = v6(to);
        let out = bench.exchange(&[&frame]);
        let [(decided, wrapped)] = out.as_slice() else { panic!("{out:?}") };
        assert_eq!((decided.to_port, decided.to_group), (5, 0));
        assert!(decided.learn.is_some());
        assert_eq!(wrapped[32..], frame);
        assert_eq!(u16::from_be_bytes([wrapped[16], wrapped[17]]), client);
        assert_eq!(bench.count("linkemu.fates", u32::from(2048 + client) << 4), 1);
    }
}

#[test]
fn frames_of_any_length_pass_unchanged() {
    let mut bench = Bench::new();
    from_host().into_iter().for_each(|entry| bench.insert(entry));
    let frame = [v6(1), vec![9; 100]].concat();
    for length in 14..frame.len() {
        let out = bench.exchange(&[&frame[..length]]);
        let [(_, wrapped)] = out.as_slice() else { panic!("{length}: {out:?}") };
        assert_eq!(wrapped[32..], frame[..length], "{length}");
    }
    // Shorter than an Ethernet header: refused.
    assert_eq!(bench.exchange(&[&frame[..13]]), []);
    assert_eq!(bench.count("linkemu.port_drops", 3 << 3 | 3), 1);
}

#[test]
fn provider_tag_is_read_and_stays() {
    let mut bench = Bench::new();
    from_host().into_iter().for_each(|entry| bench.insert(entry));
    let vlan = Entry::new("linkemu.vlans").exact("vlan", 7_u32).priority(1);
    bench.insert(vlan.does("linkemu.set_client").with("client", 20_u32).with("box", 1_u32));
    for outer in [0x81_00_u16, 0x88_a8, 0x91_00] {
        let v6 = v6(1);
        let [high, low] = outer.to_be_bytes();
        let frame = [&v6[..12], &[high, low, 0, 7, 0x81, 0, 0, 99], &v6[12..]].concat();
        let out = bench.exchange(&[&frame]);
        let [(_, wrapped)] = out.as_slice() else { panic!("{outer:x}: {out:?}") };
        assert_eq!(wrapped[16..18], [0, 20], "{outer:x}");
        assert_eq!(wrapped[32..], frame, "{outer:x}");
    }
}

#[test]
fn bucket_of_an_address_is_folded_from_its_last_two_bytes() {
    let mut bench = Bench::new();
    let [from_host, to_box] = from_host();
    // The default owner has no port.
    bench.insert(from_host.with("box", 0_u32));
    bench.insert(to_box);
    let net = 0x2001_0db8_u128 << 96;
    let mut refused = 0;
    for (low, bucket) in [(0x0102_u16, 0x03_u32), (0xff0f, 0xf0), (0x4242, 0)] {
        let frame = v6(net | u128::from(low));
        refused += 1;
        assert_eq!(bench.exchange(&[&frame]), []);
        assert_eq!(bench.count("linkemu.port_drops", 3 << 3 | 4), refused);
        let entry = Entry::new("linkemu.buckets").exact("bucket", bucket);
        bench.insert(entry.does("linkemu.set_box").with("box", 1_u32));
        let out = bench.exchange(&[&frame]);
        let [(decided, wrapped)] = out.as_slice() else { panic!("{low:x}: {out:?}") };
        assert_eq!((decided.to_port, &wrapped[16..18]), (5, &[0, 0][..]), "{low:x}");
    }
    assert_eq!(bench.count("linkemu.fates", 2048 << 4), 3);
}
