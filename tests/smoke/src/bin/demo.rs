// SPDX-License-Identifier: Apache-2.0
//! Three minutes of a satellite link: idle pings, downloads with Cubic and with BBR,
//! and a change of the rate in mid-download, through the real programs between two
//! real hosts. Writes plots and `summary.json`.
//!
//! Exits with 1 if the accounts do not add up, if a segment was reordered, or if the
//! emulator lost a packet by its own fault.
// Counts and sizes here are far below 2^52.
#![allow(clippy::cast_precision_loss)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use clap::Parser;
use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::capture::{Capture, compare};
use smoke::cpus::Cpus;
use smoke::estate;
use smoke::iperf::{self, Transfer};
use smoke::linkctl::{Change, Linkctl};
use smoke::ping::{Ping, Pings, Survey};
use smoke::report::plot::{Level, Plot, Series};
use smoke::report::progress::Step;
use smoke::report::summary::{self, Summary};
use smoke::report::table::table;
use smoke::series::slope;
use smoke::stats::{Conservation, Sample, Stats, Watch};
use smoke::testbed::{CLIENT_INTERFACE, Options, SERVER, SERVER_INTERFACE, Testbed};
use smoke::wait;

const PROFILE: &str = "viasat2-pings";
/// Forward rate of the profile.
const RATE_MBPS: f64 = 144.0;
const CHANGED_MBPS: f64 = 72.0;
const QUEUE_LIMIT_MB: f64 = 36.0;
/// Pings in each series of the survey.
const IDLE_PINGS: u32 = 15;
const PING_INTERVAL: Duration = Duration::from_millis(200);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Times in the third download: the rate is halved, the rate is restored, the download ends.
const HALVED_AT: Duration = Duration::from_secs(22);
const RESTORED_AT: Duration = Duration::from_secs(29);
const CHANGE_ENDS: Duration = Duration::from_secs(34);
/// Delay of 275 ms from the shaper to the receiver, with a margin.
const SHOWS_AFTER_NS: u64 = 400_000_000;

/// Shows the emulator at work on this machine: about three minutes, as root.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Write plots and summary.json into this directory
    #[arg(long, value_name = "DIR", default_value = "build/demo")]
    out: PathBuf,
    /// Seed of the link's random processes
    #[arg(long, value_name = "N", default_value_t = 20)]
    seed: u64,
    /// Length of the two long downloads
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
}

/// A download and measurements beside it.
struct Observed {
    transfer: Transfer,
    pings: Vec<(f64, f64)>,
    samples: Vec<Sample>,
    /// Start of the download on the dataplane's clock.
    start_ns: u64,
    reordered: usize,
}

impl Observed {
    /// Converts dataplane time to seconds of the download.
    fn seconds(&self, time_ns: u64) -> f64 {
        (time_ns as f64 - self.start_ns as f64) * 1e-9
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = estate::watch_signals() {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    match run(&arguments) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in faults {
                eprintln!("FAILED: {fault}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<Vec<String>> {
    check_machine().and(Binaries::find().map(drop)).map_err(|lack| match lack {
        Lack::Part(reason) | Lack::Permission(reason) => anyhow!(reason),
    })?;
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("make the directory {}", arguments.out.display()))?;
    let cpus = Cpus::available();
    cpus.keep_to_hosts();
    let step = Step::begin("two hosts, the dataplane and linkd", Duration::from_secs(4));
    // An adaptive worker leaves its core to others when it is idle, and goes before them when it is not.
    let options = Options { seed: arguments.seed, adaptive: true, ..Options::default() };
    let mut bed = Testbed::new(options, &cpus)?;
    step.end("they run, in network namespaces of their own");
    demonstrate(arguments, &mut bed).map_err(|error| anyhow!("{error:#}\n{}", bed.report()))
}

fn demonstrate(arguments: &Arguments, bed: &mut Testbed) -> anyhow::Result<Vec<String>> {
    let linkctl = bed.linkctl()?;
    let change = linkctl.set_profile(PROFILE, arguments.seed)?;
    println!(
        "linkctl set profile {PROFILE} --seed {}: applied at {:.6} s (generation {})",
        arguments.seed,
        change.effective_ns as f64 * 1e-9,
        change.generation
    );
    let idle = idle_pings(bed)?;
    let mut downloads = Vec::new();
    for cc in ["cubic", "bbr"] {
        let plan = iperf::Plan::new(cc, Duration::from_secs(arguments.seconds));
        downloads.push(download(bed, &linkctl, &plan, "", |_| Ok(()))?);
        drained(&linkctl)?;
    }
    let (changed, change) = changed_download(bed, &linkctl)?;
    drained(&linkctl)?;

    let (status, accounts) = bed.stop_dataplane()?;
    if !status.success() {
        bail!("the dataplane ended with {status} at SIGTERM");
    }
    let stats = Stats::read(&accounts).context("the dataplane's final accounts")?;
    let summary = summarise(&idle, &downloads, change, &stats);
    plots(&arguments.out, &downloads, &changed)?;
    let path = arguments.out.join("summary.json");
    let json = serde_json::to_string_pretty(&summary)?;
    fs::write(&path, json + "\n").with_context(|| format!("write {}", path.display()))?;
    println!("\n{}\n", table(&summary, &stats));
    println!("summary.json and the plots are in {}", arguments.out.display());
    Ok(summary.faults())
}

fn idle_pings(bed: &Testbed) -> anyhow::Result<Pings> {
    let length = Survey::duration(IDLE_PINGS);
    let mut step = Step::begin("idle pings", length);
    let end = Instant::now() + length;
    let ping = Survey::start(bed.client(), bed.client_address(0), SERVER, IDLE_PINGS)?;
    while Instant::now() < end {
        step.tick(&format!("{} came back", ping.replies()));
        wait::until_instant(Instant::now() + SAMPLE_INTERVAL);
    }
    let pings = ping.finish()?;
    step.end(&format!(
        "RTT p5 {:.0} ms, median {:.0} ms, p95 {:.0} ms; {} lost, {} out of order",
        pings.rtt_ms(0.05),
        pings.rtt_ms(0.5),
        pings.rtt_ms(0.95),
        pings.lost(),
        pings.out_of_order
    ));
    Ok(pings)
}

/// Runs a download with pings beside it, captures at both hosts and sampled statistics. `meanwhile`
/// is called ten times a second with the time since the start.
fn download(
    bed: &Testbed,
    linkctl: &Linkctl,
    plan: &iperf::Plan,
    how: &str,
    mut meanwhile: impl FnMut(Duration) -> anyhow::Result<()>,
) -> anyhow::Result<Observed> {
    let filter = format!("tcp src port {}", plan.port);
    let file = |name: &str| bed.directory().path(name);
    let at_server = Capture::start(bed.server(), SERVER_INTERFACE, &filter, file("server.pcap"))?;
    let at_client = Capture::start(bed.client(), CLIENT_INTERFACE, &filter, file("client.pcap"))?;
    let watch = Watch::start(linkctl, SAMPLE_INTERVAL)?;
    let mut step = Step::begin(&format!("download, {}{how}", plan.cc), plan.duration);
    let source = bed.client_address(0);
    let endless = u32::MAX / 1000;
    let ping = Ping::start(bed.client(), source, SERVER, endless, PING_INTERVAL)?;
    let mut running = iperf::Download::start(bed, plan.clone())?;
    let (start, start_utc) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
    let start_ns = linkctl.stats()?.time_ns;
    let mut before = watch.latest();
    let mut shown = start;
    while !running.ended() {
        meanwhile(start.elapsed())?;
        if shown.elapsed() >= Duration::from_secs(1) {
            shown = Instant::now();
            let now = watch.latest();
            step.tick(&live(before.as_ref(), now.as_ref()));
            before = now;
        }
        wait::until_instant(Instant::now() + SAMPLE_INTERVAL);
    }
    let transfer = running.finish()?;
    let pings = ping.stop()?;
    let samples = watch.finish()?;
    let received = at_client.finish()?;
    let order = compare(&at_server.finish()?, &received);
    let reordered = order.reordered + order.crossed;
    step.end(&format!(
        "{:.1} Mbit/s, {:.1} in the second half; RTT of the second half {:.0} ms; {} segments, \
         {reordered} reordered",
        transfer.mbps_from(0.0),
        transfer.mbps_second_half(),
        transfer.rtt_ms_second_half(),
        order.received,
    ));
    let since = |at: f64| at - start_utc.as_secs_f64();
    let pings = pings.replies.iter().map(|r| (since(r.at), r.rtt_ms)).collect();
    Ok(Observed { transfer, pings, samples, start_ns, reordered })
}

fn changed_download(
    bed: &Testbed,
    linkctl: &Linkctl,
) -> anyhow::Result<(Observed, summary::Change)> {
    let plan = iperf::Plan::new("bbr", CHANGE_ENDS);
    let (mut halved, mut restored): (Option<Change>, Option<Change>) = (None, None);
    let observed = download(bed, linkctl, &plan, ", rate halved and restored", |elapsed| {
        if halved.is_none() && elapsed >= HALVED_AT {
            halved = Some(linkctl.set_forward_rate(&format!("{CHANGED_MBPS} Mbit/s"))?);
        }
        if restored.is_none() && elapsed >= RESTORED_AT {
            restored = Some(linkctl.set_forward_rate(&format!("{RATE_MBPS} Mbit/s"))?);
        }
        Ok(())
    })?;
    let (Some(halved), Some(restored)) = (halved, restored) else {
        bail!("the download ended before the rate was changed");
    };
    let points = limited_by_the_rate(&observed.samples, &halved, &restored);
    let change = summary::Change {
        from_mbps: RATE_MBPS,
        to_mbps: CHANGED_MBPS,
        measured_mbps: slope(&points),
        applied_at_ns: halved.effective_ns,
    };
    println!(
        "linkctl set rate {CHANGED_MBPS} Mbit/s --direction forward: in force since {:.6} s; \
         {:.2} Mbit/s measured",
        halved.effective_ns as f64 * 1e-9,
        change.measured_mbps
    );
    Ok((observed, change))
}

/// Bytes sent over time, in seconds and Mbit, for the longest interval between two changes in which
/// the queue was not empty. Only then is the rate limited by the link and not by the sender.
fn limited_by_the_rate(samples: &[Sample], from: &Change, to: &Change) -> Vec<(f64, f64)> {
    let mut stood_since = None;
    let (mut longest, mut run) = (Vec::new(), Vec::new());
    for (sample, (time_ns, bytes)) in samples.iter().zip(sent(samples)) {
        let within = (from.effective_ns..to.effective_ns).contains(&time_ns);
        if !within || queued(&sample.stats) == 0 {
            stood_since = None;
            run.clear();
            continue;
        }
        if time_ns >= *stood_since.get_or_insert(time_ns) + SHOWS_AFTER_NS {
            run.push((time_ns as f64 * 1e-9, bytes as f64 * 8e-6));
        }
        if run.len() > longest.len() {
            longest.clone_from(&run);
        }
    }
    longest
}

fn drained(linkctl: &Linkctl) -> anyhow::Result<()> {
    wait::until("the emulator holds nothing", Duration::from_secs(30), || {
        Ok((linkctl.stats()?.conservation().held == 0).then_some(()))
    })?;
    Ok(())
}

fn summarise(
    idle: &Pings,
    downloads: &[Observed],
    change: summary::Change,
    stats: &Stats,
) -> Summary {
    let downloads = downloads.iter().map(|d| summary::Download {
        cc: d.transfer.plan.cc.clone(),
        mbps: d.transfer.mbps_from(0.0),
        mbps_second_half: d.transfer.mbps_second_half(),
        rtt_ms_mean: d.transfer.rtt_ms_second_half(),
        reordered: d.reordered,
    });
    Summary {
        idle_rtt_ms: summary::IdleRtt {
            p5: idle.rtt_ms(0.05),
            p50: idle.rtt_ms(0.5),
            p95: idle.rtt_ms(0.95),
        },
        downloads: downloads.collect(),
        change,
        queue: summary::Queue::of(stats),
        lateness_us: summary::Lateness::of(stats),
        conservation: Conservation { exact: stats.conserved().is_ok(), ..stats.conservation() },
        emulator_drops: stats.emulator_drops,
    }
}

/// For each sample, its time and the bytes sent in the forward direction so far.
fn sent(samples: &[Sample]) -> impl Iterator<Item = (u64, u64)> {
    samples.iter().map(|s| {
        let bytes = s.stats.clients.iter().map(|c| c.forward().sent().bytes).sum();
        (s.stats.time_ns, bytes)
    })
}

/// Bytes in the forward queues.
fn queued(stats: &Stats) -> u64 {
    stats.clients.iter().map(|c| c.forward().queue().bytes).sum()
}

fn live(before: Option<&Sample>, now: Option<&Sample>) -> String {
    let (Some(before), Some(now)) = (before, now) else { return String::new() };
    let pair = [before.clone(), now.clone()];
    let rate = rates(&pair, 1).last().map_or(0.0, |r| r.1);
    format!("{rate:5.1} Mbit/s, queue {:4.1} MB", queued(&now.stats) as f64 / 1e6)
}

/// Rate in Mbit/s at which the emulator sent, over a given number of samples, by dataplane time in
/// ns.
fn rates(samples: &[Sample], over: usize) -> Vec<(u64, f64)> {
    let all: Vec<_> = sent(samples).collect();
    let chosen: Vec<_> = all.iter().step_by(over).collect();
    let pairs = chosen.windows(2).filter(|w| w[1].0 > w[0].0);
    pairs.map(|w| (w[1].0, (w[1].1 - w[0].1) as f64 * 8e3 / (w[1].0 - w[0].0) as f64)).collect()
}

/// The same over half a second, in seconds of the download.
fn throughput(download: &Observed) -> Vec<(f64, f64)> {
    let rates = rates(&download.samples, 5).into_iter();
    rates.map(|(time_ns, rate)| (download.seconds(time_ns), rate)).filter(|p| p.0 >= 0.0).collect()
}

fn plots(out: &Path, downloads: &[Observed], changed: &Observed) -> anyhow::Result<()> {
    let series = |points: &dyn Fn(&Observed) -> Vec<(f64, f64)>| {
        let name = |d: &Observed| d.transfer.plan.cc.clone();
        downloads.iter().map(|d| Series { name: name(d), points: points(d) }).collect::<Vec<_>>()
    };
    let level = |name: &str, value| vec![Level { name: name.to_owned(), value }];
    let queue = |d: &Observed| {
        let size = |s: &Sample| (d.seconds(s.stats.time_ns), queued(&s.stats) as f64 / 1e6);
        d.samples.iter().map(size).filter(|p| p.0 >= 0.0).collect()
    };
    let rtt = |d: &Observed| d.pings.iter().copied().filter(|p| p.0 >= 0.0).collect();
    let steps = throughput(changed);
    let files = [
        (
            "throughput.svg",
            Plot {
                title: format!("Throughput of downloads over {PROFILE}"),
                unit: "sent to the client, Mbit/s".to_owned(),
                series: series(&throughput),
                levels: level("rate of the link", RATE_MBPS),
            },
        ),
        (
            "rtt.svg",
            Plot {
                title: format!("Round-trip time of pings beside the downloads, {PROFILE}"),
                unit: "round-trip time, ms".to_owned(),
                series: series(&rtt),
                levels: level("idle median of SAT20", smoke::report::reference::IDLE_RTT_MS[1]),
            },
        ),
        (
            "queue.svg",
            Plot {
                title: format!("The client's queue during the downloads, {PROFILE}"),
                unit: "queue, MB".to_owned(),
                series: series(&queue),
                levels: [
                    level("limit", QUEUE_LIMIT_MB),
                    level("random drop above", QUEUE_LIMIT_MB / 2.0),
                ]
                .concat(),
            },
        ),
        (
            "change.svg",
            Plot {
                title: "The rate halved and restored during a download with BBR".to_owned(),
                unit: "sent to the client, Mbit/s".to_owned(),
                series: vec![Series { name: "bbr".to_owned(), points: steps }],
                levels: [
                    level("rate of the link", RATE_MBPS),
                    level("the rate that was set", CHANGED_MBPS),
                ]
                .concat(),
            },
        ),
    ];
    for (name, plot) in files {
        plot.draw(&out.join(name))?;
    }
    Ok(())
}
