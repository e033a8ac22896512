// SPDX-License-Identifier: Apache-2.0
//! A controller of the switch for the tests: each call waits for its answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use p4runtime::entry::Key;
use p4runtime::session::DigestConfig;
use p4runtime::{Change, Count, Entry, P4Info, Session, Stream, StreamEvent, Target};
use tokio::runtime::Runtime;

use crate::bmv2::{DEVICE, SERVES};

/// The digest of hosts that are not known.
pub const LEARN: &str = "learn_t";
/// Of the program, as the tests push it.
const COOKIE: u64 = 0x7e57;

/// A session as primary. To be used on a thread that is in the switch's namespace.
#[derive(Debug)]
pub struct Control {
    runtime: Runtime,
    session: Session,
    stream: Stream,
}

/// The switch's P4Runtime address.
#[must_use]
pub fn address() -> String {
    format!("http://{SERVES}")
}

/// Frames of a client in a direction, by what became of them.
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
    /// From a host.
    received = 0;
    /// From the box.
    returned = 1;
    /// To a host, or to all of a side.
    delivered = 2;
    /// Drawn.
    lost = 3;
    /// By a gate.
    gated = 4;
    /// CE was set.
    marked = 5;
    /// Of another epoch.
    stale = 6;
    /// By a loss that is not there.
    unknown_loss = 7;
}

impl Fates {
    /// What came between an earlier look and this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let of = |i: usize| {
            let (now, then) = (self.0[i], earlier.0[i]);
            Count { packets: now.packets - then.packets, bytes: now.bytes - then.bytes }
        };
        Self(std::array::from_fn(of))
    }

    /// Each frame that the box gave back was delivered or dropped.
    #[must_use]
    pub fn add_up(&self) -> bool {
        self.returned() == self.delivered() + self.lost() + self.gated()
    }
}

/// Why a frame was dropped that is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortDrop {
    /// The port is in no table.
    UnknownPort = 0,
    /// From the box without a shim, or with one of another version.
    NoShim = 1,
    /// From the box for the other side.
    WrongDirection = 2,
    /// No whole Ethernet header.
    Cut = 3,
}

impl Control {
    /// Connects as primary with this number in the election.
    ///
    /// # Errors
    /// If the switch does not answer, or another is primary.
    pub fn connect(election: u64) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let info = Arc::new(P4Info::decode(p4src::BMV2_P4INFO)?);
        let target = Target { address: address(), device: DEVICE, election };
        let (session, stream) = runtime.block_on(async {
            let (session, mut stream) = Session::connect(&target, info).await?;
            match stream.next().await? {
                StreamEvent::Primary => Ok((session, stream)),
                other => anyhow::bail!("the switch answers {other:?} to controller {election}"),
            }
        })?;
        Ok(Self { runtime, session, stream })
    }

    /// Gives the switch the program of the release; its state is gone.
    ///
    /// # Errors
    /// If the switch refuses it.
    pub fn push(&self) -> anyhow::Result<()> {
        let pushed = self.session.push(p4src::BMV2_JSON, p4src::BMV2_P4INFO, COOKIE);
        self.runtime.block_on(pushed).context("push the program")
    }

    /// Makes changes.
    ///
    /// # Errors
    /// If the switch refuses one.
    pub fn write(&self, changes: &[Change]) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.session.write(changes))?)
    }

    /// Makes entries.
    ///
    /// # Errors
    /// If the switch refuses one.
    pub fn insert(&self, entries: &[Entry]) -> anyhow::Result<()> {
        self.write(&entries.iter().cloned().map(Change::Insert).collect::<Vec<_>>())
    }

    /// Changes what entries do.
    ///
    /// # Errors
    /// If the switch refuses one.
    pub fn modify(&self, entries: &[Entry]) -> anyhow::Result<()> {
        self.write(&entries.iter().cloned().map(Change::Modify).collect::<Vec<_>>())
    }

    /// Removes entries.
    ///
    /// # Errors
    /// If the switch refuses one.
    pub fn delete(&self, entries: &[Entry]) -> anyhow::Result<()> {
        let key = |entry: &Entry| -> Key { entry.key.clone() };
        self.write(&entries.iter().map(|e| Change::Delete(key(e))).collect::<Vec<_>>())
    }

    /// Makes a multicast group.
    ///
    /// # Errors
    /// If the switch refuses it.
    pub fn group(&self, group: u32, ports: &[u16]) -> anyhow::Result<()> {
        let ports: BTreeSet<u32> = ports.iter().copied().map(u32::from).collect();
        self.write(&[Change::Group { exists: false, group, ports }])
    }

    /// All entries of a table.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub fn entries(&self, table: &str) -> anyhow::Result<Vec<Entry>> {
        Ok(self.runtime.block_on(self.session.entries(table))?)
    }

    /// Cells of a counter.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub fn counts(&self, counter: &str, indices: &[u64]) -> anyhow::Result<Vec<Count>> {
        Ok(self.runtime.block_on(self.session.counts(counter, indices))?)
    }

    /// What became of a client's frames.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub fn fates(&self, client: u16, direction: u8) -> anyhow::Result<Fates> {
        let first = (u64::from(client) << 1 | u64::from(direction)) << 3;
        let counts = self.counts("linkemu.fates", &Vec::from_iter(first..first + 8))?;
        let counts = counts.try_into().ok().context("not eight fates")?;
        Ok(Fates(counts))
    }

    /// Frames that were dropped at a port.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub fn port_drops(&self, port: u16, reason: PortDrop) -> anyhow::Result<u64> {
        let index = u64::from(port) << 2 | reason as u64;
        Ok(self.counts("linkemu.port_drops", &[index])?[0].packets)
    }

    /// How long a client's frames were away, by bin.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub fn transit(&self, client: u16, direction: u8) -> anyhow::Result<Vec<u64>> {
        self.bins("linkemu.transit", (u64::from(client) << 1 | u64::from(direction)) << 5)
    }

    /// How late frames were, by bin.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub fn lateness(&self, direction: u8) -> anyhow::Result<Vec<u64>> {
        self.bins("linkemu.lateness", u64::from(direction) << 5)
    }

    fn bins(&self, counter: &str, first: u64) -> anyhow::Result<Vec<u64>> {
        let counts = self.counts(counter, &Vec::from_iter(first..first + 32))?;
        Ok(counts.iter().map(|c| c.packets).collect())
    }

    /// Has the switch tell of hosts that it does not know.
    ///
    /// # Errors
    /// If the switch refuses it.
    pub fn learn(&self) -> anyhow::Result<()> {
        let config = DigestConfig { wait: Duration::ZERO, list: 1, repeat: Duration::from_secs(1) };
        self.write(&[Change::Digest { exists: false, digest: LEARN.to_owned(), config }])
    }

    /// The next hosts that the switch tells of: port, MAC, direction.
    ///
    /// # Errors
    /// If it tells of none within two seconds.
    pub fn learned(&mut self) -> anyhow::Result<Vec<Vec<u128>>> {
        let Self { runtime, stream, .. } = self;
        runtime.block_on(async {
            loop {
                let news = tokio::time::timeout(Duration::from_secs(2), stream.next());
                match news.await.context("the switch tells of no host within 2 s")?? {
                    StreamEvent::Digests { digest, list, rows } => {
                        ensure!(!rows.is_empty(), "a list without hosts");
                        stream.acknowledge(digest, list);
                        return Ok(rows);
                    }
                    StreamEvent::Complaint(words) => anyhow::bail!("the switch complains: {words}"),
                    StreamEvent::Primary | StreamEvent::Backup { .. } => (),
                }
            }
        })
    }
}
