// SPDX-License-Identifier: Apache-2.0
//! A download by `quicflow`: a real QUIC stack sends, and the client reports the UDP bytes that
//! arrived.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use nix::sys::signal::Signal;
use quicflow::page::Page;
use quicflow::report::{Fetched, PathSample, STEP, Served};
use smoke::error::Error;
use smoke::namespace::Namespace;
use smoke::process::Process;
use smoke::testbed::{SERVER, Testbed};
use smoke::wait;

use crate::metrics::{Metrics, QUANTILES, Series, put};
use crate::statistics::{mean, quantile};
use crate::study::{Stack, Transfer};

const SOON: Duration = Duration::from_secs(10);
/// UDP port of the first client. Its port tells the server's reports apart.
const FIRST_PORT: u16 = 20_000;
/// UDP payload of full packets: the default of quicflow.
const PAYLOAD: f64 = 1350.0;
/// Steps of a second.
const STEPS: usize = (1000 / STEP.as_millis()) as usize;
/// Before this second a flow is starting: its low seconds are no dips.
const STARTED: usize = 10;
/// Share of the median below which a second is low.
const LOW: f64 = 0.75;

/// The sender of all rounds of a transfer.
#[derive(Debug)]
pub struct Server {
    process: Process,
    program: PathBuf,
    x509: PathBuf,
    address: SocketAddr,
    stack: &'static str,
}

/// A running download.
#[derive(Debug)]
pub struct Download {
    process: Process,
    pub local: SocketAddr,
}

impl Server {
    /// Starts the sender of a transfer.
    ///
    /// # Errors
    /// If it does not serve.
    pub fn start(bed: &Testbed, transfer: &Transfer, port: u16) -> anyhow::Result<Self> {
        let program = bed.binaries()?.linkd.with_file_name("quicflow");
        let stack = match transfer.stack.context("a transfer with quic has no stack")? {
            Stack::Quinn => "quinn",
            Stack::S2n => "s2n",
        };
        let address = SocketAddr::from((SERVER, port));
        let x509 = bed.directory().path(&format!("{port}.der"));
        let mut command = inside(bed.server(), &program);
        command.args(["serve", "--stack", stack, "--congestion", &transfer.algorithm]);
        command.args(["--bind", &address.to_string(), "--x509"]).arg(&x509);
        let mut process = Process::spawn(command)?;
        wait::until("quicflow serves", SOON, || {
            if process.ended().is_some() {
                let said = process.stdout() + &process.stderr();
                return Err(Error::parse("quicflow serve", said));
            }
            Ok(process.stdout().starts_with("serving").then_some(()))
        })?;
        Ok(Self { process, program, x509, address, stack })
    }

    /// Starts a download. `number` is different for each download of a bed.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn fetch(
        &self,
        bed: &Testbed,
        transfer: &Transfer,
        client: Ipv4Addr,
        number: u16,
    ) -> anyhow::Result<Download> {
        let local = SocketAddr::from((client, FIRST_PORT + number));
        let mut command = inside(bed.client(), &self.program);
        command.args(["fetch", "--stack", self.stack, "--connect", &self.address.to_string()]);
        command.args(["--bind", &local.to_string(), "--x509"]).arg(&self.x509);
        match (transfer.bytes, transfer.page, transfer.duration) {
            (Some(bytes), ..) => command.args(["--bytes", &bytes.to_string()]),
            (_, Some(page), _) => command.args(["--page", word(page)]),
            (.., duration) => {
                let seconds = duration.unwrap_or_default().as_secs_f64();
                command.args(["--seconds", &seconds.to_string()])
            }
        };
        Ok(Download { process: Process::spawn(command)?, local })
    }

    /// Stops it, and returns its reports by the address of the client.
    ///
    /// # Errors
    /// If it ended early, or its reports cannot be read.
    pub fn finish(mut self) -> anyhow::Result<HashMap<SocketAddr, Served>> {
        self.process.signal(Signal::SIGTERM);
        let said = self.process.finish(SOON)?.success()?;
        let reports = said.lines().skip(1).map(|line| {
            let served: Served = serde_json::from_str(line).context("a report of quicflow")?;
            Ok((served.peer, served))
        });
        reports.collect()
    }
}

fn inside(host: &Namespace, program: &std::path::Path) -> Command {
    let mut command = host.command(&[]);
    command.arg(program);
    command
}

fn word(page: Page) -> &'static str {
    match page {
        Page::Small => "small",
        Page::Medium => "medium",
        Page::Big => "big",
    }
}

impl Download {
    pub fn ended(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// Reads its report.
    ///
    /// # Errors
    /// If it failed.
    pub fn finish(self) -> anyhow::Result<Fetched> {
        let said = self.process.finish(SOON)?;
        let line = said.clone().success()?;
        serde_json::from_str(&line).map_err(|e| anyhow!("quicflow fetch: {e}: {}", said.stderr))
    }
}

/// Metrics of a download. The path's are those of the sender.
#[must_use]
pub fn measured(fetched: &Fetched, served: &Served) -> (Metrics, Series) {
    let mut all = Metrics::new();
    let seconds = per_second(fetched);
    put(&mut all, "throughput_mbps", Some(fetched.throughput_mbps()));
    put(&mut all, "goodput_mbps", Some(fetched.goodput_mbps()));
    put(&mut all, "duration_s", Some(fetched.end_s));
    put(&mut all, "handshake_s", Some(fetched.handshake_s));
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    for (label, p) in QUANTILES {
        put(&mut all, &format!("second_{label}_mbps"), quantile(&sorted, p));
    }
    put(&mut all, "dips_per_minute", dips_per_minute(&seconds));
    let known: Vec<PathSample> = served.path.iter().copied().filter(|p| p.rtt_ms > 0.0).collect();
    let rtts: Vec<f64> = known.iter().map(|p| p.rtt_ms).collect();
    put(&mut all, "rtt_mean_ms", mean(&rtts));
    let windows: Vec<f64> = known.iter().map(|p| p.window_bytes as f64).collect();
    put(&mut all, "window_mean_bytes", mean(&windows));
    let probing = known.iter().filter(|p| p.at_s >= STARTED as f64).map(|p| p.window_bytes);
    let least = probing.min().map(|bytes| bytes as f64 / PAYLOAD);
    put(&mut all, "window_min_packets", least);
    let last = served.path.last();
    put(&mut all, "lost_share", last.map(|p| p.lost as f64 / p.sent.max(1) as f64));
    let rtt_ms = served.path.chunks(STEPS).take(seconds.len()).map(|second| {
        let rtts: Vec<f64> = second.iter().map(|p| p.rtt_ms).collect();
        mean(&rtts)
    });
    let series = Series { rtt_ms: rtt_ms.collect(), mbps: seconds };
    (all, series)
}

/// Mbit/s of UDP payload in each complete second.
fn per_second(fetched: &Fetched) -> Vec<f64> {
    let steps = fetched.udp_bytes_per_step.chunks_exact(STEPS);
    steps.map(|second| second.iter().sum::<u64>() as f64 * 8e-6).collect()
}

/// Seconds with a rate below three quarters of the median, after the start.
fn low(seconds: &[f64]) -> Vec<usize> {
    let mut sorted = seconds.get(STARTED..).unwrap_or_default().to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(median) = quantile(&sorted, 0.5) else { return Vec::new() };
    (STARTED..seconds.len()).filter(|&s| seconds[s] < LOW * median).collect()
}

/// Number of dips, which are runs of low seconds, in a minute.
fn dips_per_minute(seconds: &[f64]) -> Option<f64> {
    let observed = seconds.len().checked_sub(STARTED).filter(|n| *n > 0)?;
    let low = low(seconds);
    let dips = low.iter().filter(|s| !low.contains(&(*s - 1))).count();
    Some(60.0 * dips as f64 / observed as f64)
}

/// Mean rate of a transfer in the seconds in which another one is low.
#[must_use]
pub fn rate_while_low(series: &Series, other: &Series) -> Option<f64> {
    let rates: Vec<f64> =
        low(&other.mbps).into_iter().filter_map(|s| series.mbps.get(s).copied()).collect();
    mean(&rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Mbit/s, with a low second at 12, 22 and 32; counted from second 10 on.
    fn dipping() -> Vec<f64> {
        (0..40).map(|s| if s > 10 && s % 10 == 2 { 0.2 } else { 1.0 }).collect()
    }

    #[test]
    fn run_of_low_seconds_is_one_dip() {
        assert_eq!(dips_per_minute(&dipping()), Some(6.0));
        // A dip of two seconds is one dip, and a slow start is none.
        let mut seconds = dipping();
        seconds[13] = 0.3;
        seconds[1] = 0.1;
        assert_eq!(dips_per_minute(&seconds), Some(6.0));
        assert_eq!(dips_per_minute(&[1.0; 40]), Some(0.0));
        assert_eq!(dips_per_minute(&[]), None);
    }

    #[test]
    fn rate_of_a_competitor_counts_during_dips_only() {
        let series = |mbps: Vec<f64>| Series { mbps, rtt_ms: Vec::new() };
        let other = dipping().iter().map(|mbps| 2.0 - mbps).collect();
        let rate = rate_while_low(&series(other), &series(dipping())).unwrap();
        assert!((rate - 1.8).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn report_gives_throughput_per_second_and_the_path() {
        let fetched = Fetched {
            first_byte_s: 0.5,
            end_s: 2.5,
            bytes: 200_000,
            udp_bytes_per_step: vec![12_500; 25],
            ..Fetched::default()
        };
        let at = |lost, rtt_ms| PathSample { sent: 100, lost, rtt_ms, ..PathSample::default() };
        let served = Served {
            stack: String::new(),
            congestion: String::new(),
            peer: SocketAddr::from((SERVER, 1)),
            path: vec![at(0, 0.0), at(1, 600.0), at(5, 800.0)],
        };
        let (metrics, series) = measured(&fetched, &served);
        assert_eq!(series.mbps, [1.0, 1.0]);
        for (name, value) in [
            ("throughput_mbps", 1.25),
            ("goodput_mbps", 0.64),
            ("rtt_mean_ms", 700.0),
            ("lost_share", 0.05),
        ] {
            assert!((metrics[name] - value).abs() < 1e-9, "{name}: {}", metrics[name]);
        }
    }
}
