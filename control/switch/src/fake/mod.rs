// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime server in this process, for tests: a switch without ports.
//!
//! It elects a primary, keeps a program, tables, counters and multicast groups like PI (the
//! P4Runtime server of bmv2), and sends digests. It can restart, hang, refuse, and give invalid
//! answers. It serves until it is dropped.

mod device;
mod service;

pub use device::Wrong;

use device::Device;
use p4runtime::proto::p4::v1::p4_runtime_server::P4RuntimeServer;
use p4runtime::{Count, Entry};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

#[derive(Debug)]
pub struct Fake {
    device: Arc<Mutex<Device>>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.device().restart();
        self.server.abort();
    }
}

impl Fake {
    /// Starts a switch with this device id at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(number: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let device = Arc::new(Mutex::new(Device::new(number)));
        let service = service::Service::new(Arc::clone(&device));
        let server = tonic::transport::Server::builder()
            .add_service(P4RuntimeServer::new(service).max_decoding_message_size(64 << 20))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async {
            if let Err(error) = server.await {
                tracing::error!("the tests' switch ends: {error}");
            }
        });
        Ok(Self { device, address, server })
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For [`crate::Config::address`].
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends all sessions and clears all state.
    pub fn restart(&self) {
        self.device().restart();
    }

    /// Makes the switch unreachable: calls fail and sessions end.
    pub fn down(&self, down: bool) {
        self.device().down(down);
    }

    /// Makes calls hang until `hang` is false again.
    pub fn hang(&self, hang: bool) {
        self.device().hang = hang;
    }

    /// Rejects changes of this table; `None`: of no table.
    pub fn refuse(&self, table: Option<&str>) {
        self.device().refuse = table.map(Into::into);
    }

    /// Refuses writes of the primary without reporting another primary.
    pub fn deny(&self, deny: bool) {
        self.device().deny = deny;
    }

    /// Gives invalid answers to reads.
    pub fn answer(&self, wrong: Option<Wrong>) {
        self.device().wrong = wrong;
    }

    /// All changes in order, one per line: `insert linkemu.ports[…] -> …`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.device().log.clone()
    }

    pub fn clear_log(&self) {
        self.device().log.clear();
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
        self.device().count(counter, index, count);
    }

    #[must_use]
    pub fn counted(&self, counter: &str, index: u64) -> Count {
        let device = self.device();
        device.counters.get(&(counter.into(), index)).copied().unwrap_or_default()
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
