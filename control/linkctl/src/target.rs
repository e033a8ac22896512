// SPDX-License-Identifier: Apache-2.0
//! Arguments that select pipes and the condition of a change.

use clap::{Args, ValueEnum};
use proto::linkemu::v1 as pb;

/// Selected pipes and precondition.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Direction to change: towards the client, from it, or both
    #[arg(short, long, value_enum, default_value = "both")]
    pub direction: Direction,
    #[command(flatten)]
    pub condition: Condition,
}

#[derive(Clone, Debug, Default, Args)]
pub struct Condition {
    /// Refuse the change if the generation is not N, because another caller changed the link
    #[arg(long, value_name = "N")]
    pub expect_generation: Option<u64>,
    /// Name of this request: a request that is repeated under its name is applied once
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub request_id: String,
    /// Accept a link that does not fit into memory or time: the emulator may then lose packets,
    /// and `show` and `stats` report "lossy"
    #[arg(long)]
    pub lossy: bool,
}

/// A way through the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
    /// Both directions.
    Both,
}

impl From<Direction> for pb::Direction {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Forward => Self::Forward,
            Direction::Return => Self::Return,
            Direction::Both => Self::Unspecified,
        }
    }
}
