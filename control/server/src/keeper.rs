// SPDX-License-Identifier: Apache-2.0
//! Looks after the dataplane and the lease: brings a dataplane that was started anew back
//! to the last link, and ends a lease whose time is over.

use crate::control::Control;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_server::SERVICE_NAME;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Between one look at the dataplane and the next.
const LOOK: Duration = Duration::from_millis(500);
/// Before a link that cannot return is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What is known of the dataplane.
#[derive(Debug, Default)]
struct Known {
    /// It answered the last time.
    up: bool,
    /// It has answered ever, or it has been said that it did not.
    said: bool,
}

/// Looks at the dataplane; `health` is told whether it answers.
pub(crate) async fn watch_dataplane(control: &Control, health: &HealthReporter) {
    let mut known = Known::default();
    loop {
        let found = look(control).await;
        if known.said && found.is_ok() == known.up {
            // As before.
        } else {
            let status =
                if found.is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
            health.set_service_status(SERVICE_NAME, status).await;
            match &found {
                Ok(dataplane) => {
                    let message = format!("linkd-dataplane {}", dataplane.version);
                    control.tell(pb::EventKind::DataplaneFound, "", "", message);
                }
                Err(status) => {
                    control.tell(pb::EventKind::DataplaneLost, "", "", status.message());
                }
            }
        }
        (known.up, known.said) = (found.is_ok(), true);
        tokio::time::sleep(LOOK).await;
    }
}

/// Sees what is in force, and brings back the last link if need be.
async fn look(control: &Control) -> Result<dp::DescribeResponse, Status> {
    let mut changing = control.changing().await;
    let in_force = control.dataplane().plan("").await?;
    control.bring_back(&mut changing, &in_force).await?;
    control.dataplane().describe().await
}

/// Ends the lease when its time is over.
pub(crate) async fn watch_lease(control: &Control) {
    loop {
        let ends = control.changing().await.leases.0.as_ref().map(|held| held.ends);
        let over = async {
            match ends {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => {}
            () = control.lease_changed() => continue,
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
