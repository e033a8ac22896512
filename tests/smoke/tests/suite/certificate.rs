// SPDX-License-Identifier: Apache-2.0
//! Certificates of a run without fault, with too little memory, with a stall, and with more clients
//! than slots.

use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;
use smoke::cpus::Cpus;
use smoke::linkctl::{DONE, Linkctl};
use smoke::testbed::{Options, SERVER, Testbed};
use smoke::udp::{Flow, Receiver, Sender};

use super::{SEED, UDP_PORT, drained, emulator, flows_to, on_bed, receivers, reports};

pub const CHECK: i32 = 4;
/// Limits that a busy machine meets: the figures of these runs are not about time.
pub const PATIENT: [&str; 4] = ["--max-lateness", "5s", "--max-stall", "5s"];

pub fn certificate(linkctl: &Linkctl, limits: &[&str]) -> anyhow::Result<(i32, Value)> {
    let outcome = linkctl.run(&[&["certificate"], limits].concat())?;
    let certificate = serde_json::from_str(&outcome.stdout)
        .with_context(|| format!("{}{}", outcome.stdout, outcome.stderr))?;
    Ok((outcome.code(), certificate))
}

/// Criteria that do not hold.
pub fn failed(certificate: &Value) -> Vec<&str> {
    let criteria = certificate["criteria"].as_array().into_iter().flatten();
    criteria.filter(|c| c["holds"] == false).filter_map(|c| c["name"].as_str()).collect()
}

/// Sends full frames to the only client.
fn load(bed: &Testbed, rate_bps: u64, seconds: u64) -> anyhow::Result<()> {
    let flows = flows_to(bed, 1, rate_bps, seconds);
    let receivers = receivers(bed, &flows)?;
    Sender::start(bed.server(), SERVER, flows).finish()?;
    receivers.into_iter().try_for_each(|receiver| receiver.finish().map(drop))?;
    Ok(())
}

pub fn run_without_emulator_fault_passes(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let begun = linkctl.mark()?;
        // Above the rate: drops of the queue are part of the link.
        load(bed, 200_000_000, 2)?;
        drained(&linkctl)?;
        linkctl.set_forward_rate("72 Mbit/s")?;
        let (code, certificate) = certificate(&linkctl, &PATIENT)?;
        ensure!(code == DONE && certificate["holds"] == true, "{code}: {certificate:#}");
        ensure!(certificate["span"]["since_ns"] == begun.time_ns, "{certificate:#}");
        ensure!(certificate["span"]["marked"] == true, "{certificate:#}");
        ensure!(certificate["changes"] == 1, "{certificate:#}");
        ensure!(certificate["workers"].as_array().is_some_and(|w| w.len() == 1));
        // The same run with a limit that no machine meets.
        let (code, late) = self::certificate(&linkctl, &["--max-stall", "0ms"])?;
        ensure!(code == CHECK && failed(&late).contains(&"stall"), "{code}: {late:#}");
        Ok(())
    })
}

pub fn run_with_too_little_memory_fails(cpus: &Cpus) -> anyhow::Result<()> {
    let options = Options { memory: "16 MiB".to_owned(), ..emulator(1) };
    on_bed(cpus, options, |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.change(&["set", "profile", "viasat2", "--lossy"])?;
        linkctl.mark()?;
        // 56 Mbit/s more than the link's rate fill 16 MiB within 3 s.
        load(bed, 200_000_000, 4)?;
        let (code, certificate) = certificate(&linkctl, &PATIENT)?;
        ensure!(code == CHECK && certificate["holds"] == false, "{code}: {certificate:#}");
        let failed = failed(&certificate);
        ensure!(failed.contains(&"emulator_drops"), "{certificate:#}");
        ensure!(failed.contains(&"memory"), "{certificate:#}");
        ensure!(certificate["span"]["overload"].as_u64() > Some(0), "{certificate:#}");
        ensure!(certificate["span"]["lossy"] == true, "{certificate:#}");
        // The next run starts without these drops.
        linkctl.run(&["certificate", "--mark"])?;
        let (_, next) = self::certificate(&linkctl, &PATIENT)?;
        ensure!(!self::failed(&next).contains(&"emulator_drops"), "{next:#}");
        Ok(())
    })
}

pub fn run_with_stalled_worker_fails(cpus: &Cpus) -> anyhow::Result<()> {
    const STILL: Duration = Duration::from_millis(500);
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("geo-600", SEED)?;
        linkctl.mark()?;
        bed.pause_dataplane(STILL)?;
        load(bed, 10_000_000, 1)?;
        drained(&linkctl)?;
        let (code, certificate) = certificate(&linkctl, &["--max-lateness", "5s"])?;
        ensure!(code == CHECK, "{code}: {certificate:#}");
        let failed = failed(&certificate);
        let is_of_time = |name: &&str| ["stall", "lateness_max"].contains(name);
        ensure!(failed.contains(&"stall") && failed.iter().all(is_of_time), "{certificate:#}");
        let criteria = certificate["criteria"].as_array().into_iter().flatten();
        let limit = criteria.clone().find(|c| c["name"] == "stall").unwrap_or(&Value::Null);
        // The link's own limit.
        ensure!(limit["limit"] == 16_000_000, "{certificate:#}");
        ensure!(limit["reason"].as_str().is_some_and(|why| why.contains("RFC 9406")), "{limit}");
        let stall = certificate["stall_max_ns"].as_u64().unwrap_or_default();
        ensure!(u128::from(stall) >= STILL.as_nanos(), "the reported stall is only {stall} ns");
        Ok(())
    })
}

pub fn run_with_client_without_slot_fails(cpus: &Cpus) -> anyhow::Result<()> {
    let options = Options { max_clients: Some(1), ..emulator(2) };
    on_bed(cpus, options, |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("transparent", SEED)?;
        linkctl.mark()?;
        let to = SocketAddrV4::new(SERVER, UDP_PORT);
        let receiver = Receiver::start(bed.server(), to)?;
        let mut sent = 0;
        for client in 0..2 {
            let flow = Flow::full(to, 1_000_000, 1);
            let flows =
                Sender::start(bed.client(), bed.client_address(client), vec![flow]).finish()?;
            sent = flows.iter().map(|flow| flow.packets).sum();
        }
        receiver.finish()?;
        drained(&linkctl)?;
        let (code, certificate) = certificate(&linkctl, &PATIENT)?;
        ensure!(code == CHECK && failed(&certificate) == ["unplaced"], "{code}: {certificate:#}");
        // Packets of the second client only.
        ensure!(certificate["span"]["unplaced"] == sent, "{sent}: {certificate:#}");
        reports(&linkctl, "CLIENTS_FULL", 1, "without a slot")
    })
}
