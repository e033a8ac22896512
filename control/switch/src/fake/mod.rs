// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime server in this process, for tests: a switch without ports.
//!
//! It elects a primary, keeps a program, tables, counters and multicast groups as PI does
//! (the P4Runtime server of bmv2), and tells digests. It can be restarted, be silent, refuse,
//! and answer what no switch may. Serves until it is dropped.

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
    /// A switch with this number, at a port of 127.0.0.1 that is free.
    ///
    /// # Errors
    /// There is none.
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

    /// Ends all sessions and forgets everything.
    pub fn restart(&self) {
        self.device().restart();
    }

    /// Is not there: no call is answered, and sessions are at their end.
    pub fn down(&self, down: bool) {
        self.device().down(down);
    }

    /// Is silent: calls are not answered until it speaks again.
    pub fn hang(&self, hang: bool) {
        self.device().hang = hang;
    }

    /// Refuses changes of this table; none: of no table.
    pub fn refuse(&self, table: Option<&str>) {
        self.device().refuse = table.map(Into::into);
    }

    /// Takes no orders from its primary, and does not say that there is another.
    pub fn deny(&self, deny: bool) {
        self.device().deny = deny;
    }

    /// Answers reads with what cannot be.
    pub fn answer(&self, wrong: Option<Wrong>) {
        self.device().wrong = wrong;
    }

    /// All that was changed, in its order, one line each: `insert linkemu.ports[…] -> …`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.device().log.clone()
    }

    /// Forgets what was changed so far.
    pub fn clear_log(&self) {
        self.device().log.clear();
    }

    /// The entries of a table.
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

    /// Changes an entry behind the controllers' backs.
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

    /// Tells the primary a digest of the program's only kind; says whether there is one.
    pub fn digest(&self, row: &[u128]) -> bool {
        self.device().digest(row)
    }

    /// Lists of digests that were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.device().acknowledged
    }

    /// Controllers that have a session.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.device().controllers()
    }

    /// Programs that it was given since it is there.
    #[must_use]
    pub fn pushes(&self) -> u64 {
        self.device().pushes
    }
}
