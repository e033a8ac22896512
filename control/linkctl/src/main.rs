// SPDX-License-Identifier: Apache-2.0
//! linkctl: the command line of linkemu.
//!
//! One command tree ([`cli`]); each command asks linkd, over its unix socket or over TLS, and
//! prints text or JSON. Results go to stdout, errors to stderr; the exit code says
//! gives the result ([`failure`]).

mod appliance;
mod argument;
mod baseline;
mod capture;
mod certificate;
mod cli;
mod clients;
mod complete;
mod completion;
mod connection;
mod context;
mod denied;
mod destination;
mod doctor;
mod envelope;
mod events;
mod failure;
mod fit;
mod group;
mod hint;
mod lease;
mod link;
mod man;
mod output;
mod pki;
mod probe;
mod profile;
mod run;
mod scenario;
mod set;
mod show;
mod stats;
mod switch;
mod target;
mod terminal;
mod tls;
mod top;
mod traces;
mod verify;
mod web;

use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::engine::ArgValueCompleter;
use cli::{Cli, Command};
use context::Output;
use failure::{Failure, OK, USAGE};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = run::inside() {
        return code;
    }
    CompleteEnv::with_factory(completed).var(complete::ASKED).complete();
    let cli = match Cli::from_args(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(carry_out(&cli)),
        Err(error) => Err(Failure::failed("internal", format!("cannot start: {error}"))),
    };
    match result {
        Ok(()) => ExitCode::from(OK),
        Err(failure) => failure.report(cli.context.output == Output::Json),
    }
}

/// The command tree, with the completion of an option of all commands.
fn completed() -> clap::Command {
    Cli::command().mut_arg("link", |arg| arg.add(ArgValueCompleter::new(complete::link)))
}

async fn carry_out(cli: &Cli) -> Result<(), Failure> {
    let context = &cli.context;
    cli.check_links()?;
    match &cli.command {
        Command::Run(args) => Box::pin(run::run(context, args)).await,
        Command::Set { what } => set::run(context, what).await,
        Command::Show(args) => show::run(context, args).await,
        Command::Stats(args) => stats::run(context, args).await,
        Command::Top(args) => top::run(context, args).await,
        Command::Capture(args) => capture::run(context, args).await,
        Command::Certificate(args) => certificate::run(context, args).await,
        Command::Envelope(args) => envelope::run(context, args).await,
        Command::Clients { what } => clients::run(context, what).await,
        Command::Profile { what } => profile::run(context, what).await,
        Command::Scenario { what } => scenario::run(context, what).await,
        Command::Trace { what } => traces::run(context, what).await,
        Command::Group { what } => group::run(context, what).await,
        Command::Switch { what } => switch::run(context, what).await,
        Command::Probe { what } => probe::run(context, what).await,
        Command::Fit(args) => fit::run(context, args),
        Command::Verify(args) => verify::run(context, args).await,
        Command::Lease { what } => lease::run(context, what).await,
        Command::Link { what } => link::run(context, what).await,
        Command::Events(args) => events::run(context, args).await,
        Command::Web(args) => web::run(context, args).await,
        Command::Doctor(args) => doctor::run(context, args).await,
        Command::Box { what } => appliance::run(context, what),
        Command::Man(args) => man::run(context, args, &Cli::command()),
        Command::Pki { what } => pki::run(context, what),
        Command::Completion(args) => completion::run(args),
    }
}

/// Prints help, version or a usage error of clap.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::from(OK);
    }
    if cli::wants_json(std::env::args_os()) {
        let text = error.render().to_string();
        let message = text.trim().strip_prefix("error: ").unwrap_or(text.trim()).to_owned();
        return Failure::usage(message).report(true);
    }
    let _ = error.print();
    ExitCode::from(USAGE)
}
