// SPDX-License-Identifier: Apache-2.0
//! Runs `linkctl` as a script does: arguments, exit code and JSON.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::process::{Outcome, run};
use crate::stats::Stats;

const LIMIT: Duration = Duration::from_secs(30);

pub const DONE: i32 = 0;
pub const REFUSED: i32 = 1;
pub const USAGE: i32 = 2;
/// linkd, or the dataplane behind it, is unreachable.
pub const UNREACHABLE: i32 = 3;

#[derive(Clone, Debug, Deserialize)]
pub struct Change {
    /// Generation of the current configuration.
    pub generation: u64,
    /// Time of effect, since the dataplane's start.
    pub effective_ns: u64,
    /// The same on the wall clock, as RFC 3339.
    pub effective_utc: String,
}

/// A `linkctl` with the address of one linkd.
#[derive(Clone, Debug)]
pub struct Linkctl {
    /// The command with the options for the address of linkd.
    words: Vec<OsString>,
}

impl Linkctl {
    #[must_use]
    pub fn new(binary: &Path, socket: &Path) -> Self {
        Self { words: vec![binary.into(), "--socket".into(), socket.into()] }
    }

    /// A command with its own way to reach linkd.
    #[must_use]
    pub fn through(words: Vec<OsString>) -> Self {
        Self { words }
    }

    /// The same with one more option, such as `--link`, and its value.
    #[must_use]
    pub fn with(&self, option: &str, value: &str) -> Self {
        let mut words = self.words.clone();
        words.extend([option.into(), value.into()]);
        Self { words }
    }

    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let (program, more) = self.words.split_first().unzip();
        let mut command = Command::new(program.map_or("linkctl".as_ref(), OsString::as_os_str));
        command.args(more.unwrap_or_default()).args(["-o", "json"]).args(arguments);
        command
    }

    /// Runs it, whatever its exit code.
    pub fn run(&self, arguments: &[&str]) -> Result<Outcome> {
        run(self.command(arguments), LIMIT)
    }

    /// Runs a change and reads its answer.
    pub fn change(&self, arguments: &[&str]) -> Result<Change> {
        let answer = self.run(arguments)?.success()?;
        serde_json::from_str(&answer).map_err(|e| {
            Error::parse(format!("the answer to {arguments:?}"), format!("{e}: {answer}"))
        })
    }

    /// Sets a profile by name or file.
    pub fn set_profile(&self, profile: &str, seed: u64) -> Result<Change> {
        self.change(&["set", "profile", profile, "--seed", &seed.to_string()])
    }

    /// Sets the rate towards the client.
    pub fn set_forward_rate(&self, rate: &str) -> Result<Change> {
        self.change(&["set", "rate", rate, "--direction", "forward"])
    }

    pub fn stats(&self) -> Result<Stats> {
        Stats::read(&self.run(&["stats"])?.success()?)
    }

    /// Takes a snapshot and begins a new run.
    pub fn mark(&self) -> Result<Stats> {
        Stats::read(&self.run(&["stats", "--mark"])?.success()?)
    }

    /// The current link, as JSON.
    pub fn show(&self) -> Result<serde_json::Value> {
        let answer = self.run(&["show"])?.success()?;
        serde_json::from_str(&answer).map_err(|e| Error::parse("`linkctl show`", e))
    }
}
