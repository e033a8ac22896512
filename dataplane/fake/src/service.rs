// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` of the fake.

use crate::{FakeDataplane, Instance, Lane, Service};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::Dataplane;
use proto::linkemu::v1 as pb;
use proto::{LINK_METADATA, MAIN_LINK, link_id, link_name};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::SystemTime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

#[tonic::async_trait]
impl Dataplane for Service {
    type ControlStream = Pin<Box<dyn Stream<Item = Result<dp::ControlResponse, Status>> + Send>>;

    async fn control(
        &self,
        request: Request<dp::ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let controllers = self.lane(&request)?.instance.fake.state().controllers.clone();
        if let Some(controllers) = controllers {
            return Ok(Response::new(Box::pin(controllers.take(&request.get_ref().name)?)));
        }
        // For any caller, until the stream ends.
        let token = tokio_stream::once(Ok(dp::ControlResponse { token: 1 }));
        Ok(Response::new(Box::pin(token.chain(tokio_stream::pending()))))
    }

    async fn describe(
        &self,
        request: Request<dp::DescribeRequest>,
    ) -> Result<Response<dp::DescribeResponse>, Status> {
        let lane = self.lane(&request)?;
        let state = lane.instance.fake.state();
        let (room, instance, switch) = (state.room, state.instance, state.switch.clone());
        let (version, ports) = ("fake".into(), state.ports.clone());
        let described =
            dp::DescribeResponse { version, room, instance, switch, ports, ..Default::default() };
        Ok(Response::new(described))
    }

    async fn apply(
        &self,
        request: Request<dp::ApplyRequest>,
    ) -> Result<Response<dp::ApplyResponse>, Status> {
        let lane = self.lane(&request)?;
        if let Some(controllers) = &lane.instance.fake.state().controllers {
            controllers.check(&request)?;
        }
        let (stall, hesitation) = {
            let state = lane.instance.fake.state();
            (state.stall, state.hesitation)
        };
        let request = request.into_inner();
        if let Some(stall) = stall {
            let instance = lane.instance.clone();
            tokio::spawn(async move {
                tokio::time::sleep(stall).await;
                instance.apply(request)
            });
            return Err(Status::unavailable("a worker stands still"));
        }
        let answer = match request.at_ns {
            None => lane.instance.apply(request),
            Some(at_ns) => lane.instance.apply_at(at_ns, request).await,
        };
        tokio::time::sleep(hesitation).await;
        answer.map(Response::new)
    }

    async fn apply_links(
        &self,
        request: Request<dp::ApplyLinksRequest>,
    ) -> Result<Response<dp::ApplyLinksResponse>, Status> {
        let mut changes = Vec::new();
        for dp::LinkApply { link, request } in request.into_inner().links {
            changes.push((self.named(&link)?.instance, request.unwrap_or_default()));
        }
        let name = |instance: &Instance| match instance.fake.state().link.as_str() {
            "" => MAIN_LINK.to_owned(),
            name => name.to_owned(),
        };
        let made = Instance::apply_links(changes);
        let links = made.map_err(|(link, status)| owner::of_link(&name(&link), &status))?;
        Ok(Response::new(dp::ApplyLinksResponse { links }))
    }

    async fn set_offload(
        &self,
        request: Request<dp::SetOffloadRequest>,
    ) -> Result<Response<dp::SetOffloadResponse>, Status> {
        let lane = self.lane(&request)?;
        let request = request.into_inner();
        let mut state = lane.instance.fake.state();
        state.offloads.push(request);
        if state.switch.is_none() {
            return Err(Status::failed_precondition("there is no switch"));
        }
        if request.expected_generation != state.generation {
            return Err(Status::aborted("another generation is current"));
        }
        state.plan.get_or_insert_default().offload = request.offload;
        Ok(Response::new(dp::SetOffloadResponse {}))
    }

    async fn get_plan(
        &self,
        request: Request<dp::GetPlanRequest>,
    ) -> Result<Response<dp::GetPlanResponse>, Status> {
        let lane = self.lane(&request)?;
        let state = lane.instance.fake.state();
        Ok(Response::new(dp::GetPlanResponse {
            plan: state.plan.clone(),
            applied: Some(state.applied()),
            remarks: state.remarks(),
            instance: state.instance,
            time_ns: Some(state.now_ns()),
            utc: Some(SystemTime::now().into()),
            ports: Vec::new(),
            unplaced: 0,
            owners: None,
        }))
    }

    async fn run_scenario(
        &self,
        request: Request<dp::RunScenarioRequest>,
    ) -> Result<Response<dp::RunScenarioResponse>, Status> {
        let lane = self.lane(&request)?;
        let request = request.into_inner();
        let mut named = BTreeMap::new();
        for name in &request.links {
            named.insert(name.clone(), self.named(name)?.instance);
        }
        lane.scenarios.run_on(request, named).await.map(Response::new)
    }

    async fn extend_scenario(
        &self,
        request: Request<dp::ExtendScenarioRequest>,
    ) -> Result<Response<dp::ExtendScenarioResponse>, Status> {
        let lane = self.lane(&request)?;
        lane.scenarios.extend(request.into_inner()).await.map(Response::new)
    }

    async fn pause_scenario(
        &self,
        request: Request<dp::PauseScenarioRequest>,
    ) -> Result<Response<dp::PauseScenarioResponse>, Status> {
        let lane = self.lane(&request)?;
        let state = Some(lane.scenarios.pause(request.into_inner().who).await?);
        Ok(Response::new(dp::PauseScenarioResponse { state }))
    }

    async fn resume_scenario(
        &self,
        request: Request<dp::ResumeScenarioRequest>,
    ) -> Result<Response<dp::ResumeScenarioResponse>, Status> {
        let lane = self.lane(&request)?;
        let state = Some(lane.scenarios.resume(request.into_inner().who).await?);
        Ok(Response::new(dp::ResumeScenarioResponse { state }))
    }

    async fn stop_scenario(
        &self,
        request: Request<dp::StopScenarioRequest>,
    ) -> Result<Response<dp::StopScenarioResponse>, Status> {
        let lane = self.lane(&request)?;
        let dp::StopScenarioRequest { reason, restore } = request.into_inner();
        let state = Some(lane.scenarios.stop(reason, restore).await?);
        Ok(Response::new(dp::StopScenarioResponse { state }))
    }

    async fn notify_scenario(
        &self,
        request: Request<dp::NotifyScenarioRequest>,
    ) -> Result<Response<dp::NotifyScenarioResponse>, Status> {
        let lane = self.lane(&request)?;
        let dp::NotifyScenarioRequest { run, index, time_ns } = request.into_inner();
        lane.scenarios.notify(run, index, time_ns).await;
        Ok(Response::new(dp::NotifyScenarioResponse {}))
    }

    async fn get_scenario(
        &self,
        request: Request<dp::GetScenarioRequest>,
    ) -> Result<Response<dp::GetScenarioResponse>, Status> {
        let lane = self.lane(&request)?;
        Ok(Response::new(lane.scenarios.get(&request.get_ref().key).await))
    }

    type WatchStream = ReceiverStream<Result<dp::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<dp::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let lane = self.lane(&request)?;
        let (journal, scenarios) = (lane.instance.journal.clone(), lane.scenarios.clone());
        Ok(Response::new(owner::watch(journal, scenarios, request.get_ref().after)))
    }

    async fn get_stats(
        &self,
        request: Request<dp::GetStatsRequest>,
    ) -> Result<Response<pb::Stats>, Status> {
        let lane = self.lane(&request)?;
        let pause = {
            let mut state = lane.instance.fake.state();
            state.reads += 1;
            state.pause
        };
        tokio::time::sleep(pause).await;
        let mut state = lane.instance.fake.state();
        state.marks += u64::from(request.get_ref().mark);
        let (generation, lossy) = (state.generation, state.lossy);
        Ok(Response::new(pb::Stats { generation, lossy, ..state.stats.clone() }))
    }

    type CaptureStream = ReceiverStream<Result<pb::CaptureChunk, Status>>;

    async fn capture(
        &self,
        request: Request<pb::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let lane = self.lane(&request)?;
        let mut state = lane.instance.fake.state();
        state.captures.push(request.into_inner());
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        let (chunks, waits) = (state.capture.clone(), state.capture_waits);
        let (sender, receiver) = mpsc::channel(1);
        state.capturing += 1;
        let fake = lane.instance.fake.clone();
        tokio::spawn(async move {
            for chunk in chunks {
                if sender.send(Ok(chunk)).await.is_err() {
                    break;
                }
            }
            if waits {
                sender.closed().await;
            }
            fake.state().capturing -= 1;
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn list_links(
        &self,
        _: Request<dp::ListLinksRequest>,
    ) -> Result<Response<dp::ListLinksResponse>, Status> {
        let state = self.main.instance.fake.state();
        let main = pb::NamedLink { name: link_name(MAIN_LINK), ..Default::default() };
        let links = std::iter::once(main).chain(state.named.values().cloned()).collect();
        let rules = Some(state.rules.clone());
        Ok(Response::new(dp::ListLinksResponse { links, rules, instance: state.instance }))
    }

    async fn add_link(
        &self,
        request: Request<dp::AddLinkRequest>,
    ) -> Result<Response<dp::AddLinkResponse>, Status> {
        let link = request.into_inner().link.unwrap_or_default();
        let name = link_id(&link.name).to_owned();
        let fake = {
            let mut state = self.main.instance.fake.state();
            if let Some(status) = &state.refuse {
                return Err(status.clone());
            }
            if state.named.contains_key(&name) || name == MAIN_LINK {
                return Err(Status::already_exists(format!("there is a link `{name}` already")));
            }
            state.named.insert(name.clone(), link.clone());
            let fake = FakeDataplane::default();
            fake.state().instance = state.instance;
            fake.state().link.clone_from(&name);
            state.links.insert(name.clone(), fake.clone());
            fake
        };
        self.lanes().insert(name, Lane::new(fake));
        Ok(Response::new(dp::AddLinkResponse { link: Some(link) }))
    }

    async fn remove_link(
        &self,
        request: Request<dp::RemoveLinkRequest>,
    ) -> Result<Response<dp::RemoveLinkResponse>, Status> {
        let name = request.into_inner().name;
        let name = link_id(&name);
        let mut state = self.main.instance.fake.state();
        if state.named.remove(name).is_none() {
            return Err(Status::not_found(format!("there is no link `{name}`")));
        }
        state.links.remove(name);
        self.lanes().remove(name);
        Ok(Response::new(dp::RemoveLinkResponse {}))
    }

    async fn set_link_rules(
        &self,
        request: Request<dp::SetLinkRulesRequest>,
    ) -> Result<Response<dp::SetLinkRulesResponse>, Status> {
        self.lane(&request)?;
        let link = request.metadata().get(LINK_METADATA).and_then(|name| name.to_str().ok());
        let link = link_name(link_id(link.unwrap_or(MAIN_LINK)));
        let mut rules = request.into_inner().rules;
        rules.iter_mut().for_each(|rule| rule.link.clone_from(&link));
        let mut state = self.main.instance.fake.state();
        rules.extend(state.rules.rules.iter().filter(|rule| rule.link != link).cloned());
        let generation = state.rules.generation + 1;
        let effective_utc = Some(SystemTime::now().into());
        state.rules = pb::LinkRules { rules, effective_utc, generation };
        Ok(Response::new(dp::SetLinkRulesResponse { rules: Some(state.rules.clone()) }))
    }

    async fn withdraw(
        &self,
        request: Request<dp::WithdrawRequest>,
    ) -> Result<Response<dp::WithdrawResponse>, Status> {
        let lane = self.lane(&request)?;
        lane.instance.fake.state().withdrawals += 1;
        lane.instance.fake.withdraw();
        let (holds, skew_ns) = {
            let state = lane.instance.fake.state();
            (state.holds.clone(), state.skew_ns)
        };
        let mut on_hold = BTreeMap::new();
        for (since_ns, hold) in holds {
            match hold.hold_ns {
                Some(_) => on_hold.insert(hold.client, since_ns),
                None => on_hold.remove(&hold.client),
            };
        }
        let held = |(client, since_ns): (String, u64)| {
            let since_ns = since_ns.saturating_add_signed(skew_ns);
            dp::HeldClient { client, since_ns }
        };
        let on_hold = on_hold.into_iter().map(held).collect();
        Ok(Response::new(dp::WithdrawResponse { on_hold }))
    }

    async fn hold_clients(
        &self,
        request: Request<dp::HoldClientsRequest>,
    ) -> Result<Response<dp::HoldClientsResponse>, Status> {
        let lane = self.lane(&request)?;
        let mut state = lane.instance.fake.state();
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        let now_ns = FakeDataplane::common_ns();
        let holds = request.into_inner().clients.into_iter().map(|hold| (now_ns, hold));
        state.holds.extend(holds);
        Ok(Response::new(dp::HoldClientsResponse {}))
    }

    async fn look_at_clients(
        &self,
        request: Request<dp::LookAtClientsRequest>,
    ) -> Result<Response<dp::LookAtClientsResponse>, Status> {
        let lane = self.lane(&request)?;
        let mut state = lane.instance.fake.state();
        let asked = request.into_inner().clients;
        state.looked += asked.len() as u64;
        let look = |client: &String| state.looks.get(client).copied().unwrap_or_default();
        let clients = asked.iter().map(look).collect();
        Ok(Response::new(dp::LookAtClientsResponse { clients }))
    }
}
