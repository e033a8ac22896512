// SPDX-License-Identifier: Apache-2.0
//! The offload, and boxes that are brought to the current plan.

use std::time::Duration;

use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tokio::task::JoinSet;
use tonic::Status;

use owner::{Changes, Current, Link};

use super::{Tip, is_refusal, of_box};
use crate::group::{Group, same_link};
use crate::member::{Member, SILENT};

impl Group {
    /// Whether the random processes of a box run with the seed of a plan.
    pub(super) fn has_seed(&self, member: &Member, plan: &dp::Plan) -> bool {
        let state = member.state();
        let applied = state.plan.applied.unwrap_or_default();
        applied.generation > 0 && state.plan.plan.as_ref().is_some_and(|it| it.seed == plan.seed)
    }

    /// Sets the offload at all boxes that have the current plan.
    ///
    /// # Errors
    /// If another generation is current, or a box refuses; then all have the former offload.
    pub async fn set_offload(
        &self,
        offload: Option<dp::Offload>,
        expected: u64,
    ) -> Result<(), Status> {
        let group = self.clone();
        let work = async move {
            let mut plans = group.quiet(expected).await?;
            let before = plans.current.plan.offload;
            if let Err(status) = group.offload(offload).await {
                if let Err(status) = group.offload(before).await {
                    tracing::warn!("the former offload could not be set again: {status}");
                }
                return Err(status);
            }
            plans.current.plan.offload = offload;
            group.show(plans.current.clone());
            Ok(())
        };
        self.complete(Duration::ZERO, work).await
    }

    async fn offload(&self, offload: Option<dp::Offload>) -> Result<(), Status> {
        let tips = self.tips().clone();
        let mut calls = JoinSet::new();
        for place in self.up() {
            let Some(tip) = tips[place] else { continue };
            let group = self.clone();
            calls.spawn(async move {
                let member = &group.0.members[place];
                let answer = offload_one(member, offload, tip).await;
                answer.map_err(|status| match is_refusal(&status) {
                    true => of_box(&member.name, &status),
                    false => Status::unavailable(member.words(&status)),
                })
            });
        }
        let answers = calls.join_all().await;
        answers.into_iter().collect::<Result<Vec<()>, _>>().map(drop)
    }

    /// Brings a box that is behind to the current plan, unless changes are pending: the next one does.
    pub(crate) async fn catch_up(&self, member: &Member) {
        let place = member.place;
        let Some(plans) = self.0.history.plans_now() else { return };
        let Ok(Current { plan, applied, .. }) = self.shown() else { return };
        if !plans.schedule.is_empty() || !member.is_up() {
            return;
        }
        let (instance, generation, has_plan) = {
            let state = member.state();
            let has_plan = same_link(&plan, state.plan.plan.as_ref());
            (state.plan.instance, state.plan.applied.unwrap_or_default().generation, has_plan)
        };
        let tip = Tip { instance, generation };
        if self.tips()[place].is_some_and(|it| it == tip) {
            return;
        }
        self.tips()[place] = None;
        // Before the first change the boxes keep what they have.
        if applied.generation == 0 {
            self.tips()[place] = has_plan.then_some(tip);
            return;
        }
        let request = dp::LinkChange {
            change: Some(whole(&plan, !self.has_seed(member, &plan))),
            cause: Some(dp::Cause {
                what: "the plan of the group".to_owned(),
                kind: pb::EventKind::LinkRestored as i32,
                ..Default::default()
            }),
            lossy: applied.lossy,
            expected_instance: instance,
            ..Default::default()
        };
        let told = match member.apply(SILENT, request).await {
            Ok(answer) => {
                let generation = answer.applied.unwrap_or_default().generation;
                let tip = Tip { instance, generation };
                match offload_one(member, plan.offload, tip).await {
                    Ok(()) => {
                        self.tips()[place] = Some(tip);
                        tracing::info!(box_ = member.name, generation, "has the plan of the group");
                        String::new()
                    }
                    Err(status) => member.words(&status),
                }
            }
            Err(status) => member.words(&status),
        };
        let mut state = member.state();
        state.message = match told.is_empty() {
            true => String::new(),
            false => format!("it does not take the plan of the group: {told}"),
        };
    }
}

async fn offload_one(
    member: &Member,
    offload: Option<dp::Offload>,
    tip: Tip,
) -> Result<(), Status> {
    let request = dp::SetOffloadRequest {
        offload,
        expected_generation: tip.generation,
        expected_instance: tip.instance,
    };
    let call = |mut c: crate::connect::Client, request| async move { c.set_offload(request).await };
    member.call(SILENT, request, call).await.map(drop)
}

/// The change that leads from any plan to this one.
pub(super) fn whole(plan: &dp::Plan, restart: bool) -> dp::Change {
    dp::Change {
        profile: plan.profile.clone(),
        parts: Vec::new(),
        seed: Some(plan.seed),
        clients: Some(plan.clients.clone().unwrap_or_default()),
        restart,
    }
}
