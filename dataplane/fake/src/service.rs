// SPDX-License-Identifier: Apache-2.0
//! `dataplane.v1` of the fake.

use crate::Service;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::Dataplane;
use proto::linkemu::v1 as pb;
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
        _: Request<dp::ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        // For any caller, until the stream ends.
        let token = tokio_stream::once(Ok(dp::ControlResponse { token: 1 }));
        Ok(Response::new(Box::pin(token.chain(tokio_stream::pending()))))
    }

    async fn describe(
        &self,
        _: Request<dp::DescribeRequest>,
    ) -> Result<Response<dp::DescribeResponse>, Status> {
        let state = self.state();
        let (room, instance, switch) = (state.room, state.instance, state.switch.clone());
        let version = "fake".into();
        let described =
            dp::DescribeResponse { version, room, instance, switch, ..Default::default() };
        Ok(Response::new(described))
    }

    async fn apply(
        &self,
        request: Request<dp::ApplyRequest>,
    ) -> Result<Response<dp::ApplyResponse>, Status> {
        let (stall, hesitation) = {
            let state = self.state();
            (state.stall, state.hesitation)
        };
        let request = request.into_inner();
        if let Some(stall) = stall {
            let instance = self.instance.clone();
            tokio::spawn(async move {
                tokio::time::sleep(stall).await;
                instance.apply(request)
            });
            return Err(Status::unavailable("a worker stands still"));
        }
        let answer = self.instance.apply(request);
        tokio::time::sleep(hesitation).await;
        answer.map(Response::new)
    }

    async fn set_offload(
        &self,
        request: Request<dp::SetOffloadRequest>,
    ) -> Result<Response<dp::SetOffloadResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.state();
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
        _: Request<dp::GetPlanRequest>,
    ) -> Result<Response<dp::GetPlanResponse>, Status> {
        let state = self.state();
        Ok(Response::new(dp::GetPlanResponse {
            plan: state.plan.clone(),
            applied: Some(state.applied()),
            remarks: state.remarks(),
            instance: state.instance,
            time_ns: Some(self.instance.fake.now_ns()),
            utc: Some(SystemTime::now().into()),
            ports: Vec::new(),
            unplaced: 0,
        }))
    }

    async fn run_scenario(
        &self,
        request: Request<dp::RunScenarioRequest>,
    ) -> Result<Response<dp::RunScenarioResponse>, Status> {
        self.scenarios.run(request.into_inner()).await.map(Response::new)
    }

    async fn extend_scenario(
        &self,
        request: Request<dp::ExtendScenarioRequest>,
    ) -> Result<Response<dp::ExtendScenarioResponse>, Status> {
        self.scenarios.extend(request.into_inner()).await.map(Response::new)
    }

    async fn pause_scenario(
        &self,
        request: Request<dp::PauseScenarioRequest>,
    ) -> Result<Response<dp::PauseScenarioResponse>, Status> {
        let state = Some(self.scenarios.pause(request.into_inner().who).await?);
        Ok(Response::new(dp::PauseScenarioResponse { state }))
    }

    async fn resume_scenario(
        &self,
        request: Request<dp::ResumeScenarioRequest>,
    ) -> Result<Response<dp::ResumeScenarioResponse>, Status> {
        let state = Some(self.scenarios.resume(request.into_inner().who).await?);
        Ok(Response::new(dp::ResumeScenarioResponse { state }))
    }

    async fn stop_scenario(
        &self,
        request: Request<dp::StopScenarioRequest>,
    ) -> Result<Response<dp::StopScenarioResponse>, Status> {
        let dp::StopScenarioRequest { reason, restore } = request.into_inner();
        let state = Some(self.scenarios.stop(reason, restore).await?);
        Ok(Response::new(dp::StopScenarioResponse { state }))
    }

    async fn notify_scenario(
        &self,
        request: Request<dp::NotifyScenarioRequest>,
    ) -> Result<Response<dp::NotifyScenarioResponse>, Status> {
        let dp::NotifyScenarioRequest { run, index, time_ns } = request.into_inner();
        self.scenarios.notify(run, index, time_ns).await;
        Ok(Response::new(dp::NotifyScenarioResponse {}))
    }

    async fn get_scenario(
        &self,
        request: Request<dp::GetScenarioRequest>,
    ) -> Result<Response<dp::GetScenarioResponse>, Status> {
        Ok(Response::new(self.scenarios.get(&request.get_ref().key).await))
    }

    type WatchStream = ReceiverStream<Result<dp::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<dp::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (journal, scenarios) = (self.instance.journal.clone(), self.scenarios.clone());
        Ok(Response::new(owner::watch(journal, scenarios, request.get_ref().after)))
    }

    async fn get_stats(
        &self,
        request: Request<dp::GetStatsRequest>,
    ) -> Result<Response<pb::Stats>, Status> {
        let pause = {
            let mut state = self.state();
            state.reads += 1;
            state.pause
        };
        tokio::time::sleep(pause).await;
        let mut state = self.state();
        state.marks += u64::from(request.get_ref().mark);
        let (generation, lossy) = (state.generation, state.lossy);
        Ok(Response::new(pb::Stats { generation, lossy, ..state.stats.clone() }))
    }

    type CaptureStream = ReceiverStream<Result<pb::CaptureChunk, Status>>;

    async fn capture(
        &self,
        request: Request<pb::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let mut state = self.state();
        state.captures.push(request.into_inner());
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        let (chunks, waits) = (state.capture.clone(), state.capture_waits);
        let (sender, receiver) = mpsc::channel(1);
        state.capturing += 1;
        let fake = self.instance.fake.clone();
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
}
