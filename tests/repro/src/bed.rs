// SPDX-License-Identifier: Apache-2.0
//! One experiment on a fresh test bed: hosts as the study sets them, the link, the transfers with a
//! capture at the sender, and the certificate of the run.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smoke::capture::Capture;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::namespace::Namespace;
use smoke::process::{run, words};
use smoke::starvation::Watch;
use smoke::testbed::{CLIENT_INTERFACE, Options, SERVER_INTERFACE, Testbed};
use smoke::wait;

use crate::iperf::Download;
use crate::link::Resolved;
use crate::metrics::{self, Metrics, Series};
use crate::packets;
use crate::server::Server;
use crate::study::{Hosts, Limits, Row, Study, Tool};

/// Port of the first transfer.
const PORT: u16 = 5201;
/// Niceness of the dataplane.
const PRIORITY: &str = "-19";
const LOOK: Duration = Duration::from_millis(50);
/// Time in which a full queue drains.
const DRAIN: Duration = Duration::from_secs(30);
const COMMAND: Duration = Duration::from_secs(10);

/// Result of one experiment.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Attempt {
    /// Reason for which it does not count.
    pub void: Option<String>,
    pub metrics: Metrics,
    /// Time series by the name of the transfer.
    pub series: std::collections::BTreeMap<String, Series>,
    /// The emulator's own account of the run.
    pub certificate: Value,
    /// Evidence that the machine lacked processor time, which alone does not make a flow void.
    pub starved: Option<String>,
}

/// Runs one experiment.
///
/// # Errors
/// If the bed cannot be built: another attempt would fail too. A fault of the run makes it void.
pub fn attempt(
    study: &Study,
    row: &Row,
    link: &Resolved,
    seed: u64,
    cpus: &Cpus,
) -> anyhow::Result<Attempt> {
    let watch = Watch::start(cpus);
    let bed = Testbed::new(Options { seed, ..Options::default() }, cpus)?;
    for (host, interface) in [(bed.server(), SERVER_INTERFACE), (bed.client(), CLIENT_INTERFACE)] {
        set_up(host, interface, &study.hosts).context("set up the hosts")?;
    }
    if let Some(pid) = bed.dataplane_pid() {
        hasten(pid);
    }
    let file = bed.directory().write("link.toml", &link.toml)?;
    let linkctl = bed.linkctl()?;
    linkctl.set_profile(&file.display().to_string(), seed)?;
    let mut server = Server::start(&bed, row, &study.hosts)?;
    linkctl.mark()?;
    let mut attempt = match transfers(study, row, &bed, &mut server) {
        Ok(attempt) => attempt,
        Err(error) => Attempt { void: Some(format!("{error:#}")), ..Attempt::default() },
    };
    let (certificate, fault) = certified(&linkctl, &study.limits)?;
    attempt.certificate = certificate;
    attempt.void = attempt.void.or(fault);
    attempt.starved = watch.finish().starvation();
    Ok(attempt)
}

fn set_up(host: &Namespace, interface: &str, hosts: &Hosts) -> anyhow::Result<()> {
    for (key, value) in &hosts.sysctl {
        host.sysctl(&key.replace('.', "/"), value)?;
    }
    if let Some(mtu) = hosts.mtu {
        host.run(&["ip", "link", "set", interface, "mtu", &mtu.to_string()])?;
    }
    if let Some(qdisc) = &hosts.qdisc {
        let mut command = vec!["tc", "qdisc", "replace", "dev", interface, "root"];
        command.extend(qdisc.split_whitespace());
        host.run(&command)?;
    }
    Ok(())
}

/// Gives all threads of a process priority. Best effort: the certificate tells if it was too slow.
fn hasten(pid: u32) {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads: Vec<_> = threads.filter_map(|t| t.file_name().into_string().ok()).collect();
    let mut command = words(&["renice", "-n", PRIORITY, "-p"]);
    command.args(threads);
    let _ = run(command, COMMAND);
    // Where the scheduler groups sessions, a nice value counts within its session only.
    let _ = fs::write(format!("/proc/{pid}/autogroup"), PRIORITY);
}

/// Runs the transfers of a row and measures them.
fn transfers(
    study: &Study,
    row: &Row,
    bed: &Testbed,
    server: &mut Server,
) -> anyhow::Result<Attempt> {
    let ports: Vec<u16> = (PORT..).take(row.transfer.len()).collect();
    let file = bed.directory().path("sender.pcap");
    let filter = format!("tcp portrange {PORT}-{}", ports.last().copied().unwrap_or(PORT));
    let capture = Capture::start(bed.server(), SERVER_INTERFACE, &filter, file)?;
    let begin = Instant::now();
    let mut downloads = Vec::new();
    for (transfer, &port) in row.transfer.iter().zip(&ports) {
        match transfer.tool {
            Tool::Iperf3 => downloads.push(Download::start(bed, server, transfer, port)?),
        }
    }
    while !downloads.iter_mut().all(Download::ended) {
        let limit = study.limits.experiment;
        ensure!(begin.elapsed() < limit, "the transfers did not end within {limit:?}");
        wait::until_instant(Instant::now() + LOOK);
    }
    downloads.into_iter().try_for_each(Download::finish)?;
    drain(&bed.linkctl()?)?;
    measured(study, row, &ports, &capture.stop()?)
}

fn measured(study: &Study, row: &Row, ports: &[u16], path: &Path) -> anyhow::Result<Attempt> {
    let traces = packets::read(path, ports)?;
    let mut attempt = Attempt::default();
    for (transfer, port) in row.transfer.iter().zip(ports) {
        let trace = traces.get(port).with_context(|| format!("no packet of port {port}"))?;
        let values = metrics::compute(trace, &study.metrics);
        let prefix =
            if row.transfer.len() > 1 { format!("{}.", transfer.name) } else { String::new() };
        attempt.metrics.extend(values.into_iter().map(|(name, v)| (format!("{prefix}{name}"), v)));
        let series = metrics::series(trace, &study.metrics);
        attempt.series.insert(transfer.name.clone(), series);
    }
    Ok(attempt)
}

/// Waits until the link holds no packet.
fn drain(linkctl: &Linkctl) -> anyhow::Result<()> {
    Ok(wait::until("the link is empty", DRAIN, || {
        Ok((linkctl.stats()?.conservation.held == 0).then_some(()))
    })?)
}

/// The certificate, and the reason for which it fails.
fn certified(linkctl: &Linkctl, limits: &Limits) -> anyhow::Result<(Value, Option<String>)> {
    let span = |d: Duration| humantime::format_duration(d).to_string().replace(' ', "");
    let (lateness, stall) = (span(limits.lateness), span(limits.stall));
    let outcome =
        linkctl.run(&["certificate", "--max-lateness", &lateness, "--max-stall", &stall])?;
    let certificate: Value = serde_json::from_str(&outcome.stdout)
        .map_err(|e| anyhow!("the certificate: {e}: {}{}", outcome.stdout, outcome.stderr))?;
    let criteria = certificate["criteria"].as_array().into_iter().flatten();
    let failed: Vec<String> = criteria
        .filter(|c| c["holds"] == false)
        .map(|c| format!("{} {} (limit {})", c["name"], c["value"], c["limit"]))
        .collect();
    let fault = (!failed.is_empty() || certificate["verdict"] != "pass")
        .then(|| format!("the certificate fails: {}", failed.join(", ")));
    Ok((certificate, fault))
}
