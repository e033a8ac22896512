// SPDX-License-Identifier: Apache-2.0
//! Looks at the dataplane, and restores one that was restarted to the last link.

use super::{Changing, Control, Shared, is_away};
use proto::dataplane::v1 as dp;
use proto::link_name;
use proto::linkemu::v1 as pb;
use tonic::{Code, Status};

impl Control {
    /// Reads the current plan and keeps it. Restores a dataplane that was restarted, lets the switch
    /// do its part, and stops a scenario without a lease.
    pub async fn look(&self, changing: &mut Changing) -> Result<dp::GetPlanResponse, Status> {
        let mut current = self.0.dataplane.plan().await?;
        self.0.dataplane.meet(current.instance).await?;
        if self.bring_back(&current).await? {
            current = self.0.dataplane.plan().await?;
            self.bring_back(&current).await?;
        }
        self.settle_scenario(&changing.leases).await;
        let generation = current.applied.unwrap_or_default().generation;
        let plan = current.plan.clone().unwrap_or_default();
        self.match_switch(changing, &plan, generation, current.instance).await?;
        Ok(current)
    }

    /// Keeps the current plan. A restarted dataplane is restored to the last link; then true.
    ///
    /// # Errors
    /// If the dataplane does not answer.
    async fn bring_back(&self, current: &dp::GetPlanResponse) -> Result<bool, Status> {
        let Shared { dataplane, saver, .. } = &*self.0;
        let dp::GetPlanResponse { plan, applied, instance, .. } = current;
        let (instance, applied) = (*instance, applied.unwrap_or_default());
        let kept = saver.state();
        let is_new = instance != kept.instance;
        if is_new && kept.instance != 0 && kept.scenario.is_some() {
            self.end_scenario("the dataplane was restarted, and the scenario ended with it");
        }
        // The group brings its members to its plan.
        let is_empty = is_new && applied.generation == 0 && !dataplane.is_member();
        let Some(last) = kept.plan.filter(|_| is_empty) else {
            if (instance, applied.generation) != (kept.instance, kept.generation) {
                saver.update(|state| {
                    state.instance = instance;
                    state.generation = applied.generation;
                    state.lossy = applied.lossy;
                    // A dataplane's initial plan was not set by a caller.
                    if applied.generation > 0 {
                        state.plan = plan.clone();
                    }
                });
            }
            return Ok(false);
        };
        let message = "it has lost what was in force";
        self.tell(pb::EventKind::DataplaneRestarted, "", "", message);
        let dp::Plan { profile, seed, clients, .. } = last;
        let name = profile.as_ref().map_or("", |profile| &profile.name).to_owned();
        let change =
            dp::Change { profile, seed: Some(seed), clients, restart: true, ..Default::default() };
        let cause = dp::Cause {
            what: "the last link is back".to_owned(),
            kind: pb::EventKind::LinkRestored as i32,
            ..Default::default()
        };
        let change = dp::LinkChange {
            link: link_name(self.name()),
            change: Some(change),
            cause: Some(cause),
            expected_generation: Some(0),
            lossy: kept.lossy,
            expected_instance: instance,
            ..Default::default()
        };
        match dataplane.apply(vec![change]).await {
            Ok(made) => {
                let applied = made.into_iter().next().and_then(|made| made.applied);
                saver.update(|state| {
                    state.instance = instance;
                    state.generation = applied.unwrap_or_default().generation;
                });
                Ok(true)
            }
            // Another change was faster, and counts.
            Err(status) if status.code() == Code::Aborted => Ok(true),
            Err(status) if is_away(&status) => Err(status),
            Err(status) => {
                // Not tried again with this dataplane.
                saver.update(|state| {
                    (state.instance, state.generation) = (instance, 0);
                });
                self.tell(pb::EventKind::LinkNotRestored, "", &name, status.message());
                Ok(false)
            }
        }
    }

    /// Keeps a plan that was applied.
    pub(super) fn keep_link(&self, plan: &dp::Plan, applied: pb::Applied) {
        self.0.saver.update(|state| {
            if applied.generation > state.generation {
                state.plan = Some(plan.clone());
                state.lossy = applied.lossy;
                state.generation = applied.generation;
            }
        });
    }
}
