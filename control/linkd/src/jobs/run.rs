// SPDX-License-Identifier: Apache-2.0
//! The computation of a job, on its own thread of the lowest priority.

use super::spec::{Link, Spec, Task, bounded};
use super::upload::Upload;
use super::{Control, Outcome};
use fit::baseline::Baseline;
use fit::emulator::certify_with;
use fit::fitted::{self, Fitted, summary, text};
use fit::read::{self, Input, ReadError, read_open};
use fit::report;
use fit::verify::{
    Comparison, Pair, Row, Settings, Verdict, VerifyError, View, against_log, against_profile,
    check_baseline, distributions,
};
use fit::work::{observe, phase};
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A debug build has large frames.
const STACK: usize = 8 << 20;
/// Most points of a plotted curve.
const POINTS: usize = 2_000;
/// The line of the summary that names the next command, which depends on where the profile is.
const NEXT: &str = "next";

type Uploads = BTreeMap<pb::JobInput, Upload>;

/// Starts the thread of a job.
pub(super) fn spawn(
    spec: Arc<Spec>,
    uploads: Uploads,
    control: Arc<Control>,
) -> io::Result<oneshot::Receiver<Outcome>> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("job".into()).stack_size(STACK);
    thread.spawn(move || {
        yield_to_all();
        let computation = || observe(control, || compute(&spec, &uploads));
        let outcome = match catch_unwind(AssertUnwindSafe(computation)) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(cancelled)) => Err(cancelled.to_string()),
            Err(panic) => Err(panicked(&*panic)),
        };
        let _ = sender.send(outcome);
    })?;
    Ok(receiver)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason");
    format!(
        "linkd cannot compute this, which is a fault of it; please report it with the log: {text}"
    )
}

/// Puts this thread behind all others of the machine: SCHED_IDLE (sched(7)), or niceness 19 where that
/// is not allowed.
#[allow(unsafe_code, reason = "no safe wrapper of sched_setscheduler is at hand")]
fn yield_to_all() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is valid for the duration of the call. Zero is the calling thread.
    let idle = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    if idle == 0 {
        return;
    }
    // On Linux, this is the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::warn!(%error, "a job runs at normal priority");
    }
}

fn compute(spec: &Spec, uploads: &Uploads) -> Outcome {
    phase(0.0, 0.3);
    let certificate = uploads.get(&pb::JobInput::BaselineCertificate);
    let baseline = uploads.get(&pb::JobInput::Baseline);
    let input = read(baseline, certificate, &spec.file_name, &spec.read)?;
    match &spec.task {
        Task::Fit(options) => fit(spec, &input, options).map(pb::job::Result::Fit),
        Task::Verify { link, settings } => {
            let comparison = compare(&input, link, uploads, settings);
            verified(&comparison?).map(pb::job::Result::Verify)
        }
    }
}

/// Reads a log, and the certificate of its run if there is one.
fn read(
    log: Option<&Upload>,
    certificate: Option<&Upload>,
    name: &str,
    options: &read::Options,
) -> Result<Input, String> {
    let Upload { file, bytes } = log.ok_or("the log is missing")?;
    let log = At { file, at: 0, bytes: *bytes };
    let mut input = read_open(log, *bytes, name, options).map_err(|error| match error {
        error @ ReadError::Io { .. } => error.to_string(),
        error => format!("{name}: {error}"),
    })?;
    if let Some(Upload { file, bytes }) = certificate {
        let mut text = Vec::new();
        let mut reader = At { file, at: 0, bytes: *bytes };
        reader.read_to_end(&mut text).map_err(|error| format!("the certificate: {error}"))?;
        certify_with(&mut input, "the certificate", &text).map_err(|error| error.to_string())?;
    }
    Ok(input)
}

/// A file from its beginning to a length.
struct At<'a> {
    file: &'a std::fs::File,
    at: u64,
    bytes: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes - self.at).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

fn fit(spec: &Spec, input: &Input, options: &fitted::Options) -> Result<pb::FitResult, String> {
    phase(0.3, 0.8);
    let fitted = fitted::fit(input, options).map_err(|error| error.to_string())?;
    phase(0.8, 1.0);
    let pair = distributions(input, &fitted.profile, Settings::default().seed);
    let pair = pair.map_err(|error| error.to_string())?;
    let mut lines = summary::lines(&fitted, Path::new(&spec.file_name), None);
    lines.retain(|(name, _)| *name != NEXT);
    let text = text::summary(&fitted, &lines, None) + &text::all(&fitted, None);
    let line = |(name, text): (&str, String)| pb::SummaryLine { name: name.into(), text };
    let json = json(&text::View::new(&fitted, None))?;
    let Fitted { profile, losses, .. } = &fitted;
    Ok(pb::FitResult {
        profile: Some(profile.as_proto().clone()),
        toml: profile.to_toml(),
        losses: losses.as_ref().map(|losses| losses.name.to_owned()).unwrap_or_default(),
        summary: lines.into_iter().map(line).collect(),
        text,
        json,
        plots: vec![plot(pb::PlotKind::Exceedance, &pair)],
    })
}

fn compare(
    input: &Input,
    link: &Link,
    uploads: &Uploads,
    settings: &Settings,
) -> Result<Comparison, String> {
    let text = |error: VerifyError| error.to_string();
    check_baseline(input).map_err(text)?;
    match link {
        Link::Profile(profile) => {
            phase(0.3, 1.0);
            against_profile(input, profile, settings).map_err(text)
        }
        Link::Measured(name) => {
            phase(0.3, 0.6);
            let live = measured(uploads, name)?;
            phase(0.6, 1.0);
            against_log(input, &live, name, settings).map_err(text)
        }
    }
}

fn measured(uploads: &Uploads, name: &str) -> Result<Baseline, String> {
    let certificate = uploads.get(&pb::JobInput::MeasuredCertificate);
    match read(uploads.get(&pb::JobInput::Measured), certificate, name, &bounded())? {
        Input::Log(log) => Ok(log),
        Input::Summary(_) => Err(VerifyError::NoLog(name.to_owned()).to_string()),
    }
}

fn verified(comparison: &Comparison) -> Result<pb::VerifyResult, String> {
    let (_, text) = report::verdict(comparison);
    let plots = &comparison.plots;
    Ok(pb::VerifyResult {
        verdict: verdict(comparison.verdict()) as i32,
        text,
        played: comparison.played.clone(),
        baseline: comparison.baseline.clone(),
        sha256: comparison.sha256.clone(),
        profile: comparison.profile.clone(),
        figures: comparison.rows.iter().map(figure).collect(),
        remarks: comparison.remarks.clone(),
        needed_s: comparison.needed_s(),
        plots: vec![
            plot(pb::PlotKind::Exceedance, &plots.exceedance),
            plot(pb::PlotKind::TimeSeries, &plots.time_series),
            plot(pb::PlotKind::RunLengths, &plots.run_lengths),
            plot(pb::PlotKind::Autocorrelation, &plots.autocorrelation),
        ],
        table: report::text(comparison, None),
        json: json(&View::new(comparison, None))?,
    })
}

fn figure(row: &Row) -> pb::VerifyFigure {
    pb::VerifyFigure {
        group: row.group.title().into(),
        figure: row.figure.clone(),
        unit: row.unit.into(),
        baseline: row.baseline,
        link: row.link,
        tolerance: row.tolerance,
        error: row.error,
        verdict: verdict(row.verdict) as i32,
        because: row.because.clone(),
        needed_s: row.needed_s,
    }
}

fn verdict(verdict: Verdict) -> pb::Verdict {
    match verdict {
        Verdict::Pass => pb::Verdict::Pass,
        Verdict::Fail => pb::Verdict::Fail,
        Verdict::Undecided => pb::Verdict::Undecided,
    }
}

fn plot(kind: pb::PlotKind, pair: &Pair) -> pb::Plot {
    let points = |curve: &[(f64, f64)]| {
        curve.iter().take(POINTS).map(|(x, y)| pb::PlotPoint { x: *x, y: *y }).collect()
    };
    let (baseline, link) = (points(&pair.baseline), points(&pair.link));
    pb::Plot { kind: kind as i32, baseline, link }
}

fn json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| format!("cannot write JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_told_with_its_reason() {
        for (panic, reason) in [
            (catch_unwind(|| panic!("index {}", 7)), ": index 7"),
            (catch_unwind(|| panic!("as it is")), ": as it is"),
            (catch_unwind(|| std::panic::resume_unwind(Box::new(7))), ": unknown reason"),
        ] {
            let message = panicked(&*panic.unwrap_err());
            assert!(message.ends_with(reason), "{message}");
        }
    }

    #[test]
    fn thread_of_a_job_is_behind_all_others() {
        let policy = std::thread::spawn(|| {
            yield_to_all();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // After the name, which may have spaces: the state is field 3, the policy field 41.
            let fields = stat.rsplit_once(") ").unwrap().1;
            let field = |number: usize| fields.split(' ').nth(number - 3).unwrap().to_owned();
            (field(41), field(19))
        });
        let (policy, nice) = policy.join().unwrap();
        assert!(policy == "5" || nice == "19", "policy {policy}, nice {nice}");
    }
}
