// SPDX-License-Identifier: Apache-2.0
//! Rounds of a row on a fresh test bed: hosts as the study sets them, the link, the transfers with a
//! capture at the sender, and the certificate of the run. Usually it is one round.

use std::fs;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::namespace::Namespace;
use smoke::process::{Process, run, words};
use smoke::starvation::Watch;
use smoke::testbed::{CLIENT_INTERFACE, Options, SERVER_INTERFACE, Testbed};
use smoke::wait;

use crate::link::Resolved;
use crate::metrics::{self, Metrics, Series};
use crate::quic;
use crate::server::Server;
use crate::study::{Hosts, Limits, Row, Study};
use crate::transfers::Transfers;

/// Niceness of the dataplane and of a guest.
const PRIORITY: &str = "-19";
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

/// Runs rounds of a row at once, each with its own clients.
///
/// # Errors
/// If the bed cannot be built: another attempt would fail too. A fault of the run makes it void.
pub fn attempts(
    study: &Study,
    row: &Row,
    link: &Resolved,
    (seed, rounds): (u64, usize),
    cpus: &Cpus,
) -> anyhow::Result<Vec<Attempt>> {
    let watch = Watch::start(cpus);
    let clients = u8::try_from(row.clients() * rounds).context("the number of clients")?;
    let most = Some(u16::from(clients) + 1);
    let options = Options { seed, clients, max_clients: most, ..Options::default() };
    let bed = Testbed::new(options, cpus)?;
    for (host, interface) in [(bed.server(), SERVER_INTERFACE), (bed.client(), CLIENT_INTERFACE)] {
        set_up(host, interface, &study.hosts).context("set up the hosts")?;
    }
    if let Some(pid) = bed.dataplane_pid() {
        hasten(pid);
    }
    let file = bed.directory().write("link.toml", &link.toml)?;
    let linkctl = bed.linkctl()?;
    linkctl.set_profile(&file.display().to_string(), seed)?;
    let scenario = link.scenario.as_deref().map(|name| {
        Process::spawn(linkctl.command(&["scenario", "run", name, "--seed", &seed.to_string()]))
    });
    let scenario = scenario.transpose()?;
    let mut server = Server::start(&bed, row, &study.hosts)?;
    // The timers of a guest that paces must not wait for other processes.
    server.pid().into_iter().for_each(hasten);
    linkctl.mark()?;
    let void = |error| Attempt { void: Some(format!("{error:#}")), ..Attempt::default() };
    let mut attempts = match transfers(study, row, (&bed, &mut server), rounds) {
        Ok(rounds) => rounds.into_iter().map(|round| round.unwrap_or_else(void)).collect(),
        Err(error) => {
            let error = format!("{error:#}");
            (0..rounds).map(|_| void(anyhow!("{error}"))).collect::<Vec<_>>()
        }
    };
    let (certificate, mut fault) = certified(&linkctl, &study.limits)?;
    if let Some(mut scenario) = scenario
        && let Some(status) = scenario.ended()
        && !status.success()
    {
        fault = Some(format!("the scenario ended with {status}: {}", scenario.stderr()));
    }
    let starved = watch.finish().starvation();
    for attempt in &mut attempts {
        attempt.certificate = certificate.clone();
        attempt.void = attempt.void.take().or(fault.clone());
        attempt.starved.clone_from(&starved);
    }
    Ok(attempts)
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

/// Runs the transfers of a row and measures them, round by round.
fn transfers(
    study: &Study,
    row: &Row,
    (bed, server): (&Testbed, &mut Server),
    rounds: usize,
) -> anyhow::Result<Vec<anyhow::Result<Attempt>>> {
    let mut transfers = Transfers::start(study, row, bed, server, rounds)?;
    transfers.wait(study.limits.experiment)?;
    drain(&bed.linkctl()?)?;
    let rounds = transfers.finish(&study.metrics)?;
    Ok(rounds.into_iter().map(|round| Ok(combined(row, round?))).collect())
}

/// The transfers of a round. Several have the prefix of their name, and the rates of those that
/// share a client while another one is low.
fn combined(row: &Row, measured: Vec<(Metrics, Series)>) -> Attempt {
    let mut attempt = Attempt::default();
    let transfers = || row.transfer.iter().zip(&measured);
    for (transfer, (_, series)) in transfers() {
        for (other, (_, low)) in transfers() {
            if transfer.name != other.name && transfer.client == other.client {
                let name = format!("{}.while_{}_low_mbps", transfer.name, other.name);
                metrics::put(&mut attempt.metrics, &name, quic::rate_while_low(series, low));
            }
        }
    }
    for (transfer, (values, series)) in row.transfer.iter().zip(measured) {
        let prefix =
            if row.transfer.len() > 1 { format!("{}.", transfer.name) } else { String::new() };
        attempt.metrics.extend(values.into_iter().map(|(name, v)| (format!("{prefix}{name}"), v)));
        attempt.series.insert(transfer.name.clone(), series);
    }
    attempt
}

/// Waits until the link holds no packet.
fn drain(linkctl: &Linkctl) -> anyhow::Result<()> {
    Ok(wait::until("the link is empty", DRAIN, || {
        Ok((linkctl.stats()?.conservation().held == 0).then_some(()))
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
    let fault = (!failed.is_empty() || certificate["holds"] != true)
        .then(|| format!("the certificate fails: {}", failed.join(", ")));
    Ok((certificate, fault))
}
