// SPDX-License-Identifier: Apache-2.0
//! Serves objects until SIGTERM or SIGINT, and reports each connection.

use std::io::Write;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::object;
use crate::report::{STEP, Served};
use crate::secret::Secret;
use crate::stack::quinn::QuinnServer;
#[cfg(feature = "s2n")]
use crate::stack::s2n::S2nServer;
use crate::stack::{Congestion, Connection, Path, Server, Settings, StackName};

#[derive(Debug, Args)]
pub struct Options {
    /// QUIC stack
    #[arg(long, value_enum)]
    pub stack: StackName,
    /// Congestion control of the sender
    #[arg(long, value_enum)]
    pub congestion: Congestion,
    /// Address and UDP port of the server; port 0 takes a free one
    #[arg(long)]
    pub bind: std::net::SocketAddr,
    /// File to which the X.509 certificate of the server is written
    #[arg(long)]
    pub x509: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
}

/// Serves until a signal. Writes one [`Served`] per connection to `out`, as a line of JSON.
pub async fn run(options: &Options, out: impl Write) -> Result<()> {
    let socket = UdpSocket::bind(options.bind).with_context(|| format!("bind {}", options.bind))?;
    crate::stack::deepen(&socket)?;
    let secret = Secret::create(&options.x509)?;
    let (congestion, settings) = (options.congestion, options.settings);
    match options.stack {
        StackName::Quinn => {
            serve(QuinnServer::bind(socket, &secret, congestion, settings)?, options, out).await
        }
        #[cfg(feature = "s2n")]
        StackName::S2n => {
            serve(S2nServer::bind(socket, &secret, congestion, settings)?, options, out).await
        }
    }
}

type Shared = Arc<Mutex<Served>>;

async fn serve(mut server: impl Server, options: &Options, mut out: impl Write) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut connections = JoinSet::new();
    let mut reports: Vec<Shared> = Vec::new();
    writeln!(out, "serving {}", server.local_address()?)?;
    out.flush()?;
    loop {
        tokio::select! {
            accepted = server.accept() => {
                let Some(connection) = accepted else { break };
                let report = Arc::new(Mutex::new(Served {
                    stack: name(options.stack),
                    congestion: name(options.congestion),
                    peer: connection.peer()?,
                    path: Vec::new(),
                }));
                reports.push(Arc::clone(&report));
                connections.spawn(attend(connection, report));
            }
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        }
    }
    connections.shutdown().await;
    for report in reports {
        let report = report.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(out, "{}", serde_json::to_string(&*report)?)?;
    }
    Ok(())
}

fn name(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

/// Serves all streams of a connection and samples its path until it ends.
async fn attend(mut connection: impl Connection, report: Shared) {
    let path = connection.path();
    let begin = Instant::now();
    let sampling = tokio::spawn(async move {
        let mut step = tokio::time::interval(STEP);
        loop {
            step.tick().await;
            let mut sample = path.sample();
            sample.at_s = begin.elapsed().as_secs_f64();
            report.lock().unwrap_or_else(PoisonError::into_inner).path.push(sample);
        }
    });
    let mut streams = JoinSet::new();
    while let Some((send, receive)) = connection.accept().await {
        // A stream that fails ends with its connection, which the client reports.
        streams.spawn(object::serve(send, receive));
    }
    sampling.abort();
}
