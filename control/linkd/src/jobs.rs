// SPDX-License-Identifier: Apache-2.0
//! Fits and verifications on the machine of linkd (docs/adr/0083).
//!
//! One job runs at a time, on its own thread with the scheduling class of idle work; others wait in the
//! order of their start. Logs are in unnamed files below the state directory, which the kernel removes
//! with linkd. All else is in memory and bounded: jobs, uploads, probes of a log, and time.
//!
//! The thread of a job shares no lock with others: it reports by atomics, and watchers poll them. A
//! thread of the lowest priority that holds a lock could stop linkd on a busy machine.

mod control;
mod run;
mod spec;
mod upload;

pub(crate) use control::Control;
pub(crate) use spec::Spec;

use crate::refusal::clip;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tonic::Status;
use upload::Upload;

/// Jobs that are kept, and those of them that can wait or run.
const KEPT: usize = 8;
/// A job that waits expires so long after its last upload.
const WAITING: Duration = Duration::from_secs(15 * 60);
/// A job that has ended expires after this time.
const ENDED: Duration = Duration::from_secs(3600);
/// Longest run of a job.
const RUNNING: Duration = Duration::from_secs(30 * 60);
/// How often expiry is checked.
const SWEEP: Duration = Duration::from_secs(1);
/// Prefix of the resource names of jobs.
const JOBS: &str = "jobs/";

/// The jobs; clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Jobs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Where logs are uploaded to.
    directory: PathBuf,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// In the order of creation.
    jobs: Vec<Entry>,
    /// The control of the thread that runs. Its job may have been cancelled or deleted.
    thread: Option<Arc<Control>>,
    /// Number of the next start.
    starts: u64,
}

#[derive(Debug)]
struct Entry {
    id: String,
    who: String,
    spec: Arc<Spec>,
    state: pb::JobState,
    uploads: BTreeMap<pb::JobInput, Upload>,
    /// True while a part of a log is written.
    is_uploading: bool,
    control: Arc<Control>,
    /// Order of the starts.
    start: u64,
    created: SystemTime,
    started: Option<(Instant, SystemTime)>,
    ended: Option<SystemTime>,
    expires: Option<Expiry>,
    message: String,
    result: Option<pb::job::Result>,
}

/// When a job expires, by the clock that decides and by that of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Expiry(Instant, SystemTime);

impl Expiry {
    fn after(time: Duration) -> Option<Self> {
        Some(Self(Instant::now() + time, SystemTime::now() + time))
    }
}

/// How the computation of a job ended.
type Outcome = Result<pb::job::Result, String>;

impl Jobs {
    /// Without a state directory, logs are in that of temporary files.
    pub fn new(directory: Option<PathBuf>) -> Self {
        let directory = directory.unwrap_or_else(std::env::temp_dir);
        Self(Arc::new(Shared { directory, table: Mutex::default() }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job that waits for its logs. If there are as many as are kept, the one that ended first
    /// makes room.
    pub fn create(&self, who: &str, spec: Spec) -> Result<pb::Job, Status> {
        let id = getrandom::u64().map_err(|error| {
            Status::unavailable(format!("the system gives no random numbers: {error}"))
        })?;
        let mut table = self.table();
        if table.jobs.len() >= KEPT {
            let ended = table.jobs.iter().enumerate().filter(|(_, job)| job.has_ended());
            let first = ended.min_by_key(|(_, job)| job.expires).map(|(place, _)| place);
            let Some(first) = first else {
                return Err(Status::resource_exhausted(format!(
                    "{KEPT} jobs wait or run, the most: wait for one to end, or delete one"
                )));
            };
            table.jobs.remove(first);
        }
        table.jobs.push(Entry {
            id: format!("{:012x}", id & 0xffff_ffff_ffff),
            who: who.to_owned(),
            spec: Arc::new(spec),
            state: pb::JobState::WaitingForInput,
            uploads: BTreeMap::new(),
            is_uploading: false,
            control: Arc::default(),
            start: 0,
            created: SystemTime::now(),
            started: None,
            ended: None,
            expires: Expiry::after(WAITING),
            message: String::new(),
            result: None,
        });
        table.jobs.last().map(Entry::message).ok_or_else(|| Status::internal("no job was added"))
    }

    /// A job by its resource name, without its result.
    pub fn get(&self, name: &str) -> Result<pb::Job, Status> {
        self.table().find(name).map(|job| job.message())
    }

    /// A job with its result.
    pub fn whole(&self, name: &str) -> Result<pb::Job, Status> {
        self.table().find(name).map(|job| pb::Job { result: job.result.clone(), ..job.message() })
    }

    pub fn list(&self) -> Vec<pb::Job> {
        self.table().jobs.iter().map(Entry::message).collect()
    }

    /// Starts a job, or queues it. Call within a tokio runtime.
    pub fn start(&self, name: &str) -> Result<pb::Job, Status> {
        let mut table = self.table();
        table.starts += 1;
        let number = table.starts;
        let job = table.find(name)?;
        job.waiting("start")?;
        for input in job.spec.needed() {
            if job.uploads.get(&input).is_none_or(|upload| upload.bytes == 0) {
                let message = format!(
                    "{} was not uploaded: upload it with UploadJobInput first",
                    input.as_str_name()
                );
                return Err(Status::failed_precondition(message));
            }
        }
        (job.state, job.start, job.expires) = (pb::JobState::Queued, number, None);
        self.next(&mut table);
        table.find(name).map(|job| job.message())
    }

    /// Runs the job that was queued first, if none runs.
    fn next(&self, table: &mut Table) {
        if table.thread.is_some() {
            return;
        }
        let queued = table.jobs.iter_mut().filter(|job| job.state == pb::JobState::Queued);
        let Some(job) = queued.min_by_key(|job| job.start) else { return };
        job.state = pb::JobState::Running;
        job.started = Some((Instant::now(), SystemTime::now()));
        let uploads = std::mem::take(&mut job.uploads);
        match run::spawn(job.spec.clone(), uploads, job.control.clone()) {
            Ok(outcome) => {
                let (jobs, control) = (self.clone(), job.control.clone());
                table.thread = Some(control.clone());
                tokio::spawn(async move {
                    let outcome = outcome.await;
                    let lost = || Err("its thread ended without a result".to_owned());
                    jobs.finished(&control, outcome.unwrap_or_else(|_| lost()));
                });
            }
            Err(error) => job.end(Err(format!("no thread for it: {error}; try again later"))),
        }
    }

    /// The thread of a job has ended.
    fn finished(&self, control: &Arc<Control>, outcome: Outcome) {
        let mut table = self.table();
        table.thread = None;
        let own = table.jobs.iter_mut().find(|job| Arc::ptr_eq(&job.control, control));
        if let Some(job) = own.filter(|job| job.state == pb::JobState::Running) {
            job.end(outcome);
        }
        self.next(&mut table);
    }

    pub fn cancel(&self, name: &str) -> Result<pb::Job, Status> {
        let mut table = self.table();
        let job = table.find(name)?;
        if !job.has_ended() {
            job.control.cancel();
            job.end(Err("it was cancelled".into()));
            job.state = pb::JobState::Cancelled;
        }
        Ok(job.message())
    }

    pub fn delete(&self, name: &str) -> Result<(), Status> {
        let mut table = self.table();
        let job = table.find(name)?;
        job.control.cancel();
        let id = job.id.clone();
        table.jobs.retain(|job| job.id != id);
        Ok(())
    }

    /// Deletes jobs that expire, and ends those that run for too long. Does not return.
    pub async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            ticks.tick().await;
            self.sweep_at(Instant::now());
        }
    }

    fn sweep_at(&self, now: Instant) {
        let mut table = self.table();
        let expired = |job: &Entry| job.expires.is_some_and(|Expiry(at, _)| at <= now);
        table.jobs.retain(|job| job.is_uploading || !expired(job));
        for job in &mut table.jobs {
            let since = job.started.map(|(since, _)| now.saturating_duration_since(since));
            if job.state == pb::JobState::Running && since.is_some_and(|since| since > RUNNING) {
                job.control.cancel();
                let minutes = RUNNING.as_secs() / 60;
                job.end(Err(format!(
                    "it took longer than {minutes} minutes, the most: give a shorter log, or use \
                     linkctl"
                )));
            }
        }
    }

    /// Ends the computation that runs.
    pub fn stop(&self) {
        if let Some(thread) = &self.table().thread {
            thread.cancel();
        }
    }
}

impl Table {
    fn find(&mut self, name: &str) -> Result<&mut Entry, Status> {
        let id = name.strip_prefix(JOBS).unwrap_or(name);
        self.jobs.iter_mut().find(|job| job.id == id).ok_or_else(|| {
            let name = clip(name);
            Status::not_found(format!("there is no job {name:?}: it was deleted, or has expired"))
        })
    }
}

impl Entry {
    fn has_ended(&self) -> bool {
        use pb::JobState::{Cancelled, Done, Failed};
        [Done, Failed, Cancelled].contains(&self.state)
    }

    /// Checks that it was not started.
    fn waiting(&self, to: &str) -> Result<(), Status> {
        if self.state == pb::JobState::WaitingForInput && !self.is_uploading {
            return Ok(());
        }
        let why = match self.is_uploading {
            true => "a part of its log is being uploaded",
            false => "it was started before",
        };
        Err(Status::failed_precondition(format!("cannot {to} the job: {why}")))
    }

    /// Ends it. Its logs are dropped.
    fn end(&mut self, outcome: Outcome) {
        self.uploads.clear();
        self.ended = Some(SystemTime::now());
        self.expires = Expiry::after(ENDED);
        match outcome {
            Ok(result) => (self.state, self.result) = (pb::JobState::Done, Some(result)),
            Err(why) => (self.state, self.message) = (pb::JobState::Failed, clip(&why)),
        }
    }

    fn message(&self) -> pb::Job {
        let timestamp = |time: SystemTime| Some(prost_types::Timestamp::from(time));
        let (step, progress) = match (self.state, self.control.progress()) {
            (pb::JobState::Running, progress) => progress,
            (pb::JobState::Done, _) => ("", 1.0),
            (_, (_, progress)) => ("", progress),
        };
        let inputs = self
            .uploads
            .iter()
            .map(|(input, upload)| pb::JobInputSize { input: *input as i32, bytes: upload.bytes });
        pb::Job {
            name: format!("{JOBS}{}", self.id),
            kind: self.spec.kind() as i32,
            state: self.state as i32,
            baseline: self.spec.baseline().to_owned(),
            subject: self.spec.subject().to_owned(),
            who: self.who.clone(),
            step: step.to_owned(),
            progress,
            inputs: inputs.collect(),
            created: timestamp(self.created),
            started: self.started.and_then(|(_, at)| timestamp(at)),
            ended: self.ended.and_then(timestamp),
            expires: self.expires.and_then(|Expiry(_, at)| timestamp(at)),
            message: self.message.clone(),
            result: None,
        }
    }
}

#[cfg(test)]
mod tests;
