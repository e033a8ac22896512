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
    /// The format, where it is not to be recognised
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// The probing interval: compared with the log's own, needed where a log has none
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    interval: Option<u64>,
    /// Columns of a table: sent=NAME[:UNIT],rtt=NAME[:UNIT][,seq=NAME][,lost=TEXT], where a
    /// column without a name has its number; or in turn, as time:s,rtt:ms. If the times are those of
    /// answers and timeouts: done= for sent=
    #[arg(long, value_name = "MAPPING")]
    columns: Option<Columns>,
    /// The spacing of the probes, where it is not to be found from their times: irregular takes
    /// any times as they are
    #[arg(long, value_enum)]
    spacing: Option<SpacingArg>,
    /// The certificate of the emulator's run in which the baseline was recorded, if it was over an
    /// emulator: what linkctl -o json certificate wrote. A run that fails is refused
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatArg {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SpacingArg {
    /// At equal intervals.
    Constant,
    /// At exponential intervals.
    Poisson,
    /// At any times.
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
