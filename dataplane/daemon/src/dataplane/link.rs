// SPDX-License-Identifier: Apache-2.0
//! The dataplane as the link of a scenario.

use std::time::SystemTime;

use emu::units::Instant;
use owner::{Link, Refusal};
use proto::dataplane::v1 as pb;
use tokio::sync::watch;
use tonic::Status;

use super::apply::together::change_links;
use super::{Dataplane, DataplaneError, LinkChange, Made, Source, Terms, TogetherError, utc};

fn owned(made: Made) -> owner::Made {
    let plan = made.plan.as_deref().cloned().unwrap_or_default();
    owner::Made { plan, applied: made.applied }
}

impl Link for Dataplane {
    fn now_ns(&self) -> u64 {
        self.0.machine.clock.now()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        SystemTime::try_from(utc(&self.0.machine.clock, Instant(time_ns)))
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Waits for a stalled worker: the step is then late, not lost.
    async fn apply(&self, change: pb::Change, terms: owner::Terms) -> Result<owner::Made, Refusal> {
        let owner::Terms { at_ns, expected, lossy } = terms;
        let at = at_ns.map(Instant);
        let terms = Terms { source: Source::Scenario, expected, lossy, ..Terms::default() };
        match self.clone().change(change, at, terms).await {
            Ok(made) => Ok(owned(made)),
            Err(e @ (DataplaneError::Withdrawn | DataplaneError::Generation { .. })) => {
                Err(Refusal::Stale(e.to_string()))
            }
            Err(e) => Err(Refusal::Refused(Status::from(e).message().to_owned())),
        }
    }

    async fn apply_links(
        changes: Vec<owner::LinkChange<Self>>,
        at_ns: Option<u64>,
    ) -> Result<Vec<owner::Made>, Refusal> {
        let change = |it: owner::LinkChange<Self>| {
            let owner::LinkChange { link, change, expected, lossy, cause } = it;
            let source = cause.map_or(Source::Scenario, Source::OtherScenario);
            LinkChange {
                link,
                change,
                terms: Terms { source, expected, lossy, ..Terms::default() },
            }
        };
        let changes = changes.into_iter().map(change).collect();
        match change_links(changes, at_ns.map(Instant)).await {
            Ok(made) => Ok(made.into_iter().map(owned).collect()),
            Err(
                e @ TogetherError::Link {
                    error: DataplaneError::Withdrawn | DataplaneError::Generation { .. },
                    ..
                },
            ) => Err(Refusal::Stale(e.to_string())),
            Err(e) => Err(Refusal::Refused(Status::from(e).message().to_owned())),
        }
    }

    async fn withdraw(&self) -> Result<(), String> {
        self.withdraw_all().await.map_err(|e| e.to_string())
    }

    async fn current(&self) -> Result<owner::Made, String> {
        let current = self.history().await.current.clone();
        Ok(owner::Made { plan: current.plan, applied: current.applied })
    }

    fn other_changes(&self) -> watch::Receiver<u64> {
        self.0.others.subscribe()
    }
}
