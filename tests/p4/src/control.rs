// SPDX-License-Identifier: Apache-2.0
//! A synchronous P4Runtime controller for the tests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use p4runtime::entry::Key;
use p4runtime::session::DigestConfig;
use p4runtime::{Change, Count, Entry, P4Info, Session, Stream, StreamEvent, Target};
use tokio::runtime::Runtime;

use crate::target::{self, DEVICE, Place};

/// Digest of unknown hosts.
pub const LEARN: &str = "learn_t";
/// Cookie of the pushed program.
const COOKIE: u64 = 0x7e57;

/// A session as primary. Use it on a thread in the namespace of the switch.
#[derive(Debug)]
pub struct Control {
    runtime: Runtime,
    session: Session,
    stream: Stream,
}

/// Frames of a client in a direction, by fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates(pub [Count; 8]);

macro_rules! fates {
    ($($(#[$doc:meta])* $name:ident = $index:literal;)*) => {
        impl Fates {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> u64 { self.0[$index].packets })*
        }
    };
}

fates! {
    /// Received from a host.
    received = 0;
    /// Received from the box.
    returned = 1;
    /// Sent to a host, or flooded to a side.
    delivered = 2;
    /// Lost by a draw.
    lost = 3;
    /// Dropped by a closed gate.
    gated = 4;
    /// CE was set.
    marked = 5;
    /// With a stamp of another epoch.
    stale = 6;
    /// With a loss index that is not configured.
    unknown_loss = 7;
}

impl Fates {
    /// Counts since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let of = |i: usize| {
            let (now, then) = (self.0[i], earlier.0[i]);
            Count { packets: now.packets - then.packets, bytes: now.bytes - then.bytes }
        };
        Self(std::array::from_fn(of))
    }

    /// Each frame from the box was delivered or dropped.
    #[must_use]
    pub fn add_up(&self) -> bool {
        self.returned() == self.delivered() + self.lost() + self.gated()
    }
}

/// Reason for dropping a frame that belongs to no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortDrop {
    /// The port is in no table.
    UnknownPort = 0,
    /// From the box without a shim, or with a shim of another version.
    NoShim = 1,
    /// From the box, for the other side.
    WrongDirection = 2,
    /// Shorter than an Ethernet header.
    Cut = 3,
    /// From a host, for a box without a port.
    NoBox = 4,
}

impl Control {
    /// Connects as primary with this election id.
    pub fn connect(election: u64) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let info = Arc::new(P4Info::decode(target::Target::compiled().1)?);
        let target = Target { address: Place::Tcp.address(), tls: None, device: DEVICE, election };
        let (session, stream) = runtime.block_on(async {
            let (session, mut stream) = Session::connect(&target, info).await?;
            match stream.next().await? {
                StreamEvent::Primary => Ok((session, stream)),
                other => anyhow::bail!("the switch answers {other:?} to controller {election}"),
            }
        })?;
        Ok(Self { runtime, session, stream })
    }

    /// Pushes the released program, which resets the switch.
    pub fn push(&self) -> anyhow::Result<()> {
        let (program, p4info) = target::Target::compiled();
        let pushed = self.session.push(program, p4info, COOKIE);
        self.runtime.block_on(pushed).context("push the program")
    }

    pub fn write(&self, changes: &[Change]) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.session.write(changes))?)
    }

    pub fn insert(&self, entries: &[Entry]) -> anyhow::Result<()> {
        self.write(&entries.iter().cloned().map(Change::Insert).collect::<Vec<_>>())
    }

    /// Modifies the actions of entries.
    pub fn modify(&self, entries: &[Entry]) -> anyhow::Result<()> {
        self.write(&entries.iter().cloned().map(Change::Modify).collect::<Vec<_>>())
    }

    pub fn delete(&self, entries: &[Entry]) -> anyhow::Result<()> {
        let key = |entry: &Entry| -> Key { entry.key.clone() };
        self.write(&entries.iter().map(|e| Change::Delete(key(e))).collect::<Vec<_>>())
    }

    pub fn group(&self, group: u32, ports: &[u16]) -> anyhow::Result<()> {
        let ports: BTreeSet<u32> = ports.iter().copied().map(u32::from).collect();
        self.write(&[Change::Group { exists: false, group, ports }])
    }

    /// All entries of a table.
    pub fn entries(&self, table: &str) -> anyhow::Result<Vec<Entry>> {
        Ok(self.runtime.block_on(self.session.entries(table))?)
    }

    /// Values of counter cells.
    pub fn counts(&self, counter: &str, indices: &[u64]) -> anyhow::Result<Vec<Count>> {
        Ok(self.runtime.block_on(self.session.counts(counter, indices))?)
    }

    /// Fates of a client's frames, by its cell.
    pub fn fates(&self, client: u16, direction: u8) -> anyhow::Result<Fates> {
        let first = (u64::from(client) << 1 | u64::from(direction)) << 3;
        let counts = self.counts("linkemu.fates", &Vec::from_iter(first..first + 8))?;
        let counts = counts.try_into().ok().context("not eight fates")?;
        Ok(Fates(counts))
    }

    /// Frames that were dropped at a port.
    pub fn port_drops(&self, port: u16, reason: PortDrop) -> anyhow::Result<u64> {
        let index = u64::from(port) << 3 | reason as u64;
        Ok(self.counts("linkemu.port_drops", &[index])?[0].packets)
    }

    /// Transit times of a client's frames, by bin.
    pub fn transit(&self, client: u16, direction: u8) -> anyhow::Result<Vec<u64>> {
        self.bins("linkemu.transit", (u64::from(client) << 1 | u64::from(direction)) << 5)
    }

    /// Lateness of frames, by bin.
    pub fn lateness(&self, direction: u8) -> anyhow::Result<Vec<u64>> {
        self.bins("linkemu.lateness", u64::from(direction) << 5)
    }

    fn bins(&self, counter: &str, first: u64) -> anyhow::Result<Vec<u64>> {
        let counts = self.counts(counter, &Vec::from_iter(first..first + 32))?;
        Ok(counts.iter().map(|c| c.packets).collect())
    }

    /// Enables the report of unknown hosts.
    pub fn learn(&self) -> anyhow::Result<()> {
        let config = DigestConfig { wait: Duration::ZERO, list: 1, repeat: Duration::from_secs(1) };
        self.write(&[Change::Digest { exists: false, digest: LEARN.to_owned(), config }])
    }

    /// The next reported unknown hosts: port, MAC, direction.
    pub fn learned(&mut self) -> anyhow::Result<Vec<Vec<u128>>> {
        let Self { runtime, stream, .. } = self;
        runtime.block_on(async {
            loop {
                let news = tokio::time::timeout(Duration::from_secs(2), stream.next());
                match news.await.context("the switch reports no host within 2 s")?? {
                    StreamEvent::Digests { digest, list, rows } => {
                        ensure!(!rows.is_empty(), "a list without hosts");
                        stream.acknowledge(digest, list);
                        return Ok(rows);
                    }
                    StreamEvent::Complaint(words) => {
                        anyhow::bail!("the switch reports an error: {words}")
                    }
                    StreamEvent::Primary | StreamEvent::Backup { .. } => (),
                }
            }
        })
    }
}
