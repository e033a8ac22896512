// SPDX-License-Identifier: Apache-2.0
//! `linkctl probe`: measures the baseline of a link. Needs no linkd.

pub mod reflect;
pub mod send;
mod show;
mod thread;

use crate::context::Context;
use crate::failure::Failure;
use clap::Subcommand;

pub const EXAMPLES: &str = "\
A reflector runs at the far end of the link, a sender at the near end. The sender writes one line
per probe; linkctl fit converts them to a profile.

Examples:
  linkctl probe reflect                     at the far end
  linkctl probe send far.example -w link.csv --duration 24h";

#[derive(Debug, Subcommand)]
pub enum Probe {
    /// Answer probes, at the far end of the link, until interrupted
    #[command(after_help = reflect::EXAMPLES)]
    Reflect(reflect::ReflectArgs),
    /// Send probes, and write the result of each to a file
    #[command(after_help = send::EXAMPLES)]
    Send(send::SendArgs),
}

pub async fn run(context: &Context, what: &Probe) -> Result<(), Failure> {
    match what {
        Probe::Reflect(args) => reflect::run(context, args).await,
        Probe::Send(args) => send::run(context, args).await,
    }
}
