// SPDX-License-Identifier: Apache-2.0
//! `linkctl fit`: a profile from a measured baseline. Needs no linkd.

mod destination;
mod show;
mod stated;

pub use stated::{plain, trace_of};

use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use ::fit::baseline::{Baseline, Format};
use ::fit::emulator;
use ::fit::fitted::{self, FitError};
use ::fit::read::{self, Columns, Input, ReadError};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use profile::{Catalog, Profile, Rate, parse_duration, parse_rate, parse_size};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use destination::Destination;
pub use show::{Stream, width};

/// For the command.
pub const EXAMPLES: &str = "\
Reads what linkctl probe send wrote, the output of ping (best with -D), the JSON of irtt,
CSV whose columns you name, or published figures in TOML. The profile says where each
figure is from, how sure it is, and what the baseline cannot tell.

Examples:
  linkctl fit link.csv -w mine.toml
  linkctl fit ping.log -w mine.toml --like viasat2
  linkctl fit ping.log --interval 200ms --isolated-duration 50ms
  linkctl fit log.csv --columns sent=time:s,rtt=rtt:ms -w mine.toml
  linkctl fit link.csv --forward-rate 144Mbit/s --return-rate 12Mbit/s --queue 36MB
  linkctl fit link.csv --forward-trace down.trace -w mine.toml
  linkctl -o json fit link.csv --write mine.toml | jq .estimates

A baseline that was recorded over an emulator is a link's only if the emulator was not late: give
the certificate of that run.
  linkctl fit run.csv --certificate run.json -w mine.toml

A ping tells neither rates nor queues: state them, or take them from another profile with
--like. Then: linkctl verify mine.toml --baseline link.csv";

/// How to read a baseline.
#[derive(Debug, Args)]
pub struct BaselineArgs {
    /// The format, where it is not to be recognised
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// The probing interval: compared with the log's own, needed where a log has none
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    interval: Option<u64>,
    /// Columns of a CSV: sent=NAME[:UNIT],rtt=NAME[:UNIT][,seq=NAME][,lost=TEXT]
    #[arg(long, value_name = "MAPPING")]
    columns: Option<Columns>,
    /// The certificate of the emulator's run in which the baseline was recorded, if it was over an
    /// emulator: what linkctl -o json certificate wrote. A run that fails is refused
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

/// A format of baselines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Of linkctl probe send.
    Probe,
    /// The output of ping.
    Ping,
    /// The JSON of irtt.
    Irtt,
    /// CSV with --columns.
    Columns,
    /// Published figures in TOML.
    Summary,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Probe => Self::Probe,
            FormatArg::Ping => Self::Ping,
            FormatArg::Irtt => Self::Irtt,
            FormatArg::Columns => Self::Columns,
            FormatArg::Summary => Self::Summary,
        }
    }
}

impl BaselineArgs {
    /// Reads it.
    pub fn read(&self, path: &Path) -> Result<Input, Failure> {
        let options = read::Options {
            format: self.format.map(Format::from),
            interval_ns: self.interval,
            columns: self.columns.clone(),
        };
        let mut input =
            read::read(path, &options).map_err(|error| unread("baseline", path, &error))?;
        match (&mut input, &self.certificate) {
            (Input::Log(log), Some(certificate)) => certify(log, certificate)?,
            (Input::Summary(_), Some(_)) => {
                return Err(Failure::usage(
                    "--certificate is for a log: published figures are of no run; leave it out",
                ));
            }
            (_, None) => {}
        }
        Ok(input)
    }
}

/// Has the certificate of a run vouch for the log that was recorded in it.
pub fn certify(log: &mut Baseline, certificate: &Path) -> Result<(), Failure> {
    emulator::certify(log, certificate)
        .map_err(|error| Failure::failed("certificate", error.to_string()))
}

/// Why a file could not be read; the message names it.
pub fn unread(code: &'static str, path: &Path, error: &ReadError) -> Failure {
    Failure::failed(code, named(path, error))
}

fn named(path: &Path, error: &ReadError) -> String {
    match error {
        ReadError::Io { .. } => error.to_string(),
        _ => format!("{}: {error}", path.display()),
    }
}

/// Tells what was done to what was read.
pub fn warn(remarks: &[String]) {
    for remark in remarks {
        // Without stderr there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "warning: {remark}");
    }
}

/// Which way something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LossesIn {
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
    /// Half in each direction.
    Both,
}

/// Which way something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DelayIn {
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
}

/// How to fit.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// The baseline
    baseline: PathBuf,
    /// Write the profile to this file; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    #[command(flatten)]
    read: BaselineArgs,
    /// The profile's name; otherwise that of the file without its ending
    #[arg(long)]
    name: Option<String>,
    /// The profile's description
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Take rates and queues from this profile: a built-in one's name, or a file
    #[arg(long, value_name = "NAME|FILE")]
    like: Option<String>,
    /// The rate towards the client, such as 144Mbit/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "forward_trace")]
    forward_rate: Option<Rate>,
    /// The rate from the client
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "return_trace")]
    return_rate: Option<Rate>,
    /// A rate towards the client that changes: a trace of mahimahi's, or CSV of time and rate
    #[arg(long, value_name = "FILE")]
    forward_trace: Option<PathBuf>,
    /// A rate from the client that changes
    #[arg(long, value_name = "FILE")]
    return_trace: Option<PathBuf>,
    /// The step of rates that change; otherwise 100 ms, or a CSV's own
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    trace_step: Option<u64>,
    /// The limit of both queues, such as 36MB; what --like drops at random stays
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    queue: Option<u64>,
    /// The constant delay towards the client; otherwise by the one-way delays, where the log
    /// has them (the prober is taken to be at the client), or half of the least round trip
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    forward_delay: Option<u64>,
    /// Where probes are lost: a round trip does not tell
    #[arg(long, value_enum, default_value = "both")]
    losses_in: LossesIn,
    /// Where the delay varies: a round trip does not tell
    #[arg(long, value_enum, default_value = "return")]
    delay_in: DelayIn,
    /// How long an isolated loss lasts, which no log tells; otherwise half of the interval
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    isolated_duration: Option<u64>,
    /// How long routine episodes of delay last, where only a curve was published; otherwise
    /// half of the interval
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    routine_duration: Option<u64>,
    /// How long rare ones last
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rare_duration: Option<u64>,
}

/// A profile by its name among the built-in ones, or from a file.
pub fn profile_of(text: &str) -> Result<Profile, Failure> {
    if text.contains('/') || text.ends_with(".toml") {
        return Profile::from_file(Path::new(text))
            .map_err(|error| Failure::failed("profile", error.to_string()));
    }
    let catalog = Catalog::built_in();
    match catalog.get(text) {
        Some(profile) => Ok(profile.clone()),
        None => {
            let near = catalog.nearest(text);
            let near = near.map_or(String::new(), |near| format!(": the nearest is {near:?}"));
            Err(Failure::failed(
                "not_found",
                format!("there is no built-in profile {text:?}{near}"),
            )
            .hint("a profile of your own is a file: write its path, ending in .toml"))
        }
    }
}

/// Something that turns while work goes on, on a terminal.
pub fn spinner(message: &str) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(ProgressStyle::default_spinner());
    bar.set_message(message.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Does it.
pub fn run(context: &Context, args: &FitArgs) -> Result<(), Failure> {
    let destination = args.destination()?;
    let options = args.options()?;
    args.check(&options)?;
    let bar = spinner(&format!("reading {}", args.baseline.display()));
    let input = args.read.read(&args.baseline)?;
    match &input {
        Input::Log(baseline) => bar.suspend(|| warn(&baseline.remarks)),
        Input::Summary(_) => {}
    }
    args.fits(&input)?;
    bar.set_message("fitting");
    let fitted = fitted::fit(&input, &options);
    bar.finish_and_clear();
    let fitted = fitted.map_err(failure)?;
    if let Some(destination) = &destination {
        destination.write(&fitted.profile.to_toml())?;
    }
    let path = destination.as_ref().map(Destination::path);
    match (context.output, path) {
        (Output::Json, _) => output::json(&show::View::new(&fitted, path)),
        (Output::Text, Some(path)) => {
            let text = show::text(&fitted, width(Stream::Out));
            output::text(&format!("{text}\nwritten to {}", path.display()))
        }
        (Output::Text, None) => {
            let text = show::text(&fitted, width(Stream::Err));
            let _ = writeln!(std::io::stderr(), "{text}");
            output::text(&fitted.profile.to_toml())
        }
    }
}

/// Why there is no profile.
fn failure(error: FitError) -> Failure {
    let violations = match error {
        FitError::Schema(violations) => violations,
        other => return Failure::failed("fit", other.to_string()),
    };
    let mut message = "what was estimated is outside of what a profile can say".to_owned();
    // Several are listed.
    if let (1, Some(only)) = (violations.len(), violations.iter().next()) {
        message += &format!(": {only}");
    }
    let of_delay = violations.iter().any(|v| v.path.contains(".delay."));
    let failure = Failure::invalid(message, violations);
    match of_delay {
        true => {
            failure.hint("is the unit of the round trips right? longer ones cannot be emulated")
        }
        false => failure,
    }
}

impl FitArgs {
    fn destination(&self) -> Result<Option<Destination>, Failure> {
        let mut inputs = vec![self.baseline.as_path()];
        inputs.extend(self.like.as_deref().map(Path::new));
        inputs.extend(self.read.certificate.as_deref());
        inputs
            .extend([&self.forward_trace, &self.return_trace].into_iter().flatten().map(|p| &**p));
        let path = self.write.as_deref();
        path.map(|path| Destination::new("--write", path, &inputs)).transpose()
    }
}
