// SPDX-License-Identifier: Apache-2.0
//! Why something could not be measured.

use thiserror::Error as Derive;

#[derive(Debug, Derive)]
pub enum Error {
    #[error(transparent)]
    Dpdk(#[from] dpdk::Error),
    /// A built-in profile is missing.
    #[error("the built-in profile `{name}` is missing: add it to proto/profile")]
    Profile { name: &'static str },
    /// A built-in profile does not compile.
    #[error("a built-in profile does not compile: {0}")]
    Plan(#[from] profile::Violations),
    /// A device gave no queue.
    #[error("port `{port}` has no queue: use another driver")]
    NoQueue { port: String },
    /// The engine was refused.
    #[error("the engine cannot be made: {0}")]
    Engine(#[from] emu::engine::EngineError),
    /// A worker did not take a command.
    #[error(transparent)]
    Command(#[from] worker::command::CommandError),
    /// The engine of another link was refused.
    #[error("the engine of a link cannot be made: {0}")]
    Make(#[from] worker::command::MakeError),
    /// A change was not made within the time that a full delay line takes to drain.
    #[error("a change of plan was not in force after 1.2 delays: look into the worker's turn")]
    Unanswered,
    /// The bounds of a histogram are fixed and valid.
    #[error("a histogram's bounds were refused")]
    Histogram,
    #[error(transparent)]
    Name(#[from] emu::client::NameError),
    #[error(transparent)]
    Rules(#[from] emu::rules::RulesError),
    /// Frames that should have been passed on were dropped.
    #[error("{lost} frames found the ring to their owner full: look into `AHEAD`")]
    Overflow { lost: u64 },
    /// No case has such a name.
    #[error("no case has `{0}` in its name: `bench --list` shows them")]
    NoCase(String),
}
