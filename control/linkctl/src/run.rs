// SPDX-License-Identifier: Apache-2.0
//! `linkctl run`: a command behind its own link, without root.
//!
//! Four processes: this one stays outside and talks to linkd; [`enter`] makes the namespaces;
//! [`init`] is the first process in them and starts the programs and the command. They talk over
//! a socket ([`message`]). See docs/adr/0079-a-command-has-its-own-link.md.

mod address;
mod buffers;
mod enter;
mod init;
mod memory;
mod message;
mod network;
mod output;
mod programs;
mod ready;
mod session;
mod signals;
mod stale;
mod tap;

use crate::certificate;
use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output, Place};
use crate::destination::Destination;
use crate::failure::{CHECK, Failure};
use crate::scenario;
use crate::set::{self, Patch};
use crate::target::Condition;
use buffers::{Buffers, Sizes};
use clap::{Args, Parser};
use clap_complete::engine::ArgValueCompleter;
use mac_address::MacAddress;
use message::Server;
use profile::{parse_duration, parse_size};
use proto::linkemu::v1 as pb;
use ready::Ready;
use session::{Fault, Session};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tap::Tap;

pub const EXAMPLES: &str = "\
Examples:
  linkctl run --profile viasat2 -- ping -c 5 10.0.0.1
  linkctl run --profile geo-600 -- bash              a shell; `linkctl top` works in it
  linkctl run --profile viasat2 --serve 'iperf3 -s' -- iperf3 -c 10.0.0.1
  linkctl run --set 'rate 20Mbit/s' --set 'delay --rtt 80ms' --set 'loss 1%' -- ./test.sh
  linkctl run --profile viasat2 --scenario rain-fade --require-pass -- ./test.sh
  linkctl run --profile geo-600 -- linkctl run --profile viasat2 -- ping -c 5 10.0.0.1
  linkctl run --profile viasat2 --certificate run.txt --capture run.pcapng -- ./test.sh

The command is on the client's side of the link: 10.0.0.2 and fd00::2. On the other side is a host,
10.0.0.1 and fd00::1 ($LINKEMU_FAR), that answers pings and runs --serve. There is no way
to other networks: nor to this machine's own, nor to its loopback. Files, terminal and user are those of
the caller. The command may change its own network (ip, tc, tcpdump). `sudo` does not work in it.

It needs no root: user namespaces have to be permitted (docs/run.md). linkctl in the command finds
the link by LINKEMU_SOCKET. Within another run, packets pass the outer link too.

Exit code: the command's, or 128 and the number of the signal that ended it, 126 if it cannot be
executed, 127 if it is not found; 125 if the link could not be set up or ended by itself, or, after a
command that succeeded, if --serve failed or --capture is not complete; with --require-pass, 4 if the
command succeeded and the certificate fails.";

/// If the run did not do its part, as of `timeout` and `docker run`.
const NOT_SET_UP: u8 = 125;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Name of a profile, or a file (with a '/', or ending in .toml)
    #[arg(short, long, value_name = "NAME|FILE", default_value = "transparent", add = ArgValueCompleter::new(complete::profile))]
    profile: String,
    /// Seed of all random processes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A change of the profile, with the words of `linkctl set`; may be given again
    #[arg(long = "set", value_name = "CHANGE", value_parser = change)]
    changes: Vec<Patch>,
    /// Scenario that starts with the command: its name, or a file
    #[arg(long, value_name = "NAME|FILE", add = ArgValueCompleter::new(complete::scenario))]
    scenario: Option<String>,
    /// Run this shell command on the far host, from before the command until its end
    #[arg(long = "serve", value_name = "COMMAND")]
    serve: Option<String>,
    /// Start the command when --serve has this port: tcp:PORT, udp:PORT, any, or none
    #[arg(long, value_name = "PORT", value_parser = Ready::parse, default_value = "any", requires = "serve")]
    serve_ready: Ready,
    /// Maximum time until --serve has its port
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s", requires = "serve")]
    serve_timeout: u64,
    /// Write the packets to this new file in pcapng (linkctl capture)
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Write the certificate to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Print a certificate only if it fails
    #[arg(short, long)]
    quiet: bool,
    /// Exit with 4 if the certificate fails although the command succeeded
    #[arg(long)]
    require_pass: bool,
    #[command(flatten)]
    limits: certificate::LimitArgs,
    /// Run the command as root of its user namespace
    #[arg(long)]
    root: bool,
    /// Maximum TCP buffers of both hosts: a size, keep (those of the machine), or link (twice its
    /// bandwidth-delay product, and its queue)
    #[arg(long, value_name = "SIZE", value_parser = Buffers::parse, default_value = "link")]
    buffers: Buffers,
    /// Memory for packets in the link, allocated as it is used
    ///
    /// Without it, 2 GiB, or three quarters of what the machine or a control group leaves if that is less.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Directory of linkd-dataplane and linkd; default: that of linkctl, then PATH
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Command and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// A change in the words of `linkctl set`.
#[derive(Debug, Parser)]
#[command(name = "--set", no_binary_name = true, disable_help_flag = true)]
struct Change {
    #[command(subcommand)]
    patch: Patch,
}

fn change(text: &str) -> Result<Patch, String> {
    let words = shlex::split(text).ok_or("a quotation mark is not closed")?;
    let parsed = Change::try_parse_from(words).map_err(|error| {
        let text = error.render().to_string();
        let message = text.split("\n\n").next().unwrap_or_default().trim();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        format!("{message}; see `linkctl help set`")
    })?;
    Ok(parsed.patch)
}

/// The processes inside, by the name that the program was started as.
pub fn inside() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    match name.to_str()? {
        enter::ENTER => Some(enter::main(arguments)),
        enter::INIT => Some(init::main(arguments)),
        _ => None,
    }
}

/// The result of a run.
enum Outcome {
    Ended {
        /// Of the command, as a shell gives it.
        status: u8,
        /// Whether the certificate holds.
        passed: bool,
        /// What the run itself did not do.
        fault: Option<Fault>,
        /// Whether the file of the capture lacks something.
        incomplete: bool,
    },
    /// A signal came before the command was started.
    Interrupted(u8),
}

impl Outcome {
    /// The exit code.
    fn code(&self, require_pass: bool) -> u8 {
        match self {
            Self::Interrupted(status) => *status,
            Self::Ended { fault: Some(Fault::Emulator(_)), .. } => NOT_SET_UP,
            Self::Ended { status, .. } if *status != 0 => *status,
            Self::Ended { fault: Some(Fault::Server(_)), .. }
            | Self::Ended { incomplete: true, .. } => NOT_SET_UP,
            Self::Ended { passed: false, .. } if require_pass => CHECK,
            Self::Ended { .. } => 0,
        }
    }
}

/// Runs the command; the failure has its exit code.
pub async fn run(context: &Context, args: &RunArgs) -> Result<(), Failure> {
    let outcome = Box::pin(attempt(context, args)).await;
    let outcome = outcome.map_err(|failure| failure.with_exit(NOT_SET_UP))?;
    match outcome.code(args.require_pass) {
        0 => Ok(()),
        code => Err(Failure::Command(code)),
    }
}

async fn attempt(context: &Context, args: &RunArgs) -> Result<Outcome, Failure> {
    // The programs of the link inherit it.
    let files = endpoint::files::ensure();
    files.map_err(|error| Failure::failed("resource_exhausted", error.to_string()))?;
    // What can be refused before anything starts.
    let destination = match &args.certificate {
        Some(path) => Some(Destination::new("--certificate", path, &[])?),
        None => None,
    };
    let profile = set::requested(&args.profile)?;
    let scenario = args.scenario.as_deref().map(scenario::named).transpose()?;
    let tap = args.capture.as_deref().map(Tap::create).transpose()?;
    let mut session = Session::new(args).await?;
    let outcome = Box::pin(within(&mut session, context, args, profile, scenario, tap)).await;
    let outcome = match outcome {
        Ok(Inside::Interrupted(status)) => Ok(Outcome::Interrupted(status)),
        Ok(Inside::Ended { status, judged, incomplete }) => {
            let fault = match (session.fault(), &judged) {
                (Some(fault), _) => Some(fault.clone()),
                (None, Err(why)) => {
                    eprintln!("linkctl run: no certificate: {why}");
                    Some(Fault::Emulator(why.clone()))
                }
                (None, Ok(_)) => None,
            };
            let judged = match &fault {
                Some(Fault::Emulator(why)) => Err(why.clone()),
                _ => judged,
            };
            let passed = report(context, args, destination.as_ref(), judged);
            passed.map(|passed| Outcome::Ended { status, passed, fault, incomplete })
        }
        Err(failure) => Err(failure),
    };
    session.end().await;
    outcome
}

/// What happened in the namespaces.
enum Inside {
    Ended {
        status: u8,
        /// Or why there is no certificate.
        judged: Result<Box<pb::Certificate>, String>,
        incomplete: bool,
    },
    Interrupted(u8),
}

async fn within(
    session: &mut Session,
    context: &Context,
    args: &RunArgs,
    profile: pb::profile_update::Profile,
    scenario: Option<pb::run_scenario_request::Scenario>,
    tap: Option<Tap>,
) -> Result<Inside, Failure> {
    if let Some(status) = session.begin().await? {
        return Ok(Inside::Interrupted(status));
    }
    let begun = Context { linkd: Place::at(&session.socket()), lease: None, ..context.clone() };
    let memory = session.memory();
    let (connection, link) = tokio::select! {
        ready = prepare(&begun, args, profile) => ready.map_err(|failure| failed(failure, memory))?,
        ended = session.interrupted() => return Ok(Inside::Interrupted(ended?)),
    };
    let current = Sizes::current();
    if let Some(sizes) = Sizes::of(args.buffers, &link, current) {
        if sizes != current && !args.quiet {
            eprintln!("linkctl run: {}", sizes.text(args.buffers));
        }
        session.set_buffers(sizes).await;
    }
    if let Some(command) = &args.serve {
        let server = Server { command: command.clone(), ready: args.serve_ready };
        let limit = Duration::from_nanos(args.serve_timeout);
        if let Some(status) = session.serve(server, limit).await? {
            return Ok(Inside::Interrupted(status));
        }
    }
    let capture = match tap {
        Some(tap) => Some(tap.begin(&connection).await?),
        None => None,
    };
    let request = pb::GetStatsRequest { mark: true, link: connection.link() };
    connection.call(|mut c| async move { c.get_stats(request).await }).await?;
    if scenario.is_some() {
        let (link, tolerate_changes) = (connection.link(), true);
        let request =
            pb::RunScenarioRequest { link, scenario, tolerate_changes, ..Default::default() };
        connection.answer(connection.scenarios().run_scenario(request)).await?;
    }
    let status = session.command().await?;
    let mut incomplete = false;
    if let Some(capture) = capture {
        let until = tokio::select! {
            drained = tap::drained(&connection) => drained.ok(),
            _ = session.interrupted() => None,
        };
        match capture.end(until).await {
            Ok(written) if args.quiet => drop(written),
            Ok(written) => eprintln!("linkctl run: {written}"),
            Err(failure) => {
                incomplete = true;
                eprintln!("linkctl run: the capture is not complete: {}", failure.message());
            }
        }
    }
    let request = args.limits.request(connection.link(), false);
    let found = connection.answer(connection.certificates().get_certificate(request)).await;
    let judged = found.map(Box::new).map_err(|failure| failure.message().to_owned());
    Ok(Inside::Ended { status, judged, incomplete })
}

/// Writes the certificate. Gives whether it holds.
fn report(
    context: &Context,
    args: &RunArgs,
    destination: Option<&Destination>,
    judged: Result<Box<pb::Certificate>, String>,
) -> Result<bool, Failure> {
    let passed = judged.as_ref().is_ok_and(|found| found.holds);
    let text = match (judged, context.output) {
        (Ok(found), Output::Text) => certificate::text(&found),
        (Err(why), Output::Text) => format!("FAIL: {}\n", without_figures(&why)),
        (judged, Output::Json) => {
            let found = judged.unwrap_or_else(|why| {
                let summary = without_figures(&why);
                Box::new(pb::Certificate { summary, ..Default::default() })
            });
            serde_json::to_string(&proto::json(&*found)).unwrap_or_default() + "\n"
        }
    };
    match destination {
        Some(destination) => destination.write(&text)?,
        None if args.quiet && passed => {}
        None => eprintln!("{}", text.trim_end()),
    }
    Ok(passed)
}

fn without_figures(why: &str) -> String {
    format!("there are no figures of the emulator: {why}")
}

/// Sets the link, and gives it.
async fn prepare(
    context: &Context,
    args: &RunArgs,
    profile: pb::profile_update::Profile,
) -> Result<(Connection, pb::Profile), Failure> {
    let connection = session::connect(context).await?;
    let update = pb::LinkUpdate {
        profile: Some(pb::ProfileUpdate { profile: Some(profile), seed: Some(args.seed) }),
        pipes: args.changes.iter().map(set::pipe).collect::<Result<_, _>>()?,
        clients: Some(clients()),
        ..Default::default()
    };
    set::update(&connection, &[], update, &Condition::default()).await?;
    let profile = connection.get_link().await?.profile;
    Ok((connection, profile.unwrap_or_default()))
}

/// All addresses of the command's host, and the multicast groups of the far host, are one client.
fn clients() -> pb::Clients {
    let from = |prefix: &str| pb::Match { remote_prefix: prefix.into(), ..Default::default() };
    let client = pb::Client {
        name: "command".into(),
        macs: vec![MacAddress::new(network::NEAR_MAC).to_string()],
        matches: vec![from("0.0.0.0/0"), from("::/0")],
        ..Default::default()
    };
    pb::Clients { clients: vec![client], ..Default::default() }
}

/// A link that does not fit gets the remedy of this command.
fn failed(failure: Failure, memory: u64) -> Failure {
    if !failure.is_outside_envelope() {
        return failure;
    }
    failure.without_hints().hint(format!(
        "the link has {} for packets: --memory gives it more or less",
        view::size(memory)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_that_of_command_unless_run_failed() {
        let code = |status, passed, fault, incomplete| {
            Outcome::Ended { status, passed, fault, incomplete }.code(true)
        };
        let gone = || Some(Fault::Emulator("killed".into()));
        assert_eq!(code(0, true, None, false), 0);
        assert_eq!(code(0, false, None, false), CHECK);
        assert_eq!(code(7, false, None, true), 7);
        assert_eq!(code(0, true, None, true), NOT_SET_UP);
        assert_eq!(code(0, false, Some(Fault::Server(1)), false), NOT_SET_UP);
        assert_eq!(code(7, true, Some(Fault::Server(1)), false), 7);
        assert_eq!(code(7, false, gone(), false), NOT_SET_UP);
        assert_eq!(code(0, false, gone(), false), NOT_SET_UP);
        assert_eq!(Outcome::Interrupted(130).code(false), 130);
    }
}
