// SPDX-License-Identifier: Apache-2.0
//! Speed of the switch: figures, no limits. Other programs share the processors.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use p4::bed::{Bed, Between, on_bed_between};
use p4::bench::{Bench, FORWARDS, number, on_bench};
use p4::frame::Frame;
use p4::target::Target;
use p4runtime::Entry;
use smoke::cpus::Cpus;
use smoke::iperf::{Download, Plan};

use super::path::{SETTLED, drained, pinged, placed};
use super::{SEED, is_client};

const RUNS: usize = 5;
const RUN: Duration = Duration::from_secs(2);
const CLIENT: u16 = 5;

/// Frames that the switch is given faster than it takes them: those that its pipeline decided, by its processor
/// time, ports included.
pub fn frames_per_second_of_processor_time(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let way = FORWARDS;
        let frame = Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into());
        let inner = frame.bytes();
        let mac = |at: usize| number(std::array::from_fn(|byte| inner[at + byte]));
        let rule = Entry::new("linkemu.prefixes4").lpm("address", 0x0a4d_0000_u32, 16);
        let host = Entry::new("linkemu.hosts").exact("direction", way.direction);
        let host = host.exact("mac", mac(0)).does("linkemu.to_host").with("port", way.out[0]);
        let known = Entry::new("linkemu.sources").exact("port", way.hosts[0]);
        let known = known.exact("mac", mac(6)).does("linkemu.known");
        bench.control.insert(&[is_client(rule, CLIENT), host, known])?;
        let returned = way.shim(CLIENT).wrap(&inner);
        let kinds = [
            ("frame of a host", way.hosts[0], way.to_box, &inner),
            ("frame from the box", way.from_box, way.out[0], &returned),
        ];
        let mut figures = [const { Vec::new() }; 2];
        for _ in 0..RUNS {
            for ((_, port, to, frame), figures) in kinds.iter().zip(&mut figures) {
                figures.push(run(bench, *port, *to, frame)?);
            }
        }
        for ((name, ..), mut figures) in kinds.into_iter().zip(figures) {
            figures.sort_by(f64::total_cmp);
            let [least, median, most] = [0, RUNS / 2, RUNS - 1].map(|at| figures[at]);
            println!(
                "    {}: {name} of {} bytes: {median:.1} us [{least:.1}, {most:.1}] of processor time, \
                 {:.4} Mpps of a core",
                Target::name(),
                inner.len(),
                1.0 / median
            );
        }
        Ok(())
    })
}

/// Microseconds of the switch's processor time per frame that it gave to a port.
fn run(bench: &mut Bench, port: u16, to: u16, frame: &[u8]) -> anyhow::Result<f64> {
    let given = |bench: &Bench| {
        let count = bench.control.counts("linkemu.given", &[u64::from(to)])?;
        anyhow::Ok(count[0].packets)
    };
    let (before, time) = (given(bench)?, bench.processor_time()?);
    let end = Instant::now() + RUN;
    while Instant::now() < end {
        for _ in 0..64 {
            bench.send(port, frame)?;
        }
    }
    bench.drain()?;
    let (frames, time) = (given(bench)? - before, bench.processor_time()? - time);
    ensure!(frames > 1_000, "{frames} frames in {RUN:?}");
    Ok(time.as_secs_f64() * 1e6 / frames as f64)
}

/// Kernel TCP through switch and box without a rate or delay.
pub fn tcp_through_switch_and_box(cpus: &Cpus) -> anyhow::Result<()> {
    let memory = (!Target::is_bmv2()).then_some(Between::Memory);
    for between in [Between::Wires].into_iter().chain(memory) {
        on_bed_between(cpus, 1, SEED, between, |bed| {
            let linkctl = bed.linkctl()?;
            linkctl.set_profile("transparent", SEED)?;
            pinged(&bed.hosts, 20)?;
            placed(bed, "classification")?;
            for _ in 0..3 {
                let download = Plan::new("cubic", Duration::from_secs(6));
                let (times, before) = (bed.processor_times()?, crossed(bed)?);
                let transfer = Download::start(&bed.hosts, download)?.finish()?;
                let frames = (crossed(bed)? - before) as f64;
                let since = bed.processor_times()?;
                let [switch, emulator] =
                    [0, 1].map(|at| (since[at] - times[at]).as_secs_f64() * 1e6 / frames);
                println!(
                    "    {}, {between:?}: cubic {:.1} Mbit/s in the second half, {} segments sent again; \
                     processor time {switch:.1} us a frame in the switch, {emulator:.1} in the box",
                    Target::name(),
                    transfer.mbps_second_half(),
                    transfer.retransmits
                );
            }
            let stats = drained(&linkctl)?;
            println!("    emulator drops: {}", stats.emulator_drops);
            let shown = bed.shown()?;
            for fate in ["received", "returned", "delivered"] {
                println!("    {fate}: {:?}", shown.fate(fate));
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Frames that came back from the box, in both directions.
fn crossed(bed: &Bed) -> anyhow::Result<u64> {
    // linkd reads the switch at most ten times a second.
    thread::sleep(SETTLED);
    let (forward, back) = bed.shown()?.fate("returned");
    Ok(forward + back)
}
