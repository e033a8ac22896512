// SPDX-License-Identifier: Apache-2.0
//! `quicflow serve` and `quicflow fetch`: both ends of a QUIC transfer.

use std::io::stdout;

use anyhow::Result;
use clap::{Parser, Subcommand};
use quicflow::{client, server};

#[derive(Parser)]
#[command(about = "Transfers over real QUIC stacks")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send objects until SIGTERM; print a line of JSON for each connection
    Serve(server::Options),
    /// Receive objects; print a line of JSON
    Fetch(client::Options),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Serve(options) => server::run(&options, stdout()).await,
        Command::Fetch(options) => {
            println!("{}", serde_json::to_string(&client::run(&options).await?)?);
            Ok(())
        }
    }
}
