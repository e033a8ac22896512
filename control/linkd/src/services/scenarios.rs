// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Scenarios`: each call about the scenario of a link.

use crate::caller::Caller;
use crate::control::to_its_end;
use crate::links::{Lane, Links};
use crate::scenarios::{Scenarios, message, named};
use crate::watching::Messages;
use futures_util::stream::unfold;
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
        let (this, links) = (self.0.of(&request)?.scenarios, self.0.clone());
        let request = request.into_inner();
        if request.dry_run {
            // It changes nothing, and ends with who asked.
            let find = |name: &str| links.named(name);
            return this.run(&find, caller, request).await.map(Response::new);
        }
        to_its_end(async move { this.run(&|name| links.named(name), caller, request).await }).await
    }

    async fn pause_scenario(
        &self,
        request: Request<pb::PauseScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let caller = Caller::of(&request);
        let Lane { scenarios, control, .. } = self.0.of(&request)?;
        scenarios.check(&caller).await?;
        control.dataplane().pause_scenario(&caller.name).await.map(Response::new)
    }

    async fn resume_scenario(
        &self,
        request: Request<pb::ResumeScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let caller = Caller::of(&request);
        let Lane { scenarios, control, .. } = self.0.of(&request)?;
        scenarios.check(&caller).await?;
        control.dataplane().resume_scenario(&caller.name).await.map(Response::new)
    }

    async fn stop_scenario(
        &self,
        request: Request<pb::StopScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let caller = Caller::of(&request);
        let Lane { scenarios, control, .. } = self.0.of(&request)?;
        scenarios.check(&caller).await?;
        let (reason, restore) = (format!("stopped by {}", caller.name), request.get_ref().restore);
        control.dataplane().stop_scenario(&reason, restore).await.map(Response::new)
    }

    async fn get_scenario_state(
        &self,
        request: Request<pb::GetScenarioStateRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let status =
            self.0.control(&request)?.dataplane().scenario("").await?.status.unwrap_or_default();
        Ok(Response::new(status.state.unwrap_or_default()))
    }

    type WatchScenarioStream = Messages<pb::ScenarioState>;

    async fn watch_scenario(
        &self,
        request: Request<pb::WatchScenarioRequest>,
    ) -> Result<Response<Self::WatchScenarioStream>, Status> {
        let Scenarios { watching, state, .. } = self.0.of(&request)?.scenarios;
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
