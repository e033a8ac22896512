// SPDX-License-Identifier: Apache-2.0
//! Faults of a port or of a worker in mid-run are reported, and the run fails.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::error::Error;
use smoke::namespace::Namespace;
use smoke::still::Still;
use smoke::testbed::{CLIENT_INTERFACE, SERVER, Testbed, WAN_INTERFACE};
use smoke::udp::{Flow, Receiver, Sender};
use smoke::wait;

use super::certificate::{CHECK, PATIENT, certificate, failed};
use super::{
    SEED, SOON, UDP_PORT, accepts_change, drained, emptied, emulator, on_bed, reports, udp_at,
};

/// Sends frames of a given size for a second. Returns their number.
fn send(
    from: &Namespace,
    source: Ipv4Addr,
    to: SocketAddrV4,
    frame_bytes: usize,
) -> anyhow::Result<u64> {
    let flow = Flow { to, rate_bps: 4_000_000, frame_bytes, duration: Duration::from_secs(1) };
    let sent = Sender::start(from, source, vec![flow]).finish()?;
    Ok(sent.iter().map(|flow| flow.packets).sum())
}

/// The same from the client to the server.
fn load(bed: &Testbed, frame_bytes: usize) -> anyhow::Result<u64> {
    let at = SocketAddrV4::new(SERVER, UDP_PORT);
    let receiver = Receiver::start(bed.server(), at)?;
    let sent = send(bed.client(), bed.client_address(0), at, frame_bytes)?;
    receiver.finish()?;
    Ok(sent)
}

pub fn frames_above_lowered_mtu_are_counted(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("transparent", SEED)?;
        linkctl.mark()?;
        bed.emulator().run(&["ip", "link", "set", WAN_INTERFACE, "mtu", "1280"])?;
        reports(&linkctl, "PORT_CHANGED", 1, "its MTU went from 1500 to 1280")?;
        let sent = load(bed, 1400)?;
        emptied(&linkctl)?;
        let (code, certificate) = certificate(&linkctl, &PATIENT)?;
        ensure!(code == CHECK, "{code}: {certificate:#}");
        for criterion in ["emulator_drops", "port_faults"] {
            ensure!(failed(&certificate).contains(&criterion), "{certificate:#}");
        }
        let lost = certificate["span"]["transmit_dropped"].as_u64();
        ensure!(lost == Some(sent), "{lost:?} of {sent} are counted: {certificate:#}");
        // With the old MTU all frames pass, and the loss remains counted.
        bed.emulator().run(&["ip", "link", "set", WAN_INTERFACE, "mtu", "1500"])?;
        reports(&linkctl, "PORT_CHANGED", 1, "its MTU went from 1280 to 1500")?;
        linkctl.mark()?;
        load(bed, 1400)?;
        emptied(&linkctl)?;
        let (_, certificate) = self::certificate(&linkctl, &PATIENT)?;
        ensure!(failed(&certificate).is_empty(), "{certificate:#}");
        Ok(())
    })
}

pub fn frames_lost_by_interface_are_counted(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("transparent", SEED)?;
        linkctl.mark()?;
        // The other end of the pair accepts no longer frames, so the kernel drops them.
        bed.client().run(&["ip", "link", "set", CLIENT_INTERFACE, "mtu", "1280"])?;
        let sent = send(bed.server(), SERVER, udp_at(bed, 0), 1400)?;
        wait::until("the frames are missed", SOON, || {
            let (_, certificate) = certificate(&linkctl, &PATIENT)
                .map_err(|error| Error::parse("the certificate", error.to_string()))?;
            let missed = certificate["span"]["unconfirmed"].as_u64();
            Ok((missed >= Some(sent)).then_some(()))
        })?;
        reports(&linkctl, "PORT_CHANGED", 1, "has not sent")?;
        let (code, certificate) = certificate(&linkctl, &PATIENT)?;
        ensure!(
            code == CHECK && failed(&certificate).contains(&"emulator_drops"),
            "{certificate:#}"
        );
        Ok(())
    })
}

pub fn carrier_loss_between_two_polls_is_reported(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("transparent", SEED)?;
        linkctl.mark()?;
        for state in ["down", "up"] {
            bed.client().run(&["ip", "link", "set", CLIENT_INTERFACE, state])?;
        }
        reports(&linkctl, "PORT_CHANGED", 1, "its link was lost")?;
        let (code, certificate) = certificate(&linkctl, &PATIENT)?;
        ensure!(code == CHECK && failed(&certificate).contains(&"port_faults"), "{certificate:#}");
        // The kernel may tell of the loss before it tells of the return.
        Ok(wait::until("the link is back", SOON, || {
            let stats = linkctl.run(&["stats"])?.stdout;
            Ok((stats.matches(r#""LINK_STATE_UP""#).count() == 2).then_some(()))
        })?)
    })
}

pub fn dataplane_ends_with_reason_when_interface_is_removed(cpus: &Cpus) -> anyhow::Result<()> {
    let mut ended = String::new();
    let outcome = on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("transparent", SEED)?;
        bed.emulator().run(&["ip", "link", "del", WAN_INTERFACE])?;
        reports(&linkctl, "PORT_CHANGED", 1, "its interface has been removed")?;
        wait::until("the dataplane ends", SOON, || Ok((!bed.dataplane_runs()).then_some(())))?;
        ended = bed.report();
        Ok(())
    });
    // No dataplane is left to stop.
    ensure!(outcome.is_err(), "the dataplane still runs");
    ensure!(ended.contains("port `wan`: its interface has been removed"), "{ended}");
    ensure!(ended.contains("\"ports\""), "no final accounts in {ended}");
    Ok(())
}

pub fn stalled_worker_is_reported_and_resumes(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("geo-600", SEED)?;
        let pid = bed.dataplane_pid().context("the dataplane does not run")?;
        let still = Still::stop(pid, |name| name == "worker-0")?;
        // Every command reports it.
        reports(&linkctl, "DATAPLANE_LOST", 1, "a worker has not answered")?;
        for arguments in [&["stats"][..], &["set", "rate", "10 Mbit/s"]] {
            let outcome = linkctl.run(arguments)?;
            ensure!(outcome.code() != 0, "{arguments:?} while a worker is stopped: {outcome:?}");
        }
        std::thread::sleep(Duration::from_secs(2));
        drop(still);
        // The first event was at the start.
        reports(&linkctl, "DATAPLANE_FOUND", 2, "")?;
        accepts_change(&linkctl, "20 Mbit/s")?;
        drained(&linkctl).map(drop)
    })
}
