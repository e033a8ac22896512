// SPDX-License-Identifier: Apache-2.0
//! What a job is to do, checked when it is created: profiles are those of that time.

use crate::control::Control;
use crate::{given, refusal};
use fit::baseline::{Format, Spacing};
use fit::fitted::{self, Capacity, Direction, plain_name};
use fit::read::{self, Limits};
use fit::verify::Settings;
use profile::{Profile, Rate};
use proto::linkemu::v1 as pb;
use std::path::Path;
use tonic::Status;

/// Most probes of a log: of a fit, four million take a quarter of a gigabyte and ten seconds of a core.
const PROBES: usize = 4_000_000;
/// Most bytes of an unpacked log.
const UNPACKED: u64 = 512 << 20;
const FILE_NAME_BYTES: usize = 255;
/// Name of a log without one.
const UNNAMED: &str = "log";

#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub read: read::Options,
    /// Name of the baseline's file.
    pub file_name: String,
    pub task: Task,
}

#[derive(Clone, Debug)]
pub(crate) enum Task {
    Fit(Box<fitted::Options>),
    Verify { link: Link, settings: Settings },
}

/// The link that is verified.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    Profile(Box<Profile>),
    /// The name of the file with a measured log.
    Measured(String),
}

impl Spec {
    pub async fn of(control: &Control, request: pb::CreateJobRequest) -> Result<Self, Status> {
        match request.job {
            Some(pb::create_job_request::Job::Fit(fit)) => Self::of_fit(control, fit).await,
            Some(pb::create_job_request::Job::Verify(verify)) => {
                Self::of_verify(control, verify).await
            }
            None => Err(refusal::field("job", "missing: give `fit` or `verify`")),
        }
    }

    async fn of_fit(control: &Control, fit: pb::FitJob) -> Result<Self, Status> {
        let (read, file_name) = log(fit.log.unwrap_or_default(), "fit.log")?;
        let like = match fit.like.as_str() {
            "" => None,
            name => Some(control.named(name).await?),
        };
        let like = like.as_ref().map(Profile::as_proto);
        let capacity = |like: Option<&pb::Pipe>, bps: Option<u64>| {
            let rate = bps.map(|bps| Rate::from_bps(Some(bps)));
            Capacity { like, rate, trace: None, queue_bytes: fit.queue_bytes }.pipe()
        };
        let direction = |direction: i32, field: &str, unspecified| match direction.try_into() {
            Ok(pb::Direction::Unspecified) => Ok(unspecified),
            Ok(pb::Direction::Forward) => Ok(Direction::Forward),
            Ok(pb::Direction::Return) => Ok(Direction::Return),
            Err(_) => Err(refusal::field(field, format!("{direction} is no direction"))),
        };
        let name = match fit.name {
            name if name.is_empty() => plain_name(Path::new(&file_name)),
            name => name,
        };
        let options = fitted::Options {
            name,
            description: fit.description,
            forward: capacity(like.and_then(|of| of.forward_pipe.as_ref()), fit.forward_rate_bps),
            back: capacity(like.and_then(|of| of.return_pipe.as_ref()), fit.return_rate_bps),
            losses_in: direction(fit.losses_in, "fit.losses_in", Direction::Both)?,
            delay_in: direction(fit.delay_in, "fit.delay_in", Direction::Return)?,
            forward_ns: fit.forward_delay_ns,
            isolated_ns: fit.isolated_duration_ns,
            routine_ns: fit.routine_duration_ns,
            rare_ns: fit.rare_duration_ns,
        };
        options.check().map_err(|found| refusal::invalid("the fit", &found))?;
        Ok(Self { read, file_name, task: Task::Fit(Box::new(options)) })
    }

    async fn of_verify(control: &Control, verify: pb::VerifyJob) -> Result<Self, Status> {
        use pb::verify_job::Link as Given;
        let settings = settings(&verify)?;
        let (read, file_name) = log(verify.log.unwrap_or_default(), "verify.log")?;
        let link = match verify.link {
            Some(Given::Profile(name)) => control.named(&name).await?,
            Some(Given::Inline(inline)) => checked(Profile::try_from(inline))?,
            Some(Given::Toml(toml)) => checked(given::text(toml).await?)?,
            Some(Given::Measured(name)) => {
                let link = Link::Measured(named(name, "verify.measured")?);
                return Ok(Self { read, file_name, task: Task::Verify { link, settings } });
            }
            None => {
                let message = "missing: give `profile`, `inline`, `toml` or `measured`";
                return Err(refusal::field("verify.link", message));
            }
        };
        let link = Link::Profile(Box::new(link));
        Ok(Self { read, file_name, task: Task::Verify { link, settings } })
    }

    pub fn kind(&self) -> pb::JobKind {
        match self.task {
            Task::Fit(_) => pb::JobKind::Fit,
            Task::Verify { .. } => pb::JobKind::Verify,
        }
    }

    pub fn baseline(&self) -> &str {
        &self.file_name
    }

    /// The name of the profile, or of the file with the measured log.
    pub fn subject(&self) -> &str {
        match &self.task {
            Task::Fit(options) => &options.name,
            Task::Verify { link: Link::Profile(profile), .. } => profile.name(),
            Task::Verify { link: Link::Measured(name), .. } => name,
        }
    }

    /// Inputs without which it cannot start.
    pub fn needed(&self) -> impl Iterator<Item = pb::JobInput> {
        [Some(pb::JobInput::Baseline), self.is_measured().then_some(pb::JobInput::Measured)]
            .into_iter()
            .flatten()
    }

    pub fn takes(&self, input: pb::JobInput) -> bool {
        use pb::JobInput::{Baseline, BaselineCertificate, Measured, MeasuredCertificate};
        match input {
            Baseline | BaselineCertificate => true,
            Measured | MeasuredCertificate => self.is_measured(),
            pb::JobInput::Unspecified => false,
        }
    }

    fn is_measured(&self) -> bool {
        matches!(self.task, Task::Verify { link: Link::Measured(_), .. })
    }
}

fn settings(verify: &pb::VerifyJob) -> Result<Settings, Status> {
    let usual = Settings::default();
    let seed = verify.seed.unwrap_or(usual.seed);
    let margin = verify.margin.unwrap_or(usual.margin);
    let confidence = verify.confidence.unwrap_or(usual.confidence);
    if !(0.0..=1.0).contains(&margin) {
        return Err(refusal::field("verify.margin", format!("{margin} is not within 0 and 1")));
    }
    if !(0.8..1.0).contains(&confidence) {
        let message = format!("{confidence} is not within 0.8 and below 1");
        return Err(refusal::field("verify.confidence", message));
    }
    Ok(Settings { seed, margin, confidence })
}

fn checked(profile: Result<Profile, profile::Violations>) -> Result<Profile, Status> {
    profile.map_err(|found| refusal::invalid("the profile", &found))
}

/// Options to read any log of a job.
pub(super) fn bounded() -> read::Options {
    let limits = Limits { probes: PROBES, bytes: UNPACKED };
    read::Options { limits, ..read::Options::default() }
}

/// How to read a log, and its name. `place` is the path of the field.
fn log(log: pb::LogOptions, place: &str) -> Result<(read::Options, String), Status> {
    let wrong = |field: &str, message: String| refusal::field(&format!("{place}.{field}"), message);
    let pb::LogOptions { file_name, format, interval_ns, columns, spacing } = log;
    let format = match format.as_str() {
        "" => None,
        text => {
            Some(Format::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
                let names = Format::ALL.map(Format::name).join(", ");
                wrong("format", format!("{:?} is none of {names}", refusal::clip(text)))
            })?)
        }
    };
    let spacing = match spacing.as_str() {
        "" => None,
        "constant" => Some(Spacing::Constant),
        "poisson" => Some(Spacing::Poisson),
        "irregular" => Some(Spacing::Irregular),
        text => {
            let text = refusal::clip(text);
            let message = format!("{text:?} is none of constant, poisson, irregular");
            return Err(wrong("spacing", message));
        }
    };
    let columns = match columns.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|error: read::ReadError| {
            wrong("columns", refusal::clip(&error.to_string()))
        })?),
    };
    let options = read::Options { format, interval_ns, columns, spacing, ..bounded() };
    Ok((options, named(file_name, &format!("{place}.file_name"))?))
}

/// The name of a file, for people.
fn named(name: String, field: &str) -> Result<String, Status> {
    if name.len() > FILE_NAME_BYTES || name.chars().any(char::is_control) {
        let message = format!("give at most {FILE_NAME_BYTES} bytes, and no control characters");
        return Err(refusal::field(field, message));
    }
    // Browsers and programs may give a path: the directories are theirs.
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    Ok(if name.is_empty() { UNNAMED.into() } else { name.into() })
}
