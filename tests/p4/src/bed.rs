// SPDX-License-Identifier: Apache-2.0
//! The whole path: hosts, a switch, and the box behind it, with the real programs.
//!
//! ```text
//!   server ── srv0 ═ wan0 ┐          ┌ sat0 ═ cli0 ── client
//!                         └─ switch ─┘
//!                      sww ║        ║ swc
//!                     boxw ╚═ box ══╝ boxc
//! ```
//!
//! Hosts are as in [`smoke::testbed`]; switch and box share the emulator's namespace. linkd is
//! there too, since the switch serves on its loopback.

use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::pb;
use smoke::process::Process;
use smoke::suite::reported;
use smoke::testbed::{Middle, Options, SAT_INTERFACE, Testbed, WAN_INTERFACE, answers};
use smoke::wait;

use crate::target::{DEVICE, Place, SoftSwitch, Target, processor_time};

/// Ports of the switch that face the box.
const TO_BOX: [(u16, &str, &str); 2] = [(0, "sww", "boxw"), (1, "swc", "boxc")];
/// Ports of the switch that face the hosts.
const TO_HOSTS: [(u16, &str); 2] = [(2, WAN_INTERFACE), (3, SAT_INTERFACE)];
/// Port of the switch for copies, and the other end of its wire, which nothing uses.
const TO_MIRROR: (u16, &str, &str) = (4, "swm", MIRROR_INTERFACE);
/// Interface in the emulator's namespace where copies arrive.
pub const MIRROR_INTERFACE: &str = "mirror";
/// MTU of a full frame of the hosts behind a shim.
pub(crate) const MTU: &str = "1532";
pub const READY: Duration = Duration::from_secs(30);

/// Connection of switch and box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    Wires,
    /// DPDK's memif. Only SWX has it.
    Memory,
}

/// Hosts, a switch, a box and their control plane. Dropping it ends all.
#[derive(Debug)]
pub struct Bed {
    between: Between,
    linkd: Option<Process>,
    dataplane: Option<Process>,
    switch: Option<SoftSwitch>,
    restarts: u32,
    /// The hosts, and the namespace between them.
    pub hosts: Testbed,
}

/// State of the switch, as linkd reports it.
#[derive(Clone, Debug)]
pub struct Shown(pb::SwitchState);

impl Deref for Shown {
    type Target = pb::SwitchState;

    fn deref(&self) -> &pb::SwitchState {
        &self.0
    }
}

impl Shown {
    /// Frames of a fate, forward and return.
    #[must_use]
    pub fn fate(&self, fate: &str) -> (u64, u64) {
        let found = self.counts.iter().find(|f| f.fate == fate);
        found.map_or((0, 0), |f| (packets(f.forward_count), packets(f.return_count)))
    }

    /// Copies made on the way to the box and to hosts, forward and return, and those sent.
    #[must_use]
    pub fn copies(&self) -> ([u64; 4], u64) {
        let mirror = self.mirror.clone().unwrap_or_default();
        let to_box = [mirror.forward_at_box, mirror.return_at_box];
        let [forward, back] = [mirror.forward_at_hosts, mirror.return_at_hosts];
        ([to_box[0], to_box[1], forward, back].map(packets), packets(mirror.sent))
    }

    /// True if the switch runs this stage of the forward direction.
    #[must_use]
    pub fn runs(&self, stage: &str) -> bool {
        let is = |s: &&pb::Stage| s.name == stage && s.direction() != pb::Direction::Return;
        self.stages.iter().find(is).is_some_and(|s| s.place() == pb::StagePlace::Switch)
    }
}

fn packets(count: Option<pb::Count>) -> u64 {
    count.unwrap_or_default().packets
}

impl Bed {
    /// Builds and starts it, and waits until linkd reports the switch as ready.
    pub fn new(cpus: &Cpus, clients: u8, seed: u64, between: Between) -> anyhow::Result<Self> {
        let options = Options { middle: Middle::Nothing, clients, seed, ..Options::default() };
        let hosts = Testbed::new(options, cpus)?;
        let wires = if between == Between::Wires { &TO_BOX[..] } else { &[] };
        for &(_, near, far) in wires.iter().chain([&TO_MIRROR]) {
            let emulator = hosts.emulator();
            emulator.run(&["ip", "link", "add", near, "type", "veth", "peer", "name", far])?;
            for end in [near, far] {
                let offloads = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
                emulator.run(&[&["ethtool", "-K", end][..], &offloads].concat())?;
                emulator.run(&["ip", "link", "set", end, "mtu", MTU, "up"])?;
            }
        }
        let mut bed =
            Self { between, linkd: None, dataplane: None, switch: None, restarts: 0, hosts };
        bed.start_switch()?;
        bed.start_box(seed)?;
        bed.start_linkd()?;
        bed.ready().map_err(|e| reported(&e, bed.report()))?;
        Ok(bed)
    }

    fn place(&self) -> Place {
        Place::within(self.hosts.directory())
    }

    /// Starts the switch, without a program.
    pub fn start_switch(&mut self) -> anyhow::Result<()> {
        let program = Target::find().map_err(|lack| anyhow!("{lack:?}"))?;
        let near = |port: u16, near: &str| match self.between {
            Between::Wires => near.to_owned(),
            Between::Memory => self.memory("server", port),
        };
        let to_box = TO_BOX.iter().map(|(port, name, _)| (*port, near(*port, name)));
        let to_hosts = TO_HOSTS.iter().map(|(port, near)| (*port, (*near).to_owned()));
        let mirror = (TO_MIRROR.0, TO_MIRROR.1.to_owned());
        let ports: Vec<_> = to_box.chain(to_hosts).chain([mirror]).collect();
        self.restarts += 1;
        let log = self.hosts.directory().path(&format!("switch-{}.log", self.restarts));
        self.switch =
            Some(SoftSwitch::start(&program, self.hosts.emulator(), &ports, log, &self.place())?);
        Ok(())
    }

    pub fn switch(&mut self) -> anyhow::Result<&mut SoftSwitch> {
        self.switch.as_mut().context("no switch runs")
    }

    pub fn kill_switch(&mut self) -> anyhow::Result<()> {
        self.switch.take().context("no switch runs")?.kill()?;
        Ok(())
    }

    fn start_box(&mut self, seed: u64) -> anyhow::Result<()> {
        let file = format!(
            "[switch]\ntarget = \"{}\"\naddress = \"{}\"\ndevice = {DEVICE}\nbox_wan = {}\n\
             box_client = {}\nwan = [{}]\nclient = [{}]\nmirror = {}\n\
             stages = [\"classification\", \"loss\", \"marking\"]\n",
            Target::name(),
            self.place().address(),
            TO_BOX[0].0,
            TO_BOX[1].0,
            TO_HOSTS[0].0,
            TO_HOSTS[1].0,
            TO_MIRROR.0
        );
        let file = self.hosts.directory().write("box.toml", &file)?.display().to_string();
        let socket = self.hosts.dataplane_socket();
        let [wan, client] = ["wan", "client"];
        let port = |name, (port, _, interface): (u16, &str, &str)| match self.between {
            Between::Wires => format!("{name}=net_af_packet,iface={interface}"),
            Between::Memory => format!("{name}={}", self.memory("client", port)),
        };
        let command = self.hosts.dataplane_command(
            &port(wan, TO_BOX[0]),
            &port(client, TO_BOX[1]),
            &[
                "--box",
                &file,
                "--socket",
                &socket.display().to_string(),
                "--seed",
                &seed.to_string(),
                "--memory",
                "4 GiB",
                // The switch needs the processors as well.
                "--idle",
                "adaptive",
                "-o",
                "json",
            ],
        )?;
        let mut process = Process::spawn(command)?;
        answers(&mut process, "linkd-dataplane", &socket)?;
        self.dataplane = Some(process);
        Ok(())
    }

    /// A side of the memory between switch and box.
    fn memory(&self, role: &str, port: u16) -> String {
        let socket = self.hosts.directory().path("memif.sock");
        let socket = socket.display();
        // The longest ring: with 1,024 slots, bursts of TCP are lost while the reader waits for a processor.
        format!("net_memif,role={role},id={port},socket={socket},socket-abstract=no,rsize=14")
    }

    /// Processor time of the switch and of the dataplane since their start.
    pub fn processor_times(&self) -> anyhow::Result<[Duration; 2]> {
        let switch = self.switch.as_ref().context("no switch runs")?;
        let dataplane = self.dataplane.as_ref().context("no dataplane runs")?;
        Ok([switch.processor_time()?, processor_time(dataplane)?])
    }

    fn start_linkd(&mut self) -> anyhow::Result<()> {
        let mut command = self.hosts.emulator().command(&[]);
        command.arg(&self.hosts.binaries()?.linkd);
        command.arg("--socket").arg(self.hosts.linkd_socket());
        command.arg("--dataplane").arg(self.hosts.dataplane_socket());
        command.arg("--state").arg(self.hosts.directory().path("state"));
        let mut process = Process::spawn(command)?;
        answers(&mut process, "linkd", &self.hosts.linkd_socket())?;
        self.linkd = Some(process);
        Ok(())
    }

    pub fn linkctl(&self) -> anyhow::Result<Linkctl> {
        Ok(self.hosts.linkctl()?)
    }

    /// State of the switch, as linkd reports it.
    pub fn shown(&self) -> anyhow::Result<Shown> {
        Ok(Shown(self.linkctl()?.answer(&["switch", "show"])?))
    }

    /// Waits until linkd reports the switch as ready.
    pub fn ready(&self) -> anyhow::Result<Shown> {
        self.until("linkd has the switch ready", |shown| shown.phase() == pb::SwitchPhase::Ready)
    }

    /// Waits until the reported state of the switch satisfies a condition.
    pub fn until(&self, what: &str, is: impl Fn(&Shown) -> bool) -> anyhow::Result<Shown> {
        let mut last = String::new();
        let waited = wait::until(what, READY, || match self.shown() {
            Ok(shown) if is(&shown) => Ok(Some(shown)),
            Ok(shown) => {
                last = format!("{shown:?}");
                Ok(None)
            }
            Err(e) => {
                last = format!("{e:#}");
                Ok(None)
            }
        });
        waited.with_context(|| format!("the last word was {last}"))
    }

    /// Writes a file for linkctl and returns its path.
    pub fn written(&self, name: &str, text: &str) -> anyhow::Result<String> {
        Ok(self.hosts.directory().write(name, text)?.display().to_string())
    }

    pub fn dataplane(&mut self) -> anyhow::Result<&mut Process> {
        self.dataplane.as_mut().context("no dataplane runs")
    }

    /// Stops the dataplane, which must exit with success.
    pub fn close(&mut self) -> anyhow::Result<()> {
        let status = self.dataplane()?.stop()?;
        ensure!(status.success(), "the dataplane ended with {status} at SIGTERM");
        Ok(())
    }

    /// Output of the programs, for the message of a failure.
    #[must_use]
    pub fn report(&self) -> String {
        let said = |name: &str, process: &Option<Process>| {
            process
                .as_ref()
                .map_or_else(String::new, |p| format!("--- {name}:\n{}{}", p.stderr(), p.stdout()))
        };
        let switch = self.switch.as_ref().map_or_else(String::new, SoftSwitch::said);
        let shown = self.shown().map_or_else(|e| format!("{e:#}"), |s| format!("{s:?}"));
        let stats = self.linkctl().and_then(|l| Ok(l.run(&["stats"])?.stdout));
        let stats = stats.unwrap_or_else(|e| format!("{e:#}"));
        let linkd = said("linkd", &self.linkd);
        let links = self.hosts.emulator().run(&["ip", "-s", "link"]);
        let links = links.unwrap_or_else(|e| e.to_string());
        let dataplane = said("linkd-dataplane", &self.dataplane);
        format!("{shown}\n{stats}\n{linkd}{dataplane}{switch}{links}")
    }
}

/// Runs a test on a new bed. A failure includes the output of the programs.
pub fn on_bed(
    cpus: &Cpus,
    clients: u8,
    seed: u64,
    test: impl FnOnce(&mut Bed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    on_bed_between(cpus, clients, seed, Between::Wires, test)
}

/// As [`on_bed`], with this connection of switch and box.
pub fn on_bed_between(
    cpus: &Cpus,
    clients: u8,
    seed: u64,
    between: Between,
    test: impl FnOnce(&mut Bed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut bed = Bed::new(cpus, clients, seed, between)?;
    let done = test(&mut bed).and_then(|()| bed.close());
    done.map_err(|e| reported(&e, bed.report()))
}
