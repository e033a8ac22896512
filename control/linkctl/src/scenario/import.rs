// SPDX-License-Identifier: Apache-2.0
//! `linkctl scenario import`: a scenario out of traces of TheaterQ.

use crate::context::{Context, Output};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::output;
use crate::terminal::warn;
use ::fit::fitted::plain_name;
use ::scenario::Scenario;
use ::scenario::theaterq::{self, Column, ImportError};
use clap::{ArgGroup, Args};
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Examples:
  linkctl scenario import --forward down.csv --return up.csv -w mine.toml
  linkctl scenario import --forward down.csv --ignore jitter > mine.toml
  linkctl scenario import --forward leo.csv --repeat --limit-in bytes -w leo.toml
  linkctl scenario run mine.toml

A row of a trace is KEEP,LATENCY,RATE,LOSS,LIMIT in µs, ns, bit/s (-1: unlimited), shares of
4294967295 and packets; or has the extended format of TheaterQ, or the columns of a header line. Rows
last 1 ms or more. Unchanged values create no step. JITTER, DUP_DELAY and a QUEUE_ID that changes have
no counterpart: they are refused, or ignored with --ignore.";

#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("traces").required(true).multiple(true).args(["forward", "back"])))]
pub struct ImportArgs {
    /// Trace of the direction towards the client
    #[arg(long, value_name = "FILE")]
    forward: Option<PathBuf>,
    /// Trace of the direction from the client
    #[arg(long = "return", id = "back", value_name = "FILE")]
    back: Option<PathBuf>,
    /// Profile that the scenario starts with; it has all values that are not in the traces
    #[arg(long, value_name = "NAME", default_value = "transparent")]
    profile: String,
    /// Name of the scenario; default: that of the file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Unit of LIMIT, as pktqlen and byteqlen of TheaterQ
    #[arg(long, value_enum, default_value = "packets")]
    limit_in: LimitIn,
    /// Ignore this column; may be given again
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', value_parser = Column::named)]
    ignore: Vec<Column>,
    /// Repeat the trace forever; default: the last row stays in force
    #[arg(long)]
    repeat: bool,
    /// Write the scenario to this file; default: standard output
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LimitIn {
    /// Packets, of 1518 bytes each
    Packets,
    /// Bytes
    Bytes,
}

#[derive(Serialize)]
struct View<'a> {
    name: &'a str,
    file: Option<String>,
    steps: Option<u64>,
    length_ns: Option<u64>,
    remarks: &'a [String],
    toml: &'a str,
}

pub fn run(context: &Context, args: &ImportArgs) -> Result<(), Failure> {
    let inputs: Vec<_> = args.forward.iter().chain(&args.back).map(PathBuf::as_path).collect();
    let to = args.write.as_deref().map(|path| Destination::new("--write", path, &inputs));
    let to = to.transpose()?;
    let one = args.forward.as_deref().or(args.back.as_deref()).unwrap_or(Path::new(""));
    let import = theaterq::Import {
        name: args.name.clone().unwrap_or_else(|| plain_name(args.write.as_deref().unwrap_or(one))),
        profile: args.profile.clone(),
        ignored: args.ignore.clone(),
        bytes: args.limit_in == LimitIn::Bytes,
        repeated: args.repeat,
    };
    let (mut forward, mut back) = (open(args.forward.as_deref())?, open(args.back.as_deref())?);
    let imported = import.read(named(&mut forward), named(&mut back)).map_err(refused)?;
    // The error explains an invalid name or a pass that is too short.
    let scenario = Scenario::from_toml(&imported.toml)
        .map_err(|found| Failure::invalid("the traces make no valid scenario", found))?;
    warn(&imported.remarks);
    if let Some(to) = to {
        to.write(&imported.toml)?;
    }
    if context.output == Output::Json {
        return output::json(&View {
            name: scenario.name(),
            file: args.write.as_ref().map(|path| path.display().to_string()),
            steps: scenario.steps(),
            length_ns: scenario.length_ns(),
            remarks: &imported.remarks,
            toml: &imported.toml,
        });
    }
    match &args.write {
        None => output::text(imported.toml.trim_end()),
        Some(path) => output::text(&format!(
            "{}: {} (steps: {}; {})",
            path.display(),
            scenario.name(),
            super::count(scenario.steps()),
            super::length(scenario.length_ns())
        )),
    }
}

fn open(path: Option<&Path>) -> Result<Option<(String, File)>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display().to_string();
    let file = File::open(path)
        .map_err(|error| Failure::failed("io", format!("cannot read {name}: {error}")))?;
    Ok(Some((name, file)))
}

fn named(file: &mut Option<(String, File)>) -> Option<(&str, &mut dyn Read)> {
    file.as_mut().map(|(name, file)| (name.as_str(), file as &mut dyn Read))
}

fn refused(error: ImportError) -> Failure {
    let ignored = error.to_string().contains("ignored");
    let failure = match error {
        ImportError::Io { .. } => Failure::failed("io", error.to_string()),
        _ => Failure::failed("trace", error.to_string()),
    };
    if ignored { failure.hint("--ignore COLUMN takes nothing of a column") } else { failure }
}
