// SPDX-License-Identifier: Apache-2.0
//! Arguments that say how to read a baseline.

use crate::failure::Failure;
use ::fit::baseline::{Format, Spacing};
use ::fit::emulator::{CertificateError, certify};
use ::fit::read::{self, Columns, Input, ReadError};
use clap::{Args, ValueEnum};
use profile::parse_duration;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct BaselineArgs {
    /// Format of the log; default: recognised
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Interval of the probes: required if the log has none, otherwise compared
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    interval: Option<u64>,
    /// Columns of a table: sent=NAME[:UNIT],rtt=NAME[:UNIT][,seq=NAME][,lost=TEXT], with a number
    /// for a column without a name; or in order, as time:s,rtt:ms. With done= instead of sent= the
    /// times are those of answers and timeouts
    #[arg(long, value_name = "MAPPING")]
    columns: Option<Columns>,
    /// Spacing of the probes; default: recognised from their times
    #[arg(long, value_enum)]
    spacing: Option<SpacingArg>,
    /// Certificate (linkctl -o json certificate) of the emulator for the run of this log, if there
    /// was one in the path; a run that failed is refused
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// Log of linkctl probe send.
    Probe,
    /// Output of ping.
    Ping,
    /// JSON of irtt.
    Irtt,
    /// Table with --columns.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SpacingArg {
    /// Constant intervals.
    Constant,
    /// Exponential intervals.
    Poisson,
    /// Any times, as they are.
    Irregular,
}

impl From<SpacingArg> for Spacing {
    fn from(spacing: SpacingArg) -> Self {
        match spacing {
            SpacingArg::Constant => Self::Constant,
            SpacingArg::Poisson => Self::Poisson,
            SpacingArg::Irregular => Self::Irregular,
        }
    }
}

impl BaselineArgs {
    pub fn read(&self, path: &Path) -> Result<Input, Failure> {
        let options = read::Options {
            format: self.format.map(Format::from),
            interval_ns: self.interval,
            columns: self.columns.clone(),
            spacing: self.spacing.map(Spacing::from),
            ..read::Options::default()
        };
        let mut input =
            read::read(path, &options).map_err(|error| unread("baseline", path, &error))?;
        if let Some(certificate) = &self.certificate {
            certify(&mut input, certificate).map_err(|error| match error {
                CertificateError::Published => Failure::usage(
                    "--certificate is for a log: published figures are of no run; leave it out",
                ),
                error => Failure::failed("certificate", error.to_string()),
            })?;
        }
        Ok(input)
    }
}

/// Reports a file that cannot be read; the message names it.
pub fn unread(code: &'static str, path: &Path, error: &ReadError) -> Failure {
    let message = match error {
        ReadError::Io { .. } => error.to_string(),
        _ => format!("{}: {error}", path.display()),
    };
    Failure::failed(code, message)
}
