// SPDX-License-Identifier: Apache-2.0
//! Watches the dataplane, the switch and the lease: restores a dataplane that was restarted to the
//! last link, lets a ready switch do its part of it, and ends an expired lease.

use crate::control::Control;
use crate::links::Links;
use profile::counted;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_server::SERVICE_NAME;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Between one look at the dataplane and the next.
const LOOK: Duration = Duration::from_millis(500);
/// Iterations between two reads of the switch's counters, if nothing else reads them.
const READ_EVERY: u32 = 4;
/// Time without packets of clients without a slot after which the next one is an event again.
const QUIET: Duration = Duration::from_secs(10);

/// Watches the dataplane, and reports to `health` whether it answers.
pub(crate) async fn watch_dataplane(links: &Links, health: &HealthReporter) {
    let control = &links.main().control;
    let (mut up, mut told) = (None, Told::default());
    loop {
        let looked = match look(control, &mut told).await {
            Ok(instance) => links.meet(instance).await,
            Err(status) => Err(status),
        };
        match (looked, up) {
            (Ok(()), Some(true)) | (Err(_), Some(false)) => {}
            (Ok(()), _) => {
                // It may have disappeared meanwhile.
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

/// Which events about a dataplane were published.
#[derive(Default)]
struct Told {
    instance: u64,
    /// How many changes, by port.
    changes: HashMap<String, u64>,
    /// Packets of clients without a slot, and when their number last rose.
    unplaced: Option<(u64, Instant)>,
}

impl Told {
    /// Starts over if this is another dataplane.
    fn turn_to(&mut self, now: &dp::GetPlanResponse) {
        if self.instance != now.instance {
            *self = Self { instance: now.instance, ..Self::default() };
        }
    }

    /// The message of an event, if packets of clients without a slot came after none for [`QUIET`].
    fn unplaced(&mut self, now: &dp::GetPlanResponse, at: Instant) -> Option<String> {
        self.turn_to(now);
        let (before, last) = self.unplaced.unzip();
        if now.unplaced <= before.unwrap_or(0) {
            return None;
        }
        self.unplaced = Some((now.unplaced, at));
        last.is_none_or(|last| at.duration_since(last) >= QUIET).then(|| {
            format!(
                "{} of clients without a slot shared the default client's link: start the \
                 dataplane with more --max-clients, or a shorter --client-idle",
                counted(now.unplaced, "packet", "packets")
            )
        })
    }

    /// Changes of the ports since the last call: port and message.
    fn changes(&mut self, now: &dp::GetPlanResponse) -> Vec<(String, String)> {
        self.turn_to(now);
        let mut changes = Vec::new();
        for port in &now.ports {
            let told = self.changes.insert(port.name.clone(), port.changes).unwrap_or(0);
            let new = usize::try_from(port.changes.saturating_sub(told)).unwrap_or(usize::MAX);
            let known = port.last_changes.len();
            if new > known {
                let message = counted(
                    new - known,
                    "change, its description is lost",
                    "changes, their descriptions are lost",
                );
                changes.push((port.name.clone(), message));
            }
            let last = port.last_changes.iter().skip(known.saturating_sub(new));
            changes.extend(last.map(|message| (port.name.clone(), message.clone())));
        }
        changes
    }
}

/// Keeps the clients of the switch up to date.
pub(crate) async fn watch_clients(control: &Control) {
    for turn in 0_u32.. {
        tokio::time::sleep(LOOK).await;
        if turn % READ_EVERY == 0 {
            // Counts of the switch since the last read are lost with it.
            drop(control.dataplane().switches().read(false).await);
        }
        // `watch_dataplane` reports its errors.
        let _ = control.dataplane().meet_clients().await;
        // Early, so that little of the first run is missing.
        if control.dataplane().switches().must_begin() {
            drop(control.dataplane().run_stats(false).await);
        }
    }
}

/// Looks at the dataplane, and publishes events of its ports and clients.
/// Returns its instance.
async fn look(control: &Control, told: &mut Told) -> Result<u64, Status> {
    control.dataplane().controlled().await;
    let mut changing = control.changing().await;
    let current = control.look(&mut changing).await?;
    for (port, message) in told.changes(&current) {
        control.tell(pb::EventKind::PortChanged, "", &port, message);
    }
    if let Some(message) = told.unplaced(&current, Instant::now()) {
        control.tell(pb::EventKind::ClientsFull, "", "", message);
    }
    Ok(current.instance)
}

/// Publishes when the state cannot be written, and when it can be again.
pub(crate) async fn watch_state(control: &Control) {
    let mut failure = control.state_failure();
    while failure.changed().await.is_ok() {
        let why = failure.borrow_and_update().clone();
        let Some(why) = why else {
            control.tell(pb::EventKind::StateSaved, "", "", "the state is on the disk again");
            continue;
        };
        tracing::error!(why, "cannot write the state");
        let message = format!(
            "{why}: a restart of linkd would not find the last changes; make room on the disk of \
             --state, or correct the directory's permissions"
        );
        control.tell(pb::EventKind::StateNotSaved, "", "", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_port_is_told_once() {
        let seen = |instance, changes, last: &[&str]| dp::GetPlanResponse {
            instance,
            ports: vec![pb::PortState {
                name: "wan".into(),
                changes,
                last_changes: last.iter().map(|message| (*message).to_owned()).collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut ports = Told::default();
        let mut told = |now| -> Vec<String> {
            let changes = ports.changes(&now).into_iter();
            changes.map(|(port, message)| format!("{port}: {message}")).collect()
        };
        assert!(told(seen(1, 0, &[])).is_empty());
        assert_eq!(told(seen(1, 1, &["lost"])), ["wan: lost"]);
        assert!(told(seen(1, 1, &["lost"])).is_empty());
        assert_eq!(told(seen(1, 3, &["lost", "back", "lower"])), ["wan: back", "wan: lower"]);
        let lost = "wan: 2 changes, their descriptions are lost";
        assert_eq!(told(seen(1, 6, &["higher"])), [lost, "wan: higher"]);
        // Another dataplane counts from the beginning.
        assert_eq!(told(seen(2, 1, &["lower"])), ["wan: lower"]);
    }

    #[test]
    fn clients_without_a_slot_are_told_at_first_and_after_a_quiet_time() {
        let mut told = Told::default();
        let start = Instant::now();
        let mut is_told = |seconds, instance, unplaced| {
            let now = dp::GetPlanResponse { instance, unplaced, ..Default::default() };
            told.unplaced(&now, start + Duration::from_secs(seconds)).is_some()
        };
        assert!(!is_told(0, 1, 0));
        assert!(is_told(1, 1, 1));
        assert!(!is_told(2, 1, 1));
        assert!(!is_told(10, 1, 2));
        assert!(!is_told(19, 1, 3));
        assert!(!is_told(29, 1, 3));
        assert!(is_told(30, 1, 4));
        // Another dataplane counts from the beginning.
        assert!(is_told(31, 2, 1));
    }
}
