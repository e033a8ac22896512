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
Reads what linkctl probe send wrote, the output of ping (best with -D) and of fping -D, the
JSON of irtt, tables whose columns you name, or published figures in TOML, also packed with
gzip. The profile says where each figure is from, how sure it is, and what the baseline
cannot tell; --verbose prints that.

Examples:
  linkctl fit link.csv -w mine.toml
  linkctl fit ping.log -w mine.toml --like viasat2
  linkctl fit ping.log --interval 200ms --isolated-duration 50ms
  linkctl fit log.csv --columns sent=time:s,rtt=rtt:ms -w mine.toml
  linkctl fit table.txt --columns time:s,rtt:ms -w mine.toml
  linkctl fit link.csv --forward-rate 144Mbit/s --return-rate 12Mbit/s --queue 36MB
  linkctl fit link.csv --forward-trace down.trace -w mine.toml
  linkctl -o json fit link.csv --write mine.toml | jq .estimates

A baseline that was recorded over an emulator is a link's only if the emulator was not late: give
the certificate of that run.
  linkctl fit run.csv --certificate run.json -w mine.toml

TCP downloads over the same link tell what pings leave open. The search takes minutes:
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
    /// The baseline
    baseline: PathBuf,
    /// Write the profile to this file; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
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
    /// The step of rates that change; otherwise mahimahi's opportunities, or a CSV's own
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
    /// Print all estimates with their intervals, the tests of the model, and what the baseline
    /// does not tell
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
