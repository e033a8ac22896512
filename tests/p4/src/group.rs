// SPDX-License-Identifier: Apache-2.0
//! Several boxes behind one switch, with the real programs.
//!
//! ```text
//!   server ── srv0 ═ wan0 ┐            ┌ sat0 ═ cli0 ── client
//!                         └── switch ──┘
//!                     sww1 ║ swc1 ║ sww2 ║ swc2
//!                          box 1         box 2        each with a linkd
//!                             └─ linkd-group ─ linkd
//! ```

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use smoke::binaries::program;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::pb;
use smoke::process::Process;
use smoke::suite::reported;
use smoke::testbed::{Middle, Options, SAT_INTERFACE, Testbed, WAN_INTERFACE, answers};
use smoke::wait;

use crate::bed::{MTU, READY};
use crate::target::{DEVICE, Place, SoftSwitch, Target};

/// Boxes of a group.
pub const BOXES: usize = 2;
/// Workers of each box.
pub const WORKERS: usize = 2;
/// Ports of the switch with hosts: `wan` and `client`.
const TO_HOSTS: [u16; 2] = [8, 9];
const GROUP: &str = "linkd-group";

/// A box of the group, as linkd reports it.
pub type Member = pb::EmulatorBox;

/// The result of a move.
pub type Moved = pb::MoveClientsResponse;

/// Hosts, a switch, the boxes and the group. Dropping it ends all.
#[derive(Debug)]
pub struct GroupBed {
    linkd: Option<Process>,
    group: Option<Process>,
    boxes: Vec<(Option<Process>, Option<Process>)>,
    switch: Option<SoftSwitch>,
    seed: u64,
    /// The hosts, and the namespace between them.
    pub hosts: Testbed,
}

/// Name of a box, by number.
#[must_use]
pub fn name(number: usize) -> String {
    format!("b{}", number + 1)
}

/// Ports of the switch to a box, and the interfaces at both ends: `wan` first.
fn wires(number: usize) -> [(u16, String, String); 2] {
    let of = |port: usize, side: &str| {
        let n = number + 1;
        (
            u16::try_from(2 * number + port).unwrap_or(u16::MAX),
            format!("sw{side}{n}"),
            format!("box{side}{n}"),
        )
    };
    [of(0, "w"), of(1, "c")]
}

impl GroupBed {
    /// Builds and starts it, and waits until linkd reports switch and boxes as ready.
    pub fn new(cpus: &Cpus, seed: u64) -> anyhow::Result<Self> {
        Self::with(cpus, Options { clients: 1, seed, ..Options::default() })
    }

    /// The same with other hosts.
    pub fn with(cpus: &Cpus, options: Options) -> anyhow::Result<Self> {
        let seed = options.seed;
        let options = Options { middle: Middle::Nothing, ..options };
        let hosts = Testbed::new(options, cpus)?;
        let emulator = hosts.emulator();
        for (_, near, far) in (0..BOXES).flat_map(wires) {
            emulator.run(&["ip", "link", "add", &near, "type", "veth", "peer", "name", &far])?;
            for end in [&near, &far] {
                let offloads = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
                emulator.run(&[&["ethtool", "-K", end][..], &offloads].concat())?;
                emulator.run(&["ip", "link", "set", end, "mtu", MTU, "up"])?;
            }
        }
        let boxes = (0..BOXES).map(|_| (None, None)).collect();
        let mut bed = Self { linkd: None, group: None, boxes, switch: None, seed, hosts };
        bed.start_switch()?;
        for number in 0..BOXES {
            bed.start_box(number)?;
        }
        bed.start_group().and_then(|()| bed.ready()).map_err(|e| reported(&e, bed.report()))?;
        Ok(bed)
    }

    fn place(&self) -> Place {
        Place::within(self.hosts.directory())
    }

    fn start_switch(&mut self) -> anyhow::Result<()> {
        let program = Target::find().map_err(|lack| anyhow!("{lack:?}"))?;
        let to_boxes = (0..BOXES).flat_map(wires).map(|(port, near, _)| (port, near));
        let to_hosts = TO_HOSTS.into_iter().zip([WAN_INTERFACE, SAT_INTERFACE].map(str::to_owned));
        let ports: Vec<_> = to_boxes.chain(to_hosts).collect();
        let log = self.hosts.directory().path("switch.log");
        self.switch =
            Some(SoftSwitch::start(&program, self.hosts.emulator(), &ports, log, &self.place())?);
        Ok(())
    }

    fn socket(&self, what: &str, number: usize) -> PathBuf {
        self.hosts.directory().path(&format!("{what}-{}.sock", number + 1))
    }

    /// Starts a box: its dataplane, and its linkd.
    pub fn start_box(&mut self, number: usize) -> anyhow::Result<()> {
        let [wan, client] = wires(number);
        let file = format!(
            "[switch]\ntarget = \"{}\"\naddress = \"{}\"\ndevice = {DEVICE}\nboxes = {BOXES}\n\
             box_wan = {}\nbox_client = {}\nwan = [{}]\nclient = [{}]\n",
            Target::name(),
            self.place().address(),
            wan.0,
            client.0,
            TO_HOSTS[0],
            TO_HOSTS[1]
        );
        let file = self.hosts.directory().write(&format!("box-{number}.toml"), &file)?;
        let socket = self.socket("dataplane", number);
        let mut command = self.hosts.dataplane_command(
            &format!("wan=net_af_packet,iface={}", wan.2),
            &format!("client=net_af_packet,iface={}", client.2),
            &["--memory", "4 GiB", "--idle", "adaptive", "--max-clients", "2000", "-o", "json"],
        )?;
        let cores = self.hosts.cpus().workers(WORKERS);
        command.arg("--box").arg(&file).arg("--socket").arg(&socket);
        command.args(["--seed", &self.seed.to_string(), "--core", &cores]);
        command.args(["--workers", &WORKERS.to_string()]);
        let mut dataplane = Process::spawn(command)?;
        answers(&mut dataplane, "linkd-dataplane", &socket)?;
        let linkd = self.start_linkd(&socket, &format!("box-{number}"), Some(number))?;
        self.boxes[number] = (Some(dataplane), Some(linkd));
        Ok(())
    }

    /// linkd of a dataplane, of a box or of the group.
    fn start_linkd(
        &self,
        dataplane: &std::path::Path,
        state: &str,
        member: Option<usize>,
    ) -> anyhow::Result<Process> {
        let socket = match member {
            Some(number) => self.socket("linkd", number),
            None => self.hosts.linkd_socket(),
        };
        let mut command = self.hosts.emulator().command(&[]);
        command.arg(&self.hosts.binaries()?.linkd);
        command.arg("--socket").arg(&socket).arg("--dataplane").arg(dataplane);
        command.arg("--state").arg(self.hosts.directory().path(&format!("state-{state}")));
        if member.is_some() {
            command.arg("--member");
        }
        let mut process = Process::spawn(command)?;
        answers(&mut process, "linkd", &socket)?;
        Ok(process)
    }

    fn start_group(&mut self) -> anyhow::Result<()> {
        let entry = |number| {
            let socket = self.socket("dataplane", number);
            format!(
                "[[box]]\nname = \"{}\"\ndataplane = \"unix:{}\"\n",
                name(number),
                socket.display()
            )
        };
        let file = (0..BOXES).map(entry).collect::<String>();
        let file = self.hosts.directory().write("group.toml", &file)?;
        let socket = self.hosts.directory().path("group.sock");
        let mut command = self.hosts.emulator().command(&[]);
        command.arg(program(GROUP).map_err(|lack| anyhow!("{lack:?}"))?);
        command.arg("--group").arg(&file).arg("--socket").arg(&socket);
        let mut group = Process::spawn(command)?;
        answers(&mut group, GROUP, &socket)?;
        self.group = Some(group);
        self.linkd = Some(self.start_linkd(&socket, "group", None)?);
        Ok(())
    }

    /// Kills the dataplane of a box, and its linkd.
    pub fn kill_box(&mut self, number: usize) -> anyhow::Result<()> {
        let (dataplane, linkd) = std::mem::take(&mut self.boxes[number]);
        dataplane.context("it does not run")?.kill()?;
        linkd.context("it does not run")?.kill()?;
        Ok(())
    }

    pub fn linkctl(&self) -> anyhow::Result<Linkctl> {
        Ok(self.hosts.linkctl()?)
    }

    /// linkctl of a box's own linkd.
    pub fn linkctl_of(&self, number: usize) -> anyhow::Result<Linkctl> {
        Ok(Linkctl::new(&self.hosts.binaries()?.linkctl, &self.socket("linkd", number)))
    }

    pub fn members(&self) -> anyhow::Result<Vec<Member>> {
        let listed: pb::ListBoxesResponse = self.linkctl()?.answer(&["group", "show"])?;
        Ok(listed.boxes)
    }

    /// Waits until the boxes satisfy a condition.
    pub fn until(&self, what: &str, is: impl Fn(&[Member]) -> bool) -> anyhow::Result<Vec<Member>> {
        let mut last = String::new();
        let waited = wait::until(what, READY, || match self.members() {
            Ok(members) if is(&members) => Ok(Some(members)),
            other => {
                last = format!("{other:?}");
                Ok(None)
            }
        });
        waited.with_context(|| format!("the last word was {last}"))
    }

    fn ready(&self) -> anyhow::Result<()> {
        self.until("all boxes are up", |members| members.iter().all(|it| it.up && it.current))?;
        wait::until("linkd has the switch ready", READY, || {
            let shown = self.hosts.linkctl()?.run(&["switch", "show"])?.stdout;
            Ok(shown.contains("\"phase\":\"SWITCH_PHASE_READY\"").then_some(()))
        })?;
        Ok(())
    }

    /// Moves clients, all those of a box or some, to another one or to any.
    pub fn moved(&self, arguments: &[&str]) -> anyhow::Result<Moved> {
        let arguments = [&["group", "move"], arguments].concat();
        Ok(self.linkctl()?.answer(&arguments)?)
    }

    /// Output of the programs, for the message of a failure.
    #[must_use]
    pub fn report(&self) -> String {
        let said = |name: &str, process: &Option<Process>| {
            let said = process.as_ref().map(|it| format!("{}{}", it.stderr(), it.stdout()));
            said.map_or_else(String::new, |said| format!("--- {name}:\n{said}"))
        };
        let boxes = self.boxes.iter().map(|(dataplane, linkd)| {
            said("linkd-dataplane", dataplane) + &said("linkd of a box", linkd)
        });
        let boxes: String = boxes.collect();
        let members = self.members();
        let (group, linkd) = (said(GROUP, &self.group), said("linkd", &self.linkd));
        let switch = self.switch.as_ref().map_or_else(String::new, SoftSwitch::said);
        format!("{members:?}\n{linkd}{group}{boxes}{switch}")
    }
}

/// Runs a test on a new bed. A failure includes the output of the programs.
pub fn on_group(
    cpus: &Cpus,
    seed: u64,
    test: impl FnOnce(&mut GroupBed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut bed = GroupBed::new(cpus, seed)?;
    test(&mut bed).map_err(|e| reported(&e, bed.report()))
}
