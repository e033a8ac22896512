// SPDX-License-Identifier: Apache-2.0
//! `linkctl trace`: delay and loss over time out of captures before and after a real link, and traces
//! that are too long for a profile.

mod play;

use crate::context::{Context, Output};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::output;
use crate::terminal::warn;
use ::trace::{Pair, RateError, read_pair};
use clap::{Args, Subcommand};
use profile::{UnitError, counted, format_duration, parse_duration};
use serde::Serialize;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  linkctl trace import before.pcap after.pcap -w path.csv
  linkctl trace import before.pcapng after.pcapng --step 1ms --offset -3ms -w path.csv
  linkctl set path path.csv -d forward
  linkctl trace play day.parquet -d forward";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Convert two captures of the same packets to a trace of delay and loss
    ///
    /// BEFORE and AFTER are captures in pcap or pcapng at the two ends of one direction, each with
    /// at least 150 bytes of a packet. The clocks must agree; --offset corrects a constant difference.
    /// The result has a row per step: the mean delay and the share of losses of the packets that
    /// were sent in it. Where no packet was delivered, the delay is interpolated linearly.
    #[command(after_help = EXAMPLES)]
    Import(ImportArgs),
    /// Play a trace of any length on the link, once
    ///
    /// A profile holds 65,536 steps. This command plays a longer trace: it sends some 30,000 steps at
    /// a time in advance, so that each step takes effect exactly on time. It plays the columns of
    /// the file: rate, delay, loss. At the end, or after Ctrl-C, their former values are restored. If
    /// another caller changes the link, the command fails and restores nothing. If linkctl is killed
    /// or loses its connection, the link repeats the steps that it has.
    #[command(after_help = EXAMPLES)]
    Play(play::PlayArgs),
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Capture at the sending end of the link
    before: PathBuf,
    /// Capture at the receiving end
    after: PathBuf,
    /// Length of a step
    #[arg(long, value_name = "TIME", value_parser = parse_step, default_value = "10ms")]
    step: u64,
    /// Offset of the clock of AFTER; negative if it is behind
    #[arg(long, value_name = "TIME", value_parser = parse_offset, default_value = "0ms", allow_hyphen_values = true)]
    offset: i64,
    /// Write the trace to this file; default: standard output
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn parse_step(text: &str) -> Result<u64, String> {
    let step = parse_duration(text).map_err(|error| error.to_string())?;
    if step < 1_000_000 {
        return Err(format!("{} is below 1 ms: write 1ms or more", format_duration(step)));
    }
    Ok(step)
}

fn parse_offset(text: &str) -> Result<i64, UnitError> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, text),
    };
    Ok(sign * i64::try_from(parse_duration(text)?).unwrap_or(i64::MAX))
}

#[derive(Serialize)]
struct View {
    file: Option<String>,
    step_ns: u64,
    steps: usize,
    delivered: u64,
    lost: u64,
    unmatched: u64,
    unknown: u64,
}

pub async fn run(context: &Context, what: &Command) -> Result<(), Failure> {
    match what {
        Command::Import(args) => import(context, args),
        Command::Play(args) => play::run(context, args).await,
    }
}

fn import(context: &Context, args: &ImportArgs) -> Result<(), Failure> {
    let inputs = [args.before.as_path(), args.after.as_path()];
    let to = args.write.as_deref().map(|path| Destination::new("--write", path, &inputs));
    let to = to.transpose()?;
    let pair = read_pair(&args.before, &args.after, args.step, args.offset);
    let pair = pair.map_err(|error| refused(&error))?;
    let text = csv(&pair, args.step)?;
    if pair.unknown > 0 {
        warn(&[format!(
            "{} after the last one that was delivered: neither delivered nor lost",
            counted(pair.unknown, "packet was sent", "packets were sent")
        )]);
    }
    if let Some(to) = to {
        to.write(&text)?;
    }
    if context.output == Output::Json {
        let Pair { delivered, lost, unmatched, unknown, ref steps } = pair;
        let file = args.write.as_ref().map(|path| path.display().to_string());
        let (step_ns, steps) = (args.step, steps.len());
        return output::json(&View { file, step_ns, steps, delivered, lost, unmatched, unknown });
    }
    match &args.write {
        None => output::text(text.trim_end()),
        Some(path) => output::text(&format!(
            "{}: {} of {}, {} delivered, {} lost",
            path.display(),
            counted(pair.steps.len(), "step", "steps"),
            format_duration(args.step),
            counted(pair.delivered, "packet", "packets"),
            pair.lost
        )),
    }
}

/// The steps as CSV.
fn csv(pair: &Pair, step_ns: u64) -> Result<String, Failure> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let failed = |error: ::csv::Error| Failure::failed("io", error.to_string());
    writer.write_record(["time_ns", "delay_ns", "loss", "packets"]).map_err(failed)?;
    for (time, step) in (0..).step_by(usize::try_from(step_ns).unwrap_or(1)).zip(&pair.steps) {
        let time: u64 = time;
        writer.serialize((time, step.delay_ns, step.loss, step.packets)).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|error| Failure::failed("io", error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| Failure::failed("io", error.to_string()))
}

fn refused(error: &RateError) -> Failure {
    let failure = Failure::failed("trace", error.to_string());
    match error {
        RateError::Early { .. } | RateError::NoMatch { .. } => {
            failure.hint("--offset is by how much the clock of AFTER is ahead")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_a_duration_with_a_sign() {
        assert_eq!(parse_offset("-3ms").unwrap(), -3_000_000);
        assert_eq!(parse_offset("1s").unwrap(), 1_000_000_000);
        assert!(parse_offset("--3ms").is_err() && parse_offset("3").is_err());
        assert!(parse_step("999us").is_err());
    }
}
