// SPDX-License-Identifier: Apache-2.0
//! linkd: the control plane of linkemu.

use anyhow::Context;
use clap::{ArgGroup, CommandFactory, Parser};
use endpoint::supervisor;
use linkd::{
    Listen, Metrics, Permissions, Reload, Security, Server, Settings, TlsFiles, WebListen,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Controls a link emulator: serves linkctl and other clients, drives the dataplane.
///
/// linkd needs no privileges. It may be stopped, replaced and started at any time
/// without touching a packet. It finds a dataplane that was restarted and restores
/// the last link.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
#[command(group(ArgGroup::new("network").args(["listen", "web"]).multiple(true)))]
struct Args {
    /// Unix socket of the API; every user who may open it has all permissions
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_SOCKET",
        default_value = "/run/linkemu/linkd.sock"
    )]
    socket: PathBuf,

    /// Mode of the socket
    #[arg(long, value_name = "OCTAL", default_value = "0660", value_parser = parse_mode)]
    socket_mode: u32,

    /// Group of the socket
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,

    /// Serve the API over TCP with TLS too, such as 0.0.0.0:8443, for callers with a certificate
    #[arg(long, value_name = "ADDR:PORT", requires_all = ["tls_cert", "tls_key", "tls_client_ca"])]
    listen: Option<SocketAddr>,

    /// Serve the web page and its API here, such as 127.0.0.1:8480, alone or beside --listen; log in
    /// with a link of linkctl web. With --tls-cert it is HTTPS; without, only loopback addresses
    #[arg(long, value_name = "ADDR:PORT", env = "LINKEMU_WEB")]
    web: Option<SocketAddr>,

    /// Further host name or address of the web page in browsers; may be given again. Those of
    /// loopback, of --web and of the certificate are always accepted
    #[arg(long, value_name = "HOST", requires = "web")]
    web_host: Vec<String>,

    /// Serve the web page without TLS on any address: in a container, or behind a proxy with TLS.
    /// --tls-cert is then for --listen alone
    #[arg(long, requires = "web")]
    web_insecure: bool,

    /// Certificate of linkd, with the chain to its authority, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["network", "tls_key", "tls_client_ca"])]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate; only its owner and group may be able to read it
    #[arg(long, value_name = "FILE", requires = "network")]
    tls_key: Option<PathBuf>,

    /// Authorities that sign the certificates of callers, in PEM
    #[arg(long, value_name = "FILE", requires = "network")]
    tls_client_ca: Option<PathBuf>,

    /// Refuse callers whose certificates these lists revoke, in PEM; each authority needs one. May
    /// be given again
    #[arg(long, value_name = "FILE", requires = "network")]
    tls_client_crl: Vec<PathBuf>,

    /// Append all changes and refusals, with their callers, to this file as JSON lines
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,

    /// Unix socket of the dataplane
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_DATAPLANE",
        default_value = "/run/linkemu/dataplane.sock"
    )]
    dataplane: PathBuf,

    /// Run as a box of a group: linkd-group calls the dataplane through --listen, with the role admin,
    /// and changes are made at linkd of the group only
    #[arg(long)]
    member: bool,

    /// Offer the profiles (*.toml) of this directory too; may be given again
    #[arg(long, value_name = "DIR")]
    profiles: Vec<PathBuf>,

    /// Store the last link, the lease and profiles in this directory; default: they are
    /// lost when linkd ends
    #[arg(long, value_name = "DIR", env = "LINKEMU_STATE")]
    state: Option<PathBuf>,

    /// Serve metrics for Prometheus at http://ADDR:PORT/metrics, without encryption: use
    /// loopback
    #[arg(long, value_name = "ADDR:PORT", env = "LINKEMU_METRICS")]
    metrics: Option<SocketAddr>,

    /// Number of clients with metrics of their own, those with the most traffic; all others
    /// are summed as "other"
    #[arg(
        long,
        value_name = "N",
        requires = "metrics",
        default_value_t = Metrics::CLIENTS as u64,
        value_parser = clap::value_parser!(u64).range(..=Metrics::CLIENTS_MAX as u64)
    )]
    metrics_clients: u64,

    /// Log to standard error: error, warn, info, debug, trace, or filters such as linkd=debug
    #[arg(long, value_name = "FILTER", env = "LINKEMU_LOG", default_value = "info")]
    log: String,

    /// Write the man page and the completion scripts into this directory, and end.
    #[arg(long, value_name = "DIR", hide = true, exclusive = true)]
    manual: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  Serve at the default socket, with the dataplane at its default socket:
    linkd

  Try it as an ordinary user:
    linkd-dataplane --socket ./dataplane.sock … &
    linkd --socket ./linkd.sock --dataplane ./dataplane.sock &
    linkctl --socket ./linkd.sock set profile viasat2

  Offer your own profiles beside the built-in ones:
    linkctl profile check profiles/*.toml && linkd --profiles profiles

  Restore the link after a power failure:
    linkd --state /var/lib/linkemu

  Serve metrics to a Prometheus on this machine:
    linkd --metrics 127.0.0.1:9742

  Serve the web page on this machine, and log in to it:
    linkd --web 127.0.0.1:8480 &
    linkctl web

  Serve a lab, with certificates made by linkctl pki:
    linkd --listen 0.0.0.0:8443 --tls-cert linkemu.lab.pem --tls-key linkemu.lab.key \\
      --tls-client-ca ca.pem --audit-log /var/log/linkemu/audit.jsonl

  Serve the page to the lab as well, with the same certificates:
    linkd --listen 0.0.0.0:8443 --web 0.0.0.0:8480 --tls-cert linkemu.lab.pem \\
      --tls-key linkemu.lab.key --tls-client-ca ca.pem

  Serve a box of a group to the linkd-group on another machine:
    linkd --member --listen 0.0.0.0:8443 --tls-cert box2.lab.pem --tls-key box2.lab.key \\
      --tls-client-ca ca.pem

With TLS or --audit-log, SIGHUP reads the certificates and revocation lists and reopens the audit log; SIGTERM and SIGINT end it cleanly. Exit codes: 0 ended, 1 failed, 2 usage.";

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("write an octal mode from 0000 to 0777, such as 0660".into()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.manual {
        Some(folder) => write_manual(folder),
        None => endpoint::files::ensure().map_err(Into::into).and_then(|()| run(args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", endpoint::errors::told(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn write_manual(folder: &Path) -> anyhow::Result<()> {
    manual::write_daemon(&Args::command(), folder)
        .with_context(|| format!("cannot write to {}", folder.display()))
}

#[tokio::main(worker_threads = 2)]
async fn run(args: Args) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&args.log)
        .with_context(|| format!("--log {:?}: write a level such as info", args.log))?;
    endpoint::log::to_stderr(filter);
    let catalog = profile::Catalog::load(&args.profiles)?;
    // Before the socket stands, so that no signal after it goes astray.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // With nothing to reload, the signal ends linkd, as when its terminal closes.
    let reloads = args.tls_cert.is_some() || args.audit_log.is_some();
    let hangup = reloads.then(|| signal(SignalKind::hangup())).transpose()?;
    let Args { socket, dataplane, state, metrics, metrics_clients, .. } = args;
    let Args { socket_mode, socket_group, audit_log, .. } = args;
    let tls = match (args.tls_cert, args.tls_key, args.tls_client_ca) {
        (Some(cert), Some(key), Some(client_ca)) => {
            Some(TlsFiles { cert, key, client_ca, client_crl: args.tls_client_crl })
        }
        _ => None,
    };
    let listen = args.listen.zip(tls.clone()).map(|(address, tls)| Listen { address, tls });
    let (hosts, insecure) = (args.web_host, args.web_insecure);
    if insecure && tls.is_some() && listen.is_none() {
        anyhow::bail!(
            "--tls-cert without --listen is for the page: leave out one of --web-insecure and --tls-cert"
        );
    }
    let tls = tls.filter(|_| !insecure);
    let web = args.web.map(|address| WebListen { address, hosts, tls, insecure });
    let security = Security {
        socket: Permissions { mode: socket_mode, group: socket_group },
        listen,
        web,
        audit: audit_log,
        member: args.member,
        ..Security::default()
    };
    let profiles = catalog.iter().count();
    let (at, of) = (socket.clone(), dataplane.clone());
    let settings = Settings { socket: at, dataplane: of, catalog, state, security };
    let mut server = Server::bind(settings)?;
    if let Some(address) = metrics {
        let metrics = Metrics::bind(address, metrics_clients as usize).await?;
        tracing::info!(address = %metrics.address(), "serving metrics");
        server = server.with_metrics(metrics);
    }
    let tcp = server.address();
    if let Some(address) = server.web_address() {
        tracing::info!(%address, "serving the web page: log in with linkctl web");
    }
    tracing::info!(socket = %socket.display(), dataplane = %dataplane.display(), ?tcp, profiles, "serving");
    let page = server.web_address().map(|address| format!("the page at {address}"));
    let places = [Some(socket.display().to_string()), tcp.map(|a| a.to_string()), page];
    let words = format!("serves {}", places.into_iter().flatten().collect::<Vec<_>>().join(", "));
    supervisor::ready(&words);
    tokio::spawn(keep_alive());
    if let Some(hangup) = hangup {
        tokio::spawn(reload(hangup, server.reloader()));
    }
    server
        .serve(async {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
                _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
            }
            supervisor::stopping();
        })
        .await?;
    Ok(())
}

/// Reports to the service manager, if there is one, that the runtime is alive.
async fn keep_alive() {
    let Some(period) = supervisor::period() else { return };
    loop {
        supervisor::alive();
        tokio::time::sleep(period).await;
    }
}

/// Reads certificates and reopens the audit log at each signal.
async fn reload(mut hangup: Signal, reload: Reload) {
    while hangup.recv().await.is_some() {
        match reload.reload() {
            Ok(()) => tracing::info!("SIGHUP: certificates read, audit log reopened"),
            Err(error) => tracing::error!("SIGHUP: what was in force stays: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_and_web_are_given_together_or_alone() {
        let parse = |line: &str| Args::try_parse_from(line.split(' ')).map(drop);
        let tls = "--tls-cert a --tls-key b --tls-client-ca c";
        let both = "linkd --listen 0.0.0.0:8443 --web 0.0.0.0:8480";
        for line in [
            format!("{both} {tls}"),
            format!("{both} {tls} --web-insecure --web-host box.lab --tls-client-crl d"),
            format!("linkd --listen 0.0.0.0:8443 {tls}"),
            format!("linkd --web 0.0.0.0:8480 {tls}"),
            "linkd --web 127.0.0.1:8480".to_owned(),
        ] {
            assert!(parse(&line).is_ok(), "{line}");
        }
        for line in [both.to_owned(), format!("linkd {tls}"), "linkd --web-insecure".to_owned()] {
            assert!(parse(&line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_command_of_the_documentation_parses() {
        pages::commands_parse("linkd", 3, |words| Args::try_parse_from(words));
    }

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
