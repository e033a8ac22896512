// SPDX-License-Identifier: Apache-2.0
//! linkd: the control plane of linkemu.

use anyhow::Context;
use clap::{CommandFactory, Parser};
use linkd::{Metrics, Server, Settings};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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

    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics; without encryption, so
    /// better on loopback
    #[arg(long, value_name = "ADDR:PORT", env = "LINKEMU_METRICS")]
    metrics: Option<SocketAddr>,

    /// Show so many clients each for itself in the metrics, those with the most traffic; the
    /// rest is summed up as "other"
    #[arg(
        long,
        value_name = "N",
        requires = "metrics",
        default_value_t = Metrics::CLIENTS as u64,
        value_parser = clap::value_parser!(u64).range(..=Metrics::CLIENTS_MAX as u64)
    )]
    metrics_clients: u64,

    /// What to log to stderr: error, warn, info, debug, trace, or filters such as linkd=debug
    #[arg(long, value_name = "FILTER", env = "LINKEMU_LOG", default_value = "info")]
    log: String,

    /// Write the man page and the completion scripts into this directory, and end.
    #[arg(long, value_name = "DIR", hide = true, exclusive = true)]
    manual: Option<PathBuf>,
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

  Let a Prometheus on this machine see what happens to the packets:
    linkd --metrics 127.0.0.1:9742

SIGTERM and SIGINT end it cleanly. Exit codes: 0 ended, 1 failed, 2 usage.";

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.manual {
        Some(folder) => write_manual(folder),
        None => run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn write_manual(folder: &Path) -> anyhow::Result<()> {
    let tree = Args::command();
    manual::write_pages(&tree, "8", folder)
        .and_then(|_| manual::write_completions(&tree, folder))
        .with_context(|| format!("cannot write to {}", folder.display()))
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
    let Args { socket, dataplane, state, metrics, metrics_clients, .. } = args;
    let profiles = catalog.iter().count();
    let settings =
        Settings { socket: socket.clone(), dataplane: dataplane.clone(), catalog, state };
    let mut server = Server::bind(settings)?;
    if let Some(address) = metrics {
        let metrics = Metrics::bind(address, metrics_clients as usize).await?;
        tracing::info!(address = %metrics.address(), "serving metrics");
        server = server.with_metrics(metrics);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test")]
    fn the_page_names_every_option_and_needs_none_to_be_written() {
        let tree = Args::command();
        tree.clone().debug_assert();
        let pages = manual::pages(&tree, "8").unwrap();
        assert_eq!(manual::unnamed(&tree, &pages), [""; 0]);
        assert_eq!(pages[0].name, "linkd.8");
        let folder = tempfile::tempdir().unwrap();
        let args = Args::try_parse_from(["linkd", "--manual", "x"]).unwrap();
        assert_eq!(args.manual.as_deref(), Some(Path::new("x")));
        assert!(Args::try_parse_from(["linkd", "--manual", "x", "--log", "info"]).is_err());
        write_manual(folder.path()).unwrap();
        assert!(folder.path().join("linkd.8").is_file());
        assert!(folder.path().join("linkd.bash").is_file());
    }
}
