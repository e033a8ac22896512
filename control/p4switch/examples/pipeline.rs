// SPDX-License-Identifier: Apache-2.0
//! Cost of the pipeline alone: frames of 64 bytes from memory, without ports.
//!
//! ```text
//! cargo run --release -p linkd-p4switch --example pipeline
//! ```
//!
//! Prints nanoseconds of processor time a frame and frames per second of a core, for frames of hosts and
//! for frames from the box, and for a loop that only allocates and frees the buffers. Runs alternate, and
//! each figure is the median of several, with the least and the most. Under
//! `valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*rte_swx_pipeline_run*'`, with
//! `once`, it counts instructions.

use std::time::Duration;

use anyhow::Context;
use dpdk::{Eal, EalOptions, Mbuf, Memory, Mempool};
use p4runtime::{Change, Entry, P4Info};
use p4switch::header::{EXTRACTED, LENGTH, Received};
use p4switch::program::Program;
use p4switch::worker;
use swx::{Pipeline, Wire};

/// Runs, and frames of a run.
const MANY: (usize, u64) = (9, 1_000_000);
/// With `once`: for tools that count instructions.
const ONCE: (usize, u64) = (1, 20_000);
const CLIENTS: u32 = 1_000;
const FRAME: usize = 60;
const EPOCH: u32 = 7;

#[derive(Debug)]
struct Source {
    pool: Mempool,
    frames: Vec<Vec<u8>>,
    next: usize,
    left: u64,
    sent: u64,
}

impl Wire for Source {
    fn receive(&mut self) -> Option<Mbuf> {
        self.left = self.left.checked_sub(1)?;
        self.next = (self.next + 1) % self.frames.len();
        self.pool.alloc(self.frames.get(self.next)?)
    }

    fn send(&mut self, _: Mbuf) {
        self.sent += 1;
    }
}

fn frame(port: u16, client: u32, shim: bool) -> Vec<u8> {
    let mut inner =
        vec![2, 0, 0, 0, 2, 1, 2, 0, 0, 0, 1, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    inner.extend([192, 0, 2, 1]);
    inner.extend((0x0a00_0000 + client).to_be_bytes());
    inner.resize(FRAME, 0);
    if shim {
        let mut outer = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 0x10, 0];
        outer.extend((client as u16 + 2).to_be_bytes());
        outer.extend((EPOCH as u16).to_be_bytes());
        outer.resize(32, 0);
        inner.splice(0..0, outer);
    }
    let mut header = [0; LENGTH];
    let length = inner.len() as u16;
    Received { port, length, now: 1_000, draws: 1 << 40, order: 0 }.write(&mut header);
    inner.resize(inner.len().max(EXTRACTED), 0);
    [&header[..], &inner].concat()
}

fn entries() -> Vec<Entry> {
    let port = |port: u32, action: &str| {
        let entry = Entry::new("linkemu.ports").exact("port", port).does(action);
        entry.with("direction", 0_u32).with("epoch", EPOCH).with("mirrors", 0_u32)
    };
    let celled = |entry: Entry| entry.with("base", 0_u32).with("over", 0xf000_u32);
    let mut entries = vec![
        port(2, "linkemu.from_host").with("box", 0_u32),
        celled(port(1, "linkemu.from_box").with("box", 0_u32)),
        celled(
            Entry::new("linkemu.boxes")
                .exact("box", 0_u32)
                .exact("direction", 0_u32)
                .does("linkemu.to_box")
                .with("port", 0_u32),
        ),
        Entry::new("linkemu.sources")
            .exact("port", 2_u32)
            .exact("mac", 0x0200_0000_0101_u64)
            .does("linkemu.known"),
        Entry::new("linkemu.hosts")
            .exact("direction", 0_u32)
            .exact("mac", 0x0200_0000_0201_u64)
            .does("linkemu.to_host")
            .with("port", 3_u32),
    ];
    entries.extend((0..CLIENTS).map(|client| {
        let address = 0x0a00_0000 + client;
        let entry = Entry::new("linkemu.prefixes4").lpm("address", address, 32);
        entry.does("linkemu.set_client").with("client", client + 2).with("box", 0_u32)
    }));
    // Bounds of bins as linkd sets them: prefixes of ticks.
    for table in ["linkemu.transit_bins", "linkemu.lateness_bins"] {
        let action = if table == "linkemu.transit_bins" { "transit" } else { "lateness" };
        entries.extend((0..30_u32).map(|bin| {
            let entry = Entry::new(table).lpm("ticks", 1_u32 << bin, 32 - bin);
            entry.does(&format!("linkemu.set_{action}_bin")).with("bin", bin)
        }));
    }
    entries
}

/// Nanoseconds of this thread's processor time per frame.
fn timed(frames: u64, work: impl FnOnce()) -> f64 {
    let before = dpdk::thread_time();
    work();
    let spent: Duration = dpdk::thread_time().saturating_sub(before);
    spent.as_nanos() as f64 / frames as f64
}

fn main() -> anyhow::Result<()> {
    let once = std::env::args().any(|argument| argument == "once");
    let (runs, frames) = if once { ONCE } else { MANY };
    let eal = Eal::init(&EalOptions::new(Memory::available(512)))?;
    let _guard = eal.register_thread()?;
    let pool = Mempool::new(&eal, "frames", 2047, 2048)?;
    let spec = std::str::from_utf8(p4src::SWX_SPEC)?;
    let info = P4Info::decode(p4src::SWX_P4INFO)?;
    let program = Program::parse(spec)?;
    let source = Source { pool: pool.clone(), frames: Vec::new(), next: 0, left: 0, sent: 0 };
    let mut pipeline = Pipeline::build(&eal, spec, source)?;
    for (table, entry) in &program.entries {
        pipeline.set(table, entry)?;
    }
    pipeline.commit()?;
    let tables: Vec<_> = pipeline.tables().cloned().collect();
    let program = program.fit(&info, &tables)?;
    for entry in entries() {
        let change = program.change(&info, &Change::Insert(entry))?.context("no change")?;
        if let worker::Change::Set { table, entry } = change {
            pipeline.set(&table, &entry)?;
        }
    }
    let before = std::time::Instant::now();
    pipeline.commit()?;
    println!("tables changed in {:?}", before.elapsed());
    let kinds: [(&str, u16, bool); 2] =
        [("frame of a host", 2, false), ("frame from the box", 1, true)];
    let mut figures = vec![Vec::new(); kinds.len() + 1];
    for _ in 0..runs {
        for ((_, port, shim), figures) in kinds.iter().zip(&mut figures) {
            let wire = pipeline.wire();
            wire.frames = (0..CLIENTS).map(|client| frame(*port, client, *shim)).collect();
            (wire.left, wire.sent) = (frames, 0);
            figures.push(timed(frames, || {
                while pipeline.wire().left > 0 {
                    pipeline.run(10_000);
                }
                pipeline.drain();
            }));
            anyhow::ensure!(pipeline.wire().sent == frames, "{} frames sent", pipeline.wire().sent);
        }
        if let Some(figures) = figures.last_mut() {
            let wire = pipeline.wire();
            wire.left = frames;
            figures.push(timed(frames, || while wire.receive().is_some() {}));
        }
    }
    let names = kinds.iter().map(|(name, ..)| *name).chain(["buffer alone"]);
    for (name, mut figures) in names.zip(figures) {
        figures.sort_by(f64::total_cmp);
        let (least, most) = (figures.first(), figures.last());
        let median = figures.get(figures.len() / 2).copied().unwrap_or_default();
        println!(
            "{name}: {median:.1} ns [{:.1}, {:.1}], {:.2} Mpps",
            least.copied().unwrap_or_default(),
            most.copied().unwrap_or_default(),
            1e3 / median
        );
    }
    Ok(())
}
