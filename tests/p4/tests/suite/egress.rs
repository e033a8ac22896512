// SPDX-License-Identifier: Apache-2.0
//! Frames that the switch loses between its decision and its egress are counted, and are in the
//! certificate with their port.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use p4::bed::{Bed, on_bed};
use p4::bench::{Bench, FORWARDS, MTU, WAYS, Way, number, on_bench};
use p4::frame::Frame;
use p4::shim::LENGTH;
use p4::target::Target;
use p4runtime::Entry;
use serde_json::Value;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::testbed::{CLIENT_INTERFACE, SAT_INTERFACE, SERVER, SERVER_INTERFACE};
use smoke::udp::{Flow, Receiver, Sender};
use smoke::wait;

use super::SEED;
use super::path::{drained, interface, pinged};

/// Exit code of `linkctl certificate` if a criterion does not hold.
const CHECK: i32 = 4;
const UDP_PORT: u16 = 5_001;
/// Port of the bed's switch to the client's host.
const TO_CLIENT: u64 = 3;
/// First cell of floods in `linkemu.given`.
const FLOOD: u64 = 512;
/// More than the time in which SWX reads its interfaces' MTUs again.
const SEEN: Duration = Duration::from_millis(1_500);
/// A third of it leaves bmv2 at the slow port.
const OVERLOAD_BPS: u64 = 60_000_000;
const SLOW: [&str; 7] = ["tbf", "rate", "20mbit", "burst", "20k", "limit", "10m"];
/// How long the switch is stopped.
const STILL: Duration = Duration::from_millis(300);
/// Longer than between two frames of the slow port.
const QUIET: Duration = Duration::from_millis(300);

fn frame() -> Frame {
    Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into())
}

/// Packets of these cells.
fn packets(bench: &Bench, counter: &str, cells: &[u64]) -> anyhow::Result<Vec<u64>> {
    let counts = bench.control.counts(counter, cells)?;
    Ok(counts.iter().map(|count| count.packets).collect())
}

/// Frames given to a port, copies of its side's floods included, and sent there.
fn egress(bench: &Bench, port: u16, way: Way) -> anyhow::Result<(u64, u64)> {
    let port = u64::from(port);
    let given = packets(bench, "linkemu.given", &[port, FLOOD + u64::from(way.direction)])?;
    let copies = if way.out.contains(&(port as u16)) { given[1] } else { 0 };
    Ok((given[0] + copies, packets(bench, "linkemu.sent", &[port])?[0]))
}

pub fn frames_of_each_port_are_given_and_sent(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        for way in WAYS {
            let [known, other] = way.out;
            let inner = way.turn(frame()).bytes();
            let mac = number(*inner.first_chunk().context("no address")?);
            let ports = [way.to_box, known, other];
            let read = |bench: &Bench| {
                let of = |port| egress(bench, port, way);
                ports.into_iter().map(of).collect::<anyhow::Result<Vec<_>>>()
            };
            let before = read(bench)?;
            let returned = way.shim(5).wrap(&inner);
            // To the box, and flooded.
            bench.exchange(&[(way.hosts[0], &inner), (way.from_box, &returned)])?;
            let host = Entry::new("linkemu.hosts").exact("direction", way.direction);
            let host = host.exact("mac", mac).does("linkemu.to_host").with("port", known);
            bench.control.insert(&[host])?;
            bench.exchange(&[(way.from_box, &returned)])?;
            // Two rounds of sentinels in each exchange: from both hosts to the box, and flooded.
            let sentinels = [8, 4, 4];
            for (at, frames) in [1, 2, 1].into_iter().enumerate() {
                let (given, sent) = read(bench)?[at];
                let (given, sent) = (given - before[at].0, sent - before[at].1);
                let expected = frames + sentinels[at];
                let what = format!("port {} of {way:?}", ports[at]);
                ensure!((given, sent) == (expected, expected), "{what}: {given}, {sent}");
            }
        }
        if !Target::is_bmv2() {
            too_long(bench)?;
        }
        Ok(())
    })
}

/// A host's frame fits its interface, and with a shim not that to the box. libpcap would take it.
fn too_long(bench: &mut Bench) -> anyhow::Result<()> {
    let way = FORWARDS;
    sleep(SEEN);
    let before = egress(bench, way.to_box, way)?;
    let mut long = frame().bytes();
    for (length, taken) in [(MTU + 14 - LENGTH, 1), (MTU + 15 - LENGTH, 0)] {
        long.resize(length, 0);
        let (given, sent) = egress(bench, way.to_box, way)?;
        let out = bench.exchange(&[(way.hosts[0], &long)])?;
        ensure!(out.at(way.to_box).len() as u64 == taken, "{length} bytes: {out:?}");
        let (after_given, after_sent) = egress(bench, way.to_box, way)?;
        // With two rounds of sentinels from two hosts.
        let found = (after_given - given, after_sent - sent);
        ensure!(found == (5, 4 + taken), "{length} bytes: {found:?}, before {before:?}");
    }
    Ok(())
}

/// The certificate of the run, with its exit code.
fn certificate(linkctl: &Linkctl) -> anyhow::Result<(i32, Value)> {
    let outcome = linkctl.run(&["certificate", "--max-lateness", "5s", "--max-stall", "5s"])?;
    let found = serde_json::from_str(&outcome.stdout);
    let found = found.with_context(|| format!("{}{}", outcome.stdout, outcome.stderr))?;
    Ok((outcome.code(), found))
}

/// Packets of a criterion, and its ports with theirs.
fn criterion(certificate: &Value, name: &str) -> anyhow::Result<(u64, BTreeMap<u64, u64>)> {
    let criteria = certificate["criteria"].as_array().context("no criteria")?;
    let found = criteria.iter().find(|criterion| criterion["name"] == name);
    let found = found.with_context(|| format!("no {name}: {certificate:#}"))?;
    let places = found["places"].as_array().into_iter().flatten();
    let place = |place: &Value| Some((place["port"].as_u64()?, place["packets"].as_u64()?));
    Ok((found["value"].as_u64().context("no value")?, places.filter_map(place).collect()))
}

/// Frames of the forward direction that left the server's host and did not reach the client's.
fn missing(bed: &Bed) -> anyhow::Result<u64> {
    let [sent, _] = interface(bed.hosts.server(), SERVER_INTERFACE)?;
    let [_, came] = interface(bed.hosts.client(), CLIENT_INTERFACE)?;
    Ok(sent - came)
}

/// Sends from the server to the client. Returns the frames that did not arrive.
fn load(bed: &Bed, linkctl: &Linkctl, rate_bps: u64, seconds: u64) -> anyhow::Result<u64> {
    let before = missing(bed)?;
    let to = SocketAddrV4::new(bed.hosts.client_address(0), UDP_PORT);
    let receiver = Receiver::start(bed.hosts.client(), to)?;
    let flow = Flow::full(to, rate_bps, seconds);
    let sent = Sender::start(bed.hosts.server(), SERVER, vec![flow]).finish()?;
    drained(linkctl)?;
    // Until the slow port's interface has sent all frames.
    loop {
        let last = missing(bed)?;
        sleep(QUIET);
        if missing(bed)? == last {
            break;
        }
    }
    let received = receiver.finish()?.arrivals.len();
    println!("    {} packets sent, {received} received", sent[0].packets);
    Ok(missing(bed)? - before)
}

/// The switch stands still while packets pass. bmv2 does not report it.
fn stands_still(bed: &mut Bed, linkctl: &Linkctl) -> anyhow::Result<()> {
    linkctl.mark()?;
    pinged(&bed.hosts, 2)?;
    let (_, before) = certificate(linkctl)?;
    bed.switch()?.signal(Signal::SIGSTOP);
    sleep(STILL);
    bed.switch()?.signal(Signal::SIGCONT);
    if Target::is_bmv2() {
        let (_, after) = certificate(linkctl)?;
        let remarks = after["remarks"].to_string();
        ensure!(remarks.contains("does not report for how long it stood still"), "{after:#}");
        return Ok(());
    }
    let shorter = criterion(&before, "switch_stall")?.0;
    // The switch may answer before its worker has run again.
    let longer = wait::until("the stall is reported", Duration::from_secs(5), || {
        let after = certificate(linkctl).and_then(|(_, after)| criterion(&after, "switch_stall"));
        let longest = after.ok().map(|(longest, _)| longest);
        Ok(longest.filter(|longest| u128::from(*longest) >= STILL.as_nanos()))
    })?;
    println!("    longest stall {shorter} ns, and {longer} ns with one of {STILL:?}");
    Ok(())
}

/// bmv2's queue before a slow port overflows. A port of SWX refuses frames that its interface would drop.
pub fn frames_lost_at_egress_fail_the_certificate(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, 1, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("transparent", SEED)?;
        pinged(&bed.hosts, 10)?;
        drained(&linkctl)?;
        linkctl.mark()?;
        let lost = load(bed, &linkctl, 1_000_000, 1)?;
        let (_, good) = certificate(&linkctl)?;
        for name in ["switch_to_box", "switch_to_hosts"] {
            let found = criterion(&good, name)?;
            ensure!(lost == 0 && found == (0, BTreeMap::new()), "{lost} lost, {name}: {found:?}");
        }
        stands_still(bed, &linkctl)?;
        linkctl.mark()?;
        let emulator = bed.hosts.emulator();
        let rate = if Target::is_bmv2() {
            let slow = ["tc", "qdisc", "replace", "dev", SAT_INTERFACE, "root"];
            emulator.run(&[&slow[..], &SLOW].concat())?;
            OVERLOAD_BPS
        } else {
            emulator.run(&["ip", "link", "set", SAT_INTERFACE, "mtu", "600"])?;
            sleep(SEEN);
            2_000_000
        };
        let lost = load(bed, &linkctl, rate, 1)?;
        let (code, bad) = certificate(&linkctl)?;
        let (to_box, box_ports) = criterion(&bad, "switch_to_box")?;
        let (to_hosts, host_ports) = criterion(&bad, "switch_to_hosts")?;
        println!(
            "    {lost} frames lost; to the box {to_box}, at ports {box_ports:?}; to hosts \
             {to_hosts}, at ports {host_ports:?}"
        );
        ensure!(code == CHECK && bad["holds"] == false, "{code}: {bad:#}");
        ensure!(to_hosts > 0 && host_ports.contains_key(&TO_CLIENT), "{bad:#}");
        let counted: u64 = box_ports.values().chain(host_ports.values()).sum();
        ensure!(counted == lost, "{counted} counted, {lost} did not arrive: {bad:#}");
        if !Target::is_bmv2() {
            ensure!(box_ports.is_empty() && to_box == 0, "{bad:#}");
        }
        Ok(())
    })
}
