// SPDX-License-Identifier: Apache-2.0
//! linkd: the control plane of linkemu.

use anyhow::Context;
use clap::Parser;
use linkd::{Server, Settings};
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Controls a link emulator: serves linkctl and other clients, drives the dataplane.
///
/// linkd needs no privileges. It may be stopped, replaced and started at any time
/// without touching a packet. A dataplane that was started anew it finds by itself and
/// brings back to the last link.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Args {
    /// Serve linkemu.v1 here; owner and group may connect
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_SOCKET",
        default_value = "/run/linkemu/linkd.sock"
    )]
    socket: PathBuf,

    /// Find the dataplane here
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_DATAPLANE",
        default_value = "/run/linkemu/dataplane.sock"
    )]
    dataplane: PathBuf,

    /// Offer the profiles (*.toml) of this directory too; may be given again
    #[arg(long, value_name = "DIR")]
    profiles: Vec<PathBuf>,

    /// Keep the last link, the lease and stored profiles in this directory; without it,
    /// they end with linkd
    #[arg(long, value_name = "DIR", env = "LINKEMU_STATE")]
    state: Option<PathBuf>,

    /// What to log to stderr: error, warn, info, debug, trace, or filters such as linkd=debug
    #[arg(long, value_name = "FILTER", env = "LINKEMU_LOG", default_value = "info")]
    log: String,
}

const EXAMPLES: &str = "\
Examples:
  Serve at the standard place, with the dataplane at its standard place:
    linkd

  Try it as an ordinary user:
    linkd-dataplane --socket ./dataplane.sock … &
    linkd --socket ./linkd.sock --dataplane ./dataplane.sock &
    linkctl --socket ./linkd.sock set profile viasat2

  Offer your own profiles beside the built-in ones:
    linkctl profile check profiles/*.toml && linkd --profiles profiles

  Survive power cuts:
    linkd --state /var/lib/linkemu

SIGTERM and SIGINT end it cleanly. Exit codes: 0 ended, 1 failed, 2 usage.";

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn run(args: Args) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&args.log)
        .with_context(|| format!("--log {:?}: write a level such as info", args.log))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let catalog = profile::Catalog::load(&args.profiles)?;
    // Before the socket stands, so that no signal after it goes astray.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let Args { socket, dataplane, state, .. } = args;
    let profiles = catalog.iter().count();
    let settings =
        Settings { socket: socket.clone(), dataplane: dataplane.clone(), catalog, state };
    let server = Server::bind(settings)?;
    tracing::info!(socket = %socket.display(), dataplane = %dataplane.display(), profiles, "serving");
    server
        .serve(async {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
                _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
            }
        })
        .await?;
    Ok(())
}
