// SPDX-License-Identifier: Apache-2.0
//! A lab: a box with two NICs, a host at each, and a desk that controls the box.
//!
//! ```text
//!   server ── srv0 ══ wan ┌─────────┐ client ══ cli0 ── client
//!   10.77.0.1             │   box   │                   10.77.0.10
//!                         └── eth ──┘
//!   desk ───── desk0 ════════ 10.78.0.2
//!   10.78.0.1
//! ```
//!
//! The box is a guest. Each host and the desk is a network namespace; a double line is a tap
//! device with the guest's NIC at the other end. QEMU runs in the desk's namespace and makes the
//! taps there. Those of the hosts are then moved to the hosts, and are removed with QEMU.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use smoke::binaries::Binaries;
use smoke::directory::Directory;
use smoke::iperf::{Download, Plan, Transfer};
use smoke::linkctl::Linkctl;
use smoke::namespace::Namespace;
use smoke::ping::{Ping, Pings};
use smoke::process::{run, words};
use smoke::testbed::{CLIENT_INTERFACE, SERVER, SERVER_INTERFACE};
use smoke::wait;

use crate::guest::{Clock, Guest, Options};
use crate::image::Image;
use crate::nic::Nic;
use crate::parts::Parts;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);
/// Interface of the desk.
pub const DESK_INTERFACE: &str = "desk0";
const DESK: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Address of the box for the desk.
pub const BOX: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const PORT: u16 = 8443;
/// MAC of the box's management interface.
const MANAGEMENT: &str = "52:54:00:78:00:03";
/// Modules that `linkctl box apply` loads.
const VFIO: [&str; 2] = ["vfio-pci", "vfio-iommu-type1"];
/// Limit of the hosts' TCP buffers, in bytes.
const TCP_BUFFER: u32 = 60_000_000;

/// A running lab. Dropping it removes all of it.
#[derive(Debug)]
pub struct Lab {
    guest: Guest,
    server: Namespace,
    client: Namespace,
    desk: Namespace,
    linkctl: Linkctl,
    directory: Directory,
}

impl Lab {
    /// Builds a lab with a box that has two NICs of this kind.
    pub fn new(parts: &Parts, nic: Nic) -> anyhow::Result<Self> {
        let binaries = Binaries::find().map_err(|lack| anyhow::anyhow!("{lack:?}"))?;
        let directory = Directory::new()?;
        let (server, client, desk) =
            (Namespace::new("server")?, Namespace::new("client")?, Namespace::new("desk")?);
        let mut image = Image::new();
        let mut rc = format!("MANAGEMENT={MANAGEMENT} ADDRESS={BOX}/24\n");
        rc.push_str(include_str!("../guest/management"));
        certificates(&binaries, &directory, &mut image)?;
        for program in [&binaries.dataplane, &binaries.linkd, &binaries.linkctl] {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            image.program(parts, &name, program)?;
        }
        // A script that binds devices for `linkctl box`.
        let driverctl = parts.program("driverctl");
        let driverctl = driverctl.context("there is no driverctl: run scripts/setup.sh hw")?;
        image.copy("bin/driverctl", &driverctl);
        image.modules(parts, &VFIO)?;
        image.text("bin/box-state", include_str!("../guest/box-state"), 0o755);
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hw-configs/qemu-igb");
        image.copy("etc/linkemu/box.toml", &config.join("box.toml"));
        let _ = writeln!(rc, "LISTEN={BOX}:{PORT}");
        rc.push_str(include_str!("../guest/linkemu"));
        image.text("etc/rc", rc, 0o644);
        let options = Options {
            clock: Clock::Real,
            memory: 1400,
            devices: devices(nic),
            modules: &["virtio-net", "vmxnet3"],
            cmdline: include_str!("../../../hw-configs/qemu-igb/kernel-cmdline"),
        };
        let guest = Guest::boot(parts, &desk, image, &options)?;
        let linkctl = remote(&desk, &binaries, &directory);
        let mut lab = Self { guest, server, client, desk, linkctl, directory };
        lab.cable()?;
        if let Err(error) = lab.await_linkd() {
            return Err(error.context(lab.report()));
        }
        Ok(lab)
    }

    pub const fn guest(&mut self) -> &mut Guest {
        &mut self.guest
    }

    /// Duration of the box's boot.
    #[must_use]
    pub const fn booted(&self) -> Duration {
        self.guest.booted()
    }

    #[must_use]
    pub const fn server(&self) -> &Namespace {
        &self.server
    }

    #[must_use]
    pub const fn client(&self) -> &Namespace {
        &self.client
    }

    /// `linkctl` at the desk, over TCP with certificates.
    #[must_use]
    pub const fn linkctl(&self) -> &Linkctl {
        &self.linkctl
    }

    /// Writes a file at the desk and returns its path.
    pub fn file(&self, name: &str, text: &str) -> anyhow::Result<String> {
        Ok(self.directory.write(name, text)?.display().to_string())
    }

    /// Pings the server from the client.
    pub fn ping(&self, count: u32, interval: Duration) -> anyhow::Result<Pings> {
        Ok(Ping::start(&self.client, CLIENT, SERVER, count, interval)?.finish()?)
    }

    /// Starts a download by the client.
    pub fn download(&self, plan: Plan) -> anyhow::Result<Download> {
        Ok(Download::between(&self.server, &self.client, CLIENT, plan)?)
    }

    /// Runs a download by the client.
    pub fn downloaded(&self, cc: &str, seconds: u64) -> anyhow::Result<Transfer> {
        Ok(self.download(Plan::new(cc, Duration::from_secs(seconds)))?.finish()?)
    }

    /// Output of the box, for the message of a failure.
    pub fn report(&mut self) -> String {
        let mut report = self.guest.console();
        for log in ["/run/box.log", "/run/dataplane.log", "/run/linkd.log"] {
            report.push_str(&self.guest.log(log));
        }
        let stats = self.linkctl.run(&["stats"]);
        let stats = stats.map_or_else(|e| e.to_string(), |s| s.stdout + &s.stderr);
        let _ = writeln!(report, "--- linkctl stats:\n{stats}");
        report
    }

    /// Connects the hosts and the desk.
    fn cable(&self) -> anyhow::Result<()> {
        address(&self.desk, DESK_INTERFACE, DESK)?;
        let hosts =
            [(&self.server, SERVER_INTERFACE, SERVER), (&self.client, CLIENT_INTERFACE, CLIENT)];
        for (host, interface, own) in hosts {
            self.desk.run(&["ip", "link", "set", interface, "netns", host.name()])?;
            // A burst of TCP waits there, as in a NIC's ring, until QEMU reads it.
            host.run(&["ip", "link", "set", interface, "txqueuelen", "10000"])?;
            host.run(&[
                "ethtool", "-K", interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off",
            ])?;
            address(host, interface, own)?;
            for key in ["tcp_rmem", "tcp_wmem"] {
                host.sysctl(&format!("net/ipv4/{key}"), &format!("4096 131072 {TCP_BUFFER}"))?;
            }
            host.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
        }
        Ok(())
    }

    fn await_linkd(&mut self) -> anyhow::Result<()> {
        let linkctl = self.linkctl.clone();
        let waited = wait::until("linkd answers at the desk", Duration::from_secs(90), || {
            Ok((linkctl.run(&["stats"])?.code() == 0).then_some(()))
        });
        if let Err(error) = waited {
            let said = linkctl.run(&["stats"])?.stderr;
            return Err(anyhow::Error::from(error).context(format!("linkctl says: {said}")));
        }
        Ok(())
    }
}

fn address(host: &Namespace, interface: &str, own: Ipv4Addr) -> anyhow::Result<()> {
    host.run(&["ip", "address", "add", &format!("{own}/24"), "dev", interface])?;
    host.run(&["ip", "link", "set", interface, "up"])?;
    Ok(())
}

/// Devices of the box. A NIC behind a separate root port has a separate IOMMU group, and the bus
/// number of the root port.
fn devices(nic: Nic) -> Vec<String> {
    let mut list = vec!["-device".to_owned(), "intel-iommu,intremap=on,caching-mode=on".to_owned()];
    let nics = [
        ("wan", SERVER_INTERFACE, nic.device(), "52:54:00:78:00:01"),
        ("client", CLIENT_INTERFACE, nic.device(), "52:54:00:78:00:02"),
        ("desk", DESK_INTERFACE, "virtio-net-pci", MANAGEMENT),
    ];
    for (slot, (name, tap, device, mac)) in (1..).zip(nics) {
        list.extend([
            "-netdev".to_owned(),
            format!("tap,id={name},ifname={tap},script=no,downscript=no,vhost=off,vnet_hdr=off"),
            "-device".to_owned(),
            format!("pcie-root-port,id=root-{name},chassis={slot},slot={slot}"),
            "-device".to_owned(),
            format!("{device},id=nic-{name},netdev={name},bus=root-{name},mac={mac},romfile="),
        ]);
    }
    list
}

/// A CA, the certificate of the box, and the certificate of the desk.
fn certificates(
    binaries: &Binaries,
    directory: &Directory,
    image: &mut Image,
) -> anyhow::Result<()> {
    let (ca, linkctl) =
        (directory.path("ca").display().to_string(), binaries.linkctl.display().to_string());
    let pki = |more: &[&str]| {
        let argv = [&[linkctl.as_str(), "pki"], more].concat();
        run(words(&argv), Duration::from_secs(30)).and_then(smoke::process::Outcome::success)
    };
    pki(&["ca", "--name", "lab", "-d", &ca])?;
    pki(&["server", "--ca", &ca, "--host", "box", "--ip", &BOX.to_string()])?;
    pki(&["client", "--ca", &ca, "--name", "desk", "--role", "operator"])?;
    for name in ["box.pem", "box.key", "ca.pem"] {
        let from = directory.path("ca").join(name);
        image.copy(&format!("etc/linkemu/{name}"), &from);
    }
    Ok(())
}

/// A `linkctl` in the desk's namespace.
fn remote(desk: &Namespace, binaries: &Binaries, directory: &Directory) -> Linkctl {
    let file = |name: &str| directory.path("ca").join(name).into_os_string();
    let mut words: Vec<OsString> =
        ["ip", "netns", "exec", desk.name()].map(OsString::from).to_vec();
    words.push(binaries.linkctl.clone().into());
    words.extend(["--server".into(), format!("{BOX}:{PORT}").into()]);
    words.extend(["--ca".into(), file("ca.pem")]);
    words.extend(["--cert".into(), file("desk.pem"), "--key".into(), file("desk.key")]);
    Linkctl::through(words)
}
