// SPDX-License-Identifier: Apache-2.0
//! Fits and verifications on the machine of linkd.

use crate::common::Lab;
use fit::fitted::{Options, fit};
use fit::read::{self, read_open};
use fit::verify::{play, regular};
use profile::Catalog;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::jobs_client::JobsClient;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Time limit for events that must happen: the jobs of tests that run beside others get little time.
const PATIENCE: Duration = Duration::from_secs(120);
/// Published figures of three million probes: playing them takes seconds.
const PUBLISHED: &str = include_str!("../../fit/baselines/viasat2.toml");

/// The output of ping over the built-in `viasat2`.
pub fn ping(probes: u64) -> String {
    let catalog = Catalog::built_in();
    let series = play(catalog.get("viasat2").unwrap(), 1, regular(200_000_000, probes)).unwrap();
    let mut text = "PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n".to_owned();
    for (number, probe) in (1..).zip(series.iter()) {
        if let Some(rtt_ns) = probe.rtt_ns {
            writeln!(
                text,
                "[{:.6}] 64 bytes from 10.0.0.1: icmp_seq={} ttl=64 time={:.1} ms",
                1_600_000_000.0 + (probe.sent_ns + rtt_ns) as f64 / 1e9,
                number % 65_536,
                rtt_ns as f64 / 1e6,
            )
            .unwrap();
        }
    }
    text
}

struct Desk {
    lab: Lab,
    client: JobsClient<Channel>,
}

impl Desk {
    fn new() -> Self {
        let lab = Lab::new();
        let client = JobsClient::new(lab.linkd());
        Self { lab, client }
    }

    async fn create(&mut self, job: pb::create_job_request::Job) -> Result<pb::Job, Status> {
        let request = pb::CreateJobRequest { job: Some(job) };
        self.client.create_job(request).await.map(|answer| answer.into_inner())
    }

    async fn fit(&mut self) -> pb::Job {
        let log = pb::LogOptions { file_name: "/home/bob/ping.log".into(), ..Default::default() };
        let fit = pb::FitJob { log: Some(log), like: "viasat2".into(), ..Default::default() };
        self.create(pb::create_job_request::Job::Fit(fit)).await.unwrap()
    }

    async fn verify(&mut self, link: pb::verify_job::Link) -> pb::Job {
        let log = pb::LogOptions { file_name: "ping.log".into(), ..Default::default() };
        let verify = pb::VerifyJob { log: Some(log), link: Some(link), ..Default::default() };
        self.create(pb::create_job_request::Job::Verify(verify)).await.unwrap()
    }

    async fn upload_as(
        &mut self,
        job: &pb::Job,
        input: pb::JobInput,
        data: &[u8],
    ) -> Result<u64, Status> {
        let mut offset = 0;
        for data in data.chunks(100_000) {
            let (job, input, data) = (job.name.clone(), input as i32, data.to_vec());
            let request = pb::UploadJobInputRequest { job, input, offset, data };
            offset = self.client.upload_job_input(request).await?.into_inner().bytes;
        }
        Ok(offset)
    }

    async fn upload(&mut self, job: &pb::Job, data: &[u8]) {
        let bytes = self.upload_as(job, pb::JobInput::Baseline, data).await.unwrap();
        assert_eq!(bytes, data.len() as u64);
    }

    async fn start(&mut self, job: &pb::Job) -> pb::Job {
        let request = pb::StartJobRequest { name: job.name.clone() };
        self.client.start_job(request).await.unwrap().into_inner()
    }

    async fn get(&mut self, job: &pb::Job) -> Result<pb::Job, Status> {
        let request = pb::GetJobRequest { name: job.name.clone() };
        self.client.get_job(request).await.map(|answer| answer.into_inner())
    }

    async fn cancel(&mut self, job: &pb::Job) -> pb::Job {
        let request = pb::CancelJobRequest { name: job.name.clone() };
        self.client.cancel_job(request).await.unwrap().into_inner()
    }

    async fn watch(&mut self, job: &pb::Job) -> Result<tonic::Streaming<pb::Job>, Status> {
        let request = pb::WatchJobRequest { name: job.name.clone() };
        self.client.watch_job(request).await.map(|answer| answer.into_inner())
    }

    /// Waits until a job satisfies a condition.
    async fn until(&mut self, job: &pb::Job, done: impl Fn(&pb::Job) -> bool) -> pb::Job {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = self.get(job).await.unwrap();
            if done(&now) {
                return now;
            }
            assert!(Instant::now() < deadline, "{now:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn has_ended(job: &pb::Job) -> bool {
    use pb::JobState::{Cancelled, Done, Failed};
    [Done, Failed, Cancelled].contains(&job.state())
}

#[tokio::test]
async fn fit_and_verification_have_the_results_of_linkctl() {
    let mut desk = Desk::new();
    let log = ping(10_000);
    let job = desk.fit().await;
    assert_eq!((job.state(), job.kind()), (pb::JobState::WaitingForInput, pb::JobKind::Fit));
    // The directories are those of the caller.
    assert_eq!((&*job.baseline, &*job.subject), ("ping.log", "ping"));
    desk.upload(&job, log.as_bytes()).await;
    let mut watching = desk.watch(&job).await.unwrap();
    desk.start(&job).await;
    let mut seen = Vec::new();
    while let Some(job) = watching.message().await.unwrap() {
        seen.push(job);
    }
    assert_eq!(seen.last().unwrap().state(), pb::JobState::Done);
    assert!(seen.windows(2).all(|pair| pair[0].progress <= pair[1].progress), "{seen:?}");
    assert!(seen.iter().all(|job| job.result.is_none()));
    let done = desk.get(&job).await.unwrap();
    assert_eq!(done.progress, 1.0);
    let Some(pb::job::Result::Fit(result)) = done.result else { panic!("{done:?}") };
    // As linkctl computes it.
    let whole = read_open(log.as_bytes(), 0, "ping.log", &read::Options::default()).unwrap();
    let mut options = Options::new("ping");
    let catalog = Catalog::built_in();
    let like = catalog.get("viasat2").unwrap().as_proto();
    let capacity = |like: &Option<pb::Pipe>| {
        let like = like.as_ref();
        fit::fitted::Capacity { like, rate: None, trace: None, queue_bytes: None }.pipe()
    };
    options.forward = capacity(&like.forward_pipe);
    options.back = capacity(&like.return_pipe);
    let fitted = fit(&whole, &options).unwrap();
    assert_eq!(result.toml, fitted.profile.to_toml());
    assert_eq!(result.profile.as_ref(), Some(fitted.profile.as_proto()));
    assert!(result.summary.iter().any(|line| line.name == "losses"), "{:?}", result.summary);
    assert!(result.text.contains("PARAMETER"), "{}", result.text);
    let json: serde_json::Value = serde_json::from_str(&result.json).unwrap();
    assert_eq!(json["samples"], 10_000);
    let [plot] = &*result.plots else { panic!("{:?}", result.plots) };
    assert_eq!(plot.kind(), pb::PlotKind::Exceedance);
    assert!(plot.baseline.len() > 100 && plot.link.len() > 100);
    // The link that the log is of, another one, and the one that was fitted.
    let jobs = [
        pb::verify_job::Link::Profile("viasat2".into()),
        pb::verify_job::Link::Profile("transatlantic".into()),
        pb::verify_job::Link::Toml(result.toml),
    ];
    let mut verdicts = Vec::new();
    for link in jobs {
        let job = desk.verify(link).await;
        desk.upload(&job, log.as_bytes()).await;
        desk.start(&job).await;
        let done = desk.until(&job, has_ended).await;
        let Some(pb::job::Result::Verify(result)) = done.result else { panic!("{done:?}") };
        assert!(result.figures.len() > 5 && result.plots.len() == 4);
        assert!(result.table.contains(&result.text), "{}", result.text);
        let json: serde_json::Value = serde_json::from_str(&result.json).unwrap();
        assert_eq!(json["rows"].as_array().unwrap().len(), result.figures.len());
        verdicts.push(result.verdict());
    }
    assert_ne!(verdicts[0], pb::Verdict::Fail);
    assert_eq!(verdicts[1], pb::Verdict::Fail);
    assert_eq!(verdicts.len(), 3);
    let request = pb::ListJobsRequest {};
    let list = desk.client.list_jobs(request).await.unwrap().into_inner().jobs;
    assert_eq!(list.len(), 4);
    assert!(list.iter().all(|job| job.result.is_none() && job.inputs.is_empty()));
}

#[tokio::test]
async fn measured_log_is_verified_against_a_baseline() {
    let mut desk = Desk::new();
    let job = desk.verify(pb::verify_job::Link::Measured("run.log".into())).await;
    let log = ping(5_000);
    desk.upload(&job, log.as_bytes()).await;
    let early = pb::StartJobRequest { name: job.name.clone() };
    let refused = desk.client.start_job(early).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with("JOB_INPUT_MEASURED"), "{refused}");
    desk.upload_as(&job, pb::JobInput::Measured, log.as_bytes()).await.unwrap();
    desk.start(&job).await;
    let done = desk.until(&job, has_ended).await;
    let Some(pb::job::Result::Verify(result)) = done.result else { panic!("{done:?}") };
    assert_eq!((&*result.profile, result.verdict == pb::Verdict::Fail as i32), ("run.log", false));
}

#[tokio::test]
async fn hostile_logs_end_in_failed_jobs_that_say_why() {
    let mut desk = Desk::new();
    let utf16: Vec<u8> = "time,rtt\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let logs: [(Vec<u8>, &str); 6] = [
        ([&b"\xff\xfe"[..], &utf16[..]].concat(), "UTF-16"),
        (b"\xc3\x28\0\0\0".to_vec(), "binary"),
        (b" \n".to_vec(), "empty"),
        (b"PING 10.0.0.1\n".to_vec(), "no probe"),
        (b"\x1f\x8b\x08\0broken".to_vec(), ""),
        (ping(20).into_bytes(), "too few"),
    ];
    for (log, why) in logs {
        let job = desk.fit().await;
        desk.upload(&job, &log).await;
        desk.start(&job).await;
        let failed = desk.until(&job, has_ended).await;
        assert_eq!(failed.state(), pb::JobState::Failed, "{why}: {failed:?}");
        assert!(failed.message.contains(why), "{why}: {}", failed.message);
        assert!(!failed.message.contains("/tmp"), "{}", failed.message);
    }
    desk.lab.set("viasat2").await.unwrap();
}

#[tokio::test]
async fn requests_that_cannot_be_are_refused() {
    let mut desk = Desk::new();
    let code = |status: Status| status.code();
    let fit = |fit: pb::FitJob| pb::create_job_request::Job::Fit(fit);
    let log = |log: pb::LogOptions| fit(pb::FitJob { log: Some(log), ..Default::default() });
    let text = |text: &str| text.to_owned();
    let wrong = [
        fit(pb::FitJob { like: text("viasat"), ..Default::default() }),
        fit(pb::FitJob { name: text("a b"), ..Default::default() }),
        fit(pb::FitJob { losses_in: 77, ..Default::default() }),
        fit(pb::FitJob { forward_delay_ns: Some(u64::MAX), ..Default::default() }),
        log(pb::LogOptions { format: text("pcap"), ..Default::default() }),
        log(pb::LogOptions { spacing: text("odd"), ..Default::default() }),
        log(pb::LogOptions { columns: text(",,,"), ..Default::default() }),
        log(pb::LogOptions { file_name: "x".repeat(256), ..Default::default() }),
        log(pb::LogOptions { file_name: text("a\x1b[2J"), ..Default::default() }),
    ];
    for job in wrong {
        let code = desk.create(job.clone()).await.map_err(code).unwrap_err();
        assert!([Code::InvalidArgument, Code::NotFound].contains(&code), "{job:?}: {code}");
    }
    for (margin, confidence) in [(f64::NAN, 0.9), (-0.1, 0.9), (0.1, 1.0), (0.1, 0.5)] {
        let link = Some(pb::verify_job::Link::Profile("viasat2".into()));
        let (margin, confidence) = (Some(margin), Some(confidence));
        let verify = pb::VerifyJob { link, margin, confidence, ..Default::default() };
        let refused = desk.create(pb::create_job_request::Job::Verify(verify)).await;
        assert_eq!(refused.map_err(code).unwrap_err(), Code::InvalidArgument);
    }
    let empty = desk.client.create_job(pb::CreateJobRequest { job: None }).await;
    assert_eq!(empty.unwrap_err().code(), Code::InvalidArgument);
    let unknown = pb::Job { name: "jobs/../../etc/passwd".into(), ..Default::default() };
    assert_eq!(desk.get(&unknown).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(desk.watch(&unknown).await.unwrap_err().code(), Code::NotFound);
    let upload = desk.upload_as(&unknown, pb::JobInput::Baseline, b"x").await;
    assert_eq!(upload.unwrap_err().code(), Code::NotFound);
    // A log of no bytes is no log.
    let job = desk.fit().await;
    let request = pb::StartJobRequest { name: job.name.clone() };
    assert_eq!(desk.client.start_job(request).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn cancelled_job_lets_the_next_one_run_and_a_deleted_one_ends_its_watchers() {
    let mut desk = Desk::new();
    let long = desk.verify(pb::verify_job::Link::Profile("viasat2".into())).await;
    desk.upload(&long, PUBLISHED.as_bytes()).await;
    let (next, third) = (desk.fit().await, desk.fit().await);
    for job in [&next, &third] {
        desk.upload(job, ping(2_000).as_bytes()).await;
    }
    let mut watching = desk.watch(&third).await.unwrap();
    desk.start(&long).await;
    let running = desk.until(&long, |job| job.progress > 0.3).await;
    assert_eq!(running.step, "playing the link in virtual time");
    assert_eq!(desk.start(&next).await.state(), pb::JobState::Queued);
    assert_eq!(desk.start(&third).await.state(), pb::JobState::Queued);
    let request = pb::DeleteJobRequest { name: third.name.clone() };
    desk.client.delete_job(request).await.unwrap();
    let end = loop {
        match watching.message().await {
            Ok(Some(job)) => assert_ne!(job.state(), pb::JobState::Running),
            end => break end,
        }
    };
    assert_eq!(end.unwrap_err().code(), Code::NotFound);
    let cancelled = Instant::now();
    assert_eq!(desk.cancel(&long).await.state(), pb::JobState::Cancelled);
    desk.until(&next, |job| job.state() != pb::JobState::Queued).await;
    println!("the thread was free after {:?}", cancelled.elapsed());
    assert_eq!(desk.until(&next, has_ended).await.state(), pb::JobState::Done);
    assert_eq!(desk.get(&long).await.unwrap().state(), pb::JobState::Cancelled);
    assert_eq!(desk.cancel(&next).await.state(), pb::JobState::Done);
    desk.lab.kill_linkd().await;
    desk.lab.start_linkd();
    desk.client = JobsClient::new(desk.lab.linkd());
    assert_eq!(desk.get(&next).await.unwrap_err().code(), Code::NotFound, "jobs end with linkd");
}
