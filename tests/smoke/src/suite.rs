// SPDX-License-Identifier: Apache-2.0
//! Harness of the real-time suites (smoke, hw, package, p4): runs tests one at a time and judges
//! each.
//!
//! A test passes, fails, is skipped because the machine lacks something ([`Lack`]), or is void. It
//! is void if it failed, its failure is of a kind that a starved machine causes ([`Timing`]), and
//! there is evidence that the machine was starved ([`crate::starvation`]). A void test is repeated
//! once. If it is void again, it has neither passed nor failed, and a line on standard error has
//! the reason: `VOID: suite::test: reason`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::binaries::{Lack, in_ci};
use crate::cpus::Cpus;
use crate::error::Error;
use crate::estate;
use crate::starvation::Watch;

/// Duration of a test, and when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Seconds: in every run.
    Short,
    /// Minutes: ignored unless `--ignored` is given, as in `make soak`.
    Long,
}

/// Failures that a starved machine can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// All except [`Certain`] ones: the figures of the test depend on scheduling.
    RealTime,
    Patient,
}

/// A failure that a lack of processor time cannot explain, such as packets that are not conserved.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Certain(pub String);

/// A test that is void by evidence from before its start.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Void(pub String);

/// A failure with the output of the programs. It keeps its kind.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Reported {
    message: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Certain,
    Void,
    Timeout,
    Other,
}

/// Adds the output of the programs to a failure.
#[must_use]
pub fn reported(error: &anyhow::Error, report: impl Display) -> anyhow::Error {
    Reported { message: format!("{error:#}\n{report}"), kind: kind(error) }.into()
}

fn kind(error: &anyhow::Error) -> Kind {
    if let Some(reported) = error.downcast_ref::<Reported>() {
        return reported.kind;
    }
    if error.downcast_ref::<Certain>().is_some() {
        return Kind::Certain;
    }
    if error.downcast_ref::<Void>().is_some() {
        return Kind::Void;
    }
    match error.downcast_ref::<Error>() {
        Some(Error::Timeout { .. }) => Kind::Timeout,
        _ => Kind::Other,
    }
}

/// Result of one run of a test.
#[derive(Debug)]
pub enum Judged<T> {
    Passed(T),
    /// Failed on a starved machine: the failure and the evidence.
    Void(String),
    Failed(anyhow::Error),
}

/// Runs a test and judges a failure by the load of the machine during the run.
pub fn judged<T>(
    cpus: &Cpus,
    timing: Timing,
    test: impl FnOnce() -> anyhow::Result<T>,
) -> Judged<T> {
    let watch = Watch::start(cpus);
    let done = test();
    let evidence = watch.finish();
    match done {
        Ok(value) => Judged::Passed(value),
        Err(error) => verdict(error, timing, evidence.starvation()),
    }
}

fn verdict<T>(error: anyhow::Error, timing: Timing, starved: Option<String>) -> Judged<T> {
    let excusable = match kind(&error) {
        Kind::Certain | Kind::Void => false,
        Kind::Timeout => true,
        Kind::Other => timing == Timing::RealTime,
    };
    match starved {
        Some(evidence) if excusable => {
            let text = format!("{error:#}");
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            Judged::Void(format!("{first} [{evidence}]"))
        }
        _ => Judged::Failed(error),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Ran,
    Void(String),
    Skipped(String),
}

#[derive(Debug)]
struct Record {
    name: String,
    took: Duration,
    end: End,
}

#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    begin: Instant,
    arguments: Arguments,
    cpus: Cpus,
    /// The patient tests that run at a time.
    patient: usize,
    /// Tests that run one at a time, and those that may run beside each other.
    trials: [Vec<Trial>; 2],
    records: Arc<Mutex<Vec<Record>>>,
}

impl Suite {
    /// Reads the command line. Tests run one at a time. A signal removes everything that they made.
    pub fn new(name: &'static str) -> anyhow::Result<Self> {
        let arguments = Arguments::from_args();
        estate::watch_signals()?;
        let (cpus, trials, records) = (Cpus::available(), Default::default(), Arc::default());
        Ok(Self { name, begin: Instant::now(), arguments, cpus, patient: 1, trials, records })
    }

    /// Runs the patient tests first, so many at a time: they mostly wait for programs that start and end.
    #[must_use]
    pub fn patient_at_a_time(self, patient: usize) -> Self {
        Self { patient, ..self }
    }

    /// Processors that the suite may use.
    #[must_use]
    pub fn cpus(&self) -> &Cpus {
        &self.cpus
    }

    /// Adds a test. `needs` is called before the test runs.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        form: Form,
        timing: Timing,
        needs: impl FnOnce() -> Result<(), Lack> + Send + 'static,
        mut test: impl FnMut() -> anyhow::Result<()> + Send + 'static,
    ) {
        let name = name.into();
        let (cpus, records) = (self.cpus.clone(), Arc::clone(&self.records));
        let trial = Trial::ignorable_test(name.clone(), move || {
            let begin = Instant::now();
            let done = match needs() {
                Err(lack) => lacking(lack),
                Ok(()) => run(&cpus, timing, &mut test),
            };
            let end = done.as_ref().map_or(End::Ran, Clone::clone);
            locked(&records).push(Record { name, took: begin.elapsed(), end });
            Ok(match done? {
                End::Ran => Completion::Completed,
                End::Void(reason) => Completion::ignored_with(format!("VOID: {reason}")),
                End::Skipped(reason) => Completion::ignored_with(reason),
            })
        });
        let beside = timing == Timing::Patient && self.patient > 1;
        self.trials[usize::from(beside)].push(trial.with_ignored_flag(form == Form::Long));
    }

    /// Runs the tests. The last lines on standard error are the duration of each test, slowest
    /// first, then skipped and void tests, and the totals.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let Self {
            name: suite,
            begin,
            mut arguments,
            patient,
            trials: [alone, beside],
            records,
            ..
        } = self;
        let unasked =
            alone.iter().chain(&beside).filter(|trial| arguments.is_ignored(trial)).count();
        let (mut passed, mut failed) = (0, 0);
        for (trials, at_a_time) in [(beside, patient), (alone, 1)] {
            if !trials.is_empty() {
                arguments.test_threads = Some(at_a_time);
                let conclusion = libtest_mimic::run(&arguments, trials);
                passed += conclusion.num_passed;
                failed += conclusion.num_failed;
            }
        }
        let code = if failed > 0 { ExitCode::from(101) } else { ExitCode::SUCCESS };
        if arguments.list {
            return code;
        }
        let mut records = locked(&records);
        records.sort_by_key(|record| std::cmp::Reverse(record.took));
        let mut void = 0;
        let mut skipped = BTreeMap::<&str, Vec<&str>>::new();
        for Record { name, took, end } in records.iter() {
            if let End::Skipped(reason) = end {
                skipped.entry(reason).or_default().push(name);
            } else {
                eprintln!("{suite}: {:6.1} s {name}", took.as_secs_f64());
            }
        }
        for Record { name, end, .. } in records.iter() {
            if let End::Void(reason) = end {
                void += 1;
                eprintln!("VOID: {suite}::{name}: {reason}");
            }
        }
        for (reason, names) in &skipped {
            match names[..] {
                [name] => eprintln!("SKIPPED: {suite}::{name}: {reason}"),
                _ => eprintln!("SKIPPED: {suite}, {} tests: {reason}", names.len()),
            }
        }
        let skipped: usize = skipped.values().map(Vec::len).sum();
        if unasked > 0 {
            eprintln!("{suite}: {unasked} long forms not run: make soak PART={suite}");
        }
        eprintln!(
            "{suite}: {} passed, {} failed, {void} void, {skipped} skipped in {:.0} s",
            passed,
            failed,
            begin.elapsed().as_secs_f64()
        );
        code
    }
}

fn locked(records: &Mutex<Vec<Record>>) -> MutexGuard<'_, Vec<Record>> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test, and repeats it once if it is void.
fn run(
    cpus: &Cpus,
    timing: Timing,
    test: &mut impl FnMut() -> anyhow::Result<()>,
) -> Result<End, Failed> {
    let mut again = true;
    loop {
        match judged(cpus, timing, &mut *test) {
            Judged::Passed(()) => return Ok(End::Ran),
            Judged::Failed(error) => match error.downcast_ref::<Void>() {
                Some(Void(reason)) => return Ok(End::Void(reason.clone())),
                None => return Err(format!("{error:#}").into()),
            },
            Judged::Void(reason) if again => println!("    VOID, repeated once: {reason}"),
            Judged::Void(reason) => return Ok(End::Void(reason)),
        }
        again = false;
    }
}

/// In CI, parts that the set-up installs must be present.
fn lacking(lack: Lack) -> Result<End, Failed> {
    match lack {
        Lack::Part(reason) if in_ci() => Err(reason.into()),
        Lack::Part(reason) | Lack::Permission(reason) => Ok(End::Skipped(reason)),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    fn timeout() -> anyhow::Error {
        Error::Timeout { what: "a reply".to_owned(), limit: Duration::from_secs(1) }.into()
    }

    fn is_void(error: anyhow::Error, timing: Timing, evidence: Option<&str>) -> bool {
        let judged = verdict::<()>(error, timing, evidence.map(str::to_owned));
        matches!(judged, Judged::Void(_))
    }

    #[test]
    fn failure_without_evidence_is_never_void() {
        for timing in [Timing::RealTime, Timing::Patient] {
            assert!(!is_void(anyhow!("late"), timing, None));
            assert!(!is_void(timeout(), timing, None));
        }
    }

    #[test]
    fn failure_with_evidence_is_void_by_its_kind() {
        let evidence = Some("starved");
        assert!(is_void(anyhow!("late"), Timing::RealTime, evidence));
        assert!(!is_void(anyhow!("wrong"), Timing::Patient, evidence));
        assert!(is_void(timeout().context("boot"), Timing::Patient, evidence));
        let certain = anyhow::Error::from(Certain("lost".to_owned()));
        assert!(!is_void(certain.context("after a run"), Timing::RealTime, evidence));
    }

    #[test]
    fn failure_keeps_its_kind_with_a_report() {
        let certain = Err::<(), _>(Certain("lost".to_owned())).context("accounts").unwrap_err();
        assert_eq!(kind(&reported(&certain, "stats")), Kind::Certain);
        assert_eq!(kind(&reported(&timeout(), "stats").context("more")), Kind::Timeout);
        assert_eq!(kind(&reported(&anyhow!("late"), "stats")), Kind::Other);
    }

    #[test]
    fn void_reason_has_the_first_line_and_the_evidence() {
        let error = reported(&anyhow!("late by 3 s"), "stats: many\nlines");
        let judged = verdict::<()>(error, Timing::RealTime, Some("2 windows".to_owned()));
        assert!(matches!(judged, Judged::Void(why) if why == "late by 3 s [2 windows]"));
    }
}
