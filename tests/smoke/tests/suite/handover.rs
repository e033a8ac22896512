// SPDX-License-Identifier: Apache-2.0
//! A handover between two links: one step of a scenario changes both at one instant.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::pb;
use smoke::process::run;
use smoke::testbed::SERVER;
use smoke::udp::{Arrival, Flow, Sender};

use super::{
    SEED, complete, drained, dropped_only_for, emulator, on_bed, receivers, udp_at, within, written,
};

const LAB: &str = "lab1";
const OFFERED_BPS: u64 = 8_000_000;
const FRAME_BYTES: usize = 1_000;
const FLOW: Duration = Duration::from_secs(4);
/// Delays before the handover, which swaps them, in milliseconds.
const SHORT_MS: u64 = 20;
const LONG_MS: u64 = 60;

fn delayed(name: &str, ms: u64) -> String {
    format!(
        "name = \"{name}\"\n[forward]\nrate = \"20 Mbit/s\"\nqueue.limit = \"1 MB\"\n\
         delay.base = \"{ms} ms\"\n[return]\nrate = \"20 Mbit/s\"\nqueue.limit = \"1 MB\"\n\
         delay.base = \"{ms} ms\"\n"
    )
}

pub fn scenario_swaps_delays_of_two_links_at_one_instant(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(2), |bed| {
        let linkctl = bed.linkctl()?;
        let prefix = format!("{}/32", bed.client_address(1));
        linkctl.run(&["link", "add", LAB, "--memory", "64MiB", "--prefix", &prefix])?.success()?;
        let lab = linkctl.with("--link", LAB);
        let (short, long) = (delayed("short", SHORT_MS), delayed("long", LONG_MS));
        linkctl.set_profile(&written(bed, "short.toml", &short)?, SEED)?;
        lab.set_profile(&written(bed, "long.toml", &long)?, SEED)?;
        let scenario = format!(
            "name = \"swap\"\n[[step]]\nat = \"1 s\"\nlabel = \"handover\"\n\
             both.delay.base = \"{LONG_MS} ms\"\nlinks.{LAB}.both.delay.base = \"{SHORT_MS} ms\"\n"
        );
        let scenario = written(bed, "swap.toml", &scenario)?;
        let flow = |client| Flow {
            to: udp_at(bed, client),
            rate_bps: OFFERED_BPS,
            frame_bytes: FRAME_BYTES,
            duration: FLOW,
        };
        let flows = vec![flow(0), flow(1)];
        let receivers = receivers(bed, &flows)?;
        let sender = Sender::start(bed.server(), SERVER, flows);
        let command: Command = linkctl.command(&["scenario", "run", &scenario]);
        run(command, Duration::from_secs(30))?.success()?;
        let sent = sender.finish()?;
        let stats = [drained(&linkctl)?, drained(&lab)?];
        let mut arrivals = Vec::new();
        for (sent, receiver) in sent.iter().zip(receivers) {
            let received = receiver.finish()?;
            complete(sent, &received)?;
            arrivals.push(received.arrivals);
        }
        for stats in &stats {
            dropped_only_for(stats, &[])?;
        }
        let effective =
            |shown: pb::Link| shown.applied.map(|at| at.effective_ns).context("no instant");
        let [main, other] = [effective(linkctl.show()?)?, effective(lab.show()?)?];
        ensure!(main == other, "main changed at {main} ns, {LAB} at {other} ns");
        // The longer delay begins with a gap, and the shorter one ends with packets that had to keep
        // their order. Both are the longer delay after the instant.
        let [gap_s, end_s] = longest_gap(&arrivals[0]).context("no packets")?;
        let burst_s = largest_burst(&arrivals[1]).context("no packets")?;
        let swapped_ms = (LONG_MS - SHORT_MS) as f64;
        within("gap of the longer delay, ms", gap_s * 1e3, swapped_ms - 5.0, swapped_ms + 15.0)?;
        within("from the gap to the burst, ms", (burst_s - end_s) * 1e3, -10.0, 10.0)?;
        linkctl.run(&["link", "remove", LAB])?.success()?;
        Ok(())
    })
}

/// Length and end of the longest time without an arrival, in seconds.
fn longest_gap(arrivals: &[Arrival]) -> Option<[f64; 2]> {
    let gaps = arrivals.windows(2).map(|pair| [pair[1].at - pair[0].at, pair[1].at]);
    gaps.max_by(|a, b| a[0].total_cmp(&b[0]))
}

/// Time of the millisecond with the most arrivals, in seconds.
fn largest_burst(arrivals: &[Arrival]) -> Option<f64> {
    let within = |first: &Arrival| {
        let from = arrivals.partition_point(|other| other.at < first.at);
        arrivals.partition_point(|other| other.at < first.at + 1e-3) - from
    };
    arrivals.iter().max_by_key(|first| within(first)).map(|first| first.at)
}
