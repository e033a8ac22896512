// SPDX-License-Identifier: Apache-2.0
//! `linkctl stats`: once, or again and again.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use profile::parse_duration;
use proto::linkemu::v1 as pb;
use std::io::IsTerminal;
use view::{line, table};

pub const EXAMPLES: &str = "\
Examples:
  linkctl stats                             once
  linkctl stats --mark                      then reset high-water marks and lateness
  linkctl stats --watch 200ms               repeatedly
  linkctl -o json stats --watch | jq -c .emulator_drops";

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Repeat every INTERVAL (10 ms to 1 h) until interrupted
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s", value_parser = parse_duration)]
    pub watch: Option<u64>,
    /// Begin a run: reset high-water marks, lateness and stalls after this snapshot
    #[arg(long, conflicts_with = "watch")]
    pub mark: bool,
}

/// Cursor home, and clear the rest of the screen.
const HOME: &str = "\x1b[H\x1b[J";
const CLEAR: &str = "\x1b[2J";

pub async fn run(context: &Context, args: &StatsArgs) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let Some(interval_ns) = args.watch else {
        let request = pb::GetStatsRequest { mark: args.mark, link: connection.link() };
        let stats = connection.call(|mut c| async move { c.get_stats(request).await }).await?;
        return match context.output {
            Output::Text => output::text(&table(&stats)),
            Output::Json => output::message(&stats),
        };
    };
    if interval_ns == 0 {
        return Err(Failure::usage("--watch 0 ms: give 10 ms to 1 h"));
    }
    let request = pb::WatchStatsRequest { interval_ns, link: connection.link() };
    let mut stream = connection.call(|mut c| async move { c.watch_stats(request).await }).await?;
    let terminal = std::io::stdout().is_terminal();
    let mut last: Option<pb::Stats> = None;
    while let Some(stats) = stream.message().await.map_err(|status| connection.failure(&status))? {
        match context.output {
            Output::Json => output::message(&stats)?,
            Output::Text if terminal => {
                let clear = if last.is_none() { CLEAR } else { "" };
                output::text(&format!("{clear}{HOME}{}", table(&stats)))?;
            }
            Output::Text => output::text(&line(&stats, last.as_ref()))?,
        }
        last = Some(stats);
    }
    Ok(())
}
