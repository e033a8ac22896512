// SPDX-License-Identifier: Apache-2.0
//! The sending host: a network namespace, or a QEMU guest with another kernel in its place.
//!
//! ```text
//!   guest ── tap0 ┐
//!                 br0 (namespace of the server)
//!          srv0 ──┘ ═ wan0 ── emulator ── sat0 ═ cli0 ── client
//! ```
//!
//! The guest has the server's address. Its processor is emulated, in real time. The capture is at
//! `srv0` in both cases, so that the metrics are computed in the same way.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use hw::guest::{Clock, Guest, Options};
use hw::image::Image;
use hw::parts::Parts;
use smoke::binaries::Lack;
use smoke::error::Error;
use smoke::iperf::listens;
use smoke::process::Process;
use smoke::testbed::{SERVER, SERVER_INTERFACE, Testbed};
use smoke::wait;

use crate::machine;
use crate::study::{Hosts, Place, Row};

const MAC: &str = "52:54:00:77:00:01";
const TAP: &str = "tap0";
/// Megabytes. The sender holds a full window several times.
const MEMORY: u32 = 1800;
/// Packets that wait for QEMU: a burst of TCP.
const QUEUE: &str = "10000";
const SOON: Duration = Duration::from_secs(20);
/// Congestion controls of every kernel.
const BUILT_IN: [&str; 2] = ["cubic", "reno"];

#[derive(Debug)]
pub enum Server {
    Namespace,
    Guest(Box<Guest>),
}

/// Release of the kernel that sends.
///
/// # Errors
/// If there is no guest.
pub fn kernel(place: Place) -> anyhow::Result<String> {
    match place {
        Place::Namespace => Ok(machine::kernel()),
        Place::Guest => Ok(parts()?.kernel().to_owned()),
    }
}

fn parts() -> anyhow::Result<Parts> {
    Parts::find().map_err(|lack| match lack {
        Lack::Part(reason) | Lack::Permission(reason) => anyhow!(reason),
    })
}

impl Server {
    /// Prepares the sender of a row.
    ///
    /// # Errors
    /// If the guest does not boot.
    pub fn start(bed: &Testbed, row: &Row, hosts: &Hosts) -> anyhow::Result<Self> {
        match row.server {
            Place::Namespace => Ok(Self::Namespace),
            Place::Guest => guest(bed, row, hosts).map(|g| Self::Guest(Box::new(g))),
        }
    }

    /// Congestion control for the client to ask for. A guest has it by default: iperf3 would set it
    /// at the client too, which need not have it.
    #[must_use]
    pub fn asked<'a>(&self, algorithm: &'a str) -> Option<&'a str> {
        matches!(self, Self::Namespace).then_some(algorithm)
    }

    /// Process of the guest.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Namespace => None,
            Self::Guest(guest) => Some(guest.pid()),
        }
    }

    /// Starts an iperf3 server for one transfer, and waits until it listens. Returns its process,
    /// if it is one of this machine.
    ///
    /// # Errors
    /// If it does not listen.
    pub fn iperf(&mut self, bed: &Testbed, port: u16) -> anyhow::Result<Option<Process>> {
        let (address, number) = (SERVER.to_string(), port.to_string());
        let serve = ["iperf3", "-s", "-1", "-J", "-B", &address, "-p", &number];
        match self {
            Self::Namespace => {
                let mut server = Process::spawn(bed.server().command(&serve))?;
                wait::until("iperf3 listens", SOON, || {
                    if server.ended().is_some() {
                        return Err(Error::parse("iperf3 -s", server.stdout() + &server.stderr()));
                    }
                    bed.server().enter(move || listens(port)).map(|yes| yes.then_some(()))
                })?;
                Ok(Some(server))
            }
            Self::Guest(guest) => {
                // Column 4 of the table is the state; 0A is LISTEN.
                guest.run(&format!(
                    "{} >/tmp/iperf-{port} 2>&1 & n=0; until awk '$2 ~ /:{port:04X}$/ && $4 == \
                     \"0A\" {{ found = 1 }} END {{ exit !found }}' /proc/net/tcp; do \
                     n=$((n+1)); [ $n -lt 100 ] || {{ cat /tmp/iperf-{port}; exit 1; }}; \
                     sleep 0.1; done",
                    serve.join(" ")
                ))?;
                Ok(None)
            }
        }
    }
}

/// Boots a guest in the server's namespace and gives it the server's address.
fn guest(bed: &Testbed, row: &Row, hosts: &Hosts) -> anyhow::Result<Guest> {
    let parts = parts()?;
    let server = bed.server();
    let mut image = Image::new();
    let algorithms: BTreeSet<&str> = row.transfer.iter().map(|t| t.algorithm.as_str()).collect();
    ensure!(
        algorithms.len() == 1,
        "the transfers of a guest have one congestion control, and {} has {algorithms:?}",
        row.name
    );
    let algorithm = algorithms.first().copied().unwrap_or_default();
    image.text("etc/rc", script(hosts, algorithm), 0o644);
    let more = algorithms.into_iter().filter(|name| !BUILT_IN.contains(name));
    let modules: Vec<String> =
        ["virtio-net".to_owned()].into_iter().chain(more.map(|a| format!("tcp-{a}"))).collect();
    let options = Options {
        clock: Clock::Real,
        memory: MEMORY,
        devices: vec![
            "-netdev".to_owned(),
            format!("tap,id=net,ifname={TAP},script=no,downscript=no,vhost=off,vnet_hdr=off"),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=net,mac={MAC},romfile="),
        ],
        modules: &modules.iter().map(String::as_str).collect::<Vec<_>>(),
        cmdline: "",
    };
    let mut guest = Guest::boot(&parts, server, image, &options).context("boot the guest")?;
    server.run(&["ip", "address", "flush", "dev", SERVER_INTERFACE])?;
    server.run(&["ip", "link", "add", "br0", "type", "bridge"])?;
    server.run(&["ip", "link", "set", TAP, "txqueuelen", QUEUE])?;
    for interface in [SERVER_INTERFACE, TAP] {
        server.run(&["ip", "link", "set", interface, "master", "br0", "up"])?;
    }
    server.run(&["ip", "link", "set", "br0", "up"])?;
    let address = guest.run("ip -4 -o address show scope global")?;
    ensure!(address.contains(&SERVER.to_string()), "the guest has no interface: {address}");
    Ok(guest)
}

/// The guest's settings: address, congestion control, kernel parameters, MTU, and the limit of TCP's
/// memory, which is the authors' 60,000,000 pages.
fn script(hosts: &Hosts, algorithm: &str) -> String {
    let mtu = hosts.mtu.unwrap_or(1500);
    let mut script = format!(
        "for interface in /sys/class/net/*; do\n\
         [ \"$(cat \"$interface/address\")\" = {MAC} ] || continue\n\
         ip link set \"${{interface##*/}}\" mtu {mtu} txqueuelen {QUEUE} up\n\
         ip address add {SERVER}/24 dev \"${{interface##*/}}\"\n\
         done\n\
         echo 60000000 60000000 60000000 >/proc/sys/net/ipv4/tcp_mem\n\
         echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save\n\
         echo {algorithm} >/proc/sys/net/ipv4/tcp_congestion_control\n"
    );
    for (key, value) in &hosts.sysctl {
        let _ = writeln!(script, "echo '{value}' >/proc/sys/{}", key.replace('.', "/"));
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_gets_the_settings_of_the_study() {
        let sysctl = [("net.ipv4.tcp_rmem".to_owned(), "1 2 3".to_owned())].into();
        let script = script(&Hosts { sysctl, mtu: Some(1428), ..Hosts::default() }, "hybla");
        assert!(script.contains("echo hybla >"), "{script}");
        assert!(script.contains("echo '1 2 3' >/proc/sys/net/ipv4/tcp_rmem\n"), "{script}");
        assert!(script.contains(" mtu 1428 ") && script.contains("10.77.0.1/24"), "{script}");
    }
}
