// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Jobs`: fits and verifications.

use crate::caller::Caller;
use crate::jobs::{Jobs, Spec};
use crate::links::Links;
use crate::watching::{Messages, Watching};
use futures_util::stream::unfold;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::jobs_server;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// Between two messages of a watcher.
const PERIOD: Duration = Duration::from_millis(200);

pub(crate) struct JobService {
    pub jobs: Jobs,
    pub links: Links,
    pub watching: Watching,
}

#[tonic::async_trait]
impl jobs_server::Jobs for JobService {
    async fn create_job(
        &self,
        request: Request<pb::CreateJobRequest>,
    ) -> Result<Response<pb::Job>, Status> {
        let caller = Caller::of(&request);
        let spec = Spec::of(&self.links.main().control, request.into_inner()).await?;
        self.jobs.create(&caller.name, spec).map(Response::new)
    }

    async fn upload_job_input(
        &self,
        request: Request<pb::UploadJobInputRequest>,
    ) -> Result<Response<pb::UploadJobInputResponse>, Status> {
        let bytes = self.jobs.upload(request.into_inner()).await?;
        Ok(Response::new(pb::UploadJobInputResponse { bytes }))
    }

    async fn start_job(
        &self,
        request: Request<pb::StartJobRequest>,
    ) -> Result<Response<pb::Job>, Status> {
        self.jobs.start(&request.get_ref().name).map(Response::new)
    }

    async fn get_job(
        &self,
        request: Request<pb::GetJobRequest>,
    ) -> Result<Response<pb::Job>, Status> {
        self.jobs.whole(&request.get_ref().name).map(Response::new)
    }

    async fn list_jobs(
        &self,
        _: Request<pb::ListJobsRequest>,
    ) -> Result<Response<pb::ListJobsResponse>, Status> {
        Ok(Response::new(pb::ListJobsResponse { jobs: self.jobs.list() }))
    }

    type WatchJobStream = Messages<pb::Job>;

    async fn watch_job(
        &self,
        request: Request<pb::WatchJobRequest>,
    ) -> Result<Response<Self::WatchJobStream>, Status> {
        let watch = self.watching.begin(&request)?;
        let name = request.into_inner().name;
        self.jobs.get(&name)?;
        let jobs = self.jobs.clone();
        // The job that was sent last; none after its end.
        let changes = unfold((Some(None), jobs, name), |(last, jobs, name)| async move {
            let last = last?;
            let job = loop {
                if last.is_some() {
                    tokio::time::sleep(PERIOD).await;
                }
                match jobs.get(&name) {
                    Ok(job) if last.as_ref() == Some(&job) => {}
                    job => break job,
                }
            };
            let last = job.as_ref().ok().filter(|job| !has_ended(job)).cloned().map(Some);
            Some((job, (last, jobs, name)))
        });
        Ok(watch.answer(changes))
    }

    async fn cancel_job(
        &self,
        request: Request<pb::CancelJobRequest>,
    ) -> Result<Response<pb::Job>, Status> {
        self.jobs.cancel(&request.get_ref().name).map(Response::new)
    }

    async fn delete_job(
        &self,
        request: Request<pb::DeleteJobRequest>,
    ) -> Result<Response<pb::DeleteJobResponse>, Status> {
        self.jobs.delete(&request.get_ref().name)?;
        Ok(Response::new(pb::DeleteJobResponse {}))
    }
}

fn has_ended(job: &pb::Job) -> bool {
    use pb::JobState::{Cancelled, Done, Failed};
    [Done, Failed, Cancelled].contains(&job.state())
}
