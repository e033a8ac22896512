// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime server in this process, for tests: a switch without ports.
//!
//! It can restart, hang, refuse, and give invalid answers. It serves until it is dropped.

use crate::connection::Listener;
use crate::device::{Device, Wrong};
use crate::encrypted::Keys;
use crate::service::Server;
use crate::target::Target;
use p4runtime::entry::Key;
use p4runtime::{Change, Count, Entry, P4Info, Stalls};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::MutexGuard;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tonic::Status;

/// A target without ports: tests set its counters.
#[derive(Debug, Default)]
struct Memory {
    counters: HashMap<(String, u64), Count>,
    direct: HashMap<Key, Count>,
    stalls: Stalls,
    log: Vec<String>,
}

impl Target for Memory {
    fn load(&mut self, _: &[u8], _: &P4Info) -> Result<(), Status> {
        self.counters.clear();
        self.stalls = Stalls::default();
        self.log.push("push".into());
        Ok(())
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), Status> {
        for change in changes {
            self.log.push(change.to_string());
            if let Change::Count { counter, index, count } = change {
                self.counters.insert((counter.clone(), *index), *count);
            }
        }
        Ok(())
    }

    fn counts(&mut self, counter: &str, cells: Range<u64>) -> Result<Vec<Count>, Status> {
        let of = |cell| self.counters.get(&(counter.to_owned(), cell)).copied().unwrap_or_default();
        Ok(cells.map(of).collect())
    }

    fn direct_count(&mut self, key: &Key) -> Result<Count, Status> {
        Ok(self.direct.get(key).copied().unwrap_or_default())
    }

    fn stalls(&mut self) -> Result<Stalls, Status> {
        Ok(self.stalls.clone())
    }
}

#[derive(Debug)]
pub struct Fake {
    server: Server<Memory>,
    address: String,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.restart();
        self.task.abort();
    }
}

impl Fake {
    /// Starts a switch with this device id at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(number: u64) -> io::Result<Self> {
        Self::start_with(number, None).await
    }

    /// As [`Fake::start`], with TLS if there are keys.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start_with(number: u64, keys: Option<Keys>) -> io::Result<Self> {
        let scheme = if keys.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = format!("{scheme}://{}", listener.local_addr()?);
        Ok(Self::serving(number, address, Listener::Tcp(listener, keys)))
    }

    /// As [`Fake::start`], at a unix socket.
    ///
    /// # Errors
    /// If the path is not free.
    pub fn start_at(number: u64, path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        Ok(Self::serving(number, format!("unix:{}", path.display()), Listener::Unix(listener)))
    }

    fn serving(number: u64, address: String, listener: Listener) -> Self {
        let server = Server::new(Device::new(number, Memory::default()));
        let serving = server.clone().serve(listener);
        let task = tokio::spawn(async {
            if let Err(error) = serving.await {
                tracing::error!("the tests' switch ends: {error}");
            }
        });
        Self { server, address, task }
    }

    fn device(&self) -> MutexGuard<'_, Device<Memory>> {
        self.server.device()
    }

    /// As in the box file.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Ends all sessions and clears all state.
    pub fn restart(&self) {
        self.device().restart(Memory::default());
    }

    /// Makes the switch unreachable: calls fail and sessions end.
    pub fn down(&self, down: bool) {
        self.device().down(down);
    }

    /// Makes calls hang until `hang` is false again.
    pub fn hang(&self, hang: bool) {
        self.device().faults.hangs = hang;
    }

    /// Makes reads hang until `hang` is false again.
    pub fn hang_reads(&self, hang: bool) {
        self.device().faults.reads_hang = hang;
    }

    /// Rejects changes of this table; `None`: of no table.
    pub fn refuse(&self, table: Option<&str>) {
        self.device().faults.refuses = table.map(Into::into);
    }

    /// Returns the entries of this table otherwise than they were written.
    pub fn alter(&self, table: &str) {
        self.device().faults.alters = Some(table.into());
    }

    /// Refuses writes of the primary without reporting another primary.
    pub fn deny(&self, deny: bool) {
        self.device().faults.denies = deny;
    }

    /// Returns entries without the controller's metadata.
    pub fn drop_metadata(&self, drop: bool) {
        self.device().faults.drops_metadata = drop;
    }

    /// Gives invalid answers to reads.
    pub fn answer(&self, wrong: Option<Wrong>) {
        self.device().faults.answers = wrong;
    }

    /// All changes in order, one per line: `insert linkemu.ports[…] -> …`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.device().target.log.clone()
    }

    pub fn clear_log(&self) {
        self.device().target.log.clear();
    }

    #[must_use]
    pub fn entries(&self, table: &str) -> Vec<Entry> {
        let device = self.device();
        let of = |entry: &&Entry| entry.key.table == table;
        device.entries.values().filter(of).cloned().collect()
    }

    #[must_use]
    pub fn groups(&self) -> BTreeMap<u32, BTreeSet<u32>> {
        self.device().groups.clone()
    }

    /// Removes an entry without a controller.
    pub fn remove(&self, entry: &Entry) {
        self.device().entries.remove(&entry.key);
    }

    pub fn count(&self, counter: &str, index: u64, count: Count) {
        let mut device = self.device();
        let cell = device.target.counters.entry((counter.into(), index)).or_default();
        cell.packets += count.packets;
        cell.bytes += count.bytes;
    }

    /// Adds to the direct counter of an entry.
    pub fn count_direct(&self, key: &Key, count: Count) {
        let mut device = self.device();
        let cell = device.target.direct.entry(key.clone()).or_default();
        *cell = cell.plus(count);
    }

    /// The switch stood still for so many ns.
    pub fn stall(&self, ns: u64) {
        self.device().target.stalls.add(ns);
    }

    #[must_use]
    pub fn counted(&self, counter: &str, index: u64) -> Count {
        let device = self.device();
        device.target.counters.get(&(counter.into(), index)).copied().unwrap_or_default()
    }

    /// Sends a digest to the primary. Returns false if there is no primary.
    pub fn digest(&self, row: &[u128]) -> bool {
        self.device().digest(row)
    }

    /// Number of acknowledged digest lists.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.device().acknowledged
    }

    /// Number of controllers with a session.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.device().controllers()
    }

    /// Number of programs loaded since the start.
    #[must_use]
    pub fn pushes(&self) -> u64 {
        self.device().pushes
    }
}
