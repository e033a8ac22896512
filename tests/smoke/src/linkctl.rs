// SPDX-License-Identifier: Apache-2.0
//! Runs `linkctl` as a script does: arguments, exit code and JSON.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use prost::{Message, Name};

use crate::error::{Error, Result};
use crate::pb;
use crate::process::{Outcome, run};
use crate::stats::Stats;

const LIMIT: Duration = Duration::from_secs(30);

pub const DONE: i32 = 0;
pub const REFUSED: i32 = 1;
pub const USAGE: i32 = 2;
/// linkd, or the dataplane behind it, is unreachable.
pub const UNREACHABLE: i32 = 3;

/// When a change took effect, and its generation.
pub type Change = pb::Applied;

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

    /// Runs it and reads its answer.
    pub fn answer<M: Message + Name + Default>(&self, arguments: &[&str]) -> Result<M> {
        let answer = self.run(arguments)?.success()?;
        proto::from_json(answer.as_bytes()).map_err(|e| {
            Error::parse(format!("the answer to {arguments:?}"), format!("{e}: {answer}"))
        })
    }

    /// Runs a change and reads its answer.
    pub fn change(&self, arguments: &[&str]) -> Result<Change> {
        let change: pb::UpdateLinksResponse = self.answer(arguments)?;
        Ok(change.links.first().and_then(|link| link.applied).unwrap_or_default())
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

    /// The current link.
    pub fn show(&self) -> Result<pb::Link> {
        self.answer(&["show"])
    }

    /// Generation of the current link.
    pub fn generation(&self) -> Result<u64> {
        Ok(self.show()?.applied.unwrap_or_default().generation)
    }
}
