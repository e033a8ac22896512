// SPDX-License-Identifier: Apache-2.0
//! The group as the link of a scenario, which runs on the group's clock.

use std::time::SystemTime;

use owner::{Current, Link, LinkChange, Made, Refusal, Terms};
use proto::MAIN_LINK;
use proto::dataplane::v1 as dp;
use tokio::sync::watch;

use crate::group::Group;

impl Link for Group {
    fn name(&self) -> &str {
        MAIN_LINK
    }

    fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        self.0.clock.utc(time_ns)
    }

    async fn apply(&self, change: dp::Change, terms: Terms) -> Result<Made, Refusal> {
        Ok(Self::apply(self, change, terms).await?)
    }

    async fn apply_links(_: Vec<LinkChange<Self>>, _: Option<u64>) -> Result<Vec<Made>, Refusal> {
        Err(Refusal::Refused("a group of boxes has one link".to_owned()))
    }

    async fn withdraw(&self) -> Result<(), String> {
        Self::withdraw(self).await;
        Ok(())
    }

    async fn current(&self) -> Result<Current, String> {
        // After changes that are being made.
        let _history = self.0.history.lock().await;
        Self::current(self).map_err(|status| status.message().to_owned())
    }

    fn other_changes(&self) -> watch::Receiver<u64> {
        self.0.others.subscribe()
    }
}
