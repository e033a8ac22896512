// SPDX-License-Identifier: Apache-2.0
//! Checks that all workers make progress, for requests and for the service manager.
//!
//! The watchdog is notified only after the run loop of every worker has iterated since the last
//! time. So a stalled worker, a port's driver that does not return, or a blocked control thread
//! ends in a restart by the watchdog, and not in a link that silently carries nothing.

use std::future::pending;
use std::time::Duration;

use endpoint::supervisor;

use crate::dataplane::{Dataplane, Fixed};

/// From one look at the workers to the next, unless the watchdog asks for more.
const LOOK: Duration = Duration::from_secs(1);

/// Checks the workers while it is polled, and notifies the service manager, if there is one.
pub async fn keep(dataplane: &Dataplane) {
    tokio::join!(beat(dataplane), tell(dataplane));
}

async fn beat(dataplane: &Dataplane) {
    let period = supervisor::period().map_or(LOOK, |period| period.min(LOOK));
    // Ended workers are reported elsewhere.
    while dataplane.turned().await.is_ok() {
        supervisor::alive();
        tokio::time::sleep(period).await;
    }
    pending().await
}

async fn tell(dataplane: &Dataplane) {
    let mut stalled = dataplane.stalled();
    while stalled.changed().await.is_ok() {
        let is_stalled = *stalled.borrow_and_update();
        match is_stalled {
            true => supervisor::status("stalled: a worker stands still, and frames wait with it"),
            false => supervisor::status(&words(dataplane.fixed())),
        }
    }
}

/// The status line for the service manager.
#[must_use]
pub fn words(fixed: &Fixed) -> String {
    let ports = &fixed.description.ports;
    let ports: Vec<_> = ports.iter().map(|p| format!("{} {}", p.name, p.device)).collect();
    let workers = fixed.room.workers;
    let noun = if workers == 1 { "worker" } else { "workers" };
    format!("forwards: {}; {workers} {noun}", ports.join(", "))
}
