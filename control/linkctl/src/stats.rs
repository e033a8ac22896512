// SPDX-License-Identifier: Apache-2.0
//! `linkctl stats`: once, or again and again.

use crate::cli::{Cli, Output, StatsArgs};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;
use proto::linkemu::v1 as pb;
use std::io::IsTerminal;
use view::{Snapshot, line, table};

/// Cursor home, and clear what is below.
const HOME: &str = "\x1b[H\x1b[J";
/// Clear the screen first.
const CLEAR: &str = "\x1b[2J";

/// Does it.
pub async fn run(cli: &Cli, args: &StatsArgs) -> Result<(), Failure> {
    let connection = Connection::open(cli).await?;
    let Some(interval_ns) = args.watch else {
        let request = pb::GetStatsRequest { mark: args.mark };
        let stats = connection.call(|mut c| async move { c.get_stats(request).await }).await?;
        let snapshot = Snapshot::from(stats);
        return match cli.output {
            Output::Text => output::text(&table(&snapshot)),
            Output::Json => output::json(&snapshot),
        };
    };
    if interval_ns == 0 {
        return Err(Failure::usage("--watch 0 ms: give 10 ms to 1 h"));
    }
    let request = pb::WatchStatsRequest { interval_ns };
    let mut stream = connection.call(|mut c| async move { c.watch_stats(request).await }).await?;
    let terminal = std::io::stdout().is_terminal();
    let mut last: Option<Snapshot> = None;
    while let Some(stats) = stream.message().await.map_err(|status| connection.failure(&status))? {
        let snapshot = Snapshot::from(stats);
        match cli.output {
            Output::Json => output::json(&snapshot)?,
            Output::Text if terminal => {
                let clear = if last.is_none() { CLEAR } else { "" };
                output::text(&format!("{clear}{HOME}{}", table(&snapshot)))?;
            }
            Output::Text => output::text(&line(&snapshot, last.as_ref()))?,
        }
        last = Some(snapshot);
    }
    Ok(())
}
