// SPDX-License-Identifier: Apache-2.0
//! The dataplane as the link of a scenario.

use std::time::SystemTime;

use emu::units::Instant;
use owner::{Current, Link, LinkChange, Made, Refusal, Terms};
use proto::dataplane::v1 as pb;
use tokio::sync::watch;
use tonic::Status;

use super::apply::together::change_links;
use super::{Dataplane, utc};

impl Link for Dataplane {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn now_ns(&self) -> u64 {
        self.0.machine.clock.now()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        SystemTime::try_from(utc(&self.0.machine.clock, Instant(time_ns)))
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Waits for a stalled worker: the step is then late, not lost.
    async fn apply(&self, change: pb::Change, terms: Terms) -> Result<Made, Refusal> {
        self.clone().change(change, terms).await.map_err(|error| Status::from(error).into())
    }

    async fn apply_links(
        changes: Vec<LinkChange<Self>>,
        at_ns: Option<u64>,
    ) -> Result<Vec<Made>, Refusal> {
        let made = change_links(changes, at_ns.map(Instant)).await;
        made.map_err(|error| Status::from(error).into())
    }

    async fn withdraw(&self) -> Result<(), String> {
        self.withdraw_all().await.map_err(|e| e.to_string())
    }

    async fn current(&self) -> Result<Current, String> {
        Ok(self.history().await.plans.current.clone())
    }

    fn other_changes(&self) -> watch::Receiver<u64> {
        self.0.others.subscribe()
    }
}
