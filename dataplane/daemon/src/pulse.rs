// SPDX-License-Identifier: Apache-2.0
//! Whether all workers move on, for the requests of others and for the service manager.
//!
//! The watchdog hears only after the run loop of every worker has turned since the last time. So
//! a worker that stands still for long, a port's driver that does not return, or a control
//! thread that is stuck ends in the watchdog's kill and a fresh start, and not in a link that
//! silently carries nothing.

use std::future::pending;
use std::time::Duration;

use endpoint::supervisor;

use crate::dataplane::{Dataplane, Fixed};

/// From one look at the workers to the next, unless the watchdog asks for more.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at the workers for as long as it is polled; tells the service manager, if there is one.
pub async fn keep(dataplane: &Dataplane) {
    tokio::join!(beat(dataplane), tell(dataplane));
}

async fn beat(dataplane: &Dataplane) {
    let period = supervisor::period().map_or(LOOK, |period| period.min(LOOK));
    // One that has ended is for others to tell.
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

/// What runs, for who asks the service manager.
#[must_use]
pub fn words(fixed: &Fixed) -> String {
    let ports = &fixed.description.ports;
    let ports: Vec<_> = ports.iter().map(|p| format!("{} {}", p.name, p.device)).collect();
    let workers = fixed.room.workers;
    let noun = if workers == 1 { "worker" } else { "workers" };
    format!("forwards: {}; {workers} {noun}", ports.join(", "))
}
