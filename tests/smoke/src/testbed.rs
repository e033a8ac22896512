// SPDX-License-Identifier: Apache-2.0
//! Two hosts and the emulator between them, each in a namespace:
//!
//! ```text
//!   server ── srv0 ═ wan0 ── emulator ── sat0 ═ cli0 ── client
//!   10.77.0.1                                           10.77.0.10, .11, …
//! ```
//!
//! All addresses are in one subnet, because the emulator is a bump in the wire. The clients share an
//! interface; to the emulator each address is one client. A second port pair has two hosts of its
//! own with the same addresses, on `wan1` and `sat1`.
//!
//! Offloads are disabled at the ends of the pairs. Otherwise frames above the MTU and incomplete
//! checksums would reach the emulator, which does not happen on a real cable.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::cpus::Cpus;
use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::linkctl::Linkctl;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::stats::Stats;
use crate::wait;

pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub const SERVER_INTERFACE: &str = "srv0";
pub const CLIENT_INTERFACE: &str = "cli0";
/// Interface of the emulator that faces the server.
pub const WAN_INTERFACE: &str = "wan0";
/// Interface of the emulator that faces the clients.
pub const SAT_INTERFACE: &str = "sat0";
/// Interfaces of the second port pair: of its hosts and of the emulator, each server first.
const SECOND: [[&str; 2]; 2] = [["srv1", "cli1"], ["wan1", "sat1"]];

/// Limit of TCP buffers in SAT20, in bytes.
const TCP_BUFFER: u32 = 60_000_000;
/// EAL initialises, memory is reserved and the clock is calibrated.
const START: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middle {
    /// A bridge of the kernel, to test hosts and observers without the emulator.
    Bridge,
    Emulator,
    /// The test starts the rest.
    Nothing,
}

/// Port pairs of the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// One without a name.
    One,
    /// `a` and `b`, each with its own server and clients.
    Two,
    /// The VLANs 100 (`wan.h`) and 200 (`client.h`) on [`WAN_INTERFACE`].
    Hairpin,
}

/// Configuration of a test bed.
#[derive(Clone, Debug)]
pub struct Options {
    pub middle: Middle,
    pub clients: u8,
    pub seed: u64,
    pub memory: String,
    /// Workers of the dataplane. Several share processors with the hosts, and sleep when they are
    /// idle.
    pub workers: usize,
    /// Whether an idle worker sleeps, which costs up to 0.1 ms. Several workers always sleep.
    pub adaptive: bool,
    /// `--max-clients` of the dataplane; its default if absent.
    pub max_clients: Option<u16>,
    pub pairs: Pairs,
    pub linkd: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let memory = "2 GiB".to_owned();
        Self {
            middle: Middle::Emulator,
            clients: 1,
            seed: 1,
            memory,
            workers: 1,
            adaptive: false,
            max_clients: None,
            pairs: Pairs::One,
            linkd: Vec::new(),
        }
    }
}

/// A running test bed. Dropping it removes everything, processes first.
#[derive(Debug)]
pub struct Testbed {
    linkd: Option<Process>,
    dataplane: Option<Process>,
    ended: Vec<String>,
    server: Namespace,
    client: Namespace,
    /// Server and client of the second port pair.
    second: Option<[Namespace; 2]>,
    emulator: Namespace,
    directory: Directory,
    binaries: Option<Binaries>,
    options: Options,
    cpus: Cpus,
}

impl Testbed {
    /// Builds the namespaces and starts the programs between them. `cpus` are the processors of
    /// this process before it was restricted.
    pub fn new(options: Options, cpus: &Cpus) -> Result<Self> {
        let binaries = match options.middle {
            Middle::Emulator => Some(Binaries::find().map_err(|lack| {
                Error::parse("the directory of the programs", format!("{lack:?}"))
            })?),
            Middle::Bridge | Middle::Nothing => Binaries::find().ok(),
        };
        let mut bed = Self {
            linkd: None,
            dataplane: None,
            ended: Vec::new(),
            server: Namespace::new("server")?,
            client: Namespace::new("client")?,
            second: None,
            emulator: Namespace::new("emulator")?,
            directory: Directory::new()?,
            binaries,
            options,
            cpus: cpus.clone(),
        };
        bed.connect(&bed.server, SERVER_INTERFACE, WAN_INTERFACE)?;
        bed.connect(&bed.client, CLIENT_INTERFACE, SAT_INTERFACE)?;
        let addresses: Vec<_> = bed.client_addresses();
        address(&bed.server, SERVER_INTERFACE, &[SERVER])?;
        address(&bed.client, CLIENT_INTERFACE, &addresses)?;
        if bed.options.pairs == Pairs::Two {
            let hosts = [Namespace::new("server-b")?, Namespace::new("client-b")?];
            let [near, far] = SECOND;
            for (host, (near, far)) in hosts.iter().zip(near.into_iter().zip(far)) {
                bed.connect(host, near, far)?;
            }
            address(&hosts[0], near[0], &[SERVER])?;
            address(&hosts[1], near[1], &addresses)?;
            bed.second = Some(hosts);
        }
        match bed.options.middle {
            Middle::Bridge => bed.bridge()?,
            Middle::Emulator => {
                bed.start_dataplane()?;
                bed.start_linkd()?;
            }
            Middle::Nothing => (),
        }
        Ok(bed)
    }

    #[must_use]
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    #[must_use]
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// Server and client of the second port pair, if there is one.
    #[must_use]
    pub fn second(&self) -> Option<&[Namespace; 2]> {
        self.second.as_ref()
    }

    #[must_use]
    pub fn emulator(&self) -> &Namespace {
        &self.emulator
    }

    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The address of a client, counted from zero.
    #[must_use]
    pub fn client_address(&self, client: usize) -> Ipv4Addr {
        let host = u8::try_from(10 + client).unwrap_or(u8::MAX);
        Ipv4Addr::new(10, 77, 0, host)
    }

    #[must_use]
    pub fn clients(&self) -> u8 {
        self.options.clients
    }

    fn client_addresses(&self) -> Vec<Ipv4Addr> {
        (0..usize::from(self.options.clients)).map(|c| self.client_address(c)).collect()
    }

    #[must_use]
    pub fn dataplane_socket(&self) -> PathBuf {
        self.directory.path("dataplane.sock")
    }

    #[must_use]
    pub fn linkd_socket(&self) -> PathBuf {
        self.directory.path("linkd.sock")
    }

    pub fn binaries(&self) -> Result<&Binaries> {
        self.binaries.as_ref().ok_or_else(|| Error::parse("the programs under test", "not built"))
    }

    pub fn linkctl(&self) -> Result<Linkctl> {
        Ok(Linkctl::new(&self.binaries()?.linkctl, &self.linkd_socket()))
    }

    /// The processors of the machine.
    #[must_use]
    pub fn cpus(&self) -> &Cpus {
        &self.cpus
    }

    /// Command line of a dataplane with two ports in the emulator's namespace.
    pub fn dataplane_command(&self, wan: &str, client: &str, more: &[&str]) -> Result<Command> {
        // The processes of the hosts, this one included, do not use the worker's processor.
        let cpus = self.cpus.list();
        let mut command = self.emulator.command(&["taskset", "-c", &cpus]);
        command.arg(&self.binaries()?.dataplane).args(["--port", wan, "--port", client]).args(more);
        Ok(command)
    }

    /// Command line of the dataplane of this bed.
    pub fn own_dataplane_command(&self) -> Result<Command> {
        let port = |name: &str, iface: &str| format!("{name}=net_af_packet,iface={iface}");
        let (wan, client) = match self.options.pairs {
            Pairs::One => (port("wan", WAN_INTERFACE), port("client", SAT_INTERFACE)),
            Pairs::Two => (port("wan.a", WAN_INTERFACE), port("client.a", SAT_INTERFACE)),
            Pairs::Hairpin => (
                port("wan.h", WAN_INTERFACE) + ",vlan=100",
                port("client.h", WAN_INTERFACE) + ",vlan=200",
            ),
        };
        let mut command = self.dataplane_command(
            &wan,
            &client,
            &[
                "--socket",
                &self.dataplane_socket().display().to_string(),
                "--seed",
                &self.options.seed.to_string(),
                "--memory",
                &self.options.memory,
                "--idle",
                if self.options.adaptive || self.options.workers > 1 { "adaptive" } else { "busy" },
                "--workers",
                &self.options.workers.to_string(),
                "--core",
                &self.cpus.workers(self.options.workers),
                "-o",
                "json",
            ],
        )?;
        if self.options.pairs == Pairs::Two {
            let [wan, client] = SECOND[1];
            command.arg("--port").arg(port("wan.b", wan));
            command.arg("--port").arg(port("client.b", client));
        }
        if let Some(most) = self.options.max_clients {
            command.arg("--max-clients").arg(most.to_string());
        }
        Ok(command)
    }

    pub fn start_dataplane(&mut self) -> Result<()> {
        let mut process = Process::spawn(self.own_dataplane_command()?)?;
        answers(&mut process, "linkd-dataplane", &self.dataplane_socket())?;
        self.dataplane = Some(process);
        Ok(())
    }

    pub fn linkd_command(&self) -> Result<Command> {
        let mut command = Command::new(&self.binaries()?.linkd);
        command.arg("--socket").arg(self.linkd_socket());
        command.arg("--dataplane").arg(self.dataplane_socket());
        command.arg("--state").arg(self.directory.path("state"));
        command.args(&self.options.linkd);
        Ok(command)
    }

    pub fn start_linkd(&mut self) -> Result<()> {
        let mut process = Process::spawn(self.linkd_command()?)?;
        answers(&mut process, "linkd", &self.linkd_socket())?;
        self.linkd = Some(process);
        Ok(())
    }

    /// Starts another linkd for the same dataplane, with its socket in the bed's directory.
    pub fn another_linkd(&self, socket: &str, more: &[&str]) -> Result<(Process, PathBuf)> {
        let socket = self.directory.path(socket);
        let mut command = Command::new(&self.binaries()?.linkd);
        command.arg("--socket").arg(&socket).arg("--dataplane").arg(self.dataplane_socket());
        command.args(more);
        let mut linkd = Process::spawn(command)?;
        answers(&mut linkd, "linkd", &socket)?;
        Ok((linkd, socket))
    }

    /// Stops all threads of the dataplane for a time.
    pub fn pause_dataplane(&mut self, pause: Duration) -> Result<()> {
        let Some(dataplane) = &mut self.dataplane else {
            return Err(Error::parse("the dataplane", "it does not run"));
        };
        dataplane.signal(Signal::SIGSTOP);
        thread::sleep(pause);
        dataplane.signal(Signal::SIGCONT);
        Ok(())
    }

    pub fn kill_linkd(&mut self) -> Result<()> {
        let ended = self.linkd.as_mut().map(Process::kill).transpose();
        self.retire_linkd();
        ended.map(drop)
    }

    pub fn kill_dataplane(&mut self) -> Result<()> {
        let ended = self.dataplane.as_mut().map(Process::kill).transpose();
        self.retire_dataplane();
        ended.map(drop)
    }

    /// Stops the dataplane, and returns its exit status and its final counters.
    pub fn stop_dataplane(&mut self) -> Result<(ExitStatus, String)> {
        let Some(process) = self.dataplane.as_mut() else {
            return Err(Error::parse("the dataplane", "it does not run"));
        };
        let status = process.stop()?;
        let accounts = process.stdout();
        self.retire_dataplane();
        Ok((status, accounts))
    }

    #[must_use]
    pub fn linkd_pid(&self) -> Option<u32> {
        self.linkd.as_ref().map(Process::pid)
    }

    #[must_use]
    pub fn dataplane_pid(&self) -> Option<u32> {
        self.dataplane.as_ref().map(Process::pid)
    }

    pub fn dataplane_runs(&mut self) -> bool {
        self.dataplane.as_mut().is_some_and(|p| p.ended().is_none())
    }

    pub fn linkd_runs(&mut self) -> bool {
        self.linkd.as_mut().is_some_and(|p| p.ended().is_none())
    }

    pub fn stop(&mut self) -> Result<()> {
        for process in [self.linkd.as_mut(), self.dataplane.as_mut()].into_iter().flatten() {
            process.stop()?;
        }
        Ok(())
    }

    fn retire_linkd(&mut self) {
        let gone = self.linkd.take();
        self.ended.extend(gone.map(|p| log("linkd (ended)", &p)));
    }

    fn retire_dataplane(&mut self) {
        let gone = self.dataplane.take();
        self.ended.extend(gone.map(|p| log("linkd-dataplane (ended)", &p)));
    }

    /// Output of the programs, for the message of a failure.
    #[must_use]
    pub fn report(&mut self) -> String {
        let mut report = String::new();
        if self.linkd.is_some() {
            match self.linkctl().and_then(|l| l.run(&["stats"])) {
                Ok(outcome) => {
                    if let Ok(stats) = Stats::read(&outcome.stdout) {
                        let _ = writeln!(report, "{}", stats.verdict());
                    }
                    let _ = writeln!(report, "stats: {}{}", outcome.stdout, outcome.stderr);
                }
                Err(e) => {
                    let _ = writeln!(report, "stats: {e}");
                }
            }
        }
        if let Some(status) = self.dataplane.as_mut().and_then(Process::ended) {
            let _ = writeln!(report, "THE DATAPLANE HAS ENDED: {status}");
        }
        report.extend(self.ended.iter().map(String::as_str));
        report.extend(self.dataplane.iter().map(|p| log("linkd-dataplane", p)));
        report.extend(self.linkd.iter().map(|p| log("linkd", p)));
        report
    }

    /// A veth pair between a host and the emulator.
    fn connect(&self, host: &Namespace, near: &str, far: &str) -> Result<()> {
        let emulator = &self.emulator;
        host.run(&[
            "ip",
            "link",
            "add",
            near,
            "type",
            "veth",
            "peer",
            "name",
            far,
            "netns",
            emulator.name(),
        ])?;
        for (namespace, interface) in [(host, near), (emulator, far)] {
            namespace.run(&[
                "ethtool", "-K", interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off",
            ])?;
            namespace.run(&["ip", "link", "set", interface, "up"])?;
        }
        for key in ["tcp_rmem", "tcp_wmem"] {
            host.sysctl(&format!("net/ipv4/{key}"), &format!("4096 131072 {TCP_BUFFER}"))?;
        }
        // Each download starts from the same state of the host.
        host.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
        // The host's stack runs on the processors of the hosts and not in the emulator's call.
        let mask = self.cpus.rps_mask();
        let path = format!("/sys/class/net/{near}/queues/rx-0/rps_cpus");
        host.run_with_sys(&["sh", "-c", &format!("echo {mask} > {path}")]).map(drop)
    }

    fn bridge(&self) -> Result<()> {
        let emulator = &self.emulator;
        emulator.run(&["ip", "link", "add", "br0", "type", "bridge"])?;
        for interface in [WAN_INTERFACE, SAT_INTERFACE] {
            emulator.run(&["ip", "link", "set", interface, "master", "br0"])?;
        }
        emulator.run(&["ip", "link", "set", "br0", "up"]).map(drop)
    }
}

fn address(host: &Namespace, interface: &str, addresses: &[Ipv4Addr]) -> Result<()> {
    for address in addresses {
        host.run(&["ip", "address", "add", &format!("{address}/24"), "dev", interface])?;
    }
    Ok(())
}

/// Waits until a process accepts connections on a socket.
pub fn answers(process: &mut Process, name: &str, socket: &Path) -> Result<()> {
    let waited = wait::until(&format!("{name} serves {}", socket.display()), START, || {
        if let Some(status) = process.ended() {
            return Err(Error::Command {
                command: name.to_owned(),
                outcome: format!("{status} at its start"),
                stderr: process.stderr(),
            });
        }
        Ok(UnixStream::connect(socket).is_ok().then_some(()))
    });
    waited.map_err(|e| match e {
        Error::Timeout { what, limit } => {
            Error::Timeout { what: format!("{what} (it wrote: {})", process.stderr()), limit }
        }
        other => other,
    })
}

fn log(name: &str, process: &Process) -> String {
    let (out, err) = (process.stdout(), process.stderr());
    format!("--- {name}, standard error:\n{err}--- {name}, standard output:\n{out}")
}
