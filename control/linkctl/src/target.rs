// SPDX-License-Identifier: Apache-2.0
//! Arguments that select pipes and the condition of a change.

use clap::{Args, ValueEnum};
use proto::linkemu::v1 as pb;

/// Selected pipes and precondition.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Towards the client, from it, or each of both
    #[arg(short, long, value_enum, default_value = "both")]
    pub direction: Direction,
    #[command(flatten)]
    pub condition: Condition,
}

#[derive(Clone, Debug, Args)]
pub struct Condition {
    /// Refuse if another generation is in force: someone else changed the link
    #[arg(long, value_name = "N")]
    pub expect_generation: Option<u64>,
    /// Name this request, so that it is not carried out twice if it is sent again
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub request_id: String,
    /// Take it even if there is too little memory or time: then packets may be lost by the
    /// emulator itself, and `show` and `stats` say so
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
    /// Both.
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
