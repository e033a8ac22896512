// SPDX-License-Identifier: Apache-2.0
//! `linkctl fit`: fits a profile to a measured baseline. Needs no linkd.

mod stated;
mod traffic;

use crate::baseline::BaselineArgs;
use crate::context::{Context, Output};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::output;
use crate::terminal::{Stream, say, spinner, warn, width};
use ::fit::fitted::{self, Direction, Episodes, FitError, summary, text as show};
use ::fit::read::Input;
use clap::{Args, ValueEnum};
use profile::{Rate, parse_duration, parse_rate, parse_size};
use std::path::{Path, PathBuf};
use traffic::TrafficArgs;

pub const EXAMPLES: &str = "\
Reads logs of linkctl probe send, ping (best with -D), fping -D and irtt (JSON), tables with named
columns, and published figures in TOML, also compressed with gzip. The profile states the source and
the uncertainty of each figure, and what the log does not tell; --verbose prints them.

Examples:
  linkctl fit link.csv -w mine.toml
  linkctl fit ping.log -w mine.toml --like viasat2
  linkctl fit ping.log --interval 200ms --isolated-duration 50ms
  linkctl fit log.csv --columns sent=time:s,rtt=rtt:ms -w mine.toml
  linkctl fit table.txt --columns time:s,rtt:ms -w mine.toml
  linkctl fit link.csv --forward-rate 144Mbit/s --return-rate 12Mbit/s --queue 36MB
  linkctl fit link.csv --forward-trace down.trace -w mine.toml
  linkctl -o json fit link.csv --write mine.toml | jq .estimates

If the log was recorded over an emulator, give the certificate of that run: it shows that the emulator
was not late.
  linkctl fit run.csv --certificate run.json -w mine.toml

TCP downloads over the same link identify more parameters. The search takes minutes:
  linkctl fit link.csv --like viasat2 --traffic cubic.json bbr.json -w mine.toml
  linkctl fit link.csv --like viasat2 --traffic figures.toml bbr:flow.pcap -w mine.toml

A ping tells neither rates nor queues: state them, or take them from another profile with
--like. Then: linkctl verify mine.toml --baseline link.csv";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LossesIn {
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
    /// Half in each direction.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DelayIn {
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
}

impl From<LossesIn> for Direction {
    fn from(losses_in: LossesIn) -> Self {
        match losses_in {
            LossesIn::Forward => Self::Forward,
            LossesIn::Return => Self::Return,
            LossesIn::Both => Self::Both,
        }
    }
}

impl From<DelayIn> for Direction {
    fn from(delay_in: DelayIn) -> Self {
        match delay_in {
            DelayIn::Forward => Self::Forward,
            DelayIn::Return => Self::Return,
        }
    }
}

#[derive(Debug, Args)]
pub struct FitArgs {
    /// Log of the measured link (the baseline)
    baseline: PathBuf,
    /// Write the profile to this file; default: standard output
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    read: BaselineArgs,
    /// Name of the profile; default: that of the file without its extension
    #[arg(long)]
    name: Option<String>,
    /// Description of the profile
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Take rates and queues from this profile: the name of a built-in one, or a file
    #[arg(long, value_name = "NAME|FILE")]
    like: Option<String>,
    /// Rate towards the client, such as 144Mbit/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "forward_trace")]
    forward_rate: Option<Rate>,
    /// Rate from the client
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "return_trace")]
    return_rate: Option<Rate>,
    /// Trace of the rate towards the client: mahimahi, or CSV of time and rate
    #[arg(long, value_name = "FILE")]
    forward_trace: Option<PathBuf>,
    /// Trace of the rate from the client
    #[arg(long, value_name = "FILE")]
    return_trace: Option<PathBuf>,
    /// Step of the traces; default: the opportunities of mahimahi, or the rows of CSV
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    trace_step: Option<u64>,
    /// Limit of both queues, such as 36MB; the random drop of --like does not change
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    queue: Option<u64>,
    /// Constant delay towards the client; default: from one-way delays, if the log has them (with
    /// the prober at the client), or half of the least round trip
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    forward_delay: Option<u64>,
    /// Direction in which probes are lost: a round trip does not tell
    #[arg(long, value_enum, default_value = "both")]
    losses_in: LossesIn,
    /// Direction in which the delay varies: a round trip does not tell
    #[arg(long, value_enum, default_value = "return")]
    delay_in: DelayIn,
    /// Duration of an isolated loss, which no log tells; default: half of the interval
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    isolated_duration: Option<u64>,
    /// Duration of routine episodes of delay, if only a curve was published; default: half of
    /// the interval
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    routine_duration: Option<u64>,
    /// Duration of rare episodes of delay
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rare_duration: Option<u64>,
    /// Print all estimates with their intervals, the tests of the model, and what the log does
    /// not tell
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    traffic: TrafficArgs,
}

pub fn run(context: &Context, args: &FitArgs) -> Result<(), Failure> {
    let destination = args.destination()?;
    let options = args.options()?;
    args.check(&options)?;
    let bar = spinner(&format!("reading {}", args.baseline.display()));
    let input = args.read.read(&args.baseline)?;
    if let Input::Log(baseline) = &input {
        bar.suspend(|| warn(&baseline.remarks));
    }
    bar.set_message("fitting");
    let fitted = fitted::fit(&input, &options);
    bar.finish_and_clear();
    let mut fitted = fitted.map_err(failure)?;
    let calibrated = args.traffic.calibrate(&fitted.profile)?;
    if let Some(calibrated) = &calibrated {
        fitted.profile = calibrated.profile.clone();
    }
    if let Some(destination) = &destination {
        destination.write(&fitted.profile.to_toml())?;
    }
    let path = destination.as_ref().map(Destination::path);
    let text = |stream: Stream| {
        let lines = summary::lines(&fitted, &args.baseline, path);
        let summary = show::summary(&fitted, &lines, width(stream));
        let all = args.verbose.then(|| show::all(&fitted, width(stream)));
        summary + all.as_deref().unwrap_or_default()
    };
    match (context.output, path) {
        (Output::Json, _) => output::json(&show::View::new(&fitted, path)),
        (Output::Text, Some(path)) => {
            output::text(&format!("{}\nwritten to {}", text(Stream::Out), path.display()))
        }
        (Output::Text, None) => {
            say(&text(Stream::Err));
            output::text(&fitted.profile.to_toml())
        }
    }
}

fn failure(error: FitError) -> Failure {
    let violations = match error {
        FitError::Schema(violations) => violations,
        FitError::Episodes(episodes) => {
            let option = match episodes {
                Episodes::Routine => "--routine-duration",
                Episodes::Rare => "--rare-duration",
            };
            return Failure::usage(format!(
                "{option} is for published figures: of a log, the duration is estimated; leave it \
                 out"
            ));
        }
        other => return Failure::failed("fit", other.to_string()),
    };
    let mut message = "what was estimated is outside of what a profile can say".to_owned();
    // Several violations are listed below the message.
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
