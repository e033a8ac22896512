// SPDX-License-Identifier: Apache-2.0
//! `/metrics` for Prometheus.
//!
//! A scrape is one GetStats to the dataplane for each link, without a mark: reading resets nothing.
//! Scrapes at the same time share one. Text in Prometheus' classic format (version 0.0.4),
//! over HTTP/1.1 without encryption or names: for loopback, or behind a proxy.
//!
//! Names begin with `linkemu_`; times are in seconds, sizes in bytes of Ethernet frame
//! without FCS.

mod clients;
mod export;
mod figures;
mod http;
mod scrape;
mod steady;
mod switch;

use crate::links::Links;
use scrape::Scraper;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Where metrics are served, and of how many clients.
#[derive(Debug)]
pub struct Metrics {
    listener: TcpListener,
    address: SocketAddr,
    clients: usize,
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics at {address}: {source}; give a free --metrics ADDR:PORT of this machine"
)]
pub struct MetricsError {
    address: SocketAddr,
    source: std::io::Error,
}

impl Metrics {
    /// Clients that are exported each for itself, unless another number is given.
    pub const CLIENTS: usize = 256;
    /// Such clients at most: each has some 120 series.
    pub const CLIENTS_MAX: usize = 10_000;

    /// Listens at an address, within a tokio runtime. Of the clients up to `clients` are
    /// exported each for itself, beside `default` and `bypass`.
    ///
    /// # Errors
    /// If the address is taken or not of this machine.
    pub async fn bind(address: SocketAddr, clients: usize) -> Result<Self, MetricsError> {
        let failed = |source| MetricsError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "metrics can be read by anyone who reaches this address");
        }
        Ok(Self { listener, address, clients: clients.min(Self::CLIENTS_MAX) })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stopping` is true.
    pub(crate) async fn serve(self, links: Links, stopping: watch::Receiver<bool>) {
        let scraper = Arc::new(Scraper::new(links, self.clients));
        http::serve(self.listener, scraper, stopping).await;
    }
}
