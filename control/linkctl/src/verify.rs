// SPDX-License-Identifier: Apache-2.0
//! `linkctl verify`: compares a link with a baseline. Needs no linkd.

use crate::argument;
use crate::baseline::{BaselineArgs, unread};
use crate::complete;
use crate::context::{Context, Output};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::output;
use crate::probe::send;
use crate::terminal::{Stream, spinner, width};
use ::fit::read::{Input, ReadError};
use ::fit::report;
use ::fit::verify::{
    Comparison, Row, Settings, Verdict, VerifyError, View, against_log, against_profile,
    check_baseline, live_plan, read_log,
};
use ::probe::Target;
use clap::{ArgGroup, Args};
use clap_complete::engine::ArgValueCompleter;
use profile::{UnitError, counted, parse_duration, parse_probability};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const EXAMPLES: &str = "\
Compares quantiles, exceedances, losses and their runs, episodes of delay and the autocorrelation.
Each may differ from the baseline by a tolerance, which follows from the margin and the baseline. A
figure passes if it is shown to be inside, fails if it is shown to be outside, and is undecided if the
logs are too short for either. Exit code 0: all figures pass; 4: a figure fails; 5: undecided, with the
length of logs that would decide.

Examples:
  linkctl verify viasat2 --baseline link.csv          in virtual time: seconds
  linkctl verify mine.toml --baseline link.csv --report report.html
  linkctl verify --live far.example --duration 1h --baseline link.csv
  linkctl verify --measured live.csv --baseline link.csv --measured-certificate run.json
  linkctl -o json verify mine.toml --baseline link.csv | jq .verdict

--live sends probes through the current link, at the interval of the baseline, to linkctl probe reflect
at the far end. --measured compares an earlier log. A log does not show whether an emulator in its path
was late: give the certificate of the run, which has to pass (linkctl stats --mark before the first
probe, linkctl -o json certificate after the last one).";

/// Most figures that an error names.
const NAMED: usize = 8;
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).args(["profile", "live", "measured"])))]
pub struct VerifyArgs {
    /// Play this profile in virtual time: the name of a built-in one, or a file
    #[arg(value_name = "NAME|FILE", add = ArgValueCompleter::new(complete::built_in_profile))]
    profile: Option<String>,
    /// Log of the measured link, to compare with
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    #[command(flatten)]
    read: BaselineArgs,
    /// Probe a live link, with linkctl probe reflect at this host
    #[arg(long, value_name = "HOST[:PORT]", requires = "duration")]
    live: Option<Target>,
    /// Duration of the probing
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "live")]
    duration: Option<u64>,
    /// A log that was measured over the link
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    /// Certificate of the emulator for the run of that log; a run that failed is refused
    #[arg(long, value_name = "FILE")]
    measured_certificate: Option<PathBuf>,
    /// Seed of the played link
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Tolerance, as a share of each figure of the baseline: of the distance of a quantile from
    /// the median, and of a minimum where a figure is near zero (docs/modelling.md)
    #[arg(long, value_name = "PERCENT", value_parser = parse_probability, default_value = "20%")]
    margin: f64,
    /// Confidence of the verdict, 80% or more: at 95%, a link outside of the margin passes with a
    /// probability of at most 5%, and so does a link inside of it fail
    #[arg(long, value_name = "PERCENT", value_parser = confidence, default_value = "95%")]
    confidence: f64,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

fn confidence(text: &str) -> Result<f64, String> {
    let p = parse_probability(text).map_err(|error: UnitError| error.to_string())?;
    if (0.8..1.0).contains(&p) {
        Ok(p)
    } else {
        Err(format!("{text:?} is not within 80 % and 100 %"))
    }
}

pub async fn run(context: &Context, args: &VerifyArgs) -> Result<(), Failure> {
    let settings = Settings { seed: args.seed, margin: args.margin, confidence: args.confidence };
    // Clap does not check `requires` where the required argument conflicts with another.
    if args.duration.is_some() && args.live.is_none() {
        return Err(Failure::usage("--duration is for --live: leave it out"));
    }
    if args.measured_certificate.is_some() && args.measured.is_none() {
        return Err(Failure::usage("--measured-certificate is for --measured: leave it out"));
    }
    let destination = args.destination()?;
    // Reading the baseline may take long: other errors come first.
    let profile = args.profile.as_deref().map(argument::profile).transpose()?;
    let bar = spinner(&format!("reading {}", args.baseline.display()));
    // The comparison has its remarks.
    let input = args.read.read(&args.baseline)?;
    let of_baseline = |error| failure("baseline", &args.baseline, error);
    check_baseline(&input).map_err(of_baseline)?;
    let comparison = match (&profile, &args.measured, &args.live) {
        (Some(profile), _, _) => {
            bar.set_message("playing the link in virtual time, and comparing");
            against_profile(&input, profile, &settings).map_err(of_baseline)?
        }
        (None, Some(path), _) => {
            bar.set_message(format!("reading {}, and comparing", path.display()));
            let certificate = args.measured_certificate.as_deref();
            measured(&input, path, certificate, &path.display().to_string(), &settings)?
        }
        (None, None, Some(target)) => {
            bar.finish_and_clear();
            live(args, &input, target, &settings).await?
        }
        (None, None, None) => {
            return Err(Failure::usage("give a profile, --live or --measured: what to compare"));
        }
    };
    bar.finish_and_clear();
    if let Some(destination) = &destination {
        let html = report::html(&comparison)
            .map_err(|error| Failure::failed("report", error.to_string()))?;
        destination.write(&html)?;
    }
    match context.output {
        Output::Json => {
            let report = destination.as_ref().map(|d| d.path().display().to_string());
            output::json(&View::new(&comparison, report))?;
        }
        Output::Text => output::text(&report::text(&comparison, width(Stream::Out)))?,
    }
    verdict(&comparison)
}

/// Maps the verdict to the exit code and the reason.
fn verdict(comparison: &Comparison) -> Result<(), Failure> {
    match comparison.verdict() {
        Verdict::Pass => Ok(()),
        Verdict::Fail => {
            let failed: Vec<_> = comparison.failed().collect();
            let named = named(&failed);
            let figures = counted(
                failed.len(),
                "figure is outside of its tolerance",
                "figures are outside of their tolerances",
            );
            Err(Failure::check(format!("{figures}: {named}")))
        }
        Verdict::Undecided => {
            let open: Vec<_> = comparison.undecided().collect();
            let (n, all, named) = (open.len(), comparison.rows.len(), named(&open));
            let enough = report::needed(comparison.needed_s());
            Err(match n {
                0 => Failure::undecided("no figure could be compared"),
                _ => Failure::undecided(format!(
                    "the logs are too short to decide {n} of {all} figures: {named}"
                ))
                .hint(enough),
            })
        }
    }
}

/// Lists the first figures, under their groups.
fn named(rows: &[&Row]) -> String {
    let mut named = String::new();
    let mut group = None;
    for row in rows.iter().take(NAMED) {
        match group.replace(row.group) {
            Some(before) if before == row.group => named += ", ",
            Some(_) => named += &format!("; {}: ", row.group.title()),
            None => named += &format!("{}: ", row.group.title()),
        }
        named += &row.figure;
    }
    if rows.len() > NAMED {
        named += &format!("; and {} more", rows.len() - NAMED);
    }
    named
}

impl VerifyArgs {
    fn destination(&self) -> Result<Option<Destination>, Failure> {
        let inputs = [
            Some(&self.baseline),
            self.measured.as_ref(),
            self.read.certificate.as_ref(),
            self.measured_certificate.as_ref(),
        ];
        let mut inputs: Vec<&Path> = inputs.into_iter().flatten().map(PathBuf::as_path).collect();
        inputs.extend(self.profile.as_deref().map(Path::new));
        let path = self.report.as_deref();
        path.map(|path| Destination::new("--report", path, &inputs)).transpose()
    }
}

/// Measures a live link like the baseline was measured, and compares.
async fn live(
    args: &VerifyArgs,
    input: &Input,
    target: &Target,
    settings: &Settings,
) -> Result<Comparison, Failure> {
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::failed("io", format!("no temporary folder: {error}")))?;
    let log = folder.path().join("live.csv");
    let duration = Duration::from_nanos(args.duration.unwrap_or(0));
    send::measure(&live_plan(input, target.clone(), duration), &log, false).await?;
    measured(input, &log, None, &format!("live link to {target}"), settings).map_err(|failure| {
        // The measurement may have taken hours.
        let kept = folder.keep().join("live.csv");
        failure.hint(format!("what was measured is kept: {}", kept.display()))
    })
}

/// Compares a log that was measured over the link.
fn measured(
    input: &Input,
    log: &Path,
    certificate: Option<&Path>,
    name: &str,
    settings: &Settings,
) -> Result<Comparison, Failure> {
    read_log(log, certificate)
        .and_then(|live| against_log(input, &live, name, settings))
        .map_err(|error| failure("measured", log, error))
}

/// Reports an error; `code` and `log` are those of the log that may be at fault.
fn failure(code: &'static str, log: &Path, error: VerifyError) -> Failure {
    match error {
        VerifyError::Read(error) => {
            let failure = unread(code, log, &error);
            match error {
                ReadError::ColumnsNotNamed { .. } | ReadError::UnknownFormat { .. } => failure
                    .hint(
                        "it is read without the options that say how to read the baseline: measure \
                     with linkctl probe send, ping -D or irtt",
                    ),
                _ => failure,
            }
        }
        error @ VerifyError::TooFew { .. } => Failure::undecided(error.to_string()),
        VerifyError::Certificate(error) => Failure::failed("certificate", error.to_string()),
        VerifyError::Play(error) => Failure::failed("play", error.to_string()),
        error => Failure::failed(code, error.to_string()),
    }
}
