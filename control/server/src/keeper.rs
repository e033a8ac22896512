// SPDX-License-Identifier: Apache-2.0
//! Looks after the dataplane, the switch and the lease: brings a dataplane that was started
//! anew back to the last link, lets a switch that is ready do its part of it, and ends a lease
//! whose time is over.

use crate::control::Control;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_server::SERVICE_NAME;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Between one look at the dataplane and the next.
const LOOK: Duration = Duration::from_millis(500);
/// Looks from one reading of the switch's counters to the next, if nobody else reads them.
const READ_EVERY: u32 = 4;
/// Before a link that cannot return is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Looks at the dataplane; `health` is told whether it answers.
pub(crate) async fn watch_dataplane(control: &Control, health: &HealthReporter) {
    let mut up = None;
    loop {
        match (look(control).await, up) {
            (Ok(()), Some(true)) | (Err(_), Some(false)) => {}
            (Ok(()), _) => {
                // One that has gone meanwhile is not found.
                if let Ok(dataplane) = control.dataplane().describe().await {
                    up = Some(true);
                    health.set_service_status(SERVICE_NAME, ServingStatus::Serving).await;
                    let message = format!("linkd-dataplane {}", dataplane.version);
                    control.tell(pb::EventKind::DataplaneFound, "", "", message);
                }
            }
            (Err(status), _) => {
                up = Some(false);
                health.set_service_status(SERVICE_NAME, ServingStatus::NotServing).await;
                control.tell(pb::EventKind::DataplaneLost, "", "", status.message());
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = control.dataplane().switches().news() => {}
        }
    }
}

/// Tells the switch which clients there are.
pub(crate) async fn watch_clients(control: &Control) {
    for turn in 0_u32.. {
        tokio::time::sleep(LOOK).await;
        if turn % READ_EVERY == 0 {
            // What a switch counted since the last look is lost with it.
            drop(control.dataplane().switches().read().await);
        }
        // Who looks after the dataplane tells what is wrong with it.
        let _ = meet_clients(control).await;
    }
}

async fn meet_clients(control: &Control) -> Result<(), Status> {
    let dataplane = control.dataplane();
    if !dataplane.switches().is_ready() {
        return Ok(());
    }
    let before = dataplane.describe().await?.instance;
    let stats = dataplane.own_stats(false).await?;
    let in_force = dataplane.plan("").await?;
    // Another one would have given other numbers.
    if before == in_force.instance {
        let said = in_force.plan.unwrap_or_default().clients.unwrap_or_default();
        dataplane.switches().meet(before, &said, &stats).await;
    }
    Ok(())
}

/// Sees what is in force, brings back the last link if need be, and lets the switch do its
/// part.
async fn look(control: &Control) -> Result<(), Status> {
    let mut changing = control.changing().await;
    let in_force = control.dataplane().plan("").await?;
    if control.bring_back(&mut changing, &in_force).await? {
        return Ok(());
    }
    control.match_switch(&mut changing, in_force).await.map(drop)
}

/// Ends the lease when its time is over.
pub(crate) async fn watch_lease(control: &Control) {
    let mut changes = control.lease_changes();
    loop {
        changes.mark_unchanged();
        let ends = control.changing().await.leases.0.as_ref().map(|held| held.ends);
        let over = async {
            match ends {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => {}
            _ = changes.changed() => continue,
        }
        let mut changing = control.changing().await;
        if changing.leases.0.as_ref().is_none_or(|held| held.ends > Instant::now()) {
            // It was renewed meanwhile.
            continue;
        }
        let kind = pb::EventKind::LeaseExpired;
        if let Err(error) = control.end_lease(&mut changing, kind, "").await {
            drop(changing);
            tracing::warn!(why = error.message(), "a lease is over and the link cannot return yet");
            tokio::time::sleep(RETRY).await;
        }
    }
}
