// SPDX-License-Identifier: Apache-2.0
//! A link measured by `linkctl probe` between two hosts, and the fit of the log.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use profile::Profile;
use proto::linkemu::v1 as pb;
use serde_json::Value;
use smoke::cpus::Cpus;
use smoke::namespace::Namespace;
use smoke::process::{Process, run};
use smoke::stats::DropReason;
use smoke::testbed::{SERVER, Testbed};
use smoke::wait;

use super::fate::built_in;
use super::{Form, SEED, drained, dropped_only_for, emulator, on_bed, punctual, within};

const PORT: u16 = 8620;
/// Probes with this interval sample a slot of 41 to 43 ms at phases with distances of at most 1.5
/// ms.
const INTERVAL: &str = "20ms";
const PROBES_PER_S: u64 = 50;
const fn seconds(form: Form) -> u64 {
    match form {
        Form::Short => 8,
        Form::Long => 30,
    }
}
/// Longest accepted stall of the worker: it makes three probes late.
const STALL: Duration = Duration::from_millis(50);
/// Duration of the probes, the last replies, and a margin for a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

pub fn fit_of_probe_log_recovers_base_and_slot(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let seconds = seconds(form);
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        linkctl.mark()?;
        let log = bed.directory().path("link.csv");
        let measured = probe(bed, seconds)?;
        let count = |key: &str| measured[key].as_u64().context(format!("{key} in {measured}"));
        let stats = drained(&linkctl)?;
        punctual(&stats, STALL)?;
        // Only the channel loses packets.
        dropped_only_for(&stats, &["outage"])?;
        let lost = stats.packets(|p| p.dropped_for(DropReason::Outage));
        // The sender skips probes that it could not send in time.
        ensure!(count("sent")? + count("skipped")? == seconds * PROBES_PER_S, "{measured}");
        ensure!(count("lost")? == lost, "the channel lost {lost}, the probe reports {measured}");

        let fitted = bed.directory().path("fitted.toml");
        let mut fit = Command::new(&bed.binaries()?.linkctl);
        fit.args(["-o", "json", "fit"]).arg(&log).arg("--write").arg(&fitted);
        let output = run(fit, LIMIT)?.success()?;
        println!("    {}", estimates(&output)?);
        let fitted = Profile::from_file(&fitted)?;
        let truth = built_in("viasat2")?;
        let (base, fitted_base) = (base_ms(&truth), base_ms(&fitted));
        within("fitted base of the round trip, ms", fitted_base, base - 2.0, base + 2.0)?;
        let (slot, fitted_slot) = (slot_ms(&truth), slot_ms(&fitted));
        within("fitted period of the slots, ms", fitted_slot, 0.9 * slot, 1.1 * slot)
    })
}

/// Runs a sender at the client and a reflector at the server. Returns the sender's report.
fn probe(bed: &Testbed, seconds: u64) -> anyhow::Result<Value> {
    let at = format!("{SERVER}:{PORT}");
    let reflect = probing(bed, bed.server(), &["reflect", "--bind", &at])?;
    let mut reflector = Process::spawn(reflect)?;
    let listening = format!("reflecting probes at {at}");
    wait::until(&listening, Duration::from_secs(10), || {
        Ok(reflector.stderr().contains(&listening).then_some(()))
    })
    .with_context(|| reflector.stderr())?;
    let from = bed.client_address(0).to_string();
    let log = bed.directory().path("link.csv").display().to_string();
    let send = ["send", &at, "--bind", &from, "-w", &log];
    let duration = format!("{seconds}s");
    let send = [&send[..], &["--interval", INTERVAL, "--duration", &duration]].concat();
    let sent = run(probing(bed, bed.client(), &send)?, LIMIT)?.success()?;
    let status = reflector.stop()?;
    ensure!(status.success(), "the reflector ended with {status}: {}", reflector.stderr());
    let reflected: Value = serde_json::from_str(&reflector.stdout()).context("the reflector")?;
    println!("    reflector: {reflected}");
    serde_json::from_str(&sent).context("the sender's report")
}

fn probing(bed: &Testbed, at: &Namespace, arguments: &[&str]) -> anyhow::Result<Command> {
    let linkctl = bed.binaries()?.linkctl.display().to_string();
    Ok(at.command(&[&[linkctl.as_str(), "-o", "json", "probe"], arguments].concat()))
}

fn estimates(output: &str) -> anyhow::Result<String> {
    let output: Value = serde_json::from_str(output).context("the output of `linkctl fit`")?;
    let text = |e: &Value, key: &str| e[key].as_str().unwrap_or("?").to_owned();
    let each = output["estimates"].as_array().into_iter().flatten().map(|e| {
        let [what, value] = ["parameter", "value"].map(|key| text(e, key));
        format!("{what} {value} ({} to {})", text(e, "low"), text(e, "high"))
    });
    Ok(each.collect::<Vec<_>>().join("; "))
}

/// Base delay of the round trip.
fn base_ms(profile: &Profile) -> f64 {
    delays(profile).map(|d| d.base_ns as f64 / 1e6).sum()
}

/// Slot of the round trip; one direction has slots.
fn slot_ms(profile: &Profile) -> f64 {
    delays(profile).map(|d| d.slot_ns as f64 / 1e6).sum()
}

fn delays(profile: &Profile) -> impl Iterator<Item = &pb::Delay> {
    let pipes = [&profile.as_proto().forward_pipe, &profile.as_proto().return_pipe];
    pipes.into_iter().flatten().filter_map(|p| p.delay.as_ref())
}
