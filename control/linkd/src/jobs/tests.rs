// SPDX-License-Identifier: Apache-2.0
use super::*;
use fit::fitted::Options;
use spec::{Task, bounded};
use tonic::Code;

fn spec() -> Spec {
    let task = Task::Fit(Box::new(Options::new("mine")));
    Spec { read: bounded(), file_name: "ping.log".into(), task }
}

fn part(job: &pb::Job, offset: u64, data: &[u8]) -> pb::UploadJobInputRequest {
    let input = pb::JobInput::Baseline as i32;
    pb::UploadJobInputRequest { job: job.name.clone(), input, offset, data: data.to_vec() }
}

fn jobs() -> (tempfile::TempDir, Jobs) {
    let directory = tempfile::tempdir().unwrap();
    let jobs = Jobs::new(Some(directory.path().to_owned()));
    (directory, jobs)
}

#[tokio::test]
async fn waiting_job_expires_after_its_last_upload_with_its_log() {
    let (directory, jobs) = jobs();
    let job = jobs.create("bob", spec()).unwrap();
    jobs.upload(part(&job, 0, b"1,2\n")).await.unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the file has a name");
    jobs.sweep_at(Instant::now() + WAITING - Duration::from_secs(5));
    let inputs = jobs.get(&job.name).unwrap().inputs;
    assert_eq!(inputs, [pb::JobInputSize { input: pb::JobInput::Baseline as i32, bytes: 4 }]);
    jobs.sweep_at(Instant::now() + WAITING + Duration::from_secs(5));
    assert_eq!(jobs.get(&job.name).unwrap_err().code(), Code::NotFound);
}

#[test]
fn job_that_runs_for_too_long_fails_and_later_expires() {
    let (_directory, jobs) = jobs();
    let job = jobs.create("bob", spec()).unwrap();
    {
        let mut table = jobs.table();
        let job = table.find(&job.name).unwrap();
        job.started = Some((Instant::now(), SystemTime::now()));
        (job.state, job.expires) = (pb::JobState::Running, None);
    }
    jobs.sweep_at(Instant::now() + RUNNING - Duration::from_secs(5));
    assert_eq!(jobs.get(&job.name).unwrap().state(), pb::JobState::Running);
    jobs.sweep_at(Instant::now() + RUNNING + Duration::from_secs(5));
    let failed = jobs.get(&job.name).unwrap();
    assert_eq!(failed.state(), pb::JobState::Failed);
    assert!(failed.message.contains("longer than 30 minutes"), "{}", failed.message);
    jobs.sweep_at(Instant::now() + ENDED + Duration::from_secs(5));
    assert!(jobs.list().is_empty());
}

#[test]
fn number_of_jobs_is_bounded_and_those_that_ended_make_room() {
    let (_directory, jobs) = jobs();
    let all: Vec<_> = (0..KEPT).map(|_| jobs.create("bob", spec()).unwrap()).collect();
    let refused = jobs.create("bob", spec()).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    jobs.cancel(&all[3].name).unwrap();
    jobs.create("bob", spec()).unwrap();
    assert_eq!(jobs.get(&all[3].name).unwrap_err().code(), Code::NotFound);
    jobs.delete(&all[0].name).unwrap();
    jobs.create("bob", spec()).unwrap();
    assert_eq!(jobs.list().len(), KEPT);
}

#[tokio::test]
async fn parts_of_a_log_follow_each_other_within_the_limits() {
    let (_directory, jobs) = jobs();
    let job = jobs.create("bob", spec()).unwrap();
    let upload = async |offset, data: &[u8]| {
        jobs.upload(part(&job, offset, data)).await.map_err(|status| status.code())
    };
    assert_eq!(upload(1, b"x").await, Err(Code::OutOfRange));
    assert_eq!(upload(0, b"").await, Err(Code::InvalidArgument));
    assert_eq!(upload(0, &vec![0; (2 << 20) + 1]).await, Err(Code::InvalidArgument));
    assert_eq!(upload(0, b"one").await, Ok(3));
    assert_eq!(upload(2, b"two").await, Err(Code::OutOfRange));
    assert_eq!(upload(u64::MAX, b"two").await, Err(Code::OutOfRange));
    assert_eq!(upload(3, b"two").await, Ok(6));
    assert_eq!(upload(0, b"three").await, Ok(5), "the log was not replaced");
    let measured = pb::JobInput::Measured as i32;
    let other = pb::UploadJobInputRequest { input: measured, ..part(&job, 0, b"x") };
    assert_eq!(jobs.upload(other).await.unwrap_err().code(), Code::InvalidArgument);
    // As if so much were there.
    let fill = |bytes| {
        let mut table = jobs.table();
        let uploads = &mut table.find(&job.name).unwrap().uploads;
        uploads.get_mut(&pb::JobInput::Baseline).unwrap().bytes = bytes;
    };
    fill((256 << 20) - 1);
    assert_eq!(upload((256 << 20) - 1, b"xx").await, Err(Code::ResourceExhausted));
    fill(1 << 30);
    let another = jobs.create("bob", spec()).unwrap();
    let refused = jobs.upload(part(&another, 0, b"x")).await.unwrap_err();
    assert!(refused.message().contains("1024 MiB"), "{refused}");
    let certificate = pb::JobInput::BaselineCertificate as i32;
    fill(5);
    let whole = pb::UploadJobInputRequest {
        input: certificate,
        ..part(&job, 0, &vec![b' '; (1 << 20) + 1])
    };
    assert_eq!(jobs.upload(whole).await.unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn fault_of_a_computation_ends_in_a_failed_job() {
    let (_directory, jobs) = jobs();
    let job = jobs.create("bob", spec()).unwrap();
    jobs.upload(part(&job, 0, b"1,2\n")).await.unwrap();
    jobs.start(&job.name).unwrap();
    // Its thread has the log. Another job may run after it, whatever it ends with.
    while jobs.get(&job.name).unwrap().state() != pb::JobState::Failed {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let message = jobs.get(&job.name).unwrap().message;
    assert!(message.starts_with("ping.log: "), "{message}");
    assert!(jobs.table().thread.is_none());
    let again = jobs.start(&job.name).unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
}
