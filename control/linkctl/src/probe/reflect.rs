// SPDX-License-Identifier: Apache-2.0
//! `linkctl probe reflect`: answers probes at the far end of a link.

use super::show::ReflectView;
use super::thread::{Event, Signals, drive, failure, stop};
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use crate::terminal::say;
use ::probe::{Reflected, Reflector};
use clap::Args;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;

/// Interval of the reports of --verbose.
const VERBOSE_INTERVAL: Duration = Duration::from_secs(10);

pub const EXAMPLES: &str = "\
Answers each probe with a packet of the same length, and no other packet; it keeps no state of its
clients. Open its UDP port in the firewall. SIGINT and SIGTERM end it.

Examples:
  linkctl probe reflect                     IPv4 and IPv6, port 8620
  linkctl probe reflect --bind 192.0.2.7:9000 --verbose
  linkctl -o json probe reflect             its counters as JSON, at the end";

#[derive(Debug, Args)]
pub struct ReflectArgs {
    /// Address to listen on; [::] includes IPv4
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:8620")]
    bind: SocketAddr,
    /// Print counters every 10 s
    #[arg(short, long)]
    verbose: bool,
}

pub async fn run(context: &Context, args: &ReflectArgs) -> Result<(), Failure> {
    let (signals, stop) = (Signals::new()?, stop()?);
    let reflector = Reflector::bind(args.bind).map_err(failure)?;
    say(&format!("reflecting probes at {}", reflector.address()));
    let (told, reports) = watch::channel(Reflected::default());
    let reflector = {
        let (every, stop) = (args.verbose.then_some(VERBOSE_INTERVAL), stop.clone());
        let tell = move |counts: &Reflected| {
            told.send_replace(*counts);
        };
        tokio::task::spawn_blocking(move || reflector.run(&stop, every, tell))
    };
    let counts = drive(reflector, reports, signals, &stop, |event| {
        if let Event::Report(counts) = event {
            say(&ReflectView::from(counts).text());
        }
    });
    let view = ReflectView::from(counts.await?);
    match context.output {
        Output::Json => output::json(&view),
        Output::Text => output::text(&view.text()),
    }
}
