// SPDX-License-Identifier: Apache-2.0
//! Reports of both ends, as JSON: one line for each transfer.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Length of the steps of all series.
pub const STEP: Duration = Duration::from_millis(100);

/// Transfer as the client has seen it. Times are seconds since the client started to connect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fetched {
    pub stack: String,
    /// End of the handshake.
    pub handshake_s: f64,
    /// First byte of an object.
    pub first_byte_s: f64,
    /// Last byte of the last object, or end of a bulk transfer.
    pub end_s: f64,
    /// Objects that arrived completely.
    pub objects: usize,
    /// Payload bytes of all streams.
    pub bytes: u64,
    /// Payload bytes in each step, as the application reads them: in order.
    pub bytes_per_step: Vec<u64>,
    /// Bytes of UDP payload in each step, repeated ones included, as a capture shows them.
    pub udp_bytes_per_step: Vec<u64>,
}

impl Fetched {
    /// Mean rate of UDP payload from the first byte of an object to the end, in Mbit/s.
    #[must_use]
    pub fn throughput_mbps(&self) -> f64 {
        rate(self.udp_bytes_per_step.iter().sum(), self.end_s - self.first_byte_s)
    }

    /// Size of the page divided by its load time, connection set-up included, in Mbit/s.
    #[must_use]
    pub fn goodput_mbps(&self) -> f64 {
        rate(self.bytes, self.end_s)
    }
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 }
}

/// State of a connection's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathSample {
    /// Seconds since the connection was accepted.
    pub at_s: f64,
    pub window_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt_ms: f64,
    /// Packets since the start of the connection.
    pub sent: u64,
    pub lost: u64,
    /// Bytes of UDP payload since the start of the connection.
    pub received_bytes: u64,
}

/// Connection as the server has seen it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Served {
    pub stack: String,
    pub congestion: String,
    pub peer: SocketAddr,
    /// One sample per step.
    pub path: Vec<PathSample>,
}
