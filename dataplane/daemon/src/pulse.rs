// SPDX-License-Identifier: Apache-2.0
//! The word to the service manager's watchdog, from the control thread: that all workers move
//! on.
//!
//! It is given only after the run loop of every worker has turned since the last one. So a
//! worker that stands still, a port's driver that does not return, or a control thread that is
//! stuck ends in the watchdog's kill and a fresh start, and not in a link that silently carries
//! nothing.

use std::future::pending;
use std::time::Duration;

use endpoint::supervisor;

use crate::dataplane::{Dataplane, Fixed};

/// Tells the watchdog, if there is one, for as long as it is polled.
pub async fn keep(dataplane: &Dataplane) {
    match supervisor::period() {
        Some(period) => beat(dataplane, period).await,
        None => pending().await,
    }
}

async fn beat(dataplane: &Dataplane, period: Duration) {
    // One that has ended is for others to tell.
    while dataplane.turned(period).await.is_ok() {
        supervisor::alive();
        tokio::time::sleep(period).await;
    }
    pending().await
}

/// What runs, for who asks the service manager.
#[must_use]
pub fn words(fixed: &Fixed) -> String {
    let ports = &fixed.description.ports;
    let ports: Vec<_> = ports.iter().map(|p| format!("{} {}", p.name, p.device)).collect();
    let workers = fixed.room.workers;
    let noun = if workers == 1 { "worker" } else { "workers" };
    format!("forwards: {}; {workers} {noun}", ports.join(", "))
}
