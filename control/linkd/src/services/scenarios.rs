// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Scenarios`: each call about the scenario of a link.

use crate::caller::Caller;
use crate::control::to_its_end;
use crate::links::{Lane, Links};
use crate::refusal;
use crate::scenarios::{Scenarios, message, named};
use crate::watching::Messages;
use futures_util::stream::unfold;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::scenarios_server;
use tonic::{Request, Response, Status};

/// The calls, each about the scenario of a link.
pub(crate) struct ScenarioService(pub Links);

#[tonic::async_trait]
impl scenarios_server::Scenarios for ScenarioService {
    async fn list_scenarios(
        &self,
        _: Request<pb::ListScenariosRequest>,
    ) -> Result<Response<pb::ListScenariosResponse>, Status> {
        let scenarios = scenario::built_in().iter().map(message).collect();
        Ok(Response::new(pb::ListScenariosResponse { scenarios }))
    }

    async fn get_scenario(
        &self,
        request: Request<pb::GetScenarioRequest>,
    ) -> Result<Response<pb::Scenario>, Status> {
        Ok(Response::new(message(&named(&request.get_ref().name)?)))
    }

    async fn run_scenario(
        &self,
        request: Request<pb::RunScenarioRequest>,
    ) -> Result<Response<pb::RunScenarioResponse>, Status> {
        let caller = Caller::of(&request);
        let (links, request) = (self.0.clone(), request.into_inner());
        let this = links.of(&request.link)?.scenarios;
        if request.dry_run {
            // It changes nothing, and ends with who asked.
            let find = |name: &str| links.named(name);
            return this.run(&find, caller, request).await.map(Response::new);
        }
        to_its_end(async move { this.run(&|name| links.named(name), caller, request).await }).await
    }

    async fn control_scenario(
        &self,
        request: Request<pb::ControlScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        if request.action() == pb::ScenarioAction::Unspecified {
            let what = "give SCENARIO_ACTION_PAUSE, SCENARIO_ACTION_RESUME or SCENARIO_ACTION_STOP";
            return Err(refusal::field("action", what));
        }
        if request.restore && request.action() != pb::ScenarioAction::Stop {
            return Err(refusal::field("restore", "give it with SCENARIO_ACTION_STOP only"));
        }
        let Lane { scenarios, control, .. } = self.0.of(&request.link)?;
        scenarios.check(&caller).await?;
        let pb::ControlScenarioRequest { action, restore, .. } = request;
        let reason = format!("stopped by {}", caller.name);
        let request = dp::ControlScenarioRequest { action, who: caller.name, reason, restore };
        control.dataplane().control_scenario(request).await.map(Response::new)
    }

    async fn get_scenario_state(
        &self,
        request: Request<pb::GetScenarioStateRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let control = self.0.control(&request.get_ref().link)?;
        let status = control.dataplane().scenario("").await?.status.unwrap_or_default();
        Ok(Response::new(status.state.unwrap_or_default()))
    }

    type WatchScenarioStream = Messages<pb::ScenarioState>;

    async fn watch_scenario(
        &self,
        request: Request<pb::WatchScenarioRequest>,
    ) -> Result<Response<Self::WatchScenarioStream>, Status> {
        let Scenarios { watching, state, .. } = self.0.of(&request.get_ref().link)?.scenarios;
        let watch = watching.begin(&request)?;
        let mut state = state.subscribe();
        state.mark_changed();
        let states = unfold(state, |mut state| async move {
            state.changed().await.ok()?;
            let next = state.borrow_and_update().clone();
            Some((Ok(next), state))
        });
        Ok(watch.answer(states))
    }
}
