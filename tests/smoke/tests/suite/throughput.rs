// SPDX-License-Identifier: Apache-2.0
//! Kernel TCP through the emulator, beside the same hosts on a bridge of the kernel.
//!
//! Beds with a bridge and with the emulator, which holds nothing (`transparent`), alternate in one
//! run, so that the state of the machine is in both. Offloads are off in both. The hosts share the
//! processors that the worker does not use: on two, sender, receiver and bridge have one, which is
//! full, and the emulator's share of the work that the kernel does there, on the sender's and on the
//! receiver's behalf, limits the throughput. So the processor time of the hosts per byte is printed
//! too.

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::iperf::{Download, Plan};
use smoke::testbed::{Middle, Options, Testbed};

use super::{SEED, emulator, on_bed};

const SECONDS: u64 = 2;
/// The emulator's throughput in the bridge's at least. On two processors it is 0.71 to 1.02; the
/// rest is for machines on which the bridge is faster.
const LEAST: f64 = 0.4;

/// Pairs of beds.
const ROUNDS: usize = 7;

/// What a download got.
#[derive(Clone, Copy, Debug)]
struct Got {
    mbps: f64,
    /// Processor time of the hosts, ns for a byte.
    hosts_ns: f64,
}

pub fn tcp_download_keeps_share_of_bridge_throughput(cpus: &Cpus) -> anyhow::Result<()> {
    let (mut bridge, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let options = Options { middle: Middle::Bridge, ..emulator(1) };
        on_bed(cpus, options, |bed| {
            bridge.push(download(bed, cpus)?);
            Ok(())
        })?;
        on_bed(cpus, emulator(1), |bed| {
            bed.linkctl()?.set_profile("transparent", SEED)?;
            ours.push(download(bed, cpus)?);
            Ok(())
        })?;
    }
    let mut ratios: Vec<f64> = bridge.iter().zip(&ours).map(|(a, b)| b.mbps / a.mbps).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    println!("    bridge: {}", told(&bridge));
    println!("    emulator: {}; {ratio:.2} of the bridge's throughput {ratios:.2?}", told(&ours));
    ensure!(ratio >= LEAST, "{ratio:.2} of the throughput of a bridge: {ratios:.2?}");
    Ok(())
}

fn told(all: &[Got]) -> String {
    let range = |of: fn(&Got) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2], values[0], values[values.len() - 1])
    };
    let (mbps, slow, fast) = range(|got| got.mbps);
    let (ns, low, high) = range(|got| got.hosts_ns);
    format!(
        "{mbps:.0} [{slow:.0}, {fast:.0}] Mbit/s, {ns:.2} [{low:.2}, {high:.2}] ns of the hosts' \
         processors a byte"
    )
}

fn download(bed: &Testbed, cpus: &Cpus) -> anyhow::Result<Got> {
    let before = busy(cpus)?;
    let transfer =
        Download::start(bed, Plan::new("cubic", Duration::from_secs(SECONDS)))?.finish()?;
    let spent = busy(cpus)? - before;
    let bytes: u64 = transfer.intervals.iter().map(|i| i.bytes).sum();
    ensure!(bytes > 0, "nothing was received: {transfer:?}");
    Ok(Got { mbps: transfer.mbps_from(0.0), hosts_ns: spent * 1e9 / bytes as f64 })
}

/// Seconds for which the hosts' processors have been busy.
fn busy(cpus: &Cpus) -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let mut ticks = 0_u64;
    for cpu in cpus.hosts() {
        let name = format!("cpu{cpu}");
        let line = stat.lines().find(|l| l.split_whitespace().next() == Some(&name));
        let line = line.with_context(|| format!("{name} is not in /proc/stat"))?;
        let times = line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
        // User, nice, system, idle, iowait, irq, softirq: all but idle and iowait.
        ticks += times
            .take(7)
            .enumerate()
            .filter(|(n, _)| ![3, 4].contains(n))
            .map(|t| t.1)
            .sum::<u64>();
    }
    // USER_HZ.
    Ok(ticks as f64 / 100.0)
}
