// SPDX-License-Identifier: Apache-2.0
//! A switch between wires with their other ends in the test.
//!
//! ```text
//!   wan host a ── 1 ┐             ┌ 3 ── client host a
//!   wan host b ── 2 ┤   switch    ├ 4 ── client host b
//!    box, wan ─── 5 ┤             ├ 6 ── box, client
//!                   ├ 8, 9: a second box, if there is one
//!                   └ 7: in no table
//! ```
//!
//! All of it is in one namespace without other senders. The output for an input is known without
//! a wait for a time: after the frames, [`sentinels`](Bench::exchange) enter at each port and leave at
//! each. A switch processes the frames of a port in order, and keeps the order towards a port. So
//! after a first round of sentinels all frames are in the output queues, and after a second round
//! they have left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4runtime::Entry;
use smoke::directory::Directory;
use smoke::namespace::Namespace;
use smoke::raw::Mac;
use smoke::wire::Wire;

use crate::control::{Control, Fates};
use crate::frame::Frame;
use crate::shim::{FORWARD, LENGTH, OUTER, RETURN, Shim};
use crate::target::{Place, SoftSwitch, Target};

/// Ports of hosts on the servers' side.
pub const WAN_A: u16 = 1;
pub const WAN_B: u16 = 2;
/// Ports of hosts on the clients' side.
pub const CLIENT_A: u16 = 3;
pub const CLIENT_B: u16 = 4;
/// Port of the box that faces the servers.
pub const BOX_WAN: u16 = 5;
/// Port of the box that faces the clients.
pub const BOX_CLIENT: u16 = 6;
/// A port that is in no table of the switch.
pub const STRANGER: u16 = 7;
/// Ports of the second box.
pub const SECOND_WAN: u16 = 8;
pub const SECOND_CLIENT: u16 = 9;
/// Cells for clients, shared by all boxes.
pub const CELLS: u16 = 4096;
/// Epoch of client numbers and timestamps.
pub const EPOCH: u16 = 0x2a5b;

/// Election id of the test's controller.
const ELECTION: u64 = 1;
/// Source and destination of sentinels of the first box, which belong to a separate client.
const SENTINEL: Mac = [2, 0, 0, 0, 9, 9];
/// Those of the second one's.
const SECOND: Mac = [2, 0, 0, 0, 9, 10];
/// Client of the sentinels in their box.
pub const SENTINEL_CLIENT: u16 = 2000;
const LIMIT: Duration = Duration::from_secs(10);
/// MTU for full frames behind a shim.
pub const MTU: usize = 1600;
/// The queue of bmv2 towards a port holds 64 frames, and drops without a report.
const WINDOW: usize = 32;

/// Ports of one direction: of the hosts that send, towards the box, from the box, and of the hosts
/// that receive.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// [`FORWARD`] or [`RETURN`].
    pub direction: u8,
    /// Ports at which frames of hosts enter.
    pub hosts: [u16; 2],
    /// Port at which they leave with a shim.
    pub to_box: u16,
    /// Port at which the box returns them.
    pub from_box: u16,
    pub out: [u16; 2],
    /// Number of the box, and its cells.
    pub owner: u8,
    pub room: u16,
}

pub const FORWARDS: Way = Way {
    direction: FORWARD,
    hosts: [WAN_A, WAN_B],
    to_box: BOX_WAN,
    from_box: BOX_CLIENT,
    out: [CLIENT_A, CLIENT_B],
    owner: 0,
    room: CELLS,
};
pub const RETURNS: Way = Way {
    direction: RETURN,
    hosts: [CLIENT_A, CLIENT_B],
    to_box: BOX_CLIENT,
    from_box: BOX_WAN,
    out: [WAN_A, WAN_B],
    owner: 0,
    room: CELLS,
};
pub const WAYS: [Way; 2] = [FORWARDS, RETURNS];

impl Way {
    /// This direction through the first or second of two boxes.
    #[must_use]
    pub fn of_two(self, owner: u8) -> Self {
        let second = |port| match port {
            BOX_WAN => SECOND_WAN,
            _ => SECOND_CLIENT,
        };
        let (to_box, from_box) = match owner {
            0 => (self.to_box, self.from_box),
            _ => (second(self.to_box), second(self.from_box)),
        };
        Self { to_box, from_box, owner, room: CELLS / 2, ..self }
    }

    /// The cell of a client of the box.
    #[must_use]
    pub fn cell(&self, client: u16) -> u16 {
        u16::from(self.owner) * self.room + client
    }

    /// Turns a forward frame into one of this direction.
    #[must_use]
    pub fn turn(&self, frame: Frame) -> Frame {
        if self.direction == FORWARD { frame } else { frame.back() }
    }

    /// The shim of a frame that the box returns.
    #[must_use]
    pub fn shim(&self, client: u16) -> Shim {
        Shim::new(self.direction, client, EPOCH)
    }

    /// The shim before a sentinel: of no epoch, so it is not measured.
    fn sentinel(&self) -> Shim {
        Shim::new(self.direction, SENTINEL_CLIENT, 0)
    }
}

/// Frames that left the switch, in order for each port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Out(BTreeMap<u16, Vec<Vec<u8>>>);

impl Out {
    #[must_use]
    pub fn at(&self, port: u16) -> &[Vec<u8>] {
        self.0.get(&port).map(Vec::as_slice).unwrap_or_default()
    }

    /// Fails unless exactly these frames left, each at its port.
    pub fn is(&self, expected: &[(u16, &[u8])]) -> anyhow::Result<()> {
        let mut all = Self::default();
        for (port, frame) in expected {
            all.0.entry(*port).or_default().push(frame.to_vec());
        }
        ensure!(*self == all, "{self:x?} came out, and not {all:x?}");
        Ok(())
    }

    /// The only frame that left, at this port.
    pub fn only(&self, port: u16) -> anyhow::Result<&[u8]> {
        let count: usize = self.0.values().map(Vec::len).sum();
        ensure!(count == 1, "{self:x?} came out, and not one frame at port {port}");
        self.at(port).first().map(Vec::as_slice).ok_or_else(|| anyhow!("{self:x?} came out"))
    }
}

/// A switch with the released program, configured ports, and otherwise empty tables. Use it on a
/// thread in its namespace.
#[derive(Debug)]
pub struct Bench {
    pub control: Control,
    wires: BTreeMap<u16, Wire>,
    switch: SoftSwitch,
    round: u32,
    boxes: u8,
    _directory: Directory,
}

/// Runs a test on a new bench. A failure includes the output of the switch.
pub fn on_bench(
    test: impl FnOnce(&mut Bench) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    on_bench_with(1, test)
}

/// As [`on_bench`], with one box or two.
pub fn on_bench_with(
    boxes: u8,
    test: impl FnOnce(&mut Bench) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    in_namespace(move |namespace| {
        let mut bench = Bench::new(namespace, boxes)?;
        test(&mut bench).map_err(|e| {
            let ended = if bench.switch.runs() { "" } else { "\nTHE SWITCH HAS ENDED" };
            anyhow!("{e:#}{ended}\n{}", bench.switch.said())
        })
    })
}

/// Runs a function on a thread in a new namespace.
pub fn in_namespace<T: Send + 'static>(
    work: impl FnOnce(&Arc<Namespace>) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let namespace = Arc::new(Namespace::new("switch")?);
    let inside = Arc::clone(&namespace);
    namespace.enter(move || Ok(work(&inside)))?
}

impl Bench {
    fn new(namespace: &Namespace, boxes: u8) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        let ports = WAN_A..=if boxes > 1 { SECOND_CLIENT } else { STRANGER };
        for port in ports.clone() {
            pair(namespace, port)?;
        }
        let interfaces: Vec<_> = ports.clone().map(|port| (port, format!("sw{port}"))).collect();
        let program = Target::find().map_err(|lack| anyhow!("{lack:?}"))?;
        let log = directory.path("switch.log");
        let switch = SoftSwitch::start(&program, namespace, &interfaces, log, &Place::Tcp)?;
        let wires = ports.map(|port| Ok((port, Wire::open(namespace, &format!("t{port}"))?)));
        let wires = wires.collect::<anyhow::Result<_>>()?;
        let control = Control::connect(ELECTION)?;
        control.push()?;
        let bench = Self { control, wires, switch, round: 0, boxes, _directory: directory };
        bench.base()?;
        Ok(bench)
    }

    /// Configures the side of each port, the flooding of unknown hosts, and the client of
    /// sentinels.
    fn base(&self) -> anyhow::Result<()> {
        self.control.group(1, &[CLIENT_A, CLIENT_B])?;
        self.control.group(2, &[WAN_A, WAN_B])?;
        let mut entries = Vec::new();
        for way in self.ways() {
            let mac = if way.owner == 0 { SENTINEL } else { SECOND };
            entries.push(
                Entry::new("linkemu.macs")
                    .exact("direction", way.direction)
                    .exact("mac", number(mac))
                    .does("linkemu.set_client")
                    .with("client", SENTINEL_CLIENT)
                    .with("box", way.owner),
            );
            entries.extend(way.hosts.map(|port| source(port, mac)));
            if way.owner == 0 {
                entries.extend(way.hosts.map(|port| from_host(port, way, EPOCH)));
            }
            entries.extend([to_box(way), from_box(way, EPOCH)]);
        }
        self.control.insert(&entries)
    }

    /// Both directions through each box.
    #[must_use]
    pub fn ways(&self) -> Vec<Way> {
        match self.boxes {
            1 => WAYS.to_vec(),
            boxes => (0..boxes).flat_map(|owner| WAYS.map(|way| way.of_two(owner))).collect(),
        }
    }

    /// Sends frames into ports and takes all that leave.
    pub fn exchange(&mut self, frames: &[(u16, &[u8])]) -> anyhow::Result<Out> {
        for (port, frame) in frames {
            self.wire(*port)?.send(frame)?;
        }
        let mut out = Out::default();
        self.sentinels(&mut out)?;
        self.sentinels(&mut out)?;
        Ok(out)
    }

    /// Sends a frame of a host into a port. It leaves unchanged at the box, behind the returned
    /// shim.
    pub fn wrapped(&mut self, way: Way, port: u16, frame: &[u8]) -> anyhow::Result<Shim> {
        let out = self.exchange(&[(port, frame)])?;
        let wrapped = out.only(way.to_box)?;
        let (shim, inner) =
            Shim::unwrap(wrapped).with_context(|| format!("no shim before {wrapped:02x?}"))?;
        ensure!(inner == frame, "{frame:02x?} was changed to {inner:02x?}");
        Ok(shim)
    }

    /// Sends a frame into a port, and takes none.
    pub fn send(&self, port: u16, frame: &[u8]) -> anyhow::Result<()> {
        Ok(self.wire(port)?.send(frame)?)
    }

    /// Drops all frames that leave, until there are none.
    pub fn drain(&self) -> anyhow::Result<()> {
        let mut more = true;
        while std::mem::take(&mut more) {
            std::thread::sleep(Duration::from_millis(200));
            for wire in self.wires.values() {
                while wire.receive()?.is_some() {
                    more = true;
                }
            }
        }
        Ok(())
    }

    /// Processor time of the switch since its start.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        self.switch.processor_time()
    }

    /// The client to which the switch assigns a frame.
    pub fn client_of(&mut self, way: Way, frame: &Frame) -> anyhow::Result<u16> {
        Ok(self.wrapped(way, way.hosts[0], &frame.bytes())?.client)
    }

    /// Returns a frame as the box does, and takes all that leave.
    pub fn unwrapped(&mut self, way: Way, shim: Shim, inner: &[u8]) -> anyhow::Result<Out> {
        self.exchange(&[(way.from_box, &shim.wrap(inner))])
    }

    /// Sends many frames into a port, at most as many as the switch holds at a time, and takes
    /// those that leave at another port.
    pub fn stream(
        &mut self,
        way: Way,
        frames: impl Iterator<Item = Vec<u8>>,
        mut came: impl FnMut(Vec<u8>),
    ) -> anyhow::Result<()> {
        let mut frames = frames.peekable();
        let [to, _] = way.out;
        while frames.peek().is_some() {
            for frame in frames.by_ref().take(WINDOW) {
                self.wire(way.from_box)?.send(&frame)?;
            }
            self.round += 1;
            let sentinel = sentinel(self.round, way.owner);
            self.wire(way.from_box)?.send(&way.sentinel().wrap(&sentinel))?;
            let deadline = Instant::now() + LIMIT;
            let wire = self.wire(to)?;
            loop {
                match wire.receive()? {
                    Some(frame) if frame == sentinel => break,
                    Some(frame) => came(frame),
                    None => {
                        let ready = Wire::wait(&[wire], deadline)?;
                        ensure!(ready || Instant::now() < deadline, "no sentinel at port {to}");
                    }
                }
            }
        }
        Ok(())
    }

    /// Fates of a client's frames during `work`.
    pub fn fates<T>(
        &mut self,
        way: Way,
        client: u16,
        work: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Fates)> {
        let cell = way.cell(client);
        let before = self.control.fates(cell, way.direction)?;
        let done = work(self)?;
        let fates = self.control.fates(cell, way.direction)?.since(&before);
        ensure!(fates.add_up(), "RETURNED is not DELIVERED + DROP_LOSS + DROP_OUTAGE: {fates:?}");
        Ok((done, fates))
    }

    fn wire(&self, port: u16) -> anyhow::Result<&Wire> {
        self.wires.get(&port).with_context(|| format!("there is no port {port}"))
    }

    /// A round of sentinels. Returns the frames that left before them.
    fn sentinels(&mut self, out: &mut Out) -> anyhow::Result<()> {
        self.round += 1;
        let sentinels = Vec::from_iter((0..self.boxes).map(|owner| sentinel(self.round, owner)));
        let mut missing = BTreeSet::new();
        for way in self.ways() {
            let sentinel = &sentinels[usize::from(way.owner)];
            for port in way.hosts {
                self.wire(port)?.send(sentinel)?;
            }
            self.wire(way.from_box)?.send(&way.sentinel().wrap(sentinel))?;
            missing.extend(way.out.map(|port| (port, way.owner, 0)));
            missing.extend([(way.to_box, way.owner, 0), (way.to_box, way.owner, 1)]);
        }
        let deadline = Instant::now() + LIMIT;
        while !missing.is_empty() {
            for (port, wire) in &self.wires {
                while let Some(frame) = wire.receive()? {
                    let behind = if frame.starts_with(&OUTER) { LENGTH } else { 0 };
                    let is = |sentinel: &Vec<u8>| frame.get(behind..) == Some(&sentinel[..]);
                    if let Some(owner) = sentinels.iter().position(is) {
                        let is =
                            |(at, of, _): &(u16, u8, _)| at == port && usize::from(*of) == owner;
                        let copy = missing.iter().copied().find(is);
                        let copy = copy.with_context(|| format!("a sentinel at port {port}"))?;
                        missing.remove(&copy);
                    } else {
                        out.0.entry(*port).or_default().push(frame);
                    }
                }
            }
            if !missing.is_empty() {
                let wires: Vec<&Wire> = self.wires.values().collect();
                let ready = Wire::wait(&wires, deadline)?;
                let ports = missing.iter().map(|m| m.0);
                ensure!(
                    ready || Instant::now() < deadline,
                    "sentinels did not come out at ports {:?}, others: {out:x?}",
                    Vec::from_iter(ports)
                );
            }
        }
        Ok(())
    }
}

fn sentinel(round: u32, owner: u8) -> Vec<u8> {
    let mac = if owner == 0 { SENTINEL } else { SECOND };
    Frame::v4(Ipv4Addr::from(round), Ipv4Addr::UNSPECIFIED).between(mac, mac).bytes()
}

/// A MAC in the form of a table key.
#[must_use]
pub fn number(mac: Mac) -> u64 {
    mac.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// A port to hosts. The box of the direction is the default owner.
#[must_use]
pub fn from_host(port: u16, way: Way, epoch: u16) -> Entry {
    Entry::new("linkemu.ports")
        .exact("port", port)
        .does("linkemu.from_host")
        .with("direction", way.direction)
        .with("box", way.owner)
        .with("epoch", epoch)
        .with("mirrors", 0_u8)
}

/// Port at which frames of a direction enter the box.
#[must_use]
pub fn to_box(way: Way) -> Entry {
    let entry = Entry::new("linkemu.boxes").exact("box", way.owner);
    let entry = entry.exact("direction", way.direction).does("linkemu.to_box");
    celled(entry.with("port", way.to_box), way)
}

/// Adds the cells of the box.
fn celled(entry: Entry, way: Way) -> Entry {
    entry.with("base", way.cell(0)).with("over", !(way.room - 1))
}

/// Port at which the box returns the frames of a direction.
#[must_use]
pub fn from_box(way: Way, epoch: u16) -> Entry {
    let entry = Entry::new("linkemu.ports").exact("port", way.from_box).does("linkemu.from_box");
    let entry = entry.with("direction", way.direction).with("epoch", epoch);
    celled(entry.with("box", way.owner).with("mirrors", 0_u8), way)
}

/// Entry for a known host at a port.
#[must_use]
pub fn source(port: u16, mac: Mac) -> Entry {
    let entry = Entry::new("linkemu.sources").exact("port", port);
    entry.exact("mac", number(mac)).does("linkemu.known")
}

/// A wire with both ends in the switch's namespace: `swN` is the switch's, `tN` is the test's.
pub fn pair(namespace: &Namespace, port: u16) -> anyhow::Result<()> {
    let [switch, test] = [format!("sw{port}"), format!("t{port}")];
    namespace.run(&["ip", "link", "add", &switch, "type", "veth", "peer", "name", &test])?;
    for end in [&switch, &test] {
        let offloads = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        namespace.run(&[&["ethtool", "-K", end][..], &offloads].concat())?;
        namespace.run(&["ip", "link", "set", end, "mtu", &MTU.to_string(), "up"])?;
    }
    Ok(())
}
