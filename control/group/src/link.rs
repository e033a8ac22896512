// SPDX-License-Identifier: Apache-2.0
//! The group as the link of a scenario, which runs on the group's clock.

use std::time::SystemTime;

use owner::{Link, LinkChange, Made, Refusal, Request, Terms};
use proto::dataplane::v1 as dp;
use tokio::sync::watch;
use tonic::{Code, Status};

use crate::group::Group;
use crate::group::changes::{self, Current, Source};

impl Link for Group {
    fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        self.0.clock.utc(time_ns)
    }

    async fn apply(&self, change: dp::Change, terms: Terms) -> Result<Made, Refusal> {
        let Terms { at_ns, expected, lossy } = terms;
        let request = Request::default();
        let terms = changes::Terms { source: Source::Scenario, expected, lossy, request };
        let made = Group::apply(self, change, at_ns, terms).await.map_err(refusal)?;
        let plan = made.plan.as_deref().cloned().unwrap_or_default();
        Ok(Made { plan, applied: made.applied })
    }

    async fn apply_links(_: Vec<LinkChange<Self>>, _: Option<u64>) -> Result<Vec<Made>, Refusal> {
        Err(Refusal::Refused("a group of boxes has one link".to_owned()))
    }

    async fn withdraw(&self) -> Result<(), String> {
        Group::withdraw(self).await;
        Ok(())
    }

    async fn current(&self) -> Result<Made, String> {
        // After changes that are being made.
        let _history = self.0.history.lock().await;
        let current = Group::current(self).map_err(|status| status.message().to_owned())?;
        let Current { plan, applied, .. } = current;
        Ok(Made { plan, applied })
    }

    fn other_changes(&self) -> watch::Receiver<u64> {
        self.0.others.subscribe()
    }
}

fn refusal(status: Status) -> Refusal {
    let message = status.message().to_owned();
    match status.code() {
        Code::Aborted | Code::Cancelled => Refusal::Stale(message),
        _ => Refusal::Refused(message),
    }
}
