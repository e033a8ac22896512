// SPDX-License-Identifier: Apache-2.0
//! `linkctl` as a lab engineer's script runs it: by its arguments, exit code and JSON.

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
/// linkd, or the dataplane behind it, cannot be reached.
pub const UNREACHABLE: i32 = 3;

#[derive(Clone, Debug, Deserialize)]
pub struct Change {
    /// The generation of the configuration now in force.
    pub generation: u64,
    /// When it took effect, since the dataplane's start.
    pub effective_ns: u64,
    /// The same by the wall clock, in RFC 3339's form.
    pub effective_utc: String,
}

/// A `linkctl` that speaks to one linkd.
#[derive(Clone, Debug)]
pub struct Linkctl {
    /// The command up to its way to linkd.
    words: Vec<OsString>,
}

impl Linkctl {
    #[must_use]
    pub fn new(binary: &Path, socket: &Path) -> Self {
        Self { words: vec![binary.into(), "--socket".into(), socket.into()] }
    }

    /// One that is run by these words, which say how linkd is reached.
    #[must_use]
    pub fn through(words: Vec<OsString>) -> Self {
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

    /// A snapshot; the marks start anew after it.
    pub fn mark(&self) -> Result<Stats> {
        Stats::read(&self.run(&["stats", "--mark"])?.success()?)
    }

    /// The link in force, as JSON.
    pub fn show(&self) -> Result<serde_json::Value> {
        let answer = self.run(&["show"])?.success()?;
        serde_json::from_str(&answer).map_err(|e| Error::parse("`linkctl show`", e))
    }
}
